"""Tools as typed Python functions: signatures and docstrings from their schemas, and the values of
their results.

Everything that a server wrote is data here: names become identifiers, and texts and values become
literals, so that a signature never contains code of a server.
"""

from __future__ import annotations

import ast
import inspect
import keyword
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from casual_mcp_nb.base.iterables import all_are
from casual_mcp_nb.base.schema import SchemaReader
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.base.wire_names import is_wire_name
from casual_mcp_nb.conversation.step import ToolCall

MAX_LITERALS = 40
"""With more choices the parameter has their common type."""
MAX_LITERAL_LENGTH = 80
MAX_DEPTH = 12
MAX_FIELDS = 200
MAX_FUNCTION = 6_000
_SCALARS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


def named(values: Mapping[str, Any]) -> dict[str, Any]:
    """Give each value a Python identifier made from its name, all different.

    Names that are identifiers already keep theirs; among the others, the first comes first.
    """
    result: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for name, value in values.items():
        if identifier(name) == name:
            result[name] = value
        else:
            others[name] = value
    for name, value in others.items():
        result[unused(identifier(name), result)] = value
    return result


def identifier(name: str) -> str:
    """Change a name into a Python identifier: other characters become underscores, a keyword gets
    one at its end.
    """
    word = re.sub(r"\W", "_", unicodedata.normalize("NFKC", name))[:MAX_LITERAL_LENGTH]
    # A name that begins with an underscore would be private, and two of them are mangled in a
    # class.
    word = re.sub(r"^_+", "", word) or "unnamed"
    if not word.isidentifier():
        word = f"n{word}"
    if not word.isidentifier():
        word = "unnamed"
    if keyword.iskeyword(word):
        return f"{word}_"
    return word


def unused(name: str, used: Iterable[str]) -> str:
    """Add a number to a name that is used already."""
    number, result = 1, name
    while result in used:
        number += 1
        result = f"{name}_{number}"
    return result


