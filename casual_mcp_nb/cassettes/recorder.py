"""Record a cassette while a session runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic_core import to_jsonable_python

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.content import ToolResult
from casual_mcp_nb.base.iterables import of_type
from casual_mcp_nb.base.mcp import TaskReport
from casual_mcp_nb.base.status import ServerStatus
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.cassettes import FOLLOWED, Kind, Plain
from casual_mcp_nb.cassettes.exchanges import call_request
from casual_mcp_nb.cassettes.format import Cassette, ModelEntry, ServerEntry, SessionEntry
from casual_mcp_nb.cassettes.interaction import (
    Interaction,
    model_response,
    plain_error,
    plain_report,
    plain_result,
    plain_tools,
    turn_request,
)
from casual_mcp_nb.cassettes.tape import Model, Models, Tape, TurnSettings
from casual_mcp_nb.conversation.event import TurnStarted
from casual_mcp_nb.conversation.step import ModelResponse
from casual_mcp_nb.errors import CasualMcpError

MERGE_MS = 40
"""Chunks of text that arrive within this time count as one, as on the screen."""

OPTIONS = (
    "defer_loading",
    "always_load",
    "include_tools",
    "exclude_tools",
    "instructions",
    "approval",
    "max_result_tokens",
    "pin_tools",
    "enabled",
    "apps",
)
"""Server settings that decide how it is used, and contain neither an address nor a secret."""


def entry_of(server: Any) -> ServerEntry:
    """Build a cassette's entry for a server, as it is now."""
    return entry_from(server.config, server.status, server.tools, server.instructions)


def entry_from(
    config: ServerConfig | None, status: ServerStatus, tools: Iterable[ToolSpec], instructions: str
) -> ServerEntry:
    """Build a cassette's entry for a server. One that was added may have no config."""
    entry = ServerEntry(
        tools=tuple(tools),
        version=status.version,
        protocol_version=status.protocol_version,
        instructions=instructions,
        capabilities=status.capabilities,
        error=status.error,
    )
    if config is not None:
        entry.way = "url" if config.url else "command"
        if config.bundled:
            entry.way, entry.bundled = "bundled", config.bundled
        options = config.model_dump(include=set(OPTIONS), exclude_defaults=True)
        entry.options = to_jsonable_python(options)
    return entry


class Recording:
    """An interaction being recorded. It joins the cassette once it has ended."""

    def __init__(
        self, interaction: Interaction, began: float, ended: Callable[[Recording], None]
    ) -> None:
        self.interaction = interaction
        self._began = began
        self._ended = ended

    @property
    def _ms(self) -> int:
        return max(0, round((time.monotonic() - self._began) * 1_000))

    def event(self, event: Plain) -> None:
        """Record something that happened before the answer: a chunk of text, progress, a log
        line.
        """
        events, pace, now = self.interaction.events, self.interaction.pace, self._ms
        goes_on = isinstance(event, str) and bool(events) and isinstance(events[-1], str)
        if goes_on and now - pace[-1] < MERGE_MS:
            events[-1] += event
        else:
            events.append(event)
            pace.append(now)

    def done(self, response: Plain) -> None:
        """Record the answer."""
        self.interaction.response = response
        self._end()

    def answered(self, response: ModelResponse) -> None:
        """Record a model's answer."""
        events = self.interaction.events
        chunks = of_type(events, str)
        if "".join(chunks) == response.message.content:
            # The text itself is in the answer.
            for number, event in enumerate(events):
                if isinstance(event, str):
                    events[number] = len(event)
        self.done(model_response(response))

    def failed(self, error: BaseException) -> None:
        """Record an error, if it is one that a replay can raise.

        Otherwise, the request does not count.
        """
        if isinstance(error, CasualMcpError):
            self.interaction.error = plain_error(error)
            self._end()
        else:
            self._ended(self)

    def _end(self) -> None:
        self.interaction.pace.append(self._ms)
        self._ended(self)


