"""Cells that a model writes: what it reads, what is checked, what runs when, and what the person is
asked.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP
from IPython.core.interactiveshell import InteractiveShell
from kit.provider import Provider, answer
from kit.raw_server import raw_config
from mcp_types import ToolAnnotations

from casual_mcp_nb import Conversation, Session
from casual_mcp_nb.errors import ExtractionError, ToolCallError, UsageError
from casual_mcp_nb.notebook.write import code_in, head_of, problem_of
from casual_mcp_nb.providers.scripted import scripted_model

BURNT: list[str] = []
CONFIG = {
    "clients": {"planner": {"provider": "offline"}},
    "models": {"planner": {"client": "planner", "model": "planner"}},
}


@dataclass
class Parcel:
    id: int
    where: list[str]


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
    assert (
        cell.code,
        [(str(each.tool.tool_name), each.line, each.reason) for each in cell.calls],
    ) == (
        PRICES + "\n",
        [("shop:price", 1, "")],
    )
    assert len(session.tools.calls) == len(session.turns) == 0
    assert (
        "session.tools.shop.price(*, item: str) -> int"
        in model.client.requests[0].messages[-1].content
    )
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
    (record,) = session.consent.audit
    assert (record.caller, record.status, record.permission and record.permission.by) == (
        "model",
        "denied",
        "nobody",
    )
    assert (cell.state, cell.call_counts, cell.error is not None) == ("failed", {"denied": 1}, True)
    # The same line in the person's own cell is the person's own call.
    session.tools.shop.burn(item="mine")
    assert BURNT == ["mine"]


def test_a_destructive_call_is_marked_before_it_runs(session: Session) -> None:
    code = "shop = session.tools.shop\nshop.burn(item='x')"
    cell = session.models.write("burn", model=scripted_model(fenced(code)))
    (burn,) = cell.calls
    assert (str(burn.tool.tool_name), burn.line, burn.reason) == ("shop:burn", 2, "destructive")
    assert (burn.policy, burn.included, burn.tool.tokens > 0) == ("destructive", True, True)
    assert "asks first" in str(cell)
    page = cell._repr_html_()
    assert '<span class="cmn-row cmn-row-bad" data-line="2">' in page
    assert '<span class="cmn-string">&#39;x&#39;</span>' in page
    assert (
        "<script"
        not in session.models.write(
            "<script>", model=scripted_model(fenced("'<script>'"))
        )._repr_html_()
    )


@pytest.mark.defect("N11")
@pytest.mark.parametrize(
    "call",
    [
        "_, burn = 1, session.tools.shop.burn\nburn(item='x')",
        "list(map(session.tools.shop.burn, 'x'))",
    ],
)
def test_a_destructive_call_through_another_name_is_marked_too(session: Session, call: str) -> None:
    cell = session.models.write("burn", model=scripted_model(fenced(call)))
    (burn,) = cell.calls
    assert (str(burn.tool.tool_name), burn.reason) == ("shop:burn", "destructive")
    assert f'data-line="{burn.line}">' in cell._repr_html_()


@pytest.mark.defect("N11")
def test_a_cell_says_what_else_it_does_and_that_it_may_call_any_tool(session: Session) -> None:
    code = "import os\nos.system('ls')\nfor name in names:\n    session.tools.call(name)"
    cell = session.models.write("burn", model=scripted_model(fenced(code)))
    assert [line for line, _ in cell.remarks] == [2]
    assert cell.may_call_any_tool
    for shown in (
        str(cell),
        cell._repr_html_(),
        cell._repr_markdown_() if hasattr(cell, "_repr_markdown_") else str(cell),
    ):
        assert "may call any tool" in shown
        assert "os.system" in shown
    assert cell.now.as_dict()["remarks"] == [{"line": 2, "text": cell.remarks[0][1]}]
    cell.code = "session.tools.shop.price(item='x')"
    assert (cell.remarks, cell.may_call_any_tool) == ((), False)
    cell._edit("%time session.tools.shop.burn(item='x')")
    assert cell.may_call_any_tool


def test_a_tool_that_is_off_cannot_be_called_by_a_written_cell(session: Session) -> None:
    cell = session.models.write(
        "price", model=scripted_model(fenced("session.tools.shop.price(item='x')"))
    )
    session.selection.servers["shop"] = "off"
    with pytest.raises(ToolCallError, match="off"):
        cell.run({"session": session})
    again = session.models.write("price", model=(model := scripted_model(fenced(cell.code))))
    assert [(each.included, each.reason) for each in again.calls] == [(False, "")]
    assert "shop" not in model.client.requests[0].messages[0].content


def test_opening_an_app_in_a_written_cell_is_a_call_of_the_program() -> None:
    shown = {"resourceUri": "ui://places/show"}
    tool = {"name": "show", "inputSchema": {"type": "object"}, "_meta": {"ui": shown}}
    config = {"servers": {"places": raw_config(tools=[tool])}}
    with Session(config, quiet=True, store=None) as session:
        model = scripted_model(fenced("session.tools.app('places:show')"))
        cell = session.models.write("show", model=model)
        session.tools.app("places:show")
        session.selection.tools_off = ["places:show"]  # type: ignore[assignment]
        session.tools.app("places:show")
        with pytest.raises(ToolCallError, match="off"):
            cell.run({"session": session})


HOSTILE = """import pathlib
class Evil(str):
    def __repr__(self):
        pathlib.Path({path!r}).write_text("repr")
        return "evil"
