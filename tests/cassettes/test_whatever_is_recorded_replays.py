"""A cassette of everything that a session can do, in Python and in its widgets, replays without a
server or a network.

Each public name of `Session`, and each command of the explorer and the panel, has an action here,
or a reason why nothing of it can be recorded. All actions run while one cassette records, and again
on a session that has only the cassette.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, get_args

import httpx2
import pytest
from casual_llm.messages import AssistantMessage, UserMessage
from fastmcp import Client, Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.resources import ResourceContent, ResourceResult
from fastmcp.tools import ToolResult
from kit.namespaces import public_names
from kit.setups import OFFLINE
from kit.traces import same_apart_from_times
from kit.waiting import wait_until
from pydantic import BaseModel

from casual_mcp_nb import Session
from casual_mcp_nb.base.mcp import APP_MIME_TYPE
from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.cassettes import CassetteState, Kind
from casual_mcp_nb.cassettes.format import Cassette
from casual_mcp_nb.cassettes.interaction import Interaction, plain_error, read_error
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.discovery.synthetic import SyntheticToolResult
from casual_mcp_nb.errors import (
    AnswerLimitError,
    CasualMcpError,
    IncompleteStreamError,
    RateLimitError,
    ServerError,
    ToolCallError,
    UsageError,
)
from casual_mcp_nb.experiments.cases import Case, ToolUseCase
from casual_mcp_nb.experiments.matchers import Graded
from casual_mcp_nb.providers.scripted import call, calls, scripted_model
from casual_mcp_nb.widgets.base import SessionWidget

NOTHING: tuple[Any, ...] = (None, False, 0, 0.0, "", [], {}, "null")
"""What a tool returns: everything that a careless reader takes for no answer."""


class Ship(BaseModel):
    """A ship."""

    name: str


def harbour() -> FastMCP[Any]:
    """A server with some of everything, much of it empty."""
    server: FastMCP[Any] = FastMCP("harbour", instructions="Ships have no article.")

    @server.tool
    async def berth(ship: str, context: Context) -> str:
        """Find the berth of a ship."""
        await context.report_progress(0, 2)
        await context.info("")
        await context.report_progress(2, 2, "")
        return f"{ship}: berth 7"

    @server.tool
    def nothing(number: int) -> Any:
        """Return something that is hardly anything."""
        return NOTHING[number]

    @server.tool
    def sink(ship: str) -> str:
        """Sink a ship."""
        raise ToolError("")

    @server.tool(annotations={"destructiveHint": True})
    def burn(ship: str) -> str:
        """Burn a ship."""
        return "ashes"

    @server.resource("harbour://rules", mime_type="text/plain")
    def rules() -> str:
        return ""

    @server.resource("harbour://log/{day}")
    def log(day: str) -> str:
        return f"{day}: nothing"

    page = ResourceContent(
        "<p>Chart</p>",
        mime_type=APP_MIME_TYPE,
        meta={"ui": {"csp": {"connectDomains": ["https://a.org"]}}},
    )
    server.resource("ui://harbour/chart", mime_type=APP_MIME_TYPE)(lambda: ResourceResult([page]))

    @server.tool(
        annotations={"readOnlyHint": True}, meta={"ui": {"resourceUri": "ui://harbour/chart"}}
    )
    def chart(ship: str = "") -> ToolResult:
        """Draw the way of a ship."""
        return ToolResult("", structured_content={"ship": ship}, meta={"of": "the app"})

    @server.prompt
    def arrival(ship: str = "") -> str:
        """Announce a ship."""
        return ship

    return server


def lighthouse() -> FastMCP[Any]:
    """A server with nothing but something to say."""
    return FastMCP("lighthouse", instructions="The light is on.", version="0.0.0")


def depot() -> FastMCP[Any]:
    """A server with tools to be searched, and nothing else."""
    server: FastMCP[Any] = FastMCP("depot")
    server.tool(
        lambda barrels: f"{barrels} stored", name="store", description="Store barrels in the depot."
    )
    server.tool(lambda: "", name="count", description="Count barrels of the depot.")
    return server


@dataclass
class World:
    """A session with the objects that the actions need.

    Args:
        session: The session.
        folder: Where files are written.
        recording: Whether it records, or replays.
    """

    session: Session
    folder: Path
    recording: bool
    widgets: dict[str, SessionWidget] = field(default_factory=dict)

    def model(self, *answers: Any) -> Any:
        """Create a model that gives these answers; in a replay name it, because the cassette has
        them.
        """
        return scripted_model(*answers) if self.recording else "scripted"

    def chat(self, prompt: str, *answers: Any, **options: Any) -> Turn:
        """Run a turn with a scripted model."""
        return self.session.chat(prompt, model=self.model(*answers), echo="none", **options)

    def do(self, widget: str, command: str, **arguments: Any) -> Any:
        """Call a command as a front end does."""
        if widget not in self.widgets:
            panel = {"model": self.model(*PANEL)} if widget == "panel" else {}
            self.widgets[widget] = self.session.panel(**panel) if panel else self.session.explore()
        return self.session.parts.engine.run(self.widgets[widget]._call(command, arguments))

    def sent(self, prompt: str) -> Turn:
        """Send a message in the panel, and wait for the end of its turn."""
        self.do("panel", "conversation.send", prompt=prompt)
        return self.ended()

    def ended(self) -> Turn:
        """Wait for the end of a turn that was started in the panel."""
        wait_until(lambda: not self.session.parts.runner.busy, "the end of the turn")
        return self.session.turns[-1]

    def asked(self) -> str:
        """Wait for a question of a running turn, and return its id."""
        wait_until(lambda: list(self.session.questions), "a question")
        return next(iter(self.session.questions)).id

    def of_app(self, command: str, **arguments: Any) -> Any:
        """Call a command of the last app as its page does."""
        return self.do(
            "panel", f"apps.{command}", app=list(self.session.tools.apps)[-1].id, **arguments
        )

    def key(self) -> str:
        """The last turn's key in the panel."""
        state: Any = self.widgets["panel"].states["conversation"]
        key: str = state._transcript.key(self.session.turns[-1])
        return key


