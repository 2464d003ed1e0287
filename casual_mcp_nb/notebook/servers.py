"""A session's servers: their states, and methods to add, remove and examine them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never, cast, overload

from casual_mcp_nb.base.config import REGISTRY, Config, EmbeddingConfig, ServerConfig
from casual_mcp_nb.base.displayable import NamespaceList, NamespaceMapping
from casual_mcp_nb.base.elsewhere import SeenByHosts, seen_by_hosts
from casual_mcp_nb.base.mcp import Account, Accounts
from casual_mcp_nb.base.selection import Mode
from casual_mcp_nb.base.status import (
    MAX_JUDGED,
    Diagnosis,
    HostAudit,
    ServerDiagnosis,
    Servers,
    ServerStatus,
    ToolDiagnosis,
)
from casual_mcp_nb.base.wire import Messages, ServerLog, Wire
from casual_mcp_nb.config.environment import read_environment
from casual_mcp_nb.config.finding import FoundServers, FoundTrust, is_findable, look_up
from casual_mcp_nb.config.quick import (
    ServerLike,
    check_command,
    in_process_name,
    is_in_process,
    quick_config,
    read_server,
    unquoted,
    unused,
)
from casual_mcp_nb.config.registry_entry import FoundServer
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.events import Observers
from casual_mcp_nb.errors import UnknownNameError, UsageError, shown
from casual_mcp_nb.notebook.blocking import awaited, blocking, on_engine
from casual_mcp_nb.notebook.consent import SessionConsent, TrustGate, accept_found
from casual_mcp_nb.notebook.loop import EngineThread, engine_thread
from casual_mcp_nb.notebook.models import SessionModels
from casual_mcp_nb.notebook.starting import ServerStarter
from casual_mcp_nb.notebook.status import estimated_budget, measure, servers_of
from casual_mcp_nb.notebook.tasks import SessionTasks
from casual_mcp_nb.notebook.turn_service import TurnService

if TYPE_CHECKING:
    from fastmcp import FastMCP


@dataclass(eq=False, repr=False)
class SessionServers(NamespaceMapping[ServerStatus]):
    """A session's servers by name, with their states: `session.servers`."""

    _chat: McpToolChat
    _config: Config
    _engine: EngineThread
    _observers: Observers
    _gate: TrustGate
    _starter: ServerStarter
    _turns: TurnService
    _models: SessionModels
    _consent: SessionConsent
    _tasks: SessionTasks

    def __post_init__(self) -> None:
        self._complete = True

    @property
    def now(self) -> Servers:
        """The servers with their states, as they are now."""
        return servers_of(self._chat)

    @property
    def modes(self) -> Mapping[str, Mode]:
        """Each server's mode: `loaded`, `deferred` or `off`."""
        return self.now.modes

    def __setitem__(self, name: str, value: object) -> Never:
        self.now[name] = value

    @property
    def tasks(self) -> SessionTasks:
        """The tasks: calls that servers continue by themselves, until they end or are cancelled."""
        return self._tasks

    def raise_for_status(self) -> None:
        """Raise an error if a server failed, or its tools could not be listed.

        Raises:
            ConnectError: The message has one line for each such server.
        """
        self.now.raise_for_status()

    @blocking
    async def find(self, target: str) -> FoundServers:
        """Find servers in the AI catalog of a domain, or in the registry of the config.

        Starts and contacts none of them.

        Args:
            target: A domain (`resend.com`), a name in the registry (`io.github.user/weather`), or
                words to search for there.

        Returns:
            The servers, with each way to reach them. `session.servers.add(None, found[0])` adds
            one.

        Raises:
            UsageError: It cannot be looked up. The message has the reason.
        """
        return await on_engine(look_up(target.strip(), self._config.registry))

    find_async = awaited(find)

    @blocking
    async def add(
        self, name: str | None, spec: ServerLike | FoundServer, *, trust: bool = False
    ) -> ServerStatus:
        """Add a server to this session and connect it. The config file stays as it is.

        Args:
            name: Its name, or None for one made from the text, or from a FastMCP server's own. A
                server that failed is tried again if the same text is given without a name.
            spec: A command line (`npx -y …`), which is run. An address (`https://…`). A bundled
                server's name. An entry as in a config's `servers`, or a FastMCP server in this
                process. A server that `find` has found, or a text for it (`io.github.user/weather`,
                `resend.com`): you are asked first, unless you have accepted it.
            trust: Start or contact a server that was found without asking.

        Returns:
            The server's status. A failed connection does not raise: the status has the reason, and
            `reconnect` tries again.

        Raises:
            UsageError: There is a server with that name, or `spec` is not valid.
            ConfigError: The entry is wrong, or a value that a found server needs is missing.
            TrustRequiredError: You have not accepted a server that was found, and nobody can be
                asked.
        """
        try:
            if isinstance(spec, str):
                spec = unquoted(spec)
            listed: FoundServer | None = None
            if isinstance(spec, FoundServer):
                listed = spec
            elif isinstance(spec, str) and is_findable(spec):
                listed = await on_engine(find_server(spec, self._config.registry))
            if listed is not None:
                name, spec = accepted_server(
                    listed,
                    name,
                    trust=trust,
                    taken=self._chat.server_manager.names,
                    folder=self._config.folder,
                )
            return await self._starter.run_shown(self._add(cast("ServerLike", spec), name))
        finally:
            # A traceback with local variables would show its values.
            del spec

    add_async = awaited(add)

    async def _add(self, spec: ServerLike, name: str | None) -> ServerStatus:
        self._turns.check_open()
        if is_in_process(spec):
            given = in_process_name(spec, name, self._chat.server_manager.names)
            await self._chat.add_server(given, server=spec)
        else:
            given, config = await asyncio.to_thread(self._read, cast("str", spec), name)
            failed = self._failed_like(config) if name is None else None
            if failed is not None:
                return await self._reconnect(failed)
            await self._chat.add_server(given, config)
        self._turns.runner.save_setup()
        self._observers.changes.notify()
        return self._chat.server_manager.status_of(given)

    def _failed_like(self, config: ServerConfig) -> str | None:
        """Find a server that failed and has this config: typed again, it is tried again."""
        manager = self._chat.server_manager
        for name in manager.names:
            if manager.status_of(name).state == "failed" and manager.config_of(name) == config:
                return name
        return None

    def _read(self, spec: str, name: str | None) -> tuple[str, ServerConfig]:
        return read_server(
            spec,
            name,
            taken=self._chat.server_manager.names,
            environ=read_environment(self._config.folder),
        )

    @blocking
    async def remove(self, name: str) -> None:
        """End a server and forget it: its tools, its entries in the selection, and its approvals.

        The conversation stays as it is. In a running turn, a call that waits for this server fails,
        and the turn continues.

        Args:
            name: The server.

        Raises:
            UnknownNameError: There is no such server.
        """
        await on_engine(self._remove(name))

    remove_async = awaited(remove)

    async def _remove(self, name: str) -> None:
        self._turns.check_open()
        await self._chat.remove_server(name)
        self._turns.runner.save_setup()
        self._observers.changes.notify()

    @blocking
    async def reconnect(self, name: str) -> ServerStatus:
        """Close the connection to one server and connect again. The others are not touched.

        Args:
            name: The server's name in the config.

        Raises:
            UnknownNameError: There is no such server.
        """
        return await self._starter.run_shown(self._reconnect(name))

    reconnect_async = awaited(reconnect)

    async def _reconnect(self, name: str) -> ServerStatus:
        self._turns.check_open()
        self._gate.require()
        await self._chat.server_manager.reconnect(name)
        await self._starter.view()
        return self._chat.server_manager.status_of(name)

    @property
    def accounts(self) -> SessionAccounts:
        """The sign-ins to servers that are remembered on this computer, without their tokens.

        Those of other sessions are among them.
        """
        return SessionAccounts()

    def audit(self) -> HostAudit:
        """Measure what the connected servers' tools cost, see `audit_host`."""
        return measure(self._chat, self._config)

    def hosts(self, name: str) -> SeenByHosts:
        """Tell how other hosts and providers will see a server: tools that they leave out, names
        and schemas that they change, and texts that they cut, each with its source.

        Args:
            name: The server. Only tools known so far are included.

        Raises:
            UnknownNameError: There is no such server.
        """
        self._chat.names.check_server(name)
        status = self._chat.server_manager.status_of(name)
        return seen_by_hosts(name, status.specs[:MAX_JUDGED], status.instructions)

    def log(self, name: str) -> ServerLog:
        """Return a server's last log lines: stderr and log messages, across restarts.

        Raises:
            UnknownNameError: There is no such server.
        """
        return self._chat.server_manager.log_of(name)

    def messages(self, name: str, tool: str | None = None) -> Messages:
        """Return the last JSON-RPC messages to and from a server, shortened, with secrets masked.

        Args:
            name: The server.
            tool: Only those about this tool, by any name that the catalog resolves.

        Raises:
            UnknownNameError: There is no such server or tool.
        """
        self._chat.names.check_server(name)
        tool_name = None
        if tool:
            tool_name = self._chat.catalog.resolve(tool).name
        return self._chat.server_manager.messages_of(name, tool_name)

    def wire(
        self, server: str | None = None, *, method: str | None = None, text: str | None = None
    ) -> Wire:
        """Return the last messages to and from servers, grouped by request, with HTTP headers.

        Secrets are masked. A group has a request, its progress, the server's questions during it,
        and all its rounds.

        Args:
            server: The server, or None for all.
            method: Only groups with a message with this method, with `*` for any characters, such
                as `tools/*`.
            text: Only groups with a message or a header that contains this text, in any case.

        Raises:
            UnknownNameError: There is no such server.
        """
        if server is not None:
            self._chat.names.check_server(server)
        return self._chat.server_manager.read_wire(server).matching(method, text)

    @overload
    def doctor(self) -> Diagnosis: ...
    @overload
    def doctor(self, name: str, *, query: str | None = None) -> ToolDiagnosis | ServerDiagnosis: ...
    def doctor(
        self, name: str | None = None, *, query: str | None = None
    ) -> Diagnosis | ToolDiagnosis | ServerDiagnosis:
        """Check everything that the session needs, or follow one tool to the model.

        Each problem comes with a remedy.

        Args:
            name: A tool, such as `server:tool`, or a server for all its tools, or None to check the
                session.
            query: Words that a model might search for. Adds each deferred tool's rank.

        Returns:
            One row per check: Python, packages, commands, config, keys, servers, templates. If the
            config has no language model, model servers on this computer are queried. For a tool,
            its stages: listed by its server, selected, searchable, sent to the model, called by it.
            Nothing is started: only tools known so far are included.

        Raises:
            UnknownNameError: There is no such server or tool.
        """
        from casual_mcp_nb.notebook.doctor import EmbeddedTools, diagnose
        from casual_mcp_nb.notebook.tool_doctor import ToolDoctor

        view = self._chat.current_view()
        if name is not None:
            runner = self._turns.runner
            loaded = tuple(runner.discovered)
            doctor = ToolDoctor(
                self._chat, self._config, view, runner.turns, loaded, self._turns.model, query
            )
            return doctor.diagnose(name)
        if query is not None:
            raise UsageError(
                "Which tool should the query find?",
                hint='For example: session.servers.doctor("math:add", query="sum").',
            )
        problems = self._consent.problems
        meaning = self._chat.tools.meaning
        embedded = None
        if meaning is not None:
            done, count = self._engine.run(meaning.settle())
            model = self._chat.tools.embedding
            if not isinstance(model, EmbeddingConfig):
                model = None
            embedded = EmbeddedTools(model, meaning.label, meaning.problem, done, count)
        return diagnose(
            self._config,
            self.now,
            self._models.templates(),
            problems,
            estimated_budget(self._chat, view),
            embedded,
        )


