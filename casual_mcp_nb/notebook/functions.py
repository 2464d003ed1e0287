"""A session's tools as Python functions, and stubs for editors and mypy.

`session.tools.time.convert_time(time="14:30", …)` is the tool `convert_time` on the server `time`.
Signatures come from `discovery.signatures`: neither they nor a stub file ever contain a server's
code.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

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
            hint = "session.connect() lists its tools."
            if by_name:
                hint = did_you_mean(closest(plain, by_name), by_name)
            raise AttributeError(f"{listed} {hint}", name=name, obj=self)
        return _function(
            self._tools, by_name[plain], name, self._learned(by_name[plain]), awaited=twin
        )

    def _learned(self, tool: ToolSpec) -> SchemaReader | None:
        """Infer a schema for a tool's results from its last calls, the person's and the model's."""
        if tool.output_schema is not None:
            return None
        calls = [each.call for each in self._tools.recorded.list(tool.tool_name)][:MAX_SAMPLES]
        of_turns = [
            each
            for turn in self._turns()
            for each in calls_of_model(turn.tool_calls)
            if each.tool == tool.tool_name and not each.large
        ]
        return learned_schema(
            value_of_call(tool, call)
            for call in (*calls, *of_turns[-MAX_SAMPLES:])
            if call.status == "ok"
        )

    def __dir__(self) -> Iterable[str]:
        return [name for plain in self._by_name() for name in (plain, f"{plain}_async")]

    def __repr__(self) -> str:
        functions = [
            f"  {name}{signature_of(tool, self._learned(tool))}"
            for name, tool in self._by_name().items()
        ]
        return "\n".join(
            (
                f"Functions of server {shown(self._server)}:",
                *(functions or ("  none; session.connect() lists them",)),
            )
        )


class ToolFunctions:
    """A session's tools as functions, by server: `session.tools.functions.time` is
    `session.tools.time`.

    This also works for a server that is named like a method of `session.tools`.
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
        """Yield each tool's function as `server.function`, with the schema of its result that was
        learned.
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

    def arguments_of(positional: tuple[Any, ...], given: dict[str, Any]) -> dict[str, Any]:
        if positional:
            raise ToolArgumentsError(
                f"{where} takes arguments by name.", hint=f"Its parameters: {signature}."
            )
        real = {
            **{each: each for each, _, _ in parameters.values()},
            **{key: part[0] for key, part in parameters.items()},
        }
        if parameters and (unknown := [key for key in given if key not in real]):
            raise ToolArgumentsError(
                f"{where} has no parameter {shown(unknown[0])}.",
                hint=did_you_mean(closest(unknown[0], parameters), parameters),
            )
        arguments = {real.get(key, key): value for key, value in given.items()}
        if missing := [
            key
            for key, (each, _, required) in parameters.items()
            if required and each not in arguments
        ]:
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

    function: Callable[..., Any] = awaitable if awaited else blocking
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
    return (
        "\n\n".join(
            (_STUB_HEAD, *types.dicts.values(), *classes, "\n".join(("class Tools:", *attributes)))
        )
        + "\n"
    )


def _class_of(
    name: str,
    tools: Sequence[ToolSpec],
    types: TypeWriter,
    learned: Callable[[ToolSpec], SchemaReader | None],
) -> str:
    by_name = named({tool.name: tool for tool in tools})
    own = TypeWriter(types.taken, frozenset(by_name), types.dicts, types.names)
    lines = [f"class {name}:"]
    for plain, tool in by_name.items():
        signature = signature_of(tool, learned(tool), own)
        # In a stub a default's value does not matter, and the server's may not have the declared
        # type.
        parameters = []
        for key, part in signature.parameters.items():
            default = "" if part.default is inspect.Parameter.empty else " = ..."
            parameters.append(f"{key}: {part.annotation!r}{default}")
        listed = ", ".join(("*", *parameters)) if parameters else ""
        lines += [
            "    @_builtins.staticmethod",
            f"    def {plain}({listed}) -> {signature.return_annotation!r}:",
        ]
        lines += [f'        """{_in_quotes(docstring_of(tool))}"""']
        if f"{plain}_async" not in by_name:
            lines += [
                "    @_builtins.staticmethod",
                f"    async def {plain}_async({listed}) -> {signature.return_annotation!r}: ...",
            ]
    return "\n".join(lines if len(lines) > 1 else (*lines, "    pass"))
