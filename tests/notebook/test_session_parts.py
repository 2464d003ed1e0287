"""The parts that a session puts together stand alone, and nobody reaches past their public
names.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.namespaces import namespaces
from kit.setups import MATH, OFFLINE

import casual_mcp_nb
from casual_mcp_nb import McpToolChat, Session
from casual_mcp_nb.config.loader import load_config
from casual_mcp_nb.engine.events import Observers
from casual_mcp_nb.errors import ClosedError, UnknownNameError, UsageError
from casual_mcp_nb.notebook.apps import SessionApps
from casual_mcp_nb.notebook.blocking import awaited, blocking, on_engine_told
from casual_mcp_nb.notebook.caller import NotebookRunner
from casual_mcp_nb.notebook.consent import SessionConsent, TrustGate
from casual_mcp_nb.notebook.conversation_runner import ConversationRunner
from casual_mcp_nb.notebook.loop import EngineThread, engine_thread
from casual_mcp_nb.notebook.models import SessionModels
from casual_mcp_nb.notebook.open_questions import Questions
from casual_mcp_nb.notebook.resource_service import ResourceService
from casual_mcp_nb.notebook.saving import ConversationSaver
from casual_mcp_nb.notebook.servers import SessionServers
from casual_mcp_nb.notebook.session_memory import SessionMemory
from casual_mcp_nb.notebook.starting import ServerStarter
from casual_mcp_nb.notebook.tasks import SessionTasks, TaskRegister
from casual_mcp_nb.notebook.tools import SessionTools
from casual_mcp_nb.notebook.turn_service import TurnService
from casual_mcp_nb.providers.scripted import call, scripted_model

CONFIG: dict[str, Any] = {
    **OFFLINE,
    "servers": {
        "math": MATH,
        "time": {"bundled": "time", "transport": "in-process", "defer_loading": True},
    },
    "tool_sets": {"numbers": {"servers": {"math": True}}},
    "tool_discovery": {"enabled": True},
}


class Parts:
    """The parts, put together without a session."""

    def __init__(self) -> None:
        config = load_config(CONFIG)
        self.engine, self.observers = engine_thread(), Observers()
        self.questions = Questions(self.engine, self.observers)
        self.chat = McpToolChat.from_config(config, changed=self.observers.changes.notify)
        self.runner = ConversationRunner(
            self.chat,
            self.observers,
            ConversationSaver(None, self.chat, SessionMemory(self.chat, config)),
        )
        gate = TrustGate(config)
        self.starter = starter = ServerStarter(self.chat, self.engine, gate, self.runner.check_open)
        apps = SessionApps(self.chat, self.engine, self.questions, self.observers)
        self.tools = SessionTools(
            self.chat,
            config,
            self.engine,
            self.observers,
            starter,
            self.questions,
            self.runner,
            NotebookRunner(),
            apps,
        )
        resources = ResourceService(
            self.chat,
            starter,
            self.tools.recorded,
            self.engine,
            self.questions,
            self.observers,
            lambda: self.runner.turns,
        )
        self.turns = TurnService(
            self.chat,
            config,
            self.engine,
            self.runner,
            starter,
            self.tools,
            apps,
            resources,
            self.questions,
            self.observers,
        )
        models = SessionModels(self.chat, config, self.engine, starter, self.turns, self.tools)
        consent = SessionConsent(self.chat, gate, self.questions)
        tasks = SessionTasks(
            TaskRegister(self.chat, self.observers), self.chat, self.engine, self.questions, starter
        )
        self.servers = SessionServers(
            self.chat,
            config,
            self.engine,
            self.observers,
            gate,
            starter,
            self.turns,
            models,
            consent,
            tasks,
        )


@pytest.fixture
def parts() -> Iterator[Parts]:
    parts = Parts()
    yield parts
    parts.engine.run(parts.chat.close())


def test_the_tools_are_connected_searched_and_called(parts: Parts) -> None:
    tools, run = parts.tools, parts.engine.run
    assert len(tools) == 0
    view = run(parts.starter.view())
    assert {tool.server for tool in view.loaded} == {"math"}
    assert {
        hit.tool.server for hit in run(tools.find("the time in a city", 2, None, all_tools=False))
    } == {"time"}
    assert tools.call("math:add", a=1, b=2).structured == {"result": 3}
    assert parts.servers.reconnect("math").state == "ready"
    parts.chat.selection.tool_set = "numbers"
    assert {tool.server for tool in tools} == {"math", "time"}
    assert not tools.manifest.tools


def test_names_are_checked_where_the_selection_does(parts: Parts) -> None:
    for check in (parts.chat.names.check_server, parts.chat.names.check_tool_set):
        with pytest.raises(UnknownNameError):
            check("nothing like it")


def test_the_turn_service_runs_goes_back_and_ends(parts: Parts) -> None:
    turns = parts.turns
    model = scripted_model(call("math__add", a=1, b=2), "3", "three")
    assert turns.submit("1 + 2?", {"model": model}).result().answer == "3"
    assert turns.submit_rerun(0, None, {"model": model}).result().answer == "three"
    assert [turn.answer for turn in turns.runner.turns] == ["three"]
    assert turns.runner.undo() is not None
    with pytest.raises(UnknownNameError):
        turns.model = "plannr"
    turns.runner.end("the test ends it")
    with pytest.raises(ClosedError):
        turns.submit("again", {})
    with pytest.raises(ClosedError):
        parts.engine.run(parts.starter.view())


def test_the_questions_keep_the_step_mode_and_check_it(parts: Parts) -> None:
    for wrong in (
        lambda: setattr(parts.questions, "step_mode", 1),
        lambda: parts.questions.gate(1, parts.runner.cancel),
    ):  # type: ignore[arg-type]
        with pytest.raises(UsageError):
            wrong()


def test_a_session_is_one_class_in_one_module() -> None:
    ours = [
        base
        for base in Session.__mro__
        if base.__module__.startswith(("casual_mcp_nb.notebook", "casual_mcp_nb.session"))
    ]
    assert ours == [Session]


def test_every_method_that_is_awaited_has_its_twin_with_the_same_arguments() -> None:
    kinds = (Session, *namespaces().values())
    twins = [(kind, name) for kind in kinds for name in vars(kind) if name.endswith("_async")]
    assert len(twins) > 10
    for kind, name in twins:
        method, twin = getattr(kind, name), vars(kind)[name.removesuffix("_async")]
        assert (method.__name__, method.__qualname__) == (name, f"{kind.__name__}.{name}")
        assert method.__doc__
        if not isinstance(twin, property):
            assert inspect.signature(method) == inspect.signature(twin)


def test_the_twins_clean_up_on_the_side_of_the_caller_whatever_the_engine_raises() -> None:
    class Asks:
        def __init__(self) -> None:
            self._engine: EngineThread = engine_thread()
            self.seen: list[object] = []

        @blocking
        async def divide(self, a: int, b: int) -> float:
            """Divide."""

            async def work() -> float:
                return a / b

            def begin(blocks: bool) -> Any:
                self.seen.append(blocks)
                return work()

            try:
                half = await on_engine_told(begin)
                return half + await on_engine_told(begin)
            finally:
                self.seen.append("cleaned")

        divide_async = awaited(divide)

    asks = Asks()
    assert asks.divide(1, 2) == asks._engine.run(_from_elsewhere(asks)) == 1.0
    assert asks.seen == [True, True, "cleaned", False, False, "cleaned"]
    with pytest.raises(ZeroDivisionError):
        asks.divide(1, 0)
    assert asks.seen[-2:] == [True, "cleaned"]


async def _from_elsewhere(asks: Any) -> float:
    result: float = await asks.divide_async(1, 2)
    return result


def test_nobody_reaches_into_a_session() -> None:
    package = Path(casual_mcp_nb.__file__).parent
    inside = [
        f"{path.name}:{number}"
        for path in package.rglob("*.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(r"\bsession\._[a-z]", line)
    ]
    assert inside == []
