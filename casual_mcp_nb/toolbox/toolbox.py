"""The functions of a notebook as the tools of a server named `notebook`, alongside the MCP servers."""

from __future__ import annotations

import asyncio
import hashlib
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from casual_mcp_nb.errors import ToolCallError, UnknownNameError, shown
from casual_mcp_nb.toolbox.context import SCOPE, FunctionRunner, NestedCalls, OnProgress, ToolContext
from casual_mcp_nb.toolbox.function_tool import NotebookTool
from casual_mcp_nb.toolbox.output import result_from
from casual_mcp_nb.toolbox.parameters import InvalidArgumentsError
from casual_mcp_nb.toolbox.run_here import run_here
from casual_mcp_nb.types.content import ContentPart, ToolResult
from casual_mcp_nb.types.server_records import LogLine, Messages, ServerLog
from casual_mcp_nb.types.session import ServerStatus
from casual_mcp_nb.types.tool import ToolSpec

NOTEBOOK = "notebook"
MAX_LOG_LINES = 500
_MAX_MESSAGE = 2_000


class Toolbox:
    """The tools of the notebook. It is used as a connection to a server is; see `connections.Connection` for the methods.

    Args:
        run: Runs the functions.
        changed: Called after each change of the tools.
        on_log: Called with level and text of each line that a function logs, and with the traceback of one that failed.

    Attributes:
        tools: What models read of the tools, in the order in which they were added.
        tools_version: Differs after each change of the tools.
    """

    name = NOTEBOOK
    config = None
    instructions = ""
    settled = True
    fresh = True

    def __init__(
        self,
        run: FunctionRunner = run_here,
        changed: Callable[[], None] = lambda: None,
        on_log: Callable[[str, str], None] = lambda *_: None,
    ) -> None:
        self.tools: tuple[ToolSpec, ...] = ()
        self.tools_version = ""
        self._run = run
        self._notify = changed
        self._on_log = on_log
        self._tools: dict[str, NotebookTool] = {}
        self._log: deque[LogLine] = deque(maxlen=MAX_LOG_LINES)
        self._logged = 0
        self._context: Collection[str] = ()
        self._of_turns: Counter[str] = Counter()

    @property
    def status(self) -> ServerStatus:
        """The state of this server: always ready."""
        tokens = sum(tool.tokens for tool in self.tools)
        return ServerStatus(self.name, "ready", tools=len(self.tools), tokens=tokens, seconds=0.0, transport="notebook")

    @property
    def policies(self) -> dict[str, Any]:
        """When the person is asked, by tool; tools with the default are left out."""
        return {name: tool.policy for name, tool in self._tools.items() if tool.policy is not None}

    def use_context(self, names: Iterable[str]) -> None:
        """Hide the parameters of these names from models: the context of the conversation fills them."""
        self._context = frozenset(names)
        self._update()

    @contextmanager
    def injecting(self, names: Iterable[str]) -> Iterator[None]:
        """Hide the parameters of these names too while the body runs: the context of a turn fills them."""
        names = tuple(names)
        if not names:
            yield
            return
        self._of_turns.update(names)
        self._update()
        try:
            yield
        finally:
            self._of_turns -= Counter(names)
            self._update()

    def spec_of(self, tool: NotebookTool) -> ToolSpec:
        """Build the current definition of a tool."""
        return tool.spec_beside({*self._context, *self._of_turns})

    def add(self, tool: NotebookTool) -> None:
        """Add a tool; one of the same name is replaced."""
        self._tools = {**self._tools, tool.spec.name: tool}
        self._changed()

    def remove(self, name: str) -> None:
        """Remove a tool.

        Raises:
            UnknownNameError: There is no such tool.
        """
        if name not in self._tools:
            raise UnknownNameError("tool of the notebook", name, self._tools)
        self._tools = {other: tool for other, tool in self._tools.items() if other != name}
        self._changed()

    def _update(self) -> None:
        if tuple(map(self.spec_of, self._tools.values())) != self.tools:
            self._changed()

    def _changed(self) -> None:
        self.tools = tuple(map(self.spec_of, self._tools.values()))
        self.tools_version = hashlib.sha256("".join(tool.digest for tool in self.tools).encode()).hexdigest()
        self._notify()

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> ToolResult:
        """Call a tool; an exception becomes a result that is an error, and its traceback goes to the log.

        Raises:
            ToolCallError: It was removed, or the arguments are not valid.
        """
        tool = self._tools.get(name)
        if tool is None:
            raise ToolCallError(f"Tool {shown(name)} was removed.", server=self.name, tool=name)
        scope = SCOPE.get()
        loop = asyncio.get_running_loop()
        context = ToolContext(
            _posted(loop, on_progress or (lambda *_: None)),
            _posted(loop, self._add_line),
            scope.values if scope else {},
            NestedCalls(self._run, scope, tool.is_async) if scope else None,
        )
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

    def _add_line(self, level: str, text: str) -> None:
        self._logged += 1
        self._log.append(LogLine(time.time(), level, text))
        self._on_log(level, text)

    def read_log(self) -> ServerLog:
        """Read the lines that tools logged, and the tracebacks of those that failed."""
        return ServerLog(self.name, tuple(self._log), self._logged - len(self._log))

    def read_messages(self, tool: str | None = None) -> Messages:
        """Return no messages: the notebook's functions are called directly."""
        return Messages(self.name)

    async def connect(self) -> None:
        """Do nothing: a notebook's functions are always there."""

    ensure = reconnect = close = connect

    async def refresh(self, force: bool = False) -> tuple[ToolSpec, ...]:
        """List the tools."""
        return self.tools

    def abandon(self) -> None:
        """Do nothing."""


def _posted(loop: asyncio.AbstractEventLoop, function: Callable[..., object]) -> Callable[..., None]:
    """Create a function for any thread that has a loop call this one."""

    def post(*args: Any) -> None:
        # A function can outlive the loop of its turn.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(function, *args)

    return post


def failed(error: Exception) -> ToolResult:
    """Build the result of a function that raised an error, as a model reads it."""
    return ToolResult((ContentPart("text", error_text(error)),), is_error=True)


def error_text(error: Exception) -> str:
    """Format an error of a person's code for the model."""
    try:
        text = str(error)
    except Exception:
        text = "its message cannot be read"
    return f"{type(error).__name__}: {text}"[:_MAX_MESSAGE]


def short_traceback(error: Exception) -> str:
    """Format the traceback of an error that a person's code raised, without our own frames."""
    return "".join(traceback.format_exception(_without_ours(error)))


def _without_ours(error: BaseException) -> BaseException:
    """Remove our frames from an error's traceback, so that it begins with the person's function."""
    frames = error.__traceback__
    while frames is not None and "casual_mcp_nb" in frames.tb_frame.f_globals.get("__name__", "") and frames.tb_next:
        frames = frames.tb_next
    return error.with_traceback(frames)
