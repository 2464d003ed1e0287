"""McpToolChat: a model, MCP servers and a selection, put together for chatting.

`McpToolChat.take_turn` runs one turn: it has a `Run` built from the conversation, and records how
it ends. The turn's steps are in `engine/run.py`.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.config import Approval, Config, Policies, ServerConfig, ToolSetConfig
from casual_mcp_nb.base.limits import AnswerLimits, load
from casual_mcp_nb.base.mcp import QuestionAnswer, ServerQuestion
from casual_mcp_nb.base.secret import failure_of, masked_error, redacted
from casual_mcp_nb.base.selection import Listeners, Selection
from casual_mcp_nb.base.tool import Catalog, ToolAnnotations, ToolChange, ToolName, ToolSpec
from casual_mcp_nb.cassettes.recorder import Recorder
from casual_mcp_nb.cassettes.replayer import Replayer
from casual_mcp_nb.cassettes.tape import NO_TAPE, Tape
from casual_mcp_nb.config.environment import read_environment
from casual_mcp_nb.config.loader import load_config
from casual_mcp_nb.config.settings import Settings
from casual_mcp_nb.config.templates import TemplateLibrary
from casual_mcp_nb.conversation.audit import FOLLOWED, AuditTrail
from casual_mcp_nb.conversation.conversation import Prompt
from casual_mcp_nb.conversation.event import Event, Notice, QuestionKind, TurnFinished, TurnStarted
from casual_mcp_nb.conversation.stats import ChatStats
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.discovery.synthetic import SyntheticTool
from casual_mcp_nb.engine.build_run import build_run
from casual_mcp_nb.engine.consent import (
    Approver,
    Consent,
    Sampling,
    allowed_in_python,
    always,
    checked_overrides,
    never,
)
from casual_mcp_nb.engine.conversation_state import ConversationState, RunningTurn
from casual_mcp_nb.engine.deliveries import Deliveries
from casual_mcp_nb.engine.follower import Follower
from casual_mcp_nb.engine.instructions import Instructions
from casual_mcp_nb.engine.large_results import LargeResults
from casual_mcp_nb.engine.options import (
    TurnLimits,
    TurnOptions,
    always_loaded,
    initial_selection,
    mode_of,
    selection_without,
    split_messages,
)
from casual_mcp_nb.engine.preflight import PreflightChecks
from casual_mcp_nb.engine.recorded_chat import ReplayedChat, record_chat
from casual_mcp_nb.engine.setup import ChatSetup, TurnSetup
from casual_mcp_nb.engine.tool_view import ToolView
from casual_mcp_nb.engine.tools import ChatNames, ChatTools
from casual_mcp_nb.engine.turn_fields import NamedTurnFields, TurnFields, spelled_out
from casual_mcp_nb.errors import CasualMcpError, ConnectError, UsageError, shown
from casual_mcp_nb.own_tools.context import FunctionRunner, run_here
from casual_mcp_nb.own_tools.toolbox import NOTEBOOK, Mocks, Toolbox, read_tool
from casual_mcp_nb.providers.factory import ModelFactory
from casual_mcp_nb.providers.registry import loggers
from casual_mcp_nb.providers.spending import Account
from casual_mcp_nb.servers.askers import SeveralClients
from casual_mcp_nb.servers.handlers import AskQuestion, AskToSignIn, Handlers
from casual_mcp_nb.servers.logs import keep_out_of_log, route_library_logs
from casual_mcp_nb.servers.server_manager import ServerManager

if TYPE_CHECKING:
    from casual_llm import Model
    from casual_llm.messages import ChatMessage
    from fastmcp import FastMCP

    from casual_mcp_nb.engine.edits import BeforeModelCall
    from casual_mcp_nb.engine.run import Run
    from casual_mcp_nb.providers.chat_model import ChatModel

logger = logging.getLogger(__name__)

_STOPPED = "Stopped. Completed steps are kept."


def _tell_end(emit: Callable[[Event], None], end: TurnFinished) -> None:
    """Emit a turn's end. It is recorded before an observer can fail, so a failure is only logged."""
    try:
        emit(end)
    except Exception:
        logger.exception("An observer failed at the end of a turn.")


