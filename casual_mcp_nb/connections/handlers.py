"""What a server may ask of us or tell us."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from casual_mcp_nb.connections._call import Clocks
from casual_mcp_nb.connections._log import logger
from casual_mcp_nb.connections._mask import Mask
from casual_mcp_nb.errors import shown

LONGEST_LOG = 10_000


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
    """

    log: Callable[[str, str, str], None] | None = None
    elicitation: Callable[..., Awaitable[Any]] | None = None
    sampling: Callable[..., Awaitable[Any]] | None = None
    roots: Callable[[str], Sequence[str]] | None = None
    changed: Callable[[], None] | None = None


def client_options(handlers: Handlers, server: str, mask: Mask, clocks: Clocks) -> dict[str, Any]:
    """The handlers as fastmcp's client takes them, each told the server's name. What is not set is not declared."""
    options: dict[str, Any] = {"log_handler": partial(_on_log, handlers, server, mask)}
    if handlers.elicitation is not None:
        options["elicitation_handler"] = partial(_ask, handlers.elicitation, clocks, mask, server)
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


async def _ask(
    elicitation: Callable[..., Awaitable[Any]], clocks: Clocks, mask: Mask, server: str, message: str, *asked: Any
) -> Any:
    kind, params, context = asked
    # A link stays as it is: with a mask in it, it could not be opened.
    masked = {"message": mask(message)}
    if hasattr(params, "requested_schema"):
        masked["requested_schema"] = mask.schema(params.requested_schema)
    with clocks.waiting_for_a_person():
        return await elicitation(server, masked["message"], kind, params.model_copy(update=masked), context)


async def _on_log(handlers: Handlers, server: str, mask: Mask, message: Any) -> None:
    text = mask(_log_text(message.data))[:LONGEST_LOG]
    if handlers.log is not None:
        handlers.log(server, str(message.level), text)
    else:
        logger.debug("Server %s: %s: %s", shown(server), message.level, shown(text))


def _log_text(data: Any) -> str:
    """The text of a log message; FastMCP's servers wrap theirs in `msg` beside an `extra` that is mostly empty."""
    if isinstance(data, dict) and isinstance(data.get("msg"), str) and not data.get("extra"):
        data = data["msg"]
    return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, default=str)
