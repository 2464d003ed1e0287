"""Base classes for all widgets: the states that they show, and the bridge between plain states and
a front end.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import uuid
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, ParamSpec, Protocol, TypeAlias, TypeVar

import anywidget
import ipywidgets  # type: ignore[import-untyped]
import traitlets
from pydantic import ValidationError, validate_call

from casual_mcp_nb.base.limits import strict_json
from casual_mcp_nb.base.secret import redacted
from casual_mcp_nb.base.selection import Listeners
from casual_mcp_nb.display.words import clean
from casual_mcp_nb.errors import CasualMcpError, UsageError, shown
from casual_mcp_nb.notebook.caller import notebook_shell
from casual_mcp_nb.notebook.live import Throttle
from casual_mcp_nb.notebook.parts import SessionParts

P = ParamSpec("P")
T = TypeVar("T")

Layout: TypeAlias = "ipywidgets.Layout | Mapping[str, Any]"
"""A layout of `ipywidgets`, or its fields, such as `{"width": "50%"}`."""

_MARK = "_casual_mcp_command"


def command(method: Callable[P, T]) -> Callable[P, T]:
    """Mark a method, plain or async, that a front end may call with keyword arguments."""
    setattr(method, _MARK, True)
    return method


class HasParts(Protocol):
    """A session, as far as a widget needs it."""

    @property
    def parts(self) -> SessionParts:
        """Its services."""


class State:
    """Base class for the states that widgets show.

    Attributes:
        commands: The methods that a front end may call, by name.
    """

    commands: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, session: HasParts) -> None:
        self.parts = session.parts
        self._listeners = Listeners[[]]()
        self._cancels: list[Callable[[], object]] = []

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        members = inspect.getmembers(cls)
        cls.commands = frozenset(name for name, each in members if getattr(each, _MARK, False))

    def snapshot(self) -> dict[str, Any]:
        """Collect the whole state as JSON. None means absent.

        Tables are dicts by row, so that patches stay small.
        """
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
        """Note a function that ends one of this state's subscriptions; `close` calls it."""
        self._cancels.append(cancel)

    async def call(self, name: str, arguments: dict[str, Any]) -> Any:
        """Run a command.

        Args:
            name: One of `commands`.
            arguments: Its keyword arguments, as JSON. They are checked against the method's type
                hints.

        Returns:
            The method's result.

        Raises:
            UsageError: There is no such command, or the arguments are not valid. The command's own
                errors are raised too.
        """
        if name not in self.commands:
            raise UsageError(
                f"There is no command {shown(name)}.",
                hint=f"There are: {', '.join(sorted(self.commands))}.",
            )
        method = getattr(self, name)
        try:
            inspect.signature(method).bind(**arguments)
            result = validate_call(method)(**arguments)
        except (ValidationError, TypeError) as error:
            raise UsageError(
                f"Invalid arguments for the command {name}: {shown(str(error), 300)}."
            ) from None
        if inspect.isawaitable(result):
            return await result
        return result

    def close(self) -> None:
        """End this state's subscriptions, and those to it."""
        for cancel in self._cancels:
            cancel()
        self._cancels.clear()
        self._listeners.clear()


def unaccepted(parts: SessionParts) -> dict[str, Any] | None:
    """List the entries kept from starting, whole, or return None."""
    report = parts.consent.unaccepted
    if report is None:
        return None
    return {"file": clean(Path(report.source).name), "text": clean(report.text)}


class AcceptsConfig:
    """A state whose person can accept the config."""

    parts: SessionParts

    @command
    async def accept_config(self) -> None:
        """Accept the config as it is shown, and start its servers in the background.

        Raises:
            UsageError: It cannot be remembered.
        """
        report = self.parts.consent.unaccepted
        if report is not None:
            await asyncio.to_thread(report.accept)
            self.parts.engine.submit(self.parts.starter.start())


STATIC = Path(__file__).parent / "static"


@cache
def bundle_of(name: str) -> tuple[str, str]:
    """Read a front end's ES module and style sheet.

    Args:
        name: The file in `static/`, without extension.

    Returns:
        JavaScript and CSS.
    """
    script = (STATIC / f"{name}.js").read_text(encoding="utf-8")
    style = (STATIC / f"{name}.css").read_text(encoding="utf-8")
    return script, style


_SECONDS_BETWEEN_PATCHES = 0.05
_SECONDS_BETWEEN_PICTURES = 1.0
MAX_ANSWERS = 20
"""How many answers are kept for pages that have not received theirs."""
# JupyterLab and Notebook show a line of text, "model not found", for a widget whose kernel is gone:
# the picture that follows says more. A widget that lives has elements in this place. The rule holds
# where the notebook is trusted.
_NO_MODEL = (
    ".jp-OutputArea-child:has(+ .jp-OutputArea-child .PICTURE) > .jupyter-widgets:not(:has(> *)) {"
    " display: none; }"
)

