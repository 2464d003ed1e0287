"""One error tree: each failure of a provider has its class and its message, and no message shows a
secret.
"""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from casual_llm.messages import AssistantMessage, UserMessage
from kit.provider import answer, own_variable
from kit.scripted_http import Reply
from kit.streams import reply, streamed

from casual_mcp_nb import errors
from casual_mcp_nb.base.config import Config
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.errors import (
    AuthenticationError,
    BadRequestError,
    ContentRefusedError,
    ContextOverflowError,
    IncompleteStreamError,
    OverloadedError,
    PermissionDeniedError,
    ProviderError,
    ProviderTimeoutError,
    RateLimitError,
)
from casual_mcp_nb.providers.chat_model import ChatModel
from casual_mcp_nb.providers.factory import ModelFactory

ASKED = [UserMessage(content="Where is it?")]
TOOL = {"name": "maps__find", "description": "Find a place.", "parameters": {"type": "object"}}
KEY = "sk-planted-secret-0123456789"
TOKEN = "planted-token-of-a-server-42"

BY_STATUS = {
    400: BadRequestError,
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: BadRequestError,
    408: ProviderTimeoutError,
    409: ProviderError,
    413: ContextOverflowError,
    422: BadRequestError,
    429: RateLimitError,
    500: OverloadedError,
    503: OverloadedError,
    504: ProviderTimeoutError,
    529: OverloadedError,
}
TOO_LONG = {
    "gemini": [
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
    ],
    "openai": [
        "context_length_exceeded",
        (
            "This model's maximum context length is 8192 tokens. However, your messages resulted in"
            " 9001 tokens."
        ),
        (
            "Your input exceeds the context window of this model. Please adjust your input and try"
            " again."
        ),
        "the request exceeds the available context size, try increasing it",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
        (
            "Trying to keep the first 9000 tokens; the model is loaded with context length of only"
            " 4096 tokens"
        ),
    ],
    "anthropic": [
        "prompt is too long: 210000 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
        "Input is too long for requested model.",
    ],
    "ollama": [
        "the input length exceeds the context length",
        "input length exceeds maximum context length",
    ],
}


def leaves(kind: type[Exception]) -> Iterator[type[Exception]]:
    yield kind
    for below in kind.__subclasses__():
        yield from leaves(below)


