"""The front ends, as `frontend/build.mjs` bundled them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

STATIC = Path(__file__).parent / "static"


@cache
def bundle_of(name: str) -> tuple[str, str]:
    """Read the ES module and the style sheet of a front end.

    Args:
        name: The file in `static/`, without extension.

    Returns:
        JavaScript and CSS.
    """
    return (STATIC / f"{name}.js").read_text(encoding="utf-8"), (STATIC / f"{name}.css").read_text(encoding="utf-8")
