"""The MCP Apps of a session: which call shows which app, and what apps may do at servers.

One app, with its page and its requests, is in `notebook/app.py`.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from casual_mcp_nb.base.callbacks import ignore, unchanged
from casual_mcp_nb.base.content import ToolResult
from casual_mcp_nb.base.displayable import DisplayableList
from casual_mcp_nb.base.iterables import by_id, by_name
from casual_mcp_nb.base.mcp import ResourceContents, SamplingRefused
from casual_mcp_nb.base.tool import Permission, ToolName, ToolSpec, full_names
from casual_mcp_nb.conversation.audit import app_call_event
from casual_mcp_nb.conversation.direct_calls import RecordedCalls
from casual_mcp_nb.conversation.event import Event, ToolFinished, ToolStarted
from casual_mcp_nb.conversation.step import ToolCall
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.discovery.toolsets import includes_for_apps, resolve_tool_set
from casual_mcp_nb.errors import CasualMcpError, ClosedError, ToolCallError, UsageError, shown
from casual_mcp_nb.notebook.app import App, AppOwner, result_of
from casual_mcp_nb.servers.app_pages import AppPage, app_page

if TYPE_CHECKING:
    # The table of views imports this module, and needs no engine.
    from casual_mcp_nb.engine.chat import McpToolChat
    from casual_mcp_nb.engine.events import Observers
    from casual_mcp_nb.engine.tool_view import ToolView
    from casual_mcp_nb.engine.turn_fields import ChatOptions
    from casual_mcp_nb.notebook.loop import EngineThread
    from casual_mcp_nb.notebook.open_questions import Questions

MAX_APPS = 50
MAX_REOPENED = 10
"""How many apps of a turn are opened again with its conversation."""
MAX_SHOWN = 3
"""How many apps are shown below a turn's card."""


@dataclass(frozen=True)
class Apps(DisplayableList[App], items="apps"):
    """The apps of a session, the newest last."""

    apps: tuple[App, ...] = field(default=(), repr=False)