_FRAME = "border:1px solid rgba(128,128,128,0.45);border-radius:8px"
"""A picture's frame, inline so that it shows in a notebook that is not trusted."""


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Compute the JSON merge patch that turns `old` into `new`, or empty if they are the same.

    Source: RFC 7396. In such patches null means absent, so None is treated as absent.
    """
    patch: dict[str, Any] = {}
    for key, value in old.items():
        if value is not None and new.get(key) is None:
            patch[key] = None
    for key, value in new.items():
        before = old.get(key)
        if value is None or value is before:
            continue
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            part = merge_patch(before, value)
            if part:
                patch[key] = part
        elif value != before:
            patch[key] = without_none(value)
    return patch


def without_none(value: Any) -> Any:
    """Remove fields that are None: the front end would take null for 0."""
    if isinstance(value, Mapping):
        return {key: without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return list(map(without_none, value))
    return value


@dataclass(frozen=True)
class _Display:
    """A widget's display in a notebook: its view, and the picture below it."""

    view: Any
    picture: Any


@dataclass(frozen=True)
class _CellRun:
    """A cell run: the cell's id if the front end sends it, and the run's id."""

    cell: str | None = None
    run: str | None = None


def _running_cell() -> _CellRun:
    from IPython.core.getipython import get_ipython

    # Only a kernel's shell knows about parents.
    parent: dict[str, dict[str, str]] = getattr(get_ipython(), "get_parent", dict)()
    cell = parent.get("metadata", {}).get("cellId")
    run = parent.get("header", {}).get("msg_id")
    return _CellRun(cell, run)


def _sent(_value: object, widget: SessionWidget) -> dict[str, Any]:
    shown: dict[str, Any] = strict_json(without_none(widget.shown))[0]
    return shown


