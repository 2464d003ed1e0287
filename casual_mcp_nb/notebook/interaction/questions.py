"""Questions of a running turn: whether a call may run, and how to continue at a pause in step mode.

A question is answered once, from any thread: in the panel, at a prompt of `input()`, or by one of its methods.
"""

from __future__ import annotations

import json
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from concurrent.futures import Future, InvalidStateError
from typing import Any, ClassVar, Literal

from casual_mcp_nb.engine.approval import ONE_BY_ONE, ApprovalRequest, Decision, NoOneToAsk, Scope
from casual_mcp_nb.engine.before_model_call import MessageEdit, editable
from casual_mcp_nb.errors import UsageError, shown
from casual_mcp_nb.types.event import Request
from casual_mcp_nb.types.step import text_of
from casual_mcp_nb.types.tool import ToolSpec

Channel = Literal["input", "panel"]
"""Where the person is asked: at a prompt of `input()` in the running cell, or where `session.questions` are shown, as in the
panel."""

MAX_DIFFERENCE = 20_000


class Question(ABC):
    """A question to the person.

    Args:
        channel: Where it is asked.
        server: The server that it is about, if any.

    Attributes:
        kind: `approval`, `form`, `link` or `step`.
        id: Identifies it.
        future: Becomes the answer.
    """

    kind: ClassVar[str]

    def __init__(self, channel: Channel, server: str | None = None) -> None:
        self.id = uuid.uuid4().hex[:12]
        self.channel: Channel = channel
        self.server = server
        self.future: Future[Any] = Future()

    @property
    @abstractmethod
    def text(self) -> str:
        """Everything that the person must know to answer."""

    @abstractmethod
    def expire(self, why: str) -> None:
        """Give the harmless answer, because nobody will answer.

        Args:
            why: Why nobody will answer.
        """

    def no_one_to_ask(self) -> None:
        """Give the answer for when there is no one to ask."""
        self.expire("No one is available to answer.")

    def _settle(self, answer: Any) -> None:
        try:
            self.future.set_result(answer)
        except InvalidStateError:
            raise not_open() from None

    def _settle_with(self, error: Exception) -> None:
        try:
            self.future.set_exception(error)
        except InvalidStateError:
            raise not_open() from None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>\n{self.text}"


_ALLOW_SERVER = ("approve_for_server", "Allow this server in this conversation")
_ALLOW_ONCE = ("approve", "Allow once")
_ALWAYS_ALLOW = ("approve_for_conversation", "Always allow in this conversation")
_ALWAYS_ALLOW_TOOL = ("approve_for_conversation", "Always allow this tool in this conversation")
_DENY = ("deny", "Deny")

_REASONS = {
    "always": "Calls of this tool always wait for your approval.",
    "destructive": "This tool can delete or overwrite data.",
    "unannotated": "The server does not say whether this tool can delete or overwrite data.",
    "changed": "The server changed this tool since it was last approved or denied, or since it was first listed.",
    "outgoing": "It sends this to other people in your name and cannot be undone. Each call waits for your approval.",
    "sampling": "Your model would answer these messages of the server, at your cost; the server gets the answer (deprecated).",
}


class ApprovalQuestion(Question):
    """Whether a call may run.

    Args:
        channel: Where it is asked.
        request: The call.

    Attributes:
        tool: The tool, with its server and what the server claims about it.
        arguments: The complete arguments.
        policy: The policy that wants approval.
        reason: Why approval is needed, see `Reason`.
        change: How the tool's definition has changed; None if it has not.
    """

    kind = "approval"

    def __init__(self, channel: Channel, request: ApprovalRequest) -> None:
        super().__init__(channel, request.tool.server)
        self.tool, self.arguments, self.policy = request.tool, request.arguments, request.policy
        self.reason, self.change = request.reason, request.change

    @property
    def written(self) -> str:
        """The complete arguments, with nothing hidden and nothing cut.

        What goes out in the user's name is written in its own letters, so that it can be read; all else in ASCII.
        """
        text = json.dumps(self.arguments, indent=2, ensure_ascii=self.reason != "outgoing", default=str)
        return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)

    @property
    def claims(self) -> tuple[str, ...]:
        """The server's claims about the tool, in words."""
        return _claims(self.tool)

    @property
    def choices(self) -> tuple[tuple[str, str], ...]:
        """The possible answers, each with its label, the suggested one first."""
        if self.reason == "unannotated":
            return _ALLOW_SERVER, _ALLOW_ONCE, _ALWAYS_ALLOW_TOOL, _DENY
        if self.reason in ONE_BY_ONE:
            return _ALLOW_ONCE, _DENY
        return _ALLOW_ONCE, _ALWAYS_ALLOW, _DENY

    @property
    def why(self) -> str:
        """Why approval is needed, in a sentence."""
        return _REASONS[self.reason]

    @property
    def difference(self) -> str:
        """How the tool's definition has changed: the server's claims, then old and new text. Empty if it has not."""
        from casual_mcp_nb.display.text import clean, cut

        if self.change is None:
            return ""
        before, now = (", ".join(_claims(tool)) or "nothing" for tool in (self.change.before, self.change.after))
        claims = f"The server claimed of it before: {before}; now: {now}."
        return f"{claims}\n{clean(cut(self.change.diff, MAX_DIFFERENCE))}"

    @property
    def text(self) -> str:
        """Server, tool, the reason, the complete arguments, and the changes."""
        claims = f" The server claims: {', '.join(self.claims)}." if self.claims else ""
        title = f"Allow {_name(self.tool.server)} to run {_name(self.tool.name)}?"
        parts = [title, f"{self.why}{claims}", f"Complete arguments:\n{self.written}", self.difference]
        return "\n".join(filter(None, parts))

    def approve(self, for_conversation: bool = False) -> None:
        """Let the call run.

        Args:
            for_conversation: Do not ask again for this tool in this conversation, as long as its definition stays the same.

        Raises:
            UsageError: Such calls, and a server's messages, are approved one by one; the question stays open.
        """
        if for_conversation and self.reason in ONE_BY_ONE:
            raise UsageError("This cannot be approved for the whole conversation.", hint="Approve this one.")
        self._settle(Decision(True, "tool" if for_conversation else "call"))

    def approve_for_server(self) -> None:
        """Let the call run, and do not ask again in this conversation for this server's tools.

        This covers tools that do not claim to be destructive, as long as their definitions stay the same.

        Raises:
            UsageError: This call needs approval for another reason; the question stays open.
        """
        if self.reason != "unannotated":
            raise UsageError("This call cannot be approved for the whole server.", hint="Approve the call or the tool.")
        self._settle(Decision(True, "server"))

    def deny(self, reason: str = "") -> None:
        """Do not let the call run.

        Args:
            reason: Why, for the model, which is told the first `MAX_REASON` characters.
        """
        self._settle(Decision(reason.strip() or False))

    def expire(self, why: str) -> None:
        """Deny the call."""
        self._settle(Decision(why, answered=False))

    def no_one_to_ask(self) -> None:
        """Let the policy decide."""
        self._settle_with(NoOneToAsk())

    def settle_alike(self, scope: Scope, question: ApprovalQuestion) -> None:
        """Approve the call too if the approval of another question covers it.

        Args:
            scope: What was approved there.
            question: The other question.
        """
        if ONE_BY_ONE & {self.reason, question.reason}:
            return
        same_tool = self.tool.tool_name == question.tool.tool_name and self.tool.as_listed == question.tool.as_listed
        same_server = self.reason == question.reason == "unannotated" and self.server == question.server
        if (scope == "tool" and same_tool) or (scope == "server" and same_server):
            self.approve()