@dataclass
class TypeWriter:
    """Writes JSON schemas as Python types, and collects the TypedDicts that they need.

    Args:
        taken: Names that a TypedDict cannot have.
        hidden: Names of built-in types that something else has where the types are written, as a
            method `list` in a class.
    """

    taken: set[str] = field(default_factory=set)
    hidden: frozenset[str] = frozenset()
    dicts: dict[str, str] = field(default_factory=dict)
    """Their definitions, by name."""
    names: dict[tuple[object, int], tuple[str, object]] = field(default_factory=dict)
    """Their names by the schema or reference, and the whole schema's root."""

    def write(self, reader: SchemaReader, name: str, depth: int = 0) -> str:
        """Write the type of the values that a schema allows; `name` begins the names of the
        TypedDicts in it.
        """
        if depth > MAX_DEPTH:
            return self._named("Any")
        reference = reader.reference or id(reader.schema)
        if reader.reference is not None:
            reader = reader.resolved()
        literals = self._literals(reader.choices)
        if literals:
            return literals
        if reader.options:
            members = []
            for number, option in enumerate(reader.options):
                members.append(self.write(option, f"{name}{number or ''}", depth + 1))
            return self._union(members)
        types = reader.types
        if not types and reader.properties:
            types = ("object",)
        elif not types and reader.items:
            types = ("array",)
        if not types:
            return self._named("Any")
        return self._union(self._of_type(kind, reader, name, depth, reference) for kind in types)

    def _of_type(
        self, kind: str, reader: SchemaReader, name: str, depth: int, reference: str | int
    ) -> str:
        if kind == "array":
            items = self._named("Any")
            if reader.items:
                items = self.write(reader.items, f"{name}Item", depth + 1)
            return f"{self._named('list')}[{items}]"
        if kind == "object" and reader.properties and len(reader.properties) <= MAX_FIELDS:
            return self._typed_dict(reader, name, depth, reference)
        if kind == "object":
            more = reader.schema.get("additionalProperties")
            reader = SchemaReader(more, reader.root)
            values = self._named("Any")
            if reader.schema:
                values = self.write(reader, f"{name}Value", depth + 1)
            return f"{self._named('dict')}[{self._named('str')}, {values}]"
        return self._named(_SCALARS.get(kind, "Any"))

    def _typed_dict(self, reader: SchemaReader, name: str, depth: int, reference: str | int) -> str:
        key = reference, id(reader.root)
        if key in self.names:
            # A schema that contains itself, or is referred to twice.
            return self.names[key][0]
        name = unused(name, {*self.taken, *self.dicts})
        # The schemas are kept, since others could get their ids.
        self.names[key] = name, (reader.schema, reader.root)
        self.dicts[name] = ""
        outside = TypeWriter(self.taken, frozenset(), self.dicts, self.names)
        fields: dict[str, str] = {}
        for part_name, part in reader.properties.items():
            kind = outside.write(part, name + camel(part_name), depth + 1)
            if part_name not in reader.required:
                kind = f"NotRequired[{kind}]"
            fields[part_name] = kind
        if all(map(_can_be_a_field, fields)):
            lines = [f"    {key}: {kind}" for key, kind in fields.items()]
            self.dicts[name] = "\n".join((f"class {name}(TypedDict):", *lines))
        else:
            lines = [f"        {key!r}: {kind}," for key, kind in fields.items()]
            head = (f"{name} = TypedDict(", f"    {name!r},", "    {")
            self.dicts[name] = "\n".join((*head, *lines, "    },", ")"))
        return name

    def _literals(self, choices: Sequence[Any]) -> str:
        kinds = []
        for each in choices:
            if each is None:
                kinds.append("None")
            elif isinstance(each, str | bool | int):
                kinds.append(self._named(type(each).__name__))
            else:
                return ""
        if not kinds:
            return ""
        texts = list(dict.fromkeys(map(ascii, choices)))
        if len(texts) > MAX_LITERALS or any(len(text) > MAX_LITERAL_LENGTH for text in texts):
            return self._union(kinds)
        return f"{self._named('Literal')}[{', '.join(texts)}]"

    def _union(self, types: Iterable[str]) -> str:
        members = list(dict.fromkeys(types))
        if self._named("Any") in members:
            return self._named("Any")
        # `float` takes integers.
        if "float" in members and "int" in members:
            members.remove("int")
        if "None" in members:
            members.remove("None")
            members.append("None")
        return " | ".join(members)

    def _named(self, name: str) -> str:
        if name not in self.hidden:
            return name
        module = "_typing" if name in ("Any", "Literal") else "_builtins"
        return f"{module}.{name}"


def _can_be_a_field(name: str) -> bool:
    """Check whether a name can be a field in a class, where two underscores would be mangled."""
    return name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("__")


