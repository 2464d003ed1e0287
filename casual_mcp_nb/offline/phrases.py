"""Rewrite people's phrases as tools word them."""

from __future__ import annotations

import re

from casual_mcp_nb.offline.mentions import NUMBER, QUOTED, UNIT_WORDS, patterns_in

_PHRASES = r"""
2: \btwo\b
3: \bthree\b
4: \bfour\b
5: \bfive\b
6: \bsix\b
7: \bseven\b
8: \beight\b
9: \bnine\b
10: \bten\b
11: \beleven\b
12: \btwelve\b
13: \bthirteen\b
14: \bfourteen\b
15: \bfifteen\b
16: \bsixteen\b
17: \bseventeen\b
18: \beighteen\b
19: \bnineteen\b
20: \btwenty\b
30: \bthirty\b
40: \bforty\b
50: \bfifty\b
60: \bsixty\b
70: \bseventy\b
80: \beighty\b
90: \bninety\b
100: \bhundred\b
\1 1: (in|is|of|convert) (?:an?|one)(?= <UNIT>)

\g<1>1x^2: (?<![\w.])(-?)x\s*(?:\^|\*\*)\s*2(?=.*= 0)
\g<1>1x: ([+-]\s*)x(?=.*= 0)
the quadratic equation with a=\1, b=\2\3, c=\4\5: <N>\s*\*?\s*x\s*(?:\^|\*\*)\s*2\s*([+-])\s*<N>\s*\*?x\s*([+-])\s*<N>\s*= 0
the quadratic equation with a=\1, b=\2\3, c=0: <N>\s*\*?\s*x\s*(?:\^|\*\*)\s*2\s*([+-])\s*<N>\s*\*?x\s*= 0
the quadratic equation with a=\1, b=0, c=\2\3: <N>\s*\*?\s*x\s*(?:\^|\*\*)\s*2\s*([+-])\s*<N>\s*= 0

sqrt(\1): (?:the )?square root of <N>
(\1) ** (1 / 3): (?:the )?cube root of <N>
factorial(\1): (?:the )?factorial of <N>
factorial(\1): <N> factorial\b
factorial(\1): <N>!(?!\w)
\1 ** 2: <N> squared\b
\1 ** 3: <N> cubed\b
\2 - \1: (?:subtract|take) <N> (?:away )?from <N>
\1 + \2: (?:add|sum(?: of)?) <N> (?:and|to) <N>(?!\s*(?:,|and)\s*\d)
\1 * \2: (?:multiply|product of) <N> (?:by|with|and) <N>
\1 / \2: \bdivide <N> by <N>
round(\1, \2): \bround <N> to (\d) (?:decimal|digit|place)\w*(?: places)?
 + : <BEFORE>plus<AFTER>
 - : <BEFORE>minus<AFTER>
 * : <BEFORE>(?:times|multiplied by|\u00d7)<AFTER>
 / : <BEFORE>(?:divided by|\u00f7)<AFTER>
 ** : <BEFORE>(?:to the power of|\^)<AFTER>
 % : <BEFORE>modulo<AFTER>
 / 100 * : <BEFORE>(?:%|percent) of<AFTER>
to base 2: \b(?:in)?to binary\b|\bin binary\b
to base 8: \b(?:in)?to octal\b|\bin octal\b
to base 10: \b(?:in)?to decimal\b|\bin decimal\b
to base 16: \b(?:in)?to hex(?:adecimal)?\b|\bin hex(?:adecimal)?\b
gcd of: (?:largest|biggest|greatest|highest) (?:number|integer) (?:that|which) (?:evenly )?divides(?: both)?
lcm of: (?:smallest|least|lowest) number (?:(?:that|which) is )?(?:divisible by|a multiple of)(?: both)?
percentage change: (?:by )?how many percent\b

12:00: \bnoon\b
00:00: \bmidnight\b
24 December: \bchristmas eve\b
25 December: \bchristmas(?: day)?
31 December: \bnew year['\u2019]?s eve\b
1 January: \bnew year(?:['\u2019]?s(?: day)?)?
difference in \1, start=today, end: (?:how many|number of) <TIMES> (?:are (?:there |left )?)?(?:until|till|to)
difference in \1, end=today, start: (?:how many|number of) <TIMES> (?:have passed |is it |are there )?since\b
difference in years, end=today, start: \bhow old (?:am|is|are)\b.{0,40}?\bborn on\b
add duration time=today, \1 \2: \bwhat (?:date|day) (?:is it|(?:will it|it will) be) in (\d+) <TIMES>
add duration time=today, \1 \2: \bwhat (?:date|day) (?:is |will it be )?(?:it )?(\d+) <TIMES> from (?:now|today)
add duration \1 \2: \bwhat (?:date|day) (?:is |will it be )?(?:it )?(\d+) <TIMES>(?= after)
day of week: \bweekday\b
day of week: \ba (?:mon|tues|wednes|thurs|fri|satur|sun)day\b
week number, text=today: (?:which|what) week (?:number )?(?:of the year )?is (?:it|this)\b(?: today| now)?
week number, text=\1: (?:which|what) week (?:number )?(?:of the year )?is (\w[\w-]*)

for : \bfor the (?:word|words|phrase|text|string)\s+
search files for \1: \bwhere (?:is|does|do) (?:the (?:word|text) )?(\w+) (?:appear|mentioned|occur|used)
search text of files for: (?:do|does|which|what) (?:any )?files? (?:mention|contain|have)s?
which files are in the \1: \bwhat(?:['\u2019]s| is) in (?:this|the|my) (folder|directory)
what is the size of: \bhow (?:big|large) is\b
count the characters in: \bhow long is (?:the|this) (?:text|word|sentence)
query: (?:run|execute)(?= select\s)
describe the columns of: (?:which|what) columns (?:do|does|has|are in)

cpu: \bprocessors?
show memory info: \bhow much (?:free |main )?(?:memory|ram)\b<OF_COMPUTER>
show cpu info: \bhow many (?:cpus?|cores)\b<OF_COMPUTER>
: (?:am i|are we) (?:running|using)
how much is: \bhow (?:\w+) (?:is|are)(?= \d)
"""
"""What replaces a phrase, and its pattern, in the order of their use."""
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


_COMPILED = patterns_in(_PHRASES, _PARTS, re.I)


def reword(text: str) -> str:
    """Rewrite a request's phrases as tools word them. Quotations stay as they are."""
    parts = QUOTED.split(text)
    for place in range(0, len(parts), 2):
        for instead, pattern in _COMPILED:
            parts[place] = pattern.sub(instead, parts[place])
    return "".join(parts)
