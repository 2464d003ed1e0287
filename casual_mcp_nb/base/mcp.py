"""Values from MCP servers: tasks, resources, prompts and skills, questions, requests for a model's
answer, and sign-ins.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, Literal, NamedTuple, Self, TypeVar

from casual_mcp_nb.base.content import ContentPart, ToolResult
from casual_mcp_nb.base.displayable import Displayable, DisplayableList, count
from casual_mcp_nb.base.limits import read_json
from casual_mcp_nb.base.tokens import estimate_tokens
from casual_mcp_nb.base.tool import by_server, full_names, of_server
from casual_mcp_nb.doors import in_words_of
from casual_mcp_nb.errors import UnknownNameError, UsageError, shown

MAX_NAMES = 1_000
"""How many names to compare when suggesting one."""

TASKS_EXTENSION = "io.modelcontextprotocol/tasks"
"""The extension of protocol 2026-07-28 for tasks (SEP-2663), see
https://github.com/modelcontextprotocol/ext-tasks.
"""
SKILLS_EXTENSION = "io.modelcontextprotocol/skills"
"""The extension for skills, see `Skill`."""

TaskStatus = Literal["working", "input_required", "completed", "failed", "cancelled", "lost"]
"""The state of a task.

The last one is ours: its server does not know it any more, or answers with something unreadable.
"""
TASK_STATUSES = ("working", "input_required", "completed", "failed", "cancelled")
"""The states that servers send."""
OVER = ("completed", "failed", "cancelled", "lost")
"""The states in which a task has ended."""


class TaskReport(NamedTuple):
    """How a task has ended, and the text with which the model is told, with the handle of a large
    result and the whole of it, and the id of the call that became the task.
    """

    number: int
    status: TaskStatus
    text: str
    handle: str = ""
    call_id: str = ""
    result: ToolResult | None = None


@dataclass(frozen=True)
class ServerTask(Displayable):
    """A task: a call that its server continues by itself.

    Args:
        number: Its number in this session, as the model knows it.
        text: Its server's message about its state, or why it has no result.
        began: When it started, in seconds since 1970. `ended` likewise, or None while it runs.
        asking: Whether it waits for you to answer a question.
        problem: Why its state is not known now, or empty.
    """

    number: int
    server: str
    tool: str
    status: TaskStatus
    text: str = ""
    began: float = 0.0
    ended: float | None = None
    asking: bool = False
    problem: str = ""

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.status in OVER

    @property
    def seconds(self) -> float:
        """How long it has run, or did run."""
        return max(0.0, (time.time() if self.ended is None else self.ended) - self.began)


@dataclass(frozen=True)
class Tasks(DisplayableList[ServerTask], items="tasks"):
    """The tasks of a session, the oldest first."""

    tasks: tuple[ServerTask, ...] = ()


@dataclass(frozen=True)
class Resource(Displayable):
    """A resource that a server offers.

    See https://modelcontextprotocol.io/specification/2025-11-25/server/resources.

    A template has parameters, and a URI template (RFC 6570) as its URI.
    """

    server: str
    uri: str
    name: str = ""
    title: str = ""
    description: str = ""
    mime_type: str | None = None
    size: int | None = None
    parameters: tuple[str, ...] | None = None

    @property
    def is_template(self) -> bool:
        """Whether it describes many resources, by parameters."""
        return self.parameters is not None


@dataclass(frozen=True, slots=True)
class PromptArgument:
    """A prompt argument."""

    name: str
    description: str = ""
    required: bool = False


@dataclass(frozen=True)
class ServerPrompt(Displayable):
    """A prompt that a server offers.

    See https://modelcontextprotocol.io/specification/2025-11-25/server/prompts.
    """

    server: str
    name: str
    title: str = ""
    description: str = ""
    arguments: tuple[PromptArgument, ...] = ()

    def check(self, values: Mapping[str, object]) -> None:
        """Check arguments: a UsageError if a required one is missing, or one does not exist."""
        names = [argument.name for argument in self.arguments]
        for name in values:
            if name not in names:
                raise UnknownNameError("prompt argument", name, names)
        missing: list[str] = []
        for argument in self.arguments:
            if argument.required and values.get(argument.name) is None:
                missing.append(argument.name)
        if missing:
            raise UsageError(
                f"Prompt {shown(self.name)} of server {shown(self.server)} needs"
                f" {', '.join(map(shown, missing))}.",
                server=self.server,
            )


SKILL_FILE = "SKILL.md"
"""The file of a skill that has its instructions."""
_BYTES_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class SkillFile:
    """A file of a skill: its path in the skill, its size in bytes, and its SHA-256 digest as
    `sha256:` and 64 hex digits.
    """

    path: str
    size: int
    digest: str


@dataclass(frozen=True)
class Skill(Displayable):
    """A skill that a server offers: instructions for one kind of task, with the files that they
    need.

    See https://modelcontextprotocol.io/seps/2640-skills-extension. Without `files`, the server
    generates it when it is read, so there is no digest with which to check it. `frontmatter` is as
    the server lists it, for programs that compare it.
    """

    server: str
    name: str
    description: str = ""
    uri: str = ""
    files: tuple[SkillFile, ...] = ()
    license: str = ""
    compatibility: str = ""
    frontmatter: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)

    @property
    def tokens(self) -> int | None:
        """The estimated tokens of its instructions, by their size, or None if that is unknown."""
        size = next((file.size for file in self.files if file.path == SKILL_FILE), None)
        return None if size is None else -(-size // _BYTES_PER_TOKEN)

    def file(self, path: str = SKILL_FILE) -> SkillFile | None:
        """Find a file by its path. None if the skill is generated when it is read.

        Raises:
            UnknownNameError: The skill has no such file.
        """
        file = next((file for file in self.files if file.path == path), None)
        if file is None and (self.files or path != SKILL_FILE):
            names = [file.path for file in self.files] or [SKILL_FILE]
            raise UnknownNameError(f"file of skill {self.server}:{self.name}", path, names)
        return file


@dataclass(frozen=True)
class AppContents:
    """The page of an app, as its server gave it.

    Args:
        part: The page with its media type.
        interface: The server's declarations about it, unchecked: `csp` and `prefersBorder`.
    """

    part: ContentPart = field(repr=False)
    interface: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class SkillContents(Displayable):
    """A file of a skill, as its server gave it.

    Args:
        text: Its text, or empty for a binary file.
        data: The bytes of a binary file, or None for a text.
        digest: The SHA-256 digest of the contents read.
        checked: Whether the server's list has this digest. If not, it had none: a wrong one is an
            error.
        others: The paths of the skill's other files.
        changed: Whether the server has changed the skill, with its digests, since the session first
            listed it, and nobody has accepted that.
    """

    server: str
    name: str
    path: str = SKILL_FILE
    text: str = field(default="", repr=False)
    data: bytes | None = field(default=None, repr=False)
    size: int = 0
    digest: str = ""
    checked: bool = True
    others: tuple[str, ...] = ()
    changed: bool = False

    @property
    def tokens(self) -> int:
        """The text's estimated tokens."""
        return estimate_tokens(self.text)

    def __str__(self) -> str:
        return self.text