class _Text:
    """Text that a signature shows as it is."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def camel(name: str) -> str:
    """Change a name into one for a class."""
    return "".join(word[:1].upper() + word[1:] for word in identifier(name).split("_"))


def parameters_of(tool: ToolSpec) -> dict[str, tuple[str, SchemaReader, bool]]:
    """The parameters of a tool by their Python names: the real name, the schema, and whether it is
    required.
    """
    reader = SchemaReader(tool.input_schema).resolved()
    python_names = {}
    for python, name in named({name: name for name in reader.properties}).items():
        python_names[name] = python
    parameters = {}
    for name in reader.required_first:
        part = (name, reader.properties[name], name in reader.required)
        parameters[python_names[name]] = part
    return parameters


def signature_of(
    tool: ToolSpec, result: SchemaReader | None = None, types: TypeWriter | None = None
) -> inspect.Signature:
    """Create the signature of a tool's function: keywords only, typed from its schemas.

    Args:
        tool: The tool.
        result: A schema of its result that was learned; used if the tool has none.
        types: Collects the TypedDicts.
    """
    types = types or TypeWriter()
    name = camel(tool.name)
    parameters: list[inspect.Parameter] = []
    for python_name, (real, part, required) in parameters_of(tool).items():
        default = inspect.Parameter.empty if required else _default(part)
        annotation = _Text(types.write(part, name + camel(real)))
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(
            inspect.Parameter(python_name, kind, default=default, annotation=annotation)
        )
    returned = _Text(_result_type(tool, result, types, f"{name}Result"))
    return inspect.Signature(parameters, return_annotation=returned)


def _default(reader: SchemaReader) -> object:
    value = reader.schema.get("default", ...)
    plain = value is None or isinstance(value, str | bool | int | float)
    if isinstance(value, float) and not math.isfinite(value):
        plain = False
    if plain and len(ascii(value)) <= MAX_LITERAL_LENGTH:
        return _Text(ascii(value))
    return _Text("...")


def _result_type(tool: ToolSpec, learned: SchemaReader | None, types: TypeWriter, name: str) -> str:
    if tool.output_schema is None:
        return types.write(learned or SchemaReader({}), name)
    reader = SchemaReader(tool.output_schema)
    if _is_wrapped(tool):
        reader = reader.properties["result"]
    return types.write(reader, name)


def _is_wrapped(tool: ToolSpec) -> bool:
    """Whether its result is not an object.

    FastMCP and the SDK send such a value as an object with the field `result`.
    """
    return list(SchemaReader(tool.output_schema).properties) == ["result"]


@lru_cache(maxsize=4_096)
def function_text(tool: ToolSpec) -> str:
    """Write a tool's function for a model that writes programs: the TypedDicts of its types, and
    its `def` as the last line.

    It has neither an empty line nor a line with only a name in it. It is empty if it is longer than
    a card may be.
    """
    types = TypeWriter()
    text = f"def {identifier(tool.wire_name)}{signature_of(tool, types=types)}"
    text = "\n".join((*types.dicts.values(), text))
    if len(text) > MAX_FUNCTION:
        return ""
    return text


def docstring_of(tool: ToolSpec) -> str:
    """Write the docstring of a tool's function: the server's description, and the parameters'."""
    lines = [tool.description.strip() or f"Call {tool.name}."]
    described = described_parameters(tool)
    if described:
        lines += ["", "Args:", *(f"    {text}" for text in described)]
    return "\n".join(lines)


def described_parameters(tool: ToolSpec) -> list[str]:
    """Describe the parameters of a tool's function that have a description, in a line each."""
    lines: list[str] = []
    for name, (_, part, _) in parameters_of(tool).items():
        text = " ".join(part.without_null().description.split())
        if text:
            lines.append(f"{name}: {text}")
    return lines


def value_of_call(tool: ToolSpec, call: ToolCall) -> Any:
    """A call's value as its function returns it: as the result's type, else JSON or text."""
    if call.returned:
        return call.returned[0]
    structured = call.structured
    if structured is not None:
        if _is_wrapped(tool) and isinstance(structured, Mapping) and list(structured) == ["result"]:
            return structured["result"]
        return structured
    from casual_mcp_nb.isolation._query import parse

    text = call.result
    if texts := [part.text for part in call.content if part.kind == "text"]:
        text = "\n".join(texts)
    if text.lstrip()[:1] not in ("{", "["):
        # Sentences with commas can look like a table.
        return text
    return parse(text)[1]


def learned_schema(values: Iterable[Any]) -> SchemaReader | None:
    """Infer a schema from results; a field that only some of them have is not required.

    None without results.
    """
    schemas = list(map(_schema_of, values))
    if not schemas:
        return None
    return SchemaReader(_merged(schemas))


def _schema_of(value: Any, depth: int = 0) -> dict[str, Any]:
    kinds = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
    if type(value) in kinds:
        return {"type": kinds[type(value)]}
    if depth == MAX_DEPTH:
        return {}
    if isinstance(value, list | tuple):
        return _array_of(_merged([_schema_of(part, depth + 1) for part in value[:MAX_FIELDS]]))
    if not isinstance(value, Mapping) or len(value) > MAX_FIELDS:
        return {}
    if not all_are(value, str):
        return {}
    properties = {key: _schema_of(part, depth + 1) for key, part in value.items()}
    return {"type": "object", "properties": properties, "required": list(properties)}


