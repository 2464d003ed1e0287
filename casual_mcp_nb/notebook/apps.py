"""MCP Apps: servers' pages that show a tool's result, and their requests to a session.

See SEP-1865, https://github.com/modelcontextprotocol/ext-apps, `specification/draft/apps.mdx`. The
page runs in a browser, in a frame that belongs to nobody, and each of its requests comes here.
"""

from __future__ import annotations

import asyncio
import base64
import html
import json
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

import traitlets

from casual_mcp_nb.base.content import ContentPart, ToolResult, media_type_of
from casual_mcp_nb.base.displayable import Displayable, DisplayableList, display, widget_of
from casual_mcp_nb.base.limits import MAX_DEPTH, is_too_deep
from casual_mcp_nb.base.mcp import MAX_SAMPLES, ResourceContents, SamplingRefused
from casual_mcp_nb.base.tool import Permission, ToolName, ToolSpec
from casual_mcp_nb.conversation.audit import RecordedCalls, app_call_event
from casual_mcp_nb.conversation.event import Event, ToolFinished, ToolStarted
from casual_mcp_nb.conversation.step import ToolCall
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.display.words import clean, cut
from casual_mcp_nb.errors import CasualMcpError, ClosedError, ToolCallError, UsageError, shown
from casual_mcp_nb.servers.resources import MAX_HTML, AppPage, app_page

if TYPE_CHECKING:
    # The table of views imports this module, and needs no engine.
    from casual_mcp_nb.engine.chat import McpToolChat
    from casual_mcp_nb.engine.events import Observers
    from casual_mcp_nb.notebook.loop import EngineThread
    from casual_mcp_nb.notebook.prompts import Questions


logger = logging.getLogger(__name__)

MAX_MESSAGES = 500
MAX_MESSAGE_TEXT = 2_000
MAX_VALUE = 1_000_000
"""How many characters of JSON a value of an app may have."""
MAX_PICTURE = 200_000
MAX_CALLS = 8
"""How many calls of one app run at a time."""
MAX_APPS = 50
MAX_REOPENED = 10
"""How many apps of a turn are opened again with its conversation."""
MAX_SHOWN = 3
"""How many apps are shown below a turn's card."""
MAX_TEXT = 20_000
Status = Literal["not opened", "starting", "shown", "failed", "closed"]
"""No page has opened it yet, the handshake has begun, it is complete, it could not be shown, or it
was taken away.
"""


@dataclass(frozen=True)
class AppMessage(Displayable):
    """A message between an app and this host, or an event of its page, at a time in seconds since
    1970.

    Cut and cleaned.

    Attributes:
        sender: `app` or `host`, or `page` for what the browser reports: a blocked request, an
            error.
    """

    at: float
    sender: Literal["app", "host", "page"]
    method: str
    text: str = ""


@dataclass(frozen=True)
class AppMessages(DisplayableList[AppMessage], items="messages"):
    """The last messages of an app, the newest last. `dropped` counts those that are not here."""

    messages: tuple[AppMessage, ...] = field(default=(), repr=False)
    dropped: int = 0


