"""Call a person's check functions in separate threads with a time limit, so that runs go on."""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import inspect
import threading
from collections.abc import Callable, Mapping
from typing import Any

from casual_mcp_nb.errors import shown

CHECK_SECONDS = 10.0
"""How long a check function may take."""

END_SECONDS = 1.0
"""How long one that is cancelled may take to end, before its thread is interrupted."""

Functions = Mapping[str, Callable[..., Any]]
"""Functions by the names that files call them by. A file alone never makes anything run."""


class CheckError(Exception):
    """A check could not tell: it raised, or took too long. The message has the reason.

    Args:
        reason: The reason.
        slow: Whether it took too long, so that no more of its kind should be tried.
    """

    def __init__(self, reason: str, *, slow: bool = False) -> None:
        super().__init__(reason)
        self.slow = slow


def name_of(function: Callable[..., Any]) -> str:
    """Name a function."""
    try:
        return str(getattr(function, "__name__", type(function).__name__))
    except Exception:
        return type(function).__name__


def holds(function: Callable[..., Any], value: Any) -> bool:
    """Call a check function, asynchronous or not, in a separate thread.

    A function that takes longer than `CHECK_SECONDS` is interrupted. If that does not end it, its
    thread stays behind and ends with the process.

    Args:
        function: The function.
        value: What it checks.

    Returns:
        Whether its result is true.

    Raises:
        CheckError: It raised, or took too long.
    """
    results = []
    errors = []
    late = CheckError(f"{shown(name_of(function))} took longer than {CHECK_SECONDS:g} s", slow=True)
    awaited = threading.Event()

    def work() -> None:
        try:
            result = function(value)
            if inspect.isawaitable(result):
                awaited.set()
                result = asyncio.run(_awaited(result, late))
            if inspect.isgenerator(result) or inspect.isasyncgen(result):
                raise TypeError("It yields, and must return whether the value is right.")
            results.append(bool(result))
        except BaseException as error:
            errors.append(error)

    context = contextvars.copy_context()
    thread = threading.Thread(
        target=context.run, args=(work,), name="casual-mcp-check", daemon=True
    )
    thread.start()
    thread.join(CHECK_SECONDS)
    if awaited.is_set():
        # Its own time limit cancels it. An interrupt meanwhile would leave its event loop unclosed.
        thread.join(END_SECONDS)
    if results:
        return results[0]
    if errors:
        error = errors[0]
        if error is late:
            raise late
        reason = (
            f"{shown(name_of(function))} raised {type(error).__name__}: {shown(_text(error), 200)}"
        )
        raise CheckError(reason) from error
    _interrupt(thread)
    raise late


def _text(error: BaseException) -> str:
    """Read an error's text, or say that even this fails."""
    try:
        return str(error)
    except Exception:
        return "its text cannot be read"


async def _awaited(result: Any, late: CheckError) -> Any:
    """Wait for a result, and raise `late` if it does not come in time."""
    limit = asyncio.timeout(CHECK_SECONDS)
    try:
        async with limit:
            return await result
    except TimeoutError:
        if limit.expired():
            raise late from None
        raise


def _interrupt(thread: threading.Thread) -> None:
    """Raise SystemExit in a thread.

    One that computes ends, and one that waits in the system goes on.
    """
    if thread.ident is not None and thread.is_alive():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit)
        )
