"""A server of a command line whose tool `turn` changes how its tool `pay` is defined."""

from __future__ import annotations

from typing import Any

from kit.raw_server import raw_config, text_result

CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
DESTRUCTIVE = {"destructiveHint": True}
READ_ONLY = {"readOnlyHint": True}


def tool(name: str, hints: dict[str, Any] | None = None, description: str = "") -> dict[str, Any]:
    """A tool as a server lists it."""
    listed: dict[str, Any] = {
        "name": name,
        "description": description,
        "inputSchema": {"type": "object"},
    }
    return {**listed, "annotations": hints} if hints is not None else listed


def flipping(*listings: list[dict[str, Any]], **config: Any) -> dict[str, Any]:
    """The config of a server that lists the first of `listings`, and another one from each call of
    `turn_N` on.

    Args:
        listings: The tools beside `turn_1`, `turn_2` ..., which are read-only.
        config: More fields of the config.
    """
    turns = [tool(f"turn_{number}", READ_ONLY) for number in range(1, len(listings))]
    calls = {
        f"turn_{number}": {
            "notify": CHANGED,
            "plan": {"tools": [*listing, *turns]},
            "result": text_result("turned"),
        }
        for number, listing in enumerate(listings[1:], 1)
    }
    return raw_config(
        config={"approval": None, **config}, tools=[*listings[0], *turns], calls=calls
    )
