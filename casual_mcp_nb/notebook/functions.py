"""Tools as typed Python functions: signatures and docstrings from their schemas, and stubs for editors and mypy.

`session.tools.time.convert_time(time="14:30", …)` is the tool `convert_time` of the server `time`. Everything that a server
wrote is data here: names become identifiers, and texts and values become literals, so that neither a stub file nor a signature
ever contains code of a server.
"""

from __future__ import annotations

import inspect
import keyword
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from casual_mcp_nb.base.schema import SchemaReader
from casual_mcp_nb.base.status import Tools
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.conversation.audit import RecordedCalls
from casual_mcp_nb.conversation.step import ToolCall
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.errors import ToolArgumentsError, ToolCallError, closest, did_you_mean, shown

MAX_LITERALS = 40
"""With more choices the parameter has their common type."""
MAX_LITERAL_LENGTH = 80
MAX_DEPTH = 12
MAX_FIELDS = 200
MAX_SAMPLES = 20
"""Results from which the type of a result is learned."""
_SCALARS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_STUB_HEAD = '''"""Tools of MCP servers as functions, for type checkers. Written by `session.tools.stubs`."""

import builtins as _builtins
import typing as _typing
from typing import Any, Literal, NotRequired, TypedDict'''


class CallableTools(Protocol):
    """A session's tools, as the functions need them."""

    recorded: RecordedCalls

    def of_server(self, name: str) -> Tools:
        """Select one server's tools."""

    def call(self, name: str, /, **arguments: Any) -> ToolCall:
        """Call a tool."""

    async def call_async(self, name: str, /, **arguments: Any) -> ToolCall:
        """Call a tool, and await its end."""


class ServerFunctions:
    """The tools of one server as functions: `session.tools.time`.

    A name that is not a Python identifier is changed into one: `get-user` is `get_user`, `import` is `import_`. Each function
    has a twin to await, whose name ends in `_async`.
    """

    def __init__(self, tools: CallableTools, server: str, turns: Callable[[], Sequence[Turn]]) -> None:
        self._tools = tools
        self._server = server
        self._turns = turns

    # Every other name is one that a tool can have.
    def _by_name(self) -> dict[str, ToolSpec]:
        return named({tool.name: tool for tool in self._tools.of_server(self._server)})

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        by_name = self._by_name()
        # A tool can have such a name itself.
        twin = name not in by_name and name.endswith("_async")
        plain = name.removesuffix("_async") if twin else name
        if plain not in by_name:
            listed = f"Server {shown(self._server)} has no tool {shown(name)}."
            hint = did_you_mean(closest(plain, by_name), by_name) if by_name else "session.connect() lists its tools."
            raise AttributeError(f"{listed} {hint}", name=name, obj=self)
        return _function(self._tools, by_name[plain], name, self._learned(by_name[plain]), awaited=twin)

    def _learned(self, tool: ToolSpec) -> SchemaReader | None:
        """Infer a schema of a tool's result from the last calls of it, the person's and the model's."""
        if tool.output_schema is not None:
            return None
        calls = [each.call for each in self._tools.recorded.list(tool.tool_name)][:MAX_SAMPLES]
        of_turns = [
            each for turn in self._turns() for each in turn.tool_calls if each.tool == tool.tool_name and not each.large
        ]
        return learned_schema(value_of_call(tool, call) for call in (*calls, *of_turns[-MAX_SAMPLES:]) if call.status == "ok")

    def __dir__(self) -> Iterable[str]:
        return [name for plain in self._by_name() for name in (plain, f"{plain}_async")]

    def __repr__(self) -> str:
        functions = [f"  {name}{signature_of(tool, self._learned(tool))}" for name, tool in self._by_name().items()]
        return "\n".join(
            (f"Functions of server {shown(self._server)}:", *(functions or ("  none; session.connect() lists them",)))
        )


