"""One MCP App: a server's page that shows a tool's result, and what the page asks for.

See SEP-1865, https://github.com/modelcontextprotocol/ext-apps, `specification/draft/apps.mdx`. The
page runs in a browser, in a sandboxed frame without an origin. Its requests arrive at `App`, which
checks and bounds them, and hands them to `SessionApps`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, Protocol

import traitlets

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.content import ContentPart, ToolResult, media_type_of
from casual_mcp_nb.base.displayable import Displayable, DisplayableList, widget_of
from casual_mcp_nb.base.limits import MAX_DEPTH, is_too_deep
from casual_mcp_nb.base.mcp import MAX_SAMPLES, ResourceContents
from casual_mcp_nb.base.tool import ToolName, ToolSpec
from casual_mcp_nb.conversation.step import ToolCall
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.display.words import clean, cut
from casual_mcp_nb.errors import CasualMcpError, ToolCallError, UsageError, shown
from casual_mcp_nb.servers.app_pages import MAX_HTML, AppPage

if TYPE_CHECKING:
    from casual_mcp_nb.engine.turn_fields import ChatOptions
    from casual_mcp_nb.notebook.conversation_runner import ConversationRunner

logger = logging.getLogger(__name__)

MAX_MESSAGES = 500
MAX_MESSAGE_TEXT = 2_000
MAX_VALUE = 1_000_000
"""How many characters of JSON a value of an app may have."""
MAX_PICTURE = 200_000
MAX_CALLS = 8
"""How many calls of one app run at a time."""
MAX_TEXT = 20_000
Status = Literal["not opened", "starting", "shown", "failed", "closed"]
"""How far an app has come. Until a page opens it, it is `not opened`. It is `starting` once the
handshake has begun, and `shown` once that is complete. `closed` is one that was taken away.
"""


@dataclass(frozen=True)
class AppMessage(Displayable):
    """A message between an app and this host, or an event of its page.

    Attributes:
        at: When, in seconds since 1970.
        sender: `app` or `host`, or `page` for what the browser reports: a blocked request, an
            error.
        method: The message's method, or the kind of event.
        text: What it says, cut and cleaned.
    """

    at: float
    sender: Literal["app", "host", "page"]
    method: str
    text: str = ""


@dataclass(frozen=True)
class AppMessages(DisplayableList[AppMessage], items="messages"):
    """The last messages of an app, the newest last.

    Attributes:
        messages: At most `MAX_MESSAGES`.
        dropped: How many there were besides.
    """

    messages: tuple[AppMessage, ...] = field(default=(), repr=False)
    dropped: int = 0


def result_of(value: Any) -> ToolResult:
    """Convert a value to a result.

    Args:
        value: A call of a tool, its result, a text, or a mapping, which becomes structured content.

    Raises:
        UsageError: It is none of these.
    """
    match value:
        case ToolResult():
            return value
        case ToolCall():
            failed = value.status != "ok"
            content = value.content or (ContentPart("text", value.result),)
            return ToolResult(content, value.structured, failed)
        case str():
            return ToolResult((ContentPart("text", value),))
        case Mapping():
            return ToolResult((ContentPart("text", json.dumps(_json(value))),), _json(value))
    raise UsageError(
        "This is not a result that an app can get.",
        hint="Give a text, a dict, or a call of a tool.",
    )


def _json(value: Any) -> Any:
    """Copy a value as JSON. A UsageError if it is not, or is too large."""
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"This cannot be written as JSON: {shown(str(error), 200)}.") from None
    if len(text) > MAX_HTML or is_too_deep(value):
        raise UsageError(
            f"This is larger than an app can get, or nested more than {MAX_DEPTH} levels deep."
        )
    return json.loads(text)


class TurnStarter(Protocol):
    """What starts a turn with an app's message. See `TurnService`."""

    def submit(self, prompt: str, options: ChatOptions) -> object:
        """Start a turn in the background."""


class AppOwner(Protocol):
    """The services of an app's session, as far as apps use them. See `SessionParts`."""

    @property
    def runner(self) -> ConversationRunner:
        """Keeps the conversation's turns."""

    @property
    def turn_service(self) -> TurnStarter:
        """Starts turns."""