O = TypeVar("O", "Resource", "ServerPrompt", "Skill")  # noqa: E741 (what is offered)


class _Offers(DisplayableList[O], Generic[O], items="_offers"):
    """The resources or server prompts, in the config's order.

    `problems` has why a server could not list its own. If it is not `listed`, the servers were not
    asked.
    """

    kind = ""
    lister = ""

    def __init__(
        self,
        offers: tuple[O, ...] = (),
        problems: Mapping[str, str] | None = None,
        *,
        listed: bool = True,
    ) -> None:
        self._offers: tuple[O, ...] = offers
        self.problems = dict(problems or {})
        self.listed = listed

    @property
    def not_listed(self) -> str:
        """A note that the servers were not asked yet, and how to ask them. Empty if they were."""
        if self.listed:
            return ""
        return in_words_of(f"Not listed yet. To ask the servers: {self.lister}")

    @property
    def by_server(self) -> dict[str, tuple[O, ...]]:
        """Grouped by server."""
        return by_server(self)

    def of_server(self, name: str) -> Self:
        """Select those from one server."""
        problems = {server: problem for server, problem in self.problems.items() if server == name}
        return type(self)(tuple(of_server(self, name)), problems, listed=self.listed)

    def named(self, name: str, server: str | None = None) -> O:
        """Find the one with a name: `server:name`, or a name that only one server has.

        An UnknownNameError has the closest names, a UsageError the several servers that have it.
        """
        offers = [offer for offer in self if server in (None, offer.server)]
        matches = [offer for offer in offers if name in self._names(offer)]
        if len(matches) == 1 or (matches and len({offer.server for offer in matches}) == 1):
            return matches[0]
        if matches:
            servers = ", ".join(shown(offer.server) for offer in matches[:10])
            raise UsageError(
                f"Several servers have a {self.kind} {shown(name)}: {servers}.",
                hint="Write server:name.",
            )
        raise UnknownNameError(
            self.kind, name, full_names(offers[:MAX_NAMES]), hint=self.not_listed
        )

    def _names(self, offer: O) -> tuple[str, ...]:
        return offer.name, f"{offer.server}:{offer.name}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self)} of {count(len(self.by_server), 'server')}>"


