"""What a widget shows and what can be done with it: plain Python over a session, without a front end."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, TypeVar

from pydantic import ValidationError, validate_call

from casual_mcp_nb.errors import UsageError, shown

if TYPE_CHECKING:
    from casual_mcp_nb.notebook.session import Session

P = ParamSpec("P")
T = TypeVar("T")

Listener = Callable[[], None]

_MARK = "_casual_mcp_command"


def command(method: Callable[P, T]) -> Callable[P, T]:
    """Mark a method, plain or async, that a front end may call with keyword arguments."""
    setattr(method, _MARK, True)
    return method


class State:
    """The base of what widgets show.

    Args:
        session: What it is about.

    Attributes:
        commands: Names of the methods that a front end may call.
    """

    commands: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, session: Session) -> None:
        self.session = session
        self._listeners: list[Listener] = []
        self._cancels: list[Listener] = []

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.commands = frozenset(name for name, member in inspect.getmembers(cls) if getattr(member, _MARK, False))

    def snapshot(self) -> dict[str, Any]:
        """All that is shown, as JSON; None means absent. Tables that change row by row are dicts: so changes stay small."""
        return {}

    def watch(self, listener: Listener) -> Listener:
        """Have `listener` called after each change, on whatever thread made it.

        Returns:
            A function that ends it.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def changed(self) -> None:
        """Tell whoever watches."""
        for listener in list(self._listeners):
            listener()

    def follow(self, cancel: Listener) -> None:
        """Note how to end a subscription of this state; `close` does so."""
        self._cancels.append(cancel)

    async def call(self, name: str, arguments: dict[str, Any]) -> Any:
        """Run a command.

        Args:
            name: One of `commands`.
            arguments: Its keyword arguments, as JSON; they are checked against the method's type hints.

        Returns:
            What the method returns.

        Raises:
            UsageError: There is no such command, or the arguments do not fit. Beside this, what the command raises.
        """
        if name not in self.commands:
            raise UsageError(f"There is no command {shown(name)}.", hint=f"There are: {', '.join(sorted(self.commands))}.")
        method = getattr(self, name)
        try:
            inspect.signature(method).bind(**arguments)
            result = validate_call(method)(**arguments)
        except (ValidationError, TypeError) as error:
            raise UsageError(f"The command {name} was called wrongly: {shown(str(error), 300)}.") from None
        return await result if inspect.isawaitable(result) else result

    def close(self) -> None:
        """Let go of everything that it listens to."""
        for cancel in self._cancels:
            cancel()
        self._cancels.clear()
        self._listeners.clear()
