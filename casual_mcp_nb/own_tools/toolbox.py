"""A notebook's functions as tools on a server named `notebook`, and stubs in place of tools."""

from __future__ import annotations

import asyncio
import inspect
import json
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from types import EllipsisType
from typing import Any, Protocol, Self, runtime_checkable

from casual_mcp_nb.base.arguments_by_schema import problems
from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.config import Approval
from casual_mcp_nb.base.content import ContentPart, OnProgress, ToolResult
from casual_mcp_nb.base.schema import SchemaReader, fits_plainly, unusable_part
from casual_mcp_nb.base.status import ServerStatus
from casual_mcp_nb.base.tokens import total_tokens
from casual_mcp_nb.base.tool import ToolAnnotations, ToolSpec, hash_of_tools
from casual_mcp_nb.base.wire import LogLine, Messages, ServerLog, Wire
from casual_mcp_nb.base.wire_names import is_wire_name
from casual_mcp_nb.errors import ToolCallError, UnknownNameError, UsageError, shown
from casual_mcp_nb.isolation.worker import Worker
from casual_mcp_nb.own_tools.context import (
    SCOPE,
    FunctionRunner,
    NestedCalls,
    ToolContext,
    run_here,
)
from casual_mcp_nb.own_tools.parameters import (
    InvalidArgumentsError,
    Parameters,
    read_parameters,
    result_from,
    result_of,
    unwrapped,
)


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
    """A notebook tool.

    `start` takes a call's arguments and its context, and returns a function that makes the call, to
    be awaited if `is_async`.
    """

    spec: ToolSpec
    policy: Approval | None
    is_async: bool
    start: Callable[[Mapping[str, Any], ToolContext], Callable[[], Any]]
    parameters: Parameters | None = None


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
    """Read a function, or an object with `name`, `description`, `input_schema` and `execute`, as a
    tool.

    A UsageError explains why it cannot be one. A class with `execute`, or with `__call__` and no
    required arguments, is instantiated. Any other class is called like a function, with the
    parameters of its `__init__`. Unless one is given, the description is the docstring without its
    argument list. `context` names the values in the conversation's context.
    """
    from docstring_parser import parse

    if inspect.isclass(target) and _is_made_first(target):
        target = target()
    if isinstance(target, Tool) and not inspect.isroutine(target) and not inspect.isclass(target):
        if inject:
            raise UsageError(
                "Values can be injected only into a function.",
                hint="Give them to the object when you make it.",
            )
        tool, name = target, _checked(name or target.name)
        schema = checked_schema(tool.input_schema, name)
        spec = ToolSpec(
            server, name, description or tool.description, schema, annotations=annotations
        )

        def execute(arguments: Mapping[str, Any], context: ToolContext) -> Callable[[], Any]:
            return partial(tool.execute, arguments)

        return NotebookTool(spec, policy, is_async(tool.execute), execute)
    if not callable(target):
        raise UsageError(
            f"A {type(target).__name__} is not a tool.",
            hint="Pass a function, or an object with name, description, input_schema and execute.",
        )
    function = unwrapped(target)
    name = _checked(name or str(getattr(function, "__name__", type(function).__name__)))
    documented = parse(inspect.getdoc(function) or "")
    summary = "\n\n".join(filter(None, (documented.short_description, documented.long_description)))
    described: dict[str, str] = {}
    if inspect.isclass(function):
        for each in parse(inspect.getdoc(function.__init__) or "").params:
            described[each.arg_name] = each.description or ""
    for each in documented.params:
        described[each.arg_name] = each.description or ""
    parameters = read_parameters(target, name, inject or {}, described, context)
    spec = ToolSpec(
        server, name, description or summary, parameters.schema, annotations=annotations
    )

    def start(arguments: Mapping[str, Any], context: ToolContext) -> Callable[[], Any]:
        positional, named = parameters.bind(arguments, context)
        return partial(target, *positional, **named)

    return NotebookTool(spec, policy, is_async(target), start, parameters)


