"""Asking the person before a call, with `input()`: it works while a cell runs, in a terminal and in a script."""

from __future__ import annotations

import asyncio
import json

from casual_mcp_nb.engine.approval import ApprovalRequest


def question(request: ApprovalRequest) -> str:
    """What the person is asked: server, tool and the complete arguments, written out so that nothing hides in them."""
    arguments = json.dumps(request.arguments, indent=2, ensure_ascii=True, default=str)
    words = ", ".join(request.tool.annotations.badges) if request.tool.annotations else ""
    claims = f" ({words})" if words else ""
    return (
        f"The model wants to call {request.tool.name!a} of server {request.tool.server!a}{claims} with\n"
        f"{arguments}\nRun it? [y/N] "
    )


async def ask_with_input(request: ApprovalRequest) -> bool:
    """Ask with `input()`; where nobody can be asked, the answer is no."""
    try:
        answer = await asyncio.to_thread(input, question(request))
    except (EOFError, OSError, RuntimeError, NotImplementedError):
        return False
    return answer.strip().lower() in ("y", "yes")