class AppService(Protocol):
    """What apps need of their session, which decides what they may do. See `SessionApps`."""

    @property
    def parts(self) -> AppOwner:
        """The session's services. A ClosedError if there is no session any more."""

    def spec_of(self, name: ToolName) -> ToolSpec | None:
        """Find the current definition of a tool, or None if it is gone."""

    def obstacle(self, name: ToolName) -> str:
        """Explain why the page of a tool's app cannot be read now, or return an empty string."""

    async def page(self, tool: ToolSpec) -> AppPage:
        """Read the page of a tool's app."""

    def tools_for_apps(self, server: str) -> list[ToolSpec]:
        """List the tools of a server that its apps may call."""

    async def call(
        self, app: App, name: str, arguments: dict[str, Any]
    ) -> tuple[ToolCall, ToolResult]:
        """Call a tool for an app."""

    async def read(self, server: str, uri: str) -> ResourceContents:
        """Read a resource of a server for its app."""

    def can_sample(self, server: str) -> bool:
        """Check whether a server, and so its apps, may ask the model."""

    async def sample(self, server: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Have the model answer messages."""

    def submit(self, text: str, context: ResourceContents | None) -> None:
        """Start a turn with an app's message."""


class App(Displayable, traitlets.HasTraits):
    """An app of a server, which shows a call of a tool: `session.tools.app("server:tool", …)`, or
    one of `session.tools.apps`.

    As a cell's last value it shows itself. What a person does in it arrives here: `value` is a
    trait, so that `traitlets.link((app, "value"), …)` and `app.observe` work.

    Attributes:
        value: What the app last said about its state (`ui/update-model-context`): the structured
            content, or the text.
        tool: The tool that the app belongs to.
        call: The call that it shows.
        turn: Returns the turn of that call, or None if it is in none that is still here.
        reopened: Whether it is from a conversation that was resumed. Its page is read when
            somebody opens it.
        below_card: Whether it is shown below its turn's card.
        status: Whether it is shown, see `Status`.
        problem: Why it is not shown, or empty.
    """

    value = traitlets.Any(None, allow_none=True)

    def __init__(self, service: AppService, tool: ToolSpec, call: ToolCall) -> None:
        super().__init__()
        self.id = f"app-{next(_numbers)}"
        self.tool = tool.tool_name
        self.call = call
        self.status: Status = "not opened"
        self.problem = ""
        self.picture: bytes | None = None
        self.context: ResourceContents | None = None
        self.blocked: tuple[str, ...] = ()
        self._spec = tool
        self._service = service
        self.turn: Callable[[], Turn | None] = ignore
        self.reopened = self.below_card = False
        self._messages: deque[AppMessage] = deque(maxlen=MAX_MESSAGES)
        self._dropped = 0
        self._sent = count(1)
        self._feed: list[tuple[int, str, dict[str, Any]]] = []
        self._calls: list[ToolCall] = []
        self._running = self._samples = 0
        self._setting = asyncio.Lock()
        self._listeners: list[Callable[[], object]] = []
        if isinstance(call.arguments, Mapping):
            self._push("ui/notifications/tool-input", {"arguments": dict(call.arguments)})

    @property
    def messages(self) -> AppMessages:
        """The messages between the app and this host, the handshake first."""
        return AppMessages(tuple(self._messages), self._dropped)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The last calls that the app made."""
        return tuple(self._calls)

    @property
    def widget(self) -> Any:
        """A new widget that shows the app, to put into a box of `ipywidgets`."""
        return widget_of(self)

    def on_change(self, function: Callable[[Any], object]) -> Callable[[], None]:
        """Call a function with each new `value`, on another thread.

        Args:
            function: Called with the value.

        Returns:
            A function that ends it.
        """

        def changed(change: Mapping[str, Any]) -> None:
            function(change["new"])

        self.observe(changed, names="value")

        def end() -> None:
            self.unobserve(changed, names="value")

        return end

    def send(
        self,
        arguments: Mapping[str, Any] | None = None,
        *,
        result: Any = None,
        partial: Mapping[str, Any] | None = None,
        cancelled: str | None = None,
    ) -> None:
        """Send the app a new input, a new result, or both.

        One that is not open yet gets them when it is.

        Args:
            arguments: The arguments of a call, complete (`tool-input`).
            result: A text, a dict (structured content), or a call of a tool such as
                `session.tools.call(…)` returns.
            partial: Arguments that are not complete yet (`tool-input-partial`).
            cancelled: Why there will be no result (`tool-cancelled`).

        Raises:
            UsageError: Something cannot be written as JSON, or the app was closed.
        """
        self._check_open()
        if partial is not None:
            self._push("ui/notifications/tool-input-partial", {"arguments": _json(dict(partial))})
        if arguments is not None:
            self._push("ui/notifications/tool-input", {"arguments": _json(dict(arguments))})
        if result is not None:
            from casual_mcp_nb.servers.to_mcp import plain_result

            self._push("ui/notifications/tool-result", plain_result(result_of(result)))
        if cancelled is not None:
            self._push("ui/notifications/tool-cancelled", {"reason": cancelled})
        self.changed()

    def close(self) -> None:
        """Take the app away, everywhere that it is shown. Its last picture stays."""
        self.status = "closed"
        self.changed()

    def _check_open(self) -> None:
        if self.status == "closed":
            raise UsageError("This app was closed.", hint="Open it again: session.tools.app(…).")

    def _push(self, method: str, params: dict[str, Any]) -> None:
        # A page that is opened again gets only what still counts.
        if method == "ui/notifications/tool-input":
            self._feed = []
        elif method in _ENDS:
            self._feed = [each for each in self._feed if each[1] not in _ENDS]
        self._feed.append((next(self._sent), method, params))

    @property
    def last_sent(self) -> int:
        """The number of the last notification for the app. 0 if there was none."""
        if not self._feed:
            return 0
        return self._feed[-1][0]

    def feed(self, after: int) -> list[list[Any]]:
        """List the notifications for the app after a number.

        Each is a list of its number, its method and its parameters, as the page gets it.
        """
        return [list(each) for each in self._feed if each[0] > after]

    def watch(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Call a function after each change on a page. Return a function that ends it."""
        self._listeners.append(listener)

        def end() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return end

    def changed(self) -> None:
        """Call the functions that `watch` was given."""
        for listener in tuple(self._listeners):
            listener()

    def note(
        self, sender: Literal["app", "host", "page"], method: str, text: str = "", dropped: int = 0
    ) -> None:
        """Add a message to `messages`, cut and cleaned.

        Args:
            sender: Who sent it, see `AppMessage`.
            method: Its method.
            text: What it says.
            dropped: How many messages the page has left out before it.
        """
        self._dropped += dropped
        if len(self._messages) == MAX_MESSAGES:
            self._dropped += 1
        method = clean(cut(method, 100))
        self._messages.append(
            AppMessage(time.time(), sender, method, clean(cut(text, MAX_MESSAGE_TEXT)))
        )

    def set_status(self, status: Status, problem: str = "") -> None:
        """Set the status that the page reports. One that was closed stays so."""
        if self.status != "closed":
            self.status, self.problem = status, clean(cut(problem, 500))
            self.changed()

    def set_picture(self, data: bytes) -> None:
        """Keep the page's picture of itself. Ignore anything but a small PNG or JPEG."""
        if len(data) <= MAX_PICTURE and media_type_of(data) in ("image/png", "image/jpeg"):
            self.picture = data
            self.changed()

    @property
    def obstacle(self) -> str:
        """Why the page cannot be read now, or empty."""
        return self._service.obstacle(self.tool)

    async def page(self) -> AppPage:
        """Read the page from its server.

        Raises:
            UsageError: It is not a page that can be shown. The message has the reason.
        """
        try:
            obstacle = self.obstacle
            if obstacle:
                raise UsageError(obstacle, server=self.tool.server)
            self._spec = self._service.spec_of(self.tool) or self._spec
            page = await self._service.page(self._spec)
        except CasualMcpError as error:
            self.set_status("failed", str(error))
            raise
        for domain in page.left_out:
            text = (
                f"The server declares {shown(domain)}, which is not allowed: only origins on the"
                " public internet are, and for a server on this computer, those here."
            )
            self.note("page", "policy", text)
        self.note("page", "policy", page.policy)
        return page

    @property
    def host(self) -> dict[str, Any]:
        """What the handshake tells the app: this host's capabilities, and the app's tool."""
        from casual_mcp_nb.servers.to_mcp import plain, tool_to_mcp

        capabilities: dict[str, Any] = {
            "openLinks": {},
            "downloadFile": {},
            "serverTools": {},
            "serverResources": {},
            "logging": {},
            "updateModelContext": {
                "text": {},
                "structuredContent": {},
                "image": {},
                "resource": {},
                "resourceLink": {},
            },
            "message": {"text": {}},
        }
        if self._service.can_sample(self.tool.server):
            capabilities["sampling"] = {}
        tool = plain(tool_to_mcp(self._spec))
        tool_info = {"id": self.call.id or self.id, "tool": tool}
        return {"capabilities": capabilities, "toolInfo": tool_info}

    async def set_context(
        self, content: Sequence[Any], structured: Mapping[str, Any] | None
    ) -> None:
        """Take what an app says about its state.

        It becomes `value`, and is attached to the messages that the app submits.

        Args:
            content: Blocks of content, of which the texts are kept.
            structured: Structured content, or None.

        Raises:
            UsageError: The structured content is too large.
        """
        if structured is not None:
            structured = _bounded(dict(structured))
        texts = []
        for block in content:
            if isinstance(block, dict) and isinstance(block.get("text"), str):
                texts.append(block["text"])
        text = clean(cut("\n".join(texts), MAX_TEXT))
        parts = [text] if text else []
        if structured:
            parts.append(json.dumps(structured, ensure_ascii=False))
        summary = "\n".join(parts)
        self.context = ResourceContents(
            self.tool.server,
            self._spec.app,
            (ContentPart("resource", summary[:MAX_TEXT], "text/plain"),),
        )
        value: Any = text or None
        if structured is not None:
            value = structured
        async with self._setting:
            # Functions of the notebook are called there, and may take their time.
            try:
                await asyncio.to_thread(self.set_trait, "value", value)
            except Exception as error:
                self.note(
                    "host",
                    "on_change",
                    f"A function of the notebook failed: {type(error).__name__}: {error}",
                )
                logger.exception("A function that follows an app failed.")
        self.changed()

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool of the app's server for the app. The person is asked as its policy says.

        Returns the result as MCP writes it.

        Raises:
            ToolCallError: There is no such tool for apps, it is not approved, or its server failed.
        """
        from casual_mcp_nb.servers.to_mcp import plain_result

        self._check_open()
        if self._running >= MAX_CALLS:
            raise ToolCallError(
                f"At most {MAX_CALLS} calls of an app run at a time.", server=self.tool.server
            )
        self._running += 1
        try:
            call, result = await self._service.call(self, name, _bounded(dict(arguments)))
        finally:
            self._running -= 1
        self._calls = [*self._calls, call][-MAX_MESSAGES:]
        return plain_result(result)

    def list_tools(self) -> dict[str, Any]:
        """List the tools of its server that the app may call."""
        from casual_mcp_nb.servers.to_mcp import plain, tool_to_mcp

        tools = self._service.tools_for_apps(self.tool.server)
        return {"tools": [plain(tool_to_mcp(tool)) for tool in tools]}

    async def read_resource(self, uri: str) -> dict[str, Any]:
        """Read a resource of its server for the app."""
        self._check_open()
        if len(uri) > MAX_MESSAGE_TEXT:
            raise UsageError("This address is too long.")
        from casual_mcp_nb.servers.to_mcp import contents_to_mcp, plain

        contents = contents_to_mcp(await self._service.read(self.tool.server, uri))
        return {"contents": list(map(plain, contents.contents))}

    async def sample(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Have the model answer messages of the app, if the server's config and the person allow
        it.

        Args:
            params: The parameters of `sampling/createMessage`.

        Returns its result.

        Raises:
            UsageError: It is not allowed, or not answered.
        """
        self._check_open()
        if self._samples >= MAX_SAMPLES:
            raise UsageError(f"At most {MAX_SAMPLES} requests of an app are answered.")
        self._samples += 1
        return await self._service.sample(self.tool.server, params)

    def submit(self, text: str) -> None:
        """Send a message of the app as the person's, once the person has agreed.

        The model reads the app's context too, see `set_context`.

        Raises:
            UsageError: A turn is running, or there is no text.
        """
        if not text.strip():
            raise UsageError("There is nothing to send.")
        self._service.submit(cut(text, MAX_TEXT), self.context)

    @property
    def spec(self) -> ToolSpec:
        """The tool's definition."""
        return self._spec

    @property
    def parts(self) -> AppOwner:
        """The services of its session. A ClosedError if there is none any more."""
        return self._service.parts

    def __repr__(self) -> str:
        return f"<App: {self.tool}, {self.status}>"

    def _ipython_display_(self) -> None:
        widget_of(self)._ipython_display_()


_numbers = count(1)

_ENDS = ("ui/notifications/tool-result", "ui/notifications/tool-cancelled")
"""How a call can end. Only the last of these counts."""


def _bounded(value: dict[str, Any]) -> dict[str, Any]:
    if is_too_deep(value) or len(json.dumps(value)) > MAX_VALUE:
        raise UsageError(
            f"An app may send at most {MAX_VALUE:,} characters at a time, nested at most"
            f" {MAX_DEPTH} levels deep."
        )
    return value