class ToolFunctions:
    """The tools of a session as functions, by server: `session.tools.functions.time` is `session.tools.time`.

    Here a server can have the name of a method of `session.tools`, too.
    """

    def __init__(self, tools: CallableTools, servers: Iterable[str], turns: Callable[[], Sequence[Turn]]) -> None:
        names = named({each: each for each in servers})
        self._servers = {name: ServerFunctions(tools, server, turns) for name, server in names.items()}

    def __getattr__(self, name: str) -> ServerFunctions:
        servers: dict[str, ServerFunctions] = self.__dict__.get("_servers", {})
        if name not in servers:
            hint = did_you_mean(closest(name, servers), servers)
            raise AttributeError(f"There is no server {shown(name)}. {hint}", name=name, obj=self)
        return servers[name]

    def __dir__(self) -> Iterable[str]:
        return list(self._servers)

    def __repr__(self) -> str:
        return "\n".join(map(repr, self._servers.values())) or "No servers."

    def _stub(self) -> str:
        learned = {each._server: each._learned for each in self._servers.values()}
        tools = {name: tuple(each._by_name().values()) for name, each in self._servers.items()}
        return stub_of(tools, lambda tool: learned[tool.server](tool))


def named(values: Mapping[str, Any]) -> dict[str, Any]:
    """Give each value a Python identifier made from its name, all different.

    Names that are identifiers already keep theirs; among the others, the first comes first.
    """
    result: dict[str, Any] = {}
    for name, value in sorted(values.items(), key=lambda item: identifier(item[0]) != item[0]):
        result[_unused(identifier(name), result)] = value
    return result


def identifier(name: str) -> str:
    """Change a name into a Python identifier: other characters become underscores, a keyword gets one at its end."""
    word = re.sub(r"\W", "_", unicodedata.normalize("NFKC", name))[:MAX_LITERAL_LENGTH]
    # A name that begins with an underscore would be private, and two of them are mangled in a class.
    word = re.sub(r"^_+", "", word) or "unnamed"
    word = word if word.isidentifier() else f"n{word}" if f"n{word}".isidentifier() else "unnamed"
    return f"{word}_" if keyword.iskeyword(word) else word


def _unused(name: str, used: Iterable[str]) -> str:
    number, unused = 1, name
    while unused in used:
        number += 1
        unused = f"{name}_{number}"
    return unused


