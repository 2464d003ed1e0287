"""Questions to the person: whether a call may run, and the forms, pages and sign-ins of servers.

A question is answered once, from any thread: in the panel, at an `input()` prompt, or by calling a
method. Pauses in step mode are questions too, see `notebook/step_mode.py`.
"""

from __future__ import annotations

import json
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from concurrent.futures import Future, InvalidStateError
from typing import Any, ClassVar, Literal

from casual_mcp_nb.base.mcp import AddressRequest, NobodyToAsk, QuestionAnswer, SignInRequest
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.display.words import clean, cut
from casual_mcp_nb.engine.consent import ONE_BY_ONE, ApprovalRequest, Decision, Scope
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.notebook.forms import FormField, checked, fields_of

Channel = Literal["input", "panel"]
"""Where the person is asked: at an `input()` prompt in the running cell, or where
`session.questions` are shown, as in the panel.
"""

MAX_DIFFERENCE = 20_000


class Question(ABC):
    """A question to the person.

    Attributes:
        kind: `approval`, `form`, `link` or `step`.
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
        """Everything that the person needs to answer."""

    @abstractmethod
    def expire(self, why: str) -> None:
        """Give the harmless answer, because nobody will answer."""

    def no_one_to_ask(self) -> None:
        """Give the answer that counts if there is nobody to ask."""
        self.expire("No one is available to answer.")

    def _settle(self, answer: Any) -> None:
        try:
            self.future.set_result(answer)
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
    "unannotated": (
        "The server does not declare whether this tool can delete or overwrite data. If you allow the"
        " server, its other tools that declare nothing do not ask either."
    ),
    "changed": (
        "The server changed this tool since it was last approved or denied, or since it was first"
        " listed."
    ),
    "passed": ("It gives this server data of another one, which the model has not read in full."),
    "outgoing": (
        "It sends this to other people in your name and cannot be undone. Each call waits for your"
        " approval."
    ),
    "sampling": (
        "Your model would answer these messages at your cost, and the server would get the answer"
        " (deprecated)."
    ),
    "proposal": (
        "Your model would read these messages, with servers' texts and earlier answers in them, at"
        " your cost."
    ),
}


class ApprovalQuestion(Question):
    """Whether a call may run.

    Attributes:
        tool: The tool, with its server's claims.
        arguments: The complete arguments.
        policy: The policy that requires approval.
        reason: Why approval is needed, see `Reason`.
        change: How the tool's definition has changed, or None if it has not.
        passed: The large results that it passes to the tool.
        sources: The other servers that these came from.
    """

    kind = "approval"

    def __init__(self, channel: Channel, request: ApprovalRequest) -> None:
        super().__init__(channel, request.tool.server)
        self.tool, self.arguments, self.policy = request.tool, request.arguments, request.policy
        self.reason, self.change = request.reason, request.change
        self.passed, self.sources = request.passed, request.sources

    @property
    def written(self) -> str:
        """The complete arguments, with nothing hidden and nothing cut. Behind them, the size and
        the head of each result that is passed.

        Other letters than ASCII are escaped. They stay in a text that goes out in the person's
        name, because it has to be readable.
        """
        text = json.dumps(
            self.arguments, indent=2, ensure_ascii=self.reason != "outgoing", default=str
        )
        for handle, path, server, what, size, head in self.passed:
            part = f", its part {path!a}" if path else ""
            text += (
                f"\n{handle} of {_name(server)}{part}: {what}, {size:,} characters. It begins:"
                f" {json.dumps(head)}"
            )
        letters: list[str] = []
        for letter in text:
            if letter.isprintable() or letter == "\n":
                letters.append(letter)
            else:
                letters.append(json.dumps(letter)[1:-1])
        return "".join(letters)

    @property
    def claims(self) -> tuple[str, ...]:
        """The server's claims about the tool, in words."""
        return _claims(self.tool)

    @property
    def choices(self) -> tuple[tuple[str, str], ...]:
        """The possible answers, each a method's name with its label, the suggested one first."""
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
        """How the tool's definition has changed: the server's claims, then old and new text.

        Empty if it has not.
        """
        if self.change is None:
            return ""
        before = ", ".join(_claims(self.change.before)) or "nothing"
        now = ", ".join(_claims(self.change.after)) or "nothing"
        claims = f"The server's earlier claim: {before}. Now: {now}."
        return f"{claims}\n{clean(cut(self.change.diff, MAX_DIFFERENCE))}"

    @property
    def text(self) -> str:
        """Server, tool, the reason, the complete arguments, and the changes."""
        why = self.why
        if self.claims:
            why = f"{why} The server claims: {', '.join(self.claims)}."
        lines = [
            f"Allow {_name(self.tool.server)} to run {_name(self.tool.name)}?",
            why,
            f"Complete arguments:\n{self.written}",
        ]
        if self.difference:
            lines.append(self.difference)
        return "\n".join(lines)

    def approve(self, *, for_conversation: bool = False) -> None:
        """Let the call run.

        Args:
            for_conversation: Do not ask again for this tool in this conversation, while its
                definition stays the same.

        Raises:
            UsageError: Such calls, and a server's messages, are approved one by one. The question
                stays open.
        """
        if for_conversation and self.reason in ONE_BY_ONE:
            raise UsageError(
                "This cannot be approved for the whole conversation.", hint="Approve this one."
            )
        scope: Scope = "call"
        if for_conversation:
            scope = "tool"
        self._settle(Decision(True, scope))

    def approve_for_server(self) -> None:
        """Let the call run, and do not ask again in this conversation for this server's tools.

        This covers tools that do not claim to be destructive, while their definitions stay the
        same.

        Raises:
            UsageError: This call needs approval for another reason. The question stays open.
        """
        if self.reason != "unannotated":
            raise UsageError(
                "This call cannot be approved for the whole server.",
                hint="Approve the call or the tool.",
            )
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
        try:
            self.future.set_exception(NobodyToAsk())
        except InvalidStateError:
            raise not_open() from None

    def settle_alike(self, scope: Scope, question: ApprovalQuestion) -> None:
        """Approve the call if an approval covers it that was given for another one.

        Args:
            scope: What was approved.
            question: The question that was answered.
        """
        if ONE_BY_ONE & {self.reason, question.reason}:
            return
        is_covered = False
        if scope == "tool":
            is_covered = (
                self.tool.tool_name == question.tool.tool_name
                and self.tool.as_listed == question.tool.as_listed
                and set(self.sources) <= set(question.sources)
            )
        elif scope == "server":
            is_covered = (
                self.server == question.server and self.reason == question.reason == "unannotated"
            )
        if is_covered:
            self.approve()


