"""Results that are too large for the model: the part that it reads, how it continues, and the whole
for the person.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pandas
import pytest
from fastmcp import FastMCP
from fastmcp.tools import ToolResult
from kit.history import assert_valid
from kit.turns import ask

from casual_mcp_nb import Conversation, Session
from casual_mcp_nb.base.content import value_of
from casual_mcp_nb.base.tokens import estimate_tokens
from casual_mcp_nb.conversation.messages import ToolOutcomeMessage
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.large_results import TOKENS, LargeResults, ReadResultTool
from casual_mcp_nb.errors import ConfigError, UsageError
from casual_mcp_nb.isolation.worker import Worker
from casual_mcp_nb.providers.scripted import call, calls, scripted_model

LINES = "".join(f"line {number:06}\n" for number in range(60_000))
CITIES = ("Oslo", "Bergen", "Tromsø")
NOTE = re.compile(r"\[Result (r_[0-9a-f]{10}): ")
GOES_ON = re.compile(r"offset=(\d+)")


def rows(count: int) -> list[dict[str, Any]]:
    return [
        {"id": n, "name": f"item {n}", "city": CITIES[n % 3], "price": n / 4, "tags": ["a", "b"]}
        for n in range(count)
    ]


def desk() -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("desk")

    @server.tool
    def dump(text: str = "") -> str:
        """Give a long text."""
        return text or LINES

    @server.tool
    def orders(count: int = 1_000) -> list[dict[str, Any]]:
        """Give a table."""
        return rows(count)

    @server.tool
    def shop() -> dict[str, Any]:
        """Give an object with a table in it."""
        return {"name": "shop", "open": True, "items": rows(1_000), "a.b": {"c": "x" * 3_000}}

    return server


@pytest.fixture
async def chat() -> AsyncIterator[McpToolChat]:
    async with McpToolChat.from_config({}, in_process={"desk": desk()}) as chat:
        yield chat


def names(turn: Any, step: int) -> list[str]:
    return [tool["name"] for tool in turn.steps[step].request.tools]


def handle_in(messages: Any) -> str:
    return [handle for m in messages if m.role == "tool" for handle in NOTE.findall(m.content)][-1]


def read(**arguments: Any) -> Any:
    """An answer that asks about the last large result."""
    return lambda messages, _tools: call("read_result", handle=handle_in(messages), **arguments)


def reading_on(messages: Any, _tools: Any) -> Any:
    """An answer that reads on where the last result says so."""
    goes_on = GOES_ON.findall(messages[-1].content)
    return call("read_result", handle=handle_in(messages), offset=int(goes_on[-1]))


@pytest.mark.defect("D17")
async def test_of_a_large_result_the_model_reads_the_head_and_the_shape(chat: McpToolChat) -> None:
    turn = await ask(
        chat,
        calls(call("desk__dump"), call("desk__dump", text="漢字" * 40_000), call("desk__orders")),
        "ok",
    )
    for made, least, most in zip(
        turn.tool_calls, (500, 500, 100), (1_300, 1_300, 300), strict=True
    ):
        assert least < estimate_tokens(made.result) < most
        assert made.large.tokens == estimate_tokens(made.result)
        assert NOTE.match(made.result)
    text, _, table = turn.tool_calls
    assert text.large.size == len(LINES)
    assert text.value == LINES
    assert all(
        name in table.result
        for name in ("1,000 rows", "id integer", "tags list", "id,name,city,price,tags")
    )
    assert list(table.value.columns) == ["id", "name", "city", "price", "tags"]
    assert len(table.value) == 1_000


@pytest.mark.parametrize(
    ("columns", "width", "count", "shown"), [(3, 5, 1_500, 10), (20, 15, 300, 1), (40, 150, 100, 0)]
)
async def test_of_a_table_the_model_reads_few_rows_and_fewer_wide_ones(
    chat: McpToolChat, columns: int, width: int, count: int, shown: int
) -> None:
    names = [f"column {n}" for n in range(columns)]
    cells = [("a b c d " * 20)[:width]] * columns
    row = ",".join(cells)
    table = "\n".join([",".join(names), *[row] * count])
    within = json.dumps({"name": "x", "rows": [dict(zip(names, cells, strict=True))] * count})
    turn = await ask(
        chat, calls(call("desk__dump", text=table), call("desk__dump", text=within)), "ok"
    )
    for made in turn.tool_calls:
        assert made.result.count(row) == shown
        assert f"{names[-1]} text" in made.result
        assert estimate_tokens(made.result) < 300 + 12 * columns


async def test_a_result_within_the_limit_is_as_it_was(chat: McpToolChat) -> None:
    turn = await ask(chat, call("desk__orders", count=3), "ok")
    made = turn.tool_calls[0]
    assert made.large is None
    assert len(made.value) == 3
    assert names(turn, 1) == names(turn, 0)


async def test_limits_are_of_the_config_and_of_a_server() -> None:
    config = {
        "tool_results": {"max_tokens": 0},
        "servers": {"text": {"bundled": "text", "transport": "in-process"}},
    }
    config["servers"]["text"]["max_result_tokens"] = 200  # type: ignore[index]
    async with McpToolChat.from_config(config, in_process={"desk": desk()}) as chat:
        assert chat.state.large_results.limit_for("text", chat.limits.result_tokens) == 200
        turn = await ask(chat, call("desk__dump"), "ok")
    assert turn.tool_calls[0].large is None
    with pytest.raises(ConfigError):
        McpToolChat.from_config({"tool_results": {"max_tokens": 50}})


@pytest.mark.defect("D17")
async def test_a_model_reads_on_and_misses_nothing(chat: McpToolChat) -> None:
    turn = await ask(chat, call("desk__dump"), *[reading_on] * 8, "ok")
    assert names(turn, 0)[-1] != "read_result"
    assert names(turn, 1)[-1] == "read_result"
    assert turn.steps[1].request.tokens.tools - turn.steps[0].request.tokens.tools == TOKENS < 160
    head, *parts = [made.result for made in turn.tool_calls]
    text = "\n".join(
        [
            head.split("\n", 1)[1].rsplit("\n[", 1)[0],
            *(part.split("]\n", 1)[1].rsplit("\n[", 1)[0] for part in parts),
        ]
    )
    assert len(text) > 20_000
    assert LINES.startswith(text)
    assert turn.stats.tool_calls.by_tool == {"desk__dump": 1, "read_result": 8}
    assert turn.stats.tool_calls.by_server == {"desk": 1, "_synthetic": 8}
    assert_valid(turn.messages)


async def test_a_text_without_lines_is_read_to_its_end(chat: McpToolChat) -> None:
    word = "".join(f"{number:05}," for number in range(5_000))
    turn = await ask(chat, call("desk__dump", text=word), read(offset=29), "ok")
    assert word[29_000:] in turn.tool_calls[1].result
    assert not GOES_ON.search(turn.tool_calls[1].result)


async def test_a_table_is_searched_and_queried(chat: McpToolChat) -> None:
    questions: list[tuple[dict[str, Any], str]] = [
        (
            {"sql": "SELECT city, count(*), max(price) FROM result GROUP BY city ORDER BY city"},
            "Bergen,333,249.25",
        ),
        ({"sql": "SELECT json_extract(tags, '$[1]') FROM result LIMIT 1"}, "b"),
        ({"search": "ITEM 77"}, "row 770: 770,item 770"),
        ({"search": r"item 9\d9\b", "regex": True}, "row 999: "),
        ({"path": "[12].city"}, "Oslo"),
        ({"path": "[3:5]", "sql": "SELECT sum(id) FROM result"}, "7"),
        ({"path": "[*].city", "search": "Tromsø", "offset": 332}, "[998]: Tromsø"),
        ({"offset": 999}, "999,item 999"),
    ]
    turn = await ask(
        chat, call("desk__orders"), *(read(**arguments) for arguments, _ in questions), "ok"
    )
    for made, (_, expected) in zip(turn.tool_calls[1:], questions, strict=True):
        assert made.status == "ok"
        assert expected in made.result


async def test_an_object_is_read_by_path(chat: McpToolChat) -> None:
    questions: list[tuple[dict[str, Any], str]] = [
        ({}, "items: table of 1,000 rows"),
        ({"path": "items"}, "0,item 0,Oslo"),
        ({"path": "$.items[-1].name"}, "item 999"),
        ({"path": "['a.b'].c"}, "x" * 900),
        ({"sql": "SELECT avg(price) FROM result"}, "124.875"),
        ({"search": "item 500"}, "items[500].name: item 500"),
    ]
    turn = await ask(
        chat, call("desk__shop"), *(read(**arguments) for arguments, _ in questions), "ok"
    )
    for made, (_, expected) in zip(turn.tool_calls[1:], questions, strict=True):
        assert expected in made.result


@pytest.mark.parametrize(
    "text",
    [
        "id;name\n" + "".join(f"{n};item {n}\n" for n in range(3_000)),
        "".join(json.dumps({"id": n, "name": f"item {n}"}) + "\n" for n in range(3_000)),
        json.dumps([{"id": n, "name": f"item {n}"} for n in range(3_000)]),
    ],
    ids=["csv", "json lines", "json"],
)
async def test_a_table_is_recognised_in_a_text(chat: McpToolChat, text: str) -> None:
    turn = await ask(
        chat, call("desk__dump", text=text), read(sql="SELECT sum(id), max(name) FROM result"), "ok"
    )
    assert "4498500,item 999" in turn.tool_calls[1].result
    assert turn.tool_calls[0].value["id"].sum() == 4_498_500


@pytest.mark.parametrize(
    "text",
    [
        "Dear all,\nthis, that\nand the rest\n" * 900,
        "{not json" * 3_000,
        "1,2\n3,4\n" * 3_000,
        "a,b\n1,2\n3\n" * 3_000,
    ],
)
def test_what_only_looks_like_a_table_is_text(text: str) -> None:
    assert value_of(text) == text


async def test_what_cannot_be_answered_is_an_error_in_words(chat: McpToolChat) -> None:
    questions: list[dict[str, Any]] = [
        {"sql": "DROP TABLE result"},
        {"sql": "ATTACH '/tmp/x.db' AS x"},
        {"sql": "PRAGMA table_info(result)"},
        {"sql": "SELECT load_extension('x')"},
        {"sql": "SELECT 1; SELECT 2"},
        {"sql": "SELECT hex(zeroblob(1000000000)) FROM result"},
        {"sql": 7},
        {"sql": "SELECT 1", "search": "x"},
        {"search": "(", "regex": True},
        {"path": "[0].citty"},
        {"path": "[5000]"},
        {"path": "]["},
        {"path": "[0].city.x"},
        {"path": "[0].city", "sql": "SELECT 1"},
        {"offset": -1},
        {"offset": "x"},
        {"offset": 1e300},
        {"offset": 1_000},
    ]
    turn = await ask(
        chat, call("desk__orders"), *(read(**arguments) for arguments in questions), "ok"
    )
    assert turn.status == "done"
    for made in turn.tool_calls[1:]:
        assert made.status == "error"
        assert len(made.result) < 400


async def test_a_handle_of_nothing_does_nothing(chat: McpToolChat) -> None:
    handles: list[Any] = [
        "",
        "r_0000000000",
        "call_1",
        "../../etc/passwd",
        "r_" + "f" * 5_000,
        None,
        7,
        {"a": 1},
    ]
    turn = await ask(
        chat,
        call("desk__orders"),
        *(call("read_result", handle=handle) for handle in handles),
        "ok",
    )
    assert {made.status for made in turn.tool_calls[1:]} == {"error"}


async def test_endless_patterns_and_statements_are_ended(
    chat: McpToolChat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("casual_mcp_nb.engine.large_results.SECONDS", 1.0)
    monkeypatch.setattr("casual_mcp_nb.engine.large_results._STATEMENT_SECONDS", 0.2)
    endless = (
        "WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t) SELECT count(*) FROM t"
    )
    turn = await ask(
        chat,
        call("desk__dump", text="a" * 30_000),
        read(search=r"^(a+)+$b", regex=True),
        call("desk__orders"),
        read(sql=endless),
        read(sql="SELECT count(*) FROM result"),
        "ok",
    )
    assert [made.status for made in turn.tool_calls] == ["ok", "error", "ok", "error", "ok"]


@pytest.mark.defect("D17")
async def test_only_results_of_the_own_conversation_can_be_read(chat: McpToolChat) -> None:
    secret = await ask(chat, call("desk__dump", text="secret " * 20_000), "ok")
    handle = handle_in(secret.messages)
    other = await ask(chat, call("desk__dump"), call("read_result", handle=handle), "ok")
    assert other.tool_calls[0].id == secret.tool_calls[0].id
    assert other.tool_calls[1].status == "error"
    assert "secret" not in other.tool_calls[1].result
    again = await ask(
        chat, call("read_result", handle=handle, offset=3), "ok", history=secret.messages
    )
    assert "secret" in again.tool_calls[0].result


@pytest.mark.defect("D17")
async def test_what_is_kept_is_bounded_and_what_was_dropped_is_told() -> None:
    async with McpToolChat.from_config({}, in_process={"desk": desk()}) as chat:
        chat.state.large_results = LargeResults(max_bytes=1_000_000)
        first = await ask(chat, call("desk__dump"), "ok")
        again = await ask(chat, call("desk__dump"), "ok")
        assert again.tool_calls[0].large.source is first.tool_calls[0].large.source
        second = await ask(
            chat, call("desk__dump", text="x" * 600_000), "ok", history=first.messages
        )
        lost = await ask(
            chat,
            call("read_result", handle=handle_in(first.messages)),
            "ok",
            history=second.messages,
        )
        await chat.state.large_results.close()
    assert second.tool_calls[0].value == "x" * 600_000
    assert lost.tool_calls[0].status == "error"
    with pytest.raises(UsageError):
        first.tool_calls[0].value  # noqa: B018


async def test_a_result_that_is_dropped_while_it_is_asked_still_answers() -> None:
    class Busy(Worker):
        """Another large result comes before the process is given the text."""

        async def call(self, job: str, argument: Any, seconds: float) -> Any:
            answer = await super().call(job, argument, seconds)
            if "missing" in answer and "offset" in argument:
                await keep("another")
            return answer

    results = LargeResults(max_bytes=150_000, worker=Busy())

    async def keep(text: str) -> Any:
        return await results.within(500, text, f"{text}\n" * 10_000, None, server="desk")

    first = await keep("first")
    await keep("second")
    message = ToolOutcomeMessage(
        content="", name="", tool_call_id="1", failed=False, handles=(first.large.handle,)
    )
    reader = ReadResultTool([message], results, 500)
    answers = []
    for _ in range(2):
        answers.append((await reader.execute({"handle": first.large.handle})).content)
    await results.close()
    assert "first" in answers[0]
    assert answers[1].startswith("Error: ")


async def test_what_takes_too_much_memory_to_parse_is_text_for_everybody(chat: McpToolChat) -> None:
    text = "[" + "{}," * 5_000_000 + "{}]"
    server: FastMCP[Any] = FastMCP("empty")

    @server.tool
    def objects() -> ToolResult:
        """Give many objects."""
        return ToolResult(content=text)

    async with McpToolChat.from_config({}, in_process={"empty": server}) as chat:
        chat.state.large_results = LargeResults(worker=Worker(memory=200_000_000))
        turn = await ask(chat, call("empty__objects"), read(offset=1), read(path="[0]"), "ok")
        await chat.state.large_results.close()
    assert [made.status for made in turn.tool_calls] == ["ok", "ok", "error"]
    assert turn.tool_calls[0].value == text


async def test_structured_content_and_another_text_are_both_told(chat: McpToolChat) -> None:
    server: FastMCP[Any] = FastMCP("both")

    @server.tool
    def both() -> ToolResult:
        """Give both."""
        return ToolResult(content="There are many.", structured_content={"orders": rows(1_000)})

    async with McpToolChat.from_config({}, in_process={"both": server}) as chat:
        turn = await ask(chat, call("both__both"), read(sql="SELECT count(*) FROM result"), "ok")
    assert turn.tool_calls[0].result.startswith("There are many.\n[Result r_")
    assert turn.tool_calls[0].value["orders"][0]["id"] == 0
    assert "\n1000\n" in turn.tool_calls[1].result


def test_a_model_queries_all_rows_of_a_data_frame_of_which_it_read_the_first(
    tmp_path: Path,
) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed: pip install pandas")
    frame = pandas.DataFrame(rows(300))
    with Session({}) as session:
        session.tools.add(lambda: frame, name="orders", description="List all orders.")
        question = read(sql="SELECT count(*), max(id) FROM result")
        turn = session.chat(
            "Go", model=scripted_model(call("notebook__orders"), question, "ok"), echo="none"
        )
        session.export(tmp_path / "chat.json")
        assert "read_result" not in session.tools.call("notebook:orders").result
    listed, queried = turn.tool_calls
    assert "the first 20 rows below" in listed.result
    assert listed.value is frame
    assert (listed.large.what, listed.large.is_kept) == ("table of 300 rows, 5 columns", True)
    assert "300,299" in queried.result
    (saved, _) = Conversation.load(tmp_path / "chat.json")[0].tool_calls
    assert (saved.result, saved.large.is_kept) == (listed.result, False)
    assert "item 250" not in (tmp_path / "chat.json").read_text()


@pytest.mark.defect("D17")
def test_a_saved_conversation_has_what_the_model_read_and_not_the_whole(tmp_path: Path) -> None:
    with Session({}, in_process={"desk": desk()}) as session:
        turn = session.chat(
            "Go", model=scripted_model(call("desk__dump"), call("desk__orders"), "ok")
        )
        for name in ("chat.json", "chat.html", "chat.md"):
            assert session.export(tmp_path / name).stat().st_size < 60_000
        html, text = turn._repr_html_(), turn._repr_markdown_()
        saved = Conversation.load(tmp_path / "chat.json")
        handle = handle_in(turn.messages)
        sizes = [record.result_size for record in session.consent.audit]
        later = session.chat(
            "On", model=scripted_model(call("read_result", handle=handle, offset=600), "ok")
        )
    assert later.tool_calls[0].status == "ok"
    assert sizes == [each.large.size for each in turn.tool_calls]
    assert "call.value" in html
    assert "call.value" in text
    assert all("call.value" in form for form in turn.tool_calls[0]._repr_mimebundle_().values())
    made = saved[0].tool_calls[0]
    assert (made.large, made.result) == (turn.tool_calls[0].large, turn.tool_calls[0].result)
    assert not made.large.is_kept
    assert "call.value" not in saved[0]._repr_html_()
    with pytest.raises(UsageError):
        made.value  # noqa: B018


async def test_a_result_of_megabytes_takes_few_tokens_and_no_time_of_the_loop(
    chat: McpToolChat,
) -> None:
    text = json.dumps(rows(62_000))
    assert len(text) > 5_700_000
    server: FastMCP[Any] = FastMCP("large")

    @server.tool
    def everything() -> str:
        """Give it all."""
        return text

    async with McpToolChat.from_config({}, in_process={"large": server}) as chat:
        turn = await ask(
            chat,
            call("large__everything"),
            read(search="item 61234"),
            read(
                sql="SELECT city, sum(price) AS total FROM result GROUP BY city ORDER BY total DESC"
            ),
            reading_on_from_head,
            "It is Bergen.",
        )
    assert turn.status == "done"
    assert [made.status for made in turn.tool_calls] == ["ok"] * 4
    assert turn.steps[-1].request.tokens.total < 8_000
    assert "\nBergen,160169250.0\n" in turn.tool_calls[2].result
    # Reading all of it takes a moment, which is the person's.
    value = await asyncio.to_thread(lambda: turn.tool_calls[0].value)
    assert isinstance(value, pandas.DataFrame)
    assert value.shape == (62_000, 5)


def reading_on_from_head(messages: Any, _tools: Any) -> Any:
    head = next(message.content for message in messages if message.role == "tool")
    return call("read_result", handle=handle_in(messages), offset=int(GOES_ON.findall(head)[0]))
