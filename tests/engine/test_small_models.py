"""What small models get wrong: their calls are repaired where nothing can be harmed, and their
turns end with an answer.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest
from casual_llm import UserMessage
from fastmcp import FastMCP
from kit.history import assert_valid
from kit.turns import ask
from pydantic import Field

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.base.selection import Selection
from casual_mcp_nb.base.tool import ToolAnnotations, ToolSpec
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.consent import ApprovalRequest
from casual_mcp_nb.engine.loose_arguments import SCHEMA_WORDS, example_of, rearranged
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.engine.setup import ChatSetup
from casual_mcp_nb.engine.small_models import ANSWER_NOW, REPEATED
from casual_mcp_nb.providers.factory import ModelFactory
from casual_mcp_nb.providers.scripted import call, calls, scripted_model
from casual_mcp_nb.servers.server_manager import ServerManager

SEARCH, CALL = "search_tools", "call_tool"
READS = {"readOnlyHint": True}


class Desk:
    """A server whose tools keep what they were called with."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, dict[str, Any]]] = []
        self.mcp: FastMCP[Any] = FastMCP("math", instructions="Exact arithmetic.")
        for function in (self.add, self.random_numbers, self.total, self.list_tables):
            self.mcp.tool(function, annotations=READS)
        self.mcp.tool(self.store)
        self.mcp.tool(self.add_all_deletions, annotations={"destructiveHint": True})

    def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        self.ran.append(("add", {"a": a, "b": b}))
        return a + b

    def random_numbers(self, count: int = 1) -> str:
        """Draw random numbers."""
        self.ran.append(("random_numbers", {"count": count}))
        return "4"

    def total(self, numbers: Annotated[list[int], Field(examples=[[1, 2, 3]])]) -> int:
        """Add many numbers."""
        return sum(numbers)

    def list_tables(self) -> str:
        """List the tables."""
        self.ran.append(("list_tables", {}))
        return "customers, orders"

    def store(self, value: str) -> str:
        """Store a value."""
        self.ran.append(("store", {"value": value}))
        return "stored"

    def add_all_deletions(self, folder: str) -> str:
        """Delete everything."""
        self.ran.append(("add_all_deletions", {"folder": folder}))
        return "gone"


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def asked() -> list[ApprovalRequest]:
    return []


def small(*answers: Any) -> Any:
    """A small model that plays these answers."""
    model = scripted_model(*answers)
    model.small = True
    return model


def written(name: str, **arguments: Any) -> str:
    return json.dumps({"name": name, "arguments": arguments})


def opened(desk: Desk, asked: list[ApprovalRequest], **selection: Any) -> McpToolChat:
    async def approve(request: ApprovalRequest) -> bool:
        asked.append(request)
        return request.arguments.get("folder") != "never"

    manager = ServerManager({}, in_process={"math": desk.mcp})
    chat = McpToolChat(
        manager,
        ModelFactory(Config()),
        ChatSetup(
            selection=Selection.model_validate(selection),
            approver=approve,
        ),
    )
    return chat


@pytest.fixture
async def chat(desk: Desk, asked: list[ApprovalRequest]) -> AsyncIterator[McpToolChat]:
    async with opened(desk, asked) as chat:
        yield chat


@pytest.fixture(params=["definitions", "bridge"])
async def deferring(
    request: Any, desk: Desk, asked: list[ApprovalRequest]
) -> AsyncIterator[McpToolChat]:
    chosen = {"servers": {"math": "deferred"}, "discovery": True, "delivery": request.param}
    async with opened(desk, asked, **chosen) as chat:
        yield chat


def choices(turn: Turn) -> list[Any]:
    return [step.request.options.get("tool_choice") for step in turn.steps]


# Answers


@pytest.mark.defect("M16")
async def test_a_small_model_is_asked_for_its_answer_and_others_are_not(chat: McpToolChat) -> None:
    turn = await ask(chat, model=small(call("math__add", a=1, b=2), "It is 3."))
    assert turn.tool_calls[0].result == f"3{ANSWER_NOW}"
    large = await ask(chat, call("math__add", a=1, b=2), "It is 3.")
    assert large.tool_calls[0].result == "3"


