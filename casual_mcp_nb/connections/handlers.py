"""What a server may ask of us or tell us."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from casual_mcp_nb.connections._deadlines import CallDeadlines
from casual_mcp_nb.connections._log import logger
from casual_mcp_nb.connections._redactor import Redactor
from casual_mcp_nb.errors import shown
from casual_mcp_nb.types.asking import AnswerLimits

MAX_LOG = 10_000


class OpenRequests:
    """What servers ask the person at this moment, counted."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._refused: set[str] = set()

    def room_for(self, server: str, limits: AnswerLimits) -> bool:
        """Whether one more request of a server may be put to the person."""
        return self._counts[server] < limits.per_server and self._counts.total() < limits.in_all

    def first_refused(self, server: str) -> bool:
        """Whether this is the first request of a server that is refused since it had none open."""
        first = server not in self._refused
        self._refused.add(server)
        return first

    @contextmanager
    def counted(self, server: str) -> Iterator[None]:
        """Count a request as open in the body."""
        self._counts[server] += 1
        try:
            yield
        finally:
            self._counts[server] -= 1
            if not self._counts[server]:
                self._refused.discard(server)


@dataclass(frozen=True)
class Handlers:
    """Callbacks, all on the engine's loop. A capability is declared to servers only when its handler is set.

    Args:
        log: Called with server, level and text when a server sends a log message.
        elicitation: Called with server, message, response type, parameters and context; gives the answer as fastmcp's
            elicitation handlers do.
        sampling: Called with server, messages, parameters and context; gives the text or the SDK's message.
        roots: Called with the server's name; gives the `file://` addresses that it may use.
        changed: Called without arguments whenever a status or a list of tools changed.
        notice: Called with server and text when the person should know what became of a request of a server.
        answer_limits: How long, and how many at a time, requests to the person wait for an answer.
        open_requests: Those that wait now, of all servers that share these handlers.
    """

    log: Callable[[str, str, str], None] | None = None
    elicitation: Callable[..., Awaitable[Any]] | None = None
    sampling: Callable[..., Awaitable[Any]] | None = None
    roots: Callable[[str], Sequence[str]] | None = None
    changed: Callable[[], None] | None = None
    notice: Callable[[str, str], None] | None = None
    answer_limits: AnswerLimits = field(default_factory=AnswerLimits)
    open_requests: OpenRequests = field(default_factory=OpenRequests, repr=False)


def client_options(handlers: Handlers, server: str, mask: Redactor, clocks: CallDeadlines) -> dict[str, Any]:
    """The handlers as fastmcp's client takes them, each told the server's name. What is not set is not declared."""
    options: dict[str, Any] = {"log_handler": partial(_on_log, handlers, server, mask)}
    if handlers.elicitation is not None:
        options["elicitation_handler"] = partial(_ask, handlers, clocks, mask, server)
    if handlers.sampling is not None:
        options["sampling_handler"] = partial(handlers.sampling, server)
    if (roots := handlers.roots) is not None:
        options["roots"] = lambda _context: list(roots(server))
    return options


def tell_refused(handlers: Handlers, server: str, method: str) -> None:
    """Say that a server asked for something and was refused, since no handler is set for it."""
    tell(handlers, server, f"The server asked for {shown(method)} and was refused: there is no handler for it.")


def tell(handlers: Handlers, server: str, text: str) -> None:
    """Warn of something about a server, as if it had logged it."""
    if handlers.log is not None:
        handlers.log(server, "warning", text)
    logger.warning("Server %s: %s", shown(server), text)


async def _ask(handlers: Handlers, clocks: CallDeadlines, mask: Redactor, server: str, message: str, *asked: Any) -> Any:
    from mcp_types import ElicitResult

    kind, params, context = asked
    limits = handlers.answer_limits
    if not handlers.open_requests.room_for(server, limits):
        if handlers.open_requests.first_refused(server):
            _say(handlers, server, "The server asked too much at a time; its further requests to the person were cancelled.")
        return ElicitResult(action="cancel")
    # A link stays as it is: with a mask in it, it could not be opened.
    masked = {"message": mask(message)}
    if hasattr(params, "requested_schema"):
        masked["requested_schema"] = mask.schema(params.requested_schema)
    assert handlers.elicitation is not None
    answer = asyncio.ensure_future(
        handlers.elicitation(server, masked["message"], kind, params.model_copy(update=masked), context)
    )
    calls_ended = clocks.until_empty()
    with handlers.open_requests.counted(server), clocks.waiting_for_a_person():
        try:
            # Not `wait_for`: a handler that ignores its cancellation must not stop the clocks for longer.
            await asyncio.wait({answer, calls_ended}, timeout=limits.seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            answered = answer.done()
            answer.cancel()
    if answered:
        return answer.result()
    if not calls_ended.done():
        _say(handlers, server, f"{limits.nobody_answered} What the server asked the person was cancelled.")
    return ElicitResult(action="cancel")


def _say(handlers: Handlers, server: str, text: str) -> None:
    if handlers.notice is not None:
        handlers.notice(server, text)
    logger.warning("Server %s: %s", shown(server), text)


async def _on_log(handlers: Handlers, server: str, mask: Redactor, message: Any) -> None:
    text = mask(_log_text(message.data))[:MAX_LOG]
    if handlers.log is not None:
        handlers.log(server, str(message.level), text)
    else:
        logger.debug("Server %s: %s: %s", shown(server), message.level, shown(text))


def _log_text(data: Any) -> str:
    """The text of a log message; FastMCP's servers wrap theirs in `msg` beside an `extra` that is mostly empty."""
    if isinstance(data, dict) and isinstance(data.get("msg"), str) and not data.get("extra"):
        data = data["msg"]
    return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, default=str)
