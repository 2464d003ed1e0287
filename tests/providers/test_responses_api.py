"""OpenAI's Responses API under its real SDK: requests, parsed answers, and the state kept for the
next request.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import casual_llm
import pytest
from casual_llm.messages import (
    AssistantMessage,
    ChatMessage,
    ImageContent,
    SystemMessage,
    TextContent,
    ToolResultMessage,
    UserMessage,
)
from kit.provider import response, response_call, response_text
from kit.scripted_http import Reply
from kit.streams import reply, streamed
from pydantic import BaseModel

from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.errors import (
    BadRequestError,
    ContentRefusedError,
    IncompleteStreamError,
    MalformedAnswerError,
    OverloadedError,
    ProviderError,
    RateLimitError,
)
from casual_mcp_nb.providers.builtin.openai_responses import ResponsesClient
from casual_mcp_nb.providers.chat_model import ChatModel

ASKED: list[ChatMessage] = [SystemMessage(content="Be brief."), UserMessage(content="Where is it?")]
FIND: dict[str, Any] = {
    "name": "maps__find",
    "description": "Find a place.",
    "parameters": {
        "type": "object",
        "properties": {
            "place": {"type": "string"},
            "limit": {"type": "integer"},
            "near": {"type": ["string", "null"]},
        },
        "required": ["place"],
    },
}
OPEN = {
    "name": "open",
    "description": "",
    "parameters": {"type": "object", "additionalProperties": {"type": "string"}},
}
THOUGHT = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "Look at the map."}],
    "encrypted_content": "gAAAA",
    "status": "completed",
}
WAYS = [False, True]


def sent(body: dict[str, Any], stream: bool) -> Reply:
    """A response, in one piece or as the events that matter."""
    if not stream:
        return Reply(200, body)
    events = [
        {
            "type": "response.output_item.done",
            "output_index": index,
            "item": item,
            "sequence_number": 0,
        }
        for index, item in enumerate(body["output"])
    ]
    events.append({"type": f"response.{body['status']}", "response": body, "sequence_number": 0})
    lines = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    return reply("openai-responses", lines.encode())


Ask = Callable[..., Any]


@pytest.fixture
def ask(serving: Callable[..., Any], model_of: Callable[..., ChatModel]) -> Ask:
    """Asks a model of a server that sends these bodies; the answer and the body of the request come
    back.
    """

    async def asking(
        *bodies: dict[str, Any],
        stream: bool = False,
        model: str = "m-1",
        asked: Any = ASKED,
        tools: Any = (),
        **options: Any,
    ) -> tuple[Any, Any]:
        server = serving(*(sent(body, stream) for body in bodies))
        bound = model_of(server, "openai-responses", max_retries=0)
        bound.model, bound.default_options = model, casual_llm.ChatOptions(**options)
        answer = await bound.complete(asked, tools, on_event=lambda _: None, stream=stream)
        return answer, server.seen[0].body

    return asking


async def test_nothing_is_stored_and_each_request_has_the_whole_conversation(ask: Ask) -> None:
    calls = [
        casual_llm.AssistantToolCall(
            id=id, function=casual_llm.AssistantToolCallFunction(name="maps__find", arguments="{}")
        )
        for id in ("a", "b")
    ]
    history = [
        *ASKED,
        AssistantMessage(content="I look.", tool_calls=calls),
        ToolResultMessage(name="maps__find", tool_call_id="a", content="north"),
        ToolResultMessage(name="maps__find", tool_call_id="b", content="south"),
        AssistantMessage(content="There."),
        UserMessage(content=None),
    ]
    _, body = await ask(response(response_text("Yes.")), asked=history)
    assert body["store"] is False
    assert "previous_response_id" not in body
    call = {"type": "function_call", "name": "maps__find", "arguments": "{}"}
    assert body["input"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Where is it?"},
        {"role": "assistant", "content": "I look."},
        {**call, "call_id": "a"},
        {**call, "call_id": "b"},
        {"type": "function_call_output", "call_id": "a", "output": "north"},
        {"type": "function_call_output", "call_id": "b", "output": "south"},
        {"role": "assistant", "content": "There."},
        {"role": "user", "content": ""},
    ]


async def test_pictures_go_along_as_addresses_and_as_data(ask: Ask) -> None:
    parts: list[TextContent | ImageContent] = [
        TextContent(text="Look:"),
        ImageContent(source="https://example.com/a.png"),
        ImageContent(source={"type": "base64", "data": "aGk="}, media_type="image/png"),
    ]
    _, body = await ask(response(response_text("A cat.")), asked=[UserMessage(content=parts)])
    assert body["input"][0]["content"] == [
        {"type": "input_text", "text": "Look:"},
        {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "auto"},
        {"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "auto"},
    ]


async def test_a_tool_is_offered_in_the_strict_form_where_it_has_one(ask: Ask) -> None:
    _, body = await ask(response(response_text("Yes.")), tools=[FIND, OPEN])
    find, open_map = body["tools"]
    assert (find["type"], find["name"], find["strict"]) == ("function", "maps__find", True)
    assert find["parameters"]["required"] == ["place", "limit", "near"]
    assert find["parameters"]["properties"]["limit"]["type"] == ["integer", "null"]
    # Compatible servers need `properties`.
    assert (open_map["strict"], open_map["parameters"]) == (
        False,
        OPEN["parameters"] | {"properties": {}},
    )


@pytest.mark.parametrize("stream", WAYS)
async def test_null_for_what_was_optional_is_left_out_before_the_tool_is_called(
    ask: Ask, stream: bool
) -> None:
    calls = [
        response_call("a", "maps__find", '{"place": "Tromsø", "limit": null, "near": null}'),
        response_call("b", "open", '{"x": null}'),
    ]
    answer, _ = await ask(response(*calls), stream=stream, tools=[FIND, OPEN])
    made = [json.loads(call.function.arguments) for call in answer.message.tool_calls]
    assert made == [{"place": "Tromsø", "near": None}, {"x": None}]


@pytest.mark.parametrize(
    ("model", "thinks"),
    [
        ("gpt-4.1", False),
        ("gpt-4o-mini", False),
        ("gpt-5-chat-latest", False),
        ("ft:gpt-4o:acme", False),
        ("llama3", False),
    ]
    + [
        (name, True)
        for name in (
            "o1",
            "o3-mini",
            "o4-mini",
            "gpt-5",
            "gpt-5.2-codex",
            "openai/gpt-5-mini",
            "gpt-6",
        )
    ],
)
async def test_a_reasoning_model_is_sent_no_temperature_and_asked_for_its_reasoning(
    ask: Ask, model: str, thinks: bool
) -> None:
    _, body = await ask(
        response(response_text("Yes.")), model=model, temperature=0.5, top_p=0.9, max_tokens=99
    )
    assert (body.get("temperature"), body.get("top_p")) == ((None, None) if thinks else (0.5, 0.9))
    assert body.get("include") == (["reasoning.encrypted_content"] if thinks else None)
    assert body["max_output_tokens"] == 99


@pytest.mark.parametrize("model", ["o3", "gpt-5"])
async def test_chat_completions_of_a_reasoning_model_have_no_temperature_either(
    model: str, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = serving({"choices": [{"message": {"content": "Yes."}, "finish_reason": "stop"}]})
    bound = model_of(server, "openai")
    bound.model, bound.default_options = (
        model,
        casual_llm.ChatOptions(temperature=0.5, max_tokens=99),
    )
    await bound.complete(ASKED)
    assert "temperature" not in server.seen[0].body
    assert server.seen[0].body["max_completion_tokens"] == 99
    assert "max_tokens" not in server.seen[0].body


@pytest.mark.parametrize("stream", WAYS)
async def test_encrypted_reasoning_is_sent_back_and_survives_a_saved_conversation(
    stream: bool, serving: Callable[..., Any]
) -> None:
    first = response(
        THOUGHT,
        response_text("I look.", phase="commentary"),
        response_call("a", "time__current_time", "{}"),
        {**THOUGHT, "id": "rs_2"},
        response_call("b", "time__current_time", "{}"),
    )
    server = serving(sent(first, stream), sent(response(response_text("Noon.")), stream))
    config, options = server.config("openai-responses"), TurnOptions(stream=stream)
    config["servers"] = {
        name: {"bundled": name, "transport": "in-process"} for name in ("time", "math")
    }
    async with McpToolChat.from_config(config) as chat:
        turn = await chat.run([UserMessage(content="When?")], options)
        saved = Conversation([turn]).to_json()
        again = await chat.run(
            [UserMessage(content="Sure?")], options, history=Conversation.from_json(saved).messages
        )
    assert (turn.answer, again.answer) == ("Noon.", "Noon.")
    thought = {name: value for name, value in THOUGHT.items() if name != "status"}
    for request in server.seen[1:]:
        items = [
            item
            for item in request.body["input"]
            if item.get("type") or item["role"] == "assistant"
        ]
        assert items[:5] == [
            thought,
            {"role": "assistant", "content": "I look.", "phase": "commentary"},
            {
                "type": "function_call",
                "call_id": "a",
                "name": "time__current_time",
                "arguments": "{}",
            },
            {**thought, "id": "rs_2"},
            {
                "type": "function_call",
                "call_id": "b",
                "name": "time__current_time",
                "arguments": "{}",
            },
        ]


async def test_another_model_gets_text_and_calls_only(ask: Ask) -> None:
    answer, _ = await ask(response(THOUGHT, response_text("There.")))
    assert answer.message.content == "There."
    _, body = await ask(
        response(response_text("Yes.")), model="m-2", asked=[*ASKED, answer.message, *ASKED]
    )
    assert body["input"][2] == {"role": "assistant", "content": "There."}
    assert "gAAAA" not in str(body)


async def test_an_answer_that_was_edited_goes_back_without_what_was_kept(ask: Ask) -> None:
    answer, _ = await ask(response(THOUGHT, response_text("There.")))
    edited = answer.message.model_copy(update={"content": "Elsewhere."})
    _, body = await ask(response(response_text("Yes.")), asked=[*ASKED, edited, *ASKED])
    assert body["input"][2] == {"role": "assistant", "content": "Elsewhere."}


@pytest.mark.parametrize("stream", WAYS)
async def test_reasoning_without_an_answer_behind_it_is_not_kept(ask: Ask, stream: bool) -> None:
    cut = response(
        response_text("Well"),
        THOUGHT,
        status="incomplete",
        incomplete_details={"reason": "max_output_tokens"},
    )
    answer, _ = await ask(cut, stream=stream)
    assert answer.finish_reason == "max_output_tokens"
    assert type(answer.message) is AssistantMessage


@pytest.mark.parametrize("stream", WAYS)
async def test_a_refusal_is_the_text_of_the_answer(ask: Ask, stream: bool) -> None:
    item = {**response_text(""), "content": [{"type": "refusal", "refusal": "I do not do that."}]}
    answer, _ = await ask(response(item), stream=stream)
    assert answer.message.content == "I do not do that."


@pytest.mark.parametrize("stream", WAYS)
async def test_an_answer_that_the_filter_stopped_was_refused(ask: Ask, stream: bool) -> None:
    stopped = response(
        response_text("Well"), status="incomplete", incomplete_details={"reason": "content_filter"}
    )
    with pytest.raises(ContentRefusedError):
        await ask(stopped, stream=stream)


@pytest.mark.parametrize("stream", WAYS)
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("server_error", OverloadedError),
        ("rate_limit_exceeded", RateLimitError),
        ("invalid_prompt", BadRequestError),
        ("image_too_large", BadRequestError),
        ("image_content_policy_violation", ContentRefusedError),
    ],
)
async def test_a_response_that_failed_is_an_error_of_its_kind(
    ask: Ask, code: str, kind: type[ProviderError], stream: bool
) -> None:
    with pytest.raises(kind, match="It broke"):
        await ask(
            response(status="failed", error={"code": code, "message": "It broke"}), stream=stream
        )


@pytest.mark.parametrize(
    "event",
    [
        {"type": "error", "code": "rate_limit_exceeded", "message": "Slow down"},
        {
            "type": "error",
            "error": {
                "type": "rate_limit_error",
                "code": "rate_limit_exceeded",
                "message": "Slow down",
            },
        },
    ],
)
async def test_an_error_in_a_stream_is_read_in_both_of_its_forms(
    event: dict[str, Any], serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = serving(
        reply("openai-responses", f"event: error\ndata: {json.dumps(event)}\n\n".encode())
    )
    with pytest.raises(RateLimitError, match="Slow down"):
        await model_of(server, "openai-responses", max_retries=0).complete(
            ASKED, on_event=lambda _: None
        )


@pytest.mark.parametrize("status", ["cancelled", "in_progress", "queued"])
async def test_a_response_that_did_not_end_is_incomplete(ask: Ask, status: str) -> None:
    with pytest.raises(IncompleteStreamError, match=f"The response is {status}"):
        await ask(response(response_text("Well"), status=status))


async def test_what_a_server_streams_without_its_items_is_taken_from_the_end(
    serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    end = {
        "type": "response.completed",
        "response": response(response_text("There."), response_call("a", "f", "{}")),
    }
    server = serving(reply("openai-responses", f"data: {json.dumps(end)}\n\n".encode()))
    answer = await model_of(server, "openai-responses").complete(ASKED, on_event=lambda _: None)
    assert answer.message.content == "There."
    assert [call.function.name for call in answer.message.tool_calls or ()] == ["f"]


async def test_an_output_that_is_no_list_is_one_clear_error(ask: Ask) -> None:
    with pytest.raises(MalformedAnswerError, match="cannot be used"):
        await ask({**response(), "output": None})


class Place(BaseModel):
    name: str
    stars: int = 3


async def test_casual_llms_own_model_works_over_the_client(serving: Callable[..., Any]) -> None:
    whole = {
        **response(
            response_text('{"name": "x", "stars": 1}'), response_call("a", "find", '{"place": "x"}')
        )
    }
    usage = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
    server = serving(
        Reply(200, {**whole, "usage": usage}),
        reply("openai-responses", streamed("openai-responses", ("a", "b"))),
    )
    client = ResponsesClient(api_key="k", base_url=f"{server.url}/v1")
    model = casual_llm.Model(client, "m-1")
    tool = casual_llm.Tool.from_input_schema(
        "find", "Find.", FIND["parameters"] | {"properties": {"place": {"type": "string"}}}
    )
    options = casual_llm.ChatOptions(
        tools=[tool], tool_choice="find", response_format=Place, system_message_handling="merge"
    )
    message = await model.chat(
        [SystemMessage(content="A"), SystemMessage(content="B"), UserMessage(content="x")], options
    )
    usage_after = model.get_usage()
    assert usage_after is not None
    assert usage_after.total_tokens == 5
    assert [call.function.name for call in message.tool_calls or ()] == ["find"]
    body = server.seen[0].body
    assert body["tool_choice"] == {"type": "function", "name": "find"}
    assert body["tools"][0]["strict"] is True
    assert body["text"]["format"]["schema"]["required"] == ["name", "stars"]
    assert [item["role"] for item in body["input"]] == ["system", "user"]
    assert (
        "".join([chunk.content async for chunk in model.stream([UserMessage(content="x")])]) == "ab"
    )
    await client.client.close()
