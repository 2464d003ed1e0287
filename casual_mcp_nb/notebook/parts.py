"""A session's services: built in the order in which they depend on each other, closed together.

In IPython, a session replaces an earlier one that was opened from the same config. When the
interpreter ends, all are closed.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import sys
import threading
import weakref
from collections.abc import Callable, Collection, Coroutine, Mapping
from concurrent.futures import Future, wait
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.config import Config, Policies
from casual_mcp_nb.base.status import HostAudit, SessionStatus
from casual_mcp_nb.config.environment import read_environment
from casual_mcp_nb.config.loader import load_accepted, load_readable
from casual_mcp_nb.config.price_file import read_prices
from casual_mcp_nb.config.quick import with_model
from casual_mcp_nb.config.settings import Settings
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.events import Observation, Observers
from casual_mcp_nb.notebook.apps import SessionApps
from casual_mcp_nb.notebook.blocking import drive_blocking
from casual_mcp_nb.notebook.caller import NotebookRunner, shell
from casual_mcp_nb.notebook.cassettes import SessionCassettes
from casual_mcp_nb.notebook.consent import SessionConsent, TrustGate, accept_first
from casual_mcp_nb.notebook.conversation_runner import ConversationRunner
from casual_mcp_nb.notebook.conversations import SessionConversations
from casual_mcp_nb.notebook.limits import SessionLimits
from casual_mcp_nb.notebook.log import show_log
from casual_mcp_nb.notebook.loop import OTHER_PROCESS, EngineThread, engine_thread
from casual_mcp_nb.notebook.models import SessionModels
from casual_mcp_nb.notebook.open_questions import Questions
from casual_mcp_nb.notebook.resource_service import (
    ResourceService,
    SessionPrompts,
    SessionResources,
)
from casual_mcp_nb.notebook.saving import ConversationSaver, StoreLike, export, store_of
from casual_mcp_nb.notebook.servers import SessionServers
from casual_mcp_nb.notebook.session_memory import SessionMemory
from casual_mcp_nb.notebook.starting import ServerStarter
from casual_mcp_nb.notebook.status import status_of
from casual_mcp_nb.notebook.tasks import SessionTasks, TaskRegister
from casual_mcp_nb.notebook.tools import SessionTools
from casual_mcp_nb.notebook.turn_service import TurnService, checked_system

if TYPE_CHECKING:
    from fastmcp import FastMCP

    from casual_mcp_nb.conversation.conversation import ConversationHead
    from casual_mcp_nb.conversation.event import Event
    from casual_mcp_nb.conversation.turn import Turn
    from casual_mcp_nb.conversation.written_program import WrittenProgram
    from casual_mcp_nb.telemetry import OpenTelemetry


class SessionParts:
    """The services behind a session's namespaces, for code that shows or changes them.

    It takes the same arguments as `Session`, but holds no reference to it: when the session is
    garbage-collected, its servers end.
    """

    def __init__(
        self,
        config: Config | str | Path | Mapping[str, Any],
        *,
        model: str | None = None,
        in_process: Mapping[str, FastMCP[Any]] | None = None,
        name: str | None = None,
        system: str | None = None,
        prices: str | Path | Mapping[str, Any] | None = None,
        approval: Mapping[str, Policies] | None = None,
        strict: bool = False,
        trust: bool = False,
        quiet: bool = False,
        store: StoreLike = None,
    ) -> None:
        try:
            self.config = load_accepted(config, partial(accept_first, trusted=trust, strict=strict))
        finally:
            # A traceback with local variables would show a dict's contents.
            del config
        if model is not None:
            self.config = with_model(self.config, model)
        if prices is not None:
            self.config = self.config.model_copy(update={"prices": read_prices(prices)})
        self.name = name
        self.engine = engine = engine_thread()
        self.observers = observers = Observers()
        self.questions = questions = Questions(engine, observers)
        variables = read_environment(self.config.folder)
        settings = Settings.from_environ(variables)
        if variables.get("LOG_LEVEL", "").strip():
            show_log(settings.log_level)
        run_function = NotebookRunner()
        self.chat = chat = McpToolChat.from_config(
            self.config,
            settings=settings,
            in_process=in_process,
            system=checked_system(system),
            approver=questions.approve,
            approval=approval,
            can_ask=questions.can_ask,
            how_to_allow=lambda tool: questions.how_to_allow(tool),
            answer_limits=questions.limits,
            elicitation=questions.elicit,
            sign_in=questions.sign_in,
            changed=observers.changes.notify,
            run_function=run_function,
            strict=strict,
        )
        memory = SessionMemory(chat, self.config, name, strict)
        saver = ConversationSaver(store_of(store, self.config), chat, memory)
        chat.state.spends_as = lambda: saver.spends_as
        if saver.store is not None:
            chat.models.spending.file = saver.store
        self.runner = runner = ConversationRunner(chat, observers, saver)
        runner.asks = lambda: bool(len(questions))
        self.endpoints: set[Any] = set()
        self._end: Future[None] | None = None
        self._finalizer = weakref.finalize(self, _close_in_background, engine, chat.close)
        self._finalizer.atexit = False
        typed: Callable[[], Config | None] = ignore
        if saver.store is not None:
            typed = memory.typed
        gate = TrustGate(
            self.config,
            trusted=trust,
            strict=strict or self.config.strict,
            typed=typed,
            on_change=observers.changes.notify,
        )
        self.starter = starter = ServerStarter(
            chat, engine, gate, runner.check_open, quiet=quiet, predecessors=_replace_earlier(self)
        )
        self.consent = SessionConsent(chat, gate, questions, runner.save_setup)
        self.limits = SessionLimits(chat, saver, observers.changes.notify)
        self.apps = SessionApps(chat, engine, questions, observers)
        self.apps.owner = weakref.ref(self)
        register = TaskRegister(chat, observers)
        runner.keep_tasks(register)
        tasks = SessionTasks(register, chat, engine, questions, starter)
        self.tools = SessionTools(
            chat,
            self.config,
            engine,
            observers,
            starter,
            questions,
            runner,
            run_function,
            self.apps,
        )
        self.resource_service = resources = ResourceService(
            chat, starter, self.tools.recorded, engine, questions, observers, lambda: runner.turns
        )
        self.resources = SessionResources(resources, starter)
        self.prompts = SessionPrompts(resources, starter)
        self.turn_service = turns = TurnService(
            chat,
            self.config,
            engine,
            runner,
            starter,
            self.tools,
            self.apps,
            resources,
            questions,
            observers,
        )
        self.models = SessionModels(chat, self.config, engine, starter, turns, self.tools)
        self.conversations = SessionConversations(engine, observers, runner, turns)
        self.cassettes = SessionCassettes(chat, self.config, engine, observers, turns)
        self.servers = SessionServers(
            chat,
            self.config,
            engine,
            observers,
            gate,
            starter,
            turns,
            self.models,
            self.consent,
            tasks,
        )

    def status(self) -> SessionStatus:
        """Build an overview of the session, as far as servers are connected."""
        runner = self.runner
        status = status_of(
            self.chat,
            self.config,
            self.turn_service.model,
            len(runner.turns),
            self.tools.budget,
            runner.saver.note(first=not runner.turns),
        )
        if runner.ended:
            status = replace(status, closed=True)
        return status

    def secrets(self) -> Collection[str]:
        """Collect the secrets from the config and from added servers."""
        secrets = self.config.secrets()
        for name in self.chat.server_manager.names:
            server = self.chat.server_manager.config_of(name)
            if server is not None:
                secrets = secrets.union(server.secrets())
        return secrets

    def observe(
        self,
        listener: Callable[[Turn, Event], object] | OpenTelemetry | None,
        changes: Callable[[], object] | None,
        closing: Callable[[], object] | None,
    ) -> Observation:
        """Subscribe to events, changes and the session's end, see `Session.observe`."""
        from casual_mcp_nb.telemetry import OpenTelemetry

        observers = self.observers
        ends: list[Callable[[], object]] = []
        if changes is not None:
            ends.append(observers.changes.add(changes))
        if closing is not None:
            ends.append(observers.closing.add(closing))
        if isinstance(listener, OpenTelemetry):
            saver = self.runner.saver
            spans = listener.listener(self.config.models.get, self.secrets, lambda: saver.id)
            ends += observers.events.add(spans), observers.served.add(spans), spans.close
        elif listener is not None:
            ends += observers.events.add(listener), observers.served.add(listener)
        return Observation(*ends)

    def export(
        self,
        path: str | Path,
        id: str | None,
        *,
        overwrite: bool,
        page: Callable[..., str] | None = None,
    ) -> Path:
        """Write a conversation to a file, see `Session.export`.

        Args:
            path: The file.
            id: A saved conversation's id, or None for the current one.
            overwrite: Whether to replace an existing file.
            page: Builds a player, or None for a page without scripts.
        """
        secrets = self.cassettes.secrets()
        head: ConversationHead
        programs: list[WrittenProgram] = []
        if id is None:
            conversation, head = self.runner.conversation, self.runner.saver.head
            programs = [cell.now for cell in self.runner.cells]
        else:
            store = self.runner.saver.required
            conversation = store.load(id)
            head = store.get(id).head
        if page is not None:
            cassette = self.cassettes.of(conversation.as_in_a_file(), head if id else None)
            page = partial(page, view=self.chat.current_view(), cassette=cassette, secrets=secrets)
        return export(
            conversation,
            Path(path),
            overwrite=overwrite,
            secrets=secrets,
            player=page,
            programs=programs,
            session=head.session,
            tools=self.chat.current_view().catalog,
        )

    async def close(self) -> None:
        """Close the running turn, the services, the cassette, the servers and the store.

        On the engine's loop. Goes on when the caller is cancelled.
        """
        if self._end is None or self._end.done():
            self._end = _close_in_background(self.engine, self._close)
        await asyncio.shield(asyncio.wrap_future(self._end))

    async def _close(self) -> None:
        self._finalizer.detach()
        with _registry_lock:
            _open.discard(self)
        try:
            await self.runner.close()
            for endpoint in tuple(self.endpoints):
                await endpoint.end()
            try:
                await asyncio.to_thread(self.cassettes.close)
            except RuntimeError:
                # At process exit no thread can be started.
                self.cassettes.close()
        finally:
            # After the turn has ended, because widgets show their last state from now on.
            self.observers.closing.notify()
            self.observers.closing.clear()
        await self.chat.close()
        store = self.runner.saver.store
        if store is not None:
            # At process exit the store closes itself.
            with contextlib.suppress(RuntimeError):
                await asyncio.to_thread(store.close)

    def close_replaced(self, why: str) -> Future[None]:
        """Close in the background, from any thread. Later use is an error that gives the reason."""
        self.runner.end(why)
        return _close_in_background(self.engine, self.close)

    def abandon(self) -> None:
        """Become unusable, in a forked child, without telling servers, listeners or the engine
        thread: the parent has them.
        """
        self._finalizer.detach()
        self.observers.clear()
        self.runner.end(OTHER_PROCESS)
        self.chat.abandon()


