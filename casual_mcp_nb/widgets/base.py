"""The bridge between plain states and a front end: one widget class for all of them."""

from __future__ import annotations

import threading
import uuid
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import anywidget
import ipywidgets  # type: ignore[import-untyped]
import traitlets

from casual_mcp_nb.errors import CasualMcpError, UsageError, shown
from casual_mcp_nb.notebook.throttle import Throttle
from casual_mcp_nb.types.secret import redacted
from casual_mcp_nb.widgets._patch import merge_patch
from casual_mcp_nb.widgets.assets import assets
from casual_mcp_nb.widgets.state import SessionParts, State

_SECONDS_BETWEEN_PATCHES = 0.05
_SECONDS_BETWEEN_PICTURES = 1.0


@dataclass(frozen=True)
class _Display:
    """Where a widget stands in a notebook: its view, and the picture under it."""

    view: Any
    picture: Any


@dataclass(frozen=True)
class _Place:
    """A run of a cell: the cell's id where the front end tells it, and the id of the run."""

    cell: str | None = None
    run: str | None = None


def _running_cell() -> _Place:
    from IPython.core.getipython import get_ipython

    # Only a kernel's shell knows of parents.
    parent: dict[str, dict[str, str]] = getattr(get_ipython(), "get_parent", dict)()
    return _Place(parent.get("metadata", {}).get("cellId"), parent.get("header", {}).get("msg_id"))


def _sent(_value: object, widget: SessionWidget) -> dict[str, Any]:
    return widget.shown


class SessionWidget(anywidget.AnyWidget):
    """Shows states of a session and carries out what the person does with them.

    A page that opens it gets everything at once, and after that only what changed. What the person does arrives as a call of a
    command of a state, runs on the engine thread, and is always answered. In a saved notebook a picture of its last state
    stands for it; where its session closes, it freezes into that picture, and of a closed session that is all there is.

    Args:
        session: What it is about.
        states: What it shows, by name; the front end calls their commands as `name.command`.

    Attributes:
        files: The front-end files of a subclass, see `assets`.
        more_css: Goes before their style sheet.
        shown: What the front end has been told, by name of the state.
        picture_key: By what the front end knows the picture of this widget, which it hides while it lives.
    """

    files: ClassVar[tuple[str, ...]] = ()
    more_css: ClassVar[str] = ""
    state = traitlets.Dict().tag(sync=True, to_json=_sent)
    picture_key = traitlets.Unicode().tag(sync=True)
    # None spares each widget a second model; a layout can be given, as to any widget.
    layout = traitlets.Instance(ipywidgets.Layout, allow_none=True).tag(sync=True, **ipywidgets.widget_serialization)

    def __init__(self, session: SessionParts, **states: State) -> None:
        self.session = session
        self.states: Mapping[str, State] = states
        self._lock = threading.Lock()
        self.shown: dict[str, Any] = self._snapshots()
        self._patches = Throttle(session.engine, self._send_patch, _SECONDS_BETWEEN_PATCHES)
        self._pictures = Throttle(session.engine, self._draw_picture, _SECONDS_BETWEEN_PICTURES)
        self._displays: list[_Display] = []
        self._place = _Place()
        self._closed = False
        self._esm, css = assets(*self.files)
        self._css = f"{self.more_css}\n{css}"
        super().__init__(picture_key=uuid.uuid4().hex[:12])
        self.on_msg(self._on_message)
        self._cancels = [
            *(state.watch(self._on_change) for state in states.values()),
            session.observers.closing.add(self.freeze),
        ]
        # What changed while it was made.
        self._on_change()
        if session.turn_service.runner.ended:
            self.close()

    def static(self) -> Any:
        """The noun that stands for it where no kernel runs."""
        return self.session

    def freeze(self) -> None:
        """Replace it, in the live page and in the saved notebook, by a picture of its present state; then close it."""
        displays, self._displays = self._displays, []
        for display in displays:
            display.view.update(self._static_bundle(), raw=True)
            display.picture.update({"text/plain": "", "text/html": ""}, raw=True)
        self.close()

    def close(self) -> None:
        """Let go of the session and of the front end. Closing twice is harmless."""
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
                self.send({"patch": patch})

    def _on_message(self, _widget: object, content: Any, _buffers: object) -> None:
        # Which thread this is depends on the version of ipykernel; the engine's is always the same.
        self.session.engine.submit(self._answer(content if isinstance(content, dict) else {}))

    async def _answer(self, asked: dict[str, Any]) -> None:
        answer: dict[str, Any] = {"id": asked.get("id")}
        try:
            answer["result"] = await self._call(str(asked.get("call", "")), asked.get("args") or {})
        except CasualMcpError as error:
            answer["error"] = redacted(str(error), self.session.config.secrets())
        except Exception as error:
            text = f"{type(error).__name__}: {shown(str(error), 500)}"
            answer["error"] = redacted(text, self.session.config.secrets())
        # What the command changed arrives before its answer, so that a page can tell its own doing from what was before it.
        await self._patches.settled()
        if not self._closed:
            self.send(answer)

    async def _call(self, name: str, arguments: dict[str, Any]) -> Any:
        owner, _, command = name.partition(".")
        if owner not in self.states:
            raise UsageError(f"There is no command {shown(name)}.", hint=f"It begins with one of: {', '.join(self.states)}.")
        return await self.states[owner].call(command, arguments)

    def _repr_mimebundle_(self, **_kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return {**self._static_bundle(), **self._view_bundle()}, {}

    def _ipython_display_(self) -> None:
        from IPython.display import DisplayHandle

        if self._closed:
            DisplayHandle().display(self._static_bundle(), raw=True)  # type: ignore[no-untyped-call]
            return
        display = _Display(DisplayHandle(), DisplayHandle())  # type: ignore[no-untyped-call]
        said = f"{type(self).__name__}: its last state stands below."
        display.view.display({"text/plain": said, **self._view_bundle()}, raw=True)
        display.picture.display(self._picture_bundle(), raw=True)
        self._displays.append(display)
        self._take_the_cell()

    def _take_the_cell(self) -> None:
        """Close the widgets that an earlier run of this cell showed: their outputs are gone, and no front end says so."""
        self._place = _running_cell()
        for other in tuple(_shown):
            if other._place.cell and other._place.cell == self._place.cell and other._place.run != self._place.run:
                other.close()
        _shown.add(self)

    def _view_bundle(self) -> dict[str, Any]:
        view = {"version_major": 2, "version_minor": 0, "model_id": self.model_id}
        return {} if self._closed else {"application/vnd.jupyter.widget-view+json": view}

    def _static_bundle(self) -> dict[str, str]:
        bundle: dict[str, str] = self.static()._repr_mimebundle_()
        return bundle

    def _picture_bundle(self) -> dict[str, str]:
        bundle = self._static_bundle()
        # A live widget hides the picture by this class.
        return {**bundle, "text/html": f'<div class="cmn-picture-{self.picture_key}">{bundle["text/html"]}</div>'}

    def _draw_picture(self) -> None:
        bundle = self._picture_bundle()
        for display in list(self._displays):
            display.picture.update(bundle, raw=True)


_shown: weakref.WeakSet[SessionWidget] = weakref.WeakSet()
