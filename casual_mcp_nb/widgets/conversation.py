"""The chat panel, and its main state: the conversation with its questions and commands."""

from __future__ import annotations

import asyncio
import base64
import importlib
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Unpack
from weakref import WeakSet

from casual_mcp_nb.base.content import MAX_BYTES, media_type_of, pictures_of
from casual_mcp_nb.base.mcp import PromptMessages, ResourceContents
from casual_mcp_nb.bundled import BUNDLED
from casual_mcp_nb.conversation.conversation import Conversation, Prompt
from casual_mcp_nb.conversation.event import Event, TurnStarted
from casual_mcp_nb.conversation.step import ComingRequest
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.display.render import style
from casual_mcp_nb.display.words import first
from casual_mcp_nb.engine.turn_fields import ChatOptions, spelled_out
from casual_mcp_nb.errors import CasualMcpError, UsageError
from casual_mcp_nb.notebook.app import App
from casual_mcp_nb.notebook.live import Throttle
from casual_mcp_nb.notebook.parts import SessionParts
from casual_mcp_nb.notebook.resource_service import several
from casual_mcp_nb.notebook.step_mode import StepQuestion
from casual_mcp_nb.views import request_html
from casual_mcp_nb.widgets._rows import MAX_NAME, audit_rows
from casual_mcp_nb.widgets._transcript import (
    MAX_TOGETHER,
    MAX_TURNS,
    SECONDS_BETWEEN_DRAWINGS,
    Attached,
    Copied,
    Transcript,
    copied,
    give,
    row_of,
    with_attached,
)
from casual_mcp_nb.widgets.app import AppsState
from casual_mcp_nb.widgets.base import (
    AcceptsConfig,
    HasParts,
    Layout,
    SessionWidget,
    State,
    command,
    unaccepted,
)
from casual_mcp_nb.widgets.conversations import ConversationsState
from casual_mcp_nb.widgets.limits import LimitsState
from casual_mcp_nb.widgets.resources import ResourcesState
from casual_mcp_nb.widgets.tokens import TokensState

PLANNER = "Offline demo planner (not an LLM)"


