"""Arguments that do not fit a tool: leave out what its schema does not have, and explain what does
not fit.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

from casual_mcp_nb.base.schema import SchemaReader, is_of_type
from casual_mcp_nb.base.tool import Permission, Risk, ToolSpec
from casual_mcp_nb.errors import shown

SCHEMA_WORDS = frozenset(
    {
        "additionalProperties",
        "default",
        "description",
        "enum",
        "examples",
        "format",
        "items",
        "maxItems",
        "maximum",
        "maxLength",
        "minItems",
        "minimum",
        "minLength",
        "parameters",
        "properties",
        "required",
        "title",
        "type",
    }
)
"""Keywords that small models copy from a schema into the arguments. They ask for nothing."""

_OPEN = (
    "$ref",
    "allOf",
    "anyOf",
    "dependentSchemas",
    "if",
    "oneOf",
    "patternProperties",
    "propertyNames",
    "unevaluatedProperties",
)
"""With these, a schema can have arguments that its properties do not name."""
_MAX_NAMED = 5
_MAX_PARAMETERS = 12
_MAX_EXAMPLE = 500
_MAX_LEAVES = 50
_NOTHING: Mapping[str, Any] = {}
_PLAIN: Mapping[str, Any] = {"string": "text", "integer": 1, "number": 1.5, "boolean": True}


class Reduced(NamedTuple):
    """Arguments that a call has in place of those that the model gave.

    Args:
        arguments: What is sent.
        left_out: The names that were left out, since the tool does not have them.
        moved: Whether, instead, values were put under other names.
    """

    arguments: dict[str, Any]
    left_out: tuple[str, ...]
    moved: bool = False

    @property
    def says_nothing(self) -> bool:
        """Whether only words of the schema were left out."""
        return SCHEMA_WORDS.issuperset(self.left_out)

    def may_run(self, tool: ToolSpec, permission: Permission) -> bool:
        """Check whether the call may run, although the model meant to say more.

        A person who approved it has read what is sent. Without that, the tool must be harmless, or
        only words of the schema are left out and the tool is not destructive.
        """
        if permission.by == "person" or tool.risk is Risk.HARMLESS:
            return True
        return self.says_nothing and tool.risk is not Risk.DESTRUCTIVE

    def note(self, tool: ToolSpec) -> str:
        """Write the note for the model, to follow the call's result."""
        if self.moved:
            return f"\nNote: the arguments did not fit, so it was called with {self._written()}."
        what = f"{shown(tool.wire_name)} has no parameter {_listed(self.left_out)}"
        return f"\nNote: {what}, so that was left out. {taken(tool, example=False)}"

    def refusal(self, tool: ToolSpec) -> str:
        """Write the error in place of a call that may not run without what was left out."""
        return (
            f"Error: {shown(tool.wire_name)} has no parameter {_listed(self.left_out)}, so it was"
            f" not called. {taken(tool)}"
        )

    def notice(self, tool: ToolSpec) -> str:
        """Write the notice for the person."""
        if self.moved:
            called = shown(tool.wire_name)
            return (
                f"The arguments that the model gave {called} did not fit, so it was called with"
                f" {self._written()}."
            )
        return (
            f"{shown(tool.wire_name)} has no {_listed(self.left_out)}, which the model gave: that was"
            " left out."
        )

    def _written(self) -> str:
        return json.dumps(self.arguments, ensure_ascii=False, default=str)[:_MAX_EXAMPLE]


def without_unknown(tool: ToolSpec, arguments: Mapping[str, Any], *, small: bool) -> Reduced | None:
    """Leave out arguments that a tool does not have.

    A schema that says nothing about further arguments permits them. Many servers refuse them
    nevertheless. So words of the schema are left out then, and for a `small` model all others too.

    Returns:
        The rest, or None if there is nothing to leave out, or if the rest lacks what the tool
        requires.
    """
    schema = tool.input_schema
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or arguments.keys() <= properties.keys():
        return None
    others = schema.get("additionalProperties")
    if others not in (None, False) or any(word in schema for word in _OPEN):
        return None
    left_out = tuple(name for name in arguments if name not in properties)
    if others is None and not small and not SCHEMA_WORDS.issuperset(left_out):
        return None
    remaining = {name: value for name, value in arguments.items() if name in properties}
    if any(name not in remaining for name in SchemaReader(schema).required):
        return None
    return Reduced(remaining, left_out)


def _listed(names: Sequence[str]) -> str:
    listed = " or ".join(map(shown, names[:_MAX_NAMED]))
    if len(names) > _MAX_NAMED:
        listed += f" and {len(names) - _MAX_NAMED} more"
    return listed


def taken(tool: ToolSpec, given: Mapping[str, Any] = _NOTHING, *, example: bool = True) -> str:
    """Write which arguments a tool takes, with an example if there can be one.

    See `example_of` for `given`.
    """
    properties = SchemaReader(tool.input_schema).properties
    if not properties:
        return "It takes no arguments: call it with {}."
    names = ", ".join(map(shown, list(properties)[:_MAX_PARAMETERS]))
    text = f"It takes {names}."
    written = example_of(tool, given) if example else ""
    if written:
        text += f" For example: {written}"
    return text


