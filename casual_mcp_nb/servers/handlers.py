"""What a session does for its servers: it answers them, and shows what they say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.limits import AnswerLimits
from casual_mcp_nb.base.mcp import (
    AddressRequest,
    QuestionAnswer,
    SamplingAnswer,
    SamplingRequest,
    ServerQuestion,
    SignInRequest,
)


class OpenRequests:
    """Counts the servers' requests that wait for the person."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._refused: set[str] = set()

    def room_for(self, server: str, limits: AnswerLimits) -> bool:
        """Check whether a server may ask the person one more question."""
        return self._counts[server] < limits.per_server and self._counts.total() < limits.in_all

    def first_refused(self, server: str) -> bool:
        """Check whether a server's request is the first to be refused since another request of this
        server was opened or ended, or since no request of any server was open.
        """
        first = server not in self._refused
        self._refused.add(server)
        return first

    @contextmanager
    def counted(self, server: str) -> Iterator[None]:
        """Count a request as open while the body runs."""
        self._counts[server] += 1
        self._refused.discard(server)
        try:
            yield
        finally:
            self._counts[server] -= 1
            self._refused.discard(server)
            if not self._counts.total():
                self._refused.clear()


AskQuestion = Callable[[ServerQuestion], Awaitable[QuestionAnswer]]
"""Asks the person a server's question."""

AskToSignIn = Callable[[SignInRequest | AddressRequest], Awaitable[str]]
"""Asks the person to sign in, or to accept an address.

For a sign-in, it returns the address of the page at which their browser ended, or the code that
the page showed. For an address, it returns that address. It raises ConnectionError if the person
declines, and `NobodyToAsk`.
"""


async def _nobody_waits() -> None:
    """Do nothing about a late listing."""


@dataclass
class Handlers:
    """What a session does for its servers: callbacks, all called on the engine's loop.

    All its connections share this one object, which nothing below the session changes. Those that
    answer are None where nobody does, and then the capability is not declared to servers. Those
    that only tell something are never None.

    A handshake declares roots if the server's config has some, and sampling if it allows that. In
    the version without a handshake, only another program's own capabilities are declared. See
    https://modelcontextprotocol.io/specification/2025-11-25/client for elicitation, sampling and
    roots.

    Args:
        elicitation: Asks the person a question of a running call, or of a task.
        sampling: Called with server and request. Gives the answer, or raises `SamplingRefused`.
        sign_in: Called with a request that belongs to a sign-in, see `AskToSignIn`.
        log: Called with server, level and text when a server sends a log message.
        notice: Called with server and text to tell the person how a server's request ended.
        listed_late: Called without arguments when a server has listed its tools after its start was
            over.
        answer_limits: How long requests to the person wait for an answer, and how many at a time.
        open_requests: Open requests, over all servers that share these handlers.
        apps: Whether apps are declared and read, for servers without their own setting.
    """

    elicitation: AskQuestion | None = None
    sampling: Callable[[str, SamplingRequest], Awaitable[SamplingAnswer]] | None = None
    sign_in: AskToSignIn | None = None
    log: Callable[[str, str, str], None] = ignore
    notice: Callable[[str, str], None] = ignore
    listed_late: Callable[[], Awaitable[None]] = _nobody_waits
    answer_limits: AnswerLimits = field(default_factory=AnswerLimits)
    open_requests: OpenRequests = field(default_factory=OpenRequests, repr=False)
    apps: bool = True

    def shows_apps(self, config: ServerConfig | None) -> bool:
        """Check whether a server's apps are shown."""
        if config is None or config.apps is None:
            return self.apps
        return config.apps


OWN_REQUEST = "casual_mcp_sign_in"
"""The extension that marks the requests of a sign-in, which carry no message to the server:
`registration` or `sign-in`.
"""


@dataclass(frozen=True)
class PersonToAsk:
    """Who signs in to a server: its name in the config, how to ask, and a pause of the deadlines
    meanwhile.

    `learn` is called with the secrets of the sign-in, which are masked from then on.
    """

    server: str
    ask: AskToSignIn | None = None
    waiting: Callable[[], AbstractContextManager[None]] = nullcontext
    learn: Callable[[Collection[str]], None] = ignore
