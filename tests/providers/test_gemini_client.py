"""Google's SDK under our client: signatures of thoughts, levels and budgets, filters, and Google's
own ways to say no.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import casual_llm
import pytest
from casual_llm.messages import AssistantMessage, ChatMessage, SystemMessage, UserMessage
from fastmcp import FastMCP
from kit.message_rules import GEMINI
from kit.option_rules import OptionsProvider, Rules
from kit.provider import answer, gemini_answer, gemini_call
from kit.scripted_http import Reply
from kit.streams import reply, streamed
from pydantic import BaseModel

from casual_mcp_nb.base.config_base import RequestOptions
from casual_mcp_nb.base.tokens import TokenUsage
from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.errors import (
    AuthenticationError,
    ContentRefusedError,
    IncompleteStreamError,
    OverloadedError,
    PermissionDeniedError,
    ProviderError,
    RateLimitError,
    UsageError,
)
from casual_mcp_nb.providers.chat_model import ChatModel
from casual_mcp_nb.providers.limits import RequestAdapted, Retries

pytest.importorskip("google.genai")

ASKED: list[ChatMessage] = [UserMessage(content="Where is it?")]
TOOL = {"name": "maps__find", "description": "Find a place.", "parameters": {"type": "object"}}
SIGNED = "b3BhcXVl"


def pieces(*bodies: dict[str, Any]) -> Reply:
    """A stream of these pieces."""
    return reply("gemini", "".join(f"data: {json.dumps(body)}\r\n\r\n" for body in bodies).encode())


def error(status: int, code: str, message: str = "It says no.", *details: dict[str, Any]) -> Reply:
    """An error as Google sends it."""
    return Reply(
        status,
        {"error": {"code": status, "message": message, "status": code, "details": list(details)}},
    )


@pytest.mark.defect("D1")
@pytest.mark.parametrize("stream", [False, True])
async def test_signatures_go_back_where_they_were_also_from_a_saved_conversation(
    stream: bool, strict: Callable[..., Any], desk: FastMCP
) -> None:
    texts = [{"text": "I "}, {"text": "look."}]
    calls = [
        gemini_call("c0", "desk__echo", {"text": "a"}, thoughtSignature=SIGNED),
        gemini_call("c1", "desk__echo", {"text": "b"}),
    ]
    ending = [{"text": "Here"}, {"text": "."}, {"text": "", "thoughtSignature": "ZW5k"}]
    if stream:
        first = pieces(
            *(gemini_answer([part], None) for part in [*texts, *calls]), gemini_answer([], "STOP")
        )
        last = pieces(*(gemini_answer([part], None) for part in ending), gemini_answer([], "STOP"))
    else:
        first, last = Reply(200, gemini_answer([*texts, *calls])), Reply(200, gemini_answer(ending))
    server = strict(GEMINI, first, last)
    async with McpToolChat.from_config(server.config("gemini"), in_process={"desk": desk}) as chat:
        turn = await chat.run(ASKED, TurnOptions(stream=stream))
        saved = Conversation.from_json(Conversation([turn]).to_json()).messages
        again = await chat.run(
            [UserMessage(content="Sure?")], TurnOptions(stream=stream), history=saved
        )
    assert (turn.answer, turn.status, again.status) == ("Here.", "done", "done")
    assert server.refusals == []
    said = [
        content["parts"]
        for content in server.seen[-1].body["contents"]
        if content["role"] == "model"
    ]
    assert said == [
        [{"text": "I look."}, *calls],
        [{"text": "Here."}, {"text": "", "thoughtSignature": "ZW5k"}],
    ]


@pytest.mark.defect("D1")
async def test_calls_of_another_model_get_a_stand_in_for_the_signature(
    strict: Callable[..., Any], model_of: Callable[..., ChatModel], desk: FastMCP
) -> None:
    server = strict(
        GEMINI,
        Reply(200, gemini_answer([gemini_call("c0", "desk__echo", {})])),
        answer("gemini", "Here."),
    )
    async with McpToolChat.from_config(server.config("gemini"), in_process={"desk": desk}) as chat:
        turn = await chat.run(ASKED, TurnOptions(stream=False))
    assert (turn.status, server.refusals) == ("done", [])
    parts = [part for content in server.seen[1].body["contents"] for part in content["parts"]]
    assert [part["thoughtSignature"] for part in parts if "functionCall" in part] == [
        "skip_thought_signature_validator"
    ]


@pytest.mark.parametrize("stream", [False, True])
async def test_thoughts_are_no_part_of_the_answer_and_count_as_output(
    stream: bool, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    body = gemini_answer(
        [{"text": "Hm.", "thought": True}, {"text": "Here."}], thoughtsTokenCount=5
    )
    server = serving(pieces(body) if stream else body)
    said: list[Any] = []
    got = await model_of(server, "gemini").complete(ASKED, on_event=said.append, stream=stream)
    assert got.message.content == "Here."
    assert got.usage is not None
    assert (got.usage.completion_tokens, got.usage.reasoning_tokens) == (12, 5)
    assert said == (["Here."] if stream else [])


async def test_thoughts_count_as_output_if_nothing_else_is_counted(
    serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    body = gemini_answer([{"text": "Here."}])
    body["usageMetadata"] = {"thoughtsTokenCount": 5}
    got = await model_of(serving(body), "gemini").complete(ASKED)
    assert got.usage == TokenUsage(None, 5, reasoning_tokens=5)


async def test_calls_without_an_id_get_one_that_the_conversation_does_not_have(
    serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    parts = [
        {"functionCall": {"name": "maps__find", "args": {}}},
        {"functionCall": {"name": "maps__find"}},
    ]
    got = await model_of(serving(gemini_answer(parts)), "gemini").complete(ASKED, [TOOL])
    assert [(call.id, call.function.arguments) for call in got.message.tool_calls or ()] == [
        ("call_1", "{}"),
        ("call_2", "{}"),
    ]


async def test_a_name_that_google_refuses_is_sent_in_another_form_and_called_by_its_own(
    strict: Callable[..., Any],
) -> None:
    server: FastMCP = FastMCP("2fa")
    ran: list[str] = []

    @server.tool
    def code() -> str:
        ran.append("code")
        return "123"

    provider = strict(GEMINI, answer("gemini", "", ("_2fa__code", {})), answer("gemini", "123."))
    async with McpToolChat.from_config(
        provider.config("gemini"), in_process={"2fa": server}
    ) as chat:
        turn = await chat.run(ASKED, TurnOptions(stream=False))
    assert (turn.status, ran, provider.refusals) == ("done", ["code"], [])
    declared = provider.seen[0].body["tools"][0]["functionDeclarations"]
    assert [tool["name"] for tool in declared] == ["_2fa__code"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "body",
    [
        {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}},
        gemini_answer([], "SAFETY"),
        gemini_answer([{"text": "Once"}], "RECITATION"),
    ],
)
async def test_what_google_filters_is_refused_content(
    body: dict[str, Any],
    stream: bool,
    serving: Callable[..., Any],
    model_of: Callable[..., ChatModel],
) -> None:
    server = serving(pieces(body) if stream else body)
    with pytest.raises(ContentRefusedError):
        await model_of(server, "gemini").complete(ASKED, on_event=lambda _: None, stream=stream)
    assert len(server.seen) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_cut_at_the_limit_says_so(
    stream: bool, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    body = gemini_answer([{"text": "Once upon"}], "MAX_TOKENS")
    got = await model_of(serving(pieces(body) if stream else body), "gemini").complete(
        ASKED, on_event=lambda _: None
    )
    assert got.truncated


async def test_a_call_that_google_could_not_read_is_asked_for_again(
    serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = serving(gemini_answer([], "MALFORMED_FUNCTION_CALL"), answer("gemini", "Here."))
    model = model_of(server, "gemini", max_retries=0)
    with pytest.raises(IncompleteStreamError) as caught:
        await model.complete(ASKED, stream=False)
    assert caught.value.retryable
    assert (await model.complete(ASKED, stream=False)).message.content == "Here."


RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.25s"}
BAD_KEY = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("reply", "kind", "status"),
    [
        (error(400, "INVALID_ARGUMENT", "API key not valid.", BAD_KEY), AuthenticationError, 400),
        (error(401, "UNAUTHENTICATED"), AuthenticationError, 401),
        (error(403, "PERMISSION_DENIED"), PermissionDeniedError, 403),
        (error(429, "RESOURCE_EXHAUSTED", "Quota exceeded.", RETRY), RateLimitError, 429),
        (error(503, "UNAVAILABLE", "The model is overloaded."), OverloadedError, 503),
    ],
)
async def test_googles_errors_have_their_kinds(
    reply: Reply,
    kind: type[Exception],
    status: int,
    stream: bool,
    serving: Callable[..., Any],
    model_of: Callable[..., ChatModel],
) -> None:
    server = serving(reply)
    with pytest.raises(kind) as caught:
        await model_of(server, "gemini", max_retries=0).complete(
            ASKED, on_event=lambda _: None, stream=stream
        )
    assert caught.value.status == status  # type: ignore[attr-defined]
    assert caught.value.retry_after == (0.25 if status == 429 else None)  # type: ignore[attr-defined]


async def test_the_wait_that_google_asks_for_is_kept(
    serving: Callable[..., Any], model_of: Callable[..., ChatModel], clock: Any
) -> None:
    server = serving(
        error(429, "RESOURCE_EXHAUSTED", "Quota exceeded.", RETRY), answer("gemini", "Here.")
    )
    model = model_of(server, "gemini")
    model.retries = Retries(1)
    assert (await model.complete(ASKED)).message.content == "Here."
    assert 0.25 in clock.slept


@pytest.mark.parametrize(
    ("model", "effort", "thinking"),
    [
        ("gemini-3-pro", "low", {"thinking_level": "LOW"}),
        ("gemini-3-pro", "max", {"thinking_level": "HIGH"}),
        ("gemini-3-flash", "none", {"thinking_level": "MINIMAL"}),
        ("gemini-2.5-flash", "none", {"thinking_budget": 0}),
        ("gemini-2.5-pro", "medium", {"thinking_budget": 8192}),
    ],
)
async def test_an_effort_is_a_level_or_with_older_models_a_budget(
    model: str,
    effort: Any,
    thinking: dict[str, Any],
    serving: Callable[..., Any],
    model_of: Callable[..., ChatModel],
) -> None:
    server = serving(answer("gemini", "Here."))
    bound = model_of(server, "gemini")
    bound.model = model
    await bound.with_options(RequestOptions(reasoning_effort=effort)).complete(ASKED)
    assert server.seen[0].body["generationConfig"]["thinkingConfig"] == thinking


async def test_a_model_that_cannot_think_is_asked_without_an_effort_from_then_on() -> None:
    words = "Unable to submit request because thinking is not supported by this model."
    with OptionsProvider("gemini", Rules(refuses={"thinkingConfig": words})) as server:
        config = {**server.config_of({"reasoning_effort": "low"}), "servers": {}}
        async with McpToolChat.from_config(config, in_process={}) as chat:
            turns = [await chat.run(ASKED), await chat.run(ASKED)]
    assert [turn.status for turn in turns] == ["done", "done"]
    assert ["thinkingConfig" in body.get("generationConfig", {}) for body in server.bodies] == [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("choice", "mode"),
    [("auto", "AUTO"), ("none", "NONE"), ("required", "ANY"), ("maps__find", "ANY"), (None, None)],
)
async def test_a_choice_of_tools_is_a_mode(
    choice: str | None,
    mode: str | None,
    serving: Callable[..., Any],
    model_of: Callable[..., ChatModel],
) -> None:
    server = serving(answer("gemini", "Here."))
    await (
        model_of(server, "gemini")
        .with_options(RequestOptions(tool_choice=choice))
        .complete(ASKED, [TOOL])
    )
    said = server.seen[0].body.get("toolConfig", {}).get("functionCallingConfig", {})
    assert said.get("mode") == mode
    assert said.get("allowedFunctionNames") == (["maps__find"] if choice == "maps__find" else None)


async def test_system_messages_are_one_instruction_and_roles_take_turns(
    strict: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = strict(GEMINI, answer("gemini", "Yes."))
    messages = [
        SystemMessage(content="Be brief."),
        UserMessage(content="One."),
        UserMessage(content="Two."),
        SystemMessage(content="Be kind."),
        AssistantMessage(content=""),
        UserMessage(content="  "),
    ]
    await model_of(server, "gemini").complete(messages)
    body = server.seen[0].body
    assert body["systemInstruction"]["parts"] == [{"text": "Be brief.\n\nBe kind."}]
    assert body["contents"] == [{"role": "user", "parts": [{"text": "One."}, {"text": "Two."}]}]
    assert server.refusals == []


@pytest.mark.parametrize(
    "source", [{"type": "base64", "data": "aGk="}, "data:image/png;base64,aGk="]
)
async def test_an_image_of_the_person_goes_along_and_an_address_does_not(
    serving: Callable[..., Any], model_of: Callable[..., ChatModel], source: Any
) -> None:
    server = serving(answer("gemini", "A cat."))
    image = casual_llm.ImageContent(source=source, media_type="image/png")
    await model_of(server, "gemini").complete(
        [UserMessage(content=[casual_llm.TextContent(text="Look:"), image])]
    )
    text, data = server.seen[0].body["contents"][0]["parts"]
    assert (text, base64.b64decode(data["inlineData"]["data"])) == ({"text": "Look:"}, b"hi")
    address = casual_llm.ImageContent(source="https://example.com/a.png")
    with pytest.raises(UsageError):
        await model_of(server, "gemini").complete([UserMessage(content=[address])])
    assert len(server.seen) == 1


async def test_the_key_stays_with_its_address_and_the_server_is_told_no_limit(
    serving: Callable[..., Any], model_of: Callable[..., ChatModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "sk-of-google")
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", "http://127.0.0.1:9")
    other = serving(answer("gemini", "Gotcha."))
    server = serving(Reply(307, None, {"location": f"{other.url}/v1/models/m-1:generateContent"}))
    with pytest.raises(ProviderError):
        await model_of(server, "gemini", max_retries=0).complete(ASKED)
    assert other.seen == []
    assert server.seen[0].headers["x-goog-api-key"] == "sk-not-a-real-key"
    assert "x-server-timeout" not in server.seen[0].headers


class Place(BaseModel):
    name: str


async def test_a_model_of_casual_llm_over_the_client_answers_streams_and_fills_a_class(
    serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    whole = answer("gemini", '{"name": "Oslo"}')
    server = serving(whole, reply("gemini", streamed("gemini", ("Wa", "it"))))
    model = casual_llm.Model(model_of(server, "gemini").client, "m-1")
    got = await model.chat(ASKED, casual_llm.ChatOptions(response_format=Place))
    assert Place.model_validate_json(got.content or "") == Place(name="Oslo")
    sent = server.seen[0].body["generationConfig"]
    assert sent == {
        "responseMimeType": "application/json",
        "responseJsonSchema": Place.model_json_schema(),
    }
    chunks = [chunk async for chunk in model.stream(ASKED)]
    assert "".join(chunk.content for chunk in chunks) == "Wait"
    assert [chunk.finish_reason for chunk in chunks if chunk.finish_reason] == ["STOP"]


async def test_a_stream_that_breaks_off_within_is_asked_for_again(
    serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    broken = pieces(
        gemini_answer([], None),
        {"error": {"code": 503, "message": "gone", "status": "UNAVAILABLE"}},
    )
    server = serving(broken, reply("gemini", streamed("gemini", ("Fine.",))))
    model = model_of(server, "gemini")
    model.retries = Retries(1, first_wait=0.01)
    events: list[Any] = []
    assert (await model.complete(ASKED, on_event=events.append)).message.content == "Fine."
    assert not any(isinstance(event, RequestAdapted) for event in events)
