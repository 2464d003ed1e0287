"""Talking with the model: turns that a cell waits for, turns that nobody waits for, and going back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Unpack

from casual_mcp_nb.engine.before_model_call import BeforeModelCall
from casual_mcp_nb.engine.follower import Follower
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.engine.signatures import spelled_out
from casual_mcp_nb.errors import UsageError, brief
from casual_mcp_nb.notebook.control import SessionControl
from casual_mcp_nb.notebook.images import with_images
from casual_mcp_nb.notebook.interaction.questions import Channel
from casual_mcp_nb.notebook.live import Echo, LiveOutput, check_echo
from casual_mcp_nb.notebook.loop import CLEAN_UP_SECONDS
from casual_mcp_nb.notebook.options import ChatOptions
from casual_mcp_nb.notebook.shell import notebook_shell
from casual_mcp_nb.notebook.shown import ShownTurn
from casual_mcp_nb.notebook.warming import warm_up, warmed_up
from casual_mcp_nb.types.event import Event
from casual_mcp_nb.types.trace import Trace, Turn

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

Prompt = str | Sequence["ChatMessage"]


class SessionTalk(SessionControl):
    """The part of `Session` that runs turns."""

    @spelled_out(ChatOptions)
    def chat(
        self,
        prompt: str | Sequence[ChatMessage],
        *,
        images: Any = None,
        echo: Echo = "output",
        **options: Unpack[ChatOptions],
    ) -> Turn:
        """Say something, and go on with the conversation.

        Args:
            prompt: The text, or messages to add.
            images: One image or several, for models that can see: bytes, the path of a file, an address (`https://…`), which
                the provider fetches, or an object with `savefig` or `save`, such as a figure of matplotlib or an image of
                Pillow.
            echo: What a notebook shows live: `none`, `text` (the answer alone), `output` (the usual display), or `all`.
            model: Name of a model of the config, or a model object; None for the session's.
            tool_set: Name of a toolset for this turn; None for the selection's.
            system: The system prompt for this turn; None for the session's, or the template's.
            template: File in `prompt-templates/` for this turn; None for the model's.
            discovery: Whether deferred tools are hidden behind the search tool in this turn; None for the selection's.
            max_steps: Calls of the model at most; None for the config's limit.
            stream: False asks the model for each answer in one piece; otherwise its text is shown as it arrives, where the
                provider streams.
            variables: More variables for the template.
            meta: Handed through to the servers with each call.
            step: Whether to pause before each model call, or what to await there, see `BeforeModelCall`; None for the session's
                `step_mode`.
            options: These, and those of `ModelOptions`, such as `temperature`, which go to the model.

        Returns:
            The turn. When the model or a limit failed it, its status is `failed` and `raise_for_status` raises; when it was
            stopped by `stop` or in a panel, its status is `stopped`.

        Raises:
            UsageError: An option or a name does not exist; nothing was sent.
            KeyboardInterrupt: It was interrupted; the turn is in `turns`, marked as stopped, and the conversation is valid.
        """
        return self._wait_for(with_images(prompt, images), self._options(options), echo)

    @spelled_out(ChatOptions)
    async def chat_async(
        self,
        prompt: str | Sequence[ChatMessage],
        *,
        images: Any = None,
        echo: Echo = "output",
        **options: Unpack[ChatOptions],
    ) -> Turn:
        """`chat`, awaited; takes the same arguments.

        Raises:
            CancelledError: It was interrupted or cancelled; the turn is in `turns`, marked as stopped.
        """
        return await self._await(with_images(prompt, images), self._options(options), echo)

    @spelled_out(ChatOptions)
    async def stream(
        self, prompt: str | Sequence[ChatMessage], *, images: Any = None, **options: Unpack[ChatOptions]
    ) -> AsyncIterator[Event]:
        """Say something, and follow the turn event by event, on the loop of the caller.

        Args:
            prompt: The text, or messages to add.
            images: As of `chat`.
            options: As of `chat`.

        Yields:
            The events of the turn; the last one is `TurnFinished`. Leaving the loop early stops the turn.

        Raises:
            UsageError: A name does not exist, or another turn is running; nothing was sent.
        """
        turn, wanted = Turn(Trace()), self._options(options)
        follower = Follower(turn.trace)
        surface = self._questions.surface_of_awaited_cells()
        work = self._take(turn, with_images(prompt, images), wanted, follower.on_event, surface, None)
        running = asyncio.ensure_future(self.engine.wait(work))
        running.add_done_callback(follower.on_end)
        try:
            async for event in follower:
                yield event
            await running
        finally:
            running.cancel()
            await asyncio.wait({running})
            if not running.cancelled():
                # Whoever left early does not ask how it ended, and asyncio would report that as forgotten.
                running.exception()

    @spelled_out(ChatOptions)
    def submit(
        self, prompt: str | Sequence[ChatMessage], *, images: Any = None, **options: Unpack[ChatOptions]
    ) -> Future[Turn]:
        """Start a turn without a cell that waits for it; `observe` follows it.

        What it asks the person waits in `questions`; `input()` is not used.

        Args:
            prompt: The text, or messages to add.
            images: As of `chat`.
            options: As of `chat`.

        Returns:
            Becomes the turn; cancelling it stops the turn.
        """
        return self._start(with_images(prompt, images), self._options(options))

    def stop(self) -> None:
        """Stop the running turn, from any thread: what it has stays in `turns`, marked as stopped.

        Returns when it has ended, after half a second at most; on the engine's thread at once. Harmless when nothing runs.
        """
        _, ended = self.engine.submit(self._runner.stop())
        if not self.engine.is_current:
            ended.wait(CLEAN_UP_SECONDS)

    async def stop_async(self) -> None:
        """`stop`, awaited."""
        await self.engine.wait(self._runner.stop())

    def undo(self) -> Turn | None:
        """Take back the last turn of the conversation, with what it has discovered.

        Returns:
            The turn; None where there is none.

        Raises:
            UsageError: A turn is running.
        """
        return self._runner.undo()

    @spelled_out(ChatOptions)
    def rerun(
        self, index: int = -1, prompt: str | None = None, *, echo: Echo = "output", **options: Unpack[ChatOptions]
    ) -> Turn:
        """Go back to before a turn, and ask again; that turn and those after it leave the conversation.

        Args:
            index: The turn's place in `turns`.
            prompt: Another text in the place of what was asked, whose images stay; None asks the same.
            echo: As of `chat`.
            options: As of `chat`; what is not given is the session's present choice.

        Raises:
            UsageError: There is no such turn, an option or a name does not exist, or a turn is running; the conversation is
                as before.
        """
        place, asked = self._runner.asked_at(index, prompt)
        return self._wait_for(asked, self._options(options), echo, place)

    @spelled_out(ChatOptions)
    async def rerun_async(
        self, index: int = -1, prompt: str | None = None, *, echo: Echo = "output", **options: Unpack[ChatOptions]
    ) -> Turn:
        """`rerun`, awaited; takes the same arguments."""
        place, asked = self._runner.asked_at(index, prompt)
        return await self._await(asked, self._options(options), echo, place)

    @spelled_out(ChatOptions)
    def submit_rerun(self, index: int = -1, prompt: str | None = None, **options: Unpack[ChatOptions]) -> Future[Turn]:
        """`rerun` as `submit` does it."""
        place, asked = self._runner.asked_at(index, prompt)
        return self._start(asked, self._options(options), place)

    def new_conversation(self) -> None:
        """Start another conversation: nothing said, nothing discovered, nothing approved. The selection stays."""
        self._chat.consent.forget()
        self._runner.clear()

    def _options(self, options: ChatOptions) -> TurnOptions:
        self.check_open()
        fields: dict[str, Any] = {**options}
        gate = self._gate(fields.pop("step", None))
        if fields.get("model") is None:
            fields["model"] = self.model
        return TurnOptions(**fields, gate=gate)

    def _gate(self, step: bool | BeforeModelCall | None) -> BeforeModelCall:
        if callable(step):
            return step
        if step is not None and not isinstance(step, bool):
            raise UsageError(f"step cannot be {brief(step)}.", hint="Give True, False, None, or a `BeforeModelCall`.")
        return self._questions.gate(lambda: self.step_mode if step is None else step, self._runner.cancel)

    def _wait_for(self, prompt: Prompt, options: TurnOptions, echo: Echo, place: int | None = None) -> Turn:
        with _shown(echo, options.stream) as (turn, live), self._start_in(live, echo) as on_event:
            return self.engine.run(self._take(turn, prompt, options, on_event, "input", place))

    async def _await(self, prompt: Prompt, options: TurnOptions, echo: Echo, place: int | None = None) -> Turn:
        with _shown(echo, options.stream) as (turn, live):
            surface = self._questions.surface_of_awaited_cells()
            with self._start_in(live, echo) as on_event:
                return await self.engine.wait(self._take(turn, prompt, options, on_event, surface, place))

    @contextmanager
    def _start_in(self, live: LiveOutput | None, echo: Echo) -> Iterator[Callable[[Event], None] | None]:
        """Show how servers start in the place where the turn is shown then; gives what takes the events of the turn."""
        quiet = live is None and (echo == "none" or notebook_shell() is not None)
        with self.start_shown(quiet=quiet, handle=live.handle if live else None) as display:
            if live is None or display is None:
                yield live.on_event if live else None
                return

            def on_event(event: Event) -> None:
                display.stop()
                live.on_event(event)

            yield on_event

    def _start(self, prompt: Prompt, options: TurnOptions, place: int | None = None) -> Future[Turn]:
        return self.engine.submit(self._take(Turn(Trace()), prompt, options, None, "panel", place))[0]

    async def _take(
        self,
        turn: Turn,
        prompt: Prompt,
        options: TurnOptions,
        on_event: Callable[[Event], None] | None,
        surface: Channel,
        place: int | None,
    ) -> Turn:
        async def begin() -> Sequence[ChatMessage]:
            warm_up()
            await self._view()
            await warmed_up()
            return as_messages(prompt)

        with self._questions.prompt_on(surface):
            return await self._runner.take(turn, begin, options, on_event, place)


def as_messages(prompt: Prompt) -> list[ChatMessage]:
    """A prompt as the messages that it adds."""
    from casual_llm.messages import UserMessage

    return [UserMessage(content=prompt)] if isinstance(prompt, str) else list(prompt)


@contextmanager
def _shown(echo: Echo, stream: bool | None) -> Iterator[tuple[Turn, LiveOutput | None]]:
    """A turn that its cell shows while the body runs, where there is a cell and `echo` wants it."""
    check_echo(echo)
    shell = notebook_shell() if echo != "none" else None
    turn = ShownTurn(Trace(), shell) if shell else Turn(Trace())
    live = LiveOutput(turn, echo, streamed=stream is not False) if shell and echo != "none" else None
    try:
        yield turn, live
    finally:
        if live:
            live.finish()