def _select_added(selection: Selection, name: str, config: ServerConfig | None) -> None:
    """Select an added server's tools as its config says. Without one, it is in this process."""
    if config is None:
        selection.servers[name] = "loaded"
        return
    selection.servers[name] = mode_of(config)
    if names := always_loaded(name, config):
        selection.always_loaded = (*selection.always_loaded, *names)


class McpToolChat:
    """Chats with a model that can call MCP servers' tools.

    It belongs to one event loop. Use it as an async context manager, or call `close` at the end.

    Args:
        server_manager: The connections.
        models: The models.
        setup: All else, see `ChatSetup`.

    Attributes:
        state: This conversation's state.
        server_logs: Called for each line that a server logs, with the server, the level and the
            text.
        tape: Records model and server answers, or answers in their place, see `use_tape`.

    Raises:
        UsageError: Something that the selection names does not exist.
    """

    def __init__(
        self,
        server_manager: ServerManager,
        models: ModelFactory,
        setup: ChatSetup | None = None,
    ) -> None:
        setup = setup or ChatSetup()
        self.server_manager = server_manager
        self.models = models
        self.tool_sets = dict(setup.tool_sets or {})
        self.templates = setup.templates or TemplateLibrary.for_config(None, server_manager.worker)
        self.limits = setup.limits or TurnLimits()
        self.system = setup.system
        self._context: Mapping[str, Any] = {}
        self.tools = ChatTools(server_manager, self.tool_sets, lambda: models.window, setup.strict)
        self.deliveries = Deliveries()
        self.instructions = Instructions()
        self.checks = PreflightChecks()
        consent = Consent(
            self.tools.changes,
            server_manager.config_of,
            overrides=checked_overrides(setup.approval, server_manager.names),
            approver=setup.approver,
            can_ask=setup.can_ask or always,
            how_to_allow=setup.how_to_allow or allowed_in_python,
            limits=setup.answer_limits or AnswerLimits(),
            strict=setup.strict,
        )
        self.state = ConversationState(
            setup.selection or Selection(), consent, LargeResults(server_manager.config_of)
        )
        self.run_function = setup.run_function
        self.toolbox = Toolbox(
            self.run_function,
            server_manager.changed,
            partial(self._log, NOTEBOOK),
            server_manager.worker,
        )
        self.mocks = Mocks(self.run_function)
        self._secrets = setup.secrets
        self.audit = AuditTrail(lambda: self._secrets)
        self.server_logs = Listeners[[str, str, str]]()
        self.sampling = Sampling(
            models,
            self.consent,
            lambda: self._secrets,
            self._account_of_call,
            self.audit.add,
            partial(self._asking, "sampling"),
        )
        self.tape: Tape = NO_TAPE
        self._replayed: ReplayedChat | None = None
        self._asks = self.consent.approver, self.consent.can_ask
        self.names = ChatNames(server_manager, self.tool_sets, lambda: self.catalog)
        self.selection.bind(self.names)
        for tool in setup.synthetic_tools:
            self.add_synthetic_tool(tool)

    @classmethod
    def from_config(
        cls,
        config: Config | str | Path | Mapping[str, Any],
        system: str | None = None,
        synthetic_tools: Iterable[SyntheticTool] = (),
        *,
        settings: Settings | None = None,
        in_process: Mapping[str, FastMCP[Any]] | None = None,
        approver: Approver | None = None,
        approval: Mapping[str, Policies] | None = None,
        can_ask: Callable[[], bool] | None = None,
        how_to_allow: Callable[[ToolSpec], str] | None = None,
        answer_limits: AnswerLimits | None = None,
        elicitation: AskQuestion | None = None,
        sign_in: AskToSignIn | None = None,
        changed: Callable[[], None] = ignore,
        run_function: FunctionRunner = run_here,
        strict: bool = False,
    ) -> Self:
        """Create a chat from a config file or value. Nothing starts before the first use.

        Args:
            config: A path, a dict, or a loaded config.
            system: The system prompt where neither the turn nor the model's template gives one, or
                None for the default template.
            synthetic_tools: Your own synthetic tools, see `add_synthetic_tool`.
            settings: The environment's settings. None reads it now, with the `.env` beside the
                config file.
            in_process: This process's FastMCP servers, by name.
            approver: Asks the person before calls, see `McpToolChat`.
            approval: Policies by server (`never`, `destructive`, `always`, or a mapping from tool
                names to these), including bundled and in-process servers. They replace the
                config's.
            can_ask: Returns whether somebody could answer the approver now; None: always.
            how_to_allow: See `Consent`.
            answer_limits: How long approvals and servers' questions wait for the person.
            elicitation: Asks the person a server's question (`ServerQuestion`), and returns the
                answer (`QuestionAnswer`). Without it, the chat refuses such requests.
            sign_in: Asks the person to sign in to a server in a browser, see `AskToSignIn`.
            changed: Called whenever a server's state or its tools changed.
            run_function: Runs the calls to functions that `add_tool` made tools.
            strict: Whether every call asks unless somebody set its policy to `never`, and changed
                tools are blocked. The config's `strict` does the same.

        Raises:
            ConfigError: The config, an environment variable, or a policy is wrong.
            UnknownNameError: `approval` names a server that does not exist.
        """
        try:
            loaded = load_config(config)
        finally:
            # A traceback that shows the values of variables would show the secrets in a dict.
            del config
        settings = settings or Settings.from_environ(read_environment(loaded.folder))
        secrets = loaded.secrets()
        keep_out_of_log(secrets)
        route_library_logs(loggers())
        answer_limits = answer_limits or AnswerLimits()
        handlers = Handlers(sign_in=sign_in, answer_limits=answer_limits, apps=loaded.apps)
        server_manager = ServerManager(
            loaded.servers,
            in_process=in_process,
            unusable=loaded.unusable,
            cache_ttl=settings.tool_cache_ttl,
            handlers=handlers,
            on_change=changed,
            secrets=loaded.high_confidence_secrets(),
        )
        setup = ChatSetup(
            selection=initial_selection(loaded, in_process or {}),
            tool_sets=loaded.tool_sets,
            templates=TemplateLibrary.for_config(loaded.folder, server_manager.worker),
            limits=TurnLimits.of(loaded, settings),
            system=system,
            approver=approver,
            approval=approval,
            can_ask=can_ask,
            how_to_allow=how_to_allow,
            answer_limits=answer_limits,
            secrets=secrets,
            run_function=run_function,
            strict=strict or loaded.strict,
            synthetic_tools=synthetic_tools,
        )
        chat = cls._of(server_manager, ModelFactory(loaded), setup)
        chat._handle(handlers, elicitation)
        chat.tools.use_embedding(loaded.tool_discovery.embedding, chat.models, changed)
        return chat

    @classmethod
    def _of(cls, server_manager: ServerManager, models: ModelFactory, setup: ChatSetup) -> Self:
        """Create a chat from these parts. A subclass with another constructor overrides this."""
        return cls(server_manager, models, setup)

    async def __aenter__(self) -> Self:
        await self.server_manager.connect()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End all connections and server processes. Closing twice is harmless."""
        await self.tools.close()
        await self.server_manager.close()
        await self.state.large_results.close()
        await self.models.close()

    def abandon(self) -> None:
        """Close without ending anything, in a forked child: open connections belong to the
        parent.
        """
        self.server_manager.abandon()
        self.tools.abandon()

    @property
    def selection(self) -> Selection:
        """The model's view of the tools. Edit it at any time, a turn reads it when it starts."""
        return self.state.selection

    @property
    def consent(self) -> Consent:
        """The policies and the person's answers."""
        return self.state.consent

    @property
    def context(self) -> Mapping[str, Any]:
        """Values for the notebook functions' parameters, by parameter name or by `Inject` key."""
        return self._context

    @context.setter
    def context(self, values: Mapping[str, Any]) -> None:
        self._context = values
        self.toolbox.use_context(values)

    @property
    def catalog(self) -> Catalog:
        """The current tools."""
        return self.tools.changes.catalog

    @property
    def changed_tools(self) -> Mapping[ToolName, ToolChange]:
        """The tools with changed definitions that nobody has accepted since, with old and new
        definition.
        """
        return self.tools.changes.changes

    def accept_change(self, name: str | ToolName) -> None:
        """Accept a tool's present definition, or a skill (`server:skill`) that its server changed.

        With `pin_tools`, the model gets the tool again from the next turn on. Your own texts for
        the tool, which were left out since the change, apply again too.

        Raises:
            UnknownNameError: There is no such tool or skill, or it has not changed.
        """
        server, separator, skill = str(name).rpartition(":")
        reader = self.server_manager.resources.get(server) if separator else None
        if reader is not None and reader.accept_skill(skill):
            return
        self.tools.accept(self.catalog.resolve(name).tool_name)

    async def add_server(
        self, name: str, config: ServerConfig | None = None, server: FastMCP[Any] | None = None
    ) -> None:
        """Add a server and connect it. Its status explains a failure.

        Args:
            name: Its name.
            config: Its config, or None for a server in this process.
            server: The server itself, if it is in this process.

        Raises:
            UsageError: There is already a server with that name.
        """
        if config is not None:
            self._secrets = config.secrets().union(self._secrets)
        self.server_manager.add(name, config, server)
        _select_added(self.selection, name, config)
        await self.server_manager.connect([name])
        await self.tools.update()

    def add_tool(
        self,
        target: Any,
        *,
        name: str | None = None,
        description: str | None = None,
        inject: Mapping[str, Any] | None = None,
        annotations: ToolAnnotations | None = None,
        approval: Approval | None = None,
    ) -> ToolSpec:
        """Offer a function, or an object with `name`, `description`, `input_schema` and `execute`,
        as a `notebook` tool.

        It replaces a tool with the same name. A running turn offers it from its next step on.

        Args:
            target: The function or object.
            name: Its name, or None for the function's.
            description: The description for models, or None for the docstring.
            inject: Values for parameters that no model sees, by parameter or by its `Inject` key.
            annotations: Its effects.
            approval: When to ask the person before a call: `never`, `destructive`, `always`, or
                None for the default.

        Raises:
            UsageError: It cannot be a tool, or the config has a server `notebook`.
        """
        tool = read_tool(
            target,
            NOTEBOOK,
            name=name,
            description=description,
            inject=inject,
            annotations=annotations,
            policy=approval,
            context=self.context,
        )
        self.server_manager.attach(self.toolbox)
        self.toolbox.add(tool)
        self.consent.overrides[NOTEBOOK] = self.toolbox.policies
        return self.toolbox.spec_of(tool)

    def remove_tool(self, name: str) -> None:
        """Remove a tool that `add_tool` added.

        Raises:
            UnknownNameError: There is no such tool.
        """
        self.toolbox.remove(name)

    def add_synthetic_tool(self, tool: SyntheticTool) -> None:
        """Offer your own synthetic tool. It replaces one with the same name.

        It runs on this chat's event loop. If it raises, only its call fails. The deferred tools in
        its result's `newly_loaded_tools` are loaded, except those that the toolset leaves out.

        Args:
            tool: The tool: `name`, `definition` and `execute`.

        Raises:
            UsageError: It is not a synthetic tool, or a built-in tool or a server's tool has its
                name.
        """
        self.tools.add_custom(tool, self._log)

    def remove_synthetic_tool(self, name: str) -> None:
        """Remove a tool that `add_synthetic_tool` added.

        Raises:
            UnknownNameError: There is no such tool.
        """
        self.tools.remove_custom(name)

    async def remove_server(self, name: str) -> None:
        """End a server and forget it, its tools, its entries in the selection and its approvals.

        What turns have recorded of it stays. In a running turn, a call that waits for it fails, and
        the model reads why.

        Raises:
            UnknownNameError: There is no such server.
        """
        self.names.check_server(name)
        # This fails only if another name in the selection does not exist any more either, which
        # displays show.
        with suppress(UsageError):
            self.selection.assign(
                selection_without(self.selection, name, self.tool_sets, self.catalog)
            )
        self.consent.forget_server(name)
        self.state.large_results.forget_server(name)
        self.tools.changes.forget(name)
        self.tools.written_texts.forget(name)
        await self.server_manager.remove(name)
        await self.tools.update()

    def apart(self, consent: Consent | None = None, *, private: bool = False) -> Self:
        """Create a chat with the same servers, models and tools, for another conversation.

        This chat's memory about its conversation, such as approvals and past notices, stays as it
        is.

        Args:
            consent: That conversation's approvals, or None for none yet.
            private: Whether it is another person's: it does not share large results, and its turns
                leave out server logs, which may be about anybody's calls.
        """
        other = copy.copy(self)
        other.state = self.state.apart(consent, private=private)
        return other

    async def with_servers(self, servers: Mapping[str, ServerConfig | FastMCP[Any] | None]) -> Self:
        """Create a chat with further servers, besides this one's or in their place, and connect
        them.

        Approval follows the same rules as for servers that are added. End them with
        `server_manager.close_added`.

        Args:
            servers: Servers by name: a config, or the server itself if it lives in this process.
                None leaves one out.

        Raises:
            ConnectError: One did not start.
        """
        other = self.apart(self.consent)
        manager = other.server_manager = self.server_manager.beside(servers)
        tools = other.tools = self.tools.beside(manager)
        consent = replace(
            self.consent.apart(), tool_changes=tools.changes, config_of=manager.config_of
        )
        for name in servers:
            consent.forget_server(name)
        other.state.consent = consent
        other.names = ChatNames(manager, self.tool_sets, lambda: other.catalog)
        other.instructions = Instructions()
        other.checks = PreflightChecks()
        other.deliveries = Deliveries()
        secrets = set(self._secrets)
        for server in servers.values():
            if isinstance(server, ServerConfig):
                secrets |= server.secrets()
        other._secrets = frozenset(secrets)
        for name, server in servers.items():
            if server is None:
                other.selection.servers.pop(name, None)
        other.selection.bind(other.names)
        for name, server in servers.items():
            if server is not None:
                config = server if isinstance(server, ServerConfig) else None
                _select_added(other.selection, name, config)
        try:
            await manager.connect(manager.added)
            await tools.update()
            for name in manager.added:
                if name in manager.absent:
                    raise ConnectError(f"Server {shown(name)} {manager.absent[name]}", server=name)
        except BaseException:
            await manager.close_added()
            raise
        return other

    def use_tape(self, tape: Recorder | Replayer | None) -> None:
        """Have a cassette record model and server answers, or answer in their place.

        None ends that.

        Replayed calls get the approvals from their recording. The notebook's functions always run.
        """
        if self.tape is not NO_TAPE:
            self.consent.approver, self.consent.can_ask = self._asks
            self.consent.runs_nothing = never
            self.server_manager.restore()
        self.tape = NO_TAPE if tape is None else tape
        self._replayed = None
        self._asks = self.consent.approver, self.consent.can_ask
        if tape is None:
            return
        if tape.replays:
            self._replayed = ReplayedChat(
                tape, self.server_manager, self.consent, self.toolbox, self._log, self._notify
            )
        else:
            record_chat(tape, self.server_manager, self.consent)

    async def replay_servers(self, names: Collection[str]) -> None:
        """Have exactly the servers that the replayed cassette had at one turn."""
        present = [*self.server_manager.names]
        for name in names:
            if name not in present and self._replayed is not None:
                self._replayed.add_server(name)
        for name in present:
            if name not in names and not (name == NOTEBOOK and self.toolbox.tools):
                await self.remove_server(name)

    async def ready_model(self, name: str | Model | ChatModel | None = None) -> ChatModel:
        """Get a model that is ready for calls: one from the config by name, or None for the default
        one.
        """
        return await self.tape.model(self.models, name)

    def account(self, turn: str = "", tell: Callable[[str], object] | None = None) -> Account:
        """Count requests to models for this conversation, and a turn of it, see `Account`."""
        return Account(self.models.spending, self.state.spends_as, turn, tell)

    def _account_of_call(self, server: str) -> Account:
        """Count a server's request for the turn that is calling it, if there is one."""
        for run in self._calling(server):
            return run.account
        return self.account()

    async def view(self, selection: Selection | None = None) -> ToolView:
        """Compile the model's view of the tools. Connect servers that are not connected yet."""
        return await self.tools.connected_view(selection or self.selection)

    def current_view(self, selection: Selection | None = None) -> ToolView:
        """Compile the view from the current tools. Does not connect or wait. For any thread."""
        return self.tools.view(selection or self.selection)

    async def run(
        self,
        messages: Sequence[ChatMessage],
        options: TurnOptions | None = None,
        *,
        history: Sequence[ChatMessage] = (),
        turn: Turn | None = None,
        before: Turn | None = None,
        on_event: Callable[[Event], None] | None = None,
        recorded: Turn | None = None,
        plan_only: bool = False,
    ) -> Turn:
        """Run one turn to its end.

        Args:
            messages: The person's new messages.
            options: This turn's options.
            history: The conversation so far.
            turn: The turn whose trace records the events, or None for a new one.
            before: The previous turn, to compare its last request with this turn's first one, or
                None if unknown.
            on_event: Called with each event after it was recorded.
            recorded: The steps that it begins with, see `recorded_steps`. They call no model.
            plan_only: End it with the first response that calls tools, and run only searches for
                tools.

        Returns:
            The turn. A model error or a limit makes it `failed` and does not raise. See
            `Turn.raise_for_status`.

        Raises:
            UsageError: A name in the options does not exist. Nothing was sent.
            ConnectError: No server could connect.
            CancelledError: The caller was cancelled. The turn is `stopped`, and its trace has
                everything until then.
        """
        return await self.take_turn(
            TurnSetup(
                messages=messages,
                options=options or TurnOptions(),
                history=history,
                turn=turn or Turn(Trace()),
                before=before,
                on_event=on_event,
                recorded=recorded,
                plan_only=plan_only,
            )
        )

    async def take_turn(self, setup: TurnSetup) -> Turn:
        """Run one turn to its end, as `run` does."""
        turn, on_event = setup.turn, setup.on_event
        trace = turn.trace
        context = setup.options.given.get("context") or ()
        audit = self.audit.follow()

        def emit(event: Event) -> None:
            if trace.all_of(TurnFinished):
                # The end is the last event, whatever is still under way, such as a server's
                # question whose call was stopped.
                return
            trace.append(event)
            if type(event) in FOLLOWED:
                audit(event)
            if on_event is not None:
                on_event(event)

        with self.toolbox.injecting(context):
            try:
                run = await build_run(self, setup, emit)
            except BaseException as error:
                if trace.all_of(TurnStarted):
                    # An observer failed, or somebody stopped it, after the turn had begun.
                    self._end_unbuilt(turn, error, emit)
                raise
            self.state.last_turn, self.state.last_account = turn, run.account
            self.state.running.add(run)
            try:
                end = await self._run_to_end(run, turn, emit)
                _tell_end(emit, end)
            finally:
                self.state.running.discard(run)
        if context:
            await self.tools.update_known()
        return turn

    async def _run_to_end(
        self, run: Run, turn: Turn, emit: Callable[[Event], None]
    ) -> TurnFinished:
        try:
            await run.run_steps()
        except asyncio.CancelledError:
            _tell_end(emit, TurnFinished("stopped", error=_STOPPED, at=run.now()))
            raise
        except Exception as error:
            return self._failed(turn, error, run.now())
        return TurnFinished("done", at=run.now())

    def _failed(self, turn: Turn, error: Exception, at: float) -> TurnFinished:
        """Give a turn its exception, without secrets, and make its end."""
        if isinstance(error, CasualMcpError):
            error = masked_error(error, self._secrets)
        text = f"{type(error).__name__}: {error}"
        masked = redacted(text, self._secrets)
        turn.exception = error if masked == text else CasualMcpError(masked)
        return TurnFinished("failed", error=masked, at=at, failure=failure_of(turn.exception))

    def _end_unbuilt(self, turn: Turn, error: BaseException, emit: Callable[[Event], None]) -> None:
        """End a turn that has begun, but has no run."""
        at = turn.trace.last_at
        if isinstance(error, Exception):
            end = self._failed(turn, error, at)
        else:
            end = TurnFinished("stopped", error=_STOPPED, at=at)
        _tell_end(emit, end)

    @spelled_out(TurnFields)
    async def chat(
        self,
        messages: Prompt,
        tool_set: str | ToolSetConfig | None = None,
        meta: Mapping[str, Any] | None = None,
        model: str | Model | ChatModel | None = None,
        system: str | None = None,
        *,
        gate: BeforeModelCall | None = None,
        **more: Unpack[TurnFields],
    ) -> list[ChatMessage]:
        """Answer a conversation's last message.

        Args:
            messages: The conversation, or its first message's text. Tools that earlier searches in
                it have loaded stay loaded.
            tool_set: A toolset's name, or a custom one.
            meta: Passed to the servers with each call.
            model: A model's name in the config, or a model, or None for the first one in the
                config.
            system: The system prompt. It replaces a system message in `messages`.
            gate: Asked before each model call.
            more: Further `TurnOptions` fields, such as `temperature`.

        Returns:
            The messages to add to the conversation: answers, calls, results.

        Raises:
            UsageError: An option or a name does not exist. Nothing was sent.
            CasualMcpError: The turn failed. `get_stats` has its usage so far.
        """
        options = TurnOptions(
            model=model, system=system, tool_set=tool_set, meta=meta, gate=gate, **more
        )
        await load("casual_llm")
        history, new, options = split_messages(messages, options)
        before = self.state.last_turn if history else None
        setup = TurnSetup(messages=new, options=options, history=history, before=before)
        turn = await self.take_turn(setup)
        turn.raise_for_status()
        return turn.messages[len(new) :]

    @spelled_out(NamedTurnFields)
    async def stream(
        self,
        messages: Prompt,
        *,
        gate: BeforeModelCall | None = None,
        **options: Unpack[NamedTurnFields],
    ) -> AsyncIterator[Event]:
        """Answer a conversation's last message, event by event.

        Args:
            messages: As for `chat`.
            gate: Asked before each model call.
            options: `TurnOptions` fields.

        Yields:
            The turn's events. The last one is `TurnFinished`. Leaving the loop early stops the
            turn.
        """
        await load("casual_llm")
        history, new, turn_options = split_messages(messages, TurnOptions(gate=gate, **options))
        turn = Turn(Trace())
        follower = Follower(turn.trace)
        before = self.state.last_turn if history else None
        setup = TurnSetup(
            messages=new,
            options=turn_options,
            history=history,
            turn=turn,
            before=before,
            on_event=follower.on_event,
        )
        task = asyncio.create_task(self.take_turn(setup))
        task.add_done_callback(follower.on_end)
        try:
            async for event in follower:
                yield event
            await task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task

    def get_stats(self) -> ChatStats | None:
        """Get the last turn's statistics, or None before the first one."""
        return self.state.last_turn.stats if self.state.last_turn else None

    def _handle(self, handlers: Handlers, elicitation: AskQuestion | None) -> None:
        """Receive what the servers report and ask through these handlers."""
        handlers.log = self._log
        handlers.notice = self._notify
        handlers.listed_late = self.tools.update
        handlers.sampling = self.sampling.answer
        if elicitation is not None:
            handlers.elicitation = partial(self._elicit, elicitation)

    async def _elicit(self, ask: AskQuestion, question: ServerQuestion) -> QuestionAnswer:
        """Pass a server's question on to its caller: the person here, or another program's
        client.
        """
        if question.of_task:
            # It belongs to none of the running calls at that server.
            return await ask(question)
        try:
            asker = self.server_manager.running_calls.asker(question.server)
        except SeveralClients:
            # Over stdio, servers of older versions do not say during which call they ask, and no
            # client may answer for another one.
            self._notify(
                question.server,
                "The server asked a question while it ran calls for several clients, so the"
                " question was cancelled.",
            )
            return QuestionAnswer("cancel")
        if asker is not None:
            return await asker.elicit(question)
        with self._asking("form" if question.form is not None else "link", question.server):
            return await ask(question)

    @contextmanager
    def _asking(self, kind: QuestionKind, server: str) -> Iterator[None]:
        """Record a question to the person in each turn that is calling the server, for as long as
        the body runs.
        """
        answered = [run.waiting_for_person(kind, server) for run in self._calling(server)]
        try:
            yield
        finally:
            for answer in answered:
                answer()

    def _calling(self, server: str) -> list[RunningTurn]:
        """List the turns that are calling a server."""
        return [run for run in tuple(self.state.running) if run.is_calling(server)]

    def _log(self, server: str, level: str, text: str) -> None:
        self.tape.log(server, {"log": level, "text": text})
        for run in tuple(self.state.running):
            run.logs.add(server, level, text)
        self.server_logs.notify(server, level, text)

    def _notify(self, server: str, text: str) -> None:
        self.tape.log(server, {"notice": text})
        # Few servers say for which call they requested something. Without a running call, a task
        # may have asked, or the call has just ended: any turn can be meant.
        for run in self._calling(server) or tuple(self.state.running):
            run.emit(Notice(text, server=server, at=run.now()))
