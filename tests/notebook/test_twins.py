"""Every method that takes time can be awaited, and both twins are known under their own names."""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from kit.namespaces import namespaces

from casual_mcp_nb import Session
from casual_mcp_nb.conversation.event import ToolProgress, TurnStarted
from casual_mcp_nb.conversation.turn import Trace
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.notebook.blocking import awaited, blocking, on_engine, on_engine_told
from casual_mcp_nb.notebook.loop import engine_thread

CONFIG: dict[str, Any] = {
    "clients": {
        "here": {"provider": "openai", "api_key": "none", "base_url": "http://localhost:1/v1"}
    },
    "models": {
        "small": {"client": "here", "model": "m"},
        "known": {"client": "here", "model": "m", "context_window": 8_000},
    },
    "servers": {"math": {"bundled": "math", "transport": "in-process", "defer_loading": True}},
    "tool_sets": {"numbers": {"servers": {"math": True}}},
    "tool_discovery": {"enabled": True},
}
NAMES = [
    (kind, name)
    for kind in (Session, *namespaces().values())
    for name, member in inspect.getmembers(kind)
    if inspect.iscoroutinefunction(getattr(member, "__wrapped__", None))
    and not name.endswith("_async")
]
"""The methods with a blocking and an awaited form."""


@pytest.fixture
async def session() -> AsyncIterator[Session]:
    async with Session.from_config(CONFIG) as session:
        yield session


@pytest.mark.defect("C12")
@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_both_twins_have_their_own_names_their_words_and_one_signature(
    kind: type, name: str
) -> None:
    blocking, awaited = getattr(kind, name), getattr(kind, f"{name}_async")
    assert (blocking.__name__, awaited.__name__) == (name, f"{name}_async")
    assert blocking.__qualname__.split(".")[1:] == [name]
    assert awaited.__qualname__.split(".")[1:] == [f"{name}_async"]
    assert blocking.__doc__
    assert awaited.__doc__
    assert inspect.signature(blocking) == inspect.signature(awaited)
    assert inspect.iscoroutinefunction(awaited)
    assert not inspect.iscoroutinefunction(blocking)


class Awaiting:
    """Methods that await work which they should leave to the engine."""

    def __init__(self) -> None:
        self._engine = engine_thread()
        self.ended = 0

    async def _after(self, something: Callable[[], Awaitable[Any]]) -> None:
        try:
            await on_engine(asyncio.sleep(0))
            await something()
        finally:
            self.ended += 1

    @blocking
    async def sleep(self) -> None:
        await self._after(lambda: asyncio.sleep(60))

    @blocking
    async def yield_once(self) -> None:
        await self._after(lambda: asyncio.sleep(0))

    @blocking
    async def future(self) -> None:
        await self._after(lambda: asyncio.get_running_loop().create_future())

    @blocking
    async def iterate(self) -> None:
        async with asyncio.timeout(60):
            await self._after(lambda: asyncio.sleep(60))


AWAITING = ["sleep", "yield_once", "future", "iterate"]


@pytest.mark.defect("F19")
@pytest.mark.parametrize("name", AWAITING)
def test_a_method_that_awaits_gets_advice_where_it_would_block(name: str) -> None:
    awaiting = Awaiting()
    with pytest.raises(UsageError, match="on_engine"):
        getattr(awaiting, name)()
    assert awaiting.ended == (name != "iterate")


@pytest.mark.defect("F19")
@pytest.mark.parametrize("name", AWAITING)
async def test_and_where_it_is_awaited_or_a_loop_is_held(name: str) -> None:
    awaiting = Awaiting()
    with pytest.raises(UsageError, match="on_engine"):
        await awaited(getattr(Awaiting, name))(awaiting)
    with pytest.raises(UsageError, match="on_engine"):
        getattr(awaiting, name)()
    assert awaiting.ended == 2


ON_ENGINE = (on_engine, on_engine_told)


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function without those of the functions in it, which are handed to the
    engine: one that is awaited here has no name that can be looked up.
    """
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield node
            yield from _own_nodes(node)


def awaited_outside_the_engine(function: Any, owner: object, seen: set[Any]) -> Iterator[str]:
    """Yield the awaits of a coroutine function on the caller's thread, its own or those of our
    functions that it awaits.
    """
    function = inspect.unwrap(getattr(function, "__func__", function))
    if function in seen or function in ON_ENGINE:
        return
    seen.add(function)
    nodes = list(_own_nodes(ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]))
    names: dict[str, Any] = {"self": owner}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            module = importlib.import_module(node.module)
            for name in (each.name for each in node.names):
                names[name] = getattr(module, name, None) or importlib.import_module(
                    f"{node.module}.{name}"
                )
    for node in nodes:
        if isinstance(node, ast.AsyncFor | ast.AsyncWith):
            yield f"{function.__qualname__}: {ast.unparse(node)[:80]}"
        if not isinstance(node, ast.Await):
            continue
        called = ast.unparse(node.value.func) if isinstance(node.value, ast.Call) else ""
        try:
            target = eval(called, function.__globals__, names)
        except (NameError, SyntaxError):
            # Made in the function, such as a coroutine that it was given.
            target = None
        ours = inspect.iscoroutinefunction(target) and target.__module__.startswith("casual_mcp_nb")
        if not ours and target not in ON_ENGINE:
            yield f"{function.__qualname__}: {ast.unparse(node)[:80]}"
        else:
            yield from awaited_outside_the_engine(target, getattr(target, "__self__", owner), seen)


@pytest.mark.defect("F19")
def test_no_method_awaits_anything_outside_the_engine() -> None:
    assert len(NAMES) >= 20
    seen: set[Any] = set()
    with Session.from_config(CONFIG) as session:
        owners = {
            Session: session,
            **{kind: getattr(session, name) for name, kind in namespaces().items()},
        }
        outside = [
            each
            for kind, name in NAMES
            for each in awaited_outside_the_engine(getattr(kind, name), owners[kind], seen)
        ]
    assert outside == []
    assert len(seen) > len(NAMES)


@pytest.mark.defect("C12")
def test_connect_is_called_connect() -> None:
    assert Session.connect.__qualname__ == "Session.connect"


@pytest.mark.defect("C12")
async def test_what_connects_when_needed_can_be_awaited(session: Session) -> None:
    assert [each.uri for each in await session.resources.list_async()] == [
        each.uri for each in session.resources
    ]
    assert [each.name for each in await session.prompts.list_async()] == [
        each.name for each in session.prompts
    ]
    assert len(session.tools) > 0


@pytest.mark.defect("C12")
def test_the_status_has_the_notes_of_the_config() -> None:
    session = Session.from_config(
        {"servers": {"math": {"bundled": "math", "transport": "in-process", "alwaysAllow": []}}}
    )
    assert session.status.notes == session.config.notes != ()
    session.close()


@pytest.mark.defect("D14")
async def test_the_doctor_names_models_whose_context_window_is_not_known(session: Session) -> None:
    found = {
        finding.name for finding in session.servers.doctor().findings if finding.part == "Models"
    }
    assert found == {"small"}


@pytest.mark.defect("D14")
def test_what_an_event_says_is_its_text_and_files_with_the_older_name_are_read() -> None:
    trace = Trace([TurnStarted((), "m"), ToolProgress("1", 1, 2, "half")])
    written = trace.to_json()
    assert '"message"' not in written.split("ToolProgress")[1]
    (event,) = Trace.from_json(written.replace('"text": "half"', '"message": "half"')).of(
        ToolProgress
    )
    assert event.text == event.message == "half"
