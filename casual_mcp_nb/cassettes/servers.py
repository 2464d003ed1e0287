"""Servers with a cassette: one that is recorded while in use, and one that exists only in the
cassette.
"""

from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.content import OnProgress, ToolResult
from casual_mcp_nb.base.mcp import Completions, Resource, ServerPrompt, Skill, Subscription
from casual_mcp_nb.base.status import ServerStatus
from casual_mcp_nb.base.tokens import total_tokens
from casual_mcp_nb.base.tool import ToolName, ToolSpec, hash_of_tools
from casual_mcp_nb.base.wire import LogLine, Messages, ServerLog, Wire
from casual_mcp_nb.cassettes import Plain
from casual_mcp_nb.cassettes.exchanges import EXCHANGES, Exchange, call_request
from casual_mcp_nb.cassettes.format import ServerEntry
from casual_mcp_nb.cassettes.interaction import plain_result, progress_event, read_tools
from casual_mcp_nb.errors import CassetteMismatchError, ConnectError, ResourceError, shown

if TYPE_CHECKING:
    from casual_mcp_nb.cassettes.recorder import Recorder
    from casual_mcp_nb.cassettes.replayer import Replayer


MAX_LOG_LINES = 500


class RecordedServer:
    """A server whose answers are recorded.

    Requests that are not recorded are passed to the server itself.
    """

    def __init__(self, server: Any, recorder: Recorder) -> None:
        self._server = server
        self._recorder = recorder
        self._recorded_lists: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        if name == "resources":
            return RecordedResources(
                self._server.name, self._server.resources, self._recorder, self._recorded_lists
            )
        return getattr(self._server, name)

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools as last listed."""
        self._recorder.saw(self._server)
        tools: tuple[ToolSpec, ...] = self._server.tools
        return tools

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
        on_task: Any = None,
    ) -> ToolResult:
        """Call a tool, see `Connection.call`."""
        self._recorder.saw(self._server)
        request = call_request(self._server.name, name, arguments)
        recording = self._recorder.start("call", request)

        def progressed(progress: float, total: float | None, text: str | None) -> None:
            recording.event(progress_event(progress, total, text))
            if on_progress is not None:
                on_progress(progress, total, text)

        try:
            result: ToolResult = await self._server.call(
                name, arguments, on_progress=progressed, meta=meta, on_task=on_task
            )
        except BaseException as error:
            recording.failed(error)
            raise
        # Only pages of apps read what a server adds for them.
        with_meta = any(tool.app for tool in self._server.tools)
        recording.done(plain_result(result, with_meta=with_meta))
        return result


class RecordedResources:
    """A server's resources and prompts, recorded while they are read."""

    def __init__(
        self, server: str, resources: Any, recorder: Recorder, recorded_lists: set[str]
    ) -> None:
        self._server = server
        self._resources = resources
        self._recorder = recorder
        self._recorded_lists = recorded_lists

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._resources, name)
        if name not in EXCHANGES:
            return method
        return functools.partial(self._recorded, EXCHANGES[name], method)

    async def _recorded(self, exchange: Exchange, method: Any, *arguments: Any) -> Any:
        request = exchange.request(*arguments)
        recording = self._recorder.start(exchange.kind, {"server": self._server, **request})
        try:
            answer = await method(*arguments)
        except BaseException as error:
            recording.failed(error)
            raise
        recording.done(exchange.plain(answer))
        return answer

    @property
    def skills_fresh(self) -> bool:
        """Whether `refresh_skills` has nothing to do: also the list from before the recording is
        recorded once.
        """
        recorded = not self._resources.known_skills or "skills" in self._recorded_lists
        return recorded and bool(self._resources.skills_fresh)

    async def refresh_skills(self) -> None:
        """List its skills for a turn."""
        if not self._resources.skills_fresh:
            await self._resources.refresh_skills()
        self._recorded_lists.add("skills")
        recording = self._recorder.start("skills", {"server": self._server})
        recording.done(EXCHANGES["skills"].plain(self._resources.known_skills))


