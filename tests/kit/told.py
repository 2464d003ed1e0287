"""A session whose chat panel is used without a front end."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from fastmcp import Context, FastMCP
from kit.asked import asked
from kit.travel import travel_server
from kit.waiting import wait_until

from casual_mcp_nb import Session
from casual_mcp_nb.notebook.questions import Question
from casual_mcp_nb.providers.scripted import scripted_model
from casual_mcp_nb.widgets.conversation import ConversationState

CONFIG: dict[str, Any] = {
    "clients": {"offline": {"provider": "offline"}},
    "models": {
        "one": {"client": "offline", "model": "planner"},
        "two": {"client": "offline", "model": "planner"},
    },
    "servers": {"math": {"bundled": "math", "transport": "in-process", "approval": "always"}},
    "tool_sets": {"numbers": {"description": "Numbers only", "servers": {"math": True}}},
}


class Told:
    """A session, and a panel's state, whose model plays the answers that it was given."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.answers: deque[Any] = deque()
        self.model = scripted_model(*[lambda messages, tools: self.answers.popleft()] * 200)
        self.state = ConversationState(session, model=self.model)

    def play(self, *answers: Any) -> None:
        self.answers.extend(answers)

    def do(self, name: str, /, **arguments: Any) -> Any:
        """Run a command as a front end does: on the engine's loop."""
        work: Coroutine[Any, Any, Any] = self.state.call(name, arguments)
        return self.session.parts.engine.run(work)

    def send(self, prompt: str) -> None:
        self.do("send", prompt=prompt)

    def shown(self) -> dict[str, Any]:
        shown = self.state.snapshot()
        json.dumps(shown)
        return shown

    def idle(self) -> dict[str, Any]:
        wait_until(lambda: not self.session.parts.runner.busy, "the turn ends")
        return self.shown()

    def asks(self, kind: type[Question]) -> str:
        return asked(self.session, kind).id


@contextmanager
def told_session() -> Iterator[Told]:
    """A panel over the servers of `CONFIG`, one that works until it is stopped, and one that asks
    with a form.
    """
    box: FastMCP[Any] = FastMCP("box")

    @box.tool
    async def work(ctx: Context) -> str:
        await ctx.report_progress(3, 10, "at it")
        await asyncio.Event().wait()
        return "never"

    with Session.from_config(CONFIG, in_process={"box": box, "travel": travel_server()}) as session:
        yield Told(session)