pathlib.Path({path!r}).write_text("ran")
[].__class__.__mro__[-1].__subclasses__()
while True: session.tools.shop.burn(item=Evil("x" * 10 ** 10))
"""


def test_nothing_runs_before_the_person_runs_it(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "ran"
    code = HOSTILE.format(path=str(path))
    model = scripted_model(fenced(code), fenced(f"{code}\n# Corrected"))
    cell = session.models.write("anything", model=model)
    repaired = cell.repair("It is hostile.")
    for each in (cell, repaired):
        each.code = f"{each.code}\n1"
        assert len(each.calls) == 1
        assert [len(form) > 0 for form in each._repr_mimebundle_().values()] == [True] * 3
        assert each.state == "not run"
    assert not path.exists()
    assert (BURNT, len(session.tools.calls)) == ([], 0)


def test_calls_from_threads_of_a_program_need_approval_too(session: Session) -> None:
    code = """from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor() as pool:
    gone = list(pool.map(lambda item: session.tools.shop.burn(item=item), ["a", "b"]))"""
    cell = session.models.write("burn", model=scripted_model(fenced(code)))
    with pytest.raises(ToolCallError, match="not approved"):
        cell.run({"session": session})
    assert (BURNT, cell.call_counts) == ([], {"denied": 2})


def test_one_of_forty_calls_is_denied_and_the_program_is_corrected_once(session: Session) -> None:
    async def approver(request: Any) -> bool:
        return bool(request.arguments["item"] != "7")

    session.parts.chat.consent.approver = approver
    code = """denied = []
for number in range(40):
    try:
        session.tools.shop.burn(item=str(number))
    except {error}:
        denied.append(number)
denied"""
    cell = session.models.write(
        "burn",
        model=scripted_model(
            fenced(code.format(error="KeyError")), fenced(code.format(error="Exception"))
        ),
    )
    variables: dict[str, Any] = {"session": session}
    with pytest.raises(ToolCallError):
        cell.run(variables)
    assert (len(BURNT), cell.call_counts) == (7, {"ok": 7, "denied": 1})
    assert cell.repair().run(variables) == [7]
    assert len(BURNT) == 7 + 39


def test_a_call_that_ends_after_the_program_is_counted() -> None:
    called, may_end = threading.Event(), threading.Event()
    server = FastMCP("slow")

    @server.tool(annotations={"readOnlyHint": True})
    def wait() -> bool:
        called.set()
        return may_end.wait(30)

    code = """thread = Thread(target=session.tools.slow.wait)