def is_async(target: Any) -> bool:
    """Check whether a function, or an object that is called, is async, as a coroutine or as a
    generator.
    """
    function = unwrapped(target)
    if not inspect.isroutine(function) and not inspect.isclass(function):
        function = type(function).__call__
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _is_made_first(kind: type) -> bool:
    """Check whether a class is a tool by the object that it makes."""
    if callable(getattr(kind, "execute", None)):
        return True
    if "__call__" not in dir(kind):
        return False
    parameters = inspect.signature(kind).parameters.values()
    return all(
        each.default is not each.empty or each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        for each in parameters
    )


def checked_schema(schema: Any, tool: str) -> dict[str, Any]:
    """Check the input schema for a person's own tool: a UsageError explains why it cannot be sent
    to a model.
    """
    if not isinstance(schema, Mapping) or not isinstance(schema.get("properties", {}), Mapping):
        problem: str | None = "its input schema is not an object schema"
    else:
        problem = unusable_part(schema)
    if problem:
        raise UsageError(
            f"{shown(tool)} cannot be a tool: {problem}.",
            hint='Give it {"type": "object", "properties": {…}}.',
        )
    return dict(schema)


def _checked(name: str) -> str:
    if not is_wire_name(name):
        raise UsageError(
            f"{shown(name)} cannot be the name of a tool.",
            hint=(
                "Use up to 64 letters, digits, _ and -, for a lambda: session.tools.add(fn,"
                " name='total')."
            ),
        )
    return name


NOTEBOOK = "notebook"
MAX_LOG_LINES = 500
_MAX_MESSAGE = 2_000
_MAX_PROBLEMS = 5
_NOTHING: AbstractContextManager[None] = nullcontext()


