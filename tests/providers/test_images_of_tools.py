"""Images that tools return reach the model, where it can see; where it cannot, it reads that there
are some.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from casual_llm.messages import (
    AssistantMessage,
    AssistantToolCall,
    AssistantToolCallFunction,
    ChatMessage,
    UserMessage,
)
from fastmcp import FastMCP
from kit.message_rules import MISTRAL, RULES, most_images, no_images
from kit.pictures import DOT
from kit.provider import PROVIDERS, answer
from kit.scripted_http import Reply

from casual_mcp_nb.base.content import MAX_BYTES, MAX_IMAGES, ContentPart, ToolResult
from casual_mcp_nb.base.tokens import IMAGE_TOKENS, message_tokens
from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.conversation.messages import result_message
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.providers.chat_model import ChatModel

pytestmark = pytest.mark.defect("D2")

ASKED = [UserMessage(content="Plot it.")]
DATA = base64.b64encode(DOT).decode()
URL = f"data:image/png;base64,{DATA}"
WHOLE = TurnOptions(stream=False)


def images_in(provider: str, body: Any) -> list[str]:
    """The images of a request, as base64, in their order; checked for being where this provider
    takes them.
    """
    if provider == "anthropic":
        blocks = [
            block
            for message in body["messages"]
            if message["role"] == "user"
            for block in message["content"]
        ]
        inner = [
            part
            for block in blocks
            if block["type"] == "tool_result"
            for part in block["content"]
            if part != block
        ]
        shown = [
            part for part in (*blocks, *inner) if isinstance(part, dict) and part["type"] == "image"
        ]
        return [part["source"]["data"] for part in shown]
    if provider == "openai-responses":
        outputs = [
            item["output"] for item in body["input"] if item.get("type") == "function_call_output"
        ]
        parts = [part for output in outputs if isinstance(output, list) for part in output]
        return [
            part["image_url"].partition(",")[2] for part in parts if part["type"] == "input_image"
        ]
    if provider == "gemini":
        parts = [
            part
            for content in body["contents"]
            if content["role"] == "user"
            for part in content["parts"]
        ]
        # Google takes both alphabets of base64; its SDK writes the one for addresses.
        sent = [
            base64.urlsafe_b64decode(part["inlineData"]["data"])
            for part in parts
            if "inlineData" in part
        ]
        return [base64.b64encode(data).decode() for data in sent]
    messages = [message for message in body["messages"] if message["role"] == "user"]
    if provider == "ollama":
        return [image for message in messages for image in message.get("images", ())]
    parts = [
        part
        for message in messages
        if isinstance(message["content"], list)
        for part in message["content"]
    ]
    return [
        part["image_url"]["url"].partition(",")[2] for part in parts if part["type"] == "image_url"
    ]


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_an_image_of_a_tool_reaches_the_model_also_from_a_saved_conversation(
    provider: str, strict: Callable[..., Any], desk: FastMCP
) -> None:
    calls = (
        ("desk__plot", {"title": "a"}),
        ("desk__echo", {"text": "b"}),
        ("desk__plot", {"title": "c"}),
    )
    server = strict(RULES[provider], answer(provider, "", *calls), answer(provider, "Two dots."))
    async with McpToolChat.from_config(server.config(provider), in_process={"desk": desk}) as chat:
        turn = await chat.run(ASKED, WHOLE)
        loaded = Conversation.from_json(Conversation([turn]).to_json()).messages
        again = await chat.run([UserMessage(content="Sure?")], WHOLE, history=loaded)
    assert (turn.status, again.status) == ("done", "done")
    assert server.refusals == []
    assert loaded == turn.messages
    for request in server.seen[1:]:
        assert images_in(provider, request.body) == [DATA, DATA]
        assert "A plot: a" in json.dumps(request.body)


@pytest.mark.parametrize("provider", ["openai", "ollama"])
async def test_each_image_in_a_message_of_the_person_says_which_call_it_is_of(
    provider: str, strict: Callable[..., Any], desk: FastMCP
) -> None:
    server = strict(
        RULES[provider],
        answer(provider, "", ("desk__plot", {}), ("desk__echo", {})),
        answer(provider, "A dot."),
    )
    async with McpToolChat.from_config(server.config(provider), in_process={"desk": desk}) as chat:
        await chat.run(ASKED, WHOLE)
    messages = server.seen[1].body["messages"]
    assert [message["role"] for message in messages[-4:]] == ["assistant", "tool", "tool", "user"]
    assert "desk__plot" in str(messages[-1])
    assert messages[-3]["tool_call_id"] in str(messages[-1])


async def test_an_image_counts_in_the_size_of_a_request(
    strict: Callable[..., Any], desk: FastMCP
) -> None:
    server = strict((), answer("openai", "", ("desk__plot", {})), answer("openai", "A dot."))
    async with McpToolChat.from_config(server.config("openai"), in_process={"desk": desk}) as chat:
        turn = await chat.run(ASKED, WHOLE)
    assert message_tokens(turn.messages[2]) > IMAGE_TOKENS


CANNOT_SEE = [
    "Invalid content type. image_url is only supported by certain models.",
    "meta-llama/Llama-3.1-8B is not a multimodal model",
    "this model does not support image input",
    "No endpoints found that support image input",
    (
        "image input is not supported - hint: if this is unexpected, you may need to provide the"
        " mmproj"
    ),
    "Model does not support images. Please use a model that does.",
    (
        "Failed to deserialize the JSON body: messages[3]: unknown variant `image_url`, expected"
        " `text`"
    ),
    "Unsupported content part type for text-only server: image_url",
]


@pytest.mark.parametrize("said", CANNOT_SEE)
async def test_a_model_without_vision_is_asked_with_a_note_for_images_and_remembered(
    said: str, strict: Callable[..., Any], desk: FastMCP
) -> None:
    plots = [
        Reply(200, answer("openai", "", ("desk__plot", {}))),
        Reply(200, answer("openai", "A plot.")),
    ]
    server = strict((no_images(said),), *plots, *plots)
    async with McpToolChat.from_config(server.config("openai"), in_process={"desk": desk}) as chat:
        first = await chat.run(ASKED, WHOLE)
        second = await chat.run(ASKED, WHOLE)
    assert (first.status, second.status) == ("done", "done"), first.error
    assert server.refusals == [said]
    assert [len(first.notices), len(second.notices)] == [1, 0]
    (note,) = [
        message["content"]
        for message in server.seen[2].body["messages"]
        if message["role"] == "tool"
    ]
    assert "not shown" in note
    assert "not shown" not in first.messages[2].content


async def test_a_model_that_takes_few_images_is_shown_the_newest(
    strict: Callable[..., Any], desk: FastMCP
) -> None:
    calls = [("desk__plot", {"title": str(n)}) for n in range(3)]
    server = strict((most_images(1),), answer("openai", "", *calls), answer("openai", "A dot."))
    async with McpToolChat.from_config(server.config("openai"), in_process={"desk": desk}) as chat:
        turn = await chat.run(ASKED, WHOLE)
    assert turn.status == "done"
    assert len(server.refusals) == 1
    assert images_in("openai", server.seen[-1].body) == [DATA]
    assert [
        ("not shown" in m["content"])
        for m in server.seen[-1].body["messages"]
        if m["role"] == "tool"
    ] == [
        True,
        True,
        False,
    ]


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_an_image_that_is_refused_does_not_spoil_the_rest_of_the_conversation(
    provider: str, strict: Callable[..., Any], desk: FastMCP
) -> None:
    def could_not(body: Any) -> str | None:
        return "Could not process image" if images_in(provider, body) else None

    server = strict(
        (could_not,), answer(provider, "", ("desk__plot", {})), answer(provider, "A dot.")
    )
    async with McpToolChat.from_config(server.config(provider), in_process={"desk": desk}) as chat:
        turn = await chat.run(ASKED, WHOLE)
        again = await chat.run([UserMessage(content="Sure?")], WHOLE, history=turn.messages)
    assert (turn.status, again.status) == ("done", "done")
    assert len(server.refusals) == 1


async def test_mistral_gets_a_word_of_the_model_between_results_and_images(
    strict: Callable[..., Any], desk: FastMCP
) -> None:
    server = strict(MISTRAL, answer("openai", "", ("desk__plot", {})), answer("openai", "A dot."))
    config = server.config("openai")
    config["models"]["small"]["model"] = "mistral-small-latest"
    async with McpToolChat.from_config(config, in_process={"desk": desk}) as chat:
        turn = await chat.run(ASKED, WHOLE)
        await chat.run([UserMessage(content="Sure?")], WHOLE, history=turn.messages)
    assert server.refusals == []
    assert images_in("openai", server.seen[1].body) == [DATA]


async def test_many_and_large_images_are_bounded(
    strict: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = strict((), answer("openai", "Dots."))
    history: list[ChatMessage] = [*ASKED]
    for number in range(3):
        function = AssistantToolCallFunction(name="desk__plot", arguments="{}")
        history.append(
            AssistantMessage(
                content="", tool_calls=[AssistantToolCall(id=f"c{number}", function=function)]
            )
        )
        parts = [ContentPart("image", "image/png", "image/png", DOT)] * 30
        history.append(
            result_message("desk__plot", f"c{number}", "dots", result=ToolResult(tuple(parts)))
        )
    await model_of(server, "openai").complete(history)
    assert len(images_in("openai", server.seen[0].body)) == MAX_IMAGES


@pytest.mark.parametrize(
    "part",
    [
        ContentPart("image", "image/svg+xml", "image/svg+xml", b"<svg/>"),
        ContentPart("image", "image/png", "image/png", b"no image at all"),
        ContentPart("image", "image/png", "image/png", DOT + bytes(MAX_BYTES)),
        ContentPart("audio", "audio/wav", "audio/wav", b"RIFF"),
        ContentPart("text", "a text"),
    ],
)
def test_what_no_model_could_be_shown_stays_a_note(part: ContentPart) -> None:
    message = result_message("desk__plot", "c", "text", result=ToolResult((part,)))
    assert getattr(message, "images", ()) == ()


def test_the_kind_of_an_image_is_read_from_its_bytes() -> None:
    part = ContentPart("resource", "image/jpeg", "image/jpeg", DOT, "file:///a.jpg")
    (image,) = getattr(result_message("t", "c", "", result=ToolResult((part,))), "images", ())
    assert image.media_type == "image/png"
