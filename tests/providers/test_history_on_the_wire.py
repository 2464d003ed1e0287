"""Whatever a conversation contains, each provider accepts the request: ids, names, arguments,
failed results, turns.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from casual_llm.messages import (
    AssistantMessage,
    AssistantToolCall,
    AssistantToolCallFunction,
    ChatMessage,
    ImageContent,
    SystemMessage,
    TextContent,
    ToolResultMessage,
    UserMessage,
)
from fastmcp import FastMCP
from kit.message_rules import MISTRAL, OPENAI, RULES, mistral_ids, template_order
from kit.pictures import DOT
from kit.provider import PROVIDERS, answer

from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.conversation.event import StepFinished
from casual_mcp_nb.conversation.messages import (
    ProviderState,
    StatefulAssistantMessage,
    result_message,
)
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.providers._messages import merged
from casual_mcp_nb.providers.chat_model import ChatModel

ASKED = UserMessage(content="Go on.")
IDS = [
    "call_1",
    "toolu_01A09q90qw90lq917835lq9",
    "fc_0f0e50a1476a6c35006912c58dc9f8819192c25864eb16f07f",
    "functions.desk__echo:0",
    "call one",
    "",
    "ß☃",
    "x" * 300,
    "x" * 299 + "y",
    "\ud800",
]
NAMES = ["desk__echo", "r.t", "x" * 14_000, "\x1b[31m", "", "größe"]
ARGUMENTS = [
    "{}",
    '{"a": 1}',
    '{"place":',
    "[1]",
    "null",
    "",
    "NaN",
    '{"a": NaN}',
    '{"a": 1e999}',
    '"text"',
    '{"a": "\\ud800"}',
]


def call(call_id: str, name: str = "desk__echo", arguments: str = "{}") -> AssistantToolCall:
    return AssistantToolCall(
        id=call_id, function=AssistantToolCallFunction(name=name, arguments=arguments)
    )


def exchange(*calls: AssistantToolCall) -> list[ChatMessage]:
    results = [
        ToolResultMessage(name=c.function.name, tool_call_id=c.id, content=f"result of {n}")
        for n, c in enumerate(calls)
    ]
    return [
        UserMessage(content="Ask."),
        AssistantMessage(content="", tool_calls=list(calls)),
        *results,
    ]


def results_by_call(provider: str, body: Any) -> list[tuple[str, str]]:
    """Collect the calls of a request, in order, each with its id and its answer."""
    if provider == "openai-responses":
        ids = [item["call_id"] for item in body["input"] if item.get("type") == "function_call"]
        outputs = {
            item["call_id"]: item["output"]
            for item in body["input"]
            if item.get("type") == "function_call_output"
        }
    elif provider == "anthropic":
        blocks = [block for message in body["messages"] for block in message["content"]]
        ids = [block["id"] for block in blocks if block["type"] == "tool_use"]
        outputs = {
            block["tool_use_id"]: block["content"]
            for block in blocks
            if block["type"] == "tool_result"
        }
    elif provider == "gemini":
        parts = [part for content in body["contents"] for part in content["parts"]]
        ids = [part["functionCall"]["id"] for part in parts if "functionCall" in part]
        results = [part["functionResponse"] for part in parts if "functionResponse" in part]
        outputs = {result["id"]: result["response"]["output"] for result in results}
    else:
        ids = [
            made["id"] for message in body["messages"] for made in message.get("tool_calls") or ()
        ]
        outputs = {m["tool_call_id"]: m["content"] for m in body["messages"] if m["role"] == "tool"}
    return [(made, outputs[made]) for made in ids]


@pytest.mark.defect("D6")
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_ids_of_any_shape_are_sent_in_a_valid_form_each_with_its_result(
    provider: str, strict: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = strict(RULES[provider], answer(provider, "Yes."))
    history = exchange(*map(call, IDS))
    for _ in range(2):
        await model_of(server, provider).complete([*history, ASKED])
    assert server.refusals == []
    pairs = results_by_call(provider, server.seen[0].body)
    assert [result for _, result in pairs] == [f"result of {n}" for n in range(len(IDS))]
    assert len({made for made, _ in pairs}) == len(IDS)
    assert server.seen[0].body == server.seen[1].body


@pytest.mark.defect("D6")
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_the_same_id_in_two_steps_is_sent_as_two(
    provider: str, strict: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = strict(RULES[provider], answer(provider, "Yes."))
    await model_of(server, provider).complete(
        [*exchange(call("call_1")), *exchange(call("call_1")), ASKED]
    )
    first, second = (made for made, _ in results_by_call(provider, server.seen[0].body))
    assert first == "call_1" != second


@pytest.mark.defect("D6")
@pytest.mark.parametrize("model", ["mistral-large-latest", "devstral-small", "open-mixtral-8x7b"])
async def test_mistral_gets_ids_of_nine_letters_and_digits(
    model: str, strict: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = strict(MISTRAL, answer("openai", "Yes."))
    asked = model_of(server, "openai")
    asked.model = model
    await asked.complete([*exchange(*map(call, ["D681PevKs", *IDS])), ASKED])
    assert server.refusals == []
    assert results_by_call("openai", server.seen[0].body)[0][0] == "D681PevKs"


@pytest.mark.defect("D6")
async def test_another_server_with_strict_ids_is_asked_again_and_remembered(
    strict: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = strict((mistral_ids,), answer("openai", "Yes."))
    model = model_of(server, "openai")
    events: list[Any] = []
    for _ in range(2):
        await model.complete(
            [*exchange(call("call_1")), ASKED], on_event=events.append, stream=False
        )
    assert len(server.refusals) == len(events) == 1


@pytest.mark.defect("D6")
@pytest.mark.parametrize("stream", [False, True])
async def test_an_id_goes_back_unchanged_to_the_model_that_made_it(
    stream: bool, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    from kit.streams import reply, streamed

    own = "call_abc__thought__" + "Q" * 200
    whole = answer("openai", "", ("desk__echo", {}))
    whole["choices"][0]["message"]["tool_calls"][0]["id"] = own
    server = serving(
        reply("openai", streamed("openai", (), (own, "desk__echo", "{}"))) if stream else whole,
        answer("openai", "Yes."),
    )
    model = model_of(server, "openai")
    got = await model.complete([ASKED], on_event=lambda _: None, stream=stream)
    result = ToolResultMessage(name="desk__echo", tool_call_id=own, content="result of 0")
    for name in ("m-1", "m-2"):
        model.model = name
        await model.complete([ASKED, got.message, result])
    back, elsewhere = (results_by_call("openai", request.body)[0][0] for request in server.seen[1:])
    assert back == own
    assert len(elsewhere) <= 40


@pytest.mark.defect("B5", "D6")
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_names_and_arguments_of_any_shape_are_sent_as_the_provider_takes_them(
    provider: str, strict: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = strict(RULES[provider], answer(provider, "Yes."))
    calls = [call(f"n{number}", name) for number, name in enumerate(NAMES)]
    calls += [call(f"a{number}", arguments=arguments) for number, arguments in enumerate(ARGUMENTS)]
    await model_of(server, provider).complete(
        [*exchange(*calls), UserMessage(content="half a letter: \ud83d")]
    )
    assert server.refusals == []
    sent = json.dumps(server.seen[0].body)
    assert "14000" not in sent
    assert len(sent) < 10_000


@pytest.mark.defect("D6")
@pytest.mark.parametrize("provider", ["openai", "openai-responses"])
async def test_broken_arguments_are_sent_back_empty_with_an_error_and_stay_in_the_trace(
    provider: str, strict: Callable[..., Any], desk: FastMCP
) -> None:
    broken = '{"text": "hel'
    first = answer(provider, "", ("desk__echo", {}))
    if provider == "openai":
        first["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = broken
    else:
        first["output"][0]["arguments"] = broken
    server = strict(RULES[provider], first, answer(provider, "Sorry."))
    async with McpToolChat.from_config(server.config(provider), in_process={"desk": desk}) as chat:
        turn = await chat.run([ASKED], TurnOptions(stream=False))
    assert turn.status == "done"
    assert broken not in json.dumps(
        server.seen[1].body["messages" if provider == "openai" else "input"][:-1]
    )
    assert [result for _, result in results_by_call(provider, server.seen[1].body)] == [
        turn.tool_calls[0].result
    ]
    (finished, _) = turn.trace.of(StepFinished)
    assert [made.function.arguments for made in finished.message.tool_calls or ()] == [broken]


@pytest.mark.defect("D4")
@pytest.mark.parametrize("name", ["desk__broken", "desk__nowhere"])
async def test_anthropic_is_told_which_results_failed_also_in_a_saved_conversation(
    name: str, strict: Callable[..., Any], desk: FastMCP
) -> None:
    from casual_mcp_nb.conversation.conversation import Conversation

    calls = ((name, {}), ("desk__echo", {"text": "x"}))
    server = strict(
        RULES["anthropic"], answer("anthropic", "", *calls), answer("anthropic", "One failed.")
    )
    async with McpToolChat.from_config(
        server.config("anthropic"), in_process={"desk": desk}
    ) as chat:
        turn = await chat.run([ASKED], TurnOptions(stream=False))
        loaded = Conversation.from_json(Conversation([turn]).to_json()).messages
        await chat.run([UserMessage(content="So?")], TurnOptions(stream=False), history=loaded)
    assert server.refusals == []
    for request in server.seen[1:]:
        results = [
            block
            for block in request.body["messages"][2]["content"]
            if block["type"] == "tool_result"
        ]
        assert [block.get("is_error") for block in results] == [True, None]


@pytest.mark.defect("D4")
@pytest.mark.parametrize("status", ["denied", "stopped"])
async def test_a_failed_result_without_a_text_is_still_taken(
    status: str, strict: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = strict(RULES["anthropic"], answer("anthropic", "Yes."))
    history = [*exchange(call("c"))[:2], result_message("desk__echo", "c", "", failed=True), ASKED]
    await model_of(server, "anthropic").complete(history)
    assert server.refusals == []
    assert server.seen[0].body["messages"][2]["content"][0]["is_error"] is True


IN_A_ROW: list[ChatMessage] = [
    SystemMessage(content="Be brief."),
    UserMessage(content="One."),
    UserMessage(content="Two."),
    AssistantMessage(content="Three."),
    AssistantMessage(content="Four."),
    *exchange(call("c"))[:3],
    UserMessage(content="Five."),
    SystemMessage(content="Be kind."),
    AssistantMessage(content=""),
    UserMessage(content="Six."),
]


@pytest.mark.defect("D7")
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_messages_in_a_row_are_joined_where_the_provider_needs_that(
    provider: str, strict: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = strict(RULES[provider], answer(provider, "Yes."))
    await model_of(server, provider).complete(IN_A_ROW)
    assert server.refusals == []
    sent = json.dumps(server.seen[0].body)
    assert all(f"{word}." in sent for word in ("One", "Two", "Three", "Four", "Five", "Six"))


def spoken(provider: str, body: Any) -> list[tuple[str, str]]:
    """The messages of a request that are not calls or results: role and text."""
    if provider == "gemini":
        contents = [
            (each["role"], "".join(part.get("text", "") for part in each["parts"]))
            for each in body["contents"]
        ]
        return [("assistant" if role == "model" else role, text) for role, text in contents if text]
    messages = body["input"] if provider == "openai-responses" else body["messages"]
    texts = [
        (each["role"], each.get("content") or "")
        for each in messages
        if each.get("role") in ("user", "assistant")
    ]
    joined = [
        (role, text if isinstance(text, str) else "".join(part.get("text", "") for part in text))
        for role, text in texts
    ]
    return [(role, text) for role, text in joined if text]


@pytest.mark.defect("H9")
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_messages_of_one_role_are_sent_as_one_and_the_conversation_stays_as_it_is(
    provider: str, strict: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = strict(RULES[provider], answer(provider, "Yes."))
    picture = ImageContent(
        source={"type": "base64", "data": base64.b64encode(DOT).decode()}, media_type="image/png"
    )
    history: list[ChatMessage] = [
        UserMessage(content="One."),
        UserMessage(content="Two."),
        AssistantMessage(content="Three."),
        AssistantMessage(content="Four."),
        UserMessage(content="Five."),
        UserMessage(content=[TextContent(text="Six."), picture]),
        UserMessage(content="Seven."),
    ]
    before = [message.model_dump() for message in history]
    await model_of(server, provider).complete(history)
    sent = spoken(provider, server.seen[0].body)
    assert [role for role, _ in sent] == ["user", "assistant", "user"]
    assert [re.findall(r"\w+(?=\.)", text) for _, text in sent] == [
        ["One", "Two"],
        ["Three", "Four"],
        ["Five", "Six", "Seven"],
    ]
    assert [message.model_dump() for message in history] == before


@pytest.mark.defect("H9")
def test_answers_with_the_state_of_a_provider_are_not_merged() -> None:
    kept = ProviderState(
        wire="openai", model="m-1", parts=({"type": "fields", "fields": {"reasoning": "x"}},)
    )
    answers = [StatefulAssistantMessage(content=text, kept=kept) for text in ("One.", "Two.")]
    assert merged(answers) == answers


@pytest.mark.defect("D7")
@pytest.mark.parametrize("status", [400, 500])
async def test_a_template_that_wants_turns_gets_them_once_it_said_so(
    status: int, strict: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = strict((template_order, *OPENAI), answer("openai", "Yes."), status=status)
    model = model_of(server, "openai")
    events: list[Any] = []
    for _ in range(2):
        await model.complete(IN_A_ROW, on_event=events.append, stream=False)
    assert len(server.refusals) == len(events) == 1
    sent = json.dumps(server.seen[-1].body)
    assert all(
        f"{word}." in sent
        for word in ("One", "Two", "Three", "Four", "Five", "Six", "brief", "kind")
    )


@pytest.mark.defect("D7")
async def test_a_refusal_that_no_other_form_helps_against_is_an_error_after_one_request(
    strict: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    from casual_mcp_nb.errors import BadRequestError

    server = strict((lambda body: "Conversation roles must alternate user/assistant",), "never")
    with pytest.raises(BadRequestError):
        await model_of(server, "openai").complete([ASKED])
    assert len(server.seen) == 1


@pytest.mark.parametrize("delivery", ["definitions", "bridge", "code"])
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_definitions_with_values_that_json_lacks_cost_no_chat(
    provider: str, delivery: str, strict: Callable[..., Any]
) -> None:
    desk: FastMCP[Any] = FastMCP("desk")

    @desk.tool(description="Half a letter: \ud83d")
    def weigh(limit: float = float("inf"), unit: str = "\ud83d") -> float:
        return limit

    server = strict(RULES[provider], answer(provider, "Yes."))
    config = {**server.config(provider), "tool_discovery": {"enabled": True, "delivery": delivery}}
    for mode in ("loaded", "deferred"):
        async with McpToolChat.from_config(config, in_process={"desk": desk}) as chat:
            chat.selection.servers["desk"] = mode
            turn = await chat.run([ASKED], TurnOptions(stream=False))
        assert turn.status == "done"
    assert server.refusals == []
    assert "Half a letter:" in json.dumps(server.seen[0].body)


def test_a_definition_is_sent_with_replacements_for_what_json_lacks() -> None:
    parameters = {
        "properties": {
            "a": {"default": float("nan")},
            "b": {"default": "\ud83d"},
            "c": {"default": complex(1, 2)},
        }
    }
    tool = ToolSpec("desk", "weigh", "Weigh.", parameters)
    defaults = [part["default"] for part in tool.definition["parameters"]["properties"].values()]
    assert defaults == [None, "?", "(1+2j)"]
    assert json.loads(json.dumps(tool.definition, allow_nan=False)) == tool.definition
