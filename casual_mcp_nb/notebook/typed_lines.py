"""Read lines that a person types at a prompt, so that a read can be cancelled."""

from __future__ import annotations

import asyncio
import builtins
import contextvars
import ctypes
import os
import selectors
import shutil
import sys
import threading
from contextlib import suppress
from textwrap import fill
from types import BuiltinFunctionType

from casual_mcp_nb.notebook.caller import notebook_shell

_END_SECONDS = 2.0
"""How long a prompt waits for a cancelled one before it to end."""

_CELL_WIDTH = 80
"""The columns of a line in a cell, which does not say how wide it is."""


def can_prompt() -> bool:
    """Check whether somebody could answer a prompt now.

    That can be in a kernel whose front end takes input, or in a terminal.
    """
    shell = notebook_shell()
    if shell is not None:
        # The front end sets this with each cell. The kernel's `raw_input` looks at it too.
        return bool(getattr(shell.kernel, "_allow_stdin", True))
    try:
        return sys.stdin.isatty()
    except (AttributeError, ValueError):
        return False


async def prompted(text: str, context: contextvars.Context) -> str:
    """Show a prompt and return the line that is typed.

    The line is read on another thread, because it may never come. Cancelling this ends the read, so
    that the next prompt gets the next line. A blocked `input()` could not be ended: it would also
    hold the lock of `sys.stdin`, which the interpreter needs at its shutdown.

    Args:
        text: The prompt.
        context: The variables by which a kernel finds the cell to ask in.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[str] = loop.create_future()
    reader = _descriptor_reader(text) or _InputReader(text)

    def settle(line: str, error: Exception | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(line)

    def read() -> None:
        line, error = "", None
        try:
            line = reader.read()
        except _Cancelled:
            return
        except Exception as failure:
            error = failure
        # The line can come too late: after the loop has ended, or together with the interrupt.
        with suppress(RuntimeError, KeyboardInterrupt):
            loop.call_soon_threadsafe(settle, line, error)

    thread = threading.Thread(
        target=context.copy().run, args=(read,), name="casual-mcp-input", daemon=True
    )
    thread.start()
    try:
        return await answer
    finally:
        reader.cancel(thread)


class _Cancelled(Exception):
    """The read was cancelled: nobody waits for this line any more."""


class _DescriptorReader:
    """Reads a line from a terminal, a pipe or a file, byte by byte from its descriptor."""

    def __init__(self, text: str, descriptor: int) -> None:
        self._text = _wrapped(text) if os.isatty(descriptor) else text
        self._descriptor = descriptor
        self._woken, self._wake = os.pipe()

    def read(self) -> str:
        """Read the line, without its line end."""
        try:
            if sys.stdout is not None:
                sys.stdout.write(self._text)
                sys.stdout.flush()
            line = bytearray(_left_in_buffer(self._descriptor))
            with (
                selectors.SelectSelector() if sys.platform == "darwin" else selectors.PollSelector()
            ) as selector:
                selector.register(self._descriptor, selectors.EVENT_READ)
                selector.register(self._woken, selectors.EVENT_READ)
                while not line.endswith(b"\n"):
                    if any(key.fd == self._woken for key, _ in selector.select()):
                        raise _Cancelled
                    # No more than the line, since what follows belongs to whoever reads next.
                    byte = os.read(self._descriptor, 1)
                    if not byte:
                        break
                    line += byte
        finally:
            os.close(self._woken)
        if not line:
            raise EOFError
        return line.decode(errors="replace").removesuffix("\n").removesuffix("\r")

    def cancel(self, _thread: threading.Thread) -> None:
        """End the read. Harmless if it has ended."""
        os.close(self._wake)


_cancelled: set[threading.Event] = set()
"""The ends of the reads with `input()` that were cancelled and have not ended yet."""


class _InputReader:
    """Reads a line with `input()`, where a front end has replaced Python's own."""

    def __init__(self, text: str) -> None:
        self._text = _wrapped(text)
        self._ended = threading.Event()

    def read(self) -> str:
        try:
            self._wait_for_cancelled()
            return input(self._text)
        except KeyboardInterrupt:
            raise _Cancelled from None
        finally:
            self._ended.set()
            _cancelled.discard(self._ended)

    def _wait_for_cancelled(self) -> None:
        """Wait until earlier reads have noticed that they were cancelled.

        In a kernel, two reads at the same time would tear an answer apart.
        """
        for ended in _cancelled - {self._ended}:
            ended.wait(_END_SECONDS)
            _cancelled.discard(ended)

    def cancel(self, thread: threading.Thread) -> None:
        """End the read, which would otherwise take the answer to the next prompt.

        It is ended by an interrupt, which a kernel notices while it waits for the line.
        """
        if thread.ident is not None and not self._ended.is_set():
            _cancelled.add(self._ended)
            interrupt = ctypes.py_object(KeyboardInterrupt)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), interrupt)


def _wrapped(text: str) -> str:
    """Break a prompt's long lines between words, where a terminal or a cell would break them
    anywhere. What follows is indented, so that a part of a text cannot pass for another line.
    """
    width = _CELL_WIDTH
    if notebook_shell() is None:
        width = shutil.get_terminal_size().columns
    lines: list[str] = []
    for line in text.split("\n"):
        indent = " " * (len(line) - len(line.lstrip(" ")) + 2)
        lines.append(
            fill(
                line,
                width,
                subsequent_indent=indent,
                expand_tabs=False,
                replace_whitespace=False,
                break_long_words=False,
                break_on_hyphens=False,
            )
        )
    end = text[len(text.rstrip(" ")) :]
    return "\n".join(lines) + end


def _descriptor_reader(text: str) -> _DescriptorReader | None:
    """Create a reader for standard input.

    None if a front end has replaced `input()`, or if the input cannot be waited for.
    """
    if sys.platform == "win32" or not isinstance(builtins.input, BuiltinFunctionType):
        return None
    try:
        return _DescriptorReader(text, sys.stdin.fileno())
    except (AttributeError, OSError, ValueError):
        return None


def _left_in_buffer(descriptor: int) -> bytes:
    """Read a line, or a part of one, that is in the buffer of `sys.stdin`.

    An earlier read of `sys.stdin` from a pipe or a file may have taken more than its own line. Only
    a read can look into that buffer, and it can block. So the input behind the buffer is replaced
    by an empty one meanwhile.
    """
    if os.isatty(descriptor):
        return b""
    real, empty = os.dup(descriptor), os.open(os.devnull, os.O_RDONLY)
    inheritable = os.get_inheritable(descriptor)
    try:
        os.dup2(empty, descriptor, inheritable)
        return sys.stdin.readline().encode(errors="surrogateescape")
    finally:
        os.dup2(real, descriptor, inheritable)
        os.close(real)
        os.close(empty)
