"""A session's tools as Python functions, and stub files for editors and mypy.

`session.tools.time.convert_time(time="14:30", …)` is the tool `convert_time` on the server `time`.
Signatures come from `discovery.signatures`. They have types, and never code that a server wrote.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from casual_mcp_nb.base.iterables import by_name
from casual_mcp_nb.base.schema import SchemaReader
from casual_mcp_nb.base.status import Tools
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.conversation.direct_calls import RecordedCalls
from casual_mcp_nb.conversation.step import ToolCall, calls_of_model
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.discovery.signatures import (
    TypeWriter,
    camel,
    docstring_of,
    identifier,
    learned_schema,
    named,
    parameters_of,
    signature_of,
    unused,
    value_of_call,
)
from casual_mcp_nb.errors import ToolArgumentsError, ToolCallError, closest, did_you_mean, shown

MAX_SAMPLES = 20
"""How many results are used to infer a result's type."""
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
    """A server's tools as functions: `session.tools.time`.

    A name that is not a Python identifier is changed into one: `get-user` is `get_user`, `import`
    is `import_`. Each function has an awaitable twin, whose name ends in `_async`.
    """

    def __init__(
        self, tools: CallableTools, server: str, turns: Callable[[], Sequence[Turn]]
    ) -> None:
        self._tools = tools
        self._server = server
        self._turns = turns

    # The methods begin with an underscore, because every other name can be a tool's.
    def _by_name(self) -> dict[str, ToolSpec]:
        return named(by_name(self._tools.of_server(self._server)))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        functions = self._by_name()
        # The name of a tool itself can end in `_async`.
        is_twin = name not in functions and name.endswith("_async")
        plain = name
        if is_twin:
            plain = name.removesuffix("_async")
        if plain not in functions:
            listed = f"Server {shown(self._server)} has no tool {shown(name)}."
            hint = "session.connect() lists its tools."
            if functions:
                hint = did_you_mean(closest(plain, functions), functions)
            raise AttributeError(f"{listed} {hint}", name=name, obj=self)
        tool = functions[plain]
        return _function(self._tools, tool, name, self._learned(tool), awaited=is_twin)

    def _learned(self, tool: ToolSpec) -> SchemaReader | None:
        """Infer a schema for a tool's results from its last calls, the person's and the model's.

        None if the tool declares one.
        """
        if tool.output_schema is not None:
            return None
        recorded = self._tools.recorded.list(tool.tool_name)
        own = [each.call for each in recorded[:MAX_SAMPLES]]
        of_turns: list[ToolCall] = []
        for turn in self._turns():
            for call in calls_of_model(turn.tool_calls):
                if call.tool == tool.tool_name and not call.large:
                    of_turns.append(call)
        samples: list[Any] = []
        for call in (*own, *of_turns[-MAX_SAMPLES:]):
            if call.status == "ok":
                samples.append(value_of_call(tool, call))
        return learned_schema(samples)

    def __dir__(self) -> Iterable[str]:
        names: list[str] = []
        for name in self._by_name():
            names += (name, f"{name}_async")
        return names

    def __repr__(self) -> str:
        lines = [f"Functions of server {shown(self._server)}:"]
        for name, tool in self._by_name().items():
            lines.append(f"  {name}{signature_of(tool, self._learned(tool))}")
        if len(lines) == 1:
            lines.append("  none; session.connect() lists them")
        return "\n".join(lines)


class ToolFunctions:
    """A session's tools as functions, by server.

    `session.tools.functions.time` is `session.tools.time`. It also works for a server that is named
    like a method of `session.tools`.
    """

    def __init__(
        self, tools: CallableTools, servers: Iterable[str], turns: Callable[[], Sequence[Turn]]
    ) -> None:
        names = named({each: each for each in servers})
        self._servers = {
            name: ServerFunctions(tools, server, turns) for name, server in names.items()
        }

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

    def _paths(self) -> Iterator[tuple[str, ToolSpec, SchemaReader | None]]:
        """Yield each tool's function as `server.function`, with its tool and the inferred schema of
        its result.
        """
        for server, functions in self._servers.items():
            for name, tool in functions._by_name().items():
                yield f"{server}.{name}", tool, functions._learned(tool)

    def _stub(self) -> str:
        learned = {each._server: each._learned for each in self._servers.values()}
        tools = {name: tuple(each._by_name().values()) for name, each in self._servers.items()}
        return stub_of(tools, lambda tool: learned[tool.server](tool))


def _in_quotes(text: str) -> str:
    text = "".join(each if each.isprintable() or each == "\n" else " " for each in text)
    text = text.replace("\\", "\\\\").replace('"', "'")
    return text.replace("\n", "\n        ")


