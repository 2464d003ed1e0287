"""Run turns: shown in a cell (`chat`), followed event by event (`stream`), or started in the
background (`submit`).

All meet in `TurnService.run_turn`, on the engine's loop. From there a turn continues in
`engine/chat.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.base.tool import Catalog
from casual_mcp_nb.conversation.conversation import (
    Conversation,
    ConversationHead,
    Prompt,
    as_messages,
    recorded_steps,
)
from casual_mcp_nb.conversation.event import Event, TaskStarted, ToolStarted
from casual_mcp_nb.conversation.planned import PlannedCall, PlannedCalls, ToolCalls
from casual_mcp_nb.conversation.step import ToolCall
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.doors import in_words_of
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.events import Observers
from casual_mcp_nb.engine.follower import Follower
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.engine.plan import planned_calls, resumed, run_planned
from casual_mcp_nb.engine.setup import TurnSetup
from casual_mcp_nb.engine.turn_fields import ChatOptions
from casual_mcp_nb.errors import CassetteMismatchError, UsageError, brief, shown
from casual_mcp_nb.notebook.apps import SessionApps
from casual_mcp_nb.notebook.blocking import drive_awaited, drive_blocking, on_engine_told
from casual_mcp_nb.notebook.caller import notebook_shell
from casual_mcp_nb.notebook.conversation_runner import ConversationRunner
from casual_mcp_nb.notebook.live import Echo, LiveOutput, ShownTurn, check_echo
from casual_mcp_nb.notebook.loop import CLEAN_UP_SECONDS, EngineThread
from casual_mcp_nb.notebook.open_questions import Questions
from casual_mcp_nb.notebook.questions import Channel
from casual_mcp_nb.notebook.resource_service import ResourceService
from casual_mcp_nb.notebook.saving import save
from casual_mcp_nb.notebook.starting import ServerStarter
from casual_mcp_nb.notebook.tools import SessionTools
from casual_mcp_nb.notebook.warming import warm_up, warmed_up
from casual_mcp_nb.own_tools.toolbox import NOTEBOOK

if TYPE_CHECKING:
    from casual_llm import Model
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.providers.chat_model import ChatModel

T = TypeVar("T")


@dataclass(eq=False, repr=False)
class TurnService:
    """Runs a conversation's turns, with the model and the system prompt that the person chose."""

    _chat: McpToolChat
    _config: Config
    _engine: EngineThread
    runner: ConversationRunner
    _starter: ServerStarter
    _tools: SessionTools
    _apps: SessionApps
    _resources: ResourceService
    _questions: Questions
    _observers: Observers

    @property
    def model(self) -> str | None:
        """The default model's name, or None if the config has no models."""
        return self._chat.models.default

    @model.setter
    def model(self, name: str | None) -> None:
        self._chat.models.default = name
        self.runner.save_setup()
        self._observers.changes.notify()

    @property
    def system(self) -> str | None:
        """The session's system prompt, or None for the default template.

        A turn's own prompt comes before it, and so does the template of a model.
        """
        return self._chat.system

    @system.setter
    def system(self, text: str | None) -> None:
        self._chat.system = checked_system(text)
        self.runner.save_setup()
        self._observers.changes.notify()

    def check_open(self) -> None:
        """Raise ClosedError if no further turn can begin."""
        self._engine.check_process()
        self.runner.check_open()

    async def chat(
        self,
        prompt: Prompt,
        options: ChatOptions,
        echo: Echo,
        index: int | None = None,
        recorded: Turn | None = None,
    ) -> Turn:
        """Run a turn and show it in the caller's cell.

        A coroutine on the caller's side, see `on_engine`.

        Args:
            prompt: The person's message, or messages.
            options: See `Session.chat`.
            echo: How much the cell shows.
            index: The first of the turns that it replaces, or None for none.
            recorded: A turn with steps that it begins with, see `recorded_steps`.
        """
        turn_options = self.turn_options(options)
        shows_apps = echo in ("output", "all")
        with (
            self._shown(echo, options.get("stream")) as (turn, live),
            self._start_in(live, echo) as draw,
        ):

            def drawn_with_apps(event: Event) -> None:
                if draw is not None:
                    draw(event)
                if live is not None and isinstance(event, ToolStarted) and event.app:
                    live.in_cell(partial(self._apps.show, turn))

            on_event = draw
            if live is not None and shows_apps:
                on_event = drawn_with_apps
            setup = TurnSetup(options=turn_options, turn=turn, on_event=on_event, recorded=recorded)

            def work(blocks: bool) -> Coroutine[Any, Any, Turn]:
                channel = self._channel(blocks)
                return self.run_turn(setup, prompt, options.get("attach"), channel, index)

            turn = await on_engine_told(work)
        if shows_apps:
            self._apps.show(turn)
        return turn

    async def run_turn(
        self,
        setup: TurnSetup,
        prompt: Prompt,
        attach: Any = None,
        channel: Channel = "panel",
        index: int | None = None,
    ) -> Turn:
        """Run one turn, and add it to the conversation.

        Every turn of the conversation starts here, on the engine's loop. Servers that are not
        connected yet are connected first.

        Args:
            setup: The turn's, without its messages.
            prompt: Its messages.
            attach: As in `ResourceService.with_attachments`.
            channel: Where its questions are asked.
            index: The first of the turns that it replaces, or None for none.

        Raises:
            CassetteMismatchError: The turn does not match the cassette that a session replays.
        """
        async with (
            self._questions.prompt_on(channel),
            self.runner.adding(setup, index) as within,
        ):
            warm_up()
            await self._starter.view()
            await warmed_up()
            messages = await self._resources.with_attachments(as_messages(prompt), attach)
            await self._chat.take_turn(replace(within, messages=messages))
        turn = setup.turn
        error = turn.exception
        if self._chat.tape.strict and isinstance(error, CassetteMismatchError):
            error.raised = True
            raise error
        return turn

    async def rerun(self, index: int, prompt: str | None, options: ChatOptions, echo: Echo) -> Turn:
        """Run a turn again, see `Session.rerun`."""
        index, messages = self.runner.prompt_at(index, prompt)
        return await self.chat(_repeatable(messages), options, echo, index)

    async def stream(self, prompt: Prompt, options: ChatOptions) -> AsyncGenerator[Event, None]:
        """Run a turn and yield its events, on the caller's loop. Leaving early stops the turn."""
        turn, turn_options = Turn(Trace()), self.turn_options(options)
        follower = Follower(turn.trace)
        channel = self._questions.channel_of_awaited_cells()
        setup = TurnSetup(options=turn_options, turn=turn, on_event=follower.on_event)
        work = self.run_turn(setup, prompt, options.get("attach"), channel)
        running = asyncio.ensure_future(self._engine.wait(work))
        running.add_done_callback(follower.on_end)
        try:
            async for event in follower:
                yield event
            await running
        finally:
            running.cancel()
            await asyncio.wait({running})
            if not running.cancelled():
                # A caller that left early does not read the error, about which asyncio would warn.
                running.exception()

    def submit(
        self, prompt: Prompt, options: ChatOptions, index: int | None = None
    ) -> Future[Turn]:
        """Start a turn in the background, see `Session.submit`."""
        setup = TurnSetup(options=self.turn_options(options))
        work = self.run_turn(setup, prompt, options.get("attach"), index=index)
        return self._engine.submit(work)[0]

    def paused(
        self, turn: Turn, prompt: Prompt, options: ChatOptions, channel: Channel | None
    ) -> Coroutine[Any, Any, Turn]:
        """Create a turn's work for the engine, see `notebook.pauses`.

        Args:
            turn: The turn.
            prompt: Its messages.
            options: Its options.
            channel: Where its questions are asked, or None for where cells that await ask.
        """
        setup = TurnSetup(options=self.turn_options(options), turn=turn)
        channel = channel or self._questions.channel_of_awaited_cells()
        return self.run_turn(setup, prompt, options.get("attach"), channel)

    def submit_rerun(self, index: int, prompt: str | None, options: ChatOptions) -> Future[Turn]:
        """Run a turn again without waiting for it, see `Session.rerun`."""
        index, messages = self.runner.prompt_at(index, prompt)
        return self.submit(_repeatable(messages), options, index)

    def stop(self) -> None:
        """Stop the running turn, from any thread.

        Returns when it has ended, or after half a second.
        """
        _, ended = self._engine.submit(self.runner.stop())
        if not self._engine.is_current:
            ended.wait(CLEAN_UP_SECONDS)

    def new_conversation(self, *, private: bool = False) -> None:
        """Start a new conversation. The selection stays."""
        self._chat.consent.forget()
        self._tools.context = {}
        self.runner.clear(private=private)

    def continue_from(self, history: Sequence[ChatMessage]) -> None:
        """Continue from this history: leave out later turns, or add the messages that are new."""
        turns = self.runner.turns
        if not history:
            if turns:
                self.new_conversation()
            return
        count = 0
        for number, turn in enumerate(turns):
            if count == len(history):
                self.runner.replace(turns[:number])
                return
            count += len(turn.messages)
        if count < len(history):
            self.runner.add(history[count:])

    def resume(self, id: str, *, reopened: bool = False) -> tuple[Conversation, list[str]]:
        """Continue a saved conversation.

        Args:
            id: The conversation's id.
            reopened: Whether this session was opened with the conversation's own config.

        Returns it, and a sentence for each part of its set-up that is no longer available.

        Raises:
            UsageError: A turn is running, nothing is saved, or the conversation is damaged.
            UnknownNameError: There is no conversation with that id.
        """
        self.check_open()
        self.runner.check_free()
        saver = self.runner.saver
        head = saver.required.get(id).head
        conversation = saver.open(id)
        current = saver.current
        self.new_conversation()
        saver.current = current
        self.runner.replace(conversation)
        if head.session is not None:
            saver.memory.take_over(head.session)
        self._adopt_tasks()
        self._apps.reopen(self.runner.turns)
        own_session = None
        if not reopened:
            own_session = id
        return conversation, self.set_up(head, own_session)

    def _adopt_tasks(self) -> None:
        """Continue the tasks of the conversation that was resumed."""
        tasks, turns = self.runner.tasks, self.runner.turns
        if tasks is None or not any(turn.trace.all_of(TaskStarted) for turn in turns):
            return

        async def adopt() -> None:
            tasks.adopt(turns)

        adopted, _ = self._engine.submit(adopt())
        if not self._engine.is_current:
            adopted.result()

    def fork(self, turn: int) -> Conversation:
        """Continue in a new conversation with the turns up to this one, see
        `SessionConversations.fork`.
        """
        self.check_open()
        index, _ = self.runner.prompt_at(turn)
        turns = self.runner.turns[: index + 1]
        self.runner.saver.fork(index)
        self.runner.replace(turns)
        save(self.runner.saver.current, turns)
        return self.runner.conversation

    async def fork_at(
        self,
        step: int,
        turn: int,
        result: str | Mapping[str, str] | None,
        text: str | None,
        options: ChatOptions,
        echo: Echo,
    ) -> Turn:
        """Continue from a step in a new conversation, see `SessionConversations.fork_at`.

        A coroutine on the caller's side.
        """
        self.check_open()
        index, _ = self.runner.prompt_at(turn)
        forked = self.runner.turns[index]
        recorded = recorded_steps(forked, step, result=result, text=text)
        runner = self.runner
        turns, current = runner.turns, runner.saver.current

        def go_back() -> None:
            runner.saver.current = current
            runner.replace(turns)

        try:
            runner.saver.fork(index, step % len(forked.steps))
            runner.replace(turns[:index])
            before = runner.turns
        except BaseException:
            go_back()
            raise
        try:
            return await self.chat(recorded.prompt_messages, options, echo, recorded=recorded)
        finally:
            if runner.turns is before and len(before) == index:
                # The turn could not begin, so the conversation stays as it was.
                go_back()

    def set_up(self, head: ConversationHead, own_session: str | None = None) -> list[str]:
        """Set up the session as it was for a conversation.

        Args:
            head: The conversation's settings.
            own_session: The id with which the conversation's own session can be opened instead, or
                None if this is the one.

        Returns a sentence for each part that is no longer available.
        """
        with self.runner.setting_up():
            return list(self._set_up(head, own_session))

    def _set_up(self, head: ConversationHead, own_session: str | None) -> Iterator[str]:
        model = None
        if head.model is not None:
            model = self._config.model_named(head.model)
        if model is not None:
            self.model = model
        elif head.model is not None:
            yield f"There is no model {shown(head.model)} here: {self.model or 'none'} is used."
        if head.selection:
            # A conversation that was added from a file has no set-up.
            self.system = head.system
        lost: Mapping[str, str] = {}
        if head.session is not None:
            lost = head.session.lost
        for name, value in head.selection.items():
            if name not in type(self._chat.selection).model_fields:
                yield f"The selection has no {shown(name)}, which the conversation has."
                continue
            if name == "servers" and isinstance(value, Mapping):
                # A server that is gone costs the others nothing.
                modes: dict[str, Any] = {}
                missing: list[str] = []
                for server, mode in value.items():
                    if server == NOTEBOOK or server in self._chat.server_manager.names:
                        modes[server] = mode
                    elif server in lost:
                        yield f"{shown(server)} is not back. {lost[server]}"
                    elif own_session is None:
                        yield f"{shown(server)} is not back. There is no such server any more."
                    else:
                        missing.append(shown(server))
                hint = ""
                if head.session is not None and "config" not in lost:
                    hint = in_words_of(
                        "To open the conversation with its own servers, before it continues here:"
                        f" %mcp close, then %mcp resume {own_session}"
                    )
                if missing:
                    yield f"The open session does not have {', '.join(missing)}. {hint}".rstrip()
                value = modes
            try:
                setattr(self._chat.selection, name, value)
            except UsageError as error:
                yield f"{name} of the selection stays as it is: {error}"

    def turn_options(self, options: ChatOptions) -> TurnOptions:
        """Build a turn's options for the engine.

        Without a model or a step mode, the session's are used.

        Raises:
            ClosedError: The session is closed.
            UsageError: An option is not valid.
        """
        self.check_open()
        fields: dict[str, Any] = {**options}
        fields.pop("attach", None)
        gate = self._questions.gate(fields.pop("step", None), self.runner.cancel)
        if fields.get("model") is None:
            fields["model"] = self.model
        return TurnOptions(**fields, gate=gate)

    async def ready_model(self, model: str | Model | ChatModel | None) -> ChatModel:
        """Get a model that is ready to be called. None is the session's."""
        if model is None:
            model = self.model
        return await self._chat.ready_model(model)

    async def run_separately(
        self, prompt: Prompt, options: TurnOptions, history: Sequence[ChatMessage]
    ) -> Turn:
        """Run a turn on the engine's loop that does not become part of the conversation."""
        await self._starter.view()
        setup = TurnSetup(messages=as_messages(prompt), options=options, history=history)
        return await self._chat.take_turn(setup)

    async def plan(self, prompt: Prompt, options: ChatOptions) -> PlannedCalls:
        """Plan the model's calls, see `Session.plan`.

        A coroutine on the caller's side, see `on_engine`.
        """
        turn_options, turns = self.turn_options(options), list(self.runner.turns)
        with self._starter.shown():
            work = self._plan(prompt, turn_options, options.get("attach"), turns)
            turn, catalog = await on_engine_told(partial(self._asking, work))
        turn.raise_for_status()
        custom = [tool.spec for tool in self._chat.tools.custom]
        calls = planned_calls(turn, catalog, custom, self._chat.server_manager.worker)
        step = turn.steps[-1].index

        async def steps(chosen: Sequence[PlannedCall]) -> ToolCalls:
            self.check_open()
            work = self._run_planned(chosen, turn_options, step, turns)
            return ToolCalls(await on_engine_told(partial(self._asking, work)))

        async def go_on(echo: Echo) -> Turn:
            if list(map(id, self.runner.turns)) != list(map(id, turns)):
                raise UsageError(
                    "The conversation has continued since this was planned.",
                    hint="Plan again: session.plan(…).",
                )
            given = options.copy()
            # What was attached is one of the messages now.
            given.pop("attach", None)
            recorded = resumed(turn, calls)
            return await self.chat(recorded.prompt_messages, given, echo, recorded=recorded)

        def run(chosen: Sequence[PlannedCall]) -> ToolCalls:
            return drive_blocking(self._engine, steps(chosen))

        def run_async(chosen: Sequence[PlannedCall]) -> Coroutine[Any, Any, ToolCalls]:
            return drive_awaited(self._engine, steps(chosen))

        def go_on_blocking(echo: Echo) -> Turn:
            return drive_blocking(self._engine, go_on(echo))

        def go_on_async(echo: Echo) -> Coroutine[Any, Any, Turn]:
            return drive_awaited(self._engine, go_on(echo))

        return PlannedCalls(turn, calls, run, run_async, go_on_blocking, go_on_async)

    async def _plan(
        self, prompt: Prompt, options: TurnOptions, attach: Any, turns: Sequence[Turn]
    ) -> tuple[Turn, Catalog]:
        warm_up()
        await self._starter.view()
        await warmed_up()
        messages = await self._resources.with_attachments(as_messages(prompt), attach)
        history: list[ChatMessage] = []
        before: Turn | None = None
        for before in turns:
            history.extend(before.messages)
        setup = TurnSetup(
            messages=messages, options=options, history=history, before=before, plan_only=True
        )
        with self._chat.toolbox.injecting(options.given.get("context") or ()):
            turn = await self._chat.take_turn(setup)
            catalog = self._chat.catalog
        await self._chat.tools.update_known()
        return turn, catalog

    async def _run_planned(
        self, calls: Sequence[PlannedCall], options: TurnOptions, step: int, turns: Sequence[Turn]
    ) -> list[ToolCall]:
        await self._starter.view()
        at, messages = time.time(), Conversation(turns).messages
        on_event = self._chat.audit.follow()
        calls_run = await run_planned(self._chat, calls, options, step, on_event, messages)
        await self._chat.tools.update_known()
        for call in calls_run:
            self._tools.recorded.add(at, call)
        return calls_run

    def _channel(self, blocks: bool) -> Channel:
        if blocks:
            return "input"
        return self._questions.channel_of_awaited_cells()

    async def _asking(self, work: Coroutine[Any, Any, T], blocks: bool) -> T:
        """Do work whose questions are asked in the cell that waits for it."""
        async with self._questions.prompt_on(self._channel(blocks)):
            return await work

    @contextmanager
    def _shown(self, echo: Echo, stream: bool | None) -> Iterator[tuple[Turn, LiveOutput | None]]:
        """Make a turn, and show it in its cell while the body runs.

        Yields the turn, and its display, or None if there is no cell or `echo` is `none`.
        """
        check_echo(echo)
        shell = notebook_shell()
        if shell is None or echo == "none":
            yield Turn(Trace()), None
            return
        turn = ShownTurn(Trace(), shell)
        live = LiveOutput(self._engine, turn, echo, streamed=stream is not False)
        turn.redraw = live.redraw
        try:
            live.begin()
            yield turn, live
        finally:
            live.finish()

    @contextmanager
    def _start_in(
        self, live: LiveOutput | None, echo: Echo
    ) -> Iterator[Callable[[Event], None] | None]:
        """Show how servers start, in the turn's display if it has one.

        Yields the function that takes the turn's events, or None.
        """
        if live is None:
            quiet = echo == "none" or notebook_shell() is not None
            with self._starter.shown(quiet=quiet):
                yield None
            return
        with self._starter.shown(handle=live.handle) as display:
            if display is None:
                yield live.on_event
                return

            def on_event(event: Event) -> None:
                display.stop()
                live.on_event(event)

            yield on_event


def checked_system(text: str | None) -> str | None:
    """Raise UsageError if `text` cannot be a system prompt."""
    if text is not None and not isinstance(text, str):
        raise UsageError(
            f"system cannot be {brief(text)}.", hint="It must be a string, or None for a template."
        )
    return text


def _repeatable(messages: list[ChatMessage]) -> list[ChatMessage]:
    if not messages:
        raise UsageError(
            "This turn was added without a message of yours, so there is nothing to ask again."
        )
    return messages