class ReplayedServer:
    """A server in a cassette, used like a connection.

    For the methods, see `servers.connection.Connection`.

    The cassette may have no entry for it. Without a config in the replaying session, the recorded
    settings count. `on_log` is called with server, level and text for each log line. `task` makes
    the task that a call became, from its tool and number.
    """

    settled = True

    def __init__(
        self,
        name: str,
        entry: ServerEntry | None,
        replayer: Replayer,
        config: ServerConfig | None = None,
    ) -> None:
        self._entry = entry or ServerEntry(error=f"it is not in {shown(replayer.name)}")
        self._replayer = replayer
        self._log: deque[LogLine] = deque(maxlen=MAX_LOG_LINES)
        self.name = name
        self.config = config
        changed = replayer.follow(name, self._changed)
        self.tools = self._entry.tools if changed is None else changed
        self.fresh = True
        self.instructions = self._entry.instructions
        self.resources = ReplayedResources(name, replayer)
        self.on_log: Callable[[str, str, str], None] = ignore
        self.on_notice: Callable[[str, str], None] = ignore
        self.on_change: Callable[[], None] = ignore
        self.task: Callable[[ToolName, int], Any] = ignore

    @property
    def tools_version(self) -> str:
        """A hash of the tools."""
        return hash_of_tools(self.tools)

    @property
    def status(self) -> ServerStatus:
        """Its state: ready, if the cassette has it."""
        entry = self._entry
        failed = entry.error is not None and not entry.tools
        return ServerStatus(
            self.name,
            "failed" if failed else "ready",
            entry.error,
            tools=len(self.tools),
            tokens=total_tokens(self.tools),
            seconds=0.0,
            transport="cassette",
            protocol_version=entry.protocol_version,
            version=entry.version,
            instructions=self.instructions,
            capabilities=entry.capabilities,
        )

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
        on_task: Any = None,
    ) -> ToolResult:
        """Play a call's recorded result."""

        def happened(event: Plain) -> None:
            if "progress" in event:
                if on_progress is not None:
                    on_progress(event["progress"], event.get("total"), event.get("text"))
            elif "log" in event:
                level, text = str(event["log"]), str(event.get("text", ""))
                if text.strip():
                    self._log.append(LogLine(time.time(), level, text))
                self.on_log(self.name, level, text)
            elif "notice" in event:
                self.on_notice(self.name, str(event["notice"]))
            elif "tools" in event:
                # Of an earlier version.
                self._changed(read_tools(self.name, event["tools"]))

        request = call_request(self.name, name, arguments)
        result: ToolResult = await self._replayer.play("call", request, happened)
        if result.task is not None and on_task is not None:
            on_task(self.task(ToolName(self.name, name), result.task))
        return result

    def _changed(self, tools: tuple[ToolSpec, ...]) -> None:
        self.tools, self.fresh = tools, False
        self.on_change()

    async def refresh(self, force: bool = False) -> tuple[ToolSpec, ...]:
        """List the tools."""
        self.fresh = True
        return self.tools

    async def ensure(self) -> None:
        """Do nothing. A server that the cassette does not have cannot be connected."""
        if self.status.state == "failed":
            raise ConnectError(
                f"Server {shown(self.name)} cannot be used: {self._entry.error}.", server=self.name
            )

    connect = reconnect = ensure

    async def close(self) -> None:
        """Do nothing."""

    def abandon(self) -> None:
        """Do nothing."""

    def read_log(self) -> ServerLog:
        """List the log messages that were replayed."""
        return ServerLog(self.name, tuple(self._log))

    def read_messages(self, tool: str | None = None) -> Messages:
        """Return no messages: none were exchanged."""
        return Messages(self.name)

    def read_wire(self) -> Wire:
        """Return no messages: none were exchanged."""
        return Wire()


class _Subscriptions:
    """A recorded server's subscriptions, which never change."""

    def __init__(self) -> None:
        self.all: tuple[Subscription, ...] = ()


