"""Rewrite people's phrases as tools word them."""

from __future__ import annotations

import re

from casual_mcp_nb.offline.mentions import NUMBER, QUOTED, UNIT_WORDS, lines_in

_PHRASES = r"""
2: two
3: three
4: four
5: five
6: six
7: seven
8: eight
9: nine
10: ten
11: eleven
12: twelve
13: thirteen
14: fourteen
15: fifteen
16: sixteen
17: seventeen
18: eighteen
19: nineteen
20: twenty
30: thirty
40: forty
50: fifty
60: sixty
70: seventy
80: eighty
90: ninety
100: hundred
\1 1: (in|is|of|convert) (?:an?|one)(?= <UNIT>)

\g<1>1x^2: (?<![\w.])(-?)x\s*(?:\^|\*\*)\s*2(?=.*= 0)
\g<1>1x: ([+-]\s*)x(?=.*= 0)
the quadratic equation with a=\1, b=\2\3, c=\4\5: <N>\s*\*?\s*x\s*(?:\^|\*\*)\s*2\s*([+-])\s*<N>\s*\*?x\s*([+-])\s*<N>\s*= 0
the quadratic equation with a=\1, b=\2\3, c=0: <N>\s*\*?\s*x\s*(?:\^|\*\*)\s*2\s*([+-])\s*<N>\s*\*?x\s*= 0
the quadratic equation with a=\1, b=0, c=\2\3: <N>\s*\*?\s*x\s*(?:\^|\*\*)\s*2\s*([+-])\s*<N>\s*= 0

sqrt(\1): (?:the )?square root of <N>
(\1) ** (1 / 3): (?:the )?cube root of <N>
factorial(\1): (?:the )?factorial of <N>
factorial(\1): <N> factorial
factorial(\1): <N>!(?!\w)
\1 ** 2: <N> squared
\1 ** 3: <N> cubed
\2 - \1: (?:subtract|take) <N> (?:away )?from <N>
\1 + \2: (?:add|sum(?: of)?) <N> (?:and|to) <N>(?!\s*(?:,|and)\s*\d)
\1 * \2: (?:multiply|product of) <N> (?:by|with|and) <N>
\1 / \2: divide <N> by <N>
round(\1, \2): round <N> to (\d) (?:decimal|digit|place)\w*(?: places)?
 + : <BEFORE>plus<AFTER>
 - : <BEFORE>minus<AFTER>
 * : <BEFORE>(?:times|multiplied by|\u00d7)<AFTER>
 / : <BEFORE>(?:divided by|\u00f7)<AFTER>
 ** : <BEFORE>(?:to the power of|\^)<AFTER>
 % : <BEFORE>modulo<AFTER>
 / 100 * : <BEFORE>(?:%|percent) of<AFTER>
gcd of: (?:largest|biggest|greatest|highest) (?:number|integer) (?:that|which) (?:evenly )?divides(?: both)?
lcm of: (?:smallest|least|lowest) number (?:(?:that|which) is )?(?:divisible by|a multiple of)(?: both)?
percentage change: (?:by )?how many percent

12:00: noon
00:00: midnight
24 December: christmas eve
25 December: christmas(?: day)?
31 December: new year['\u2019]?s eve
1 January: new year(?:['\u2019]?s(?: day)?)?
difference in \1, start=today, end: (?:how many|number of) <TIMES> (?:are (?:there |left )?)?(?:until|till|to)
difference in \1, end=today, start: (?:how many|number of) <TIMES> (?:have passed |is it |are there )?since
difference in years, end=today, start: how old (?:am|is|are)\b.{0,40}?\bborn on
add duration time=today, \1 \2: what (?:date|day) (?:is it|(?:will it|it will) be) in (\d+) <TIMES>
add duration time=today, \1 \2: what (?:date|day) (?:is |will it be )?(?:it )?(\d+) <TIMES> from (?:now|today)
day of week: weekday
day of week: a (?:mon|tues|wednes|thurs|fri|satur|sun)day
week number, text=today: (?:which|what) week (?:number )?(?:of the year )?is (?:it|this)\b(?: today| now)?
week number, text=\1: (?:which|what) week (?:number )?(?:of the year )?is (\w[\w-]*)

for : for the (?:word|words|phrase|text|string)\s+
search files for \1: where (?:is|does|do) (?:the (?:word|text) )?(\w+) (?:appear|mentioned|occur|used)
search text of files for: (?:do|does|which|what) (?:any )?files? (?:mention|contain|have)s?
which files are in the \1: what(?:['\u2019]s| is) in (?:this|the|my) (folder|directory)
what is the size of: how (?:big|large) is
count the characters in: how long is (?:the|this) (?:text|word|sentence)
query: (?:run|execute)(?= select\s)
describe the columns of: (?:which|what) columns (?:do|does|has|are in)

cpu: processors?
show memory info: how much (?:free |main )?(?:memory|ram)\b<OF_COMPUTER>
show cpu info: how many (?:cpus?|cores)\b<OF_COMPUTER>
: (?:am i|are we) (?:running|using)
how much is: how (?:\w+) (?:is|are)(?= \d)
"""
"""What replaces a phrase, and its pattern between the ends of words, in the order of their use."""
_PARTS = {
    "<UNIT>": UNIT_WORDS,
    "<N>": rf"(?<![\w.])(-?{NUMBER})",
    "<BEFORE>": r"(?<=[\d)])\s*",
    "<AFTER>": r"\s*(?=\S*\d)",
    "<TIMES>": "(seconds|minutes|hours|days|weeks|months|years)",
    "<OF_COMPUTER>": (
        r"(?:\s(?:cores?|is|are|do|does|have|has|there|free|available|used|left|in|on|this|the|my"
        r"|i|we|it|computer|machine)\b){0,8}"
    ),
}


def _bounded(pattern: str) -> str:
    """Let a pattern begin and end only where words do."""
    begin = r"\b" if pattern[0].isalpha() else ""
    end = r"\b" if pattern[-1].isalpha() else ""
    return f"{begin}{pattern}{end}"


_COMPILED = [
    (instead, re.compile(_bounded(pattern), re.I))
    for instead, pattern in lines_in(_PHRASES, _PARTS)
]


def reword(text: str) -> str:
    """Rewrite a request's phrases as tools word them. Quotations stay as they are."""
    parts = QUOTED.split(text)
    for place in range(0, len(parts), 2):
        for instead, pattern in _COMPILED:
            parts[place] = pattern.sub(instead, parts[place])
    return "".join(parts)
