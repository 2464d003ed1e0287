"""Search text that a model wrote for a person's regular expression: with a time limit, and other
threads go on.
"""

from __future__ import annotations

import re
from functools import lru_cache

import regex

from casual_mcp_nb.errors import UsageError, brief

MAX_TEXT = 20_000
"""How many characters of a text are searched."""
MAX_PATTERN = 50_000
"""How many characters a pattern may have: a longer one takes seconds to compile."""
PATTERN_SECONDS = 2.0
"""How long a search may take.

A pattern such as `(a|aa)+$` would otherwise take longer than anyone lives.
"""

Pattern = str | re.Pattern[str]
_FLAGS = {
    re.ASCII: regex.ASCII,
    re.DOTALL: regex.DOTALL,
    re.IGNORECASE: regex.IGNORECASE,
    re.MULTILINE: regex.MULTILINE,
    re.VERBOSE: regex.VERBOSE,
}


class SlowPatternError(Exception):
    """A search took longer than `PATTERN_SECONDS`."""


def check_pattern(pattern: Pattern) -> None:
    """Check that a pattern can be compiled.

    Raises:
        UsageError: It cannot.
    """
    _compiled(pattern)


def is_found(pattern: Pattern, text: str) -> bool:
    """Check whether a pattern is found in a text's first `MAX_TEXT` characters.

    Raises:
        SlowPatternError: It takes too long.
        UsageError: It is not a regular expression.
    """
    compiled = _compiled(pattern)
    try:
        return (
            compiled.search(text[:MAX_TEXT], timeout=PATTERN_SECONDS, concurrent=True) is not None
        )
    except TimeoutError:
        reason = f"the pattern {brief(compiled.pattern)} took longer than {PATTERN_SECONDS:g} s"
        raise SlowPatternError(reason) from None


@lru_cache(maxsize=1_000)
def _compiled(pattern: Pattern) -> regex.Pattern[str]:
    text, given = pattern, 0
    if isinstance(pattern, re.Pattern):
        text, given = pattern.pattern, pattern.flags
    if not isinstance(text, str):
        raise UsageError(
            f"The pattern {brief(text)} is not a text.", hint="Compile a text, not bytes."
        )
    if len(text) > MAX_PATTERN:
        raise UsageError(
            f"A pattern has {len(text):,} characters, and {MAX_PATTERN:,} are allowed."
        )
    flags = 0
    for one, other in _FLAGS.items():
        if given & one:
            flags |= other
    try:
        return regex.compile(text, flags)
    except RecursionError:
        raise UsageError(f"The pattern {brief(text)} is nested too deeply.") from None
    except (regex.error, ValueError, OverflowError) as error:
        raise UsageError(f"{brief(text)} is not a regular expression: {error}.") from None
