"""How a noun answers Jupyter without knowing how it is drawn."""

from __future__ import annotations

import importlib
from typing import Any


class Displayable:
    """A noun with `text/plain`, `text/markdown` and `text/html` forms, which the display room makes when they are asked for.

    The room is looked up by name at that moment: nouns never import it, and a program without a notebook never loads it.
    """

    __slots__ = ()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        bundle: dict[str, str] = importlib.import_module("casual_mcp_nb.display").mimebundle(self)
        return bundle

    def _repr_html_(self) -> str:
        return self._repr_mimebundle_()["text/html"]

    def _repr_markdown_(self) -> str:
        return self._repr_mimebundle_()["text/markdown"]

    def __str__(self) -> str:
        return self._repr_mimebundle_()["text/plain"]
