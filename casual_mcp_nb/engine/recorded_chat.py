"""A cassette in a chat: it records what servers and the person answer, or answers in their place."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.mcp import NobodyToAsk
from casual_mcp_nb.base.tool import ToolName, ToolSpec
from casual_mcp_nb.cassettes.recorder import Recorder
from casual_mcp_nb.cassettes.replayer import Replayer
from casual_mcp_nb.cassettes.servers import RecordedServer, ReplayedServer
from casual_mcp_nb.engine.consent import ApprovalRequest, Approver, Consent, Decision
from casual_mcp_nb.own_tools.toolbox import Toolbox
from casual_mcp_nb.servers.server_manager import ServerManager
from casual_mcp_nb.servers.tasks import FollowedTask


def record_chat(recorder: Recorder, server_manager: ServerManager, consent: Consent) -> None:
    """Have a cassette record a chat's servers and approvals."""

    def recorded(server: Any) -> Any:
        recorder.add(server)
        return RecordedServer(server, recorder)

    server_manager.substitute(recorded)
    if consent.approver is not None:
        consent.approver = _recorded(consent.approver, recorder)


def _recorded(approver: Approver, recorder: Recorder) -> Approver:
    async def ask(request: ApprovalRequest) -> Any:
        recording = recorder.start("approval", _question(request))
        try:
            answer = await approver(request)
        except BaseException as error:
            recording.failed(error)
            raise
        decision = answer if isinstance(answer, Decision) else Decision(answer)
        recording.done(
            {"verdict": decision.verdict, "scope": decision.scope, "answered": decision.answered}
        )
        return answer

    return ask


def _question(request: ApprovalRequest) -> dict[str, Any]:
    return {
        "server": request.tool.server,
        "tool": request.tool.name,
        "arguments": request.arguments,
    }


@dataclass(eq=False, repr=False)
class ReplayedChat:
    """A chat in which a cassette answers in place of servers and the person.

    Functions of the notebook are really run.

    Args:
        log: Called for each line that a server logged, with the server, the level and the text.
        notify: Called for each notice about a server, with the server and the text.
    """

    replayer: Replayer
    server_manager: ServerManager
    consent: Consent
    toolbox: Toolbox
    log: Callable[[str, str, str], None]
    notify: Callable[[str, str], None]

    def __post_init__(self) -> None:
        self._approver, self._could_ask = self.consent.approver, self.consent.can_ask
        self._has_approvals = self.replayer.has("approval")
        known = self.server_manager.names
        others = []
        for name, entry in self.replayer.cassette.servers.items():
            if name not in known and not entry.added:
                others.append(self._server(name))
        self.server_manager.substitute(self._in_place_of, others)
        self.consent.runs_nothing = self._runs_nothing
        self.consent.approver = self._ask
        self.consent.can_ask = self._can_ask

    def add_server(self, name: str) -> None:
        """Add a server of the cassette by its name."""
        self.server_manager.add_substitute(cast("Any", self._server(name)))

    def _server(self, name: str, config: ServerConfig | None = None) -> ReplayedServer:
        entry = self.replayer.cassette.servers.get(name)
        server = ReplayedServer(name, entry, self.replayer, config)
        server.on_log, server.on_notice = self.log, self.notify
        server.on_change = self.server_manager.changed
        server.task = _task
        return server

    def _in_place_of(self, server: Any) -> Any:
        return server if server is self.toolbox else self._server(server.name, server.config)

    def _runs_nothing(self, tool: ToolSpec) -> bool:
        return tool.server != self.toolbox.name and self.replayer.has(
            "call", server=tool.server, tool=tool.name
        )

    def _can_ask(self) -> bool:
        if self._has_approvals:
            return True
        # Nobody was asked then. A function of the notebook needs an answer where one can be given.
        return bool(self.toolbox.tools) and self._could_ask()

    async def _ask(self, request: ApprovalRequest) -> Any:
        if request.tool.server == self.toolbox.name and self.toolbox.tools:
            if self._approver is None or not self._could_ask():
                raise NobodyToAsk
            return await self._approver(request)
        interaction = self.replayer.find("approval", _question(request))
        if interaction is None:
            # Nothing is run.
            raise NobodyToAsk
        return Decision(*interaction.answer())


def _task(tool: ToolName, number: int) -> FollowedTask:
    return FollowedTask(tool, "", time.time(), number)
