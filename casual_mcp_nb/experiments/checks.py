"""Call a person's check functions: in a thread of their own and with a time limit, so that runs go on."""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import functools
import hashlib
import inspect
import threading
import types
from collections.abc import Callable, Mapping
from typing import Any

from casual_mcp_nb.errors import shown

CHECK_SECONDS = 10.0
"""How long a check function may take."""

Functions = Mapping[str, Callable[..., Any]]
"""Functions by the names that files call them by. A file alone never makes anything run."""

Caller = Callable[[Callable[..., Any], Any], bool]
"""Calls a check function with its value, and returns whether that holds. See `direct`."""


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
    return str(getattr(function, "__name__", type(function).__name__))


def direct(function: Callable[..., Any], value: Any) -> bool:
    """Call a check, asynchronous or not, in a thread of its own.

    A function that takes longer than `CHECK_SECONDS` is interrupted. If that does not end it, its thread stays behind and
    ends with the process.

    Args:
        function: The check.
        value: What it checks.

    Returns:
        Whether its result is true.

    Raises:
        CheckError: It raised, or took too long.
    """
    results: list[bool] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            result = function(value)
            if inspect.isawaitable(result):
                result = asyncio.run(_awaited(result))
            results.append(bool(result))
        except BaseException as error:
            errors.append(error)

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(work,), name="casual-mcp-check", daemon=True)
    thread.start()
    thread.join(CHECK_SECONDS)
    if results:
        return results[0]
    if errors:
        error = errors[0]
        reason = f"{shown(name_of(function))} raised {type(error).__name__}: {shown(str(error), 200)}"
        raise CheckError(reason) from error
    _interrupt(thread)
    raise CheckError(f"{shown(name_of(function))} took longer than {CHECK_SECONDS:g} s", slow=True)


async def _awaited(result: Any) -> Any:
    async with asyncio.timeout(CHECK_SECONDS):
        return await result


def _interrupt(thread: threading.Thread) -> None:
    """Raise SystemExit in a thread. One that computes ends, and one that waits in the system goes on."""
    if thread.ident is not None and thread.is_alive():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))


def fingerprint(function: Any) -> str:
    """Hash what a function does, as far as it can be seen: its code, defaults and the values that it holds.

    The same text in another place has the same one. A function that it calls may change unseen.
    """
    return hashlib.sha256("\0".join(_parts(function, 0)).encode("utf-8", "replace")).hexdigest()


_DEEPEST = 5
_MOST = 1_000


def _parts(value: Any, depth: int) -> list[str]:
    if depth > _DEEPEST:
        return [type(value).__qualname__]
    deeper = depth + 1
    match value:
        case types.CodeType():
            own = [value.co_code.hex(), *value.co_names, *value.co_varnames, *value.co_freevars]
            return [*own, *(part for each in value.co_consts for part in _parts(each, deeper))]
        case types.FunctionType():
            held = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
            own = [value.__code__, value.__defaults__, value.__kwdefaults__, *held]
            return [part for each in own for part in _parts(each, deeper)]
        case types.BuiltinFunctionType() | types.WrapperDescriptorType() | type():
            return [value.__qualname__]
        case types.MethodType():
            return [*_parts(value.__func__, deeper), *_parts(value.__self__, deeper)]
        case functools.partial():
            own = [value.func, value.args, value.keywords]
            return [part for each in own for part in _parts(each, deeper)]
        case bool() | int():
            return [type(value).__name__, hex(value)]
        case None | float() | complex() | str() | bytes():
            return [type(value).__name__, repr(value)]
        case tuple() | list():
            return [type(value).__name__, *(part for each in value[:_MOST] for part in _parts(each, deeper))]
        case set() | frozenset():
            return sorted("\1".join(_parts(each, deeper)) for each in value)
        case dict():
            return [part for pair in list(value.items())[:_MOST] for part in _parts(pair, deeper)]
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    if not callable(value):
        # It may hold half the notebook.
        return [name]
    return [name, *_parts(type(value).__call__, deeper), *_parts(dict(getattr(value, "__dict__", {})), deeper)]


def _is_filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False