def not_open() -> UsageError:
    """Build the error for an answer that comes too late."""
    return UsageError("This question is no longer open: it was answered, or its turn has ended.")


def _claims(tool: ToolSpec) -> tuple[str, ...]:
    if tool.annotations is None:
        return ()
    return tool.annotations.badges


def _name(name: str) -> str:
    """Quote a name if it could be mistaken for something else."""
    if re.fullmatch(r"[\w.-]+", name, re.ASCII):
        return name
    return ascii(name)


MAX_MESSAGE = 4_000


class Elicitation(Question):
    """A server's question to the person. The answer goes to that server.

    Attributes:
        of_task: Whether it belongs to a task, so that it stays open when the cell has ended in
            which it was asked.
    """

    of_task = False

    def __init__(self, channel: Channel, server: str, message: str) -> None:
        super().__init__(channel, server)
        self.message = clean(cut(message, MAX_MESSAGE))

    @property
    def text(self) -> str:
        """Which server asks, and its message."""
        return (
            f"Server {self.server!a} asks (not the model, and not this notebook):\n{self.message}"
        )

    def decline(self) -> None:
        """Refuse."""
        self._settle(QuestionAnswer("decline"))

    def cancel(self) -> None:
        """Answer neither yes nor no."""
        self._settle(QuestionAnswer("cancel"))

    def expire(self, why: str) -> None:
        """Answer neither yes nor no."""
        self.cancel()


