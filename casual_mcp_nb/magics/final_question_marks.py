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
    result, text = [], ""
    for line in lines:
        match = _QUESTION.fullmatch(line)
        # Inside a multi-line string it is text.
        if match and not any(text.count(quotes) % 2 for quotes in ('"""', "'''")):
            result.append(
                f"{match['before']}get_ipython().run_line_magic('mcp', {match['rest']!r})\n"
            )
        else:
            result.append(line)
        text += line
    return result