EXIT_SECONDS = 2.0
"""How long closing all sessions may take at exit.

Jupyter gives a kernel 2.5 s before it sends signals.
"""

_registry_lock = threading.Lock()
_open: weakref.WeakSet[SessionParts] = weakref.WeakSet()
_closing: set[Future[None]] = set()


def _close_in_background(
    engine: EngineThread, close: Callable[[], Coroutine[Any, Any, None]]
) -> Future[None]:
    """Start closing on the engine thread. The interpreter does not exit before it has ended."""
    future, _ = engine.submit(close())
    _closing.add(future)
    future.add_done_callback(_closing.discard)
    return future


def _replace_earlier(session: SessionParts) -> list[Future[None]]:
    """Register an open session, and close the earlier one that it replaces.

    In IPython, set-up cells are run again and again. There a session replaces the one that was
    opened from the same config under the same name, even if `Out` still holds that.

    Returns the ends of the sessions that are replaced.
    """
    if not _open:
        _close_at_exit_of_child()
    others: list[SessionParts] = []
    with _registry_lock:
        if shell():
            others = [other for other in _open if _replaces(session, other)]
        _open.add(session)
    return [other.close_replaced("a newer session was opened from its config") for other in others]


def _close_at_exit_of_child() -> None:
    """Have all sessions closed at the end of a `multiprocessing` child.

    It leaves with `os._exit`, which skips `atexit`.
    """
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, _close_all, exitpriority=0)


