"""Our use of casual-llm and the SDKs beyond their promises: a new version that breaks it fails
here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import anthropic
import casual_llm
import httpx
import ollama
import openai
import pytest
from kit.streams import reply, streamed

CLIENTS: dict[str, Callable[[], Any]] = {
    "openai": lambda: casual_llm.OpenAIClient(
        api_key="k", base_url="http://127.0.0.1:1/v1", timeout=1
    ),
    "anthropic": lambda: casual_llm.AnthropicClient(
        api_key="k", base_url="http://127.0.0.1:1", timeout=1
    ),
    "ollama": lambda: casual_llm.OllamaClient(host="http://127.0.0.1:1", timeout=1),
}


@pytest.mark.parametrize("name", CLIENTS)
async def test_a_client_has_the_private_parts_that_we_use(name: str) -> None:
    client = CLIENTS[name]()
    assert list(inspect.signature(client._chat).parameters) == ["model", "messages", "options"]
    assert list(inspect.signature(client._build_request_kwargs).parameters)[:3] == [
        "model",
        "messages",
        "options",
    ]
    assert inspect.iscoroutinefunction(client._build_request_kwargs) == (name == "ollama")
    if name != "ollama":
        assert client.client.with_options(max_retries=0).max_retries == 0
        assert client.client.api_key == "k"
    await client.client.close()


async def test_extra_arguments_reach_the_request_as_they_are() -> None:
    options = casual_llm.ChatOptions(extra={"tools": [{"any": "thing"}], "tool_choice": "auto"})
    for name, make in CLIENTS.items():
        client = make()
        built = client._build_request_kwargs("m", [casual_llm.UserMessage(content="Hi")], options)
        request = await built if name == "ollama" else built
        assert request["tools"] == [{"any": "thing"}]
        await client.client.close()


def test_ollamas_client_can_send_a_request_as_it_is() -> None:
    parameters = inspect.signature(ollama.AsyncClient._request).parameters
    assert list(parameters) == ["self", "cls", "args", "stream", "kwargs"]
    assert {"prompt_eval_count", "eval_count", "done_reason", "message"} <= set(
        ollama.ChatResponse.model_fields
    )


def test_what_streams_are_made_of_is_there() -> None:
    assert "stream" in inspect.signature(casual_llm.OpenAIClient._build_request_kwargs).parameters
    assert "stream" in inspect.signature(casual_llm.OllamaClient._build_request_kwargs).parameters
    for create in (
        openai.resources.chat.AsyncCompletions.create,
        anthropic.resources.AsyncMessages.create,
    ):
        assert "stream" in inspect.signature(create).parameters
    assert isinstance(ollama.AsyncClient()._client, httpx.AsyncClient)
    for kind in (openai.types.chat.ChatCompletion, anthropic.types.Message):
        assert kind.construct(unknown={"a": 1}).unknown == {"a": 1}


async def test_casual_llms_own_stream_still_drops_calls(serving: Callable[..., Any]) -> None:
    server = serving(reply("openai", streamed("openai", ("Wait",), ("c1", "maps__find", "{}"))))
    client = casual_llm.OpenAIClient(api_key="k", base_url=f"{server.url}/v1", timeout=5)
    chunks = client._stream("m", [casual_llm.UserMessage(content="Hi")], casual_llm.ChatOptions())
    seen = [chunk async for chunk in chunks]
    assert {name for chunk in seen for name in type(chunk).model_fields} == {
        "content",
        "finish_reason",
        "usage",
    }
    await client.client.close()


def test_a_model_keeps_its_client_options_and_handling() -> None:
    model = casual_llm.Model(object(), "m", system_message_handling="merge")  # type: ignore[arg-type]
    assert model._client is not None
    assert model.default_options is None
    assert model.system_message_handling == "merge"
