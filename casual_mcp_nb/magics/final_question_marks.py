"""Lines of `%mcp` that end with a question mark, which IPython would read as a request for its help."""

from __future__ import annotations

import re

_QUESTION = re.compile(r"(?P<before>\s*(?:[\w, ]+=\s*)?)%mcp\s+(?P<rest>.*\?)\s*")


def keep_questions(lines: list[str]) -> list[str]:
    """Convert each `%mcp … ?` in a cell to a call, since IPython reads a final question mark as its
    help.
    """
    if not lines or lines[0].startswith("%%"):
        return lines
    result: list[str] = []
    above = ""
    for line in lines:
        match = _QUESTION.fullmatch(line)
        if match is None or _ends_in_a_string(above):
            result.append(line)
        else:
            call = f"get_ipython().run_line_magic('mcp', {match['rest']!r})"
            result.append(f"{match['before']}{call}\n")
        above += line
    return result


def _ends_in_a_string(code: str) -> bool:
    """Check whether a string over several lines begins in this code and goes on after it."""
    return code.count('"""') % 2 == 1 or code.count("'''") % 2 == 1
