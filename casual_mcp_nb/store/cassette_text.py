"""The text of a cassette: secrets masked, easy to compare, on its own or in an element of an HTML file."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from html.parser import HTMLParser
from pathlib import Path

from casual_mcp_nb.errors import CassetteError, shown
from casual_mcp_nb.store.interaction import Plain
from casual_mcp_nb.types.record import TOO_DEEP
from casual_mcp_nb.types.secret import MASK, Mask, mask_of

ELEMENT_ID = "cassette"
"""The id of the element of an HTML file that has a cassette in it."""
MAX_DEPTH = 150
"""Maximum nesting of lists and objects in the file."""
MAX_LINE = 120
"""How long a list or an object in the file may be to be written on one line."""


def scrubbed(value: Plain, secrets: Iterable[str]) -> Plain:
    """Mask the secrets in a JSON value, in keys and numbers too, and convert values that JSON lacks or nests too deep to text.

    Args:
        value: The value.
        secrets: The values to mask.
    """
    return _scrubbed(value, mask_of(secrets))


def _scrubbed(value: Plain, mask: Mask, depth: int = MAX_DEPTH) -> Plain:
    match value:
        case str():
            return mask(value)
        case Mapping() if depth:
            return {mask(str(key)): _scrubbed(item, mask, depth - 1) for key, item in value.items()}
        case list() | tuple() if depth:
            return [_scrubbed(item, mask, depth - 1) for item in value]
        case Mapping() | list() | tuple():
            return TOO_DEEP
        case int() | float() if not isinstance(value, bool) and str(value) in mask.plain:
            return MASK
        case float() if not math.isfinite(value):
            return str(value)
        case _:
            return value


def pretty(value: Plain, indent: str = "") -> str:
    """Format JSON with short lists and objects, and lists of numbers, on one line."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    numbers = isinstance(value, list) and all(isinstance(item, int | float) for item in value)
    if not isinstance(value, dict | list) or not value or numbers or len(text) + len(indent) <= MAX_LINE:
        return text
    deeper = f"{indent}  "
    if isinstance(value, list):
        items = [f"{deeper}{pretty(item, deeper)}" for item in value]
        return "[\n" + ",\n".join(items) + f"\n{indent}]"
    items = [f"{deeper}{json.dumps(str(key), ensure_ascii=False)}: {pretty(item, deeper)}" for key, item in value.items()]
    return "{\n" + ",\n".join(items) + f"\n{indent}}}"


class _Element(HTMLParser):
    """Takes the text of the element with the cassette out of an HTML file."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.text: list[str] = []
        self._inside = self.seen = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "script" and dict(attrs).get("id") == ELEMENT_ID and not self.seen:
            self._inside = self.seen = True

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.text.append(data)


def element_of(data: bytes, file: Path) -> bytes:
    """Extract the text of the element with the cassette from an HTML file.

    Raises:
        CassetteError: There is none.
    """
    parser = _Element()
    parser.feed(data.decode("utf-8", "replace"))
    parser.close()
    if not parser.seen:
        raise CassetteError(
            f"{shown(file)} has no cassette in it.",
            hint="Use a page that session.export(path, player=True) wrote, or a .json file.",
        )
    return "".join(parser.text).encode()