class Toolbox:
    """The notebook's tools, used like a connection to a server.

    For the methods, see `servers.connection.Connection`.

    `on_log` gets level and text for each line that a function logs, and the traceback if it fails.
    """

    name = NOTEBOOK
    config = None
    instructions = ""
    settled = True
    fresh = True

    def __init__(
        self,
        run: FunctionRunner = run_here,
        changed: Callable[[], None] = ignore,
        on_log: Callable[[str, str], None] = ignore,
        worker: Worker | None = None,
    ) -> None:
        self.tools: tuple[ToolSpec, ...] = ()
        self.tools_version = ""
        self._run = run
        self._notify = changed
        self._on_log = on_log
        self._worker = worker or Worker()
        self._tools: dict[str, NotebookTool] = {}
        self._log: deque[LogLine] = deque(maxlen=MAX_LOG_LINES)
        self._logged = 0
        self._context: Collection[str] = ()
        self._of_turns: Counter[str] = Counter()

    @property
    def status(self) -> ServerStatus:
        """Its state: always ready."""
        tokens = total_tokens(self.tools)
        return ServerStatus(
            self.name,
            "ready",
            tools=len(self.tools),
            tokens=tokens,
            seconds=0.0,
            transport="notebook",
        )

    @property
    def policies(self) -> dict[str, Any]:
        """When the person is asked, by tool. Tools with the default are left out."""
        return {name: tool.policy for name, tool in self._tools.items() if tool.policy is not None}

    def use_context(self, names: Iterable[str]) -> None:
        """Hide parameters with these names from models: the conversation's context fills them."""
        self._context = frozenset(names)
        self._update()

    def injecting(self, names: Collection[str]) -> AbstractContextManager[None]:
        """Hide parameters with these names too while the body runs: a turn's context fills them."""
        return self._injecting(tuple(names)) if names else _NOTHING

    @contextmanager
    def _injecting(self, names: tuple[str, ...]) -> Iterator[None]:
        self._of_turns.update(names)
        self._update()
        try:
            yield
        finally:
            self._of_turns -= Counter(names)
            self._update()

    def spec_of(self, tool: NotebookTool) -> ToolSpec:
        """Build a tool's current definition, without parameters that the context fills."""
        names = {*self._context, *self._of_turns}
        if tool.parameters is None or not tool.parameters.named(names):
            return tool.spec
        return replace(tool.spec, input_schema=tool.parameters.schema_beside(names))

    def add(self, tool: NotebookTool) -> None:
        """Add a tool. It replaces one with the same name."""
        self._tools = {**self._tools, tool.spec.name: tool}
        self._changed()

    def remove(self, name: str) -> None:
        """Remove a tool, or raise an UnknownNameError if there is none."""
        if name not in self._tools:
            raise UnknownNameError("tool of the notebook", name, self._tools)
        self._tools = {other: tool for other, tool in self._tools.items() if other != name}
        self._changed()

    def _update(self) -> None:
        if tuple(map(self.spec_of, self._tools.values())) != self.tools:
            self._changed()

    def _changed(self) -> None:
        self.tools = tuple(map(self.spec_of, self._tools.values()))
        self.tools_version = hash_of_tools(self.tools)
        self._notify()

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
        on_task: Any = None,
    ) -> ToolResult:
        """Call a tool.

        An exception becomes a result that is an error, and its traceback goes to the log.
        """
        tool = self._tools.get(name)
        if tool is None:
            raise ToolCallError(f"Tool {shown(name)} was removed.", server=self.name, tool=name)
        if tool.parameters is None:
            await self._check(tool.spec, arguments)
        scope = SCOPE.get()
        loop = asyncio.get_running_loop()
        values: Mapping[str, Any] = {}
        nested = None
        if scope is not None:
            values, nested = scope.values, NestedCalls(self._run, scope, tool.is_async)
        on_progress = _posted(loop, on_progress or ignore)
        context = ToolContext(on_progress, _posted(loop, self._add_line), values, nested)
        try:
            call = tool.start(arguments, context)
        except InvalidArgumentsError as error:
            raise ToolCallError(str(error), server=self.name, tool=name) from None
        try:
            return await result_from(self._run, call, tool.is_async)
        except asyncio.CancelledError:
            context.cancel()
            raise
        except ToolCallError:
            raise
        except Exception as error:
            self._add_line("error", short_traceback(error))
            return failed(error)

    async def _check(self, spec: ToolSpec, arguments: Mapping[str, Any]) -> None:
        """Check the arguments of a tool object, which has no parameters that would."""
        if fits_plainly(spec.input_schema, arguments):
            return
        wrong = await asyncio.to_thread(problems, spec.input_schema, arguments, self._worker)
        if wrong:
            text = "; ".join(wrong[:_MAX_PROBLEMS])
            raise ToolCallError(f"invalid arguments: {text}.", server=self.name, tool=spec.name)

    def _add_line(self, level: str, text: str) -> None:
        self._logged += 1
        self._log.append(LogLine(time.time(), level, text))
        self._on_log(level, text)

    def read_log(self) -> ServerLog:
        """Read the lines that tools logged, and tracebacks of failures."""
        return ServerLog(self.name, tuple(self._log), self._logged - len(self._log))

    def read_messages(self, tool: str | None = None) -> Messages:
        """Return no messages: the notebook's functions are called directly."""
        return Messages(self.name)

    def read_wire(self) -> Wire:
        """Return no messages: the notebook's functions are called directly."""
        return Wire()

    async def connect(self) -> None:
        """Do nothing: a notebook's functions are always there."""

    ensure = reconnect = close = connect

    async def refresh(self, force: bool = False) -> tuple[ToolSpec, ...]:
        """List the tools."""
        return self.tools

    def abandon(self) -> None:
        """Do nothing."""


def _posted(
    loop: asyncio.AbstractEventLoop, function: Callable[..., object]
) -> Callable[..., None]:

    def post(*args: Any) -> None:
        # A function can outlive the loop of its turn.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(function, *args)

    return post


def failed(error: Exception) -> ToolResult:
    """Build the result of a function that raised an error, as a model reads it."""
    return ToolResult((ContentPart("text", error_text(error)),), is_error=True)


def error_text(error: Exception) -> str:
    """Format an error in a person's code for the model."""
    try:
        text = str(error)
    except Exception:
        text = "its message cannot be read"
    return f"{type(error).__name__}: {text}"[:_MAX_MESSAGE]


def short_traceback(error: Exception) -> str:
    """Format the traceback for an error in a person's code, without our own frames."""
    frames = error.__traceback__
    while (
        frames is not None
        and "casual_mcp_nb" in frames.tb_frame.f_globals.get("__name__", "")
        and frames.tb_next
    ):
        frames = frames.tb_next
    return "".join(traceback.format_exception(error.with_traceback(frames)))