class SessionAccounts(NamespaceList[Account]):
    """The sign-ins that are remembered on this computer: `session.servers.accounts`."""

    @property
    def now(self) -> Accounts:
        """The sign-ins, read when they are used."""
        from casual_mcp_nb.servers.accounts import accounts

        return Accounts(accounts)

    def remove(self, name: str) -> None:
        """Forget the sign-in to a server: its tokens are deleted.

        The authorization server is not told.

        Args:
            name: The server's name, or its address.

        Raises:
            UnknownNameError: There is no sign-in to it.
        """
        from casual_mcp_nb.servers.accounts import remove_account

        named = [account for account in self if name in (account.server, account.address)]
        if not named:
            raise UnknownNameError("account", name, [account.server for account in self])
        for account in named:
            remove_account(account)


def find_servers(target: str, registry: str = REGISTRY) -> FoundServers:
    """Find servers without a session, see `SessionServers.find`."""
    return engine_thread().run(look_up(target.strip(), registry))


async def find_server(text: str, registry: str) -> FoundServer | None:
    """Look up the server that a text means, see `is_findable`.

    None if it is the address of a server without a catalog.

    Args:
        text: A domain or a name in the registry, and then, if need be, which of its servers.
        registry: The registry's address.

    Raises:
        UsageError: It cannot be looked up, or it is not clear which server is meant.
    """
    target, _, wanted = text.strip().partition(" ")
    try:
        listing = await look_up(target, registry)
    except UsageError:
        if "://" in target and not wanted:
            return None
        raise
    return listing.choose(wanted.strip() or None)