def _no_session() -> None:
    """Return the services of no session."""


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
    owner: Callable[[], AppOwner | None] = field(default=_no_session, init=False)
    recorded: RecordedCalls = field(default_factory=RecordedCalls, init=False)
    _apps: dict[str, App] = field(default_factory=dict, init=False)
    _changing: threading.Lock = field(default_factory=threading.Lock, init=False)
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

    def of_call(self, turn: Turn, call: ToolCall) -> App | None:
        """Find the app that shows a call of a turn, or make one. None if its tool has none."""
        opened = self._opened_by(turn, call.id)
        if opened is not None:
            return opened
        tool = self.chat.catalog.get(call.tool)
        if tool is None or not tool.app or call.status == "running":
            return None
        return self.open(tool, call, result_of(call), turn)

    def open(
        self, tool: ToolSpec, call: ToolCall, result: ToolResult | None, turn: Turn | None = None
    ) -> App:
        """Make the app of a call, with its result if there is one."""
        app = App(self, tool, call)
        if turn is not None:
            app.turn = weakref.ref(turn)
        if result is not None:
            app.send(result=result)
        self._keep(app)
        return app

    def _keep(self, app: App) -> None:
        """Remember an app, and forget the oldest."""
        # A turn's events and its drawing remember apps at the same time, on two threads.
        with self._changing:
            self._apps = dict([*self._apps.items(), (app.id, app)][-MAX_APPS:])
            turn = app.turn()
            if turn is not None:
                self._by_turn[turn] = [*self._by_turn.get(turn, ()), app]

    def of_turn(self, turn: Turn) -> list[App]:
        """List the apps of a turn's calls, in order."""
        apps = []
        for step in turn.steps:
            for call in step.tool_calls:
                app = self.of_call(turn, call)
                if app is not None:
                    apps.append(app)
        return apps

    def reopen(self, turns: Iterable[Turn]) -> None:
        """Make the apps of a conversation that was resumed. Their pages are not read yet.

        They come before the apps that this session has opened, so they are forgotten earlier.

        Args:
            turns: The conversation's turns. Of each, the last `MAX_REOPENED` apps are made, and of
                all these the last `MAX_APPS`.
        """
        calls: list[tuple[Turn, ToolCall]] = []
        by_turn: dict[Turn, list[App]] = {}
        for turn in turns:
            by_turn[turn] = []
            with_app = [call for call in turn.tool_calls if self._has_app(call)]
            calls += [(turn, call) for call in with_app[-MAX_REOPENED:]]
        reopened: list[App] = []
        for turn, call in calls[-MAX_APPS:]:
            app = self._reopened(turn, call)
            reopened.append(app)
            by_turn[turn].append(app)
        with self._changing:
            before = [app for app in self._apps.values() if app.reopened]
            opened = [app for app in self._apps.values() if not app.reopened]
            kept = [*before, *reopened, *opened][-MAX_APPS:]
            self._apps = by_id(kept)
            self._by_turn.update(by_turn)

    def _has_app(self, call: ToolCall) -> bool:
        tool = self.chat.catalog.get(call.tool)
        if tool is not None:
            return bool(tool.app)
        # The server is off, or not connected yet. Older saved conversations have no `call.app`.
        return bool(call.app) and self.chat.server_manager.shows_apps(call.tool.server)

    def _reopened(self, turn: Turn, call: ToolCall) -> App:
        name = call.tool
        tool = self.chat.catalog.get(name) or ToolSpec(name.server, name.tool, app=call.app)
        app = App(self, tool, call)
        app.turn = weakref.ref(turn)
        app.reopened = True
        with suppress(UsageError):
            if call.status in ("ok", "error"):
                app.send(result=call)
            else:
                app.send(cancelled=call.status)
        return app

    def spec_of(self, name: ToolName) -> ToolSpec | None:
        """Find the current definition of a tool, or None if it is gone."""
        return self.chat.catalog.get(name)

    def obstacle(self, name: ToolName) -> str:
        """Explain why the page of a tool's app cannot be read now. Empty if it can."""
        tool = self.chat.catalog.get(name)
        if tool is not None and tool.app:
            return ""
        if tool is not None:
            return f"Tool {shown(str(name))} has no app any more."
        if name.server in self.chat.catalog.by_server:
            return f"Server {shown(name.server)} has no tool {shown(name.tool)} any more."
        return f"Server {shown(name.server)} is not connected, so its app cannot be shown."

    def opened_in(self, turn: Turn) -> list[App]:
        """List the apps that opened while a turn ran, without those that are forgotten.

        Unlike `of_turn`, it makes none, so it takes no time.
        """
        return [app for app in self._by_turn.get(turn, ()) if app.id in self._apps]

    def _opened_by(self, turn: Turn, call_id: str) -> App | None:
        """Find the app of a call. The call's id is unique in its turn, and not beyond it."""
        for app in self.opened_in(turn):
            if app.call.id == call_id:
                return app
        return None

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
            if turn.running:
                apps = apps[:MAX_SHOWN]
            else:
                apps = apps[-MAX_SHOWN:]
            for app in apps:
                if not app.below_card:
                    app.below_card = True
                    app._ipython_display_()

    def tool_with_app(self, tool: ToolSpec) -> ToolSpec:
        """Check that a tool has an app. A UsageError names those that have one."""
        if not tool.app:
            names = full_names(each for each in self.chat.catalog if each.app)[:12]
            hint = "None of the connected servers' tools has one."
            if names:
                hint = f"These have one: {', '.join(map(shown, names))}."
            raise UsageError(f"Tool {shown(str(tool.tool_name))} has no app.", hint=hint)
        return tool

    async def page(self, tool: ToolSpec) -> AppPage:
        """Read the page of a tool's app, see `App.page`."""
        contents = await self.chat.server_manager.resources_of(tool.server).read_app(tool.app)
        config = self.chat.server_manager.config_of(tool.server)
        url = None
        if config is not None:
            url = config.url
        return app_page(tool.server, tool.app, contents, url)

    def tools_for_apps(self, server: str) -> list[ToolSpec]:
        """List the tools of a server that its apps may call now, see `_refusal`."""
        view = self.chat.current_view()
        tools = []
        for tool in self.chat.catalog.by_server.get(server, ()):
            if tool.restriction != "task only" and not self._refusal(tool, view):
                tools.append(tool)
        return tools

    async def call(
        self, app: App, name: str, arguments: dict[str, Any]
    ) -> tuple[ToolCall, ToolResult]:
        """Call a tool for an app, see `App.call_tool`.

        The call is recorded in the audit list and in the turn's trace, as one from the app.

        Returns the call, and its result, whole.

        Raises:
            ToolCallError: There is no such tool, no app may call it, it is not approved, or its
                server failed.
        """
        from casual_mcp_nb.engine.direct_call import CallOutsideATurn

        server = app.tool.server
        tools = by_name(self.chat.catalog.by_server.get(server, ()))
        tool = tools.get(name)
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
                await call.allow(self._permission(tool, arguments))
            async with self.questions.prompt_on("panel"):
                result = await call.run(self._calling(tool, arguments))
        finally:
            call.record(self.recorded, self.chat.audit, "app", "app")
            self._add_to_trace(app, call.at, call.call, call.permission)
            self.observers.changes.notify()
        return call.call, result

    async def _permission(self, tool: ToolSpec, arguments: dict[str, Any]) -> Permission:
        """Decide about a call of an app. A stub runs nothing, so nobody is asked."""
        if self.chat.mocks.stub_for(tool):
            return Permission("mock", definition=tool.digest)
        return await self.chat.consent.permission(tool, arguments, ignore, ignore)

    async def _calling(self, tool: ToolSpec, arguments: dict[str, Any]) -> ToolResult:
        """Call a tool, or have its stub answer."""
        from casual_mcp_nb.engine.dispatch import mocked_result

        stub = self.chat.mocks.stub_for(tool)
        if stub:
            return await mocked_result(self.chat.mocks, stub[0], tool, arguments, self.chat.tape)
        return await self.chat.server_manager.call(tool, arguments)

    def _add_to_trace(
        self, app: App, at: float, call: ToolCall, permission: Permission | None
    ) -> None:
        """Add an app's call to the turn of the call that it shows."""
        turn = app.turn()
        parts = self.owner()
        if turn is None or parts is None:
            return
        event = app_call_event(turn.trace, app.call, at, call, permission)
        if event is None:
            return
        began = turn.started.began

        def belongs(other: Turn) -> bool:
            """Check whether it is the same turn, perhaps read again from the store."""
            if other is turn:
                return True
            if other.started.began != began:
                return False
            calls = other.trace.all_of(ToolStarted)
            return any(each.call_id == app.call.id for each in calls)

        parts.runner.add_later(turn, event, belongs)

    def _check(self, tool: ToolSpec) -> None:
        """Raise ToolCallError if no app may call a tool now, see `_refusal`."""
        reason = self._refusal(tool, self.chat.current_view())
        if reason:
            raise ToolCallError(reason, server=tool.server, tool=tool.wire_name)

    def _refusal(self, tool: ToolSpec, view: ToolView) -> str:
        """Explain why no app may call a tool. Empty if apps may.

        They may not if the server reserves the tool for the model, if the person has not accepted
        its changed definition, if the config leaves it out, or if the selection does: by server,
        by tool or by toolset.
        """
        name = shown(str(tool.tool_name))
        off = set(map(self.chat.catalog.get, view.selection.tools_off))
        if not tool.for_apps:
            return f"{name} is not a tool that apps may call."
        if tool.tool_name in view.blocked:
            return (
                f"{name} is blocked: its server changed its definition, and the change was not"
                " accepted yet."
            )
        if tool.tool_name in view.excluded:
            return f"{name} is excluded by the config."
        if view.selection.servers.get(tool.server) == "off" or tool in off:
            return f"{name} is off: the selection excludes it."
        if view.problem:
            return view.problem
        tool_set = resolve_tool_set(view.selection.tool_set, self.chat.tool_sets)
        if not includes_for_apps(tool, tool_set):
            return f"{name} is off: the toolset does not include it."
        return ""

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
                unchanged,
            )
            async with self.questions.prompt_on("panel"):
                answer = await self.chat.sampling.answer(server, request)
        except ValidationError:
            raise UsageError("This is not a request for an answer of a model.") from None
        except SamplingRefused as refused:
            raise UsageError(str(refused)) from None
        return sampled(answer).model_dump(mode="json", by_alias=True, exclude_none=True)

    @property
    def parts(self) -> AppOwner:
        """The session's services. A ClosedError if there is no session any more."""
        parts = self.owner()
        if parts is None:
            raise ClosedError("The session of this app is closed.", hint="Create a new session.")
        return parts

    def submit(self, text: str, context: ResourceContents | None) -> None:
        """Start a turn with an app's message, see `App.submit`."""
        self.parts.runner.check_free()
        options: ChatOptions = {}
        if context is not None:
            options["attach"] = [context]
        self.parts.turn_service.submit(text, options)

    def _on_event(self, turn: Turn, event: Event) -> None:
        """Open the app of a call that begins, and send it the result of one that ends."""
        if isinstance(event, ToolStarted):
            self._on_start(turn, event)
        elif isinstance(event, ToolFinished):
            self._on_end(turn, event)

    def _on_start(self, turn: Turn, event: ToolStarted) -> None:
        # A nested call has no app, and the model can write arguments that are no object.
        if event.parent is not None or not isinstance(event.arguments, dict):
            return
        tool = self.chat.catalog.get(event.tool)
        if tool is not None and tool.app:
            call = ToolCall(event.call_id, event.name, event.tool, event.arguments)
            self.open(tool, call, None, turn)

    def _on_end(self, turn: Turn, event: ToolFinished) -> None:
        app = self._opened_by(turn, event.call_id)
        if app is None:
            return
        app.call = replace(app.call, status=event.status, result=event.text)
        with suppress(CasualMcpError):
            if event.result is not None and event.status in ("ok", "error"):
                app.call = replace(app.call, original=event.result)
                app.send(result=event.result.whole or event.result)
            else:
                app.send(cancelled=event.status)
