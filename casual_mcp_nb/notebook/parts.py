"""A session's services, built in the order in which they depend on each other, and closed together.

A notebook has one open session per config, and none outlives the interpreter.
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

from casual_mcp_nb.base.config import Config, Policies
from casual_mcp_nb.base.status import HostAudit, SessionStatus
from casual_mcp_nb.config.environment import read_environment
from casual_mcp_nb.config.loader import load_config, load_readable
from casual_mcp_nb.config.price_file import read_prices
from casual_mcp_nb.config.settings import Settings
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.events import Observation, Observers
from casual_mcp_nb.notebook.apps import SessionApps
from casual_mcp_nb.notebook.blocking import drive_blocking
from casual_mcp_nb.notebook.caller import NotebookRunner, shell
from casual_mcp_nb.notebook.cassettes import SessionCassettes
from casual_mcp_nb.notebook.consent import SessionConsent, TrustGate
from casual_mcp_nb.notebook.conversation_runner import ConversationRunner
from casual_mcp_nb.notebook.conversations import SessionConversations
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

    from casual_mcp_nb.conversation.event import Event
    from casual_mcp_nb.conversation.turn import Turn
    from casual_mcp_nb.telemetry import OpenTelemetry


class SessionParts:
    """The services behind a session's namespaces, for code that shows or changes them, such as a
    widget.

    Takes the same arguments as `Session`, but holds no reference to it: when the session is
    garbage-collected, its servers end.
    """

    def __init__(
        self,
        config: Config | str | Path | Mapping[str, Any],
        *,
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
            self.config = load_config(config)
        finally:
            # A traceback with local variables would show a dict's contents.
            del config
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
        self.runner = runner = ConversationRunner(chat, observers, saver)
        runner.asks = lambda: bool(len(questions))
        self.endpoints: set[Any] = set()
        self._finalizer = weakref.finalize(self, _close_in_background, engine, chat.close)
        self._finalizer.atexit = False
        gate = TrustGate(
            self.config,
            trusted=trust,
            strict=strict or self.config.strict,
            on_change=observers.changes.notify,
        )
        self.starter = starter = ServerStarter(
            chat, engine, gate, runner.check_open, quiet=quiet, predecessors=_replace_earlier(self)
        )
        self.consent = SessionConsent(chat, gate, questions, runner.save_setup)
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
        runner, budget = self.runner, self.tools.budget
        status = status_of(
            self.chat,
            self.config,
            self.turn_service.model,
            len(runner.turns),
            budget,
            runner.saver.note(first=not runner.turns),
        )
        return replace(status, closed=True) if runner.ended else status

    def secrets(self) -> Collection[str]:
        """Collect the secrets from the config and from added servers."""
        servers = (
            self.chat.server_manager.config_of(name) for name in self.chat.server_manager.names
        )
        return self.config.secrets().union(
            *(config.secrets() for config in servers if config is not None)
        )

    def observe(
        self,
        listener: Callable[[Turn, Event], object] | OpenTelemetry | None,
        changes: Callable[[], object] | None,
        closing: Callable[[], object] | None,
    ) -> Observation:
        """Subscribe to events, changes and the session's end, see `Session.observe`."""
        from casual_mcp_nb.telemetry import OpenTelemetry

        observers, ends = self.observers, list[Callable[[], object]]()
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
        """Write the conversation, or a saved one, to a file, see `Session.export`.

        `page` builds a player.
        """
        saver, secrets = self.runner.saver, self.cassettes.secrets()
        conversation = self.runner.conversation if id is None else saver.required.load(id)
        if page is not None:
            head = None if id is None else saver.required.get(id).head
            cassette = self.cassettes.of(conversation.as_in_a_file(), head)
            page = partial(page, view=self.chat.current_view(), cassette=cassette, secrets=secrets)
        programs = [cell.now for cell in self.runner.cells] if id is None else []
        return export(
            conversation,
            Path(path),
            overwrite=overwrite,
            secrets=secrets,
            player=page,
            programs=programs,
        )

    async def close(self) -> None:
        """Close the running turn, the services, the cassette, the servers and the store.

        On the engine's loop.
        """
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
            # After the turn: widgets that freeze now show its end.
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
    """Start closing on the engine thread. The interpreter waits for it before it exits."""
    future, _ = engine.submit(close())
    _closing.add(future)
    future.add_done_callback(_closing.discard)
    return future


def _replace_earlier(session: SessionParts) -> list[Future[None]]:
    """Register an open session, and close the earlier one that it replaces.

    In IPython, where set-up cells are run again and again, that is the one opened from the same
    config under the same name, even if `Out` still holds it.
    """
    process = None if _open else sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        from multiprocessing.util import Finalize

        # A `multiprocessing` child leaves with `os._exit`, which skips `atexit`.
        Finalize(None, _close_all, exitpriority=0)
    with _registry_lock:
        others = [other for other in _open if _replaces(session, other)] if shell() else []
        _open.add(session)
    return [other.close_replaced("a newer session was opened from its config") for other in others]


def _replaces(session: SessionParts, other: SessionParts) -> bool:
    if session.name != other.name or not session.config.servers:
        return False
    paths = session.config.path, other.config.path
    if any(paths):
        return len({path and path.resolve() for path in paths}) == 1
    return session.config == other.config


@atexit.register
def _close_all() -> None:
    for session in tuple(_open):
        session.close_replaced("the interpreter is ending")
    wait(tuple(_closing), timeout=EXIT_SECONDS)


def _in_forked_child() -> None:
    """Abandon the inherited sessions: they still belong to the parent, whose servers and displays
    must not notice.
    """
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
    config = load_readable(path)
    # With a separate name it replaces no session that is open with the same file.
    parts = SessionParts(config, name=f"audit of {config.path}", trust=trust, quiet=True)
    try:
        drive_blocking(parts.engine, parts.starter.connect(strict=False, quiet=True))
        return parts.servers.audit()
    finally:
        parts.engine.run(parts.close())