class Resources(_Offers[Resource]):
    """Resources and templates from a session's servers, by number or with `named`."""

    kind = "resource"
    lister = "session.resources.list()"

    def _names(self, offer: Resource) -> tuple[str, ...]:
        return offer.uri, offer.name, f"{offer.server}:{offer.name}"


class Prompts(_Offers[ServerPrompt]):
    """Prompts from a session's servers, by number or with `named`."""

    kind = "prompt"
    lister = "session.prompts.list()"


class Skills(_Offers[Skill]):
    """The skills of a session's servers, by number or with `named`."""

    kind = "skill"
    lister = "session.resources.skills.list()"


@dataclass(frozen=True)
class ResourceContents(Displayable):
    """A resource's contents, in the server's order: text, or bytes with their media type."""

    server: str
    uri: str
    parts: tuple[ContentPart, ...] = field(default=(), repr=False)

    @property
    def text(self) -> str:
        """All text parts, joined."""
        return "\n".join(part.text for part in self.parts if part.data is None)

    @property
    def data(self) -> bytes | None:
        """The first binary part, or None if there is none."""
        return next((part.data for part in self.parts if part.data is not None), None)

    @cached_property
    def value(self) -> Any:
        """The contents as a Python value: JSON parsed, other text as text, binary as bytes."""
        if self.data is not None:
            return self.data
        if any(is_json(part.mime_type) for part in self.parts):
            return read_json(self.text, self.text)
        return self.text

    @property
    def tokens(self) -> int:
        """The estimated size of the text in tokens."""
        return estimate_tokens(self.text)


def is_json(mime_type: str | None) -> bool:
    """Check whether a media type is JSON or based on it."""
    kind = (mime_type or "").partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """A prompt message: its role, `user` or `assistant`, and its content."""

    role: str
    content: ContentPart


@dataclass(frozen=True)
class PromptMessages(Displayable):
    """The messages that a prompt gives for some arguments."""

    server: str
    name: str
    arguments: Mapping[str, str] = field(default_factory=dict)
    messages: tuple[PromptMessage, ...] = field(default=(), repr=False)
    description: str = ""

    @property
    def text(self) -> str:
        """All messages as text. If an assistant speaks too, each follows its role."""
        roles = {message.role for message in self.messages}
        texts: list[str] = []
        for message in self.messages:
            text = message.content.text
            texts.append(text if roles == {"user"} else f"{message.role}: {text}")
        return "\n\n".join(texts)

    @property
    def tokens(self) -> int:
        """The estimated size of the text in tokens."""
        return estimate_tokens(self.text)


@dataclass(frozen=True)
class Completions(DisplayableList[str], items="values"):
    """A server's suggestions for an argument, best first.

    It may have more, and may give how many in total.
    """

    values: tuple[str, ...] = ()
    total: int | None = None
    more: bool = False


@dataclass(frozen=True)
class Subscription(Displayable):
    """A resource whose changes a server reports, unless there is a problem: their number, and the
    time of the last.
    """

    server: str
    uri: str
    updates: int = 0
    last: float | None = None
    problem: str = ""