class ConversationState(AcceptsConfig, State):
    """The transcript, the running turn, the questions, and the choice of model and toolset.

    Once a front end has shown it, turns in awaited cells ask there, if clicks arrive while such a
    cell runs.

    Args:
        session: The session.
        options: For its turns, see `Session.chat`. A model given here is the only one to choose.
    """

    def __init__(self, session: HasParts, **options: Unpack[ChatOptions]) -> None:
        super().__init__(session)
        self._turns = session.parts.turn_service
        self._options = options
        # The time that a running call has taken moves on without any event.
        self._redraw = Throttle(
            session.parts.engine, self.changed, SECONDS_BETWEEN_DRAWINGS, self._is_busy
        )
        self._transcript = Transcript(again=self._redraw)
        self._own: WeakSet[Turn] = WeakSet()
        self._pending: str | None = None
        # While it is there, the message on its way waits for imports, and setting it stops that.
        self._stopped: asyncio.Event | None = None
        self._seen = False
        self.follow(session.parts.observers.events.add(self._on_event))
        self.follow(session.parts.observers.changes.add(self.changed))
        self.follow(session.parts.chat.selection.watch(self.changed))
        self.follow(self._redraw.end)
        if self._is_busy():
            self._redraw()

    def _is_busy(self) -> bool:
        return self._turns.runner.busy

    def snapshot(self) -> dict[str, Any]:
        """Collect the panel's whole state."""
        parts, turns, busy = self.parts, self._turns.runner.turns, self._is_busy()
        rows = self._transcript.rows(turns)
        for turn in turns[len(turns) - len(rows) :]:
            apps = parts.apps.opened_in(turn)
            if apps:
                key = self._transcript.key(turn)
                rows[key] = {**rows[key], "apps": [app.id for app in apps]}
        questions = {}
        for order, question in enumerate(parts.questions):
            questions[question.id] = row_of(question, order)
        attached = parts.resource_service.pending.items()
        return {
            "turns": rows,
            "earlier": len(turns) - len(rows),
            "pending": self._pending,
            "busy": busy,
            "in_cell": busy and parts.questions.by_input,
            "doing": self._doing(),
            "said": self._transcript.announcement,
            **self._chosen_model(),
            **self._chosen_tool_set(),
            "step_mode": parts.consent.step_mode,
            "examples": [] if turns else self._examples(),
            "image_limits": {"each": MAX_BYTES, "together": MAX_TOGETHER},
            "attached": {id: _label(attachment) for id, attachment in attached},
            "questions": questions,
            "calls": parts.consent.call_count,
            "unaccepted": unaccepted(parts),
        }

    def _chosen_model(self) -> dict[str, Any]:
        fixed = self._options.get("model")
        name = fixed if isinstance(fixed, str | None) else fixed.name
        if not name:
            return {"models": self._models(), "model": self._turns.model}
        return {"models": [[name, name]], "model": name}

    def _chosen_tool_set(self) -> dict[str, Any]:
        chosen = self.parts.chat.selection.tool_set
        named = isinstance(chosen, str)
        return {
            "tool_sets": list(self.parts.chat.tool_sets),
            "tool_set": chosen if named else None,
            "custom": chosen is not None and not named,
        }

    def _doing(self) -> str:
        if self._pending is None:
            return self._transcript.doing
        return self._waiting()

    @command
    def seen(self) -> None:
        """Note that a person sees the panel and can answer there.

        Connects servers first if needed.
        """
        if not self._seen:
            self._seen = True
            self.follow(self.parts.questions.panel_opened())
            self.parts.engine.submit(self._connect())

    def _models(self) -> list[list[str]]:
        config = self.parts.config
        planners = set()
        for name, model in config.models.items():
            if config.clients[model.client].provider == "offline":
                planners.add(name)
        models = []
        for name in config.models:
            label = name
            if name in planners:
                label = PLANNER if len(planners) == 1 else f"{PLANNER}: {name}"
            models.append([name, label])
        return models

    def _examples(self) -> list[str]:
        """List questions to begin with, for the bundled servers that are there."""
        examples = []
        for server in self.parts.config.servers.values():
            if server.bundled and (example := BUNDLED[server.bundled].example):
                examples.append(example)
        return examples

    async def _connect(self) -> None:
        # Failures are shown where they matter: in a server's status, or when a turn cannot start.
        with suppress(CasualMcpError):
            await self.parts.starter.start()

    @command
    async def send(self, prompt: str, images: list[Attached] | None = None) -> None:
        """Send a message. Returns when the turn has started.

        Args:
            prompt: The text.
            images: PNG, JPEG, GIF or WebP, each with `name` and `data`, which is base64. In Python:
                `session.chat(images=…)`.

        Raises:
            UsageError: There is nothing to send, an image is not valid, or a turn is running. Other
                errors that keep a turn from starting are raised too, see `Session.chat`.
        """
        if not prompt.strip():
            raise UsageError("There is nothing to send: write a message first.")
        message: Prompt = prompt
        if images:
            # What it holds is imported only where it is needed, which is not on the loop.
            message = await asyncio.to_thread(with_attached, prompt, images)
        pending = self.parts.resource_service.take_pending()
        options = self._options
        if pending:
            attach = [*several(options.get("attach")), *pending.values()]
            options = {**options, "attach": attach}
        try:
            await self._begin(partial(self._turns.submit, message, options), prompt)
        except BaseException:
            self.parts.resource_service.restore_pending(pending)
            raise

    @command
    def detach(self, id: str) -> None:
        """Drop a resource or a prompt that would go with the next message."""
        self.parts.resource_service.remove_pending(id)

    @command
    async def rerun(self, turn: str, prompt: str | None = None) -> None:
        """Run a turn again, which removes those after it. Returns when the new turn has started.

        Args:
            turn: Its key in the transcript.
            prompt: Another text. None sends the same.

        Raises:
            UsageError: The turn is no longer there, or one is running.
        """
        if prompt is not None and not prompt.strip():
            raise UsageError("There is nothing to send: write a message first.")
        index = self._index(turn)
        shown = self._turns.runner.turns[index].prompt if prompt is None else prompt
        start = partial(self._turns.submit_rerun, index, prompt, self._options)
        await self._begin(start, shown)

    @command
    async def request(self, turn: str, step: int) -> str:
        """Render a step's exact request to the model as HTML.

        In Python: `session.turns[i].steps[j].request`.

        Raises:
            UsageError: There is no such turn or step.
        """
        steps = self._turns.runner.turns[self._index(turn)].steps
        if not 1 <= step <= len(steps):
            raise UsageError(f"This turn has no step {step}.")
        return await asyncio.to_thread(request_html, steps[step - 1].request)

    @command
    async def coming_request(self, question: str) -> str:
        """Render the coming step's exact request as HTML.

        In Python: `session.questions[0].request`.

        Raises:
            UsageError: It is no longer open.
        """
        pause = self.parts.questions.by_id(question)
        if not isinstance(pause, StepQuestion):
            raise UsageError("This question is not about a request.")
        return await asyncio.to_thread(request_html, ComingRequest(pause.request))

    @command
    async def image(self, turn: str, index: int) -> str:
        """Encode an image from a turn's prompt as a `data:` address.

        Args:
            turn: The turn's key in the transcript.
            index: Which image, from 0.

        Raises:
            UsageError: There is no such image.
        """
        pictures = pictures_of(self._turns.runner.turns[self._index(turn)].started.messages)
        data = pictures[index].data if 0 <= index < len(pictures) else b""
        kind = media_type_of(data)
        if kind is None:
            raise UsageError("This turn has no such image.")
        return f"data:{kind};base64,{base64.b64encode(data).decode()}"

    @command
    def copy(self, turn: str, what: Copied, call: str | None = None) -> str:
        """Extract a text from a turn, to be copied.

        Raises:
            UsageError: There is no such text.
        """
        whole = self._turns.runner.turns[self._index(turn)]
        return copied(whole, what, call, self._differences(whole))

    def _differences(self, turn: Turn) -> dict[str, Any]:
        """Collect a turn's options that the next `chat` would not have by itself."""
        started, selection = turn.started, self.parts.chat.selection
        options: dict[str, Any] = {}
        if turn in self._own:
            for name, value in self._options.items():
                if isinstance(value, str | int | float):
                    options[name] = value
        if started.model in self.parts.config.models and started.model != self._turns.model:
            options["model"] = started.model
        if started.tool_set in self.parts.chat.tool_sets and started.tool_set != selection.tool_set:
            options["tool_set"] = started.tool_set
        return options

    @command
    def audit(self) -> list[dict[str, Any]]:
        """List the session's last calls, the newest first. `session.consent.audit` has them all."""
        return audit_rows(self.parts.consent.audit)

    @command
    def stop(self) -> None:
        """Stop the running turn, or the message that is on its way."""
        if self._stopped is not None:
            self._stopped.set()
        self._turns.stop()

    @command
    def undo(self) -> str:
        """Remove the last turn, and return its prompt.

        Raises:
            UsageError: There is none, or it is running.
        """
        turn = self._turns.runner.undo()
        if turn is None:
            raise UsageError("There is no turn to undo.")
        return turn.prompt

    @command
    def clear(self) -> None:
        """Start a new conversation.

        Raises:
            UsageError: A turn is running.
        """
        if self._turns.runner.busy:
            raise UsageError("A turn is running: stop it first.")
        self._turns.new_conversation()

    @command
    def set_model(self, name: str) -> None:
        """Choose the model for future turns."""
        if self._options.get("model") is not None:
            raise UsageError(
                "This panel was opened for one model.",
                hint="Open another panel with session.panel().",
            )
        self._turns.model = name

    @command
    def set_tool_set(self, name: str | None = None) -> None:
        """Choose the toolset for future turns, or None for all tools."""
        self.parts.chat.selection.tool_set = name

    @command
    def set_step_mode(self, on: bool) -> None:
        """Pause before each model call, or not."""
        self.parts.consent.step_mode = on

    @command
    def answer(self, question: str, answer: str, values: dict[str, Any] | None = None) -> None:
        """Answer a question by its id, see `give`.

        Raises:
            UsageError: It is no longer open, or the answer is not valid.
        """
        open_question = self.parts.questions.by_id(question)
        if open_question.channel != "panel":
            raise UsageError("This question is asked in the running cell: answer it there.")
        give(open_question, answer, values or {})

    def _index(self, turn: str) -> int:
        keys = list(map(self._transcript.key, self._turns.runner.turns))
        if turn not in keys:
            raise UsageError("This turn is no longer part of the conversation.")
        return keys.index(turn)

    async def _begin(self, start: Callable[[], Future[Turn]], prompt: str) -> None:
        """Start a turn and wait until it has started.

        Raise the error that keeps it from starting.
        """
        loop = asyncio.get_running_loop()
        started = asyncio.Event()

        def on_event(turn: Turn, event: Event) -> None:
            if isinstance(event, TurnStarted):
                self._own.add(turn)
                started.set()

        def on_end(_future: Future[Turn], _parts: SessionParts = self.parts) -> None:
            # It has the session's parts, so that nothing collects them before the turn has ended.
            loop.call_soon_threadsafe(started.set)

        cancel = self.parts.observers.events.add(on_event)
        self._pending = prompt
        self.changed()
        try:
            await self._imported()
            future = start()
            future.add_done_callback(on_end)
            await started.wait()
        finally:
            cancel()
            self._pending = None
            self.changed()
        if future.done():
            future.result()

    async def _imported(self) -> None:
        """Import every SDK, which takes a second or more and would block the loop.

        Raises:
            UsageError: It was stopped meanwhile.
        """
        self._stopped = asyncio.Event()
        self.changed()
        imports = asyncio.ensure_future(asyncio.to_thread(importlib.import_module, "casual_llm"))
        stop = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait({imports, stop}, return_when=asyncio.FIRST_COMPLETED)
            if stop.done():
                raise UsageError("The turn was stopped before it began. Nothing was sent.")
            await imports
        finally:
            self._stopped = None
            stop.cancel()
            self.changed()

    def _waiting(self) -> str:
        """Describe why the next message is still waiting."""
        servers = self.parts.chat.server_manager.statuses.values()
        starting = sum(server.state == "starting" for server in servers)
        if starting:
            return f"Starting servers: {len(servers) - starting} of {len(servers)} ready …"
        if self._stopped is not None:
            return "Loading the model's libraries …"
        return "Asking the model …"

    def _on_event(self, turn: Turn, event: Event) -> None:
        self._transcript.note(turn, event, len(self._turns.runner.turns))
        self._redraw()


