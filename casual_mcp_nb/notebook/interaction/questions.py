"""What a running turn asks the person: approvals, forms and links of servers, pauses before a call of the model.

A question is answered once, from any thread: by the panel, by `input()`, or by a method of it.
"""

from __future__ import annotations

import json
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from concurrent.futures import Future, InvalidStateError
from typing import Any, ClassVar, Literal

from casual_mcp_nb.display.text import clean, cut
from casual_mcp_nb.engine.approval import ApprovalRequest, Decision, NoOneToAsk, Scope
from casual_mcp_nb.engine.before_model_call import MessageEdit, editable
from casual_mcp_nb.errors import UsageError, shown
from casual_mcp_nb.notebook.interaction.form import FormField, checked, fields_of
from casual_mcp_nb.types.event import Request
from casual_mcp_nb.types.step import text_of
from casual_mcp_nb.types.tool import ToolSpec

Channel = Literal["input", "panel"]
"""Who asks: `input()` in the running cell, or whatever shows `session.questions`, such as the panel."""

MAX_MESSAGE = 4_000
MAX_DIFFERENCE = 20_000


class Question(ABC):
    """One question.

    Args:
        surface: Who asks it.
        server: The server concerned; None for none.

    Attributes:
        kind: `approval`, `form`, `link` or `step`.
        id: Names it.
    """

    kind: ClassVar[str]

    def __init__(self, surface: Channel, server: str | None = None) -> None:
        self.id = uuid.uuid4().hex[:12]
        self.surface: Channel = surface
        self.server = server
        self.future: Future[Any] = Future()

    @property
    @abstractmethod
    def text(self) -> str:
        """All that the person must know to answer."""

    @abstractmethod
    def give_up(self, why: str) -> None:
        """Answer in the way that does no harm, since nobody will."""

    def no_one_to_ask(self) -> None:
        """Answer since there is nobody who could."""
        self.give_up("No one is available to answer.")

    def _settle(self, answer: Any) -> None:
        try:
            self.future.set_result(answer)
        except InvalidStateError:
            raise _not_open() from None

    def _settle_with(self, error: Exception) -> None:
        try:
            self.future.set_exception(error)
        except InvalidStateError:
            raise _not_open() from None

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
}


class ApprovalQuestion(Question):
    """Whether a call may run.

    Args:
        surface: Who asks it.
        request: The call.

    Attributes:
        tool: The tool, with its server and what that claims of it.
        arguments: The complete arguments.
        policy: The policy that asks.
        reason: Why it is asked, see `Reason`.
        change: How the tool's definition has changed; None: it has not.
    """

    kind = "approval"

    def __init__(self, surface: Channel, request: ApprovalRequest) -> None:
        super().__init__(surface, request.tool.server)
        self.tool, self.arguments, self.policy = request.tool, request.arguments, request.policy
        self.reason, self.change = request.reason, request.change

    @property
    def written(self) -> str:
        """The complete arguments, with nothing hidden and nothing cut."""
        return json.dumps(self.arguments, indent=2, ensure_ascii=True, default=str)

    @property
    def claims(self) -> tuple[str, ...]:
        """What the server claims of the tool, in words."""
        return _claims(self.tool)

    @property
    def choices(self) -> tuple[tuple[str, str], ...]:
        """The answers that can be given, each with its words, the proposed one first."""
        if self.reason == "unannotated":
            return _ALLOW_SERVER, _ALLOW_ONCE, _ALWAYS_ALLOW_TOOL, _DENY
        return _ALLOW_ONCE, _ALWAYS_ALLOW, _DENY

    @property
    def why(self) -> str:
        """Why it is asked, in a sentence."""
        return _REASONS[self.reason]

    @property
    def difference(self) -> str:
        """How the tool's definition has changed, or nothing: what the server claims first, then old and new text."""
        if self.change is None:
            return ""
        before, now = (", ".join(_claims(tool)) or "nothing" for tool in (self.change.before, self.change.after))
        claims = f"The server claimed of it before: {before}; now: {now}."
        return f"{claims}\n{clean(cut(self.change.diff, MAX_DIFFERENCE))}"

    @property
    def text(self) -> str:
        """Server, tool, why it is asked, the complete arguments, and what has changed."""
        claims = f" The server claims: {', '.join(self.claims)}." if self.claims else ""
        title = f"Allow {_name(self.tool.server)} to run {_name(self.tool.name)}?"
        parts = [title, f"{self.why}{claims}", f"Complete arguments:\n{self.written}", self.difference]
        return "\n".join(filter(None, parts))

    def approve(self, for_conversation: bool = False) -> None:
        """Let the call run.

        Args:
            for_conversation: Do not ask again for this tool in this conversation, as long as its definition is the same.
        """
        self._settle(Decision(True, "tool" if for_conversation else "call"))

    def approve_for_server(self) -> None:
        """Let the call run, and do not ask again in this conversation for tools of this server that do not claim to be
        destructive, as long as their definitions are the same.

        Raises:
            UsageError: This call is asked about for another reason; the question stays open.
        """
        if self.reason != "unannotated":
            raise UsageError("This call cannot be approved for the whole server.", hint="Approve the call or the tool.")
        self._settle(Decision(True, "server"))

    def deny(self, reason: str = "") -> None:
        """Do not let it run; the model is told so, and why."""
        self._settle(Decision(reason or False))

    def give_up(self, why: str) -> None:
        """Deny it."""
        self.deny(why)

    def no_one_to_ask(self) -> None:
        """Let the policy decide."""
        self._settle_with(NoOneToAsk())

    def settle_alike(self, scope: Scope, question: ApprovalQuestion) -> None:
        """Approve it too if what was just approved for `question` covers it."""
        same_tool = self.tool.tool_name == question.tool.tool_name and self.tool.said == question.tool.said
        same_server = self.reason == question.reason == "unannotated" and self.server == question.server
        if (scope == "tool" and same_tool) or (scope == "server" and same_server):
            self.approve()


