"""A session's cassette: recorded, or replayed in place of models and servers."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast, get_args

from pydantic import ValidationError

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.config import Config, Policies
from casual_mcp_nb.base.config_base import OPTION_NAMES
from casual_mcp_nb.base.displayable import Namespace, count
from casual_mcp_nb.base.selection import Selection
from casual_mcp_nb.cassettes import MATCH_ON, CassetteMode, CassetteOverview, CassetteState, MatchOn
from casual_mcp_nb.cassettes.format import Cassette, ServerEntry, SessionEntry
from casual_mcp_nb.cassettes.interaction import Interaction, conversation_message
from casual_mcp_nb.cassettes.output import CassetteOutput
from casual_mcp_nb.cassettes.recorder import OPTIONS, Recorder, entry_from
from casual_mcp_nb.cassettes.replayer import Replayer
from casual_mcp_nb.conversation.conversation import Conversation, ConversationHead
from casual_mcp_nb.conversation.event import Event, TurnFinished
from casual_mcp_nb.conversation.repair import repaired
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.consent import checked_overrides
from casual_mcp_nb.engine.events import Observers
from casual_mcp_nb.engine.instructions import with_instructions
from casual_mcp_nb.engine.turn_fields import IN_CASSETTES, ChatOptions
from casual_mcp_nb.errors import (
    CassetteError,
    CassetteMismatchError,
    ConfigError,
    UnknownNameError,
    UsageError,
    brief,
    shown,
)
from casual_mcp_nb.notebook.blocking import awaited, blocking, on_engine
from casual_mcp_nb.notebook.caller import notebook_shell
from casual_mcp_nb.notebook.loop import EngineThread
from casual_mcp_nb.own_tools.toolbox import NOTEBOOK

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.notebook.live import Echo
    from casual_mcp_nb.notebook.turn_service import TurnService

logger = logging.getLogger(__name__)

MAX_REASONS = 3
NOTEBOOK_PACE = 0.5
"""The pace in a notebook, where someone is watching."""


class CassetteInUse:
    """A cassette that a session records or replays: a context manager, or call `close`.

    Attributes:
        path: The cassette's file.
        mode: The mode with which it was opened, see `SessionCassettes.use`.
        problem: Why the recording could not be saved the last time, or empty.
    """

    def __init__(
        self, service: SessionCassettes, tape: Recorder | Replayer, path: Path, mode: CassetteMode
    ) -> None:
        self._service = service
        self._tape = tape
        self._saved = 0
        self._saving = threading.Lock()
        self._output = CassetteOutput(path)
        self._failed_turns: list[str] = []
        self.path = path
        self.mode = mode
        self.problem = ""

    @property
    def state(self) -> CassetteState:
        """What is done with it, and how far it is."""
        tape = self._tape
        if tape.replays:
            return CassetteState(self.path, "replaying", self.mode, len(tape), len(tape.unplayed))
        return CassetteState(self.path, "recording", self.mode, len(tape), problem=self.problem)

    @property
    def active(self) -> bool:
        """Whether the session still records or replays it."""
        return self._service.current is self

    def save(self) -> None:
        """Write the recording so far. Do nothing if it is empty or unchanged, or in a replay.

        Raises:
            UsageError: The file cannot be written.
        """
        if self._tape.replays:
            return
        with self._saving:
            is_lost = self._saved and not self._output.is_there
            if len(self._tape) > self._saved or is_lost:
                cassette = self._tape.cassette()
                count = len(self._tape)
                self._output.write(lambda path: cassette.save(path, self._service.secrets()))
                self._saved = count

    def save_quietly(self) -> None:
        """Write the recording so far. If that is not possible, the log and the state report it."""
        try:
            self.save()
            self.problem = ""
        except UsageError as error:
            if not self.problem:
                logger.warning("The cassette is not saved: %s", error)
            self.problem = str(error)

    def close(self, *, keep: bool | None = None) -> None:
        """Save the recording, and let models and servers answer again. Closing twice is allowed.

        Args:
            keep: Whether the recording becomes the cassette. With None it does, unless it would
                replace one although something failed. Then it stays in a file beside the cassette.

        Raises:
            CassetteError: Something in the recording failed, so it did not become the cassette.
        """
        self._service._end(self, keep)

    def note(self, turn: Turn, event: TurnFinished) -> None:
        """Note how a turn ended."""
        if event.status == "stopped":
            self._tape.turn_stopped(turn.started)
        if event.status != "done":
            self._failed_turns.append(
                f"a turn ended as {event.status}: {event.error or 'no reason is known'}"
            )

    @property
    def replaces(self) -> bool:
        """Whether there was a cassette before the recording."""
        return self._output.replaces

    @property
    def failures(self) -> list[str]:
        """What failed while it was recorded or replayed: turns and servers, with their reasons."""
        return [*self._failed_turns, *self._service._failed_servers()]

    def settle(self, keep: bool | None = None) -> None:
        """Save the recording, and let it become the cassette, see `close`."""
        if self._tape.replays:
            return
        failures = self.failures
        self.save()
        if keep is False:
            self._output.discard()
        elif keep or not failures:
            self._output.replace()
        elif self._output.written not in (None, self.path):
            raise CassetteError(
                f"{shown(self.path)} stays as it was, because {'; '.join(failures[:MAX_REASONS])}",
                hint=f"The new recording is in {shown(self._output.written)}: rename it to use it.",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
            return
        self._failed_turns.append(f"the block that recorded it raised {type(error).__name__}")
        try:
            self.close()
        except CassetteError as unsettled:
            error.add_note(str(unsettled))

    def __repr__(self) -> str:
        if not self.active:
            return f"<CassetteInUse: {self.path.name}, closed>"
        return f"<CassetteInUse: {self.state}>"


@dataclass(frozen=True)
class RecordedTurn:
    """A turn in a cassette.

    Args:
        messages: Its messages.
        options: The turn's options, where they differ from the session's.
        history: The conversation before it, or None to continue the one so far.
        selection: Its selection, as far as it differs from the session's, or None if unknown.
        servers: Its servers, or None for the session's.
    """

    messages: Sequence[ChatMessage]
    options: ChatOptions
    history: Sequence[ChatMessage] | None = None
    selection: Mapping[str, Any] | None = None
    servers: Collection[str] | None = None


class SessionCassettes(Namespace):
    """Record and replay a session's cassettes, one at a time: `session.cassettes`.

    Attributes:
        current: The cassette in use, or None.
        source: The cassette that replaces models and servers for the whole session, or None if they
            answer themselves.
    """

    def __init__(
        self,
        chat: McpToolChat,
        config: Config,
        engine: EngineThread,
        observers: Observers,
        turns: TurnService,
    ) -> None:
        self._engine = engine
        self.current: CassetteInUse | None = None
        self.source: Replayer | None = None
        self._chat = chat
        self._config = config
        self._observers = observers
        self._turns = turns
        self._stop_following: Callable[[], None] = ignore

    @property
    def state(self) -> CassetteState | None:
        """Which cassette is recorded or replayed now, or None.

        As text it is `recording lesson.json`, for example.
        """
        if self.current is None:
            return None
        return self.current.state

    @property
    def now(self) -> CassetteOverview:
        """The current recording or replay, as a value."""
        return CassetteOverview(self.state)

    def secrets(self) -> Collection[str]:
        """Collect the secrets that are masked in a cassette, which are those masked in results.

        See `Config.high_confidence_secrets`.
        """
        secrets = self._config.high_confidence_secrets()
        for name in self._chat.server_manager.names:
            config = self._chat.server_manager.config_of(name)
            if config is not None:
                secrets = secrets.union(config.high_confidence_secrets())
        return secrets

    def of(self, conversation: Iterable[Turn], head: ConversationHead | None = None) -> Cassette:
        """Build a cassette from turns that were not recorded.

        Servers and settings are the session's current ones.

        Args:
            conversation: The turns.
            head: The set-up of a saved conversation, or None for the current one's.
        """
        manager = self._chat.server_manager
        view = self._chat.current_view()
        if head is None:
            head = self._turns.runner.saver.head
        cassette = Cassette.from_conversation(conversation, head=head)
        settings = self._settings(head)
        if settings.system is None and cassette.session.system is not None:
            instructions = with_instructions("", view, manager)
            settings.system = cassette.session.system.removesuffix(instructions).rstrip()
        cassette.session = replace(settings, model=cassette.session.model)
        cassette.servers = {}
        for name, status in manager.statuses.items():
            cassette.servers[name] = entry_from(
                manager.config_of(name),
                status,
                view.catalog.by_server.get(name, ()),
                manager.instructions.get(name, ""),
            )
        return cassette

    def replay_only(
        self,
        cassette: Cassette,
        path: Path,
        pace: float | None,
        match_on: Collection[MatchOn] | None,
        approval: Mapping[str, Policies] | None,
    ) -> None:
        """Replay a cassette for as long as the session lives, see `Session.quick`.

        Args:
            cassette: The cassette.
            path: Its file.
            pace: As for `use`.
            match_on: As for `use`, or None for all but the system prompt.
            approval: Policies in place of the recorded ones, by server.

        Raises:
            CassetteError: The recorded policies are not valid.
            UsageError: A value is not valid.
        """
        if match_on is None:
            match_on = [part for part in MATCH_ON if part != "system"]
        _check_values("none", pace, match_on)
        self.source = self._replayer(cassette, path, pace, match_on)
        self.current = CassetteInUse(self, self.source, path, "none")
        self._stop_following = self._observers.events.add(self._follow)
        self._chat.use_tape(self.source)
        # Replayed calls run nothing, whatever the policy; notebook functions do run.
        servers = {*self._chat.server_manager.names} - {NOTEBOOK}
        policies = _only(cassette.session.approval, servers)
        try:
            self._chat.consent.overrides.update(checked_overrides(policies, servers))
        except ConfigError as error:
            raise CassetteError(
                f"{shown(path)} is damaged: {error}", hint="Record it again."
            ) from None
        self._chat.consent.overrides.update(
            checked_overrides(approval, self._chat.server_manager.names)
        )
        selection = _only(cassette.session.selection, Selection.model_fields)
        self._turns.set_up(ConversationHead(self._turns.model, cassette.session.system, selection))

    def use(
        self,
        path: str | Path,
        mode: CassetteMode = "once",
        *,
        pace: float | None = None,
        match_on: Collection[MatchOn] = MATCH_ON,
    ) -> CassetteInUse:
        """Record models' and servers' answers in a file, or let the file answer in their place.

        A recording has model answers, call results, resource and prompt contents, apps' pages,
        progress and log messages, and your approvals. A replay still runs notebook functions and
        tool searches. The file never contains keys, headers or servers' environments.

        Args:
            path: The file, usually `.json`. An HTML file with a cassette in it can be replayed.
            mode: `once` records if the file does not exist, and else replays it; `none` only
                replays; `all` records. An existing file is replaced at the end, and stays if a turn
                or a server failed.
            pace: How long pauses in a replay are: 1 as recorded, 0.5 half as long, 0 none. The
                default is 0.5 in a notebook and 0 in a script.
            match_on: The parts in a model request that must match the recording: `model`, `system`,
                `messages`, `tools`.

        Returns:
            A context manager, or call its `close`. Another one, or the session's end, closes it
            too.

        Raises:
            CassetteError: The file does not exist (`none`), is not a cassette, or is damaged.
            UsageError: A value is not valid, or a turn is running.
        """
        self._turns.check_open()
        file = Path(path).expanduser().absolute()
        _check_values(mode, pace, match_on)
        self._turns.runner.check_free()
        if self.current is not None:
            # A cell that uses a cassette can be run again.
            try:
                self._end(self.current)
            except CassetteError as error:
                logger.warning("%s", error)
        exists = file.exists()
        if mode == "none" and not exists:
            raise CassetteError(
                f"There is no cassette {shown(file)}.",
                hint="Record it: session.cassettes.use(path, mode='once').",
            )
        replays = exists and mode != "all"
        if replays:
            tape: Recorder | Replayer = self._replayer(Cassette.load(file), file, pace, match_on)
        else:
            tape = self._recorder(file)
        self.current = CassetteInUse(self, tape, file, mode)
        self._chat.use_tape(tape)
        self._stop_following = self._observers.events.add(self._follow)
        self._observers.changes.notify()
        return self.current

    def _end(self, cassette: CassetteInUse, keep: bool | None = None) -> None:
        """End a cassette, if it is the current one and no turn is running.

        See `CassetteInUse.close`.
        """
        if self.current is not cassette:
            return
        if self.source is not None:
            raise UsageError(
                "This session has only the contents of its cassette.",
                hint="Close the session, and open one from a config.",
            )
        self._turns.runner.check_free()
        self.current = None
        self._stop_following()
        try:
            cassette.settle(keep)
        finally:
            self._chat.use_tape(None)
            self._observers.changes.notify()

    @blocking
    async def replay(self, *, echo: Echo = "none") -> Conversation:
        """Run the cassette's turns again, as they were recorded, through the same code.

        A turn that was stopped is left out, and so is one of a conversation's export that failed in
        a request to the model. The turns after it still have its messages before them.

        Args:
            echo: See `Session.chat`.

        Returns:
            Their conversation.

        Raises:
            CassetteError: No cassette is being replayed.
            CassetteMismatchError: A request differs from the recorded one. The message shows how.
        """
        turns: list[Turn] = []
        selection = self._chat.selection.model_dump(mode="json")
        for begun, requests in _by_turn(self._replayed().cassette.interactions):
            if begun.request.get("incomplete"):
                await on_engine(self._skip(requests))
                continue
            models = (each for each in requests if each.kind == "model")
            first = next(models, None)
            if first is None:
                # It ended before a model answered, and has nothing to replay.
                continue
            recorded = _recorded_turn(begun, first)
            await on_engine(self._set_up(recorded, selection))
            if recorded.history is not None:
                self._turns.continue_from(recorded.history)
            turn = await self._turns.chat(recorded.messages, recorded.options, echo)
            if isinstance(turn.exception, CassetteMismatchError):
                turn.raise_for_status()
            turns.append(turn)
        return Conversation(turns)

    replay_async = awaited(replay)

    async def _skip(self, requests: Iterable[Interaction]) -> None:
        """Leave out a turn's requests, on the engine's loop."""
        self._replayed().skip(requests)

    async def _set_up(self, turn: RecordedTurn, selection: Mapping[str, Any]) -> None:
        """Set up servers and selection as a recorded turn had them.

        On the engine's loop.

        Args:
            turn: The turn.
            selection: The session's selection before the first turn, which the turn's changes.
        """
        if turn.selection is None:
            return
        servers = turn.servers
        if servers is None:
            recorded = self._replayed().cassette.servers
            servers = [name for name, entry in recorded.items() if not entry.added]
        await self._chat.replay_servers(servers)
        for name, value in {**selection, **turn.selection}.items():
            if name in Selection.model_fields:
                setattr(self._chat.selection, name, value)

    def _replayed(self) -> Replayer:
        current = self.current
        if current is None or not current._tape.replays:
            raise CassetteError(
                "No cassette is being replayed.",
                hint="Session.quick(cassette=path), or session.cassettes.use(path, 'none').",
            )
        return current._tape

    def close(self) -> None:
        """End the cassette when the session closes.

        If the file cannot be written or replaced, the log reports it.
        """
        if self.current is None:
            return
        self._stop_following()
        try:
            self.current.settle()
        except UsageError as error:
            logger.warning("The cassette is not saved: %s", error)
        self.current = None

    def _failed_servers(self) -> list[str]:
        """List the servers that failed, with their reasons."""
        failed: list[str] = []
        for name, status in self._chat.server_manager.statuses.items():
            if status.state == "failed":
                failed.append(f"server {shown(name)} failed: {status.error}")
        return failed

    def _replayer(
        self, cassette: Cassette, file: Path, pace: float | None, match_on: Collection[MatchOn]
    ) -> Replayer:
        if pace is None:
            pace = NOTEBOOK_PACE if notebook_shell() is not None else 0.0
        return Replayer(cassette, file.name, pace=pace, match_on=match_on, secrets=self.secrets)

    def _recorder(self, file: Path) -> Recorder:
        if not file.parent.is_dir():
            raise CassetteError(
                f"There is no folder {shown(file.parent)}.", hint="Create it, or give another path."
            )
        return Recorder(self._settings(self._turns.runner.saver.head))

    def _settings(self, head: ConversationHead) -> SessionEntry:
        config = self._config
        system = head.system
        model = config.models.get(head.model or "")
        if model is not None and model.template:
            # The template comes before the system prompt, and a session that replays has none.
            system = None
        tool_sets: dict[str, Any] = {}
        for name, tool_set in config.tool_sets.items():
            tool_sets[name] = tool_set.model_dump(mode="json", exclude_defaults=True)
        limit: int | None = config.tool_results.max_tokens
        if limit == type(config.tool_results)().max_tokens:
            limit = None
        return SessionEntry(
            model=head.model,
            system=system,
            selection=head.selection,
            tool_sets=tool_sets,
            strict=config.strict,
            max_result_tokens=limit,
            approval=dict(self._chat.consent.overrides),
        )

    def _follow(self, turn: Turn, event: Event) -> None:
        if isinstance(event, TurnFinished) and self.current is not None:
            self.current.note(turn, event)
            # On another thread, because writing a long cassette takes time.
            asyncio.get_running_loop().run_in_executor(None, self.current.save_quietly)


def _by_turn(interactions: Iterable[Interaction]) -> list[tuple[Interaction, list[Interaction]]]:
    """List a cassette's turns, each with the interactions up to the next turn."""
    turns: list[tuple[Interaction, list[Interaction]]] = []
    for each in interactions:
        if each.kind == "turn":
            turns.append((each, []))
        elif turns:
            turns[-1][1].append(each)
    return turns