class SessionWidget(anywidget.AnyWidget):
    """Shows a session's states, and carries out the person's actions.

    A page that opens it gets the whole state first, and after that only changes. An action arrives
    as a command on a state, runs on the engine thread, and is always answered. A saved notebook
    shows a picture of its last state instead. When its session closes, the widget is replaced by
    that picture.

    Args:
        session: The session.
        layout: Its place and size in a box of `ipywidgets`, as any widget there takes it.
        states: Its states, by name. The front end calls their commands as `name.command`.

    Attributes:
        bundle: A subclass's front end, see `bundle_of`.
        more_css: Goes before their style sheet.
        footer: A line below its static picture, such as the panel's message box, or empty for none.
        shown: The values sent to the front end, by the state's name.
        picture_key: The key with which the front end finds this widget's picture, to hide it while
            the widget lives.
    """

    bundle: ClassVar[str]
    more_css: ClassVar[str] = ""
    footer: ClassVar[str] = ""
    state = traitlets.Dict().tag(sync=True, to_json=_sent)
    picture_key = traitlets.Unicode().tag(sync=True)

    def __init__(self, session: HasParts, layout: Layout | None = None, **states: State) -> None:
        self.session = session
        self.states: Mapping[str, State] = states
        self._lock = threading.Lock()
        self.shown: dict[str, Any] = self._snapshots()
        self._patches = Throttle(session.parts.engine, self._send_patch, _SECONDS_BETWEEN_PATCHES)
        self._pictures = Throttle(
            session.parts.engine, self._draw_picture, _SECONDS_BETWEEN_PICTURES
        )
        self._displays: list[_Display] = []
        self._run = _CellRun()
        self._cancels: list[Callable[[], object]] = []
        self._closed = False
        self._working: set[str] = set()
        self._answers: dict[str, dict[str, Any]] = {}
        self._esm, css = bundle_of(self.bundle)
        self._css = f"{self.more_css}\n{css}"
        traits: dict[str, Any] = {"picture_key": uuid.uuid4().hex[:12]}
        if layout is not None:
            traits["layout"] = layout
        super().__init__(**traits)
        self.on_msg(self._on_message)
        self._cancels = [state.watch(self._on_change) for state in states.values()]
        self._cancels.append(session.parts.observers.closing.add(self.freeze))
        # What changed during construction.
        self._on_change()
        if session.parts.turn_service.runner.ended:
            self.close()

    def _hear_during_cells(self) -> None:
        """Have the page's messages delivered while a blocking cell runs, where the kernel can."""

        def where_it_was_sent(_data: object, default: Any) -> Any:
            return default

        if hasattr(self.comm, "_reply_subshell_for"):
            # ipykernel 7.4 would hold them until the cell ends, although the page sends them to a
            # subshell. Other versions deliver them where the page says.
            self.comm._reply_subshell_for = where_it_was_sent

    def static(self) -> Any:
        """Build the value that is shown when no kernel runs."""
        return self.session

    def freeze(self) -> None:
        """Replace the widget with a picture of its state, in the live page and in the saved
        notebook, and close it.
        """
        displays, self._displays = self._displays, []
        for display in displays:
            display.view.update(self._static_bundle(), raw=True)
            display.picture.update({"text/plain": "", "text/html": ""}, raw=True)
        self.close()

    def close(self) -> None:
        """Disconnect from the session and the front end. Closing twice is harmless."""
        if self._closed:
            return
        self._closed = True
        self._patches.end()
        self._pictures.end()
        for cancel in self._cancels:
            cancel()
        for state in self.states.values():
            state.close()
        super().close()

    def _snapshots(self) -> dict[str, Any]:
        return {name: state.snapshot() for name, state in self.states.items()}

    def _on_change(self) -> None:
        self._patches()
        if self._displays:
            self._pictures()

    def _send_patch(self) -> None:
        with self._lock:
            present = self._snapshots()
            patch = merge_patch(self.shown, present)
            self.shown = present
            if patch and not self._closed:
                self.send({"patch": strict_json(patch)[0]})

    def _on_message(self, _widget: object, content: Any, _buffers: object) -> None:
        # Which thread this is depends on ipykernel's version; the engine's is always the same.
        request = content if isinstance(content, dict) else {}
        self.session.parts.engine.submit(self._answer(request))

    async def _answer(self, request: dict[str, Any]) -> None:
        id = request.get("id")
        if not isinstance(id, str):
            id = uuid.uuid4().hex
        if id in self._working:
            # A page sends a request again that it has no answer to. It is done once.
            self._send_unless_closed({"id": id, "working": True})
            return
        if id in self._answers:
            self._send_unless_closed(self._answers[id])
            return
        self._working.add(id)
        try:
            answer = await self._answer_to(request)
        finally:
            self._working.discard(id)
        self._answers[id] = answer
        if len(self._answers) > MAX_ANSWERS:
            del self._answers[next(iter(self._answers))]
        # What the command changed arrives before its answer, so that a page can tell its own
        # changes from earlier ones.
        await self._patches.settled()
        self._send_unless_closed(answer)

    def _send_unless_closed(self, answer: dict[str, Any]) -> None:
        if not self._closed:
            self.send(strict_json(answer)[0])

    async def _answer_to(self, request: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = {"id": request.get("id")}
        try:
            name, arguments = str(request.get("call", "")), request.get("args") or {}
            answer["result"] = await self._call(name, arguments)
        except CasualMcpError as error:
            answer["error"] = redacted(str(error), self.session.parts.config.secrets())
        except Exception as error:
            text = f"{type(error).__name__}: {shown(str(error), 500)}"
            answer["error"] = redacted(text, self.session.parts.config.secrets())
        return answer

    async def _call(self, name: str, arguments: dict[str, Any]) -> Any:
        owner, _, command = name.partition(".")
        if owner not in self.states:
            raise UsageError(
                f"There is no command {shown(name)}.",
                hint=f"Commands begin with: {', '.join(self.states)}.",
            )
        return await self.states[owner].call(command, arguments)

    def _repr_mimebundle_(self, **_kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return {**self._static_bundle(), **self._view_bundle()}, {}

    def _ipython_display_(self) -> None:
        from IPython.display import DisplayHandle
        from IPython.display import display as show

        if notebook_shell() is None:
            # A terminal writes each update of a display below what it has written already.
            text = self.static()._repr_mimebundle_()["text/plain"]
            show({"text/plain": f"\n{text}"}, raw=True)  # type: ignore[no-untyped-call]
            return
        if self._closed:
            DisplayHandle().display(self._static_bundle(), raw=True)  # type: ignore[no-untyped-call]
            return
        display = _Display(DisplayHandle(), DisplayHandle())  # type: ignore[no-untyped-call]
        text = f"{type(self).__name__}: its last state is shown below."
        display.view.display({"text/plain": text, **self._view_bundle()}, raw=True)
        display.picture.display(self._picture_bundle(), raw=True)
        self._displays.append(display)
        self._replace_in_cell()

    def _replace_in_cell(self) -> None:
        """Close the widgets that an earlier run of this cell displayed: no front end reports that
        their outputs are gone.
        """
        self._run = _running_cell()
        for other in tuple(_displayed):
            same_cell = bool(other._run.cell) and other._run.cell == self._run.cell
            if same_cell and other._run.run != self._run.run:
                other.close()
        _displayed.add(self)

    def _view_bundle(self) -> dict[str, Any]:
        if self._closed:
            return {}
        view = {"version_major": 2, "version_minor": 0, "model_id": self.model_id}
        return {"application/vnd.jupyter.widget-view+json": view}

    def _static_bundle(self) -> dict[str, str]:
        bundle: dict[str, str] = self.static()._repr_mimebundle_()
        html = bundle["text/html"]
        if self.footer:
            style = f"{_FRAME};padding:5px 10px;margin-top:10px;opacity:0.75"
            html += f'<div style="{style}">{self.footer}</div>'
        return {**bundle, "text/html": f'<div style="{_FRAME};padding:8px 14px">{html}</div>'}

    def _picture_bundle(self) -> dict[str, str]:
        bundle = self._static_bundle()
        # A live widget hides the picture by this class.
        picture = f"cmn-picture-{self.picture_key}"
        style = f"<style>{_NO_MODEL.replace('PICTURE', picture)}</style>"
        return {**bundle, "text/html": f'{style}<div class="{picture}">{bundle["text/html"]}</div>'}

    def _draw_picture(self) -> None:
        bundle = self._picture_bundle()
        for display in list(self._displays):
            display.picture.update(bundle, raw=True)


_displayed: weakref.WeakSet[SessionWidget] = weakref.WeakSet()