def example_of(tool: ToolSpec, given: Mapping[str, Any] = _NOTHING) -> str:
    """Write arguments that a tool takes as JSON, with the values of a call that did not fit. Others
    are examples in the schema, or any value of the right type.

    A small model copies an example as it is: one with the values that it gave becomes the call that
    it meant.

    Args:
        tool: The tool.
        given: The arguments of a call that did not fit. Values of the right type are kept, and
            those under a wrong name or too deep take, in order, the places that are empty.

    Returns:
        The JSON text. Empty if the tool requires nothing, or something for which there is no plain
        value.
    """
    required = _required(tool)
    if required is None:
        return ""
    values, _ = _placed(required, _optional(tool), given)
    for name, part in required.items():
        if name not in values:
            values[name] = _example(part)
        if values[name] is None:
            return ""
    if not required:
        return ""
    ordered = {name: values[name] for name in required}
    text = json.dumps(ordered, ensure_ascii=False, default=str)
    return text if len(text) <= _MAX_EXAMPLE else ""


def rearranged(tool: ToolSpec, arguments: Mapping[str, Any]) -> Reduced | None:
    """Move the values of a call that does not fit to where they fit: out of objects, and under the
    required names in order.

    Small models invent names, and make the same call again whatever the error explains. Only for
    tools that are harmless, since the order can be wrong.

    Returns:
        The arguments, with all values that the model gave and no others, or None if there are none
        like that.
    """
    required, optional = _required(tool), _optional(tool)
    if not required or tool.risk is not Risk.HARMLESS:
        return None
    values, unused = _placed(required, optional, arguments)
    if unused or values.keys() < required.keys() or values.items() <= arguments.items():
        return None
    chosen = {name: value for name, value in arguments.items() if name in optional}
    return Reduced({**values, **chosen}, (), moved=True)


def _required(tool: ToolSpec) -> dict[str, SchemaReader] | None:
    """Read the required parameters, or return None if the schema does not describe all of them."""
    schema = SchemaReader(tool.input_schema)
    if any(name not in schema.properties for name in schema.required):
        return None
    return {name: schema.properties[name].without_null() for name in schema.required}


def _optional(tool: ToolSpec) -> Set[str]:
    schema = SchemaReader(tool.input_schema)
    return schema.properties.keys() - set(schema.required)


def _placed(
    required: Mapping[str, SchemaReader], optional: Set[str], given: Mapping[str, Any]
) -> tuple[dict[str, Any], list[Any]]:
    """Find values for the required parameters among those given.

    Returns:
        The values by parameter, and the values that have no place.
    """
    values: dict[str, Any] = {}
    misplaced: list[Any] = []
    for name, value in given.items():
        if name in required and _may_be(value, required[name]):
            values[name] = value
        elif name not in optional:
            misplaced.append(value)
    loose, rest = _leaves(misplaced)
    for name, part in required.items():
        if name in values:
            continue
        found = _taken_from(loose, part)
        if found is not None:
            values[name] = found
    in_order = {name: values[name] for name in required if name in values}
    return in_order, [*loose, *rest]


def _may_be(value: Any, part: SchemaReader) -> bool:
    """Check whether a value has a type that a parameter takes, items included, and is one of its
    choices.
    """
    if part.choices and value not in part.choices:
        return False
    if isinstance(value, list) and part.items is not None:
        items = part.items.without_null()
        return "array" in part.types and all(_may_be(item, items) for item in value)
    return any(is_of_type(value, kind) for kind in part.types)


def _leaves(values: Iterable[Any]) -> tuple[list[Any], Iterable[Any]]:
    """List the plain values in objects and lists, in order, up to a limit.

    Returns:
        The plain values, and what is beyond the limit.
    """
    found: list[Any] = []
    waiting = deque(values)
    for _ in range(_MAX_LEAVES):
        if not waiting:
            break
        value = waiting.popleft()
        if isinstance(value, Mapping):
            waiting.extendleft(reversed(list(value.values())))
        elif isinstance(value, list):
            waiting.extendleft(reversed(value))
        else:
            found.append(value)
    return found, waiting


def _taken_from(loose: list[Any], part: SchemaReader) -> Any:
    """Take the first value that a parameter may have, or for a list all that it may contain.

    None if there is none.
    """
    if part.types == ("array",) and part.items is not None:
        items = part.items.without_null()
        places = _fitting_places(loose, items)
        if not places or len(places) < (part.number("minItems") or 1):
            return None
        fitting = [loose[place] for place in places]
        # By place: True is equal to 1, and may be another value.
        loose[:] = [value for place, value in enumerate(loose) if place not in places]
        return fitting
    places = _fitting_places(loose, part)
    return loose.pop(places[0]) if places else None


def _fitting_places(values: Sequence[Any], part: SchemaReader) -> list[int]:
    """List the indexes of the values that a parameter may have."""
    return [
        index for index, value in enumerate(values) if value is not None and _may_be(value, part)
    ]


def _example(part: SchemaReader) -> Any:
    """Find a value for a parameter: an example, a default, a choice, or any of its type.

    None if there is none.
    """
    examples = part.schema.get("examples")
    if isinstance(examples, list) and examples:
        return examples[0]
    for word in ("example", "default"):
        if part.schema.get(word) is not None:
            return part.schema[word]
    if part.choices:
        return part.choices[0]
    if len(part.types) != 1:
        return None
    (kind,) = part.types
    if kind == "array" and part.items is not None:
        item = _example(part.items.without_null())
        if item is None:
            return None
        least = int(part.number("minItems") or 1)
        return [item] * max(1, min(2, least))
    return _PLAIN.get(kind)


def explained(tool: ToolSpec, arguments: Mapping[str, Any], problems: Sequence[str]) -> str:
    """Explain to a model why its arguments do not fit, to follow the error of a call that
    failed.
    """
    lines = [f"- {' '.join(problem.split())[:300]}" for problem in problems]
    return "\n".join(
        ["\nThe arguments do not match the tool's schema:", *lines, taken(tool, arguments)]
    )
