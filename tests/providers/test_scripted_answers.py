"""The scripted server answers as the providers do: each body and each event is of the SDK's own
types.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from kit.provider import PROVIDERS, answer
from kit.streams import anthropic_blocks, streamed
from pydantic import TypeAdapter

CALLS = (("c1", "maps__find", '{"place": "Tromsø"}'), ("c2", "noop", "{}"))


def types_of(provider: str) -> tuple[Any, Any]:
    """The types of an answer and of a piece of a streamed one."""
    match provider:
        case "openai":
            from openai.types.chat import ChatCompletion, ChatCompletionChunk

            return ChatCompletion, ChatCompletionChunk
        case "openai-responses":
            from openai.types.responses import Response, ResponseStreamEvent

            return Response, ResponseStreamEvent
        case "anthropic":
            from anthropic.types import Message, RawMessageStreamEvent

            return Message, RawMessageStreamEvent
        case "gemini":
            from google.genai.types import GenerateContentResponse

            return GenerateContentResponse, GenerateContentResponse
    from ollama import ChatResponse

    return ChatResponse, ChatResponse


def pieces(body: bytes) -> list[Any]:
    lines = (
        line.removeprefix("data: ")
        for line in body.decode().splitlines()
        if not line.startswith("event: ")
    )
    return [json.loads(line) for line in lines if line and line != "[DONE]"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_answer_is_of_the_sdks_type(provider: str) -> None:
    calls = [(name, json.loads(arguments)) for _, name, arguments in CALLS]
    whole = TypeAdapter(types_of(provider)[0])
    for body in (
        answer(provider, "Hi"),
        answer(provider, "", *calls),
        answer(provider, "Wait", *calls),
    ):
        whole.validate_python(body)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_each_piece_of_a_stream_is_of_the_sdks_type(provider: str) -> None:
    piece = TypeAdapter(types_of(provider)[1])
    bodies = [
        streamed(provider, ("Wa", "it")),
        streamed(provider, (), *CALLS),
        streamed(provider, ("Wait",), *CALLS),
    ]
    if provider == "anthropic":
        thought = {"type": "thinking", "thinking": "Hm", "signature": "s"}
        bodies.append(
            anthropic_blocks([thought, {"type": "redacted_thinking", "data": "x"}], "end_turn")
        )
    found = [each for body in bodies for each in pieces(body)]
    assert len(found) >= 10
    for each in found:
        # Signs of life are known to the decoder of Anthropic's SDK only.
        if each.get("type") != "ping":
            piece.validate_python(each)