class Recorder(Tape):
    """Records a session's requests to models and servers, and their answers."""

    replays: Literal[False] = False

    def __init__(self, session: SessionEntry) -> None:
        self.models: dict[str, ModelEntry] = {}
        self._session = session
        self._servers: dict[str, ServerEntry] = {}
        self._live: dict[str, Any] = {}
        self._versions: dict[str, str] = {}
        self._interactions: list[Interaction] = []
        self._turns: list[tuple[TurnStarted, Interaction]] = []
        self._running: list[Recording] = []

    def __len__(self) -> int:
        return sum(each.kind != "turn" for each in self._finished())

    def add(self, server: Any) -> None:
        """Record a server as it is now."""
        self._live[server.name] = server
        self._servers[server.name] = self._entry(server)
        self._versions[server.name] = server.tools_version

    def start(self, kind: Kind, request: dict[str, Plain]) -> Recording:
        """Record a request."""
        interaction = Interaction(kind, request)
        self._interactions.append(interaction)
        recording = Recording(interaction, time.monotonic(), self._running.remove)
        self._running.append(recording)
        return recording

    def begin_turn(self, started: TurnStarted, settings: Callable[[], TurnSettings]) -> None:
        """Record the person's request, and the settings that differ from the session when the
        recording began.
        """
        system, after, selection, options, servers = settings()
        if self._session.system is None:
            self._session.system = system
        request = turn_request(started, system if system != self._session.system else None)
        request["after"] = after
        before = self._session.selection
        chosen = {name: value for name, value in selection.items() if value != before.get(name)}
        if chosen:
            request["selection"] = chosen
        if options:
            request["options"] = options
        at_first = {name for name, entry in self._servers.items() if not entry.added}
        if set(servers) != at_first:
            request["servers"] = sorted(servers)
        if started.recorded:
            request["recorded"] = started.recorded
        turn = Interaction("turn", request)
        self._turns.append((started, turn))
        self._interactions.append(turn)

    def turn_stopped(self, started: TurnStarted) -> None:
        """Mark a turn that was stopped, for a replay to leave it out."""
        for begun, turn in self._turns:
            if begun is started:
                turn.request["incomplete"] = True

    def log(self, server: str, event: Mapping[str, Plain]) -> None:
        """Record a server's message while it runs a call."""
        for recording in self._running:
            interaction = recording.interaction
            if interaction.kind == "call" and interaction.request["server"] == server:
                recording.event(event)
                return

    async def model(self, models: Models[Model], name: Any) -> Model:
        """Get a model whose answers are recorded."""
        return await models.taped(name, self)

    def stub_answered(
        self, server: str, tool: str, arguments: Mapping[str, Plain], result: ToolResult
    ) -> None:
        """Record the answer of a stub."""
        self.start("call", call_request(server, tool, arguments)).done(plain_result(result))

    def record_nearest(self, query: str, nearest: Mapping[str, float]) -> None:
        """Record the tools nearest in meaning, unless there are none."""
        if nearest:
            self.start("nearest", {"query": query}).done(nearest)

    def record_program_start(self, code: str, start: Mapping[str, Plain]) -> None:
        """Record a program's clock and seed, as plain values."""
        self.start("program", {"code": code}).done(start)

    def record_task_reports(self, after: int, reports: Sequence[TaskReport]) -> None:
        """Record how tasks have ended, unless there are none to tell of."""
        if reports:
            self.start("tasks", {"after": after}).done(list(map(plain_report, reports)))

    def saw(self, server: Any) -> None:
        """Record a server's tools as they are now, if they have changed.

        The list before the first request to a model and the first call belongs to the server, and
        so does the first one of a server that was added. A later one has its place among the
        requests: another turn may come in between, and the server may have ended since.
        """
        name, version = server.name, server.tools_version
        if self._versions.get(name) == version:
            return
        self._versions[name] = version
        before = self._servers[name]
        first_list = before.added and not before.tools
        if first_list or not any(each.kind in FOLLOWED for each in self._interactions):
            self._servers[name] = self._entry(server)
        else:
            tools = plain_tools(server.tools)
            self._interactions.append(Interaction("listed", {"server": name}, tools))

    def cassette(self) -> Cassette:
        """Build the cassette as it is now, without unanswered requests."""
        servers = {name: self._as_it_is(name) for name in self._servers}
        return Cassette(self._finished(), servers, dict(self.models), self._session)

    def _entry(self, server: Any) -> ServerEntry:
        """Build a server's entry as it is now, marked if the server came only after the first model
        request.
        """
        entry = entry_of(server)
        if server.name in self._servers:
            entry.added = self._servers[server.name].added
        else:
            entry.added = any(each.kind == "model" for each in self._interactions)
        return entry

    def _as_it_is(self, name: str) -> ServerEntry:
        """Update an entry from its server once that is connected, even without tools."""
        server = self._live[name]
        if server.status.state not in ("ready", "failed"):
            # It has not been connected, or not any more.
            return self._servers[name]
        # The way to it and its tools stay as they were when the recording began.
        before, now = self._servers[name], entry_of(server)
        return replace(
            before,
            version=now.version,
            protocol_version=now.protocol_version,
            instructions=now.instructions,
            capabilities=now.capabilities,
            error=now.error,
        )

    def _finished(self) -> list[Interaction]:
        finished = []
        for each in self._interactions:
            if each.kind == "turn" or each.response is not None or each.error:
                finished.append(each)
        return finished