@dataclass(frozen=True)
class Subscriptions(DisplayableList[Subscription], items="subscriptions"):
    """A session's subscriptions."""

    subscriptions: tuple[Subscription, ...] = ()


APPS_EXTENSION = "io.modelcontextprotocol/ui"
"""MCP Apps (SEP-1865): tools whose results are shown as a page of their server's."""
APP_MIME_TYPE = "text/html;profile=mcp-app"
SAMPLING_METHOD = "sampling/createMessage"
MAX_SAMPLES = 10
"""How many requests a server may make during one call."""
MAX_SAMPLE_TOKENS = 4_096
"""Maximum tokens per answer, whatever the server asks for."""


@dataclass(frozen=True)
class ServerQuestion:
    """A server's question to the person: a form to fill in, or a page to visit.

    Args:
        server: The server that asks.
        message: Its text. Secrets in it are masked.
        form: The form's JSON schema, with secrets masked, or None for a page.
        url: The page's address, or empty for a form. It is as the server wrote it: with a secret
            masked, it could not be opened.
        url_id: The server's id for the visit to the page, which versions since 2026-07-28 do not
            have.
        of_task: Whether a task asks, and not a running call.
    """

    server: str
    message: str
    form: Mapping[str, Any] | None = None
    url: str = ""
    url_id: str | None = None
    of_task: bool = False


@dataclass(frozen=True)
class QuestionAnswer:
    """The person's answer to a server's question.

    Args:
        action: `cancel` is neither yes nor no.
        content: The values of an accepted form, by field name.
    """

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class SamplingRequest:
    """Messages that a server wants answered: texts only, redacted, each after its role (`user` or
    `assistant`).
    """

    messages: tuple[tuple[str, str], ...]
    system: str
    max_tokens: int


@dataclass(frozen=True)
class SamplingAnswer:
    """A model's answer; `cut` if it ended at the token limit.

    The note is its cost, for the person.
    """

    text: str
    model: str
    cut: bool
    note: str


class SamplingRefused(Exception):
    """A server's request that is not answered: why, for the server and in detail for the person."""

    def __init__(self, text: str, details: str = "") -> None:
        super().__init__(text)
        self.details = details or text


class NobodyToAsk(Exception):
    """No one is available to answer."""


@dataclass(frozen=True)
class SignInRequest:
    """A request to sign in to a server in a browser.

    Args:
        server: The server's name in the config.
        issuer: The authorization server.
        address: The page to open.
        redirect: How the address begins at which the browser ends.
        opened: Whether a browser on this computer was opened.
        check: Raises a ValueError, which explains the mistake, for an answer that does not belong
            to this sign-in.
    """

    server: str
    issuer: str
    address: str = field(repr=False)
    redirect: str
    opened: bool
    check: Callable[[str], None] = field(repr=False, compare=False)


@dataclass(frozen=True)
class AddressRequest:
    """A request to accept an address that a server names for its sign-in.

    Args:
        server: The server's name in the config.
        address: The server's origin.
        named: The address, or the authorization server.
        why: Why the person has to accept it, as a sentence.
        key: What the answer is remembered for.
    """

    server: str
    address: str
    named: str
    why: str
    key: str


@dataclass(frozen=True, slots=True)
class Account(Displayable):
    """A sign-in to a server that is remembered on this computer, without its tokens.

    Attributes:
        server: The server's name in the config with which it was made.
        address: The server's address.
        issuer: The authorization server.
        scopes: The granted scopes.
        expires: When the token expires, in seconds since 1970, or None if that is not known.
        renewable: Whether it is renewed without a new sign-in.
        file: The name of the file with the tokens.
    """

    server: str
    address: str
    issuer: str = ""
    scopes: tuple[str, ...] = ()
    expires: float | None = None
    renewable: bool = False
    file: str = field(default="", repr=False)


@dataclass(frozen=True, eq=False)
class Accounts(DisplayableList[Account]):
    """The sign-ins that are remembered on this computer, read when they are first counted, iterated
    or displayed.
    """

    find: Callable[[], tuple[Account, ...]] = field(repr=False)

    @cached_property
    def _read(self) -> tuple[Account, ...]:
        return self.find()

    @property
    def _items(self) -> tuple[Account, ...]:
        return self._read