@dataclass
class TypeWriter:
    """Writes JSON schemas as Python types, and collects the TypedDicts that they need.

    Args:
        taken: Names that a TypedDict cannot have.
        hidden: Names of built-in types that something else has where the types are written, as a method `list` in a class.
    """

    taken: set[str] = field(default_factory=set)
    hidden: frozenset[str] = frozenset()
    dicts: dict[str, str] = field(default_factory=dict)
    """Their definitions, by name."""
    names: dict[tuple[object, int], tuple[str, object]] = field(default_factory=dict)
    """Their names by the schema or reference, and the whole schema's root."""

    def write(self, reader: SchemaReader, name: str, depth: int = 0) -> str:
        """Write the type of the values that a schema allows; `name` begins the names of the TypedDicts in it."""
        if depth > MAX_DEPTH:
            return self._named("Any")
        reference = reader.reference or id(reader.schema)
        reader = reader.resolved() if reader.reference is not None else reader
        if literals := self._literals(reader.choices):
            return literals
        if reader.options:
            return self._union(
                self.write(option, f"{name}{number or ''}", depth + 1) for number, option in enumerate(reader.options)
            )
        types = reader.types or (("object",) if reader.properties else ("array",) if reader.items else ())
        if not types:
            return self._named("Any")
        return self._union(self._of_type(kind, reader, name, depth, reference) for kind in types)

    def _of_type(self, kind: str, reader: SchemaReader, name: str, depth: int, reference: str | int) -> str:
        if kind == "array":
            items = self.write(reader.items, f"{name}Item", depth + 1) if reader.items else self._named("Any")
            return f"{self._named('list')}[{items}]"
        if kind == "object" and reader.properties and len(reader.properties) <= MAX_FIELDS:
            return self._typed_dict(reader, name, depth, reference)
        if kind == "object":
            more = reader.schema.get("additionalProperties")
            reader = SchemaReader(more, reader.root)
            values = self.write(reader, f"{name}Value", depth + 1) if reader.schema else self._named("Any")
            return f"{self._named('dict')}[{self._named('str')}, {values}]"
        return self._named(_SCALARS[kind]) if kind in _SCALARS else self._named("Any")

    def _typed_dict(self, reader: SchemaReader, name: str, depth: int, reference: str | int) -> str:
        key = reference, id(reader.root)
        if key in self.names:
            # A schema that contains itself, or is referred to twice.
            return self.names[key][0]
        name = _unused(name, {*self.taken, *self.dicts})
        # The schemas are kept, since others could get their ids.
        self.names[key] = name, (reader.schema, reader.root)
        self.dicts[name] = ""
        outside = TypeWriter(self.taken, frozenset(), self.dicts, self.names)
        fields = {
            part_name: (outside.write(part, name + _camel(part_name), depth + 1), part_name in reader.required)
            for part_name, part in reader.properties.items()
        }
        if all(key.isidentifier() and not keyword.iskeyword(key) and not key.startswith("__") for key in fields):
            lines = [f"    {key}: {kind if needed else f'NotRequired[{kind}]'}" for key, (kind, needed) in fields.items()]
            self.dicts[name] = "\n".join((f"class {name}(TypedDict):", *lines))
        else:
            lines = [
                f"        {key!r}: {kind if needed else f'NotRequired[{kind}]'}," for key, (kind, needed) in fields.items()
            ]
            self.dicts[name] = "\n".join((f"{name} = TypedDict(", f"    {name!r},", "    {", *lines, "    },", ")"))
        return name

    def _literals(self, choices: Sequence[Any]) -> str:
        plain = all(each is None or isinstance(each, str | bool | int) for each in choices)
        if not choices or not plain:
            return ""
        texts = list(dict.fromkeys(ascii(each) for each in choices))
        if len(texts) > MAX_LITERALS or any(len(text) > MAX_LITERAL_LENGTH for text in texts):
            return self._union(self._named(type(each).__name__ if each is not None else "None") for each in choices)
        return f"{self._named('Literal')}[{', '.join(texts)}]"

    def _union(self, types: Iterable[str]) -> str:
        members = list(dict.fromkeys(types))
        if self._named("Any") in members:
            return self._named("Any")
        # `float` takes integers.
        members = [kind for kind in members if kind != "int" or "float" not in members]
        return " | ".join(sorted(members, key=lambda kind: kind == "None"))

    def _named(self, name: str) -> str:
        if name not in self.hidden:
            return name
        return f"_typing.{name}" if name in ("Any", "Literal") else f"_builtins.{name}"


class _Text:
    """Text that a signature shows as it is."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _camel(name: str) -> str:
    return "".join(word[:1].upper() + word[1:] for word in identifier(name).split("_"))


def parameters_of(tool: ToolSpec) -> dict[str, tuple[str, SchemaReader, bool]]:
    """The parameters of a tool by their Python names: the real name, the schema, and whether it is required."""
    reader = SchemaReader(tool.input_schema).resolved()
    parts = named({name: (name, part, name in reader.required) for name, part in reader.properties.items()})
    # Those that are required first, each in the schema's order.
    order = {name: number for number, name in enumerate(reader.properties)}
    return dict(sorted(parts.items(), key=lambda item: (not item[1][2], order[item[1][0]])))


def signature_of(tool: ToolSpec, result: SchemaReader | None = None, types: TypeWriter | None = None) -> inspect.Signature:
    """Create the signature of a tool's function: keywords only, typed as its schemas say.

    Args:
        tool: The tool.
        result: A schema of its result that was learned; used if the tool has none.
        types: Collects the TypedDicts.
    """
    types = types or TypeWriter()
    name = _camel(tool.name)
    parameters = [
        inspect.Parameter(
            python_name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if required else _default(part),
            annotation=_Text(types.write(part, name + _camel(real))),
        )
        for python_name, (real, part, required) in parameters_of(tool).items()
    ]
    return inspect.Signature(parameters, return_annotation=_Text(_result_type(tool, result, types, f"{name}Result")))


def _default(reader: SchemaReader) -> object:
    value = reader.schema.get("default", ...)
    plain = value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value))
    return _Text(ascii(value)) if plain and len(ascii(value)) <= MAX_LITERAL_LENGTH else _Text("...")


def _result_type(tool: ToolSpec, learned: SchemaReader | None, types: TypeWriter, name: str) -> str:
    if tool.output_schema is None:
        return types.write(learned, name) if learned is not None else types.write(SchemaReader({}), name)
    reader = SchemaReader(tool.output_schema)
    return types.write(reader.properties["result"] if _is_wrapped(tool) else reader, name)


def _is_wrapped(tool: ToolSpec) -> bool:
    """Whether its result is not an object. FastMCP and the SDK send such a value as an object with the field `result`."""
    return list(SchemaReader(tool.output_schema).properties) == ["result"]


def _in_quotes(text: str) -> str:
    text = "".join(each if each.isprintable() or each == "\n" else " " for each in text)
    text = text.replace("\\", "\\\\").replace('"', "'")
    return text.replace("\n", "\n        ")


def docstring_of(tool: ToolSpec) -> str:
    """Write the docstring of a tool's function: the server's description, and the parameters'."""
    lines = [tool.description.strip() or f"Call {tool.name}."]
    described = {name: " ".join(part.without_null().description.split()) for name, (_, part, _) in parameters_of(tool).items()}
    if any(described.values()):
        lines += ["", "Args:", *(f"    {name}: {text}" for name, text in described.items() if text)]
    return "\n".join(lines)