def _array_of(items: dict[str, Any]) -> dict[str, Any]:
    if not items:
        return {"type": "array"}
    return {"type": "array", "items": items}


def _merged(schemas: Sequence[dict[str, Any]]) -> dict[str, Any]:
    by_type: dict[str, list[dict[str, Any]]] = {}
    for schema in schemas:
        for each in schema.get("anyOf", (schema,)):
            by_type.setdefault(each.get("type", ""), []).append(each)
    if "" in by_type:
        return {}
    parts = [_merged_alike(kind, alike) for kind, alike in by_type.items()]
    if len(parts) == 1:
        return parts[0]
    return {"anyOf": parts} if parts else {}


def _merged_alike(kind: str, schemas: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if kind == "array":
        return _array_of(_merged([schema["items"] for schema in schemas if "items" in schema]))
    if kind != "object":
        return {"type": kind}
    by_name: dict[str, list[dict[str, Any]]] = {}
    for schema in schemas:
        for name, part in schema["properties"].items():
            by_name.setdefault(name, []).append(part)
    properties = {name: _merged(parts) for name, parts in by_name.items()}
    required = []
    for name in by_name:
        if all(name in each["required"] for each in schemas):
            required.append(name)
    return {"type": kind, "properties": properties, "required": required}


def functions_in(text: str) -> dict[str, dict[str, Any]]:
    """Parse the functions in a text of cards: for each tool's wire name, a definition with the
    names of the function.

    It is less than the tool's own: a TypedDict is an object. Skips a card that a person edited, or
    that was cut.
    """
    definitions = {}
    for block in text.split("\n\n"):
        first, *lines = block.split("\n")
        name = first.lstrip("#").strip()
        if lines and lines[-1].startswith("def ") and is_wire_name(name):
            about = "\n".join(line.strip() for line in lines[:-1] if line.startswith("  "))
            with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
                definitions[name] = _definition_of(lines[-1], about)
    return definitions


def _definition_of(line: str, about: str) -> dict[str, Any]:
    (function,) = ast.parse(f"{line}: ...").body
    if not isinstance(function, ast.FunctionDef):
        raise ValueError("Not a function.")
    texts = dict(re.findall(r"^(\w+): (.+)$", about, re.MULTILINE))
    properties: dict[str, Any] = {}
    required = []
    for parameter, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        properties[parameter.arg] = _schema_of_type(parameter.annotation)
        if parameter.arg in texts:
            properties[parameter.arg]["description"] = texts[parameter.arg]
        if default is None:
            required.append(parameter.arg)
    schema = {"type": "object", "properties": properties, "required": required}
    lines = [line for line in about.split("\n") if line.partition(":")[0] not in properties]
    description = "\n".join(lines)
    return {"name": function.name, "description": description, "parameters": schema}


def _schema_of_type(node: ast.AST | None) -> dict[str, Any]:
    kinds = {name: kind for kind, name in _SCALARS.items()}
    match node:
        case ast.Constant(value=None):
            return {"type": "null"}
        case ast.Name(id="Any"):
            return {}
        case ast.Name(id="list"):
            return {"type": "array"}
        case ast.Name(id=name):
            return {"type": kinds.get(name, "object")}
        case ast.Subscript(value=ast.Name(id="Literal"), slice=choices):
            values = ast.literal_eval(choices)
            return {"enum": list(values) if isinstance(choices, ast.Tuple) else [values]}
        case ast.Subscript(value=ast.Name(id="list"), slice=item):
            return {"type": "array", "items": _schema_of_type(item)}
        case ast.Subscript(value=ast.Name(id="dict")):
            return {"type": "object"}
        case ast.BinOp(left=left, right=right):
            return {"anyOf": [_schema_of_type(left), _schema_of_type(right)]}
    return {}