@pytest.mark.defect("M16")
async def test_a_small_model_that_repeats_a_call_answers_without_tools(
    chat: McpToolChat, desk: Desk
) -> None:
    same = call("math__add", a=1, b=2)
    turn = await ask(chat, model=small(same, same, "It is 3."))
    assert [each.result for each in turn.tool_calls] == [f"3{ANSWER_NOW}", f"3{REPEATED}"]
    assert (turn.status, turn.answer, choices(turn)) == ("done", "It is 3.", [None, None, "none"])
    assert_valid(turn.messages)


@pytest.mark.defect("M16")
@pytest.mark.parametrize("last", [call("math__add", a=1, b=2), written("math__add", a=1, b=2)])
async def test_a_turn_ends_even_if_the_model_calls_again(
    chat: McpToolChat, desk: Desk, last: Any
) -> None:
    same = call("math__add", a=1, b=2)
    turn = await ask(chat, model=small(same, same, last), repair_calls=True)
    assert (turn.status, len(desk.ran), len(turn.steps)) == ("done", 2, 3)
    assert any("math__add" in notice.text for notice in turn.notices)
    assert_valid(turn.messages)


@pytest.mark.defect("M16")
async def test_the_last_step_of_a_small_model_is_its_answer(chat: McpToolChat) -> None:
    steps = [call("math__add", a=number, b=2) for number in range(2)]
    turn = await ask(chat, model=small(*steps, "Enough."), max_steps=3)
    assert (turn.status, turn.answer, choices(turn)) == ("done", "Enough.", [None, None, "none"])


@pytest.mark.defect("M16")
async def test_a_large_model_may_ask_often_whether_a_job_is_done(chat: McpToolChat) -> None:
    turn = await ask(chat, *[call("math__list_tables")] * 6, "Done.")
    assert (turn.status, turn.answer, set(choices(turn))) == ("done", "Done.", {None})


@pytest.mark.defect("M16")
@pytest.mark.parametrize(
    ("text", "learned"),
    [
        (written("math__add", a=1, b=2), True),
        (f"```json\n{written('math__add', a=1, b=2)}\n```", True),
        # A server did not read the tags of a template that the model knows.
        (f"<tool_call>{written('math__add', a=1, b=2)}</tool_call>", False),
    ],
)
async def test_a_model_without_a_format_for_calls_is_a_small_one(
    chat: McpToolChat, text: str, learned: bool
) -> None:
    turn = await ask(chat, text, "It is 3.", repair_calls=True)
    assert turn.tool_calls[0].result == ("3" + ANSWER_NOW if learned else "3")
    other = scripted_model(text, "It is 3.")
    other.small = False
    assert (await ask(chat, model=other, repair_calls=True)).tool_calls[0].result == "3"


@pytest.mark.defect("M16")
async def test_the_same_call_twice_in_one_text_runs_once(chat: McpToolChat, desk: Desk) -> None:
    text = "\n".join([written("math__add", a=1, b=2)] * 5)
    turn = await ask(chat, text, "It is 3.", repair_calls=True)
    assert (len(turn.tool_calls), len(desk.ran)) == (1, 1)


# Arguments


@pytest.mark.defect("M16")
@pytest.mark.parametrize("word", sorted(SCHEMA_WORDS))
async def test_words_of_the_schema_are_left_out(chat: McpToolChat, desk: Desk, word: str) -> None:
    turn = await ask(chat, call("math__add", a=1, b=2, **{word: "number"}), "3")
    (made,) = turn.tool_calls
    assert (made.status, made.result.split("\n")[0], desk.ran) == (
        "ok",
        "3",
        [("add", {"a": 1, "b": 2})],
    )
    assert word in made.result.split("\n")[1]
    assert word in turn.notices[0].text
    assert made.arguments == {"a": 1, "b": 2, word: "number"}


@pytest.mark.defect("M16")
async def test_what_remains_must_fit(chat: McpToolChat, desk: Desk) -> None:
    turn = await ask(
        chat,
        model=small(
            call("math__add", a=1, type="x"), call("math__add", a="one", b=2, type="x"), "?"
        ),
    )
    assert [each.status for each in turn.tool_calls] == ["error", "error"]
    assert desk.ran == []


@pytest.mark.defect("M16")
async def test_a_destructive_call_runs_only_as_it_was_approved(
    chat: McpToolChat, desk: Desk, asked: list[ApprovalRequest]
) -> None:
    loose = call("math__add_all_deletions", folder="x", dry_run=True)
    turn = await ask(chat, model=small(loose, "ok"))
    assert turn.tool_calls[0].status == "ok"
    assert [request.arguments for request in asked] == [{"folder": "x"}]
    assert desk.ran == [("add_all_deletions", {"folder": "x"})]


