"""Deferred tools that the provider loads itself: the requests on the wire, and the provider's
refusals.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest
from casual_llm.messages import (
    AssistantMessage,
    AssistantToolCall,
    AssistantToolCallFunction,
    ChatMessage,
    SystemMessage,
    ToolResultMessage,
    UserMessage,
)
from kit.deferral_rules import DEFERRING
from kit.message_rules import RULES, StrictProvider
from kit.provider import Provider, answer, response, response_call, response_text
from kit.scripted_http import Reply
from kit.streams import anthropic_blocks, reply, streamed

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.errors import BadRequestError, NativeDeferralError
from casual_mcp_nb.providers.chat_model import ChatModel
from casual_mcp_nb.providers.factory import ModelFactory

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def definition(name: str) -> dict[str, Any]:
    return {"name": name, "description": f"Does {name}.", "parameters": SCHEMA}


SEARCH, PLAIN = definition("search_tools"), definition("desk__plain")
A, B, C = (definition(f"desk__{letter}") for letter in "abc")
LOADED = [SEARCH, PLAIN]
TEXT = {"text": "x"}
MARK = ', "cache_control": {"type": "ephemeral"}'


def card(*names: str) -> str:
    """The answer of a search, as `discovery` writes it."""
    cards = [
        f"## {name}\nServer: desk\n  What {name} is for.\nParameters: text (string, required)"
        for name in names
    ]
    return "\n\n".join(
        [f"Found {len(names)} tools.", *cards, "Not loaded, on the same servers:\n  desk: desk__z"]
    )


def call(call_id: str, name: str, **arguments: Any) -> AssistantToolCall:
    function = AssistantToolCallFunction(name=name, arguments=json.dumps(arguments or TEXT))
    return AssistantToolCall(id=call_id, function=function)


def calling(*calls: AssistantToolCall) -> AssistantMessage:
    return AssistantMessage(content="", tool_calls=list(calls))


def result(call_id: str, name: str, content: str = "fine") -> ToolResultMessage:
    return ToolResultMessage(name=name, tool_call_id=call_id, content=content)


SYSTEM = SystemMessage(content="Be kind.")
ASKED: list[ChatMessage] = [SYSTEM, UserMessage(content="Do a.")]
# A search beside another call, a call of what it found, a search that finds one known and one new
# tool, and a call of that.
STEPS: list[list[ChatMessage]] = [
    [
        calling(call("s1", "search_tools"), call("p1", "desk__plain")),
        result("s1", "search_tools", card("desk__a", "desk__b")),
        result("p1", "desk__plain"),
    ],
    [calling(call("a1", "desk__a")), result("a1", "desk__a")],
    [calling(call("s2", "search_tools")), result("s2", "search_tools", card("desk__a", "desk__c"))],
    [calling(call("c1", "desk__c")), result("c1", "desk__c")],
]
FOUND = [[], [A, B], [A, B], [A, B, C], [A, B, C]]


async def bodies(server: Provider, model: ChatModel, stream: bool = False) -> list[Any]:
    """The requests of a conversation, step by step."""
    messages = list(ASKED)
    for step, found in zip([[], *STEPS], FOUND, strict=True):
        messages += step
        await model.complete(
            messages, LOADED, found_tools=found, stream=stream, on_event=lambda _: None
        )
    return [request.body for request in server.seen]


def rendered(provider: str, body: Mapping[str, Any]) -> list[str]:
    """The parts of a request in the order in which the provider reads them, without marks for the
    cache.
    """
    if provider == "anthropic":
        tools = [tool for tool in body["tools"] if not tool.get("defer_loading")]
        blocks = [
            (message["role"], block) for message in body["messages"] for block in message["content"]
        ]
        deferring = any(tool.get("defer_loading") for tool in body["tools"])
        parts: Sequence[Any] = [*tools, deferring, *body["system"], *blocks]
    else:
        parts = [*body["tools"], *body["input"]]
    return [json.dumps(part).replace(MARK, "") for part in parts]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ["anthropic", "openai-responses"])
async def test_each_request_begins_with_the_one_before(
    strict: Callable[..., StrictProvider],
    model_of: Callable[..., ChatModel],
    name: str,
    stream: bool,
) -> None:
    made = reply(name, streamed(name, ["Hi."])) if stream else answer(name, "Hi.")
    # Calls of other models are in the default namespace, so those of this history must not be in
    # one of their own.
    rules = DEFERRING["openai-responses-default" if name == "openai-responses" else name]
    server = strict(rules, made)
    sent = await bodies(server, model_of(server, name), stream)
    assert server.refusals == []
    for before, after in pairwise([rendered(name, body) for body in sent]):
        assert after[: len(before)] == before


async def test_anthropic_is_sent_references_alone_and_the_text_after_all_results(
    strict: Callable[..., StrictProvider], model_of: Callable[..., ChatModel]
) -> None:
    server = strict(DEFERRING["anthropic"], answer("anthropic", "Hi."))
    sent = await bodies(server, model_of(server, "anthropic"))
    placeholder = sent[0]["tools"][2]
    assert [tool.get("defer_loading") for tool in sent[0]["tools"]] == [None, None, True]
    assert [tool["name"] for tool in sent[-1]["tools"][3:]] == ["desk__a", "desk__b", "desk__c"]
    assert sent[-1]["tools"][2] == placeholder
    search, plain, text = sent[-1]["messages"][2]["content"]
    assert [(part["type"], part["tool_name"]) for part in search["content"]] == [
        ("tool_reference", "desk__a"),
        ("tool_reference", "desk__b"),
    ]
    assert (plain["type"], plain["content"]) == ("tool_result", "fine")
    # Their definitions say what the cards would say again.
    assert text["text"].startswith("Found 2 tools.")
    assert "desk__a" not in text["text"]
    assert "desk__z" in text["text"]
    # A tool is referred to once; what is said of it later stays.
    second, text = sent[-1]["messages"][6]["content"]
    assert [part["tool_name"] for part in second["content"]] == ["desk__c"]
    assert "What desk__a" in text["text"]


async def test_what_is_gone_is_not_referred_to_and_what_nothing_loads_is_not_deferred(
    strict: Callable[..., StrictProvider], model_of: Callable[..., ChatModel]
) -> None:
    server = strict(DEFERRING["anthropic"], answer("anthropic", "Hi."))
    await model_of(server, "anthropic").complete([*ASKED, *STEPS[0]], LOADED, found_tools=[B, C])
    (body,) = [request.body for request in server.seen]
    assert [(tool["name"], bool(tool.get("defer_loading"))) for tool in body["tools"]][2] == (
        "desk__c",
        False,
    )
    assert [tool["name"] for tool in body["tools"] if tool.get("defer_loading")][1:] == ["desk__b"]
    assert [part["tool_name"] for part in body["messages"][2]["content"][0]["content"]] == [
        "desk__b"
    ]
    await model_of(server, "anthropic").complete([*ASKED, *STEPS[0]], [], found_tools=[B])
    assert [bool(tool.get("defer_loading")) for tool in server.seen[-1].body["tools"]] == [False]


@pytest.mark.parametrize("role", ["other tool", "failed"])
async def test_only_a_search_that_succeeded_loads(
    strict: Callable[..., StrictProvider], model_of: Callable[..., ChatModel], role: str
) -> None:
    name = "search_tools" if role == "failed" else "desk__plain"
    said = result("p", name, card("desk__a"))
    if role == "failed":
        from casual_mcp_nb.conversation.messages import result_message

        said = result_message(name, "p", card("desk__a"), failed=True)
    later = [calling(call("s", "search_tools")), result("s", "search_tools", card("desk__a"))]
    server = strict(DEFERRING["anthropic"], answer("anthropic", "Hi."))
    await model_of(server, "anthropic").complete(
        [*ASKED, calling(call("p", name)), said, *later], LOADED, found_tools=[A]
    )
    messages = server.seen[0].body["messages"]
    assert "tool_reference" not in json.dumps(messages[2])
    assert messages[4]["content"][0]["content"] == [
        {"type": "tool_reference", "tool_name": "desk__a"}
    ]


async def test_the_last_tool_that_is_not_deferred_is_marked_for_the_cache(
    strict: Callable[..., StrictProvider], model_of: Callable[..., ChatModel]
) -> None:
    server = strict(DEFERRING["anthropic"], answer("anthropic", "Hi."))
    body = (await bodies(server, model_of(server, "anthropic", prompt_caching=True)))[-1]
    assert [tool["name"] for tool in body["tools"] if "cache_control" in tool] == ["desk__plain"]
    assert "cache_control" in body["messages"][-1]["content"][-1]


def function(call_id: str, name: str, namespace: str | None = None) -> dict[str, Any]:
    item = response_call(call_id, name, json.dumps(TEXT))
    return {**item, "namespace": namespace} if namespace else item


def as_stream(*items: dict[str, Any]) -> Any:
    """The reply that streams these items."""
    events = [
        ("response.output_item.done", {"output_index": index, "item": item})
        for index, item in enumerate(items)
    ]
    events.append(("response.completed", {"response": response(*items)}))
    lines = [
        f"event: {kind}\ndata: {json.dumps({'type': kind, 'sequence_number': 0, **body})}\n\n"
        for kind, body in events
    ]
    return reply("openai-responses", "".join(lines).encode())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("own", [True, False])
async def test_calls_of_openais_models_go_back_in_the_namespace_that_they_came_in(
    strict: Callable[..., StrictProvider],
    model_of: Callable[..., ChatModel],
    own: bool,
    stream: bool,
) -> None:
    made: Callable[..., Any] = as_stream if stream else response
    answers = [
        (function("s1", "search_tools"), function("p1", "desk__plain")),
        (function("a1", "desk__a", "desk__a" if own else None),),
        (function("s2", "search_tools"),),
        (function("c1", "desk__c", "desk__c" if own else None),),
        (response_text("Done."),),
    ]
    rules = DEFERRING["openai-responses" if own else "openai-responses-default"]
    server = strict(rules, *(made(*items) for items in answers))
    model = model_of(server, "openai-responses")
    messages = list(ASKED)
    for step, found in zip([*STEPS, []], FOUND, strict=True):
        got = await model.complete(
            messages, LOADED, found_tools=found, stream=stream, on_event=lambda _: None
        )
        messages += [got.message, *step[1:]]
    assert server.refusals == []
    sent = [rendered("openai-responses", request.body) for request in server.seen]
    for before, after in pairwise(sent):
        assert after[: len(before)] == before
    last = server.seen[-1].body
    assert [tool["name"] for tool in last["tools"]] == ["search_tools", "desk__plain"]
    added = [
        [tool["name"] for tool in item["tools"]]
        for item in last["input"]
        if item.get("type") == "additional_tools"
    ]
    assert added == [["desk__a", "desk__b"], ["desk__c"]]
    # Behind all results of the step.
    kinds = [item.get("type", item.get("role")) for item in last["input"]]
    assert kinds[2:7] == [
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
        "additional_tools",
    ]
    assert "What desk__a" not in last["input"][4]["output"]
    # Once all definitions are in `tools`, there are no namespaces.
    server = strict(DEFERRING["openai-responses-default"], response(response_text("Done.")))
    await model_of(server, "openai-responses").complete(messages, [*LOADED, A, B, C])
    assert "additional_tools" not in json.dumps(server.seen[0].body)
    assert server.refusals == []


async def test_a_found_tool_of_openai_is_strict_only_where_that_adds_no_nulls(
    strict: Callable[..., StrictProvider], model_of: Callable[..., ChatModel]
) -> None:
    optional = {
        **A,
        "parameters": {
            **SCHEMA,
            "properties": {"text": {"type": "string"}, "width": {"type": "integer"}},
        },
    }
    server = strict(DEFERRING["openai-responses"], *[response(response_text("Done."))] * 2)
    model = model_of(server, "openai-responses", native_deferral=True)
    messages = [*ASKED, *STEPS[0]]
    await model.complete(messages, LOADED, found_tools=[optional, B])
    await model.complete(messages, [*LOADED, optional, B])
    found, defined = (request.body for request in server.seen)
    (added,) = [item["tools"] for item in found["input"] if item.get("type") == "additional_tools"]
    assert [(tool["name"], tool["strict"]) for tool in added] == [
        ("desk__a", False),
        ("desk__b", True),
    ]
    assert added[0]["parameters"] == optional["parameters"]
    assert [tool["strict"] for tool in defined["tools"]] == [True] * 4
    assert server.refusals == []


async def test_a_search_of_the_provider_is_kept_and_one_for_this_client_is_a_call(
    strict: Callable[..., StrictProvider], model_of: Callable[..., ChatModel]
) -> None:
    def item(execution: str, **fields: Any) -> dict[str, Any]:
        common = {
            "type": "tool_search_call",
            "id": "ts_1",
            "execution": execution,
            "status": "completed",
        }
        return {**common, "arguments": {"query": "x"}, **fields}

    hosted = item("server", call_id="h1")
    output = {**item("server", call_id="h1"), "type": "tool_search_output", "tools": []}
    output.pop("arguments")
    answers = [
        response(hosted, output, function("h2", "crm__get", "crm")),
        response(item("client", call_id="s1")),
    ]
    server = strict(RULES["openai-responses"], *answers, response(response_text("Done.")))
    model = model_of(server, "openai-responses")
    first = (await model.complete(ASKED, LOADED)).message
    messages = [*ASKED, first, result("h2", "crm__get")]
    second = (await model.complete(messages, LOADED)).message
    assert [(one.function.name, one.function.arguments) for one in second.tool_calls or ()] == [
        ("search_tools", '{"query": "x"}')
    ]
    await model.complete([*messages, second, result("s1", "search_tools", "Nothing fits.")], LOADED)
    sent = server.seen[-1].body["input"]
    kinds = [one.get("type", one.get("role")) for one in sent]
    assert kinds[2:6] == [
        "tool_search_call",
        "tool_search_output",
        "function_call",
        "function_call_output",
    ]
    assert sent[4]["namespace"] == "crm"
    assert (sent[6]["type"], sent[6]["execution"], sent[6]["arguments"]) == (
        "tool_search_call",
        "client",
        {"query": "x"},
    )
    assert (sent[7]["type"], sent[7]["call_id"]) == ("function_call_output", "s1")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_conversation_changes_its_provider_and_its_way(
    strict: Callable[..., StrictProvider], model_of: Callable[..., ChatModel], stream: bool
) -> None:
    """Each provider searches, calls what it found, and answers; everybody replays what all others
    did.
    """

    def script(wire: str, number: int, tool: str, **fields: Any) -> list[Any]:
        search, run = f"s{number}", f"r{number}"
        if wire == "openai-responses":
            items = (
                [function(search, "search_tools")],
                [{**function(run, tool), **fields}],
                [response_text("So.")],
            )
            return [(as_stream if stream else response)(*made) for made in items]
        if not stream:
            made = [
                answer(wire, "", ("search_tools", TEXT)),
                answer(wire, "", (tool, TEXT)),
                answer(wire, "So."),
            ]
            return made
        if wire == "anthropic":
            uses = [
                {"type": "tool_use", "id": i, "name": n, "input": TEXT}
                for i, n in ((search, "search_tools"), (run, tool))
            ]
            blocks = [
                ([uses[0]], "tool_use"),
                ([uses[1]], "tool_use"),
                ([{"type": "text", "text": "So."}], "end_turn"),
            ]
            return [reply(wire, anthropic_blocks(*one)) for one in blocks]
        calls = [(search, "search_tools", json.dumps(TEXT)), (run, tool, json.dumps(TEXT))]
        return [reply(wire, streamed(wire, [], one)) for one in calls] + [
            reply(wire, streamed(wire, ["So."]))
        ]

    messages: list[ChatMessage] = [SYSTEM]
    found: list[dict[str, Any]] = []
    parts = [
        ("anthropic", "desk__a", True, {}),
        ("openai-responses", "desk__b", True, {"namespace": "desk__b"}),
        ("ollama", "desk__c", False, {}),
        ("anthropic", "desk__a", True, {}),
        ("openai-responses", "desk__b", True, {"namespace": "desk__b"}),
        ("openai-responses", "desk__c", False, {}),
    ]
    for number, (wire, tool, native, fields) in enumerate(parts):
        rules = (DEFERRING if native else RULES)[wire]
        server = strict(rules, *script(wire, number, tool, **fields))
        model = model_of(server, wire)
        messages.append(UserMessage(content="Go on."))
        for _ in range(3):
            request = {"found_tools": found} if native else {}
            tools = LOADED if native else [*LOADED, *found]
            got = await model.complete(
                messages, tools, stream=stream, on_event=lambda _: None, **request
            )
            messages.append(got.message)
            for made in got.message.tool_calls or ():
                name = made.function.name
                messages.append(
                    result(made.id, name, card(tool) if name == "search_tools" else "fine")
                )
                new = definition(tool)
                found += [new] if name == "search_tools" and new not in found else []
        assert server.refusals == []
        assert messages[-1].content == "So."


REFUSALS = {
    "anthropic": [
        "tools.2.custom.defer_loading: Extra inputs are not permitted",
        (
            "messages.2.content.0.tool_result.content.0: Input tag 'tool_reference' found using"
            " 'type' does not match"
        ),
        "Tool reference 'desk__a' not found in available tools",
    ],
    "openai-responses": [
        "Invalid value: 'additional_tools'. Supported values are: 'message'.",
        "Unknown parameter: 'input[3].namespace'.",
    ],
}


@pytest.mark.parametrize(
    ("name", "words"),
    [(name, words) for name, all_words in REFUSALS.items() for words in all_words],
)
async def test_a_refusal_of_the_fields_is_an_error_of_its_own_and_remembered(
    loopback: Callable[..., Provider], model_of: Callable[..., ChatModel], name: str, words: str
) -> None:
    server = loopback({"error": {"message": words, "type": "invalid_request_error"}}, 400)
    model = model_of(server, name, native_deferral=True)
    assert model.defers_natively
    with pytest.raises(NativeDeferralError) as caught:
        await model.complete([*ASKED, *STEPS[0]], LOADED, found_tools=[A])
    assert (caught.value.status, caught.value.retryable, len(server.seen)) == (400, False, 1)
    assert not model.defers_natively
    with pytest.raises(BadRequestError):
        await model.complete([*ASKED, *STEPS[0]], [*LOADED, A])


async def test_any_other_refusal_is_not_about_deferral(
    loopback: Callable[..., Provider], model_of: Callable[..., ChatModel]
) -> None:
    server = loopback(
        {"error": {"message": "messages: at least one message is required", "type": "x"}}, 400
    )
    model = model_of(server, "anthropic", native_deferral=True)
    with pytest.raises(BadRequestError):
        await model.complete(ASKED, LOADED, found_tools=[])
    assert model.defers_natively


@pytest.mark.parametrize("name", ["openai", "ollama"])
async def test_a_provider_that_cannot_says_so_before_it_is_asked(
    loopback: Callable[..., Provider], model_of: Callable[..., ChatModel], name: str
) -> None:
    server = loopback(answer(name, "Hi."))
    model = model_of(server, name, native_deferral=True)
    assert not model.defers_natively
    with pytest.raises(NativeDeferralError):
        await model.complete([UserMessage(content="Hi.")], [SEARCH], found_tools=())
    assert server.seen == []


KNOWN = {
    (
        "anthropic",
        True,
    ): (
        "claude-opus-4-5 claude-sonnet-4-5-20250929 claude-haiku-4-5 claude-sonnet-5"
        " claude-mythos-preview"
    ),
    (
        "anthropic",
        False,
    ): (
        "claude-opus-4-1-20250805 claude-sonnet-4-20250514 claude-opus-4 claude-3-7-sonnet-latest"
        " mine"
    ),
    ("openai-responses", True): "gpt-5.4 gpt-5.4-2026-03-05 gpt-5.10-mini gpt-6 gpt-6.1-astra",
    (
        "openai-responses",
        False,
    ): "gpt-5 gpt-5-2025-08-07 gpt-5.3-codex gpt-4.1 o3 gpt-oss-120b mine",
}


@pytest.mark.parametrize(("name", "known"), KNOWN)
def test_known_models_defer_natively_at_the_providers_own_address(name: str, known: bool) -> None:
    def defers(model: str, **client: Any) -> bool:
        entry = {"provider": name, "api_key": "sk-none", **client}
        config = {
            "clients": {"desk": entry},
            "models": {"small": {"client": "desk", "model": model}},
        }
        return ModelFactory(Config.model_validate(config)).chat_model().defers_natively

    for model in KNOWN[name, known].split():
        assert defers(model) is known
        assert not defers(model, base_url="https://gateway.example/v1")
        assert not defers(model, base_url="https://api.anthropic.com.example")
        assert defers(model, base_url="https://gateway.example/v1", native_deferral=True)
        assert not defers(model, native_deferral=False)


TOOL = "math__evaluate_expression"
SUM = {"expression": "2 + 3"}
BRIDGED = {"name": TOOL, "arguments": SUM}
WAYS: list[tuple[str, str, tuple[str, dict[str, Any]]]] = [
    ("anthropic", "native", (TOOL, SUM)),
    ("openai-responses", "native", (TOOL, SUM)),
    ("ollama", "bridge", ("call_tool", BRIDGED)),
    ("openai-responses", "definitions", (TOOL, SUM)),
    ("anthropic", "bridge", ("call_tool", BRIDGED)),
    ("anthropic", "native", (TOOL, SUM)),
    ("openai-responses", "native", (TOOL, SUM)),
]


async def test_a_saved_conversation_goes_on_with_another_provider_and_another_way(
    strict: Callable[..., StrictProvider],
) -> None:
    turns: list[Turn] = []
    for wire, delivery, (name, arguments) in WAYS:
        calls = [("search_tools", {"query": "calculate an expression"}), (name, arguments)]
        replies = [answer(wire, "", one) for one in calls] + [answer(wire, "Five.")]
        native = "openai-responses-default" if wire == "openai-responses" else wire
        server = strict(DEFERRING[native] if delivery == "native" else RULES[wire], *replies)
        config = server.config(wire)
        config["servers"] = {
            "math": {"bundled": "math", "transport": "in-process", "defer_loading": True}
        }
        config["tool_discovery"] = {"enabled": True, "delivery": delivery}
        saved = Conversation.from_json(Conversation(turns).to_json()).messages
        async with McpToolChat.from_config(config) as chat:
            turn = await chat.run(
                [UserMessage(content="Add 2 and 3.")], TurnOptions(stream=False), history=saved
            )
        turns.append(turn)
        assert (turn.status, turn.answer, turn.error) == ("done", "Five.", None)
        assert server.refusals == []
        assert [call.status for call in turn.tool_calls] == ["ok", "ok"]
        assert turn.tool_calls[1].name == TOOL
        assert {step.request.delivery for step in turn.steps} == {delivery}
        if delivery == "native":
            sent = [rendered(wire, request.body) for request in server.seen]
            for before, after in pairwise(sent):
                assert after[: len(before)] == before


@pytest.mark.parametrize("wire", ["anthropic", "openai-responses"])
async def test_a_refusal_in_the_middle_of_a_turn_falls_back_to_definitions_once(
    serving: Callable[..., Provider], wire: str
) -> None:
    words = (
        "defer_loading: Extra inputs"
        if wire == "anthropic"
        else "Invalid value: 'additional_tools'."
    )
    calls = [("search_tools", {"query": "calculate an expression"}), (TOOL, SUM)]
    replies = [answer(wire, "", one) for one in calls] + [answer(wire, "Five.")]
    refusal = Reply(400, {"error": {"message": words, "type": "invalid_request_error"}})
    server = serving(replies[0], refusal, *replies[1:])
    config = server.config(wire)
    config["servers"] = {
        "math": {"bundled": "math", "transport": "in-process", "defer_loading": True}
    }
    config["tool_discovery"] = {"enabled": True, "delivery": "native"}
    async with McpToolChat.from_config(config) as chat:
        turn = await chat.run([UserMessage(content="Add 2 and 3.")], TurnOptions(stream=False))
    assert (turn.status, turn.answer) == ("done", "Five.")
    assert len(turn.notices) == 1
    last = json.dumps(server.seen[-1].body)
    assert "defer_loading" not in last
    assert "additional_tools" not in last
    assert TOOL in [tool["name"] for tool in server.seen[-1].body["tools"]]


REFERENCE = {"type": "tool_reference", "tool_name": "a"}
DEFERRED = {"name": "a", "defer_loading": True}
FUNCTION = {"type": "function", "name": "a"}
ADDED = {"type": "additional_tools", "tools": [FUNCTION]}
CALLED = {"type": "function_call", "call_id": "c", "name": "a"}
DONE = {"type": "function_call_output", "call_id": "c", "output": ""}


def referring(*parts: Any) -> list[Any]:
    return [
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c", "content": list(parts)}],
        }
    ]


@pytest.mark.parametrize(
    ("rules", "body"),
    [
        ("anthropic", {"tools": [{"name": "b"}], "messages": referring(REFERENCE)}),
        (
            "anthropic",
            {
                "tools": [{"name": "b"}, DEFERRED],
                "messages": referring(REFERENCE, {"type": "text", "text": "x"}),
            },
        ),
        (
            "anthropic",
            {
                "tools": [{"name": "b"}, {**DEFERRED, "cache_control": {"type": "ephemeral"}}],
                "messages": [],
            },
        ),
        ("anthropic", {"tools": [DEFERRED], "messages": []}),
        ("openai-responses", {"tools": [], "input": [ADDED, CALLED, DONE]}),
        (
            "openai-responses-default",
            {"tools": [], "input": [ADDED, {**CALLED, "namespace": "a"}, DONE]},
        ),
        ("openai-responses", {"tools": [FUNCTION], "input": [{**CALLED, "namespace": "a"}, DONE]}),
        ("openai-responses", {"tools": [FUNCTION], "input": [ADDED]}),
        (
            "openai-responses",
            {
                "tools": [],
                "input": [{"type": "tool_search_output", "call_id": "unknown", "tools": []}],
            },
        ),
        (
            "openai-responses",
            {
                "tools": [{"type": "tool_search", "execution": "client", "description": None}],
                "input": [],
            },
        ),
        ("openai-responses", {"tools": [{**FUNCTION, "defer_loading": True}], "input": []}),
    ],
)
def test_the_servers_refuse_what_the_providers_refuse(rules: str, body: dict[str, Any]) -> None:
    assert any(rule(body) is not None for rule in DEFERRING[rules])