def _replaces(session: SessionParts, other: SessionParts) -> bool:
    if session.name != other.name or not session.config.servers:
        return False
    path, other_path = session.config.path, other.config.path
    if path is None and other_path is None:
        return session.config == other.config
    if path is None or other_path is None:
        return False
    return path.resolve() == other_path.resolve()


@atexit.register
def _close_all() -> None:
    for session in tuple(_open):
        session.close_replaced("the interpreter is ending")
    wait(tuple(_closing), timeout=EXIT_SECONDS)


def _in_forked_child() -> None:
    """Abandon the inherited sessions. They belong to the parent, whose servers must not notice."""
    global _registry_lock
    _registry_lock = threading.Lock()
    for session in tuple(_open):
        _inherited.append(session)
        session.abandon()
    _open.clear()
    _closing.clear()


_inherited: list[SessionParts] = []
"""The parent's sessions, never collected: that would run their coroutines' ends."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_forked_child)


def audit_host(path: str | Path, *, trust: bool = False) -> HostAudit:
    """Start the servers in a config, even another MCP host's, and measure what their tools cost in
    each request.

    Afterwards they are stopped. A server that cannot be started is listed with the reason, and does
    not affect the others.

    Args:
        path: The file, such as `~/.claude.json`, `.vscode/mcp.json` or `mcp_settings.json`. It is
            not changed.
        trust: Start its servers without asking.

    Returns:
        The tokens by server and by tool, and the saving if every tool were deferred.

    Raises:
        ConfigError: The file cannot be read.
        TrustRequiredError: The person has not accepted its servers, and nobody can be asked.
    """
    config = load_readable(path, partial(accept_first, trusted=trust))
    # With a separate name it replaces no session that is open with the same file.
    parts = SessionParts(config, name=f"audit of {config.path}", trust=trust, quiet=True)
    try:
        drive_blocking(parts.engine, parts.starter.connect(strict=False, quiet=True))
        return parts.servers.audit()
    finally:
        parts.engine.run(parts.close())
