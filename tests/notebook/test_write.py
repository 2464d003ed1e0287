"""Cells that a model writes: what it reads, what is checked, what runs when, and what the person is asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastmcp import FastMCP
from IPython.core.interactiveshell import InteractiveShell
from mcp_types import ToolAnnotations

from casual_mcp_nb import Session
from casual_mcp_nb.errors import ExtractionError, ToolCallError, UsageError
from casual_mcp_nb.notebook.write import called_paths, code_in, head_of, problem_of
from casual_mcp_nb.providers.scripted import scripted_model

BURNT: list[str] = []
CONFIG = {"clients": {"planner": {"provider": "offline"}}, "models": {"planner": {"client": "planner", "model": "planner"}}}


def shop() -> FastMCP:
    server = FastMCP("shop")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def price(item: str) -> int:
        """Look up the price of an item."""
        return len(item)

    @server.tool(annotations=ToolAnnotations(destructive_hint=True))
    def burn(item: str) -> str:
        """Destroy an item."""
        BURNT.append(item)
        return f"{item} is gone"

    return server


@pytest.fixture
def session() -> Iterator[Session]:
    BURNT.clear()
    with Session({}, in_process={"shop": shop()}, approval={"shop": "destructive"}) as session:
        yield session


def fenced(code: str) -> str:
    return f"Here:\n```python\n{code}\n```"


PRICES = "prices = [session.tools.shop.price(item=each) for each in ['pear', 'fig']]\nsum(prices)"


def test_a_cell_runs_in_the_namespace_only_when_it_is_run(session: Session) -> None:
    cell = session.models.write("add up prices", model=(model := scripted_model(fenced(PRICES))))
    assert (cell.code, [(str(each.tool.tool_name), each.line, each.reason) for each in cell.calls]) == (
        PRICES + "\n",
        [("shop:price", 1, "")],
    )
    assert len(session.tools.calls) == len(session.turns) == 0
    assert "session.tools.shop.price(*, item: str) -> int" in model.client.requests[0].messages[-1].content
    assert model.client.requests[0].tools == ()
    variables: dict[str, Any] = {"session": session}
    assert cell.run(variables) == 7
    assert variables["prices"] == [4, 3]
    assert [each.call.status for each in session.tools.calls] == ["ok", "ok"]


def test_a_denied_call_raises_in_the_program_and_is_never_made(session: Session) -> None:
    code = "for each in ['a', 'b']:\n    session.tools.call('shop:burn', item=each)"
    cell = session.models.write("burn", model=scripted_model(fenced(code)))
    with pytest.raises(ToolCallError, match="not approved"):
        cell.run({"session": session})
    assert BURNT == []
    # The same line in the person's own cell is the person's own call.
    session.tools.shop.burn(item="mine")
    assert BURNT == ["mine"]


def test_a_destructive_call_is_marked_before_it_runs(session: Session) -> None:
    code = "shop = session.tools.shop\nshop.burn(item='x')"
    cell = session.models.write("burn", model=scripted_model(fenced(code)))
    assert [(str(each.tool.tool_name), each.line, each.reason) for each in cell.calls] == [("shop:burn", 2, "destructive")]
    assert "asks first" in str(cell)
    assert "<script" not in session.models.write("<script>", model=scripted_model(fenced("'<script>'")))._repr_html_()


def test_a_tool_that_is_off_cannot_be_called_by_a_written_cell(session: Session) -> None:
    cell = session.models.write("price", model=scripted_model(fenced("session.tools.shop.price(item='x')")))
    session.selection.servers["shop"] = "off"
    with pytest.raises(ToolCallError, match="off"):
        cell.run({"session": session})


def test_a_failed_cell_is_repaired_and_the_difference_is_shown(session: Session) -> None:
    model = scripted_model(fenced("a = 1\na / 0"), fenced("a = 1\na / 1"))
    cell = session.models.write("divide", model=model)
    with pytest.raises(ZeroDivisionError):
        cell.run({"session": session})
    repaired = cell.repair()
    assert "ZeroDivisionError" in model.client.requests[-1].messages[-1].content
    assert "in line 2: a / 0" in model.client.requests[-1].messages[-1].content
    assert repaired.difference.splitlines()[-2:] == ["-a / 0", "+a / 1"]
    assert repaired.run({"session": session}) == 1
    with pytest.raises(UsageError, match="nothing to repair"):
        repaired.repair()


def test_the_model_may_search_and_correct_itself(session: Session) -> None:
    model = scripted_model("SEARCH: destroy an item", "I cannot.", fenced("x = ("), fenced("x = 1"))
    assert session.models.write("do it", model=model).code == "x = 1\n"
    contents = [request.messages[-1].content for request in model.client.requests]
    assert "session.tools.shop.burn" in contents[1]
    assert "no fenced block" in contents[2]
    assert "SyntaxError" in contents[3]
    with pytest.raises(ExtractionError) as caught:
        session.models.write("do it", model=scripted_model("a", "b", "c"))
    assert caught.value.text == "c"


async def test_written_and_repaired_in_cells_that_await(session: Session) -> None:
    model = scripted_model(fenced("1"), fenced("2"))
    cell = await session.models.write_async("one", model=model)
    assert (await cell.repair_async("It must be two.")).code == "2\n"


def test_only_permitted_variables_are_described() -> None:
    assert head_of(list(range(2_000))).startswith("list of 2,000: [0, 1, 2, ")
    assert head_of("x" * 500)[:11] == "str of 500:"
    assert head_of(Session).endswith("type")


def test_the_planner_an_empty_task_and_a_missing_variable_are_refused(session: Session) -> None:
    with Session.demo() as demo, pytest.raises(UsageError, match="planner"):
        demo.models.write("x")
    with pytest.raises(UsageError, match="task"):
        session.models.write(" ", model=scripted_model("x"))
    with pytest.raises(UsageError, match="variable"):
        session.models.write("x", variables=["there_is_none"], model=scripted_model("x"))
    cell = session.models.write("x", model=scripted_model(fenced("1")))
    with pytest.raises(UsageError, match="session"):
        cell.run({})
    with pytest.raises(UsageError, match="notebook"):
        cell.insert()


def test_programs_are_found_and_checked_without_running_them() -> None:
    assert code_in("no code") is None
    assert code_in("```\na\n```\n```python\nlonger = 1\n```") == "longer = 1\n"
    assert problem_of("await x") != ""
    assert problem_of("(" * 10_000) != ""
    assert list(called_paths("s.tools.functions.a.b(x=s.tools.c.d())", "s")) == [("a.b", 1), ("c.d", 1)]


def test_the_magic_writes_a_cell_and_insert_puts_it_below() -> None:
    shell = InteractiveShell.instance()
    inserted: list[tuple[str, bool]] = []
    shell.set_next_input = lambda text, replace=False: inserted.append((text, replace))  # type: ignore[method-assign]
    try:
        shell.run_line_magic("load_ext", "casual_mcp_nb")
        with Session(CONFIG, in_process={"shop": shop()}) as session:
            shell.user_ns.update(session=session, pears=["a", "b"])
            with pytest.raises(UsageError, match="only --model"):
                shell.run_cell_magic("mcp", "write --plan", "Count.")
            with pytest.raises(UsageError, match="planner"):
                shell.run_cell_magic("mcp", "write --var pears -o cell", "Count.")
            model = scripted_model(fenced("len(pears)"))
            cell = session.models.write("Count.", variables=["pears"], model=model)
            assert "pears: list of 2: ['a', 'b']" in model.client.requests[0].messages[-1].content
            cell.insert()
            assert inserted == [("len(pears)\n", False)]
            assert cell.run() == 2
    finally:
        InteractiveShell.clear_instance()
