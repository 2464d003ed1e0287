"""The state of a widget and the actions on it: plain Python over a session, without a front end."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, ParamSpec, Protocol, TypeVar

from pydantic import ValidationError, validate_call

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.base.selection import Listeners
from casual_mcp_nb.display.words import clean
from casual_mcp_nb.engine.events import Observers
from casual_mcp_nb.errors import UsageError, shown
from casual_mcp_nb.notebook.cassettes import SessionCassettes
from casual_mcp_nb.notebook.consent import SessionConsent
from casual_mcp_nb.notebook.loop import EngineThread
from casual_mcp_nb.notebook.prompts import Questions
from casual_mcp_nb.notebook.resource_service import ResourceService
from casual_mcp_nb.notebook.servers import SessionServers
from casual_mcp_nb.notebook.starting import ServerStarter
from casual_mcp_nb.notebook.tools import SessionTools
from casual_mcp_nb.notebook.turn_service import TurnService

P = ParamSpec("P")
T = TypeVar("T")

_MARK = "_casual_mcp_command"


def command(method: Callable[P, T]) -> Callable[P, T]:
    """Mark a method, plain or async, that a front end may call with keyword arguments."""
    setattr(method, _MARK, True)
    return method


class SessionParts(Protocol):
    """The parts of a session that widgets use."""

    config: Config
    engine: EngineThread
    observers: Observers
    questions: Questions
    starter: ServerStarter
    resource_service: ResourceService
    turn_service: TurnService

    @property
    def cassettes(self) -> SessionCassettes:
        """The recorder and player of cassettes."""
        ...

    @property
    def tools(self) -> SessionTools:
        """The tools."""
        ...

    @property
    def servers(self) -> SessionServers:
        """The servers."""
        ...

    @property
    def consent(self) -> SessionConsent:
        """The accepted config, and the record of calls."""
        ...


class State:
    """The base of the states that widgets show.

    Args:
        session: The session.

    Attributes:
        commands: Names of the methods that a front end may call.
    """

    commands: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, session: SessionParts) -> None:
        self.session = session
        self._listeners = Listeners[[]]()
        self._cancels: list[Callable[[], object]] = []

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.commands = frozenset(name for name, member in inspect.getmembers(cls) if getattr(member, _MARK, False))

    def snapshot(self) -> dict[str, Any]:
        """Collect the whole state as JSON; None means absent. Tables are dicts by row, so that patches stay small."""
        return {}

    def watch(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Have a function called after each change, on the thread that made it.

        Returns:
            A function that ends the subscription.
        """
        return self._listeners.add(listener)

    def changed(self) -> None:
        """Notify those who watch."""
        self._listeners.notify()

    def follow(self, cancel: Callable[[], object]) -> None:
        """Note a function that ends a subscription of this state; `close` calls it."""
        self._cancels.append(cancel)

    async def call(self, name: str, arguments: dict[str, Any]) -> Any:
        """Run a command.

        Args:
            name: One of `commands`.
            arguments: Its keyword arguments, as JSON; they are checked against the method's type hints.

        Returns:
            The method's result.

        Raises:
            UsageError: There is no such command, or the arguments are not valid. The command's own errors are raised too.
        """
        if name not in self.commands:
            raise UsageError(f"There is no command {shown(name)}.", hint=f"There are: {', '.join(sorted(self.commands))}.")
        method = getattr(self, name)
        try:
            inspect.signature(method).bind(**arguments)
            result = validate_call(method)(**arguments)
        except (ValidationError, TypeError) as error:
            raise UsageError(f"Invalid arguments for the command {name}: {shown(str(error), 300)}.") from None
        return await result if inspect.isawaitable(result) else result

    def close(self) -> None:
        """End all subscriptions of this state and to it."""
        for cancel in self._cancels:
            cancel()
        self._cancels.clear()
        self._listeners.clear()


def unaccepted(session: SessionParts) -> dict[str, Any] | None:
    """List the entries kept from starting, whole; None if there are none."""
    report = session.consent.unaccepted
    return None if report is None else {"file": clean(Path(report.source).name), "text": clean(report.text)}


async def accept(session: SessionParts) -> None:
    """Accept it as it was shown, and start the servers in the background.

    Raises:
        UsageError: It cannot be remembered.
    """
    report = session.consent.unaccepted
    if report is not None:
        await asyncio.to_thread(report.accept)
        session.engine.submit(session.starter.start())