class FormQuestion(Elicitation):
    """A form that a server asks the person to fill in."""

    kind = "form"

    def __init__(
        self, channel: Channel, server: str, message: str, schema: Mapping[str, Any]
    ) -> None:
        super().__init__(channel, server, message)
        self.fields: tuple[FormField, ...] = fields_of(schema)

    def answer(self, values: Mapping[str, Any]) -> None:
        """Send the form.

        Args:
            values: The values by field name. A missing field gets the schema's default, if any. An
                empty one is left out.

        Raises:
            UsageError: Something is missing or wrong. The question stays open.
        """
        self._settle(QuestionAnswer("accept", checked(self.fields, values)))


class SignInQuestion(FormQuestion):
    """A sign-in to a server in a browser.

    The answer is the address at which the browser ended, or the code.

    Attributes:
        address: The page to open. It is never opened from here.
        opening: The text before the address.
        ending: The text after the address.
    """

    def __init__(self, channel: Channel, request: SignInRequest) -> None:
        self._check = request.check
        self.address = clean(request.address)
        opened = "Open"
        if request.opened:
            opened = "A browser was opened on this computer. If you do not see it, open"
        self.opening = (
            f"Sign in to server {request.server!a} at {clean(request.issuer)}. {opened} this page:"
        )
        self.ending = (
            f"The browser ends at a page whose address begins with {request.redirect}. If that says"
            " that you are signed in, you are done. Otherwise, paste its address here."
        )
        super().__init__(channel, request.server, "", _SIGN_IN_FORM)
        self.message = f"{self.opening}\n{self.address}\n{self.ending}"

    @property
    def text(self) -> str:
        """The server, the page to open, and the text to paste."""
        return self.message

    def answer(self, values: Mapping[str, Any]) -> None:
        """Sign in with the address at which the browser ended, as `address`.

        Raises:
            UsageError: It does not belong to this sign-in. The question stays open.
        """
        address = str(checked(self.fields, values)["address"])
        try:
            self._check(address)
        except ValueError as error:
            raise UsageError(str(error)) from None
        self._settle(QuestionAnswer("accept", {"address": address}))


_SIGN_IN_FORM = {
    "type": "object",
    "properties": {
        "address": {
            "type": "string",
            "title": "Address of the last page, or the code",
            "maxLength": 10_000,
        }
    },
    "required": ["address"],
}


class AddressQuestion(FormQuestion):
    """Whether an address may be used that a server names for its sign-in.

    It has no fields: to answer is to accept.
    """

    def __init__(self, channel: Channel, request: AddressRequest) -> None:
        super().__init__(channel, request.server, "", {})
        self.message = (
            f"Server {request.server!a} at {clean(request.address)} names {clean(request.named)}"
            f" for its sign-in. {clean(request.why)} Accept it only if you know this address. The"
            " answer is remembered."
        )

    @property
    def text(self) -> str:
        """The server, the address, and why the person has to accept it."""
        return self.message


class UrlElicitation(Elicitation):
    """A page that a server asks the person to visit. It is never opened from here."""

    kind = "link"

    def __init__(self, channel: Channel, server: str, message: str, address: str) -> None:
        super().__init__(channel, server, message)
        self.address = clean(address)

    @property
    def text(self) -> str:
        """Which server asks, its message, and the address."""
        return f"{super().text}\nTo answer, open this page yourself: {self.address}"

    def accept(self) -> None:
        """Tell the server that the person has visited the page, or is doing so."""
        self._settle(QuestionAnswer("accept"))
