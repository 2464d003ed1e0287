"""Variables of the notebook that hold results of calls.

A restarted kernel loses them. Each then holds a value that says so, and which call makes it again.
"""

from __future__ import annotations

import builtins
import keyword
from collections import deque
from collections.abc import Callable, Collection, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from casual_mcp_nb.base.callbacks import VALUE_READERS
from casual_mcp_nb.errors import UsageError

if TYPE_CHECKING:
    from casual_mcp_nb.conversation.step import ToolCall

MAX_VARIABLES = 100
MAX_CODE = 500
"""How long the code that makes a value again may be. Longer arguments are left out."""

_EVERYWHERE = (str, bytes, int, float, complex, bool, type(None))
"""Types of which Python may use one object in many places. That a variable holds such an object
does not show that it holds the result, unless the result is large.
"""


class Held(NamedTuple):
    """What a variable holds.

    Args:
        call: The call that made it.
        suffix: What of the call it is: `.value`, or empty for the call itself.
    """

    call: ToolCall
    suffix: str


class HeldValues:
    """Notes which variables hold results, after each cell.

    Args:
        remember: Called with what the variables hold, by their names.
        namespace: The notebook's variables.
    """

    def __init__(
        self, remember: Callable[[Mapping[str, Held]], object], namespace: Mapping[str, Any]
    ) -> None:
        self._remember = remember
        self._namespace = namespace
        # A value that is read stays alive until the cell has ended, so they are not many.
        self._read: deque[tuple[Any, ToolCall]] = deque(maxlen=MAX_VARIABLES)

    def begin(self) -> None:
        """Note each value of a call that is read, from now on."""
        VALUE_READERS.append(self._on_value)

    def end(self) -> None:
        """Note no more values."""
        VALUE_READERS.remove(self._on_value)

    def note(self, name: str, value: Any) -> None:
        """Note what a magic's line has stored in a variable."""
        from casual_mcp_nb.conversation.step import ToolCall

        if isinstance(value, ToolCall):
            self._remember({name: Held(value, "")})

    def after_cell(self, *_: object) -> None:
        """Look up which variables hold a value that the cell read."""
        read = list(self._read)
        self._read.clear()
        if not read:
            return
        found: dict[str, Held] = {}
        for name, held in list(self._namespace.items()):
            if name.startswith("_"):
                continue
            for value, call in read:
                if held is value:
                    found[name] = Held(call, ".value")
        if found:
            self._remember(found)

    def _on_value(self, call: ToolCall, value: Any) -> None:
        if call.large is not None or not isinstance(value, _EVERYWHERE):
            self._read.append((value, call))


def code_of(name: str, held: Held, secrets: Collection[str]) -> str:
    """Write the code that gives a variable its value again. Secrets in the arguments are masked,
    since it is saved.
    """
    from casual_mcp_nb.conversation.codec import plain

    arguments = "…"
    given = plain(held.call.arguments, secrets=secrets)
    if isinstance(given, dict):
        if all(map(str.isidentifier, given)):
            arguments = ", ".join(f"{key}={value!r}" for key, value in given.items())
        else:
            arguments = f"**{given!r}"
    if len(arguments) > MAX_CODE:
        arguments = "…"
    parts = ", ".join(filter(None, (repr(str(held.call.tool)), arguments)))
    return f"{name} = session.tools.call({parts}){held.suffix}"


def place_gone_values(namespace: MutableMapping[str, Any], variables: Mapping[str, str]) -> None:
    """Put a `GoneValue` into each of these variables that is not set."""
    for name, code in list(variables.items())[:MAX_VARIABLES]:
        # The names come from a file that anybody may have written.
        is_free = name.isidentifier() and not keyword.iskeyword(name)
        if is_free and not name.startswith("_") and not hasattr(builtins, name):
            namespace.setdefault(name, GoneValue(name, code))


class GoneValue:
    """Stands for a value that was lost when the kernel was restarted.

    Its text says so, and how to make the value again. Every use of it is an error with that text.
    """

    def __init__(self, name: str, code: str) -> None:
        printable = "".join(each if each.isprintable() else "?" for each in code[: 2 * MAX_CODE])
        self._text = f"{name} was in the kernel before its restart and is gone."
        self._hint = f"To call the tool again: {printable}"

    def __repr__(self) -> str:
        return f"{self._text} {self._hint}"

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise UsageError(self._text, hint=self._hint)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            # What libraries look for, as IPython does for ways to show it.
            raise AttributeError(name)
        self._refuse()

    __len__ = __iter__ = __getitem__ = __setitem__ = __contains__ = __call__ = _refuse
    __bool__ = __add__ = __radd__ = __sub__ = __mul__ = __truediv__ = __lt__ = __gt__ = _refuse