def accepted_server(
    server: FoundServer,
    name: str | None,
    *,
    trust: bool,
    taken: Collection[str] = (),
    folder: Path | None = None,
) -> tuple[str, ServerConfig]:
    """Ask the person about a server that was found, then for the values that it needs.

    On the cell's thread.

    Args:
        server: The server.
        name: A name for it, or None to make one.
        trust: Accept it without asking.
        taken: The names that are in use.
        folder: The config's folder, whose `.env` can have the values.

    Returns:
        A name for it, and its entry.

    Raises:
        UsageError: The server cannot be added.
        TrustRequiredError: The person does not accept it, or nobody can be asked.
    """
    if server.problem:
        raise UsageError(f"{shown(server.name)} cannot be added: {server.problem}.")
    listed = FoundTrust(server, name or unused(server.short_name, taken))
    accept_found(listed, trust=trust)
    return listed.name, listed.entry(read_environment(folder))


def check_typed(text: str) -> None:
    """Check a server as a person types it, see `check_command`. One that has to be looked up is not
    checked.
    """
    text = unquoted(text)
    if not is_findable(text):
        check_command(text)


def quick_session_config(
    model: str | None,
    servers: Mapping[str, ServerLike] | Iterable[ServerLike],
    *,
    base_url: str | None = None,
) -> tuple[Config, dict[str, FastMCP[Any]]]:
    """Build the config of `Session.quick`.

    Servers that have to be looked up are found, and the person is asked about them.
    """
    return quick_config(model, servers, base_url=base_url, resolve=_looked_up)


def _looked_up(name: str | None, spec: Any, taken: Collection[str]) -> tuple[str | None, Any]:
    """Replace a server that has to be looked up by its entry, and leave others as they are."""
    if isinstance(spec, str):
        spec = unquoted(spec)
    listed: FoundServer | None = None
    if isinstance(spec, FoundServer):
        listed = spec
    elif isinstance(spec, str) and is_findable(spec):
        listed = engine_thread().run(find_server(spec, REGISTRY))
    if listed is None:
        return name, spec
    return accepted_server(listed, name, trust=False, taken=taken)
