"""Stubs that answer in place of tools: nothing is called, and every display says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import EllipsisType
from typing import Any, Self

from casual_mcp_nb.toolbox.context import FunctionRunner
from casual_mcp_nb.toolbox.function_tool import is_async
from casual_mcp_nb.toolbox.output import result_from, result_of
from casual_mcp_nb.toolbox.toolbox import failed
from casual_mcp_nb.types.content import ToolResult
from casual_mcp_nb.types.schema import SchemaReader
from casual_mcp_nb.types.tool import ToolSpec

Stub = Any | Callable[..., Any] | EllipsisType
"""A fixed result; a function that is called with the arguments; or `...` for a value that fits the tool's output schema."""

ALL_TOOLS = "*"
EXAMPLE = "example"
_MAX_DEPTH = 8
_MAX_ITEMS = 20
_MAX_PARTS = 1_000
_MAX_LENGTH = 1_000


class Mock:
    """Stubs that are in use until `stop` is called; a context manager.

    Args:
        stubs: The stubs, by `server:tool`, by another name of a tool, by `server:*`, or by `*` for all tools.
        stop: Called when they are no longer to be used.
    """

    def __init__(self, stubs: Mapping[str, Stub], stop: Callable[[Mock], None]) -> None:
        self.stubs = dict(stubs)
        self._stop = stop

    def stop(self) -> None:
        """Call the tools again. Stopping twice is harmless."""
        self._stop(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Mock: {', '.join(self.stubs)}>"


class Mocks:
    """The stubs of a session, or of one turn; the one that was added last counts.

    Args:
        run: Runs the functions among them.
        others: Stubs for tools that these do not name.
    """

    def __init__(self, run: FunctionRunner, others: Mocks | None = None) -> None:
        self._run = run
        self._others = others
        self._mocks: list[Mock] = []

    def add(self, stubs: Mapping[str, Stub]) -> Mock:
        """Use stubs from now on."""
        mock = Mock(stubs, self._remove)
        self._mocks = [*self._mocks, mock]
        return mock

    def with_stubs(self, stubs: Mapping[str, Stub]) -> Mocks:
        """Combine these with the stubs of one turn, which come before those that the session has at the time of a call."""
        mocks = Mocks(self._run, self)
        mocks.add(stubs)
        return mocks

    def _remove(self, mock: Mock) -> None:
        self._mocks = [other for other in self._mocks if other is not mock]

    def stub_for(self, tool: ToolSpec) -> Sequence[Stub]:
        """List the stub of a tool; an empty list if it has none."""
        own = (
            (str(tool.tool_name), tool.wire_name, *tool.aliases, f"{tool.server}:{ALL_TOOLS}", ALL_TOOLS) if self._mocks else ()
        )
        for mock in reversed(self._mocks):
            for name in own:
                if name in mock.stubs:
                    return [mock.stubs[name]]
        return self._others.stub_for(tool) if self._others is not None else []

    async def answer(self, stub: Stub, tool: ToolSpec, arguments: Mapping[str, Any]) -> ToolResult:
        """Answer a call with a stub; an exception of a function is a result that is an error."""
        try:
            if stub is ...:
                value = example(tool.output_schema) if tool.output_schema else EXAMPLE
            elif callable(stub):
                value = await result_from(self._run, lambda: stub(**arguments), is_async(stub))
            else:
                value = stub
            return replace(result_of(value), mocked=True)
        except Exception as error:
            return replace(failed(error), mocked=True)


_BY_FORMAT = {
    "date": "2026-01-01",
    "date-time": "2026-01-01T12:00:00Z",
    "time": "12:00:00Z",
    "email": "ada@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def example(schema: Any) -> Any:
    """Build a small value that fits a JSON schema, as far as its types, choices, defaults and required properties say.

    Args:
        schema: The schema; references in it are resolved.
    """
    return _example(SchemaReader(schema), _MAX_DEPTH, [_MAX_PARTS])


def _example(reader: SchemaReader, depth: int, parts: list[int]) -> Any:
    # A schema is a server's, and a few references make a value of any size.
    parts[0] -= 1
    if depth == 0 or parts[0] < 0:
        return None
    reader = reader.without_null()
    schema = reader.schema
    if "default" in schema:
        return schema["default"]
    if reader.choices:
        return reader.choices[0]
    if isinstance(schema.get("examples"), list) and schema["examples"]:
        return schema["examples"][0]
    if reader.options:
        return _example(reader.options[0], depth - 1, parts)
    match reader.types[:1] or (("object",) if reader.properties else ()):
        case ("object",):
            required = [name for name in reader.required if name in reader.properties]
            return {name: _example(reader.properties[name], depth - 1, parts) for name in required}
        case ("array",):
            count = min(int(reader.number("minItems") or 0), _MAX_ITEMS)
            return [_example(reader.items, depth - 1, parts) for _ in range(count)] if reader.items is not None else []
        case ("string",):
            text = _BY_FORMAT.get(reader.text("format"), EXAMPLE)
            return text.ljust(min(int(reader.number("minLength") or 0), _MAX_LENGTH), "…")[: _limit(reader, "maxLength")]
        case ("integer" | "number",):
            return _number(reader)
        case ("boolean",):
            return True
    return None


def _number(reader: SchemaReader) -> int | float:
    least, most, above = (reader.number(keyword) for keyword in ("minimum", "maximum", "exclusiveMinimum"))
    if above is not None:
        return above + 1
    return least if least is not None else min(1, most) if most is not None else 1


def _limit(reader: SchemaReader, keyword: str) -> int | None:
    number = reader.number(keyword)
    return None if number is None else max(0, int(number))
