"""Read and write YAML 1.2, core schema: plain values with their places, without what makes YAML
dangerous or slow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

MAX_CHARACTERS = 1_000_000
"""The parser takes several seconds for more."""
Position = tuple[int, int]
KeyPath = tuple[str | int, ...]

_TAG = "tag:yaml.org,2002:"
_INT = re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$")
_FLOAT = re.compile(
    r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)
# The first that matches counts, so that whole numbers come before others.
_TYPES = (
    ("null", re.compile(r"(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    ("bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    ("int", _INT, list("-+0123456789")),
    ("float", _FLOAT, list("-+.0123456789")),
)
"""YAML 1.2.2, section 10.3.2. In YAML 1.1, `14:30` is 870, `no` is false and `1_000` is 1000."""


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Refuses aliases, which can expand to exponentially many values."""

    yaml_implicit_resolvers: Mapping[str, Any] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.MarkedYAMLError(
                problem="aliases (*) are not read", problem_mark=event.start_mark
            )
        return super().compose_node(parent, index)

    def construct_int(self, node: Any) -> int:
        text = self.construct_scalar(node)
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        return int(text, base)


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Quotes a text that YAML 1.1 or YAML 1.2 would take for another value."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> Any:
        # Other line ends than \n are kept in double quotes only.
        style = '"' if set(text) & set("\r\x85\u2028\u2029") else None
        return self.represent_scalar(_TAG + "str", text, style)


for _name, _pattern, _first in _TYPES:
    _Loader.add_implicit_resolver(_TAG + _name, _pattern, _first)
    _Dumper.add_implicit_resolver(_TAG + _name, _pattern, _first)
_Loader.add_constructor(_TAG + "int", _Loader.construct_int)
_Dumper.add_representer(str, _Dumper.represent_text)


class YamlError(Exception):
    """A text is not YAML that can be read. The message has the reason, without any of the text."""

    def __init__(self, reason: str, line: int = 1, column: int = 1) -> None:
        super().__init__(reason)
        self.line, self.column = line, column


def read_yaml(text: str) -> tuple[Any, dict[KeyPath, Position], list[KeyPath]]:
    """Parse a text, and return its value, where each key and list item is, and the keys that are
    twice in one mapping.

    Raises:
        YamlError: It cannot be read.
    """
    if len(text) > MAX_CHARACTERS:
        raise YamlError(f"it has more than {MAX_CHARACTERS:,} characters")
    try:
        loader = _Loader(text)
    except yaml.YAMLError:
        raise YamlError("it has a character that YAML does not allow") from None
    try:
        node = loader.get_single_node()
        value = loader.construct_document(node) if node is not None else None
        places = list(_places(node, ())) if node is not None else []
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise YamlError(str(error.problem or "it cannot be parsed")[:200], line, column) from None
    except (yaml.YAMLError, ValueError, TypeError):
        raise YamlError("it has a character, or a value, that cannot be read") from None
    except RecursionError:
        raise YamlError("nested too deeply") from None
    finally:
        loader.dispose()
    positions: dict[KeyPath, Position] = {}
    doubles: list[KeyPath] = []
    for path, mark in places:
        if path in positions:
            doubles.append(path)
        positions[path] = (mark.line + 1, mark.column + 1)
    return value, positions, doubles


def write_yaml(value: Any) -> str:
    """Write plain values. Each is read again as it was, by readers of YAML 1.1 and of YAML 1.2."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return text


def _places(node: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            at = (*path, str(key.value))
            yield at, key.start_mark
            yield from _places(value, at)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield (*path, index), value.start_mark
            yield from _places(value, (*path, index))