def value_of_call(tool: ToolSpec, call: ToolCall) -> Any:
    """A call's value as its function returns it: what the result's type says, else JSON or text."""
    if call.returned:
        return call.returned[0]
    if call.structured is not None:
        wrapped = _is_wrapped(tool) and isinstance(call.structured, Mapping) and list(call.structured) == ["result"]
        return call.structured["result"] if wrapped else call.structured
    from casual_mcp_nb.isolation._query import parse

    texts = [part.text for part in call.content if part.kind == "text"]
    text = "\n".join(texts) if texts else call.result
    # Sentences with commas can look like a table.
    return parse(text)[1] if text.lstrip()[:1] in ("{", "[") else text


def _function(
    tools: CallableTools, tool: ToolSpec, name: str, learned: SchemaReader | None, *, awaited: bool
) -> Callable[..., Any]:
    parameters = parameters_of(tool)
    signature = signature_of(tool, learned)
    where = f"session.tools.{identifier(tool.server)}.{name}"

    def arguments_of(positional: tuple[Any, ...], given: dict[str, Any]) -> dict[str, Any]:
        if positional:
            raise ToolArgumentsError(f"{where} takes arguments by name.", hint=f"Its parameters: {signature}.")
        real = {**{each: each for each, _, _ in parameters.values()}, **{key: part[0] for key, part in parameters.items()}}
        if parameters and (unknown := [key for key in given if key not in real]):
            raise ToolArgumentsError(
                f"{where} has no parameter {shown(unknown[0])}.", hint=did_you_mean(closest(unknown[0], parameters), parameters)
            )
        arguments = {real.get(key, key): value for key, value in given.items()}
        if missing := [key for key, (each, _, required) in parameters.items() if required and each not in arguments]:
            raise ToolArgumentsError(f"{where} needs {', '.join(missing)}.", hint=f"Its parameters: {signature}.")
        return arguments

    def result_of(call: ToolCall) -> Any:
        if call.status != "ok":
            raise ToolCallError(f"{where} failed: {call.result}", server=tool.server, tool=tool.wire_name)
        return value_of_call(tool, call)

    def blocking(*positional: Any, **given: Any) -> Any:
        return result_of(tools.call(str(tool.tool_name), **arguments_of(positional, given)))

    async def awaitable(*positional: Any, **given: Any) -> Any:
        return result_of(await tools.call_async(str(tool.tool_name), **arguments_of(positional, given)))

    function: Callable[..., Any] = awaitable if awaited else blocking
    function.__name__ = name
    function.__qualname__ = f"{identifier(tool.server)}.{name}"
    function.__module__ = "session.tools"
    function.__doc__ = docstring_of(tool)
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def learned_schema(values: Iterable[Any]) -> SchemaReader | None:
    """Infer a schema from results; a field that only some of them have is not required. None without results."""
    schemas = [_schema_of(value) for value in values]
    return SchemaReader(_merged(schemas)) if schemas else None


