"""Stubs that answer in place of tools: nothing is called, and every display says so."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import EllipsisType
from typing import Any, Self

from casual_mcp_nb.toolbox.context import FunctionRunner
from casual_mcp_nb.toolbox.output import result_of, with_result
from casual_mcp_nb.toolbox.toolbox import failed
from casual_mcp_nb.types.content import ToolResult
from casual_mcp_nb.types.tool import ToolSpec

Stub = Any | Callable[..., Any] | EllipsisType
"""A fixed result; a function that is called with the arguments; or `...` for a value that fits the tool's output schema."""

ALL_TOOLS = "*"
_MAX_DEPTH = 8


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
    """The stubs of a session; the one that was added last counts.

    Args:
        run: Runs the functions among them.
    """

    def __init__(self, run: FunctionRunner) -> None:
        self._run = run
        self._mocks: list[Mock] = []

    def add(self, stubs: Mapping[str, Stub]) -> Mock:
        """Use stubs from now on."""
        mock = Mock(stubs, self._remove)
        self._mocks = [*self._mocks, mock]
        return mock

    def _remove(self, mock: Mock) -> None:
        self._mocks = [other for other in self._mocks if other is not mock]

    def stub_for(self, tool: ToolSpec) -> Sequence[Stub]:
        """Return the stub of a tool in a list; an empty one if it has none."""
        names = (str(tool.tool_name), tool.wire_name, *tool.aliases, f"{tool.server}:{ALL_TOOLS}", ALL_TOOLS)
        for mock in reversed(self._mocks):
            for name in names:
                if name in mock.stubs:
                    return [mock.stubs[name]]
        return []

    async def answer(self, stub: Stub, tool: ToolSpec, arguments: Mapping[str, Any]) -> ToolResult:
        """Return the result that a stub gives; what a function raises is a result that is an error."""
        try:
            if stub is ...:
                value = example(tool.output_schema or {})
            elif callable(stub):
                is_async = inspect.iscoroutinefunction(stub)
                value = await self._run(with_result(lambda: stub(**arguments), is_async), is_async)
            else:
                value = stub
            return replace(result_of(value), mocked=True)
        except Exception as error:
            return replace(failed(error), mocked=True)


def example(schema: Any, depth: int = _MAX_DEPTH) -> Any:
    """Return a small value that fits a JSON schema, as far as its types, enums, defaults and required properties say.

    Args:
        schema: The schema.
        depth: How deep objects and arrays may be nested.
    """
    if not isinstance(schema, Mapping) or depth == 0:
        return None
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    for key in ("enum", "examples"):
        if schema.get(key):
            return schema[key][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return example(schema[key][0], depth - 1)
    kind = schema.get("type", "object" if "properties" in schema else None)
    kind = kind[0] if isinstance(kind, list) and kind else kind
    match kind:
        case "object":
            required = schema.get("required", ())
            return {name: example(part, depth - 1) for name, part in schema.get("properties", {}).items() if name in required}
        case "array":
            return [example(schema["items"], depth - 1)] if schema.get("minItems") and "items" in schema else []
        case "string":
            return "example"
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
    return None
