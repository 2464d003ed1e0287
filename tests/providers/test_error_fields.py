"""The fields of a provider's error for programs: its cause, the id of the request, the status, and
the headers that matter.
"""

from __future__ import annotations

import json
import pickle
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from casual_llm.messages import UserMessage
from kit.provider import PROVIDERS, WITH_GOOGLE, answer
from kit.scripted_http import Reply
from kit.streams import KINDS, streamed

from casual_mcp_nb import Session, errors
from casual_mcp_nb.base.secret import Failure, failure_of, masked_error
from casual_mcp_nb.cassettes.interaction import plain_error, read_error
from casual_mcp_nb.cli.transcript import plain_end
from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.errors import CasualMcpError, ProviderError, RateLimitError
from casual_mcp_nb.providers.chat_model import ChatModel
from casual_mcp_nb.providers.registry import specs

pytestmark = pytest.mark.defect("H7")

KEY = "sk-planted-secret-0123456789"
SENT = {
    "X-Request-Id": "req_0123",
    "Retry-After": "7",
    "X-RateLimit-Remaining-Requests": "0",
    "Anthropic-RateLimit-Tokens-Reset": "2026-11-23T10:00:00Z",
    "RateLimit-Policy": f"100;w=60;key={KEY}",
    "Set-Cookie": "session=planted-cookie-42",
    "X-Api-Key": KEY,
    "Authorization": f"Bearer {KEY}",
    "Server": "nginx",
    "X-RateLimit-Note": "\x7f" + "x" * 5_000,
}
KEPT = {
    "x-request-id": "req_0123",
    "retry-after": "7",
    "x-ratelimit-remaining-requests": "0",
    "anthropic-ratelimit-tokens-reset": "2026-11-23T10:00:00Z",
    "ratelimit-policy": "100;w=60;key=**********",
    "x-ratelimit-note": "x" * 200,
}


def replies(provider: str) -> Iterator[tuple[str, Reply]]:
    """The ways in which a provider can fail after its headers have arrived."""
    yield "refused", Reply(429, {"error": {"message": "Too many"}}, SENT)
    yield "key", Reply(429, {"error": {"message": f"Too many for {KEY}"}}, SENT)
    yield "page", Reply(502, "<html>" + "x" * 40_000, SENT)
    yield "unreadable", Reply(200, "<html>not an answer</html>", SENT)
    yield (
        "cut",
        Reply(
            200,
            streamed(provider, ("I", " will"), end=False),
            {"content-type": KINDS[provider], **SENT},
        ),
    )


def test_every_provider_that_is_asked_over_http_is_tested_here() -> None:
    asked = {name for name, spec in specs().items() if spec.sdk}
    # LiteLLM needs an older package: its own tests run where it is installed.
    assert asked - {"litellm"} == {*PROVIDERS, *(() if WITH_GOOGLE else ("gemini",))}