Stub = Any | Callable[..., Any] | EllipsisType
"""A fixed result.

A function that is called with the arguments, or `...` for a value that fits the tool's output
schema.
"""

ALL_TOOLS = "*"
EXAMPLE = "example"
_MAX_DEPTH = 8
_MAX_ITEMS = 20
_MAX_PARTS = 1_000
_MAX_LENGTH = 1_000


class Mock:
    """Stubs that are in use until `stop` is called. A context manager."""

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
    """The stubs of a session, or of one turn. The one that was added last counts."""

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
        """Combine these with a turn's stubs, which come before the session's own at the time of a
        call.
        """
        mocks = Mocks(self._run, self)
        mocks.add(stubs)
        return mocks

    def _remove(self, mock: Mock) -> None:
        self._mocks = [other for other in self._mocks if other is not mock]

    def stub_for(self, tool: ToolSpec) -> Sequence[Stub]:
        """List a tool's stub. An empty list if it has none."""
        if self._mocks:
            everything = (f"{tool.server}:{ALL_TOOLS}", ALL_TOOLS)
            names = (str(tool.tool_name), tool.wire_name, *tool.aliases, *everything)
            for mock in reversed(self._mocks):
                for name in names:
                    if name in mock.stubs:
                        return [mock.stubs[name]]
        return self._others.stub_for(tool) if self._others is not None else []

    async def answer(self, stub: Stub, tool: ToolSpec, arguments: Mapping[str, Any]) -> ToolResult:
        """Answer a call with a stub. A function's exception becomes an error result."""
        try:
            if stub is ...:
                value = example(tool.output_schema) if tool.output_schema else EXAMPLE
            elif callable(stub):
                value = await result_from(self._run, partial(stub, **arguments), is_async(stub))
            else:
                value = stub
            result = _as_declared(result_of(value), tool.output_schema)
            return replace(result, mocked=True)
        except Exception as error:
            return replace(failed(error), mocked=True)


def _as_declared(result: ToolResult, schema: Mapping[str, Any] | None) -> ToolResult:
    """Give a stub's text or JSON the structured content that the tool's own result would have,
    where that is only a value in `{"result": …}`, as FastMCP's servers send it.
    """
    if not schema or SchemaReader(schema).properties.keys() != {"result"}:
        return result
    if result.structured is not None or result.payload is not None or len(result.content) != 1:
        return result
    (part,) = result.content
    (value,) = result.returned or (part.text,)
    if part.kind != "text":
        return result
    if not isinstance(value, str):
        value = json.loads(part.text)
    return replace(result, structured={"result": value})


_BY_FORMAT = {
    "date": "2026-01-01",
    "date-time": "2026-01-01T12:00:00Z",
    "time": "12:00:00Z",
    "email": "ada@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def example(schema: Any) -> Any:
    """Build a small value that fits a JSON schema, as far as its types, choices, defaults and
    required properties tell.
    """
    return _example(SchemaReader(schema), _MAX_DEPTH, [_MAX_PARTS])


def _example(reader: SchemaReader, depth: int, parts: list[int]) -> Any:
    # A schema comes from a server, and a few references make a value of any size.
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
    kind = reader.types[0] if reader.types else ""
    if not kind and reader.properties:
        kind = "object"
    match kind:
        case "object":
            required = [name for name in reader.required if name in reader.properties]
            return {name: _example(reader.properties[name], depth - 1, parts) for name in required}
        case "array":
            if not reader.items:
                return []
            count = min(int(reader.number("minItems") or 0), _MAX_ITEMS)
            return [_example(reader.items, depth - 1, parts) for _ in range(count)]
        case "string":
            text = _BY_FORMAT.get(reader.text("format"), EXAMPLE)
            text = text.ljust(min(int(reader.number("minLength") or 0), _MAX_LENGTH), "…")
            longest = reader.number("maxLength")
            return text if longest is None else text[: max(0, int(longest))]
        case "integer" | "number":
            above, least, most = map(reader.number, ("exclusiveMinimum", "minimum", "maximum"))
            if above is not None:
                return above + 1
            if least is not None:
                return least
            return 1 if most is None else min(1, most)
        case "boolean":
            return True
    return None