class Elicitation(Question):
    """Something that a server asks. The answer goes to that server."""

    def __init__(self, surface: Channel, server: str, message: str) -> None:
        super().__init__(surface, server)
        self.message = clean(cut(message, MAX_MESSAGE))

    @property
    def text(self) -> str:
        """Who asks, and what."""
        return f"Server {self.server!a} asks (not the model, and not this notebook):\n{self.message}"

    def decline(self) -> None:
        """Say no."""
        self._settle(("decline", None))

    def cancel(self) -> None:
        """Say nothing."""
        self._settle(("cancel", None))

    def give_up(self, why: str) -> None:
        """Say nothing."""
        self.cancel()


class FormQuestion(Elicitation):
    """A form that a server asks the person to fill in.

    Args:
        surface: Who asks it.
        server: The server.
        message: Its words.
        schema: The form as JSON schema.

    Attributes:
        fields: The form's fields.
    """

    kind = "form"

    def __init__(self, surface: Channel, server: str, message: str, schema: Mapping[str, Any]) -> None:
        super().__init__(surface, server, message)
        self.fields: tuple[FormField, ...] = fields_of(schema)

    def answer(self, values: Mapping[str, Any]) -> None:
        """Send the form.

        Args:
            values: What was filled in, by name of the field. A field that is not in it has the default of the server's schema,
                if any; one that is empty is left out.

        Raises:
            UsageError: Something is missing or wrong; the question stays open.
        """
        self._settle(("accept", checked(self.fields, values)))


class UrlElicitation(Elicitation):
    """A page that a server asks the person to visit. It is never opened from here.

    Args:
        surface: Who asks it.
        server: The server.
        message: Its words.
        address: The page.
    """

    kind = "link"

    def __init__(self, surface: Channel, server: str, message: str, address: str) -> None:
        super().__init__(surface, server, message)
        self.address = clean(address)

    @property
    def text(self) -> str:
        """Who asks, what, and the address."""
        return f"{super().text}\nIt wants you to visit, by yourself: {self.address}"

    def accept(self) -> None:
        """Say that the page was, or is being, visited."""
        self._settle(("accept", None))


class StepQuestion(Question):
    """A pause before a call of the model.

    Args:
        surface: Who asks it.
        step: The step, from 0.
        request: What the model would be sent.

    Attributes:
        texts: What it reads for the first time and can be edited: by the id of a call, or by "" the person's message.
        labels: The same with what each is.
    """

    kind = "step"

    def __init__(self, surface: Channel, step: int, request: Request) -> None:
        super().__init__(surface)
        self.step, self.request = step, request
        messages = request.messages
        self.texts: dict[str, str] = {}
        self.labels: dict[str, str] = {}
        for call_id, place in editable(messages).items():
            key = call_id or ""
            self.texts[key] = text_of(messages[place].content)
            self.labels[key] = f"result of {getattr(messages[place], 'name', '')}" if key else "your message"

    @property
    def text(self) -> str:
        """Which call of the model this is, and what it would be sent."""
        tokens, tools = self.request.tokens, len(self.request.tools)
        made = f"{len(self.request.messages)} messages, {tools} tools, {tokens.total:,} tokens ({tokens.origin})"
        return f"Before step {self.step + 1}: the model would be sent {made}."

    def next(self) -> None:
        """Let the model be called, and pause again before the next call."""
        self._settle(("next", ()))

    def run(self, texts: str | Mapping[str, str] | None = None) -> None:
        """Go on to the end of the turn without another pause.

        Args:
            texts: As of `edit`; None changes nothing.

        Raises:
            UsageError: As of `edit`.
        """
        self._settle(("run", self._edits(texts) if texts else ()))

    def edit(self, texts: str | Mapping[str, str]) -> None:
        """Let the model be called with other texts.

        Args:
            texts: By the keys of `texts`; a text alone is for the only one, or for the last one.

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
                f"There is no text {shown(unknown)} to edit.", hint=f"There is: {', '.join(map(repr, self.texts))}."
            )
        return tuple(MessageEdit(text, key or None) for key, text in changes.items())

    def stop(self) -> None:
        """Stop the turn."""
        self._settle(("stop", ()))

    def give_up(self, why: str) -> None:
        """Go on."""
        self.run()


def _not_open() -> UsageError:
    return UsageError("This question is not open any more: it was answered, or its turn has ended.")


def _claims(tool: ToolSpec) -> tuple[str, ...]:
    return tool.annotations.badges if tool.annotations else ()


def _name(name: str) -> str:
    """A name as it is where it is plain, and quoted where it could be taken for something else."""
    return name if re.fullmatch(r"[\w.-]+", name, re.ASCII) else ascii(name)