thread.start()
called.wait(30)"""
    with Session({}, in_process={"slow": server}) as session:
        cell = session.models.write("wait", model=scripted_model(fenced(code)))
        variables = {"session": session, "Thread": threading.Thread, "called": called}
        assert cell.run(variables) is True
        assert (cell.state, cell.call_counts, cell.now.call_counts) == ("ok", {}, {})
        may_end.set()
        variables["thread"].join(30)
        assert (cell.call_counts, cell.now.call_counts) == ({"ok": 1}, {"ok": 1})


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_over_the_wire_of_a_provider_no_definition_of_a_tool_is_sent(provider: str) -> None:
    with Provider(*(answer(provider, fenced(code)) for code in ("1 / 0", PRICES))) as desk:
        with Session(desk.config(provider), in_process={"shop": shop()}) as session:
            cell = session.models.write("add up prices")
            with pytest.raises(ZeroDivisionError):
                cell.run({"session": session})
            assert cell.repair().run({"session": session}) == 7
        bodies = [request.body for request in desk.seen]
    assert [body.get("tools") for body in bodies] == [None, None]
    # Without Anthropic's marks for its cache, which move on.
    first, second = (
        re.sub(r", 'cache_control': {[^}]*}", "", str(body["messages"])) for body in bodies
    )
    assert second.startswith(first.removesuffix("]"))
    assert "session.tools.shop.price" in str(bodies[0])


def test_a_program_has_no_imports_of_ours(session: Session) -> None:
    code = (
        "from dataclasses import dataclass, fields\n@dataclass\nclass One:\n    number:"
        " int\nfields(One)[0].type"
    )
    cell = session.models.write("type", model=scripted_model(fenced(code)))
    assert cell.run({"session": session, "__name__": "__main__"}) is int


def test_a_server_that_was_removed_is_an_error_in_the_program(session: Session) -> None:
    cell = session.models.write(
        "price", model=scripted_model(fenced("session.tools.shop.price(item='x')"))
    )
    session.servers.remove("shop")
    with pytest.raises(AttributeError, match="shop"):
        cell.run({"session": session})
    assert (cell.state, cell.call_counts) == ("failed", {})


def test_the_model_reads_the_fields_of_results_and_where_functions_are() -> None:
    server = FastMCP("call")

    @server.tool
    def find(number: int) -> Parcel:
        """Find a parcel."""
        return Parcel(number, ["here"])

    @server.tool(output_schema=None)
    def note(number: int) -> Any:
        """Find a note of a parcel."""
        return {"text": "n"}

    with Session({}, in_process={"call": server}) as session:
        session.connect()
        session.tools.functions.call.note(number=1)
        model = scripted_model(fenced("session.tools.functions.call.find(number=1)['id']"))
        cell = session.models.write("find a parcel and its note", model=model)
        text = model.client.requests[0].messages[-1].content
        assert "session.tools.functions.call.find(*, number: int) -> FindResult" in text
        assert "class FindResult(TypedDict):\n    id: int\n    where: list[str]" in text
        assert "class NoteResult(TypedDict):\n    text: str" in text
        assert cell.run({"session": session}) == 1


def test_each_request_repeats_the_one_before_it(session: Session) -> None:
    model = scripted_model("SEARCH: destroy", fenced("1 / 0"), fenced("1"))
    cell = session.models.write("price", model=model)
    with pytest.raises(ZeroDivisionError):
        cell.run({"session": session})
    cell.repair()
    requests = [list(request.messages) for request in model.client.requests]
    for before, after in itertools.pairwise(requests):
        assert after[: len(before)] == before
    assert [request.tools for request in model.client.requests] == [()] * 3
    assert len(session.turns) == 0


def test_only_so_many_corrections_as_allowed(session: Session) -> None:
    model = scripted_model(*(fenced(f"1 / 0 # {number}") for number in range(3)))
    cell = session.models.write("divide", model=model, rounds=2)
    cells = [cell, cell := cell.repair("Again."), cell := cell.repair("And again.")]
    assert [each.round for each in cells] == [0, 1, 2]
    assert [bool(each.difference) for each in cells] == [False, True, True]
    assert cells[2].before is cells[1]
    assert session.models.cells == tuple(cells)
    with pytest.raises(UsageError, match="limit"):
        cell.repair("Once more.")


def test_an_error_without_a_text_is_described(session: Session) -> None:
    code = "class Odd(Exception):\n    def __str__(self):\n        raise ValueError\nraise Odd"
    model = scripted_model(fenced(code), fenced("1"))
    cell = session.models.write("fail", model=model)
    variables: dict[str, Any] = {"session": session}
    with pytest.raises(Exception) as caught:  # noqa: PT011
        cell.run(variables)
    assert type(caught.value) is variables["Odd"]
    cell.repair()
    read = model.client.requests[-1].messages[-1].content
    assert re.search(r"\bOdd: .+\nin line 4: raise Odd", read)


def test_a_long_error_keeps_its_line(session: Session) -> None:
    model = scripted_model(fenced("raise ValueError('x' * 100_000)"), fenced("1"))
    cell = session.models.write("fail", model=model)
    with pytest.raises(ValueError, match="x"):
        cell.run({"session": session})
    cell.repair(variables=())
    text = model.client.requests[-1].messages[-1].content
    assert "in line 1: raise ValueError" in text
    assert len(text) < 3_000


def test_a_recorded_session_replays_its_cells_and_an_export_shows_them(tmp_path: Path) -> None:
    async def approver(request: Any) -> bool:
        return bool(request.arguments["item"] != "b")

    code = """gone = []
