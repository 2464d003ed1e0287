"""Calls that a model writes as text: named in a notice, run only where that was chosen, and never
evaluated.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fastmcp import FastMCP
from kit.history import assert_valid
from kit.turns import ask

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.consent import ApprovalRequest
from casual_mcp_nb.engine.written_calls import FORMS, MAX_CALLS, MAX_TEXT, written_calls
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.providers.scripted import scripted_model

NAME = "math__add"
OBJECT = '{"name": "math__add", "arguments": {"a": 1, "b": 2}}'
WRITTEN = {
    "tags": f"<tool_call>\n{OBJECT}\n</tool_call>",
    "tags without an end": f"I will add them. <tool_call>{OBJECT}",
    "parameters": OBJECT.replace("arguments", "parameters"),
    "text in text": json.dumps({"name": NAME, "arguments": '{"a": 1, "b": 2}'}),
    "fence": f"Sure:\n```json\n{OBJECT}\n```\nThat is it.",
    "plain fence": f"```\n{OBJECT}\n```",
    "prose before and after": f"I call the tool:\n{OBJECT}\nand wait.",
    "python": "{'name': 'math__add', 'parameters': {'a': 1, 'b': 2, }}",
    "openai": json.dumps(
        {"type": "function", "function": {"name": NAME, "arguments": '{"a": 1, "b": 2}'}}
    ),
    "tool calls": json.dumps(
        {"tool_calls": [{"function": {"name": NAME, "arguments": {"a": 1, "b": 2}}}]}
    ),
    "list": f"[{OBJECT}]",
    "llama list": "[math__add(a=1, b=2)]",
    "one call": "math__add(a=1, b=2)",
    "fenced call": "```python\nmath__add(a=1, b=2)\n```",
    "llama tag": '<function=math__add>{"a": 1, "b": 2}</function>',
    "python tag": f"<|python_tag|>{OBJECT}",
    "mistral": f"[TOOL_CALLS] [{OBJECT}]",
    "tool name": json.dumps({"tool": "math:add", "args": {"a": 1, "b": 2}}),
}
BAR, BLOCK = "\uff5c", "\u2581"
ADDED = '{"a": 1, "b": 2}'


def special(name: str) -> str:
    """One of DeepSeek's tokens."""
    return f"<{BAR}{name.replace(' ', BLOCK)}{BAR}>"


def dsml(tag: str) -> str:
    return f"{BAR}DSML{BAR}{tag}"