def _function(
    tools: CallableTools, tool: ToolSpec, name: str, learned: SchemaReader | None, *, awaited: bool
) -> Callable[..., Any]:
    parameters = parameters_of(tool)
    signature = signature_of(tool, learned)
    where = f"session.tools.{identifier(tool.server)}.{name}"

    # A parameter may be given by its name in Python, or by the tool's own.
    own_names: dict[str, str] = {}
    for own_name, _, _ in parameters.values():
        own_names[own_name] = own_name
    for python_name, (own_name, _, _) in parameters.items():
        own_names[python_name] = own_name

    def arguments_of(positional: tuple[Any, ...], given: dict[str, Any]) -> dict[str, Any]:
        if positional:
            raise ToolArgumentsError(
                f"{where} takes arguments by name.", hint=f"Its parameters: {signature}."
            )
        arguments: dict[str, Any] = {}
        for key, value in given.items():
            # A tool without declared parameters may take any.
            if parameters and key not in own_names:
                raise ToolArgumentsError(
                    f"{where} has no parameter {shown(key)}.",
                    hint=did_you_mean(closest(key, parameters), parameters),
                )
            arguments[own_names.get(key, key)] = value
        missing: list[str] = []
        for python_name, (own_name, _, required) in parameters.items():
            if required and own_name not in arguments:
                missing.append(python_name)
        if missing:
            raise ToolArgumentsError(
                f"{where} needs {', '.join(missing)}.", hint=f"Its parameters: {signature}."
            )
        return arguments

    def result_of(call: ToolCall) -> Any:
        if call.status != "ok":
            raise ToolCallError(
                f"{where} failed: {call.result}", server=tool.server, tool=tool.wire_name
            )
        return value_of_call(tool, call)

    def blocking(*positional: Any, **given: Any) -> Any:
        return result_of(tools.call(str(tool.tool_name), **arguments_of(positional, given)))

    async def awaitable(*positional: Any, **given: Any) -> Any:
        return result_of(
            await tools.call_async(str(tool.tool_name), **arguments_of(positional, given))
        )

    function: Callable[..., Any] = blocking
    if awaited:
        function = awaitable
    function.__name__ = name
    function.__qualname__ = f"{identifier(tool.server)}.{name}"
    function.__module__ = "session.tools"
    function.__doc__ = docstring_of(tool)
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def stub_of(
    servers: Mapping[str, Sequence[ToolSpec]], learned: Callable[[ToolSpec], SchemaReader | None]
) -> str:
    """Write a stub file: a class for each server, and `Tools`, which has them as attributes.

    Args:
        servers: Each server's tools, by an identifier.
        learned: An inferred schema for a tool's result, if any.
    """
    types = TypeWriter(taken={"Any", "Literal", "NotRequired", "TypedDict", "Tools"})
    kinds: dict[str, str] = {}
    for server in servers:
        kinds[server] = unused(camel(server), types.taken)
        types.taken.add(kinds[server])
    classes = [_class_of(kinds[server], tools, types, learned) for server, tools in servers.items()]
    attributes = [f"    {server}: {kind}" for server, kind in kinds.items()] or ["    pass"]
    whole = "\n".join(("class Tools:", *attributes))
    # `_class_of` has added the typed dicts.
    return "\n\n".join((_STUB_HEAD, *types.dicts.values(), *classes, whole)) + "\n"


def _class_of(
    name: str,
    tools: Sequence[ToolSpec],
    types: TypeWriter,
    learned: Callable[[ToolSpec], SchemaReader | None],
) -> str:
    functions = named(by_name(tools))
    own = TypeWriter(types.taken, frozenset(functions), types.dicts, types.names)
    lines = [f"class {name}:"]
    for plain, tool in functions.items():
        signature = signature_of(tool, learned(tool), own)
        # In a stub a default's value does not matter, and the server's may not have the declared
        # type.
        parameters = []
        for key, part in signature.parameters.items():
            default = " = ..."
            if part.default is inspect.Parameter.empty:
                default = ""
            parameters.append(f"{key}: {part.annotation!r}{default}")
        listed = ""
        if parameters:
            listed = ", ".join(("*", *parameters))
        lines += [
            "    @_builtins.staticmethod",
            f"    def {plain}({listed}) -> {signature.return_annotation!r}:",
        ]
        lines += [f'        """{_in_quotes(docstring_of(tool))}"""']
        if f"{plain}_async" not in functions:
            lines += [
                "    @_builtins.staticmethod",
                f"    async def {plain}_async({listed}) -> {signature.return_annotation!r}: ...",
            ]
    if not functions:
        lines.append("    pass")
    return "\n".join(lines)