def _recorded_turn(turn: Interaction, first: Interaction) -> RecordedTurn:
    """Convert a cassette's turn to one that can be run again.

    Args:
        turn: The turn's interaction.
        first: Its first model request, which has the conversation before it.

    Raises:
        CassetteError: The turn began with the steps of another one.
    """
    request = turn.request
    if request.get("recorded"):
        raise CassetteError(
            "A turn of this cassette began with steps of another turn, and cannot be replayed by"
            " itself.",
            hint="Run fork_at, or the plan and its resume, again in a session of the cassette.",
        )
    messages = turn.answer()
    sent = [message for message in first.request["messages"] if message.get("role") != "system"]
    options = _only(request, ("model", "tool_set", "system"))
    history: Sequence[ChatMessage] | None = None
    if "after" not in request:
        # A cassette of an earlier version.
        if len(sent) <= len(messages):
            history = ()
        return RecordedTurn(messages, cast("ChatOptions", options), history)
    options |= _only(request.get("options", {}), (*OPTION_NAMES, *IN_CASSETTES, "repair_calls"))
    before = request["after"]
    if before <= len(sent) - len(messages):
        # Otherwise the oldest messages were left out, and the turn continues the conversation.
        history, _ = repaired(list(map(conversation_message, sent[:before])))
    return RecordedTurn(
        messages,
        cast("ChatOptions", options),
        history,
        request.get("selection", {}),
        request.get("servers"),
    )