@pytest.mark.parametrize("way", ["refused", "key", "page", "unreadable", "cut"])
async def test_an_error_keeps_the_request_id_and_the_headers_that_matter(
    provider: str, way: str, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    reply = dict(replies(provider))[way]
    model = model_of(serving(reply), provider, key=KEY, max_retries=0)
    with pytest.raises(ProviderError) as caught:
        await model.complete(
            [UserMessage(content="Hi")], on_event=lambda _: None, stream=way == "cut"
        )
    error = caught.value
    assert error.request_id == "req_0123"
    assert dict(error.headers) == KEPT
    assert "req_0123" in str(error)
    if reply.status >= 400:
        assert error.status == reply.status
        cause = error.__cause__
        assert cause is not None
        # The SDK's own error, unless its text has a secret in it or is very long.
        package = type(cause).__module__.partition(".")[0]
        assert package == (
            "casual_mcp_nb" if way in ("key", "page") else provider_package(provider)
        ), cause
        assert len(str(cause)) < 1_000
    assert KEY not in "".join(traceback.format_exception(error)) + repr(vars(error))
    again = pickle.loads(pickle.dumps(error))
    assert (again.request_id, again.status, dict(again.headers)) == (
        error.request_id,
        error.status,
        KEPT,
    )


def provider_package(provider: str) -> str:
    return {"gemini": "google", "openai-responses": "openai"}.get(provider, provider)


async def test_no_credential_is_left_in_the_request_of_a_cause(
    provider: str, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    model = model_of(
        serving(Reply(400, {"error": {"message": "No"}})),
        provider,
        key=KEY,
        headers={"X-Team": KEY},
    )
    with pytest.raises(ProviderError) as caught:
        await model.complete([UserMessage(content="Hi")], stream=False)
    each: BaseException | None = caught.value
    requests = []
    while each is not None:
        requests += [
            getattr(holder, "request", None) for holder in (each, getattr(each, "response", None))
        ]
        each = each.__cause__ or each.__context__
    assert any(requests)
    assert not [
        value
        for request in requests
        if request is not None
        for value in request.headers.values()
        if KEY in value
    ]


async def test_a_lost_connection_keeps_its_cause(
    provider: str, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    model = model_of(serving(Reply(reset=True)), provider, max_retries=0)
    with pytest.raises(ProviderError) as caught:
        await model.complete([UserMessage(content="Hi")], stream=False)
    assert caught.value.__cause__ is not None
    assert caught.value.request_id is None
    assert caught.value.headers == {}


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_has_the_request_id(
    provider: str, stream: bool, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    body = streamed(provider, ("Hello",)) if stream else answer(provider, "Hello")
    kind = {"content-type": KINDS[provider]} if stream else {}
    model = model_of(serving(Reply(200, body, {**kind, **SENT})), provider)
    response = await model.complete(
        [UserMessage(content="Hi")], on_event=lambda _: None, stream=stream
    )
    assert response.request_id == "req_0123"


def test_a_turn_keeps_the_fields_of_its_error_in_files(
    serving: Callable[..., Any], tmp_path: Path
) -> None:
    server = serving(Reply(429, {"error": {"message": "Too many"}}, SENT))
    with Session(server.config("openai", KEY, max_retries=0), in_process={}, trust=True) as session:
        turn = session.chat("Hi", echo="none")
        session.export(tmp_path / "talk.json")
        with session.serve.http(port=0) as service:
            messages = [{"role": "user", "content": "Hi"}]
            answered = httpx.post(
                f"{service.url}/chat", json={"model": "small", "messages": messages}, timeout=30
            )
    failure = turn.failure
    assert failure is not None
    assert (failure.kind, failure.status, failure.request_id, failure.retry_after) == (
        "rate_limit",
        429,
        "req_0123",
        7.0,
    )
    assert (failure.client, failure.model, failure.retryable) == ("desk", "m-1", True)
    assert dict(failure.headers) == KEPT
    assert plain_end(turn)["failure"] == failure.given()
    assert (answered.status_code, answered.headers["retry-after"]) == (503, "7")
    assert Failure(**answered.json()["failure"]) == failure
    text = (tmp_path / "talk.json").read_text() + answered.text
    assert KEY not in text
    assert "planted-cookie" not in text
    assert Conversation.load(tmp_path / "talk.json")[0].failure == failure


def errors_of_all_kinds(
    kind: type[CasualMcpError] = CasualMcpError,
) -> Iterator[type[CasualMcpError]]:
    yield kind
    for below in kind.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from errors_of_all_kinds(below)


@pytest.mark.parametrize("kind", [*errors_of_all_kinds()], ids=lambda kind: kind.__name__)
def test_a_masked_copy_is_of_the_same_kind_with_the_same_fields(kind: type[CasualMcpError]) -> None:
    names = (
        ("noun", KEY, ["x"]) if issubclass(kind, errors.UnknownNameError) else (f"It says {KEY}.",)
    )
    error = kind(*names)
    error.server = f"of {KEY}"
    if isinstance(error, ProviderError):
        error.status, error.request_id, error.headers = 418, "req_1", {"x-request-id": KEY}
    error.__cause__ = ValueError(KEY)
    copy = masked_error(error, [KEY])
    assert type(copy) is type(pickle.loads(pickle.dumps(error))) is kind
    assert KEY not in "".join(traceback.format_exception(copy)) + repr(vars(copy))
    assert failure_of(copy) is not None
    if isinstance(copy, ProviderError):
        assert (copy.status, copy.request_id, copy.headers) == (
            418,
            "req_1",
            {"x-request-id": "**********"},
        )


def test_an_error_comes_back_from_a_cassette_with_its_fields() -> None:
    error = RateLimitError(
        "No.", status=429, request_id="req_1", headers={"retry-after": "7"}, retry_after=7.0
    )
    again = read_error(json.loads(json.dumps(plain_error(error))), ProviderError)
    assert failure_of(again) == failure_of(error)