def _label(attachment: ResourceContents | PromptMessages) -> str:
    name = attachment.uri if isinstance(attachment, ResourceContents) else attachment.name
    return f"{first(attachment.server, MAX_NAME)}: {first(name, MAX_NAME)}"


class Panel(SessionWidget):
    """A chat with the session's model: message box, transcript, approvals, servers' forms, step
    mode, tokens.

    In Python: `session.submit`, `session.stop`, `session.questions`, `session.consent.step_mode`,
    `session.rerun`, `session.undo`, `session.conversations.new`, `session.conversations.resume`,
    `session.tools.unload`.

    Args:
        session: The session. Turns from cells and other panels show here too.
        options: For turns started here, see `Session.chat`.
    """

    bundle = "panel"
    more_css = style()
    footer = "Ask a question: run this cell to get the live panel."

    @spelled_out(ChatOptions)
    def __init__(
        self, session: HasParts, layout: Layout | None = None, **options: Unpack[ChatOptions]
    ) -> None:
        self.conversation = ConversationState(session, **options)
        self.tokens = TokensState(session)
        self.limits = LimitsState(session)
        self.resources = ResourcesState(session)
        self.conversations = ConversationsState(session)
        self.apps = AppsState(session, self._apps_of_turns)
        super().__init__(
            session,
            layout,
            conversation=self.conversation,
            tokens=self.tokens,
            limits=self.limits,
            resources=self.resources,
            conversations=self.conversations,
            apps=self.apps,
        )

    def _apps_of_turns(self) -> list[App]:
        parts = self.session.parts
        apps: list[App] = []
        for turn in parts.runner.turns[-MAX_TURNS:]:
            apps += parts.apps.opened_in(turn)
        return apps

    def static(self) -> Conversation:
        """Get the conversation as it is now."""
        return self.session.parts.runner.conversation