def _only(values: Mapping[str, Any], names: Container[str]) -> dict[str, Any]:
    """Copy the values that have one of these names."""
    return {name: value for name, value in values.items() if name in names}


def tested(turns: Sequence[Turn], state: CassetteState | None) -> str:
    """Report in a sentence that turns match the recording.

    Args:
        turns: The turns that were run again.
        state: The state of their cassette.

    Raises:
        CassetteMismatchError: Recorded requests were not made.
    """
    assert state is not None
    if state.unplayed:
        text = (
            f"{state.unplayed} of {count(state.interactions, 'recorded request')} of"
            f" {shown(state.path.name)} were not made."
        )
        raise CassetteMismatchError(
            text, hint="Your own calls are not part of a turn. Otherwise, record it again."
        )
    return (
        f"{state.path.name}: {count(len(turns), 'turn')}, {count(state.interactions, 'request')} as"
        " recorded."
    )


def _check_values(mode: CassetteMode, pace: float | None, match_on: Collection[MatchOn]) -> None:
    if mode not in get_args(CassetteMode):
        raise UnknownNameError("mode of a cassette", str(mode), get_args(CassetteMode))
    for part in match_on:
        if part not in MATCH_ON:
            raise UnknownNameError("part to match on", str(part), MATCH_ON)
    if pace is None:
        return
    is_number = isinstance(pace, int | float) and not isinstance(pace, bool)
    if not is_number or not 0 <= pace <= 100:
        raise UsageError(
            f"pace cannot be {brief(pace)}.",
            hint="It is a factor: 1 as recorded, 0.5 half as long, 0 no pauses.",
        )


