"""Read the YAML files of hosts: plain values with their places, without what makes YAML dangerous or slow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

MAX_CHARACTERS = 1_000_000
"""The parser takes several seconds for more, and no host's file has it."""
Position = tuple[int, int]


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Refuses aliases, which can expand to exponentially many values, and takes dates for texts."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.MarkedYAMLError(problem="aliases (*) are not read", problem_mark=event.start_mark)
        return super().compose_node(parent, index)


_OTHER_TYPES = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:bool")
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _OTHER_TYPES]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
# As in YAML 1.2, which the hosts read: `off` and `no` are texts.
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))


class YamlError(Exception):
    """A text is not YAML that can be read. The message has the reason, without any of the text."""

    def __init__(self, reason: str, line: int = 1, column: int = 1) -> None:
        super().__init__(reason)
        self.line, self.column = line, column


def read_yaml(text: str) -> tuple[Any, dict[tuple[str | int, ...], Position], list[tuple[str | int, ...]]]:
    """Parse a text, and return its value, where each key and list item is, and the keys that are twice in one mapping.

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
    positions: dict[tuple[str | int, ...], Position] = {}
    doubles: list[tuple[str | int, ...]] = []
    for path, mark in places:
        if path in positions:
            doubles.append(path)
        positions[path] = (mark.line + 1, mark.column + 1)
    return value, positions, doubles


def _places(node: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            at = (*path, str(key.value))
            yield at, key.start_mark
            yield from _places(value, at)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield (*path, index), value.start_mark
            yield from _places(value, (*path, index))
