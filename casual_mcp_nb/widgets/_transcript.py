"""Turns and questions as the panel shows them, with the texts that can be copied."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any, Literal
from weakref import WeakKeyDictionary

from pydantic import Base64Bytes

from casual_mcp_nb.base.content import pictures_of
from casual_mcp_nb.base.passed import handles_passed
from casual_mcp_nb.conversation.conversation import Prompt
from casual_mcp_nb.conversation.event import (
    ApprovalAnswered,
    ApprovalAsked,
    Event,
    QuestionAnswered,
    QuestionAsked,
    StepStarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from casual_mcp_nb.conversation.step import ToolCall, with_nested
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.conversation.views import doing
from casual_mcp_nb.display.view import pretty
from casual_mcp_nb.display.words import one_line, python_call
from casual_mcp_nb.errors import UsageError, shown
from casual_mcp_nb.notebook.as_notebook import code_of_call
from casual_mcp_nb.notebook.images import image_content, with_images
from casual_mcp_nb.notebook.questions import (
    AddressQuestion,
    ApprovalQuestion,
    Elicitation,
    FormQuestion,
    Question,
    SignInQuestion,
    UrlElicitation,
)
from casual_mcp_nb.notebook.step_mode import StepQuestion
from casual_mcp_nb.views import transcript_html


def chat_code(prompt: str, options: Mapping[str, Any], images: int = 0) -> str:
    """Write the call to `Session.chat` that sends a message.

    Args:
        prompt: The text.
        options: The turn's options.
        images: How many images went with it. Their files have to be named by hand.
    """
    named: dict[str, Any] = {}
    if images:
        named["images"] = [f"image-{number}.png" for number in range(1, images + 1)]
    named |= options
    return python_call("session.chat", [prompt], named)


Copied = Literal["answer", "python", "arguments", "result", "call_python"]
"""The answer as the model wrote it, Python that asks the same, or a call's arguments, result or
Python.
"""


def copied(turn: Turn, what: Copied, call: str | None, options: Mapping[str, Any]) -> str:
    """Extract a text from a turn, whole.

    Args:
        turn: The turn.
        what: Which text.
        call: The call id, for a call's text.
        options: Options in which the turn differs from the next `chat`, for its Python.

    Raises:
        UsageError: There is no such call, or Python alone cannot make it: its arguments are not an
            object, or it passes the result of another one.
    """
    match what:
        case "answer":
            return turn.answer
        case "python":
            return chat_code(turn.prompt, options, len(pictures_of(turn.prompt_messages)))
    tool_call = _call_of(turn, call)
    match what:
        case "arguments":
            if isinstance(tool_call.arguments, str):
                return tool_call.arguments
            return pretty(tool_call.arguments)
        case "result":
            return tool_call.result
        case "call_python":
            if any(handles_passed(tool_call.arguments)):
                raise UsageError(
                    "This call passes a large result of another one.",
                    hint='session.export("chat.ipynb") writes both as Python.',
                )
            return code_of_call(tool_call)


def _call_of(turn: Turn, id: str | None) -> ToolCall:
    for call in (*with_nested(turn.tool_calls), *turn.app_calls):
        if call.id == id:
            return call
    raise UsageError("This turn has no such call.")


def row_of(question: Question, order: int) -> dict[str, Any]:
    """Convert a question to JSON: everything that a person needs to answer, uncut."""
    row: dict[str, Any] = {"order": order, "kind": question.kind, "channel": question.channel}
    if question.server is not None:
        row["server"] = one_line(question.server)
    match question:
        case ApprovalQuestion():
            row |= {
                "tool": one_line(question.tool.name),
                "arguments": question.written,
                "claims": list(question.claims),
                "policy": question.policy,
                "why": question.why,
                "choices": list(map(list, question.choices)),
                "difference": question.difference,
            }
        case SignInQuestion():
            row |= {
                "message": question.opening,
                "address": question.address,
                "ending": question.ending,
                "fields": list(map(asdict, question.fields)),
            }
        case AddressQuestion():
            row |= {"message": question.message, "fields": [], "ours": True}
        case FormQuestion():
            row |= {
                "message": question.message,
                "fields": list(map(asdict, question.fields)),
            }
        case UrlElicitation():
            row |= {"message": question.message, "address": question.address}
        case StepQuestion():
            labels = question.labels
            texts = []
            for key, text in question.texts.items():
                texts.append({"key": key, "label": labels[key], "text": text})
            row |= {
                "step": question.step + 1,
                "message": f"About to send {question.summary}.",
                "texts": texts,
            }
    return row


def give(question: Question, answer: str, values: Mapping[str, Any]) -> None:
    """Answer a question.

    Args:
        question: The question.
        answer: `approve`, `approve_for_conversation`, `approve_for_server` or `deny`; `send`,
            `accept`, `decline` or `cancel`; `next`, `edit`, `run` or `stop`.
        values: The filled-in values, or the edited texts.

    Raises:
        UsageError: It is not an answer to this question, something filled in is wrong, or the
            question is no longer open.
    """
    answers = _answers_to(question)
    if answer not in answers:
        raise UsageError(
            f"{shown(answer)} is not an answer to this question.",
            hint=f"Possible answers: {', '.join(answers)}.",
        )
    if isinstance(question, ApprovalQuestion):
        _decide(question, answer, str(values.get("reason", "")))
    elif isinstance(question, StepQuestion):
        texts = {key: str(text) for key, text in values.items()}
        _continue(question, answer, texts)
    elif isinstance(question, Elicitation):
        _reply(question, answer, values)


def _answers_to(question: Question) -> list[str]:
    if isinstance(question, ApprovalQuestion):
        return [answer for answer, _ in question.choices]
    if isinstance(question, StepQuestion):
        return ["next", "edit", "run", "stop"]
    answers = []
    if isinstance(question, Elicitation):
        answers += ["decline", "cancel"]
    if isinstance(question, FormQuestion):
        answers.append("send")
    if isinstance(question, UrlElicitation):
        answers.append("accept")
    return answers


def _decide(question: ApprovalQuestion, answer: str, reason: str) -> None:
    match answer:
        case "approve":
            question.approve()
        case "approve_for_conversation":
            question.approve(for_conversation=True)
        case "approve_for_server":
            question.approve_for_server()
        case "deny":
            question.deny(reason)


def _continue(question: StepQuestion, answer: str, texts: dict[str, str]) -> None:
    match answer:
        case "next":
            question.next()
        case "edit":
            question.edit(texts)
        case "run":
            question.run(texts)
        case "stop":
            question.stop()


def _reply(question: Elicitation, answer: str, values: Mapping[str, Any]) -> None:
    match answer:
        case "decline":
            question.decline()
        case "cancel":
            question.cancel()
        case "send" if isinstance(question, FormQuestion):
            question.answer(values)
        case "accept" if isinstance(question, UrlElicitation):
            question.accept()


MAX_TOGETHER = 7_000_000
"""Maximum bytes for a message's images: as base64 they fit into Jupyter's largest message, 10 MiB.
"""


@dataclass(frozen=True)
class Attached:
    """One image.

    Args:
        name: The person's name for it.
        data: Its bytes. They arrive as base64.
    """

    name: str
    data: Base64Bytes


def with_attached(prompt: str, images: Sequence[Attached]) -> Prompt:
    """Add the attached images to a prompt.

    Raises:
        UsageError: An image is too large, or models do not accept its format.
    """
    return with_images(prompt, [image_content(image.data, shown(image.name)) for image in images])


MAX_TURNS = 50
SECONDS_BETWEEN_DRAWINGS = 0.1


@dataclass(frozen=True)
class _Drawing:
    html: str
    steps: int
    at: float
    final: bool
    events: int


class Transcript:
    """Draws turns as HTML: a finished one once, a running one at most ten times a second.

    Args:
        again: Called when a turn was not drawn again because it was drawn recently, and must be
            drawn a little later.

    Attributes:
        doing: The running turn's activity, in words, or empty if none is running.
        announcement: The latest one, for a person who does not see the panel.
    """

    def __init__(self, again: Callable[[], None]) -> None:
        self.doing = ""
        self.announcement = ""
        self._again = again
        self._started = time.monotonic()
        self._numbers = count(1)
        self._keys: WeakKeyDictionary[Turn, str] = WeakKeyDictionary()
        self._drawings: WeakKeyDictionary[Turn, _Drawing] = WeakKeyDictionary()
        self._images: WeakKeyDictionary[Turn, list[str]] = WeakKeyDictionary()

    def note(self, turn: Turn, event: Event, number: int) -> None:
        """Note an event in the running turn.

        Args:
            turn: The turn.
            event: The event.
            number: Which turn in the conversation it is, from 1.
        """
        self._started = time.monotonic() - event.at
        match event:
            case TurnStarted():
                self.announcement = f"Turn {number} started."
            case TextDelta():
                self.doing = f"Step {event.step + 1}: the model is answering …"
            case StepStarted() | ToolStarted() | ToolFinished():
                text = doing(turn, turn.steps[-1]).text
                self.doing = f"Step {event.step + 1}: {text[0].lower()}{text[1:]}"
            case ApprovalAsked() | ApprovalAnswered() | QuestionAsked() | QuestionAnswered():
                steps = turn.steps
                self.doing = doing(turn, steps[-1] if steps else None).text
            case TurnFinished():
                self.doing = ""
                self.announcement = f"Turn {number} is {event.status}."

    def rows(self, turns: list[Turn]) -> dict[str, dict[str, Any]]:
        """Build rows for the last turns by key: number, prompt, images, steps, status, HTML.

        Runs on the drawing thread.
        """
        last = list(enumerate(turns, 1))[-MAX_TURNS:]
        return {self.key(turn): self._row(number, turn) for number, turn in last}

    def key(self, turn: Turn) -> str:
        """Build a turn's key for the front end."""
        if turn not in self._keys:
            self._keys[turn] = f"t{next(self._numbers)}"
        return self._keys[turn]

    def _row(self, number: int, turn: Turn) -> dict[str, Any]:
        drawing = self._drawing(turn)
        row: dict[str, Any] = {
            "number": number,
            "prompt": turn.prompt,
            "html": drawing.html,
            "steps": drawing.steps,
            "status": turn.status,
            "images": self._addresses(turn),
        }
        for edit in turn.edits:
            if edit.call_id is None:
                row["before"] = edit.before
                break
        return row

    def _addresses(self, turn: Turn) -> list[str]:
        """List the address of each image in the prompt, or empty if its bytes are there."""
        if turn not in self._images:
            # They are decoded for that, so it is done once.
            self._images[turn] = [picture.address for picture in pictures_of(turn.started.messages)]
        return self._images[turn]

    def _drawing(self, turn: Turn) -> _Drawing:
        drawing, now, events = self._drawings.get(turn), time.monotonic(), len(turn.trace)
        if drawing is not None:
            # Its tasks and apps may go on when it has ended.
            if drawing.final and drawing.events == events:
                return drawing
            if turn.running and now - drawing.at < SECONDS_BETWEEN_DRAWINGS:
                self._again()
                return drawing
        # What arrives while it is drawn is drawn next time.
        final = not turn.running
        drawing = _Drawing(
            transcript_html(turn, now - self._started), len(turn.steps), now, final, events
        )
        self._drawings[turn] = drawing
        return drawing