def result_of(value: Any) -> ToolResult:
    """Convert a value to a result: a call of a tool or its result, a text, or a mapping, which
    becomes structured content.

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
        reopened: Whether it is of a conversation that was resumed. Its page is read when somebody
            opens it.
        below_card: Whether it is shown below its turn's card.
        status: Whether it is shown, see `Status`.
        problem: Why it is not shown, or empty.
    """

    value = traitlets.Any(None, allow_none=True)

    def __init__(self, service: SessionApps, tool: ToolSpec, call: ToolCall) -> None:
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
        self.turn: Callable[[], Turn | None] = lambda: None
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
        return lambda: self.unobserve(changed, names="value")

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
        replaced = {
            "ui/notifications/tool-input-partial": (),
            "ui/notifications/tool-input": None,
        }.get(method, ("ui/notifications/tool-result", "ui/notifications/tool-cancelled"))
        # A page that is opened again gets only what still counts.
        self._feed = (
            [] if replaced is None else [each for each in self._feed if each[1] not in replaced]
        )
        self._feed.append((next(self._sent), method, params))

    @property
    def last_sent(self) -> int:
        """The number of the last notification for the app."""
        return self._feed[-1][0] if self._feed else 0

    def feed(self, after: int) -> list[list[Any]]:
        """List the notifications for the app after a number: number, method and parameters of
        each.
        """
        return [list(each) for each in self._feed if each[0] > after]

    def watch(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Call a function after each change on a page. Return a function that ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def changed(self) -> None:
        """Tell those who watch."""
        for listener in tuple(self._listeners):
            listener()

    def note(
        self, sender: Literal["app", "host", "page"], method: str, text: str = "", dropped: int = 0
    ) -> None:
        """Add a message to `messages`."""
        self._dropped += dropped + (len(self._messages) == MAX_MESSAGES)
        self._messages.append(
            AppMessage(
                time.time(), sender, clean(cut(method, 100)), clean(cut(text, MAX_MESSAGE_TEXT))
            )
        )

    def set_status(self, status: Status, problem: str = "") -> None:
        """Note the page's own description."""
        if self.status != "closed":
            self.status, self.problem = status, clean(cut(problem, 500))
            self.changed()

    def set_picture(self, data: bytes) -> None:
        """Keep the page's picture of itself. Anything else than a small PNG or JPEG is ignored."""
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
            if obstacle := self.obstacle:
                raise UsageError(obstacle, server=self.tool.server)
            self._spec = self._service.chat.catalog.get(self.tool) or self._spec
            page = await self._service.page(self._spec)
        except CasualMcpError as error:
            self.set_status("failed", str(error))
            raise
        for domain in page.left_out:
            only = (
                "only origins on the public internet are, and for a server on this computer, those"
                " here"
            )
            self.note(
                "page",
                "policy",
                f"The server declares {shown(domain)}, which is not allowed: {only}.",
            )
        self.note("page", "policy", page.policy)
        return page

    @property
    def host(self) -> dict[str, Any]:
        """An app's view on this host: its capabilities, and the app's tool."""
        from casual_mcp_nb.servers.to_mcp import plain, tool_to_mcp

        samples: dict[str, Any] = (
            {"sampling": {}} if self._service.can_sample(self.tool.server) else {}
        )
        text: dict[str, Any] = {"text": {}, "structuredContent": {}}
        capabilities = {
            **{
                name: {}
                for name in (
                    "openLinks",
                    "downloadFile",
                    "serverTools",
                    "serverResources",
                    "logging",
                )
            },
            "updateModelContext": {**text, "image": {}, "resource": {}, "resourceLink": {}},
            "message": {"text": {}},
            **samples,
        }
        tool = plain(tool_to_mcp(self._spec))
        tool_info = {"id": self.call.id or self.id, "tool": tool}
        return {"capabilities": capabilities, "toolInfo": tool_info}

    async def set_context(
        self, content: Sequence[Any], structured: Mapping[str, Any] | None
    ) -> None:
        """Store the app's context for the model.

        It becomes `value`, and goes to no model by itself.
        """
        structured = None if structured is None else _bounded(dict(structured))
        texts = [
            block["text"]
            for block in content
            if isinstance(block, dict) and isinstance(block.get("text"), str)
        ]
        text = clean(cut("\n".join(texts), MAX_TEXT))
        summary = "\n".join(
            filter(None, [text, json.dumps(structured, ensure_ascii=False) if structured else ""])
        )
        self.context = ResourceContents(
            self.tool.server,
            self._spec.app,
            (ContentPart("resource", summary[:MAX_TEXT], "text/plain"),),
        )
        value = structured if structured is not None else text or None
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
        """Call a tool of the app's server for it, with the person's approval where the policy
        requires it.

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
        return {"contents": [plain(part) for part in contents.contents]}

    async def sample(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Have the model answer messages of the app, if its server's config allows it and the
        person does.

        Raises:
            UsageError: It is not allowed, or not answered.
        """
        self._check_open()
        if self._samples >= MAX_SAMPLES:
            raise UsageError(f"At most {MAX_SAMPLES} requests of an app are answered.")
        self._samples += 1
        return await self._service.sample(self.tool.server, params)

    def submit(self, text: str) -> None:
        """Send a message of the app as the person's, once the person has said so.

        The model reads its context too.

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
    def parts(self) -> Any:
        """The services of its session. A ClosedError if there is none any more."""
        return self._service.parts

    def __repr__(self) -> str:
        return f"<App: {self.tool}, {self.status}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        bundle = display().mimebundle(self, include, exclude)
        if self.picture is not None and "text/html" in bundle:
            kind, data = media_type_of(self.picture), base64.b64encode(self.picture).decode()
            label = html.escape(f"A picture of the app of {clean(str(self.tool))}", quote=True)
            bundle["text/html"] += (
                f'<div><img src="data:{kind};base64,{data}" alt="{label}" title="{label}"'
                ' style="max-width:100%"></div>'
            )
        return bundle

    def _ipython_display_(self) -> None:
        widget_of(self)._ipython_display_()


_numbers = count(1)


def _bounded(value: dict[str, Any]) -> dict[str, Any]:
    if is_too_deep(value) or len(json.dumps(value)) > MAX_VALUE:
        raise UsageError(
            f"An app may send at most {MAX_VALUE:,} characters at a time, nested at most"
            f" {MAX_DEPTH} levels deep."
        )
    return value


@dataclass(frozen=True)
class Apps(DisplayableList[App], items="apps"):
    """The apps of a session, the newest last."""

    apps: tuple[App, ...] = field(default=(), repr=False)


@dataclass(eq=False, repr=False)
class SessionApps:
    """The apps of a session: those of its turns' calls, and those that were opened.

    Its coroutines run on the engine's loop.

    Attributes:
        owner: Returns the session's services, or None once nobody holds the session.
        recorded: Where the calls of apps are listed.
    """

    chat: McpToolChat
    engine: EngineThread
    questions: Questions
    observers: Observers
    owner: Callable[[], Any] = field(default=lambda: None, init=False)
    recorded: RecordedCalls = field(default_factory=RecordedCalls, init=False)
    _apps: dict[str, App] = field(default_factory=dict, init=False)
    _by_call: dict[str, App] = field(default_factory=dict, init=False)
    _showing: threading.Lock = field(default_factory=threading.Lock, init=False)
    _by_turn: WeakKeyDictionary[Turn, list[App]] = field(
        default_factory=WeakKeyDictionary, init=False
    )

    def __post_init__(self) -> None:
        self.observers.events.add(self._on_event)

    @property
    def all(self) -> Apps:
        """The last apps, the newest last."""
        return Apps(tuple(self._apps.values()))

    def by_id(self, id: str) -> App:
        """Find an app. A UsageError if it is not here any more."""
        if id not in self._apps:
            raise UsageError(
                "This app is not open any more.", hint="Open it again: session.tools.app(…)."
            )
        return self._apps[id]

    def of_call(self, call: ToolCall) -> App | None:
        """Find the app that shows a call of a turn, or make one. None if its tool has none."""
        opened = self._by_call.get(call.id)
        # Another conversation may have used the id for another call.
        if opened is not None and (opened.tool, opened.call.arguments) == (
            call.tool,
            call.arguments,
        ):
            return opened
        tool = self.chat.catalog.get(call.tool)
        if tool is None or not tool.app or call.status == "running":
            return None
        return self.open(tool, call, result_of(call))

    def open(self, tool: ToolSpec, call: ToolCall, result: ToolResult | None) -> App:
        """Make the app of a call, with its result if there is one."""
        app = App(self, tool, call)
        if result is not None:
            app.send(result=result)
        self._apps = dict([*self._apps.items(), (app.id, app)][-MAX_APPS:])
        if call.id:
            self._by_call = dict([*self._by_call.items(), (call.id, app)][-MAX_APPS:])
        return app

    def of_turn(self, turn: Turn) -> list[App]:
        """List the apps of a turn's calls, in order."""
        calls = [call for step in turn.steps for call in step.tool_calls]
        return [app for call in calls if (app := self.of_call(call)) is not None]

    def reopen(self, turns: Iterable[Turn]) -> None:
        """Make the apps of a conversation that was resumed, without reading a page."""
        for turn in turns:
            calls = [call for call in turn.tool_calls if self._has_app(call)][-MAX_REOPENED:]
            self._by_turn[turn] = [self._reopened(turn, call) for call in calls]

    def _has_app(self, call: ToolCall) -> bool:
        tool = self.chat.catalog.get(call.tool)
        # The server may be off, or not be connected yet. An older conversation does not say.
        return (
            bool(tool.app)
            if tool is not None
            else bool(call.app) and self.chat.server_manager.shows_apps(call.tool.server)
        )

    def _reopened(self, turn: Turn, call: ToolCall) -> App:
        name = call.tool
        app = App(
            self,
            self.chat.catalog.get(name) or ToolSpec(name.server, name.tool, app=call.app),
            call,
        )
        app.turn, app.reopened = weakref.ref(turn), True
        with suppress(UsageError):
            if call.status in ("ok", "error"):
                app.send(result=call)
            else:
                app.send(cancelled=call.status)
        # Those of this session stay longer.
        self._apps = dict([(app.id, app), *self._apps.items()][-MAX_APPS:])
        return app

    def obstacle(self, name: ToolName) -> str:
        """Explain why the page of a tool's app cannot be read now, or return an empty string if it
        can.
        """
        tool = self.chat.catalog.get(name)
        if tool is not None:
            return "" if tool.app else f"Tool {shown(str(name))} has no app any more."
        if name.server in self.chat.catalog.by_server:
            return f"Server {shown(name.server)} has no tool {shown(name.tool)} any more."
        return f"Server {shown(name.server)} is not connected, so its app cannot be shown."

    def opened_in(self, turn: Turn) -> list[App]:
        """List the apps that opened while a turn ran and are still here. Quick."""
        return [app for app in self._by_turn.get(turn, ()) if app.id in self._apps]

    def show(self, turn: Turn) -> None:
        """Show the apps of a turn below its card: the first ones while it runs, and the last ones
        when it has ended.

        Only in a notebook, on the cell's thread or the drawing thread.
        """
        from casual_mcp_nb.notebook.caller import notebook_shell

        if notebook_shell() is None:
            return
        with self._showing:
            apps = self.of_turn(turn)
            for app in apps[:MAX_SHOWN] if turn.running else apps[-MAX_SHOWN:]:
                if not app.below_card:
                    app.below_card = True
                    app._ipython_display_()

    def tool_with_app(self, tool: ToolSpec) -> ToolSpec:
        """Check that a tool has an app. A UsageError names those that have one."""
        if not tool.app:
            names = [str(each.tool_name) for each in self.chat.catalog if each.app][:12]
            hint = (
                f"These have one: {', '.join(map(shown, names))}."
                if names
                else "None of the connected servers' tools has one."
            )
            raise UsageError(f"Tool {shown(str(tool.tool_name))} has no app.", hint=hint)
        return tool

    async def page(self, tool: ToolSpec) -> AppPage:
        """Read the page of a tool's app, see `App.page`."""
        contents = await self.chat.server_manager.resources_of(tool.server).read_app(tool.app)
        config = self.chat.server_manager.config_of(tool.server)
        return app_page(tool.server, tool.app, contents, config.url if config else None)

    def tools_for_apps(self, server: str) -> list[ToolSpec]:
        """List the tools of a server that its apps may call."""
        tools = self.chat.catalog.by_server.get(server, ())
        return [tool for tool in tools if tool.for_apps and tool.restriction != "task only"]

    async def call(
        self, app: App, name: str, arguments: dict[str, Any]
    ) -> tuple[ToolCall, ToolResult]:
        """Call a tool for an app, see `App.call_tool`.

        The audit list and the turn's trace have it, as a call from the app.
        """
        from casual_mcp_nb.engine.direct_call import CallOutsideATurn

        server = app.tool.server
        tool = next(
            (each for each in self.chat.catalog.by_server.get(server, ()) if each.name == name),
            None,
        )
        if tool is None:
            raise ToolCallError(f"Server {shown(server)} has no tool {shown(name)}.", server=server)
        call = CallOutsideATurn(tool, arguments)
        try:
            try:
                self._check(tool)
            except ToolCallError as error:
                call.fail(error)
                raise
            async with self.questions.prompt_on("panel"):
                consent = self.chat.consent
                await call.allow(
                    consent.permission(tool, arguments, lambda _: None, lambda _: None)
                )
            async with self.questions.prompt_on("panel"):
                result = await call.run(self.chat.server_manager.call(tool, arguments))
        finally:
            call.record(self.recorded, self.chat.audit, "app", "app")
            self._add_to_trace(app, call.at, call.call, call.permission)
            self.observers.changes.notify()
        return call.call, result

    def _add_to_trace(
        self, app: App, at: float, call: ToolCall, permission: Permission | None
    ) -> None:
        """Add an app's call to the turn of the call that it shows."""
        turn, name, parts = app.turn(), app.call.id, self.owner()
        if turn is None or parts is None:
            return
        event, began = (
            app_call_event(turn.trace, app.call, at, call, permission),
            turn.started.began,
        )
        if event is None:
            return

        def belongs(other: Turn) -> bool:
            return other is turn or (
                other.started.began == began
                and any(each.call_id == name for each in other.trace.all_of(ToolStarted))
            )

        parts.runner.add_later(turn, event, belongs)

    def _check(self, tool: ToolSpec) -> None:
        """Raise ToolCallError if no app may call a tool: its server forbids it, or the person's
        selection excludes it.
        """
        name, reason = shown(str(tool.tool_name)), ""
        view = self.chat.current_view()
        off = {self.chat.catalog.get(each) for each in view.selection.tools_off}
        if not tool.for_apps:
            reason = f"{name} is not a tool that apps may call."
        elif tool.tool_name in view.blocked:
            reason = (
                f"{name} is blocked: its server changed its definition, and the change was not"
                " accepted yet."
            )
        elif view.selection.servers.get(tool.server) == "off" or tool in off:
            reason = f"{name} is off: the selection excludes it."
        if reason:
            raise ToolCallError(reason, server=tool.server, tool=tool.wire_name)

    async def read(self, server: str, uri: str) -> ResourceContents:
        """Read a resource of a server for its app."""
        async with self.questions.prompt_on("panel"):
            return await self.chat.server_manager.resources_of(server).read(uri)

    def can_sample(self, server: str) -> bool:
        """Check whether the config lets a server, and so its apps, ask the model."""
        config = self.chat.server_manager.config_of(server)
        return config is not None and config.sampling

    async def sample(self, server: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Have the model answer messages, see `App.sample`."""
        from mcp_types import CreateMessageRequestParams
        from pydantic import ValidationError

        from casual_mcp_nb.servers.sampling import request_of
        from casual_mcp_nb.servers.sampling import result_of as sampled

        if not self.can_sample(server):
            raise UsageError(
                f"Apps of server {shown(server)} may not ask the model: set its sampling to true in"
                " the config."
            )
        try:
            request = request_of(
                CreateMessageRequestParams.model_validate(dict(params), by_name=False),
                lambda text: text,
            )
            async with self.questions.prompt_on("panel"):
                answer = await self.chat.sampling.answer(server, request)
        except ValidationError:
            raise UsageError("This is not a request for an answer of a model.") from None
        except SamplingRefused as refused:
            raise UsageError(str(refused)) from None
        return sampled(answer).model_dump(mode="json", by_alias=True, exclude_none=True)

    @property
    def parts(self) -> Any:
        """The session's services. A ClosedError if there is no session any more."""
        parts = self.owner()
        if parts is None:
            raise ClosedError("The session of this app is closed.", hint="Create a new session.")
        return parts

    def submit(self, text: str, context: ResourceContents | None) -> None:
        """Start a turn with an app's message, see `App.submit`."""
        turns = self.parts.turn_service
        turns.runner.check_free()
        turns.submit(text, {"attach": [context]} if context is not None else {})

    def _on_event(self, turn: Turn, event: Event) -> None:
        """Open the app of a call that begins, and send it the result."""
        if (
            isinstance(event, ToolStarted)
            and event.parent is None
            and isinstance(event.arguments, dict)
        ):
            tool = self.chat.catalog.get(event.tool)
            if tool is not None and tool.app:
                call = ToolCall(event.call_id, event.name, event.tool, event.arguments)
                opened = self.open(tool, call, None)
                opened.turn = weakref.ref(turn)
                self._by_turn.setdefault(turn, []).append(opened)
        elif (
            isinstance(event, ToolFinished)
            and (app := self._by_call.get(event.call_id)) is not None
        ):
            app.call = replace(app.call, status=event.status, result=event.text)
            with suppress(CasualMcpError):
                if event.result is not None and event.status in ("ok", "error"):
                    app.call = replace(app.call, original=event.result)
                    app.send(result=event.result.whole or event.result)
                else:
                    app.send(cancelled=event.status)
