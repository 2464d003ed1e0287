"""The foundations of the tests: each rule of a provider refuses requests that break it, and each
search finds its target.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from http.client import IncompleteRead
from pathlib import Path
from typing import Any

import pytest
from casual_llm.messages import (
    AssistantMessage,
    AssistantToolCall,
    AssistantToolCallFunction,
    ToolResultMessage,
    UserMessage,
)
from kit import fuzz, marks, message_rules, option_rules, processes, secrets
from kit.growth import PART, assert_growth
from kit.history import assert_valid
from kit.option_rules import Rules
from kit.pictures import DOT
from kit.scripted_http import Reply, ScriptedHttp
from kit.waiting import wait_for_text, wait_until


def call(
    id: str = "call00001", name: str = "add", arguments: str = "{}", **more: Any
) -> dict[str, Any]:
    return {
        "role": "assistant",
        "tool_calls": [{"id": id, "function": {"name": name, "arguments": arguments}, **more}],
    }


def result(id: str = "call00001") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": "3"}


USER = {"role": "user", "content": "Add."}
SYSTEM = {"role": "system", "content": "Be brief."}
SAID = {"role": "assistant", "content": "3"}
PICTURE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}
SIGNED = {"extra_content": {"google": {"thought_signature": "s"}}}
DETAILS = [{"type": "reasoning.text"}]
CHAT_RULES: list[tuple[message_rules.Rule, list[Any], list[Any]]] = [
    (message_rules.openai_names, [USER, call()], [USER, call(name="add numbers")]),
    (message_rules.openai_ids, [call("x" * 40)], [call("x" * 41)]),
    (message_rules.openai_ids, [call()], [call("")]),
    (message_rules.openai_pairs, [USER, call(), result(), SAID], [USER, call(), SAID]),
    (message_rules.openai_pairs, [USER], [USER, result()]),
    (message_rules.parsed_arguments, [call(arguments='{"a": 1}')], [call(arguments="[1]")]),
    (message_rules.parsed_arguments, [call()], [call(arguments='{"a": NaN}')]),
    (message_rules.mistral_ids, [call("abcDEF123")], [call("call_1")]),
    (
        message_rules.mistral_order,
        [SYSTEM, USER, call(), result(), SAID, USER],
        [USER, call(), result(), USER],
    ),
    (
        message_rules.template_order,
        [SYSTEM, USER, call(), result(), SAID, USER],
        [USER, SAID, SAID],
    ),
    (message_rules.template_order, [USER, SAID], [USER, SYSTEM]),
    (message_rules.deepseek_reasoning, [{**call(), "reasoning_content": ""}], [call()]),
    (message_rules.gemini_signatures, [call(**SIGNED)], [call()]),
    (
        message_rules.openrouter_details(DETAILS),
        [{**call(), "reasoning_details": DETAILS}],
        [call()],
    ),
    (message_rules.most_images(1), [PICTURE], [PICTURE, PICTURE]),
    (message_rules.no_images("no eyes"), [USER], [PICTURE]),
    (message_rules.refused_field("name"), [USER], [{**USER, "name": "x"}]),
]


@pytest.mark.parametrize(("rule", "good", "bad"), CHAT_RULES)
def test_a_rule_on_messages_takes_what_keeps_it_and_refuses_what_breaks_it(
    rule: message_rules.Rule, good: list[Any], bad: list[Any]
) -> None:
    assert rule({"messages": good}) is None
    assert rule({"messages": bad})


def item(kind: str, id: str = "c", **more: Any) -> dict[str, Any]:
    return {"type": kind, "call_id": id, **more}


@pytest.mark.parametrize(
    "items",
    [
        [item("function_call", "x" * 65, name="add"), item("function_call_output", "x" * 65)],
        [item("function_call", name="add numbers"), item("function_call_output")],
        [item("function_call", name="add")],
        [item("function_call_output")],
    ],
)
def test_the_rules_of_the_responses_api_refuse_what_breaks_them(items: list[Any]) -> None:
    assert message_rules.responses_items({"input": items})
    assert (
        message_rules.responses_items(
            {"input": [item("function_call", name="add"), item("function_call_output")]}
        )
        is None
    )


def block(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, **more}


USE = block("tool_use", id="t1", name="add", input={})
DONE = block("tool_result", tool_use_id="t1", content=[])


def claude(*contents: list[Any]) -> dict[str, Any]:
    roles = ("user", "assistant")
    return {
        "messages": [
            {"role": roles[number % 2], "content": content}
            for number, content in enumerate(contents)
        ]
    }


@pytest.mark.parametrize(
    ("rule", "bad"),
    [
        (message_rules.anthropic_calls, claude([block("text", text="Add.")], [USE])),
        (message_rules.anthropic_calls, claude([], [{**USE, "id": "t 1"}], [DONE])),
        (message_rules.anthropic_calls, claude([], [{**USE, "name": "a b"}], [DONE])),
        (message_rules.anthropic_calls, claude([], [{**USE, "input": "{}"}], [DONE])),
        (message_rules.anthropic_results, claude([{**DONE, "is_error": True}])),
        (
            message_rules.anthropic_results,
            claude([{**DONE, "is_error": True, "content": [block("image")]}]),
        ),
        (message_rules.anthropic_text, claude([block("text", text=" ")])),
        (message_rules.anthropic_text, claude([])),
        (message_rules.anthropic_turns, {"messages": [USER, USER]}),
        (
            message_rules.anthropic_images,
            claude(
                [block("image", source={"type": "base64", "media_type": "image/bmp", "data": ""})]
            ),
        ),
        (message_rules.ollama_types, {"messages": [call()]}),
    ],
)
def test_the_rules_of_anthropic_and_ollama_refuse_what_breaks_them(
    rule: message_rules.Rule, bad: dict[str, Any]
) -> None:
    assert rule(bad)
    assert all(
        rule(claude([block("text", text="Add.")], [USE], [DONE])) is None
        for rule in message_rules.ANTHROPIC
    )


TOOL = {"name": "add"}


@pytest.mark.parametrize(
    ("provider", "body", "rules"),
    [
        ("openai", {"thinking": True}, Rules()),
        ("openai", {"tool_choice": "auto"}, Rules()),
        ("openai", {"parallel_tool_calls": False}, Rules()),
        ("openai", {"max_tokens": 1, "max_completion_tokens": 1}, Rules()),
        ("openai", {"max_tokens": 9}, Rules(most_tokens=8)),
        (
            "openai",
            {"tools": [{"function": TOOL}], "tool_choice": {"function": {"name": "none"}}},
            Rules(),
        ),
        ("openai", {"seed": 1}, Rules(refuses={"seed": "no"})),
        ("openai-responses", {"stop": "x"}, Rules()),
        ("openai-responses", {"max_output_tokens": 15}, Rules()),
        ("openai-responses", {"tool_choice": {"name": "none"}}, Rules()),
        ("anthropic", {"max_tokens": 1, "seed": 1}, Rules()),
        ("anthropic", {}, Rules()),
        ("anthropic", {"max_tokens": 128_001}, Rules()),
        ("anthropic", {"model": "m", "max_tokens": 60}, Rules(window=(100, 50))),
        ("anthropic", {"max_tokens": 1, "temperature": 1.5}, Rules()),
        ("anthropic", {"max_tokens": 1, "temperature": 1, "top_p": 1}, Rules()),
        ("anthropic", {"max_tokens": 1, "tool_choice": {"type": "required"}}, Rules()),
        ("anthropic", {"max_tokens": 1, "tool_choice": {"type": "tool", "name": "none"}}, Rules()),
        (
            "anthropic",
            {"max_tokens": 1, "tool_choice": {"type": "any"}, "thinking": {"type": "enabled"}},
            Rules(),
        ),
        ("ollama", {"think": True}, Rules(facts={"capabilities": ["tools"]})),
        ("ollama", {"think": "high"}, Rules(facts={"capabilities": ["thinking"]})),
    ],
)
def test_a_strict_provider_answers_400_to_what_its_api_does_not_take(
    provider: str, body: Any, rules: Rules
) -> None:
    with option_rules.OptionsProvider(provider, rules) as server:
        assert posted(server.url, {"model": "m-1", **body}) == 400
        assert (
            posted(
                server.url,
                {"model": "m-1", **({"max_tokens": 1} if provider == "anthropic" else {})},
            )
            == 200
        )


def posted(url: str, body: Any) -> int:
    """The status of the answer to a request."""
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_scripted_server_gives_each_request_its_reply_and_notes_it() -> None:
    with ScriptedHttp(lambda request: Reply(201 if request.body == {"a": 1} else 404)) as server:
        assert [posted(server.url, body) for body in ({"a": 1}, {"a": 2})] == [201, 404]
        assert [request.body for request in server.seen] == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("reply", [Reply(200, b"12345", cut=2), Reply(reset=True)])
def test_a_scripted_server_breaks_off(reply: Reply) -> None:
    with ScriptedHttp(lambda _: reply) as server, pytest.raises((OSError, IncompleteRead)):
        urllib.request.urlopen(server.url, timeout=30).read()


def tool_call(id: str) -> AssistantMessage:
    function = AssistantToolCallFunction(name="add", arguments="{}")
    return AssistantMessage(content=None, tool_calls=[AssistantToolCall(id=id, function=function)])


def tool_result(id: str, content: str = "3") -> ToolResultMessage:
    return ToolResultMessage(name="add", tool_call_id=id, content=content)


ASKED = UserMessage(content="Add.")


@pytest.mark.parametrize(
    "messages",
    [
        [ASKED, tool_call("a")],
        [ASKED, tool_call("a"), ASKED],
        [ASKED, tool_result("a")],
        [ASKED, tool_call("a"), tool_result("b")],
        [ASKED, tool_call("a"), tool_result("a", "")],
        [ASKED, tool_call("")],
        [ASKED, tool_call("a"), tool_result("a"), tool_call("a"), tool_result("a")],
    ],
    ids=["open", "between", "alone", "another id", "empty", "no id", "twice"],
)
def test_a_history_that_a_provider_would_refuse_is_not_valid(messages: list[Any]) -> None:
    assert_valid([ASKED, tool_call("a"), tool_result("a"), ASKED])
    with pytest.raises(AssertionError):
        assert_valid(messages)


class Leaky:
    def __init__(self, secret: str) -> None:
        self.secret = secret

    def _repr_html_(self) -> str:
        return f"<b>{self.secret}</b>"


def test_a_secret_is_found_wherever_it_can_be(tmp_path: Path) -> None:
    secret = secrets.planted("a key/with a slash")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "log.txt").write_text(f"key={secret}")
    error = ValueError("outer")
    error.__cause__ = ValueError(secret)
    quoted = urllib.parse.quote(secret, safe="")
    cut = secret[: len(secret) * 2 // 3 + 1]
    for thing in (
        secret,
        secret.encode(),
        {"a": [secret]},
        {secret: 1},
        tmp_path,
        error,
        Leaky(secret),
        quoted,
        cut,
    ):
        with pytest.raises(AssertionError, match="the secret"):
            secrets.assert_nowhere([secret], "nothing", thing)
    secrets.assert_nowhere([secret], "nothing", {"a": 1}, Path(__file__), ValueError("x"))


def test_the_records_of_loggers_that_keep_to_themselves_are_taken_too() -> None:
    logger = logging.getLogger("kit.shy")
    logger.propagate = False
    with secrets.every_log() as records:
        logger.debug("whispered")
    assert [record.getMessage() for record in records if record.name == "kit.shy"] == ["whispered"]
    assert logger.level == logging.NOTSET


def test_marked_processes_are_found_until_they_are_gone() -> None:
    mark = processes.new_mark()
    environment = {processes.MARK: mark}
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE, env=environment
    )
    # The environment is that of the program once it runs, not that of the fork.
    wait_until(lambda: processes.marked(mark), "the child runs")
    assert [process.pid for process in processes.marked(mark)] == [child.pid]
    with pytest.raises(AssertionError, match=str(child.pid)):
        processes.wait_gone(mark, 0)
    child.communicate(b"\n")
    processes.wait_gone(mark)


def test_waiting_ends_with_the_event_or_fails_at_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "said"
    writer = threading.Thread(target=lambda: path.write_text("done done"))
    writer.start()
    wait_for_text(path, "done", count=2)
    writer.join()
    with pytest.raises(AssertionError, match="it rains"):
        wait_until(lambda: False, "it rains", seconds=0)


def test_marks_are_read_from_the_tests_and_numbers_from_their_list(tmp_path: Path) -> None:
    listed = tmp_path / "list.md"
    listed.write_text("# All\n## A\n**A1** one\n**A2** two\n## Words\nnothing\n")
    assert marks.parts(listed, r"\*\*(\w\d)\*\*") == {"A": ["A1", "A2"]}
    tests = marks.marked("holds_the_loop")["that is what is tested"]
    assert (
        "house/test_loop_guard.py: test_a_callback_that_holds_its_loop_is_named_with_file_and_line"
        in tests
    )
    lines = marks.listed({"A": ["A1", "A2"]}, {"A1": ["a_test"]}).splitlines()
    assert [line.split() for line in lines] == [
        [],
        ["A"],
        ["A1", "a", "test"],
        ["A2", "no", "test"],
    ]


def test_the_picture_is_one() -> None:
    assert DOT.startswith(b"\x89PNG\r\n")


def test_damaged_values_are_distinct_reproducible_and_serializable() -> None:
    value = {"a": [1, 2, {"b": "c"}], "d": {"e": None, "f": [{"g": 1.0}]}}
    before = json.dumps(value)
    texts = [json.dumps(each) for each in fuzz.mutations(value, 1, 500)]
    assert texts == [json.dumps(each) for each in fuzz.mutations(value, 1, 500)]
    assert texts != [json.dumps(each) for each in fuzz.mutations(value, 2, 500)]
    assert before == json.dumps(value)
    assert before not in texts
    assert len(set(texts)) > 300
    for kind in (
        "NaN",
        "Infinity",
        "\\ud800",
        "\\u0000",
        "x" * 1_000,
        "[" * 60,
        '{"x": ' * 60,
        str(2**63),
    ):
        assert any(kind in text for text in texts), kind
    damaged = list(fuzz.broken(before, 1, 200))
    assert damaged == list(fuzz.broken(before, 1, 200))
    assert any(each.endswith(b"}") for each in damaged)
    assert any(not each.endswith(b"}") for each in damaged)


@pytest.mark.defect("F20")
def test_work_that_grows_with_the_square_of_the_length_is_noticed() -> None:
    def compare(length: int) -> None:
        assert not any(one == other + 0.5 for one in range(length) for other in range(length))

    assert_growth(lambda: compare(1_200 // PART), lambda: compare(1_200), power=2)
    with pytest.raises(AssertionError, match="times as much work"):
        assert_growth(lambda: compare(1_200 // PART), lambda: compare(1_200))


@pytest.mark.parametrize("case", ["first", "second"])
@pytest.mark.parametrize("provider", ["ollama", "openai"])
def test_one_case_of_a_test_is_chosen_for_each_provider(
    request: pytest.FixtureRequest, provider: str, case: str
) -> None:
    cases = [
        item
        for item in request.session.items
        if item.nodeid.partition("[")[0] == request.node.nodeid.partition("[")[0]
    ]
    chosen = marks.one_case(cases)
    providers = [
        item.callspec.params["provider"] for item in chosen if isinstance(item, pytest.Function)
    ]
    assert len(providers) == len(set(providers)) == min(len(cases), 2)