class StepQuestion(Question):
    """A pause before a model call.

    Args:
        channel: Where it is asked.
        step: The step, from 0.
        request: What the model would be sent.

    Attributes:
        texts: The texts that are new to the model and can be edited: the person's message as "", results by the id of the call.
        labels: What each of them is.
    """

    kind = "step"

    def __init__(self, channel: Channel, step: int, request: Request) -> None:
        super().__init__(channel)
        self.step, self.request = step, request
        self.texts, self.labels = editable_texts(request)

    @property
    def summary(self) -> str:
        """One line on the next request."""
        from casual_mcp_nb.display.request import request_words

        return request_words(self.request)

    @property
    def text(self) -> str:
        """The step's number, and the next request."""
        return f"Paused before step {self.step + 1}, which sends {self.summary}."

    def next(self) -> None:
        """Call the model, and pause again before the next call."""
        self._settle(("next", ()))

    def run(self, texts: str | Mapping[str, str] | None = None) -> None:
        """Run the turn to its end without another pause.

        Args:
            texts: As of `edit`; None changes nothing.

        Raises:
            UsageError: As of `edit`.
        """
        self._settle(("run", self._edits(texts) if texts else ()))

    def edit(self, texts: str | Mapping[str, str]) -> None:
        """Call the model with edited texts.

        Args:
            texts: The new texts, by the keys of `texts`; a string replaces the last one.

        Raises:
            UsageError: There is no such text; the question stays open.
        """
        self._settle(("next", self._edits(texts)))

    def _edits(self, texts: str | Mapping[str, str]) -> tuple[MessageEdit, ...]:
        if not self.texts:
            raise UsageError("There is nothing to edit before this step.")
        changes = {list(self.texts)[-1]: texts} if isinstance(texts, str) else texts
        unknown = next((key for key in changes if key not in self.texts), None)
        if unknown is not None:
            raise UsageError(
                f"There is no text {shown(unknown)} to edit.", hint=f"Available: {', '.join(map(repr, self.texts))}."
            )
        return tuple(MessageEdit(text, key or None) for key, text in changes.items())

    def stop(self) -> None:
        """Stop the turn."""
        self._settle(("stop", ()))

    def expire(self, why: str) -> None:
        """Run the turn to its end."""
        self.run()


def editable_texts(request: Request) -> tuple[dict[str, str], dict[str, str]]:
    """Collect the texts of a request that are new to the model, and their labels: the message by "", results by call."""
    messages = request.messages
    texts: dict[str, str] = {}
    labels: dict[str, str] = {}
    for call_id, index in editable(messages).items():
        key = call_id or ""
        texts[key] = text_of(messages[index].content)
        labels[key] = f"result of {getattr(messages[index], 'name', '')}" if key else "your message"
    return texts, labels


def not_open() -> UsageError:
    """Build the error for an answer that comes too late."""
    return UsageError("This question is no longer open: it was answered, or its turn has ended.")


def _claims(tool: ToolSpec) -> tuple[str, ...]:
    return tool.annotations.badges if tool.annotations else ()


def _name(name: str) -> str:
    """Quote a name if it could be mistaken for something else."""
    return name if re.fullmatch(r"[\w.-]+", name, re.ASCII) else ascii(name)