SCHEMA = {
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "note": {"type": "string"}}
}
TEMPLATES = {
    "deepseek v3": (
        f"{special('tool calls begin')}{special('tool call begin')}function{special('tool sep')}{NAME}\n"
        f"```json\n{ADDED}\n```{special('tool call end')}{special('tool calls end')}"
    ),
    "deepseek v3.1": (
        f"{special('tool calls begin')}{special('tool call begin')}{NAME}{special('tool sep')}{ADDED}"
        f"{special('tool call end')}{special('tool calls end')}"
    ),
    "deepseek dsml": (
        f'<{dsml("function_calls")}>\n<{dsml("invoke")} name="{NAME}">\n'
        f'<{dsml("parameter")} name="a" string="false">1</{dsml("parameter")}>\n'
        f'<{dsml("parameter")} name="b" string="false">2</{dsml("parameter")}>\n'
        f"</{dsml('invoke')}>\n</{dsml('function_calls')}>"
    ),
    "kimi": (
        f"<|tool_calls_section_begin|><|tool_call_begin|>functions.{NAME}:0<|tool_call_argument_begin|>{ADDED}"
        "<|tool_call_end|><|tool_calls_section_end|>"
    ),
    "glm": (
        f"<tool_call>{NAME}\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_key>b</arg_key>\n<arg_value>2</arg_value>\n"
        "</tool_call>"
    ),
    "qwen coder": (
        f"<tool_call>\n<function={NAME}>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n2\n</parameter>\n</function>\n"
        "</tool_call>"
    ),
    "harmony": (
        f"<|start|>assistant<|channel|>commentary to=functions.{NAME}"
        f" <|constrain|>json<|message|>{ADDED}<|call|>"
    ),
    "anthropic": (
        f'<function_calls>\n<invoke name="{NAME}">\n<parameter name="a">1</parameter>\n<parameter'
        ' name="b">2</parameter>\n</invoke>\n</function_calls>'
    ),
}
VARIANTS = {
    "harmony with the recipient first": (
        f"<|start|>assistant to=functions.{NAME}<|channel|>commentary"
        f" json<|message|>{ADDED}<|call|>"
    ),
    "harmony without its tokens": (
        f"analysisI add them.assistantcommentary to=functions.{NAME} json{ADDED}"
    ),
    "kimi without sections": (
        f"<|tool_call_begin|>{NAME}:12<|tool_call_argument_begin|>{ADDED}<|tool_call_end|>"
    ),
    "qwen coder without the outer tags": (
        f"<function={NAME}><parameter=a>1</parameter><parameter=b>2</parameter></function>"
    ),
    "invoke with a namespace": (
        f'<ml:invoke name="{NAME}"><ml:parameter name="a">1</ml:parameter><ml:parameter'
        ' name="b">2</ml:parameter></ml:invoke>'
    ),
    "parameters without ends": f"<function={NAME}><parameter=a>\n1\n<parameter=b>\n2\n</function>",
    "deepseek without its wrapper": (
        f"{special('tool call begin')}{NAME}{special('tool sep')}{ADDED}"
    ),
}
NOT_CALLS = {
    "prose": "The sum of 1 and 2 is 3.",
    "empty": "",
    "another tool": OBJECT.replace(NAME, "math__divide"),
    "a person": '{"name": "Ada", "parameters": {"a": 1}}',
    "a definition": json.dumps(
        {"name": NAME, "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}
    ),
    "no arguments": '{"name": "math__add"}',
    "arguments that are a list": '{"name": "math__add", "arguments": [1, 2]}',
    "positional": "[math__add(1, 2)]",
    "an expression": "math__add(a=__import__('os').getpid(), b=1)",
    "a nested call": "math__add(a=math__add(a=1, b=1), b=1)",
    "infinite": '{"name": "math__add", "arguments": {"a": Infinity, "b": NaN}}',
    "a set": "{'name': 'math__add', 'arguments': {'a': {1}, 'b': b'2'}}",
    "broken": '<tool_call>{"name": "math__add", "arguments": {',
    "too long": f"{OBJECT}{' ' * MAX_TEXT}",
}
HOSTILE = {
    "brackets": "[" * MAX_TEXT,
    "braces": '{"a":' * (MAX_TEXT // 5),
    "tags": "<tool_call>" * (MAX_TEXT // 11),
    "invokes": '<invoke name="x">' * (MAX_TEXT // 17),
    "parameters": "<function=x>" + "<parameter=a>" * (MAX_TEXT // 14),
    "keys": "<tool_call>x" + "<arg_key>a" * (MAX_TEXT // 11),
    "recipients": "to=functions.x" * (MAX_TEXT // 14),
    "kimi": "<|tool_call_begin|>" * (MAX_TEXT // 19),
    "fences": "```json\n" * (MAX_TEXT // 8),
    "lines": "{\n" * (MAX_TEXT // 2),
    "minus": "-" * (MAX_TEXT - 1) + "1",
    "nested": "f(a=" * (MAX_TEXT // 4),
    "digits": f"[math__add(a={'9' * 10_000}, b=1)]",
    "power": "[math__add(a=9**9**9**9, b=1)]",
    "escapes": "{'name': 'math__add', 'x': '" + "\\d" * 5_000 + "'}",
    "null": "math__add(a='\x00', b=1)\x00",
    "surrogate": '{"name": "\\ud800", "arguments": {}}',
}


class Lab:
    """A server that adds, and deletes."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.mcp: FastMCP[Any] = FastMCP("math")
        self.mcp.tool(self.add)
        self.mcp.tool(self.wipe, annotations={"destructiveHint": True})

    def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        self.ran.append("add")
        return a + b

    def wipe(self) -> str:
        """Delete everything."""
        self.ran.append("wipe")
        return "gone"


@pytest.fixture
def lab() -> Lab:
    return Lab()


@pytest.fixture
async def chat(lab: Lab) -> AsyncIterator[McpToolChat]:
    async def deny(request: ApprovalRequest) -> bool:
        return request.tool.name != "wipe"

    async with McpToolChat.from_config({}, in_process={"math": lab.mcp}, approver=deny) as chat:
        yield chat


@pytest.mark.defect("J4")
@pytest.mark.parametrize("form", WRITTEN)
def test_each_form_is_read(form: str) -> None:
    calls, before = written_calls(WRITTEN[form], lambda name: name in (NAME, "math:add"))
    assert [(call.name.replace(":", "__"), call.arguments) for call in calls] == [
        (NAME, {"a": 1, "b": 2})
    ]
    assert NAME not in before


def known(name: str) -> bool:
    return name == NAME


@pytest.mark.defect("M10")
@pytest.mark.parametrize(
    "text", [*TEMPLATES.values(), *VARIANTS.values()], ids=[*TEMPLATES, *VARIANTS]
)
def test_the_forms_of_templates_are_read(text: str) -> None:
    for written in (text, f"I add them.\n{text}", f"{text}\nThen I wait."):
        calls, before = written_calls(written, known, schemas=lambda name: SCHEMA)
        assert [(call.name, call.arguments) for call in calls] == [(NAME, {"a": 1, "b": 2})]
        assert "functions" not in before or "analysis" in before
    twice, _ = written_calls(f"{text}\n{text}", known, schemas=lambda name: SCHEMA)
    assert len(twice) in (1, 2)


@pytest.mark.defect("M10")
def test_each_form_of_a_template_has_its_source_and_an_example() -> None:
    assert TEMPLATES.keys() <= FORMS.keys()
    assert all(form.source and form.models and form.seen >= "2026" for form in FORMS.values())


@pytest.mark.defect("M10")
def test_a_value_without_quotes_is_what_its_schema_says() -> None:
    text = f"<tool_call><function={NAME}><parameter=a>1</parameter><parameter=note>\n007\n</parameter></function></tool_call>"
    (typed,), _ = written_calls(text, known, schemas=lambda name: SCHEMA)
    assert typed.arguments == {"a": 1, "note": "007"}
    (guessed,), _ = written_calls(text, known)
    assert guessed.arguments == {"a": 1, "note": "007"}
    listed = text.replace("007", "[1, true, null]").replace("note", "other")
    assert written_calls(listed, known)[0][0].arguments["other"] == [1, True, None]


@pytest.mark.defect("M10")
@pytest.mark.parametrize("form", TEMPLATES)
async def test_a_form_of_a_template_is_noticed_and_runs_by_choice(
    chat: McpToolChat, lab: Lab, form: str
) -> None:
    silent = await ask(chat, TEMPLATES[form])
    assert (silent.status, lab.ran, len(silent.notices)) == ("done", [], 1)
    assert NAME in silent.notices[0].text
    turn = await ask(chat, TEMPLATES[form], "It is 3.", repair_calls=True)
    assert [(each.status, str(each.tool), each.result) for each in turn.tool_calls] == [
        ("ok", "math:add", "3")
    ]
    assert turn.answer == "It is 3."
    assert_valid(turn.messages)


@pytest.mark.defect("M16")
@pytest.mark.parametrize("form", [*TEMPLATES, "tags", "bare"])
async def test_a_written_call_of_a_tool_that_is_not_offered_is_not_the_answer(
    chat: McpToolChat, lab: Lab, form: str
) -> None:
    forms = {**TEMPLATES, "tags": WRITTEN["tags"], "bare": f"```json\n{OBJECT}\n```"}
    text = forms[form].replace(NAME, "add_numbers")
    noticed = await ask(chat, text)
    assert [
        ("add_numbers" in notice.text, "repair_calls" in notice.text) for notice in noticed.notices
    ] == [(True, True)]
    turn = await ask(chat, text, forms[form], "It is 3.", repair_calls=True)
    first, second = turn.tool_calls
    assert (first.status, "math__add" in first.result, second.status) == ("error", True, "ok")
    assert (turn.answer, lab.ran) == ("It is 3.", ["add"])


@pytest.mark.defect("M16")
@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Ada", "parameters": {"a": 1}}',
        'He said {"name": "x", "arguments": {}}.',
        "[f(a=1)]",
    ],
)
def test_what_can_be_an_answer_stays_one(text: str) -> None:
    assert written_calls(text, known, any_name=True) == ([], "")


@pytest.mark.defect("M16")
@pytest.mark.parametrize("form", ["bare", *TEMPLATES])
def test_calls_that_were_whole_before_a_cut_count(form: str) -> None:
    whole = {**TEMPLATES, "bare": OBJECT}[form]
    for length in range(len(whole)):
        calls, _ = written_calls(
            f"{whole}\n{whole[:length]}", known, schemas=lambda name: SCHEMA, cut=True
        )
        assert calls
        assert all(call.arguments == {"a": 1, "b": 2} for call in calls)
    for length in range(1, len(whole)):
        calls, _ = written_calls(whole[:length], known, schemas=lambda name: SCHEMA, cut=True)
        assert all(call.arguments == {"a": 1, "b": 2} for call in calls)


@pytest.mark.defect("J4")
@pytest.mark.parametrize(
    "text", [*NOT_CALLS.values(), *HOSTILE.values()], ids=[*NOT_CALLS, *HOSTILE]
)
def test_what_is_not_a_call_of_an_offered_tool_is_text(text: str) -> None:
    assert written_calls(text, lambda name: name == NAME) == ([], "")


@pytest.mark.defect("J4")
def test_several_calls_are_read_up_to_a_limit() -> None:
    for text in (
        OBJECT * 50,
        f"<tool_call>{OBJECT}</tool_call>\n" * 50,
        f"[{', '.join(['math__add(a=1, b=2)'] * 50)}]",
    ):
        assert len(written_calls(text, lambda name: True)[0]) == MAX_CALLS


@pytest.mark.defect("J4")
async def test_without_the_option_nothing_runs_and_a_notice_names_the_tool(
    chat: McpToolChat, lab: Lab
) -> None:
    turn = await ask(chat, WRITTEN["tags"])
    assert (turn.status, turn.answer, lab.ran) == ("done", WRITTEN["tags"], [])
    (notice,) = turn.notices
    assert NAME in notice.text
    assert "repair_calls" in notice.text


@pytest.mark.defect("J4")
@pytest.mark.parametrize("form", ["tags", "fence", "llama list", "python"])
async def test_with_the_option_it_is_run_like_any_other_call(
    chat: McpToolChat, lab: Lab, form: str
) -> None:
    turn = await ask(chat, WRITTEN[form], WRITTEN[form], "It is 3.", repair_calls=True)
    assert (turn.status, turn.answer) == ("done", "It is 3.")
    results = [
        (each.status, str(each.tool), each.result.split("\n")[0]) for each in turn.tool_calls
    ]
    assert results == [("ok", "math:add", "3")] * 2
    assert len({each.id for each in turn.tool_calls}) == 2
    assert lab.ran == ["add"] * 2
    assert len(turn.notices) == 2
    assert_valid(turn.messages)
    assert NAME not in str(turn.messages[1].content)


@pytest.mark.defect("J4")
async def test_consent_is_asked_and_what_is_not_offered_is_not_run(
    chat: McpToolChat, lab: Lab
) -> None:
    chat.selection.servers["math"] = "loaded"
    denied = await ask(chat, '{"name": "math__wipe", "arguments": {}}', "No.", repair_calls=True)
    assert [each.status for each in denied.tool_calls] == ["denied"]
    chat.selection.tools_off = ["math:add"]
    other = await ask(chat, OBJECT, "Then not.", repair_calls=True)
    assert [each.status for each in other.tool_calls] == ["error"]
    assert lab.ran == []


@pytest.mark.defect("J4")
async def test_a_plan_has_written_calls_and_runs_none_of_them(chat: McpToolChat, lab: Lab) -> None:
    from casual_mcp_nb import Session

    config = {
        "clients": {"here": {"provider": "offline"}},
        "models": {"m": {"client": "here", "model": "planner"}},
    }
    with pytest.raises(UsageError, match="repair_calls"):
        await ask(chat, "never", repair_calls="yes")
    assert Config.model_validate(config).models["m"].repair_calls is False
    async with Session.from_config({}, in_process={"math": lab.mcp}) as session:
        plan = await session.plan_async(
            "Add", model=scripted_model(OBJECT, "done"), repair_calls=True
        )
        assert [each.name for each in plan] == [NAME]
    assert lab.ran == []