async def failed(model: ChatModel, *, stream: bool = False, **more: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await model.complete(
            more.pop("asked", ASKED), on_event=lambda _: None, stream=stream, **more
        )
    return caught.value


@pytest.mark.parametrize("stream", [False, True])
async def test_each_status_has_its_error_with_client_and_model(
    provider: str, stream: bool, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = serving(
        *(Reply(status, {"error": {"message": "No, because"}}) for status in BY_STATUS)
    )
    model = model_of(server, provider, max_retries=0)
    for status, kind in BY_STATUS.items():
        error = await failed(model, stream=stream)
        assert type(error) is kind
        assert (error.client, error.model, error.status) == ("desk", "m-1", status)
        assert str(error).startswith("Client 'desk', model 'm-1': ")
        assert "No, because" in str(error)
        assert error.hint
        assert str(error).endswith(error.hint)


@pytest.mark.fault(60)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_makes_one_request_and_says_where_it_was_looked_for(
    provider: str,
    status: int,
    stream: bool,
    serving: Callable[..., Any],
    model_of: Callable[..., ChatModel],
) -> None:
    server = serving(Reply(status, {"error": {"message": f"Incorrect API key: {KEY}"}}))
    error = await failed(model_of(server, provider, key=KEY, max_retries=5), stream=stream)
    assert len(server.seen) == 1
    places = ("clients.desk.api_key", "DESK_API_KEY", own_variable(provider))
    assert re.search(r"\b.*\b".join(places), str(error))
    assert KEY not in "".join(traceback.format_exception(error))


@pytest.mark.fault(66)
async def test_too_much_text_is_recognised_asked_once_and_its_size_is_said(
    provider: str, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    status = 500 if provider == "ollama" else 400
    wordings = TOO_LONG[provider.removesuffix("-responses")]
    server = serving(*(Reply(status, {"error": {"message": said}}) for said in wordings))
    model = model_of(server, provider)
    model.context_window = 8192
    long = [UserMessage(content="word " * 9000), AssistantMessage(content="word " * 1000), *ASKED]
    for number, said in enumerate(wordings, start=1):
        error = await failed(model, asked=long, tools=[TOOL])
        assert type(error) is ContextOverflowError, said
        assert len(server.seen) == number
        assert not error.retryable
        most = f"{error.window or model.window:,}"
        size = re.search(
            r"The 3 messages and 1 tools are about ([\d,]+) tokens, and the model can read"
            rf" {most}\.",
            str(error),
        )
        assert size is not None
        assert 8000 < int(size[1].replace(",", "")) < 12000


@pytest.mark.parametrize(
    "said",
    ["invalid temperature: out of range", "max_tokens is too large: 90000", "unknown context_id"],
)
async def test_another_refusal_is_not_taken_for_too_much_text(
    provider: str, said: str, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = serving(Reply(400, {"error": {"message": said}}))
    assert type(await failed(model_of(server, provider))) is BadRequestError


@pytest.mark.parametrize("stream", [False, True])
async def test_refused_content_is_an_error_of_its_own(
    stream: bool, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    filtered = streamed("openai", ("I will",)).replace(
        b'"finish_reason": "stop"', b'"finish_reason": "content_filter"'
    )
    whole = json.loads(json.dumps(answer("openai", "I will")).replace('"stop"', '"content_filter"'))
    server = serving(reply("openai", filtered) if stream else whole)
    error = await failed(model_of(server, "openai"), stream=stream)
    assert type(error) is ContentRefusedError
    assert "I will" in str(error)
    refused = serving(
        Reply(400, {"error": {"code": "content_filter", "message": "The response was filtered"}})
    )
    assert type(await failed(model_of(refused, "openai"), stream=stream)) is ContentRefusedError
    stopped = {**answer("anthropic", ""), "stop_reason": "refusal"}
    assert type(await failed(model_of(serving(stopped), "anthropic"))) is ContentRefusedError


async def test_an_error_in_a_stream_has_the_class_that_its_type_stands_for(
    serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    sent = {"type": "error", "error": {"type": "authentication_error", "message": "no more"}}
    body = f"event: error\ndata: {json.dumps(sent)}\n\n".encode()
    assert (
        type(await failed(model_of(serving(reply("anthropic", body)), "anthropic"), stream=True))
        is AuthenticationError
    )


async def test_no_secret_of_the_config_is_in_an_error_its_cause_or_its_traceback(
    provider: str, serving: Callable[..., Any], factory_for: Callable[..., ModelFactory]
) -> None:
    server = serving(Reply(400, {"error": {"message": f"What do {KEY} and {TOKEN} mean?"}}))
    servers = {
        "remote": {"url": "http://127.0.0.1:1/mcp", "headers": {"Authorization": f"Bearer {TOKEN}"}}
    }
    config = Config.model_validate({**server.config(provider, KEY), "servers": servers})
    model = factory_for(config).chat_model()
    error = await failed(model)
    shown = "".join(
        [
            *traceback.format_exception(error),
            *error._render_traceback_(),
            repr(error),
            error.reason,
            repr(vars(model)),
        ]
    )
    assert KEY not in shown
    assert TOKEN not in shown
    assert "What do ********** and **********" in shown


async def test_no_secret_is_left_where_a_stream_breaks(
    provider: str, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    line = {
        "openai": f'data: {{"error": {{"message": "bad key {KEY}"}}}}\n\n',
        "openai-responses": (
            f'event: error\ndata: {{"type": "error", "message": "bad key {KEY}"}}\n\n'
        ),
        "anthropic": f'event: error\ndata: {{"error": {{"message": "bad key {KEY}"}}}}\n\n',
        "gemini": f'data: {{"error": {{"code": 400, "message": "bad key {KEY}"}}}}\n\n',
        "ollama": f'{{"error": "bad key {KEY}"}}\n',
    }[provider]
    server = serving(reply(provider, streamed(provider, ("Wait",), end=False) + line.encode()))
    error = await failed(model_of(server, provider, key=KEY), stream=True)
    assert type(error) is IncompleteStreamError
    assert "bad key **********" in str(error)
    assert KEY not in "".join(traceback.format_exception(error))


async def test_a_turn_that_failed_raises_the_error_itself(serving: Callable[..., Any]) -> None:
    server = serving(Reply(401, {"error": {"message": f"Incorrect API key: {KEY}"}}))
    async with McpToolChat.from_config(server.config("openai", KEY), in_process={}) as chat:
        turn = await chat.run(ASKED)
    with pytest.raises(AuthenticationError):
        turn.raise_for_status()
    assert str(turn.error).startswith("AuthenticationError: Client 'desk'")


def test_every_error_has_a_kind_of_its_own() -> None:
    tree = {kind for kind in leaves(errors.CasualMcpError) if kind.__module__ == errors.__name__}
    # An unknown name that is a ValueError too, as in casual-mcp: no kind for itself.
    tree.remove(errors.UnknownModelError)
    assert len({kind.kind for kind in tree}) == len(tree)  # type: ignore[attr-defined]
