"""Record a cassette: the answers of models and servers, while a session runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

from pydantic_core import to_jsonable_python

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.status import ServerStatus
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.cassettes.format import Cassette, ModelEntry, ServerEntry, SessionEntry, Way
from casual_mcp_nb.cassettes.interaction import Interaction, Kind, Plain, model_response, plain_error, plain_tools, turn_request
from casual_mcp_nb.conversation.answers import ModelResponse
from casual_mcp_nb.conversation.event import TurnStarted
from casual_mcp_nb.errors import CasualMcpError

MERGE_MS = 40
"""Pieces of a text that arrive within this time are one piece, as they are on the screen."""

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
)
"""The settings of a server that decide how it is used, and have neither an address nor a secret in them."""


def entry_of(server: Any) -> ServerEntry:
    """Build a cassette's entry for a server, as it is now."""
    return entry_from(server.config, server.status, server.tools, server.instructions)


def entry_from(config: ServerConfig | None, status: ServerStatus, tools: Iterable[ToolSpec], instructions: str) -> ServerEntry:
    """Build a cassette's entry for a server; one that was added may have no config."""
    way: Way = "in-process"
    if config is not None:
        way = "bundled" if config.bundled else "url" if config.url else "command"
    return ServerEntry(
        way,
        (config.bundled or "") if config else "",
        to_jsonable_python(config.model_dump(include=set(OPTIONS), exclude_defaults=True)) if config else {},
        tuple(tools),
        status.version,
        status.protocol_version,
        instructions,
        status.capabilities,
        status.error,
    )


class Recording:
    """An interaction while it is recorded. It belongs to the cassette once it has ended."""

    def __init__(self, interaction: Interaction, began: float, ended: Callable[[Recording], None]) -> None:
        self.interaction = interaction
        self._began = began
        self._ended = ended

    @property
    def _ms(self) -> int:
        return max(0, round((time.monotonic() - self._began) * 1_000))

    def event(self, event: Plain) -> None:
        """Record something that happened before the answer: a piece of its text, progress, a line of a log."""
        events, pace, now = self.interaction.events, self.interaction.pace, self._ms
        if isinstance(event, str) and events and isinstance(events[-1], str) and now - pace[-1] < MERGE_MS:
            events[-1] += event
            return
        events.append(event)
        pace.append(now)

    def done(self, response: Plain) -> None:
        """Record the answer."""
        self.interaction.response = response
        self._end()

    def answered(self, response: ModelResponse) -> None:
        """Record the answer of a model."""
        events, content = self.interaction.events, response.message.content
        if "".join(event for event in events if isinstance(event, str)) == content:
            # The text itself is in the answer.
            events[:] = [len(event) if isinstance(event, str) else event for event in events]
        self.done(model_response(response))

    def failed(self, error: BaseException) -> None:
        """Record an error, if it is one that a replay can raise; else the request counts as not made."""
        if isinstance(error, CasualMcpError):
            self.interaction.error = plain_error(error)
            self._end()
        else:
            self._ended(self)

    def _end(self) -> None:
        self.interaction.pace.append(self._ms)
        self._ended(self)


class Recorder:
    """The recording of a session's requests to models and servers, and their answers."""

    replays: Literal[False] = False

    def __init__(self, session: SessionEntry) -> None:
        self.models: dict[str, ModelEntry] = {}
        self._session = session
        self._servers: dict[str, ServerEntry] = {}
        self._live: dict[str, Any] = {}
        self._versions: dict[str, str] = {}
        self._interactions: list[Interaction] = []
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
        recording = Recording(interaction, time.monotonic(), lambda ended: self._running.remove(ended))
        self._running.append(recording)
        return recording

    def turn(
        self,
        started: TurnStarted,
        system: str,
        after: int,
        selection: Mapping[str, Plain],
        options: Mapping[str, Plain],
        servers: Iterable[str],
    ) -> None:
        """Record the person's request, and the settings that differ from the session when the recording began."""
        if self._session.system is None:
            self._session.system = system
        request = turn_request(started, system if system != self._session.system else None)
        before = self._session.selection
        chosen = {name: value for name, value in selection.items() if value != before.get(name)}
        present, usual = set(servers), {name for name, entry in self._servers.items() if not entry.added}
        request |= {"after": after, **({"selection": chosen} if chosen else {}), **({"options": options} if options else {})}
        if present != usual:
            request["servers"] = sorted(present)
        if started.recorded:
            request["recorded"] = started.recorded
        self._interactions.append(Interaction("turn", request))

    def log(self, server: str, event: Mapping[str, Plain]) -> None:
        """Record a message of a server while it runs a call."""
        for recording in self._running:
            if recording.interaction.kind == "call" and recording.interaction.request["server"] == server:
                recording.event(event)
                return

    def saw(self, server: Any) -> None:
        """Record a server's tools, resources and prompts as they are now, if they have changed.

        What it offers before its first call belongs to the server, and a change after that to the last call.
        """
        name, version = server.name, server.tools_version
        if self._versions.get(name) == version:
            return
        self._versions[name] = version
        calls = [each for each in self._interactions if each.kind == "call" and each.request["server"] == name]
        if not calls:
            self._servers[name] = self._entry(server)
            return
        last = calls[-1]
        last.events.append({"tools": plain_tools(server.tools)})
        # While the call runs, the change came before its end.
        last.pace.insert(len(last.events) - 1, last.pace[-1] if last.pace else 0)

    def cassette(self) -> Cassette:
        """Build the cassette as it is now; requests that were not answered yet are not in it."""
        return Cassette(list(self._finished()), dict(map(self._as_it_is, self._servers)), dict(self.models), self._session)

    def _entry(self, server: Any) -> ServerEntry:
        """Build the entry of a server as it is now, marked if the server came only after a model had been asked."""
        entry, before = entry_of(server), self._servers.get(server.name)
        entry.added = before.added if before else any(each.kind == "model" for each in self._interactions)
        return entry

    def _as_it_is(self, name: str) -> tuple[str, ServerEntry]:
        """Update an entry from its server once that is connected, even without tools."""
        entry, now = self._servers[name], entry_of(self._live[name])
        if self._live[name].status.state not in ("ready", "failed"):
            # It has not been connected, or not any more.
            return name, entry
        fields = ("version", "protocol_version", "instructions", "capabilities", "error")
        return name, replace(entry, **{field: getattr(now, field) for field in fields})

    def _finished(self) -> Iterable[Interaction]:
        return [each for each in self._interactions if each.kind == "turn" or each.response is not None or each.error]