def awaited(work: Any) -> Any:
    async def run() -> Any:
        return await work

    return asyncio.run(run())


def error_of(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except CasualMcpError as error:
        return type(error).__name__, str(error)


async def streamed(world: World) -> Any:
    model = world.model(call("harbour__berth", ship="Fram"), "")
    return [type(event).__name__ async for event in world.session.stream("Stream?", model=model)]


def paused(world: World) -> Any:
    pauses = world.session.pauses(
        "Step by step?", model=world.model(call("harbour__berth", ship="Fram"), "Done.")
    )
    return len(list(pauses)), pauses.turn


def planned(plan: Any) -> Any:
    return [(each.name, each.arguments) for each in plan], [each.result for each in plan.run()]


def compared(results: Any) -> Any:
    return [run.answer for run in results.records]


def ran(results: Any) -> Any:
    return [(record.right, record.called, record.detail) for record in results.records]


def berths(world: World) -> Any:
    return world.session.experiments.run(USES, models=world.model(*BERTH), progress=False)


def found(world: World) -> Any:
    world.session.selection.servers["depot"] = "deferred"
    world.session.selection.discovery = True
    return world.chat("Store two barrels.", *STORE)


def answered(service: Any) -> Any:
    """Chat with a service over HTTP, and close it."""
    body = {"model": "planner", "messages": [{"role": "user", "content": "Where is Fram?"}]}
    with service, httpx2.Client(timeout=30) as http:
        answer = http.post(f"{service.url}/chat", json=body).json()
    return [message.get("content") for message in answer["messages"]]


def called(endpoint: Any) -> Any:
    """Call a tool of an endpoint as the host of another model does, and close it."""

    async def work() -> Any:
        async with Client(endpoint.url) as client:
            return (await client.call_tool("harbour__berth", {"ship": "Maud"})).data

    with endpoint:
        return asyncio.run(work())


def wind() -> str:
    """Tell the wind."""
    return ""


class Lantern:
    """A synthetic tool."""

    name = "lantern"
    definition: ClassVar[dict[str, Any]] = {
        "name": "lantern",
        "description": "Light it.",
        "parameters": {"type": "object", "properties": {}},
    }

    async def execute(self, args: Any) -> SyntheticToolResult:
        """Light it."""
        return SyntheticToolResult("", [])


def mocked(world: World) -> Any:
    with world.session.tools.mock({"harbour:burn": ""}):
        return world.chat("Burn it.", call("harbour__burn", ship="Fram"), "Ashes.")


def embedded(world: World) -> Any:
    world.session.tools.embedding = lambda texts: [[float(len(text)), 1.0] for text in texts]
    try:
        return world.chat("Store it?", *STORE)
    finally:
        world.session.tools.embedding = None


def wrote(world: World, cell: Any) -> Any:
    """Run a written cell, which fails, have it repaired, and run it again."""
    variables: dict[str, Any] = {"session": world.session}
    try:
        cell.run(variables)
    except KeyError as error:
        repaired = cell.repair()
        return (
            str(error),
            cell.call_counts,
            repaired.difference,
            repaired.run(variables),
            variables["berths"],
        )
    raise AssertionError("It did not fail.")


CELL = """```python
berths = [session.tools.harbour.berth(ship=ship) for ship in ("Fram", "Gjoa")]
berths.count({}["none"])
```"""
REPAIRED = CELL.replace('.count({}["none"])', "[1]")
STORE = (call("search_tools", query="store barrels"), call("depot__store", barrels="two"), "")
PLAN = (calls(call("harbour__berth", ship="Fram"), call("harbour__nothing", number=4)),)
BERTH = (call("harbour__berth", ship="Fram"), "Berth 7.")
CASES = [Case("barrels", (frozenset({ToolName("depot", "store")}),))]
USES = [ToolUseCase("Which berth has Fram?", ["harbour:berth"])]
GRADED = [ToolUseCase("Which berth has Fram?", answer=Graded("It is short."))]
ASK = [UserMessage(content="Said elsewhere."), AssistantMessage(content="Heard.")]

Action = Callable[[World], Any]
METHODS: dict[str, Action] = {
    "connect": lambda w: sorted(w.session.connect(quiet=True)),
    "connect_async": lambda w: sorted(awaited(w.session.connect_async(quiet=True))),
    "servers": lambda w: {
        name: (each.state, each.tools, each.instructions)
        for name, each in w.session.servers.items()
    },
    "status": lambda w: w.session.status.model,
    "resources.list": lambda w: [each.uri for each in w.session.resources.list()],
    "resources.list_async": lambda w: [
        each.uri for each in awaited(w.session.resources.list_async())
    ],
    "resources": lambda w: [each.uri for each in w.session.resources],
    "prompts.list": lambda w: [each.name for each in w.session.prompts.list()],
    "prompts.list_async": lambda w: [each.name for each in awaited(w.session.prompts.list_async())],
    "prompts": lambda w: [each.name for each in w.session.prompts],
    "chat": lambda w: [
        w.chat(
            "All?", calls(*(call("harbour__nothing", number=n) for n in range(len(NOTHING)))), ""
        )
    ],
    "chat_async": lambda w: awaited(
        w.session.chat_async("Where?", model=w.model(*BERTH), echo="none")
    ),
    "stream": lambda w: (asyncio.run(streamed(w)), w.session.turns[-1]),
    "submit": lambda w: w.session.submit("Where now?", model=w.model(*BERTH)).result(30),
    "pauses": paused,
    "rerun": lambda w: w.session.rerun(echo="none", model=w.model("Again.")),
    "rerun_async": lambda w: awaited(w.session.rerun_async(echo="none", model=w.model(*BERTH))),
    "turns": lambda w: len(w.session.turns),
    "messages": lambda w: [(each.role, each.content) for each in w.session.messages],
    "conversations.current": lambda w: len(w.session.conversations.current),
    "stats": lambda w: (w.session.stats.tool_calls.total, w.session.stats.llm_calls),
    "undo": lambda w: w.session.undo(),
    "conversations.add": lambda w: (len(w.session.conversations.add(ASK)), w.chat("And?", "Yes.")),
    "plan": lambda w: planned(w.session.plan("What would you do?", model=w.model(*PLAN))),
    "plan_async": lambda w: planned(
        awaited(w.session.plan_async("What would you do then?", model=w.model(*PLAN)))
    ),
    "extract": lambda w: w.session.extract(
        "Fram is a ship.", Ship, model=w.model('{"name": "Fram"}')
    ),
    "extract_async": lambda w: awaited(
        w.session.extract_async(
            "It is a ship.", Ship, model=w.model('{"name": ""}'), conversation=True
        )
    ),
    "experiments.compare": lambda w: compared(
        w.session.experiments.compare("One?", models=[w.model("")], progress=False)
    ),
    "experiments.compare_async": lambda w: compared(
        awaited(
            w.session.experiments.compare_async("Two?", models=[w.model(*BERTH)], progress=False)
        )
    ),
    "experiments.run": lambda w: ran(
        w.session.experiments.run(USES, models=w.model(*BERTH), progress=False)
    ),
    "experiments.run_async": lambda w: ran(
        awaited(w.session.experiments.run_async(USES, models=w.model(*BERTH), progress=False))
    ),
    "experiments.judge": lambda w: ran(
        w.session.experiments.judge(
            berths(w), GRADED, w.model('{"reason": "It is short.", "label": "right"}')
        )
    ),
    "experiments.judge_async": lambda w: ran(
        awaited(
            w.session.experiments.judge_async(
                berths(w), GRADED, w.model('{"reason": "No.", "label": "wrong"}')
            )
        )
    ),
    "experiments.results": lambda w: w.session.experiments.results is not None,
    "experiments.explore": lambda w: len(w.session.experiments.explore().static().records),
    "experiments.worth": lambda w: len(
        w.session.experiments.worth(
            USES, model=w.model(*BERTH, "None."), targets=["harbour"], concurrency=1, progress=False
        )
    ),
    "experiments.worth_async": lambda w: len(
        awaited(
            w.session.experiments.worth_async(
                USES, model=w.model("None."), targets=[], progress=False
            )
        )
    ),
    "experiments.workshop": lambda w: w.session.experiments.workshop("harbour:berth").before.tokens,
    "experiments.workshop_async": lambda w: (
        awaited(w.session.experiments.workshop_async("harbour:berth")).before.tokens
    ),
    "experiments": lambda w: w.session.experiments.now.results is not None,
    "experiments.now": lambda w: w.session.experiments.now.results is not None,
    "tools.call": lambda w: [
        w.session.tools.call("harbour:nothing", number=n).value for n in range(len(NOTHING))
    ],
    "tools.app": lambda w: w.session.tools.app("harbour:chart", ship="Fram").feed(0)[1:],
    "tools.app_async": (
        lambda w: awaited(w.session.tools.app_async("harbour:chart", ship="Maud")).feed(0)[1:]
    ),
    "tools.apps": lambda w: [str(each.tool) for each in w.session.tools.apps],
    "tools.call_async": lambda w: (
        awaited(w.session.tools.call_async("harbour:sink", ship="")).status
    ),
    "tools.call_recorded": lambda w: (
        w.session.parts.engine.run(
            w.session.tools.call_recorded("harbour:nothing", {"number": 0})
        ).call.result
    ),
    "tools.find": lambda w: len(
        w.session.parts.engine.run(w.session.tools.find("barrels", None, None, all_tools=True))
    ),
    "tools.searchable": lambda w: len(
        w.session.parts.engine.run(w.session.tools.searchable()).tools
    ),
    "servers.audit": lambda w: w.session.servers.audit().tokens,
    "servers.hosts": lambda w: [len(each.affected) for each in w.session.servers.hosts("harbour")],
    "tools.functions": lambda w: w.session.tools.functions.harbour.nothing(number=0),
    "tools.stubs": lambda w: len(w.session.tools.stubs(w.folder / "tools.pyi").read_text()),
    "tools.calls": lambda w: [each.call.arguments for each in w.session.tools.calls],
    "consent.audit": lambda w: len(w.session.consent.audit),
    "resources.read": lambda w: w.session.resources.read("harbour://rules").text,
    "resources.read_async": lambda w: (
        awaited(w.session.resources.read_async("harbour://log/{day}", day="1")).text
    ),
    "prompts.get": lambda w: [
        each.content.text for each in w.session.prompts.get("arrival").messages
    ],
    "prompts.get_async": lambda w: [
        each.content.text
        for each in awaited(w.session.prompts.get_async("arrival", ship="Fram")).messages
    ],
    "prompts.complete": lambda w: error_of(
        lambda: list(w.session.prompts.complete("arrival", "ship", "F"))
    ),
    "prompts.complete_async": lambda w: error_of(
        lambda: list(awaited(w.session.prompts.complete_async("arrival", "ship")))
    ),
    "resources.complete": lambda w: error_of(
        lambda: list(w.session.resources.complete("harbour://log/{day}", "day"))
    ),
    "resources.complete_async": lambda w: error_of(
        lambda: list(awaited(w.session.resources.complete_async("harbour://log/{day}", "day", "1")))
    ),
    "resources.now": lambda w: [each.uri for each in w.session.resources.now],
    "prompts.now": lambda w: [each.name for each in w.session.prompts.now],
    "resources.subscribe": lambda w: error_of(
        lambda: len(w.session.resources.subscribe("harbour://rules").subscriptions)
    ),
    "resources.subscribe_async": lambda w: error_of(
        lambda: len(awaited(w.session.resources.subscribe_async("harbour://rules")).subscriptions)
    ),
    "resources.subscriptions": lambda w: len(w.session.resources.subscriptions.subscriptions),
    "resources.unsubscribe": lambda w: error_of(
        lambda: len(w.session.resources.unsubscribe("harbour://rules").subscriptions)
    ),
    "resources.unsubscribe_async": lambda w: error_of(
        lambda: len(awaited(w.session.resources.unsubscribe_async("harbour://rules")).subscriptions)
    ),
    "servers.now": lambda w: list(w.session.servers.now),
    "servers.modes": lambda w: w.session.servers.modes,
    "servers.raise_for_status": lambda w: w.session.servers.raise_for_status(),
    "servers.log": lambda w: [line.text for line in w.session.servers.log("harbour")],
    "tools": lambda w: [tool.wire_name for tool in w.session.tools],
    "tools.now": lambda w: len(w.session.tools.now),
    "tools.of_server": lambda w: len(w.session.tools.of_server("harbour")),
    "tools.changed": lambda w: dict(w.session.tools.changed),
    "consent.accept": lambda w: error_of(lambda: w.session.consent.accept("harbour:berth")),
    "tools.sets": lambda w: list(w.session.tools.sets),
    "tools.manifest": lambda w: str(w.session.tools.manifest),
    "servers.add": lambda w: (
        w.session.servers.add("depot", depot()).state,
        w.session.chat("Hm?", model=w.model(""), echo="none"),
    ),
    "servers.add_async": lambda w: error_of(
        lambda: awaited(w.session.servers.add_async("depot", depot())).state
    ),
    "selection": found,
    "tools.discovered": lambda w: [tool.wire_name for tool in w.session.tools.discovered],
    "tools.unload": lambda w: (
        w.session.tools.unload("depot:store"),
        w.chat("And without it?", ""),
    ),
    "tools.load": lambda w: (
        w.session.tools.load("depot:store"),
        w.chat("And with it?", ""),
        w.session.tools.unload("depot:store"),
    ),
    "search": lambda w: [hit.tool.wire_name for hit in w.session.search("barrels")],
    "search_async": lambda w: [
        hit.tool.wire_name for hit in awaited(w.session.search_async("barrels"))
    ],
    "servers.reconnect": lambda w: w.session.servers.reconnect("depot").state,
    "servers.reconnect_async": lambda w: (
        awaited(w.session.servers.reconnect_async("harbour")).state
    ),
    "experiments.lint": lambda w: len(w.session.experiments.lint()),
    "experiments.lint_async": lambda w: len(awaited(w.session.experiments.lint_async())),
    "experiments.evaluate": lambda w: len(
        w.session.experiments.evaluate(CASES, progress=False).scores
    ),
    "experiments.evaluate_async": lambda w: len(
        awaited(w.session.experiments.evaluate_async(CASES, progress=False)).scores
    ),
    "experiments.save_cases": lambda w: len(
        w.session.experiments.save_cases(w.folder / "cases.jsonl")
    ),
    "tool": lambda w: (
        bool(w.session.tool(wind)),
        w.chat("Wind?", call("notebook__wind"), "None."),
    ),
    "tools.add": lambda w: (
        w.session.tools.add(lambda: None, name="calm").name,
        w.chat("Calm?", call("notebook__calm"), ""),
    ),
    "tools.remove": lambda w: (w.session.tools.remove("calm"), w.chat("Still?", "")),
    "tools.add_synthetic": lambda w: (
        w.session.tools.add_synthetic(Lantern()),
        w.chat("Light!", call("lantern"), ""),
    ),
    "tools.remove_synthetic": lambda w: (
        w.session.tools.remove_synthetic("lantern"),
        w.chat("Light?", ""),
    ),
    "tools.mock": mocked,
    "tools.context": lambda w: setattr(w.session.tools, "context", {"user": ""}),
    "system": lambda w: (setattr(w.session, "system", ""), w.chat("Nothing to say to you?", "")),
    "consent.step_mode": lambda w: w.session.consent.step_mode,
    "model": lambda w: (w.session.model, w.session.chat("Where is Fram?", echo="none")),
    "models": lambda w: "planner" in w.session.models,
    "models.clients": lambda w: "offline" in w.session.models.clients,
    "models.templates": lambda w: w.session.models.templates(),
    "models.write": lambda w: wrote(
        w, w.session.models.write("Two berths", model=w.model(CELL, REPAIRED))
    ),
    "models.write_async": lambda w: (
        awaited(w.session.models.write_async("A berth", model=w.model(CELL))).code
    ),
    "models.cells": lambda w: [cell.state for cell in w.session.models.cells],
    "models.preview": lambda w: str(w.session.models.preview()),
    "models.preview_async": lambda w: str(awaited(w.session.models.preview_async())),
    "consent.problems": lambda w: w.session.consent.problems,
    "tools.embedding": embedded,
    "tools.budget": lambda w: w.session.tools.budget,
    "consent": lambda w: repr(type(w.session.consent)),
    "consent.now": lambda w: w.session.consent.now.changed,
    "limits": lambda w: [row.period for row in w.session.limits],
    "limits.now": lambda w: [row.max_cost for row in w.session.limits.now],
    "limits.set": lambda w: w.session.limits.set("day", max_total_tokens=10**9),
    "limits.clear": lambda w: w.session.limits.clear(),
    "models.now": lambda w: "planner" in [row.name for row in w.session.models.now],
    "consent.unaccepted": lambda w: w.session.consent.unaccepted,
    "consent.policies": lambda w: dict(w.session.consent.policies),
    "consent.set_policy": lambda w: w.session.consent.set_policy("harbour:chart", "never"),
    "tools.usage": lambda w: w.session.tools.usage("this").calls > 0,
    "consent.call_count": lambda w: w.session.consent.call_count > 0,
    "consent.trust": lambda w: type(w.session.consent.trust()).__name__,
    "servers.doctor": lambda w: type(w.session.servers.doctor()).__name__,
    "conversations": lambda w: len(w.session.conversations),
    "conversations.now": lambda w: len(w.session.conversations.now),
    "conversations.store": lambda w: w.session.conversations.store is not None,
    "conversations.find": lambda w: len(w.session.conversations.find("Fram")),
    "conversations.save": lambda w: (
        w.session.conversations.save(w.session.conversations.current).status
    ),
    "conversations.rename": lambda w: (
        w.session.conversations.rename(w.session.conversations.id, "At sea").title
    ),
    "conversations.archive": lambda w: (
        w.session.conversations.archive(w.session.conversations.id).status
    ),
    "conversations.restore": lambda w: (
        w.session.conversations.restore(w.session.conversations.id).status
    ),
    "conversations.delete": lambda w: (
        w.session.conversations.delete(
            w.session.conversations.save(w.session.conversations.current).id
        ).status
    ),
    "conversations.id": lambda w: w.session.conversations.id is not None,
    "conversations.fork": lambda w: (
        len(w.session.conversations.fork(0)),
        w.chat("In the copy?", ""),
    ),
    "conversations.fork_at": lambda w: w.session.conversations.fork_at(
        -1, text="Two.", echo="none", model=w.model("")
    ),
    "conversations.fork_at_async": lambda w: awaited(
        w.session.conversations.fork_at_async(
            0, turn=0, text="One.", echo="none", model=w.model("")
        )
    ),
    "conversations.resume": lambda w: (
        len(w.session.conversations.resume(w.session.conversations.id or "")),
        w.chat("Where were we?", ""),
    ),
    "conversations.new": lambda w: (
        w.session.conversations.new(),
        w.chat("Anew?", call("harbour__sink", ship=""), ""),
    ),
    "export": (
        lambda w: w.session.export(w.folder / "page.html", player=True, overwrite=True).exists()
    ),
    "cassettes": lambda w: w.session.cassettes.now.state is not None,
    "cassettes.now": lambda w: w.session.cassettes.now.state is not None,
    "cassettes.state": lambda w: isinstance(w.session.cassettes.state, CassetteState),
    "observe": (
        lambda w: w.session.observe(
            lambda turn, event: None, changes=lambda: None, closing=lambda: None
        ).close()
    ),
    "explore": lambda w: type(w.session.explore()).__name__,
    "panel": lambda w: type(w.session.panel()).__name__,
    "stop": lambda w: w.session.stop(),
    "stop_async": lambda w: awaited(w.session.stop_async()),
    "serve": lambda w: repr(w.session.serve),
    "serve.now": lambda w: len(w.session.serve.now),
    "serve.http": lambda w: answered(w.session.serve.http(port=0)),
    "serve.http_async": lambda w: answered(awaited(w.session.serve.http_async(port=0))),
    "serve.mcp": lambda w: called(w.session.serve.mcp()),
    "serve.mcp_async": lambda w: called(awaited(w.session.serve.mcp_async())),
    "servers.remove": lambda w: (w.session.servers.remove("depot"), w.chat("Gone?", "")),
    "servers.remove_async": lambda w: awaited(w.session.servers.remove_async("lighthouse")),
}
NOT_RECORDED = {
    "experiments.to_solver": (
        "inspect-ai calls it, in an environment of its own:"
        " tests/experiments/test_other_projects.py"
    ),
    "from_config": "it opens a session",
    "quick": "it opens a session",
    "demo": "it opens a session",
    "resume": "it opens a session",
    "close": "it ends the recording",
    "close_async": "it ends the recording",
    "cassettes.close": "it ends the recording",
    "cassettes.replay_only": "it makes a session a replay",
    "cassettes.of": "it makes a cassette of turns that were not recorded",
    "cassettes.secrets": "it is what a cassette must not have",
    "cassettes.use": "it is what records, one at a time",
    "cassettes.replay": "it runs a cassette again; see the test of it below",
    "cassettes.replay_async": "it runs a cassette again; see the test of it below",
    "servers.messages": "the messages of a replay are none: nothing is sent",
    "servers.wire": "the messages of a replay are none: nothing is sent",
    **dict.fromkeys(
        (
            "servers.tasks",
            *(
                f"servers.tasks.{name}{end}"
                for name in ("wait", "result", "cancel")
                for end in ("", "_async")
            ),
        ),
        "tasks have a test of their own: tests/notebook/test_tasks.py",
    ),
    "servers.tasks.now": "the same",
    "resources.skills": "skills have a test of their own: tests/servers/test_skills.py",
    "servers.find": "it asks a domain or the registry, not a server of the session",
    "servers.find_async": "the same",
    "servers.accounts": "the accounts of this computer, not of the session",
    **dict.fromkeys(
        ("tools.memory", *(f"tools.memory.{name}" for name in ("now", "on", "forget", "clear"))),
        "searches learn nothing while a cassette is used: tests/notebook/test_search_memory.py",
    ),
    "tools.save_set": "it writes the config file, which a cassette does not have",
    "serve.stdio": "it takes the standard input of the process",
    "serve.stdio_async": "it takes the standard input of the process",
}


PANEL = (
    "Ahoy.",
    "Ahoy again.",
    call("search_tools", query="store barrels"),
    call("crates__store", barrels="three"),
    "Stored.",
    call("harbour__burn", ship="Fram"),
    "Burnt.",
    "Read.",
    "Slowly.",
)
"""What the model of the panel answers, in the order of the commands."""


def burnt(world: World) -> Turn:
    """Have a call approved in the panel; in a replay, as it was."""
    world.do("panel", "conversation.send", prompt="Burn Fram.")
    if world.recording:
        world.do("panel", "conversation.answer", question=world.asked(), answer="approve")
    return world.ended()


def submitted(world: World) -> Turn:
    """Send a message of an app, and wait for the end of its turn, which begins in the
    background.
    """
    before = len(world.session.turns)
    world.of_app("submit", text="Where is Fram?")
    wait_until(lambda: len(world.session.turns) > before, "the turn of the app's message")
    return world.ended()


def slowly(world: World) -> Turn:
    """Look at a request before it is sent, and send it."""
    world.do("panel", "conversation.set_step_mode", on=True)
    world.do("panel", "conversation.send", prompt="Slowly.")
    question = world.asked()
    assert world.do("panel", "conversation.coming_request", question=question)
    world.do("panel", "conversation.set_step_mode", on=False)
    with contextlib.suppress(UsageError):
        # Without the step mode, it may have gone on by itself.
        world.do("panel", "conversation.answer", question=question, answer="run")
    return world.ended()


def saved(world: World, command: str, **arguments: Any) -> Any:
    """Call a command on the conversation that is open."""
    return world.do(
        "panel", f"conversations.{command}", id=world.session.conversations.id, **arguments
    )


HARBOUR = {"server": "harbour"}
ARRIVAL = {"kind": "prompt", "server": "harbour", "name": "arrival", "values": {"ship": ""}}
RULES = {"kind": "resource", "server": "harbour", "name": "harbour://rules", "values": {}}
COMMANDS: dict[str, Action] = {
    "explorer.selection.add_server": lambda w: (
        w.session.servers.add("crates", depot()).state,
        w.do("explorer", "selection.add_server", text="math", name="sums"),
    ),
    "explorer.selection.set_mode": lambda w: w.do(
        "explorer", "selection.set_mode", server="crates", mode="deferred"
    ),
    "explorer.selection.set_discovery": lambda w: w.do(
        "explorer", "selection.set_discovery", on=True
    ),
    "explorer.selection.set_option": lambda w: w.do(
        "explorer", "selection.set_option", name="max_search_results", value=3
    ),
    "explorer.selection.set_tool": lambda w: w.do(
        "explorer", "selection.set_tool", name="harbour:sink", on=False
    ),
    "explorer.selection.set_tools": lambda w: w.do(
        "explorer", "selection.set_tools", server="sums", on=False
    ),
    "explorer.selection.draft": lambda w: w.do("explorer", "selection.draft"),
    "explorer.selection.unused": lambda w: w.do("explorer", "selection.unused"),
    "explorer.selection.leave_unused": lambda w: error_of(
        lambda: w.do("explorer", "selection.leave_unused", mode="deferred")
    ),
    "explorer.selection.edit_tool_set": lambda w: w.do(
        "explorer", "selection.edit_tool_set", servers={"harbour": True, "crates": True}
    ),
    "explorer.selection.set_tool_set": lambda w: w.do("explorer", "selection.set_tool_set"),
    "explorer.selection.save_tool_set": lambda w: error_of(
        lambda: w.do("explorer", "selection.save_tool_set", name="x", servers={})
    ),
    "explorer.selection.accept_config": lambda w: w.do("explorer", "selection.accept_config"),
    "explorer.selection.reconnect": lambda w: w.do("explorer", "selection.reconnect", **HARBOUR),
    "explorer.selection.tool": lambda w: w.do("explorer", "selection.tool", name="harbour:berth")[
        "wire_name"
    ],
    "explorer.selection.accept_change": lambda w: error_of(
        lambda: w.do("explorer", "selection.accept_change", name="harbour:sink")
    ),
    "explorer.selection.try_tool": lambda w: w.do(
        "explorer", "selection.try_tool", name="harbour:berth", filled={"ship": "Gjøa"}
    )["status"],
    "explorer.selection.code_of": lambda w: w.do(
        "explorer", "selection.code_of", name="harbour:berth", filled={"ship": "Gjøa"}
    ),
    "explorer.selection.calls": lambda w: [
        row["status"] for row in w.do("explorer", "selection.calls")
    ],
    "explorer.selection.call_html": lambda w: bool(
        w.do("explorer", "selection.call_html", id=w.do("explorer", "selection.calls")[0]["id"])
    ),
    "explorer.selection.wire": lambda w: sorted(w.do("explorer", "selection.wire", **HARBOUR)),
    "explorer.selection.server_log": lambda w: len(
        w.do("explorer", "selection.server_log", **HARBOUR)["lines"]
    ),
    "explorer.selection.messages": lambda w: (
        bool(w.do("explorer", "selection.messages", **HARBOUR)) == w.recording
    ),
    "explorer.search.search": lambda w: w.do("explorer", "search.search", query="barrels"),
    "explorer.search.terms": lambda w: w.do("explorer", "search.terms", query="barrels"),
    "explorer.search.explain": lambda w: w.do(
        "explorer", "search.explain", query="barrels", name="crates:store"
    )["verdict"],
    "explorer.resources.offers": lambda w: len(w.do("explorer", "resources.offers")["rows"]),
    "explorer.resources.read": lambda w: bool(w.do("explorer", "resources.read", **RULES)),
    "explorer.resources.complete": lambda w: w.do(
        "explorer", "resources.complete", **ARRIVAL, argument="ship"
    ),
    "explorer.resources.code_of": lambda w: w.do("explorer", "resources.code_of", **RULES),
    "explorer.resources.set_followed": lambda w: error_of(
        lambda: w.do(
            "explorer", "resources.set_followed", **HARBOUR, uri="harbour://rules", on=True
        )
    ),
    "explorer.resources.attach": lambda w: w.do("explorer", "resources.attach", **ARRIVAL),
    "panel.conversation.seen": lambda w: w.do("panel", "conversation.seen"),
    "panel.conversation.clear": lambda w: w.do("panel", "conversation.clear"),
    "panel.conversation.detach": lambda w: [
        w.do("panel", "conversation.detach", id=id)
        for id in list(w.session.parts.resource_service.pending)
    ],
    "panel.conversation.send": lambda w: w.sent("Ahoy?"),
    "panel.conversation.rerun": lambda w: (
        w.do("panel", "conversation.rerun", turn=w.key()),
        w.ended(),
    ),
    "panel.conversation.request": lambda w: bool(
        w.do("panel", "conversation.request", turn=w.key(), step=1)
    ),
    "panel.conversation.copy": lambda w: w.do(
        "panel", "conversation.copy", turn=w.key(), what="answer"
    ),
    "panel.conversation.image": lambda w: error_of(
        lambda: w.do("panel", "conversation.image", turn=w.key(), index=0)
    ),
    "panel.conversations.unload": lambda w: (
        w.sent("Store three barrels."),
        w.do("panel", "conversations.unload", tool="crates:store"),
    ),
    "panel.conversation.answer": burnt,
    "panel.resources.offers": lambda w: len(
        w.do("panel", "resources.offers", query="rules")["rows"]
    ),
    "panel.resources.read": lambda w: bool(w.do("panel", "resources.read", **ARRIVAL)),
    "panel.resources.complete": lambda w: w.do(
        "panel", "resources.complete", **ARRIVAL, argument="ship"
    ),
    "panel.resources.code_of": lambda w: w.do("panel", "resources.code_of", **ARRIVAL),
    "panel.resources.set_followed": lambda w: error_of(
        lambda: w.do("panel", "resources.set_followed", **HARBOUR, uri="harbour://rules", on=False)
    ),
    "panel.resources.attach": lambda w: (
        w.do("panel", "resources.attach", **RULES),
        w.sent("What do they say?"),
    ),
    "panel.conversation.coming_request": slowly,
    "panel.conversation.set_step_mode": lambda w: w.do(
        "panel", "conversation.set_step_mode", on=False
    ),
    "panel.conversation.set_model": lambda w: error_of(
        lambda: w.do("panel", "conversation.set_model", name="planner")
    ),
    "panel.conversation.set_tool_set": lambda w: w.do("panel", "conversation.set_tool_set"),
    "panel.conversation.audit": lambda w: len(w.do("panel", "conversation.audit")),
    "panel.conversation.accept_config": lambda w: w.do("panel", "conversation.accept_config"),
    "panel.conversation.stop": lambda w: w.do("panel", "conversation.stop"),
    "panel.conversations.found": lambda w: w.do("panel", "conversations.found", query="barrels")[
        "total"
    ],
    "panel.conversations.rename": lambda w: saved(w, "rename", title="Barrels"),
    "panel.conversations.archive": lambda w: saved(w, "archive"),
    "panel.conversations.restore": lambda w: saved(w, "restore"),
    "panel.conversations.fork": lambda w: saved(w, "fork"),
    "panel.conversations.open": lambda w: saved(w, "open"),
    "panel.conversations.delete": lambda w: saved(w, "delete"),
    "panel.conversation.undo": lambda w: (
        w.chat("One more?", "Yes."),
        w.do("panel", "conversation.undo"),
    ),
    "panel.apps.page": lambda w: [w.of_app("page")[name] for name in ("html", "policy", "border")],
    "panel.apps.feed": lambda w: len(w.of_app("feed", after=0)),
    "panel.apps.list_tools": lambda w: [tool["name"] for tool in w.of_app("list_tools")["tools"]],
    "panel.apps.call_tool": lambda w: (
        [w.of_app("call_tool", name="chart", arguments={"ship": "Gjøa"}) for _ in range(2)],
        error_of(lambda: w.of_app("call_tool", name="sink", arguments={"ship": ""})),
    ),
    "panel.apps.read_resource": lambda w: w.of_app("read_resource", uri="harbour://rules"),
    "panel.apps.sample": lambda w: error_of(
        lambda: w.of_app("sample", params={"messages": [], "maxTokens": 5})
    ),
    "panel.apps.set_context": lambda w: w.of_app("set_context", structured={"ship": ""}),
    "panel.apps.status": lambda w: w.of_app("status", status="shown"),
    "panel.apps.note": lambda w: w.of_app("note", notes=[("app", "ping", "")]),
    "panel.apps.picture": lambda w: w.of_app("picture", data="iVBORw0KGgo="),
    "panel.apps.answer": lambda w: error_of(
        lambda: w.of_app("answer", question="none", answer="deny")
    ),
    "panel.apps.submit": submitted,
    "explorer.selection.remove_server": lambda w: w.do(
        "explorer", "selection.remove_server", server="sums"
    ),
}
ACTIONS = METHODS | COMMANDS


def test_each_public_name_has_an_action_or_a_reason() -> None:
    names = set(public_names())
    assert names - METHODS.keys() - NOT_RECORDED.keys() == set(), (
        "say here how to record it, or why it cannot be recorded"
    )
    assert (METHODS.keys() | NOT_RECORDED.keys()) - names == set(), "these do not exist any more"
    assert METHODS.keys() & NOT_RECORDED.keys() == set()


def test_each_command_of_the_widgets_has_an_action() -> None:
    with Session(OFFLINE, quiet=True) as session:
        widgets: dict[str, SessionWidget] = {
            "explorer": session.explore(),
            "panel": session.panel(),
        }
        commands = {
            f"{name}.{owner}.{command}"
            for name, widget in widgets.items()
            for owner, state in widget.states.items()
            for command in state.commands
            # They have a test of their own: tests/notebook/test_tasks.py.
            if owner != "tasks"
        }
    assert commands == COMMANDS.keys()


def run_all(world: World) -> dict[str, str]:
    """Run all actions, in their order; return the outcome of each."""
    outcomes = {}
    for name, action in ACTIONS.items():
        try:
            outcomes[name] = plain(action(world))
        except Exception as error:
            raise AssertionError(f"{name}: {type(error).__name__}: {error}") from error
    return outcomes


def plain(value: Any) -> str:
    """An outcome as text: of a turn its trace without times; ids of calls by number, because a
    replay makes its own.
    """
    if isinstance(value, Turn):
        value = same_apart_from_times(value)
    if isinstance(value, tuple | list):
        return "\n".join(map(plain, value))
    ids: dict[str, str] = {}
    return re.sub(
        r"\bcall_\d\w*", lambda match: ids.setdefault(match[0], f"call {len(ids)}"), repr(value)
    )


@dataclass(frozen=True)
class Recorded:
    """A recording.

    Args:
        path: The cassette.
        outcomes: Of each action.
    """

    path: Path
    outcomes: dict[str, str]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("recorded")
    path, servers = folder / "all.json", {"harbour": harbour(), "lighthouse": lighthouse()}
    with (
        Session(OFFLINE, in_process=servers, quiet=True, store=folder / "store.db") as session,
        session.cassettes.use(path, "all"),
    ):
        return Recorded(path, run_all(World(session, folder, recording=True)))


@pytest.mark.defect("F1")
def test_what_was_recorded_replays(
    recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Session.quick(cassette=recorded.path, quiet=True, store=tmp_path / "store.db") as again:
        monkeypatch.setattr(subprocess, "Popen", _refused)
        monkeypatch.setattr(FastMCP, "_run_stdio_async", _refused, raising=False)
        outcomes = run_all(World(again, tmp_path, recording=False))
    for name, outcome in recorded.outcomes.items():
        assert outcomes[name] == outcome, name


def _refused(*_: Any, **__: Any) -> Any:
    raise AssertionError("A replay starts nothing.")


@pytest.mark.defect("F1")
def test_replay_runs_the_turns_of_the_conversation_as_they_were(tmp_path: Path) -> None:
    path, turns = tmp_path / "turns.json", list[Turn]()
    with Session(
        OFFLINE, in_process={"harbour": harbour(), "depot": depot()}, quiet=True
    ) as session:
        world = World(session, tmp_path, recording=True)
        with session.cassettes.use(path):
            turns.append(world.chat("First?", *BERTH, temperature=0.5, max_steps=3))
            # What asks a model outside of the conversation is not a turn of it.
            session.plan("And then?", model=world.model(*PLAN))
            session.extract("Fram is a ship.", Ship, model=world.model('{"name": "Fram"}'))
            session.experiments.compare("Which?", models=[world.model("")], progress=False)
            session.selection.servers["depot"] = "deferred"
            session.selection.discovery = True
            turns.append(world.chat("Store two barrels.", *STORE))
            turns.append(
                world.chat(
                    "Without them?",
                    "Yes.",
                    discovery=False,
                    tool_set={"servers": {"harbour": ["berth"]}},
                )
            )
            session.undo()
            turns.append(
                session.rerun(0, echo="none", model=world.model(call("harbour__sink", ship=""), ""))
            )
            session.conversations.add(ASK)
            session.servers.add("lighthouse", lighthouse())
            turns.append(world.chat("Is it on?", ""))
            session.servers.remove("depot")
            session.conversations.new()
            turns.append(world.chat("Anew?", "Yes.", system=""))
    with Session.quick(cassette=path, quiet=True) as again:
        replayed = again.cassettes.replay()
        assert again.cassettes.state is not None
        # The plan, the extraction and the run that was compared.
        assert again.cassettes.state.unplayed == 3
    for one, other in zip(replayed, turns, strict=True):
        assert plain(one).splitlines() == plain(other).splitlines()


@pytest.mark.defect("F1")
def test_a_server_that_failed_and_one_without_tools_are_the_same_in_the_replay(
    tmp_path: Path,
) -> None:
    servers = {"gone": {"command": "no-such-command-anywhere"}}
    with Session(
        {**OFFLINE, "servers": servers}, in_process={"lighthouse": lighthouse()}, quiet=True
    ) as session:
        # The recording begins before they are connected.
        with session.cassettes.use(tmp_path / "servers.json"):
            turn = session.chat("Hello.", model=scripted_model("Ahoy."), echo="none")
        states = {
            name: (each.state, each.version, each.instructions)
            for name, each in session.servers.items()
        }
    assert {state for state, *_ in states.values()} == {"failed", "ready"}
    with Session.quick(cassette=tmp_path / "servers.json", quiet=True) as again:
        assert plain(again.cassettes.replay()[0]) == plain(turn)
        assert {
            name: (each.state, each.version, each.instructions)
            for name, each in again.servers.items()
        } == states


EMPTY: dict[Kind, Any] = {
    "model": {"message": {"role": "assistant"}},
    "call": {"content": []},
    "resources": [],
    "prompts": [],
    "skills": [],
    "skill": {"server": "harbour", "name": "berth"},
    "read": [],
    "prompt": {"messages": []},
    "completion": {},
    "subscription": True,
    "approval": {"verdict": False},
    "nearest": {},
    "program": {"clock": "2026-11-24T12:00:00+01:00", "seed": 0},
    "tasks": [],
    "app": {"part": {"kind": "resource"}},
    "listed": [],
}


@pytest.mark.defect("F1")
@pytest.mark.parametrize("kind", [kind for kind in get_args(Kind) if kind != "turn"])
def test_an_empty_answer_is_an_answer(kind: Kind, tmp_path: Path) -> None:
    request = (
        {"server": "harbour"} if kind != "model" else {"model": "m", "messages": [], "tools": []}
    )
    Cassette([Interaction(kind, request, EMPTY[kind])]).save(tmp_path / "empty.json")
    document = json.loads((tmp_path / "empty.json").read_text())
    assert document["interactions"][0]["response"] == EMPTY[kind]
    (back,) = Cassette.load(tmp_path / "empty.json").interactions
    assert back.response == EMPTY[kind]
    if EMPTY[kind] == []:
        # As earlier versions wrote it.
        del document["interactions"][0]["response"]
        (back,) = Cassette.from_json(json.dumps(document)).interactions
        answer = back.answer()
        assert (answer.parts if kind == "read" else answer) == ()


@pytest.mark.defect("F1")
@pytest.mark.parametrize(
    "error",
    [
        RateLimitError("Later.", retry_after=0.0, reason=" ", status=0, client="", retryable=True),
        IncompleteStreamError("Cut.", partial=""),
        ToolCallError("", server="", tool=""),
        AnswerLimitError("Too long."),
    ],
)
def test_an_error_keeps_what_is_empty_in_it(error: CasualMcpError) -> None:
    back = read_error(json.loads(json.dumps(plain_error(error))), ServerError)
    assert (type(back), str(back), vars(back)) == (type(error), str(error), vars(error))