@pytest.mark.defect("M16")
@pytest.mark.parametrize(
    ("name", "given"), [("add_all_deletions", {"folder": "x"}), ("store", {"value": "x"})]
)
@pytest.mark.parametrize("extra", ["dry_run", "type"])
async def test_without_anybody_to_ask_only_harmless_calls_lose_arguments(
    desk: Desk, name: str, given: dict[str, Any], extra: str
) -> None:
    policy = {"approval": {"math": "never"}}
    async with McpToolChat.from_config({}, in_process={"math": desk.mcp}, **policy) as chat:
        turn = await ask(chat, model=small(call(f"math__{name}", **given, **{extra: True}), "ok"))
    runs = name == "store" and extra == "type"
    assert ([tool for tool, _ in desk.ran], turn.tool_calls[0].status) == (
        [name] if runs else [],
        "ok" if runs else "error",
    )
    assert extra in turn.tool_calls[0].result


@pytest.mark.defect("M16")
async def test_an_error_says_which_item_and_gives_the_example(deferring: McpToolChat) -> None:
    wrong = call("math__total", numbers=[1, {"number": "two"}])
    turn = await ask(deferring, model=small(wrong, call("math__list_tables", table="x"), "?"))
    total, tables = turn.tool_calls
    assert "numbers[1]" in total.result
    assert '{"numbers": [1]}' in total.result
    assert (tables.status, "call it with {}" in tables.result) == ("ok", True)


# Names


@pytest.mark.defect("M16")
@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("add_numbers", "math__add"),
        ("addNumbers", "math__add"),
        ("math__sum_total", "math__total"),
        ("math__ad", "math__add"),
        ("list_all_tables", "math__list_tables"),
        ("math_add_numbers", "math__add"),
    ],
)
async def test_a_near_name_leads_to_the_tool(
    chat: McpToolChat, deferring: McpToolChat, name: str, meant: str
) -> None:
    for each in (chat, deferring):
        turn = await ask(each, call(name, x=1), "?")
        words = turn.tool_calls[0].result.partition("Did you mean ")[2]
        assert words.startswith(f"'{meant}'"), turn.tool_calls[0].result


@pytest.mark.defect("M16")
async def test_the_most_destructive_tool_is_never_suggested_first(chat: McpToolChat) -> None:
    turn = await ask(chat, call("add_all"), "?")
    named = turn.tool_calls[0].result.partition("Did you mean ")[2]
    assert "math__add'" in named
    assert (
        named.index("math__add'") < named.find("add_all_deletions")
        or "add_all_deletions" not in named
    )


@pytest.mark.defect("M16")
@pytest.mark.parametrize(
    "name", ["functions.math__add", "functions.add", "tools.math__add", "function.math:add"]
)
async def test_a_namespace_of_a_template_is_no_part_of_a_name(
    chat: McpToolChat, deferring: McpToolChat, name: str
) -> None:
    found = call(SEARCH, tool_names=["math__add"])
    assert (await ask(chat, call(name, a=1, b=2), "3")).tool_calls[0].status == "ok"
    assert (await ask(deferring, found, call(name, a=1, b=2), "3")).tool_calls[1].status == "ok"
    assert (await ask(deferring, call(f"functions.{SEARCH}", query="add"), "3")).tool_calls[
        0
    ].status == "ok"


@pytest.mark.defect("M16")
async def test_a_server_is_not_called_but_loaded(chat: McpToolChat, deferring: McpToolChat) -> None:
    told = (await ask(deferring, call("math", query="add"), "?")).tool_calls[0].result
    assert (SEARCH in told, '{"server_name": "math"}' in told) == (True, True)
    assert "'math__add'" in (await ask(chat, call("math"), "?")).tool_calls[0].result


@pytest.mark.defect("M16")
@pytest.mark.parametrize("text", ["add two numbers", '"add two numbers"', "query: add two numbers"])
async def test_a_search_may_be_only_a_text(deferring: McpToolChat, text: str) -> None:
    from casual_llm.messages import AssistantMessage, AssistantToolCall, AssistantToolCallFunction

    function = AssistantToolCallFunction(name=SEARCH, arguments=text)
    message = AssistantMessage(
        content="", tool_calls=[AssistantToolCall(id="1", function=function)]
    )
    turn = await ask(deferring, message, "ok")
    assert "## math__add" in turn.tool_calls[0].result