class ReplayedResources:
    """A recorded server's resources and prompts. For the methods, see `ServerResources`."""

    # Whether it had any is known when they are played.
    has_skills = True
    changed_skills: tuple[str, ...] = ()
    """A recording always plays the same skills."""

    def __init__(self, server: str, replayer: Replayer) -> None:
        self.subscriptions = _Subscriptions()
        self.last_listed: tuple[tuple[Resource, ...], tuple[ServerPrompt, ...]] = (), ()
        self.known_skills: tuple[Skill, ...] = ()
        self._skills_played = False
        self._server = server
        self._replayer = replayer

    def __getattr__(self, name: str) -> Any:
        if name not in EXCHANGES:
            raise AttributeError(f"Replayed resources have no {name!r}.")
        return functools.partial(self._played, name)

    def _request(self, method: str, *arguments: Any) -> dict[str, Plain]:
        return {"server": self._server, **EXCHANGES[method].request(*arguments)}

    async def _played(self, method: str, *arguments: Any) -> Any:
        request = self._request(method, *arguments)
        return await self._replayer.play(EXCHANGES[method].kind, request)

    async def _listed(self, method: str) -> Any:
        try:
            return await self._played(method)
        except CassetteMismatchError:
            raise ResourceError(
                f"The {method} of server {shown(self._server)} were not recorded.",
                server=self._server,
            ) from None

    async def resources(self) -> tuple[Resource, ...]:
        """List its resources."""
        listed: tuple[Resource, ...] = await self._listed("resources")
        self.last_listed = listed, self.last_listed[1]
        return listed

    async def prompts(self) -> tuple[ServerPrompt, ...]:
        """List its prompts."""
        listed: tuple[ServerPrompt, ...] = await self._listed("prompts")
        self.last_listed = self.last_listed[0], listed
        return listed

    def accept_skill(self, name: str) -> bool:
        """Accept nothing: see `changed_skills`."""
        return False

    @property
    def skills_fresh(self) -> bool:
        """Whether the skills were played."""
        return self._skills_played

    async def refresh_skills(self) -> None:
        """Play the list of skills, once. None if they were not recorded."""
        self._skills_played = True
        interaction = self._replayer.find("skills", self._request("skills"))
        self.known_skills = ()
        if interaction is not None:
            self.known_skills = interaction.answer()

    async def skills(self) -> tuple[Skill, ...]:
        """List its skills."""
        if not self._skills_played:
            await self.refresh_skills()
        return self.known_skills

    async def complete(self, *asked: Any) -> Completions:
        """Play the suggestions for an argument. None if they were not recorded."""
        interaction = self._replayer.find("completion", self._request("complete", *asked))
        if interaction is None:
            return Completions()
        completions: Completions = interaction.answer()
        return completions

    async def subscribe(self, uri: str) -> None:
        """Play the recorded subscription. No change is reported."""
        await self._subscription("subscribe", uri)
        self.subscriptions.all = (*self._others(uri), Subscription(self._server, uri))

    async def unsubscribe(self, uri: str) -> None:
        """End `subscribe`."""
        await self._subscription("unsubscribe", uri)
        self.subscriptions.all = self._others(uri)

    async def _subscription(self, method: str, uri: str) -> None:
        try:
            await self._played(method, uri)
        except CassetteMismatchError:
            text = f"Server {shown(self._server)} is replayed: its resources do not change."
            raise ResourceError(text, server=self._server) from None

    def _others(self, uri: str) -> tuple[Subscription, ...]:
        return tuple(each for each in self.subscriptions.all if each.uri != uri)

    def invalidate(self) -> None:
        """Do nothing."""

    def expanded(self, template: Resource, values: Mapping[str, object]) -> str:
        """Expand a template to the URI for its parameters' values."""
        from mcp.shared.uri_template import UriTemplate

        texts: dict[str, Any] = {}
        for name, value in values.items():
            texts[name] = value if isinstance(value, list | tuple) else str(value)
        return UriTemplate.parse(template.uri).expand(texts)

    def matches(self, template: Resource, uri: str) -> bool:
        """Check whether a URI matches a template."""
        from mcp.shared.uri_template import UriTemplate

        return UriTemplate.parse(template.uri).match(uri) is not None
