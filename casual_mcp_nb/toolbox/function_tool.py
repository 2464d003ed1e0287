"""One function, method or object as a tool."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

from casual_mcp_nb.errors import UsageError, shown
from casual_mcp_nb.toolbox.context import ToolContext
from casual_mcp_nb.toolbox.parameters import Parameters, read_parameters, unwrapped
from casual_mcp_nb.types.schema import unusable_part
from casual_mcp_nb.types.server import Approval
from casual_mcp_nb.types.tool import ToolAnnotations, ToolSpec

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@runtime_checkable
class Tool(Protocol):
    """A tool as an object: the definition that a model reads, and the function that runs."""

    name: str
    description: str
    input_schema: Mapping[str, Any]

    async def execute(self, arguments: Mapping[str, Any]) -> Any:
        """Run it."""
        ...


@dataclass(frozen=True, eq=False)
class NotebookTool:
    """A tool of the notebook.

    Args:
        spec: What a model reads of it.
        policy: When the person is asked before a call; None for the default.
        is_async: Whether `start` returns something to await.
        start: Takes a call's arguments and its context, and returns a function without arguments that does the call.
        parameters: Those of the function; None for an object.
    """

    spec: ToolSpec
    policy: Approval | None
    is_async: bool
    start: Callable[[Mapping[str, Any], ToolContext], Callable[[], Any]]
    parameters: Parameters | None = None

    def spec_beside(self, names: Collection[str]) -> ToolSpec:
        """Build the definition that a model reads where the context of the conversation has values of these names."""
        if self.parameters is None or not self.parameters.named(names):
            return self.spec
        return replace(self.spec, input_schema=self.parameters.schema_beside(names))


def read_tool(
    target: Any,
    server: str,
    *,
    name: str | None = None,
    description: str | None = None,
    inject: Mapping[str, Any] | None = None,
    annotations: ToolAnnotations | None = None,
    policy: Approval | None = None,
    context: Collection[str] = (),
) -> NotebookTool:
    """Read a function, or an object with `name`, `description`, `input_schema` and `execute`, as a tool.

    Args:
        target: The function or object. Of a class with `execute`, or with `__call__` and no required arguments, an object is
            made; any other class is called as a function is, with the parameters of its `__init__`.
        server: The server that it belongs to.
        name: Its name; None for the function's.
        description: What a model reads of it; None for the docstring without its list of arguments.
        inject: Values for parameters that no model sees, see `read_parameters`.
        annotations: What it does to the world.
        policy: When the person is asked before a call.
        context: The names of the values that the context of the conversation has.

    Raises:
        UsageError: It cannot be a tool; the message says why.
    """
    from docstring_parser import parse

    if inspect.isclass(target) and _is_made_first(target):
        target = target()
    if isinstance(target, Tool) and not inspect.isroutine(target) and not inspect.isclass(target):
        return _object_tool(target, server, name, description, inject, annotations, policy)
    if not callable(target):
        raise UsageError(
            f"A {type(target).__name__} is not a tool.",
            hint="Pass a function, or an object with name, description, input_schema and execute.",
        )
    function = unwrapped(target)
    name = _checked(name or str(getattr(function, "__name__", type(function).__name__)))
    documented = parse(inspect.getdoc(function) or "")
    summary = "\n\n".join(filter(None, (documented.short_description, documented.long_description)))
    of_init = parse(inspect.getdoc(function.__init__) or "").params if inspect.isclass(function) else []
    described = {each.arg_name: each.description or "" for each in (*of_init, *documented.params)}
    parameters = read_parameters(target, name, inject or {}, described, context)
    spec = ToolSpec(server, name, description or summary, parameters.schema, annotations)

    def start(arguments: Mapping[str, Any], context: ToolContext) -> Callable[[], Any]:
        positional, named = parameters.bind(arguments, context)
        return partial(target, *positional, **named)

    return NotebookTool(spec, policy, is_async(target), start, parameters)


def is_async(target: Any) -> bool:
    """Check whether a function, or an object that is called, is async, as a coroutine or as a generator."""
    function = unwrapped(target)
    called = function if inspect.isroutine(function) or inspect.isclass(function) else type(function).__call__
    return inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called)


def _is_made_first(kind: type) -> bool:
    """Check whether a class is a tool by the object that it makes."""
    if callable(getattr(kind, "execute", None)):
        return True
    if "__call__" not in dir(kind):
        return False
    parameters = inspect.signature(kind).parameters.values()
    return all(each.default is not each.empty or each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in parameters)


def _object_tool(
    tool: Tool,
    server: str,
    name: str | None,
    description: str | None,
    inject: Mapping[str, Any] | None,
    annotations: ToolAnnotations | None,
    policy: Approval | None,
) -> NotebookTool:
    if inject:
        raise UsageError("Values can be injected only into a function.", hint="Give them to the object when you make it.")
    name = _checked(name or tool.name)
    spec = ToolSpec(server, name, description or tool.description, checked_schema(tool.input_schema, name), annotations)

    def start(arguments: Mapping[str, Any], _context: ToolContext) -> Callable[[], Awaitable[Any]]:
        return lambda: tool.execute(arguments)

    return NotebookTool(spec, policy, is_async(tool.execute), start)


def checked_schema(schema: Any, tool: str) -> dict[str, Any]:
    """Check the input schema of a person's own tool.

    Raises:
        UsageError: It cannot be sent to a model.
    """
    if not isinstance(schema, Mapping) or not isinstance(schema.get("properties", {}), Mapping):
        problem: str | None = "its input schema is not an object schema"
    else:
        problem = unusable_part(schema)
    if problem:
        raise UsageError(f"{shown(tool)} cannot be a tool: {problem}.", hint='Give it {"type": "object", "properties": {…}}.')
    return dict(schema)


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{shown(name)} cannot be the name of a tool.",
            hint="Use up to 64 letters, digits, _ and -, for a lambda: session.add_tool(fn, name='total').",
        )
    return name
