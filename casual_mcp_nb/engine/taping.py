"""Put a cassette in the place of servers, and of the person who approves calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.cassettes.recorder import Recorder
from casual_mcp_nb.cassettes.replayer import Replayer
from casual_mcp_nb.cassettes.servers import RecordedServer, ReplayedServer
from casual_mcp_nb.engine.consent import ApprovalRequest, Approver, Consent, Decision, NoOneToAsk
from casual_mcp_nb.own_tools.toolbox import Toolbox

if TYPE_CHECKING:
    from casual_mcp_nb.servers.server_manager import ServerManager


def put_in_place(
    tape: Recorder | Replayer,
    server_manager: ServerManager,
    consent: Consent,
    toolbox: Toolbox,
    log: Callable[[str, str, str], None],
    notify: Callable[[str, str], None],
) -> Callable[[str], None]:
    """Have a cassette record the servers and approvals of a chat, or answer in their place.

    Args:
        tape: Records or replays.
        server_manager: The connections.
        consent: Asks the person.
        toolbox: The functions of the notebook, which are run while the rest is replayed.
        log: Called with the log messages of replayed servers.
        notify: Called with notices about them.

    Returns:
        A function that adds a server of the cassette by its name; while a cassette records, it does nothing.
    """
    if isinstance(tape, Recorder):
        server_manager.substitute(lambda server: cast("Any", _recording(server, tape)))
        if consent.approver is not None:
            consent.approver = _recorded(consent.approver, tape)
        return lambda name: None
    replayer = tape

    entries = replayer.cassette.servers

    def replaying(name: str, config: ServerConfig | None = None) -> ReplayedServer:
        server = ReplayedServer(name, entries.get(name), replayer, config)
        server.on_log, server.on_notice, server.on_change = log, notify, server_manager.changed
        return server

    others = [replaying(name) for name, entry in entries.items() if name not in server_manager.names and not entry.added]
    server_manager.substitute(lambda server: server if server is toolbox else replaying(server.name, server.config), others)
    consent.runs_nothing = lambda tool: tool.server != toolbox.name and replayer.has("call", server=tool.server, tool=tool.name)
    approver, can_ask = consent.approver, consent.can_ask
    consent.approver = _replayed(approver, can_ask, replayer, toolbox)
    if replayer.has("approval"):
        consent.can_ask = lambda: True
    else:
        # Nobody was asked then. A function of the notebook is really run, and needs an answer where one can be given.
        consent.can_ask = lambda: bool(toolbox.tools) and can_ask()
    return lambda name: server_manager.add_substitute(cast("Any", replaying(name)))


def _recording(server: Any, recorder: Recorder) -> RecordedServer:
    recorder.add(server)
    return RecordedServer(server, recorder)


def _request(request: ApprovalRequest) -> dict[str, Any]:
    return {"server": request.tool.server, "tool": request.tool.name, "arguments": request.arguments}


def _recorded(approver: Approver, recorder: Recorder) -> Approver:
    async def ask(request: ApprovalRequest) -> Any:
        recording = recorder.start("approval", _request(request))
        try:
            answer = await approver(request)
        except BaseException as error:
            recording.failed(error)
            raise
        decision = answer if isinstance(answer, Decision) else Decision(answer)
        recording.done({"verdict": decision.verdict, "scope": decision.scope, "answered": decision.answered})
        return answer

    return ask


def _replayed(approver: Approver | None, can_ask: Callable[[], bool], replayer: Replayer, toolbox: Toolbox) -> Approver:
    async def ask(request: ApprovalRequest) -> Any:
        if request.tool.server == toolbox.name and toolbox.tools:
            if approver is None or not can_ask():
                raise NoOneToAsk
            return await approver(request)
        interaction = replayer.find("approval", _request(request))
        if interaction is None:
            # Nothing is run.
            raise NoOneToAsk
        return Decision(*interaction.answer())

    return ask
