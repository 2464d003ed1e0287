"""List all pages of a server's listing.

See https://modelcontextprotocol.io/specification/2025-11-25/server/utilities/pagination.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from casual_mcp_nb.errors import shown
from casual_mcp_nb.servers.convert import CacheHint, hint_of, shortest
from casual_mcp_nb.servers.logs import logger

MAX_PAGES = 100


async def all_pages(
    list_page: Callable[[str | None], Awaitable[Any]], field: str, *, server: str, most: int
) -> tuple[list[Any], CacheHint]:
    """List all items, page by page, and combine the caching hints of the pages.

    An endless listing stops at a limit, with a logged warning.

    Args:
        list_page: Called with a page's cursor. It returns None if there is no such listing.
        field: The page's attribute with the items.
        server: The server's name.
        most: How many items are kept.
    """
    items: list[Any] = []
    hints: list[CacheHint] = []
    seen: set[str] = set()
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await list_page(cursor)
        if page is None:
            return items, shortest(hints)
        items += getattr(page, field)
        hints.append(hint_of(page))
        cursor = page.next_cursor
        if cursor is None:
            return items, shortest(hints)
        if cursor in seen or len(items) >= most:
            break
        seen.add(cursor)
    items = items[:most]
    logger.warning(
        "The list of %s of server %s does not end. The first %d are kept.",
        field.replace("_", " "),
        shown(server),
        len(items),
    )
    return items, shortest(hints)