def _schema_of(value: Any, depth: int = 0) -> dict[str, Any]:
    kinds = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
    if type(value) in kinds:
        return {"type": kinds[type(value)]}
    if (
        isinstance(value, Mapping)
        and depth < MAX_DEPTH
        and len(value) <= MAX_FIELDS
        and all(isinstance(key, str) for key in value)
    ):
        properties = {key: _schema_of(part, depth + 1) for key, part in value.items()}
        return {"type": "object", "properties": properties, "required": list(properties)}
    if isinstance(value, list | tuple) and depth < MAX_DEPTH:
        items = _merged([_schema_of(part, depth + 1) for part in value[:MAX_FIELDS]])
        return {"type": "array", "items": items} if items else {"type": "array"}
    return {}


def _merged(schemas: Sequence[dict[str, Any]]) -> dict[str, Any]:
    by_type: dict[str, list[dict[str, Any]]] = {}
    for schema in schemas:
        for each in schema.get("anyOf", (schema,)):
            by_type.setdefault(each.get("type", ""), []).append(each)
    if "" in by_type:
        return {}
    parts = [_merged_alike(kind, alike) for kind, alike in by_type.items()]
    return parts[0] if len(parts) == 1 else {"anyOf": parts} if parts else {}


def _merged_alike(kind: str, schemas: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if kind == "array":
        items = _merged([schema["items"] for schema in schemas if "items" in schema])
        return {"type": kind, "items": items} if items else {"type": kind}
    if kind != "object":
        return {"type": kind}
    names = list(dict.fromkeys(name for schema in schemas for name in schema["properties"]))
    properties = {name: _merged([each["properties"][name] for each in schemas if name in each["properties"]]) for name in names}
    required = [name for name in names if all(name in schema["required"] for schema in schemas)]
    return {"type": kind, "properties": properties, "required": required}


def stub_of(servers: Mapping[str, Sequence[ToolSpec]], learned: Callable[[ToolSpec], SchemaReader | None]) -> str:
    """Write a stub file: a class for each server, and `Tools`, which has them as attributes.

    Args:
        servers: Each server's tools, by an identifier.
        learned: A schema of a tool's result that was learned, if any.
    """
    types = TypeWriter(taken={"Any", "Literal", "NotRequired", "TypedDict", "Tools"})
    kinds: dict[str, str] = {}
    for server in servers:
        kinds[server] = _unused(_camel(server), types.taken)
        types.taken.add(kinds[server])
    classes = [_class_of(kinds[server], tools, types, learned) for server, tools in servers.items()]
    attributes = [f"    {server}: {kind}" for server, kind in kinds.items()] or ["    pass"]
    return "\n\n".join((_STUB_HEAD, *types.dicts.values(), *classes, "\n".join(("class Tools:", *attributes)))) + "\n"


def _class_of(
    name: str, tools: Sequence[ToolSpec], types: TypeWriter, learned: Callable[[ToolSpec], SchemaReader | None]
) -> str:
    by_name = named({tool.name: tool for tool in tools})
    own = TypeWriter(types.taken, frozenset(by_name), types.dicts, types.names)
    lines = [f"class {name}:"]
    for plain, tool in by_name.items():
        signature = signature_of(tool, learned(tool), own)
        # In a stub the value of a default does not matter, and the server's may not be of the type that it says.
        parameters = [
            f"{key}: {part.annotation!r}{'' if part.default is inspect.Parameter.empty else ' = ...'}"
            for key, part in signature.parameters.items()
        ]
        listed = ", ".join(("*", *parameters)) if parameters else ""
        lines += ["    @staticmethod", f"    def {plain}({listed}) -> {signature.return_annotation!r}:"]
        lines += [f'        """{_in_quotes(docstring_of(tool))}"""']
        if f"{plain}_async" not in by_name:
            lines += ["    @staticmethod", f"    async def {plain}_async({listed}) -> {signature.return_annotation!r}: ..."]
    return "\n".join(lines if len(lines) > 1 else (*lines, "    pass"))
