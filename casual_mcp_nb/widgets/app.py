"""Apps of servers in a page: the state that a frame's host asks, for one app or all of a session's,
and the widget of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, cast

from pydantic import Base64Bytes

from casual_mcp_nb.display.words import one_line
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.notebook.app import MAX_CALLS, App
from casual_mcp_nb.notebook.apps import SessionApps
from casual_mcp_nb.notebook.questions import ApprovalQuestion
from casual_mcp_nb.widgets._transcript import give, row_of
from casual_mcp_nb.widgets.base import HasParts, Layout, SessionWidget, State, command

MAX_NOTES = 200
HANDSHAKE_SECONDS = 15
"""How long an app may take until it has said that it is initialized."""

Sender = Literal["app", "host", "page"]


class AppsState(State):
    """The apps that a page shows, and the requests of their frames, which name their app by its id.

    Args:
        session: The session.
        shown: Returns the apps that are shown.
    """

    def __init__(self, session: HasParts, shown: Callable[[], Iterable[App]]) -> None:
        super().__init__(session)
        self._shown = shown
        self._apps: SessionApps = session.parts.apps
        self._watched: dict[str, Callable[[], None]] = {}
        self.follow(session.parts.observers.changes.add(self.changed))
        self.follow(self._unwatch)

    def snapshot(self) -> dict[str, Any]:
        """Collect the shown apps by id: tool, status, problem, the last notification's number,
        questions about its calls.
        """
        apps = list(self._shown())
        for app in apps:
            if app.id not in self._watched:
                self._watched[app.id] = app.watch(self.changed)
        return {"apps": {app.id: self._row(app) for app in apps}, "seconds": HANDSHAKE_SECONDS}

    def _row(self, app: App) -> dict[str, Any]:
        return {
            "tool": one_line(str(app.tool)),
            "title": one_line(app.spec.title or app.tool.tool)[:200],
            "status": app.status,
            "problem": app.problem or None,
            "obstacle": app.obstacle or None,
            "reopened": app.reopened,
            "sent": app.last_sent,
            "questions": self._questions_about(app),
        }

    def _questions_about(self, app: App) -> dict[str, dict[str, Any]]:
        rows: dict[str, dict[str, Any]] = {}
        for order, question in enumerate(self.parts.questions):
            if len(rows) == MAX_CALLS:
                break
            if not isinstance(question, ApprovalQuestion) or question.channel != "panel":
                continue
            if question.server == app.tool.server:
                rows[question.id] = {**row_of(question, order), "id": question.id}
        return rows

    @command
    async def page(self, app: str) -> dict[str, Any]:
        """Read an app's page from its server: `html`, `policy`, `border`, and the host's own
        description.

        Raises:
            UsageError: It cannot be shown. The message has the reason.
        """
        shown = self._apps.by_id(app)
        page = await shown.page()
        return {
            "html": page.html,
            "policy": page.policy,
            "border": page.border is not False,
            **shown.host,
        }

    @command
    def feed(self, app: str, after: int) -> list[list[Any]]:
        """List the notifications for an app after a number, see `App.feed`."""
        return self._apps.by_id(app).feed(after)

    @command
    def status(
        self, app: str, status: Literal["starting", "shown", "failed"], problem: str = ""
    ) -> None:
        """Note whether the page is shown. In Python: `app.status` and `app.problem`."""
        self._apps.by_id(app).set_status(status, problem)

    @command
    def note(self, app: str, notes: list[tuple[Sender, str, str]], dropped: int = 0) -> None:
        """Note messages, each with its sender, method and contents. In Python: `app.messages`."""
        shown = self._apps.by_id(app)
        for sender, method, text in notes[:MAX_NOTES]:
            shown.note(sender, method, text, dropped)
            dropped = 0

    @command
    def picture(self, app: str, data: Base64Bytes) -> None:
        """Keep a picture of the app for where no kernel runs."""
        self._apps.by_id(app).set_picture(data)

    @command
    async def call_tool(
        self, app: str, name: str, arguments: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Call a tool for the app, see `App.call_tool`."""
        return await self._apps.by_id(app).call_tool(name, arguments or {})

    @command
    def list_tools(self, app: str) -> dict[str, Any]:
        """List the tools that the app may call."""
        return self._apps.by_id(app).list_tools()

    @command
    async def read_resource(self, app: str, uri: str) -> dict[str, Any]:
        """Read a resource of the app's server."""
        return await self._apps.by_id(app).read_resource(uri)

    @command
    async def sample(self, app: str, params: dict[str, Any]) -> dict[str, Any]:
        """Have the model answer messages of the app, see `App.sample`."""
        return await self._apps.by_id(app).sample(params)

    @command
    async def set_context(
        self, app: str, content: list[Any] | None = None, structured: dict[str, Any] | None = None
    ) -> None:
        """Store the app's context for the model. In Python: `app.value`."""
        await self._apps.by_id(app).set_context(content or [], structured)

    @command
    def submit(self, app: str, text: str) -> None:
        """Send a message of the app as the person's: they have just said so.

        In Python: `session.submit`.
        """
        self._apps.by_id(app).submit(text)

    @command
    def answer(self, app: str, question: str, answer: str) -> None:
        """Answer the question whether a call of the app may run. In Python: `session.questions`."""
        open_question = self.parts.questions.by_id(question)
        server = self._apps.by_id(app).tool.server
        if not isinstance(open_question, ApprovalQuestion) or open_question.server != server:
            raise UsageError("This question is not about a call of the app.")
        give(open_question, answer, {})

    def _unwatch(self) -> None:
        for end in self._watched.values():
            end()
        self._watched.clear()


class AppWidget(SessionWidget):
    """An app of a server, in a frame that reaches nothing of the notebook.

    In Python: the app itself.

    Args:
        app: The app.
    """

    bundle = "app"
    footer = "Run this cell again to get the live app."

    def __init__(self, app: App, layout: Layout | None = None) -> None:
        self.app = app
        # `notebook.app` knows the services only as far as apps use them.
        session = cast("HasParts", app)
        super().__init__(session, layout, apps=AppsState(session, self._only_app))
        # It is there as soon as its call has started.
        self._hear_during_cells()

    def _only_app(self) -> list[App]:
        return [self.app]

    def static(self) -> App:
        """Get the app, which shows its call and its last picture where no kernel runs."""
        return self.app
