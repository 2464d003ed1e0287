"""Step mode: a turn pauses before each model call.

At a pause, a person answers a `StepQuestion`, or code changes a `Pause` (`notebook/pauses.py`).
Both read a request's `StepTexts`, and give a `StepAnswer` to the turn's `StepGate`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from casual_mcp_nb.conversation.event import Request
from casual_mcp_nb.conversation.step import text_of
from casual_mcp_nb.engine.edits import MessageEdit, RequestEdit, editable
from casual_mcp_nb.errors import UsageError, brief
from casual_mcp_nb.notebook.questions import Channel, Question


class StepAnswer(NamedTuple):
    """How a turn continues after a pause.

    Args:
        action: `next` sends the request, `run` does so and ends the pauses, `stop` ends the turn.
        edits: What is changed in the request before it is sent.
    """

    action: Literal["next", "run", "stop"]
    edits: Sequence[RequestEdit] = ()


class StepGate:
    """Pauses one turn before each model call. It is the turn's `BeforeModelCall`.

    Args:
        ask: Awaits the answer for a step and its request. It returns None to go on without a pause.
        stop: Stops the turn.
    """

    def __init__(
        self,
        ask: Callable[[int, Request], Awaitable[StepAnswer | None]],
        stop: Callable[[], None],
    ) -> None:
        self._ask = ask
        self._stop = stop
        self._runs_on = False

    async def __call__(self, step: int, request: Request) -> Sequence[RequestEdit] | None:
        """Wait for the answer. Returns its edits, or None if there was no pause."""
        if self._runs_on:
            return None
        answer = await self._ask(step, request)
        if answer is None:
            return None
        if answer.action == "run":
            self._runs_on = True
        if answer.action == "stop":
            self._stop()
            # Nothing may be sent until the turn is cancelled.
            await asyncio.Event().wait()
        return answer.edits


class StepTexts:
    """The texts in a request that are new to the model, and can be edited.

    Attributes:
        texts: The texts: the person's message as "", results by the call's id.
        labels: What each text is, in words, by the same keys.
    """

    def __init__(self, request: Request) -> None:
        messages = request.messages
        self.texts: dict[str, str] = {}
        self.labels: dict[str, str] = {}
        for call_id, index in editable(messages).items():
            key, label = "", "your message"
            if call_id:
                key, label = call_id, f"result of {getattr(messages[index], 'name', '')}"
            self.texts[key] = text_of(messages[index].content)
            self.labels[key] = label

    def edits(self, changed: Mapping[str, str]) -> list[MessageEdit]:
        """Build the edits that change texts, by their keys.

        Raises:
            UsageError: There is no such text, or the new one is not a string.
        """
        edits = []
        for key, text in changed.items():
            if key not in self.texts:
                raise UsageError(
                    f"There is no text {brief(key)} to edit.",
                    hint=f"Available: {', '.join(map(repr, self.texts))}.",
                )
            check_text("A text", text)
            if text != self.texts[key]:
                edits.append(MessageEdit(text, key or None))
        return edits


def check_text(what: str, value: object) -> None:
    """Raise UsageError if a value that replaces a text is not a string."""
    if not isinstance(value, str):
        raise UsageError(f"{what} cannot be {brief(value)}.", hint="It must be a string.")


class StepQuestion(Question):
    """A pause at which a person is asked.

    Attributes:
        step: The index in `turn.steps` of the step that follows, from 0. Displays count from 1.
        request: Its request.
        texts: The texts that are new to the model and can be edited: the person's message as "",
            results by the call's id.
    """

    kind = "step"

    def __init__(self, channel: Channel, step: int, request: Request) -> None:
        super().__init__(channel)
        self.step, self.request = step, request
        self._step_texts = StepTexts(request)
        self.texts, self.labels = self._step_texts.texts, self._step_texts.labels

    @property
    def summary(self) -> str:
        """The next request in one line."""
        from casual_mcp_nb.conversation.view_requests import request_words

        return request_words(self.request)

    @property
    def text(self) -> str:
        """The step's number, and the next request."""
        return f"Paused before step {self.step + 1}, which sends {self.summary}."

    def next(self) -> None:
        """Call the model, and pause again before the next call."""
        self._settle(StepAnswer("next"))

    def run(self, texts: str | Mapping[str, str] | None = None) -> None:
        """Run the turn to its end without another pause.

        Args:
            texts: Edited texts, as in `edit`, or None to change nothing.
        """
        edits: Sequence[RequestEdit] = ()
        if texts:
            edits = self._edits(texts)
        self._settle(StepAnswer("run", edits))

    def edit(self, texts: str | Mapping[str, str]) -> None:
        """Call the model with edited texts, and pause again before the next call.

        Args:
            texts: The edited texts, by their keys. A string replaces the last text.

        Raises:
            UsageError: There is no such text, or nothing to edit. The question stays open.
        """
        self._settle(StepAnswer("next", self._edits(texts)))

    def _edits(self, texts: str | Mapping[str, str]) -> Sequence[RequestEdit]:
        if not self.texts:
            raise UsageError("There is nothing to edit before this step.")
        if isinstance(texts, str):
            texts = {list(self.texts)[-1]: texts}
        return self._step_texts.edits(texts)

    def stop(self) -> None:
        """Stop the turn."""
        self._settle(StepAnswer("stop"))

    def expire(self, why: str) -> None:
        """Run the turn to its end."""
        self.run()
