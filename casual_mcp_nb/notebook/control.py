"""How a session is followed and steered from outside of a cell."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Unpack

from casual_mcp_nb.engine.signatures import spelled_out
from casual_mcp_nb.errors import UnknownNameError, UsageError, brief
from casual_mcp_nb.notebook.interaction.pending import Questions
from casual_mcp_nb.notebook.observers import Observers, OnChange, OnEvent
from casual_mcp_nb.notebook.options import ChatOptions
from casual_mcp_nb.notebook.reports import SessionReports

if TYPE_CHECKING:
    from casual_mcp_nb.widgets.panel import Panel


def checked_system(text: str | None) -> str | None:
    """A system prompt that can be one.

    Raises:
        UsageError: It is neither text nor None.
    """
    if text is not None and not isinstance(text, str):
        raise UsageError(f"system cannot be {brief(text)}.", hint="It is a text, or None for the model's template.")
    return text


class SessionControl(SessionReports):
    """The part of `Session` that panels and other code around it use."""

    _observers: Observers
    _questions: Questions
    _model: str | None
    _step_mode = False

    @property
    def model(self) -> str | None:
        """Name of the model that is used unless a call names another; None where the config has none."""
        return self._model

    @model.setter
    def model(self, name: str | None) -> None:
        if name is not None and name not in self.config.models:
            raise UnknownNameError("model", str(name), self.config.models)
        self._model = name
        self._observers.changed()

    @property
    def system(self) -> str | None:
        """The system prompt of turns that name neither another one nor a template; None for the model's template."""
        return self._chat.system

    @system.setter
    def system(self, text: str | None) -> None:
        self._chat.system = checked_system(text)
        self._observers.changed()

    @property
    def busy(self) -> bool:
        """Whether a turn is running."""
        return self._runner.busy

    @property
    def closed(self) -> bool:
        """Whether it was closed, or a newer session took its place."""
        return self._runner.ended

    @property
    def questions(self) -> Questions:
        """What running turns wait for the person to answer: calls to approve, forms of servers, pauses of the step mode."""
        return self._questions

    @property
    def step_mode(self) -> bool:
        """Whether turns pause before each call of the model; it holds at once, also for a turn that is running."""
        return self._step_mode

    @step_mode.setter
    def step_mode(self, on: bool) -> None:
        if not isinstance(on, bool):
            raise UsageError(f"step_mode cannot be {brief(on)}.", hint="It is True or False.")
        self._step_mode = on
        self._observers.changed()

    @spelled_out(ChatOptions)
    def panel(self, **options: Unpack[ChatOptions]) -> Panel:
        """A panel to chat in: message box, live transcript, approvals, step mode, tokens.

        Args:
            options: For the turns that begin in it, as of `chat`.

        Returns:
            A widget; as the last value of a cell it shows itself.
        """
        panel: Panel = importlib.import_module("casual_mcp_nb.widgets").Panel(self, **options)
        return panel

    def observe(self, listener: OnEvent) -> Callable[[], None]:
        """Follow the events of every turn, whoever started it.

        Args:
            listener: Called with the turn and the event, after the trace has it, on the engine's thread: it must be quick.
                When it raises, that goes to the log and the turn goes on.

        Returns:
            A function that ends it.
        """
        return self._observers.observe(listener)

    def on_change(self, listener: OnChange) -> Callable[[], None]:
        """Be told when something else than the selection changed: a server, the tools, the turns, the model, a question.

        Args:
            listener: Called without arguments, on the thread that made the change: it must be quick. When it raises, that
                goes to the log.

        Returns:
            A function that ends it.
        """
        return self._observers.on_change(listener)

    def on_close(self, listener: OnChange) -> Callable[[], None]:
        """Be told, once, when the session closes, also where a newer one takes its place.

        Args:
            listener: Called without arguments, on the thread that closes it.

        Returns:
            A function that ends it.
        """
        return self._observers.on_close(listener)