@pytest.mark.defect("M16")
async def test_a_name_that_no_tool_has_leads_to_what_does_it(chat: McpToolChat) -> None:
    turn = await ask(chat, call("math__draw"), call("zzz"), "?")
    assert "may do it: 'math__random_numbers'" in turn.tool_calls[0].result
    assert "Available: 'math__add'" in turn.tool_calls[1].result


# Tools that nobody searched for


@pytest.mark.defect("M16")
async def test_a_deferred_tool_that_is_called_is_loaded_where_that_was_chosen(
    deferring: McpToolChat, desk: Desk
) -> None:
    direct = call("math__add", a=1, b=2)
    refused = await ask(deferring, direct, "?")
    assert "not yet loaded" in refused.tool_calls[0].result
    assert desk.ran == []
    deferring.selection.direct_calls = True
    turn = await ask(deferring, call("math__add", a="one"), direct, "3")
    wrong, made = turn.tool_calls
    assert (wrong.status, "Schema of arguments" in wrong.result) == ("error", True)
    assert (made.status, made.result.split("\n")[0], desk.ran) == (
        "ok",
        "3",
        [("add", {"a": 1, "b": 2})],
    )
    assert "Exact arithmetic." in wrong.result
    assert "Exact arithmetic." not in made.result
    # After the first call, even though its arguments did not fit.
    offered = [tool["name"] for tool in turn.steps[1].request.tools]
    assert ("math__add" in offered) is (turn.steps[0].request.delivery == "definitions")
    by_bridge = turn.steps[0].request.delivery == "bridge"
    assert (
        all(step.request.tools == turn.steps[0].request.tools for step in turn.steps) is by_bridge
    )


@pytest.mark.defect("M16")
@pytest.mark.parametrize("folder", ["never", "old"])
async def test_the_call_that_loads_a_tool_has_its_instructions_however_it_ends(
    deferring: McpToolChat, desk: Desk, folder: str
) -> None:
    deferring.selection.direct_calls = True
    deleting, adding = call("math__add_all_deletions", folder=folder), call("math__add", a=1, b=2)
    turn = await ask(deferring, calls(deleting, adding), "?")
    first, other = turn.tool_calls
    assert first.status == {"never": "denied", "old": "ok"}[folder]
    assert ["Exact arithmetic." in each.result for each in (first, other)] == [True, False]


@pytest.mark.defect("M16")
async def test_a_small_model_may_call_what_it_read_in_the_manifest(
    deferring: McpToolChat, desk: Desk
) -> None:
    turn = await ask(deferring, written("add", a=1, b=2), "It is 3.", repair_calls=True)
    assert (turn.answer, desk.ran) == ("It is 3.", [("add", {"a": 1, "b": 2})])


@pytest.mark.defect("M16")
async def test_consent_and_the_toolset_hold_for_direct_calls(
    deferring: McpToolChat, desk: Desk, asked: list[ApprovalRequest]
) -> None:
    deferring.selection.tools_off = ["math:add"]
    turn = await ask(
        deferring,
        model=small(call("math__add", a=1, b=2), call("math__add_all_deletions", folder="x"), "?"),
    )
    assert [each.status for each in turn.tool_calls] == ["error", "ok"]
    assert [request.tool.name for request in asked] == ["add_all_deletions"]


# The bridge


@pytest.mark.defect("M16")
async def test_the_bridge_names_the_search_first(desk: Desk, asked: list[ApprovalRequest]) -> None:
    for strategy, loader in (("search", SEARCH), ("browse", "load_tools")):
        chosen = {
            "servers": {"math": "deferred"},
            "discovery": True,
            "delivery": "bridge",
            "strategy": strategy,
        }
        async with opened(desk, asked, **chosen) as chat:
            (step,) = (await ask(chat, "Hello.")).steps
        names = [tool["name"] for tool in step.request.tools]
        assert names[-1] == CALL
        assert "read_result" not in names
        assert loader in step.request.tools[-1]["description"]


