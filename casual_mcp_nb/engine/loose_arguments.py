"""Arguments that do not fit a tool: leave out what its schema does not have, and explain what does
not fit.
"""

from __future__ import annotations

import json
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
_MAX_EXAMPLE = 500
_MAX_LEAVES = 50
_NOTHING: Mapping[str, Any] = {}
_PLAIN: Mapping[str, Any] = {"string": "text", "integer": 1, "number": 1.5, "boolean": True}


class Reduced(NamedTuple):
    """A call's arguments without those that its tool does not have, and the names of these.

    `moved` if instead the values were put under other names.
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

        A person who approved it has read what is sent. Without that, it must be harmless, or only
        words of the schema are missing.
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
            f"The model gave {shown(tool.wire_name)} {_listed(self.left_out)}, which it does not"
            " have: that was left out."
        )

    def _written(self) -> str:
        return json.dumps(self.arguments, ensure_ascii=False, default=str)[:_MAX_EXAMPLE]


def without_unknown(tool: ToolSpec, arguments: Mapping[str, Any], *, small: bool) -> Reduced | None:
    """Leave out arguments that a tool does not have, or return None if it may have them all or
    needs others.

    A schema that says nothing about other arguments permits them. Many servers refuse them
    nevertheless, so words of the schema are left out then, and for a `small` model all others.
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
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return " or ".join(map(shown, names[:_MAX_NAMED])) + more


def taken(tool: ToolSpec, given: Mapping[str, Any] = _NOTHING, *, example: bool = True) -> str:
    """Write which arguments a tool takes, with an example if there can be one.

    See `example_of` for `given`.
    """
    properties = SchemaReader(tool.input_schema).properties
    if not properties:
        return "It takes no arguments: call it with {}."
    names = ", ".join(shown(name) for name in list(properties)[:12])
    written = example_of(tool, given) if example else ""
    return f"It takes {names}." + (f" For example: {written}" if written else "")


def example_of(tool: ToolSpec, given: Mapping[str, Any] = _NOTHING) -> str:
    """Write arguments that a tool takes as JSON: those of a call that did not fit, examples in the
    schema, or any of its types.

    A small model copies an example as it is, so one with the values that it gave is the call that
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
    ordered = {name: values[name] for name in required}
    text = json.dumps(ordered, ensure_ascii=False, default=str) if ordered else ""
    return text if len(text) <= _MAX_EXAMPLE else ""


def rearranged(tool: ToolSpec, arguments: Mapping[str, Any]) -> Reduced | None:
    """Put the values of a call that does not fit where they fit: under the required names, in
    order, and out of objects.

    Small models invent names, and make the same call again however it is explained. Every value is
    the model's, and each is used, or the result is None. Only for tools that are harmless: an order
    of values can be wrong.
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
    """Read the required parameters, or return None if the schema does not describe one."""
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
        The values by parameter, and the plain values that have no place.
    """
    values = {
        name: given[name]
        for name, part in required.items()
        if name in given and _may_be(given[name], part)
    }
    loose = _leaves(
        value for name, value in given.items() if name not in values and name not in optional
    )
    for name, part in required.items():
        if name not in values and (found := _taken_from(loose, part)) is not None:
            values[name] = found
    return {name: values[name] for name in required if name in values}, loose


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


def _leaves(values: Iterable[Any]) -> list[Any]:
    """List the plain values in objects and lists, in order, up to a number."""
    found: list[Any] = []
    waiting = list(values)
    for _ in range(_MAX_LEAVES):
        if not waiting:
            break
        value = waiting.pop(0)
        if isinstance(value, Mapping):
            waiting[:0] = list(value.values())[:_MAX_LEAVES]
        elif isinstance(value, list):
            waiting[:0] = value[:_MAX_LEAVES]
        else:
            found.append(value)
    return found


def _taken_from(loose: list[Any], part: SchemaReader) -> Any:
    """Take the first value that a parameter may have, or for a list all that it may contain.

    None if there is none.
    """
    items = (
        part.items.without_null() if part.types == ("array",) and part.items is not None else None
    )
    wanted = part if items is None else items
    fitting = [value for value in loose if value is not None and _may_be(value, wanted)]
    if not fitting or (items is not None and len(fitting) < (part.number("minItems") or 1)):
        return None
    if items is None:
        del fitting[1:]
    for value in fitting:
        loose.remove(value)
    return fitting if items is not None else fitting[0]


def _example(part: SchemaReader) -> Any:
    examples = part.schema.get("examples")
    if isinstance(examples, list) and examples:
        return examples[0]
    for word in ("example", "default"):
        if part.schema.get(word) is not None:
            return part.schema[word]
    if part.choices:
        return part.choices[0]
    (kind,) = part.types if len(part.types) == 1 else ("",)
    if kind == "array" and part.items is not None:
        item = _example(part.items.without_null())
        return None if item is None else [item] * max(1, min(2, int(part.number("minItems") or 1)))
    return _PLAIN.get(kind)


def explained(tool: ToolSpec, arguments: Mapping[str, Any], problems: Sequence[str]) -> str:
    """Explain to a model why its arguments do not fit, to follow the error of a call that
    failed.
    """
    lines = [f"- {' '.join(problem.split())[:300]}" for problem in problems]
    return "\n".join(
        ["\nThe arguments do not match the tool's schema:", *lines, taken(tool, arguments)]
    )
