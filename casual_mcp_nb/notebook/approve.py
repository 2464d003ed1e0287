"""Asking the person before a call, with `input()`: it works while a cell runs, in a terminal and in a script."""

from __future__ import annotations

import asyncio
import contextvars
import json
import threading

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
        answer = await _asked(question(request))
    except (EOFError, OSError, RuntimeError, NotImplementedError):
        return False
    return answer.strip().lower() in ("y", "yes")


async def _asked(text: str) -> str:
    """The answer, waited for on a thread that the interpreter does not wait for: nobody may ever answer."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[str] = loop.create_future()

    def settle(said: str, error: Exception | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(said)

    def ask() -> None:
        try:
            said, error = input(text), None
        except Exception as failure:
            said, error = "", failure
        loop.call_soon_threadsafe(settle, said, error)

    # A kernel finds by these variables the cell that the question belongs to.
    threading.Thread(target=contextvars.copy_context().run, args=(ask,), name="casual-mcp-input", daemon=True).start()
    return await answer
