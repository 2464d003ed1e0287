"""Base for all bundled servers: tools with validated arguments, short errors and annotations."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import ValidationError

from casual_mcp_nb.errors import install

__all__ = [
    "FunctionServer",
    "ToolError",
    "adds",
    "brought_by_bundled",
    "closest",
    "counted",
    "destroys",
    "gigabytes",
    "package_version",
    "reads",
]


class FunctionServer(MCPServer[Any]):
    """An MCP server over plain functions, made with `reads`, `adds` and `destroys`.

    Unlike the SDK's server, it refuses unknown parameters instead of dropping them, and errors are
    short messages for the model.
    """

    def __init__(
        self,
        name: str,
        instructions: str,
        tools: Sequence[Tool],
        on_close: Callable[[], None] | None = None,
    ) -> None:
        with _root_logger_untouched():
            super().__init__(
                name,
                instructions=instructions,
                version=package_version(),
                tools=list(tools),
                log_level="WARNING",
            )
        self._parameters: dict[str, dict[str, Any]] = {
            tool.name: tool.parameters["properties"] for tool in tools
        }
        self._on_close = on_close

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool by name.

        Raises:
            ToolError: The tool or a parameter is unknown, an argument is invalid, or the tool
                raises it.
        """
        if name not in self._parameters:
            raise ToolError(f"Unknown tool {name!r}. {closest(name, list(self._parameters))}")
        for key in arguments:
            if key not in self._parameters[name]:
                valid = ", ".join(self._parameters[name])
                takes = f"Valid: {valid}." if valid else "It takes no arguments: call it with {}."
                raise ToolError(f"{name} has no parameter {key[:80]!r}. {takes}")
        try:
            return await super().call_tool(name, arguments, context)
        except UnexpectedToolError:
            raise
        except ToolError as error:
            raise ToolError(_short(error, arguments, self._parameters[name])) from error.__cause__

    def close(self) -> None:
        """Release the server's resources, such as running processes.

        May be called more than once.
        """
        if self._on_close is not None:
            self._on_close()


def counted(count: int, singular: str) -> str:
    """Count things for a summary: `1 row`, `2 rows`."""
    return f"{count:,} {singular}{'' if count == 1 else 's'}"


def gigabytes(size: int) -> str:
    """Format a size for a summary: `7.6 GiB`."""
    return f"{size / 2**30:,.1f} GiB"


def reads(*functions: Callable[..., Any], open_world: bool = False) -> list[Tool]:
    """Create tools from functions that only read."""
    hints = ToolAnnotations(
        read_only_hint=True,
        destructive_hint=False,
        idempotent_hint=True,
        open_world_hint=open_world,
    )
    return [_tool(function, hints) for function in functions]


def adds(*functions: Callable[..., Any], idempotent: bool = False) -> list[Tool]:
    """Create tools from functions that add something and never overwrite or delete."""
    hints = ToolAnnotations(
        read_only_hint=False,
        destructive_hint=False,
        idempotent_hint=idempotent,
        open_world_hint=False,
    )
    return [_tool(function, hints) for function in functions]


def destroys(*functions: Callable[..., Any], open_world: bool = False) -> list[Tool]:
    """Create tools from functions that can overwrite or delete something."""
    hints = ToolAnnotations(
        read_only_hint=False,
        destructive_hint=True,
        idempotent_hint=False,
        open_world_hint=open_world,
    )
    return [_tool(function, hints) for function in functions]


def closest(name: str, valid: Sequence[str], limit: int = 12) -> str:
    """Suggest the closest valid name, or list the first valid ones, in one sentence."""
    if not valid:
        return "There are none."
    folded = {candidate.casefold(): candidate for candidate in valid}
    matches = [folded[match] for match in get_close_matches(name.casefold()[:100], folded, n=3)]
    if matches:
        return f"Closest: {', '.join(matches)}."
    more = f" and {len(valid) - limit} more" if len(valid) > limit else ""
    return f"Valid: {', '.join(valid[:limit])}{more}."


def _tool(function: Callable[..., Any], hints: ToolAnnotations) -> Tool:
    title = function.__name__.replace("_", " ").capitalize()
    annotations = hints.model_copy(update={"title": title})
    description = " ".join((inspect.getdoc(function) or "").split())
    tool = Tool.from_function(
        function, title=title, description=description, annotations=annotations
    )
    # Generated titles repeat the names and cost tokens in every request.
    tool.parameters.pop("title", None)
    for schema in tool.parameters["properties"].values():
        schema.pop("title", None)
    return tool


def _short(
    error: ToolError, arguments: dict[str, Any], properties: dict[str, dict[str, Any]]
) -> str:
    """Shorten an error for a model: where each wrong value is, what is wrong with it, and an
    example if there is one.
    """
    cause = error.__cause__
    if not isinstance(cause, ValidationError):
        return str(cause or error)
    # A union reports an error for each member; the last message per parameter is enough.
    problems: dict[str, str] = {}
    for item in cause.errors():
        problems[str(item["loc"][0])] = f"{_place(item['loc'], arguments)}: {item['msg']}"
    sentences = [f"Wrong arguments. {'; '.join(problems.values())}"]
    for name in problems:
        if name in properties and (example := _example(name, properties[name])):
            sentences.append(example)
    return ". ".join(sentences)


def _place(location: tuple[int | str, ...], arguments: dict[str, Any]) -> str:
    """Write where a wrong value is, such as `numbers[0].x`.

    Leaves out the members of unions that pydantic names.
    """
    place = str(location[0])
    value = arguments.get(place)
    for step in location[1:]:
        if isinstance(step, int) and isinstance(value, list) and step < len(value):
            place, value = f"{place}[{step}]", value[step]
        elif isinstance(step, str) and isinstance(value, dict) and step in value:
            place, value = f"{place}.{step[:80]}", value[step]
    return place


def _example(name: str, schema: dict[str, Any]) -> str:
    if examples := schema.get("examples"):
        return f"For example: {json.dumps({name: examples[0]}, ensure_ascii=False)}"
    description = str(schema.get("description", ""))
    return f"{name}: {description}" if " such as " in description else ""


@contextmanager
def brought_by_bundled(what: str) -> Iterator[None]:
    """Import inside of this what the extra `bundled` brings, and say what needs it.

    Raises:
        ToolError: It is not installed; with the command that installs it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ToolError(
            f"{what} needs the package {error.name}, which is not installed. {install('bundled')}"
        ) from error


@contextmanager
def _root_logger_untouched() -> Iterator[None]:
    # The SDK's constructor configures the root logger, which is the application's, unless it has a
    # handler.
    guard = logging.NullHandler()
    logging.getLogger().addHandler(guard)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(guard)


def package_version() -> str:
    """Look up this package's version."""
    try:
        return version("casual-mcp-nb")
    except PackageNotFoundError:
        return "0"