_OF_A_CASSETTE = ("model", "servers", "base_url", "system", "prices", "strict")
"""Options for `Session.quick` that come from the recording."""


def opened_cassette(path: str | Path, given: Mapping[str, Any]) -> tuple[Path, Cassette, Config]:
    """Read the cassette for `Session.quick`.

    Args:
        path: The cassette's file.
        given: The other options for `Session.quick`.

    Returns:
        Its absolute path, the cassette, and a config for the replay.

    Raises:
        UsageError: An option that comes from the cassette is given.
        CassetteError: The file is not a cassette, or is damaged.
    """
    for option in _OF_A_CASSETTE:
        if given.get(option):
            raise UsageError(
                f"{option} cannot be chosen: it comes from the cassette.", hint="Leave it out."
            )
    file = Path(path).expanduser().absolute()
    cassette = Cassette.load(file)
    return file, cassette, config_of(cassette, file)


def config_of(cassette: Cassette, path: Path) -> Config:
    """Build a config for replaying a cassette.

    Nothing in it is ever started, contacted or looked up.

    Raises:
        CassetteError: The cassette's models or servers are not valid.
    """
    session = cassette.session
    clients: dict[str, Any] = {}
    models: dict[str, Any] = {}
    prices: dict[str, Any] = {}
    # The first model is the default one.
    for name in sorted(cassette.models, key=lambda name: name != session.model):
        entry = cassette.models[name]
        clients[entry.client] = {"provider": "replay", "cassette": str(path)}
        models[name] = {
            **_only(entry.options, OPTION_NAMES),
            "client": entry.client,
            "model": entry.model,
        }
        if entry.context_window:
            models[name]["context_window"] = entry.context_window
        if entry.price:
            prices[name] = dict(entry.price)
    servers: dict[str, Any] = {}
    for name, server in cassette.servers.items():
        if server.way != "in-process" and not server.added:
            servers[name] = _server_config(server)
    config: dict[str, Any] = {
        "clients": clients,
        "models": models,
        "servers": servers,
        "tool_sets": dict(session.tool_sets),
        "prices": prices,
        "strict": session.strict,
    }
    if session.max_result_tokens is not None:
        config["tool_results"] = {"max_tokens": session.max_result_tokens}
    try:
        # Not `load_config`, which would replace `${NAME}` with a variable's value.
        return Config.model_validate(config)
    except ValidationError:
        problem = f"{shown(path)} is damaged: its models and servers are not valid."
    raise CassetteError(problem, hint="Record it again.")


def _server_config(entry: ServerEntry) -> dict[str, Any]:
    config = _only(entry.options, OPTIONS)
    # When the person is asked depends on whether a server ships with the package.
    if entry.way == "bundled":
        config["bundled"] = entry.bundled
    else:
        config["command"] = "replayed"
    return config