for each in "ab":
    try:
        gone.append(session.tools.shop.burn(item=each))
    except Exception as error:
        gone.append(type(error).__name__)
gone[5]"""
    path = tmp_path / "cells.json"

    def work(session: Session, model: Any = None) -> list[Any]:
        cell = session.models.write("Burn <b>", model=model)
        variables: dict[str, Any] = {"session": session}
        with pytest.raises(IndexError):
            cell.run(variables)
        return [cell.call_counts, variables["gone"], cell.repair().run(variables)]

    with Session({}, in_process={"shop": shop()}, approval={"shop": "destructive"}) as session:
        session.parts.chat.consent.approver = approver
        session.cassettes.use(path)
        first = work(
            session, scripted_model(fenced(code), fenced(code.replace("gone[5]", "gone[0]")))
        )
        pages = [session.export(tmp_path / f"cells.{form}").read_text() for form in ("html", "md")]
        saved = json.loads(session.export(tmp_path / "talk.json").read_text())
        player = session.export(tmp_path / "player.html", player=True).read_text()
    assert first == [{"ok": 1, "denied": 1}, ["a is gone", "ToolCallError"], "a is gone"]
    assert [page.count("-gone[5]") for page in pages] == [1, 1]
    assert "Burn &lt;b&gt;" in pages[0]
    assert "Burn <b>" not in pages[0] + player
    cells = saved["written_cells"]
    assert [(cell["task"], cell["state"], cell["call_counts"]) for cell in cells] == [
        ("Burn <b>", "failed", {"ok": 1, "denied": 1}),
        ("Burn <b>", "ok", {"ok": 1, "denied": 1}),
    ]
    assert (cells[0]["error"][:10], cells[1]["round"], cells[1]["requests"]) == ("IndexError", 1, 2)
    assert [(made["tool"], made["line"], made["asks"]) for made in cells[0]["calls"]] == [
        ("shop:burn", 4, "destructive")
    ]
    # They stay in a conversation that is loaded and written again.
    assert json.loads(Conversation.load(tmp_path / "talk.json").to_json())["written_cells"] == cells
    slides = json.loads(player.partition('id="player">')[2].partition("</script>")[0])["slides"]
    assert [(slide["kind"], slide["calls"][0][:2], slide["status"][1]) for slide in slides] == [
        ("cell", ["shop:burn", "4"], "bad"),
        ("cell", ["shop:burn", "4"], "good"),
    ]
    BURNT.clear()
    with Session.quick(cassette=path) as replayed:
        assert work(replayed) == first
        state = replayed.cassettes.state
        assert state is not None
        assert state.unplayed == 0
    assert BURNT == []


def test_stubs_answer_the_calls_of_a_program_and_not_those_of_the_person(
    session: Session, tmp_path: Path
) -> None:
    code = (
        "[session.tools.shop.burn(item='x'), session.tools.call('shop:price', item='pear').result]"
    )
    path = tmp_path / "mocked.json"
    with session.cassettes.use(path), session.tools.mock({"shop:burn": lambda item: f"no {item}"}):
        cell = session.models.write("burn", model=scripted_model(fenced(code)))
        assert cell.run({"session": session}) == ["no x", "4"]
        assert (BURNT, cell.call_counts) == ([], {"ok": 2})
        assert [made.call.mocked for made in session.tools.calls] == [False, True]
        assert [record.permission and record.permission.by for record in session.consent.audit] == [
            "mock",
            "policy",
        ]
        # A tool that is off stays off.
        session.selection.servers["shop"] = "off"
        with pytest.raises(ToolCallError, match="off"):
            cell.run({"session": session})
        session.selection.servers["shop"] = "loaded"
        assert session.tools.shop.burn(item="mine") == "mine is gone"
    assert BURNT == ["mine"]
    with Session.quick(cassette=path) as replayed:
        assert replayed.models.write("burn").run({"session": replayed}) == ["no x", "4"]


def test_an_edited_program_is_what_runs_and_what_is_repaired(session: Session) -> None:
    model = scripted_model(fenced("a = 1"), fenced("b = 3"))
    cell = session.models.write("divide", model=model)
    with pytest.raises(UsageError, match="SyntaxError"):
        cell.code = "a = ("
    cell.code = "b = session.tools.shop.price(item='x') / 0"
    assert [each.tool.name for each in cell.calls] == ["price"]
    with pytest.raises(ZeroDivisionError):
        cell.run({"session": session})
    repaired = cell.repair()
    read = model.client.requests[-1].messages[-1].content
    assert re.search(r"\bedited .*\n```python\nb = session", read)
    assert repaired.difference.splitlines()[-2:] == [
        "-b = session.tools.shop.price(item='x') / 0",
        "+b = 3",
    ]


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
    assert (
        code_in('```json\n{"long": "er than the code"}\n```\nSo:\n```python\na = 1\n```')
        == "a = 1\n"
    )
    assert problem_of("await x") != ""
    assert problem_of("(" * 10_000) != ""


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
            read = model.client.requests[0].messages[-1].content
            assert re.search(r"\bpears: .*\b2: \['a', 'b'\]", read)
            cell.insert()
            assert inserted == [("len(pears)", False)]
            assert cell.run() == 2
            # Edited and run by hand: the program and its error are known, wherever the cell is.
            model = scripted_model(
                fenced("count = len(pears)\ncount + 1"), fenced("count = len(pears)\ncount")
            )
            cell = session.models.write("Count.", model=model)
            cell.insert()
            shell.run_cell("1 + 1")
            assert cell.state == "not run"
            shell.run_cell("# By hand\ncount = len(pears)\ncount / 0")
            assert (cell.state, type(cell.error)) == ("failed", ZeroDivisionError)
            repaired = cell.repair()
            read = model.client.requests[-1].messages[-1].content
            assert "# By hand" in read
            assert "in line 3: count / 0" in read
            assert "-count / 0" in repaired.difference
            shell.run_cell("count = len(pears)\ncount")
            assert (repaired.state, cell.state) == ("not run", "ok")
    finally:
        InteractiveShell.clear_instance()
