"""The front-end files, as one ES module and one style sheet for each widget: joined as text, without a build step."""

from __future__ import annotations

from functools import cache
from pathlib import Path

STATIC = Path(__file__).parent / "static"


@cache
def assets(*names: str) -> tuple[str, str]:
    """The module and the style sheet of a widget.

    Args:
        names: The files in `static/`, without their ending, in the order in which they are joined after `common`.

    Returns:
        JavaScript and CSS.
    """
    return _joined(names, ".js"), _joined(names, ".css")


def _joined(names: tuple[str, ...], ending: str) -> str:
    paths = [(STATIC / name).with_suffix(ending) for name in ("common", *names)]
    return "\n".join(path.read_text(encoding="utf-8") for path in paths if path.exists())