@pytest.mark.defect("M16")
async def test_a_large_result_is_read_on_through_the_bridge_without_a_change_of_the_tools() -> None:
    server: FastMCP[Any] = FastMCP("logs")
    server.tool(
        lambda: "\n".join(f"line {number}" for number in range(20_000)),
        name="read",
        annotations=READS,
    )
    chosen = {"servers": {"logs": "deferred"}, "discovery": True, "delivery": "bridge"}
    manager = ServerManager({}, in_process={"logs": server})

    def reading_on(messages: Any, tools: Any) -> Any:
        handle = messages[-1].content.partition("[Result ")[2].partition(":")[0]
        return call(CALL, name="read_result", arguments={"handle": handle, "search": "line 19999"})

    async with McpToolChat(
        manager, ModelFactory(Config()), ChatSetup(selection=Selection.model_validate(chosen))
    ) as chat:
        found, read = (
            call(SEARCH, tool_names=["logs__read"]),
            call(CALL, name="logs__read", arguments={}),
        )
        turn = await ask(chat, found, read, reading_on, "The last one.")
    assert [(each.name, each.status) for each in turn.tool_calls[1:]] == [
        ("logs__read", "ok"),
        ("read_result", "ok"),
    ]
    assert "line 19999" in turn.tool_calls[2].result
    assert all(word in turn.tool_calls[1].result for word in (CALL, "handle", "offset", "sql"))
    assert len({str(step.request.tools) for step in turn.steps}) == 1
    assert {step.request.tools[-1]["name"] for step in turn.steps} == {CALL}


# Imitations of other small models' habits


@pytest.mark.defect("M16")
async def test_a_model_that_writes_schemas_and_prose_gets_to_its_answer(
    deferring: McpToolChat, desk: Desk
) -> None:
    """Copies the schema into its arguments, calls the server, writes what is not offered, and
    repeats itself.
    """
    made = written("math__add", a=1, b=2, type="object", required=["a", "b"])
    turn = await ask(
        deferring,
        f"Sure! I will use the tool.\n```json\n{written('math', query='1 + 2')}\n```",
        f"```json\n{written('add_numbers', a=1, b=2)}\n```",
        f"Let me call it:\n{made}\n{made}\n{made[:30]}",
        made,
        "1 + 2 is 3.",
        repair_calls=True,
    )
    assert (turn.status, turn.answer) == ("done", "1 + 2 is 3.")
    assert desk.ran == [("add", {"a": 1.0, "b": 2.0})] * 2


@pytest.mark.defect("M16")
async def test_a_model_that_writes_a_template_of_another_gets_to_its_answer(
    deferring: McpToolChat, desk: Desk
) -> None:
    """Writes the tags of other models, with a namespace and a number, and searches with a bare
    text.
    """
    search = (
        f'<|tool_call_begin|>functions.{SEARCH}:0<|tool_call_argument_begin|>{{"query": "add'
        ' numbers"}<|tool_call_end|>'
    )
    name = "functions.math__add"
    pairs = "".join(
        f"<arg_key>{key}</arg_key><arg_value>{value}</arg_value>"
        for key, value in (("a", 1), ("b", 2))
    )
    made = f"<tool_call>{name}\n{pairs}</tool_call>"
    turn = await ask(deferring, search, made, "1 + 2 is 3.", repair_calls=True)
    assert (turn.status, turn.answer, [each.status for each in turn.tool_calls]) == (
        "done",
        "1 + 2 is 3.",
        ["ok", "ok"],
    )
    assert desk.ran == [("add", {"a": 1.0, "b": 2.0})]


@pytest.mark.defect("M16")
async def test_calls_before_a_limit_run_and_the_cut_one_does_not(
    chat: McpToolChat, desk: Desk
) -> None:
    from casual_llm.messages import AssistantMessage

    from casual_mcp_nb.conversation.step import ModelResponse

    text = f"{written('math__add', a=1, b=2)}\n{written('math__add', a=3, b=4)[:-3]}"
    cut = ModelResponse(AssistantMessage(content=text), finish_reason="length")
    turn = await ask(chat, cut, "It is 3.", repair_calls=True)
    assert (turn.answer, desk.ran) == ("It is 3.", [("add", {"a": 1.0, "b": 2.0})])
    noticed = await ask(chat, cut)
    assert any("math__add" in notice.text for notice in noticed.notices)
    both = await ask(chat, calls(call("math__add", a=5, b=5)), "10")
    assert both.answer == "10"


MOVED: dict[str, tuple[str, dict[str, Any], dict[str, Any] | None]] = {
    "other names": ("add", {"value": 1, "value2": 2}, {"a": 1, "b": 2}),
    "one other name": ("add", {"b": 2, "first": 1}, {"a": 1, "b": 2}),
    "an object for the list": ("add", {"numbers": [{"a": 1, "b": 2}]}, {"a": 1, "b": 2}),
    "one value is missing": ("add", {"value": 1}, None),
    "one value too many": ("add", {"x": 1, "y": 2, "z": 3}, None),
    "not harmless": ("store", {"text": "x"}, None),
}


@pytest.mark.defect("M16")
@pytest.mark.parametrize(("name", "given", "ran"), MOVED.values(), ids=MOVED.keys())
async def test_the_values_of_a_small_models_call_are_put_where_they_fit(
    chat: McpToolChat, desk: Desk, name: str, given: dict[str, Any], ran: dict[str, Any] | None
) -> None:
    turn = await ask(chat, model=small(call(f"math__{name}", **given), "ok"))
    assert desk.ran == ([(name, ran)] if ran else [])
    assert [json.dumps(ran) in notice.text for notice in turn.notices] == [True] * bool(ran)
    desk.ran.clear()
    await ask(chat, call(f"math__{name}", **given), "ok")
    assert desk.ran == []


@pytest.mark.defect("M16")
async def test_the_tools_that_fit_a_message_are_loaded_for_a_small_model(
    deferring: McpToolChat, desk: Desk
) -> None:
    message = [UserMessage(content="Please add two numbers")]
    turn = await deferring.run(message, TurnOptions(model=small(call("math__add", a=1, b=2), "3")))
    assert "math__add" in {tool["name"] for tool in turn.steps[0].request.tools}
    assert desk.ran == [("add", {"a": 1, "b": 2})]
    large = await deferring.run(message, TurnOptions(model=scripted_model("3")))
    assert "math__add" not in {tool["name"] for tool in large.steps[0].request.tools}


NUMBERS = {"type": "array", "items": {"type": "integer"}, "minItems": 2, "examples": [[12, 18]]}
TWO = {"a": {"type": "number"}, "b": {"type": "number"}}
GIVEN: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "objects in a list": (
        {"numbers": NUMBERS},
        {"numbers": [{"a": 84, "b": 126}]},
        {"numbers": [84, 126]},
    ),
    "wrong names, in order": (TWO, {"value": 15, "value2": 27.5}, {"a": 15, "b": 27.5}),
    "one name of two": (TWO, {"a": 3, "minuend": 9}, {"a": 3, "b": 9}),
    "too few": ({"numbers": NUMBERS}, {"numbers": [{"a": 84}]}, {"numbers": [12, 18]}),
    "another type": ({"text": {"type": "string"}}, {"number": 7}, {"text": "text"}),
    "one of its choices": (
        {"unit": {"enum": ["km", "mi"], "type": "string"}},
        {"to": "mi", "x": "ft"},
        {"unit": "mi"},
    ),
    "a boolean and the number that is equal to it": (
        {"flag": {"type": "boolean"}, "count": {"type": "number"}},
        {"x": 1, "y": True},
        {"flag": True, "count": 1},
    ),
    "null and a boolean": (TWO, {"x": None, "y": True, "z": 2}, {"a": 2, "b": 1.5}),
    "nothing": ({"numbers": NUMBERS}, {}, {"numbers": [12, 18]}),
}


@pytest.mark.defect("M16")
@pytest.mark.parametrize(("properties", "given", "wanted"), GIVEN.values(), ids=GIVEN.keys())
def test_an_example_has_the_values_that_the_model_gave(
    properties: dict[str, Any], given: dict[str, Any], wanted: dict[str, Any]
) -> None:
    tool = ToolSpec(
        "math",
        "total",
        "",
        {"type": "object", "properties": properties, "required": list(properties)},
    )
    assert json.loads(example_of(tool, given)) == wanted


@pytest.mark.parametrize("count", [2, 49, 60, 5_000])
def test_values_are_moved_only_if_none_of_them_is_lost(count: int) -> None:
    tool = ToolSpec(
        "desk",
        "look_up",
        "",
        {
            "type": "object",
            "properties": {"names": {"type": "array", "items": {"type": "string"}}},
            "required": ["names"],
        },
        annotations=ToolAnnotations(read_only=True),
    )
    names = [f"name {number}" for number in range(count)]
    for given in ({"words": names}, {"words": dict(enumerate(names))}):
        moved = rearranged(tool, given)
        assert (moved.arguments["names"] if moved is not None else names) == names
        assert (moved is not None) == (count < 50)
