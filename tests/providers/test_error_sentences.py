"""The message of a provider's error: its own sentence, once, however it was sent and however much
came with it.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from casual_llm.messages import UserMessage
from kit.provider import PROVIDERS
from kit.scripted_http import Reply
from kit.streams import reply, streamed

from casual_mcp_nb.errors import IncompleteStreamError, PermissionDeniedError, ProviderError
from casual_mcp_nb.providers._reading import MAX_BYTES
from casual_mcp_nb.providers.chat_model import ChatModel

ASKED = [UserMessage(content="Where is it?")]
KEY = "sk-planted-secret-0123456789"
SAID = "Model nope is not here"
BODIES = [
    {"error": {"message": SAID, "type": "invalid_request_error", "param": None, "code": "x"}},
    {"error": SAID},
    {"message": SAID, "object": "error", "type": "BadRequestError", "code": 400},
    {"detail": SAID},
    {"detail": [{"loc": ["body", "model"], "msg": SAID, "type": "value_error"}]},
    {"errors": [{"message": SAID}, {"message": SAID}]},
    [{"error": {"code": 400, "message": SAID, "status": "INVALID_ARGUMENT"}}],
    {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": SAID},
        "request_id": "req_1",
    },
    {"error": {"message": json.dumps({"error": {"message": SAID}})}},
    {
        "error": {
            "message": "Provider returned error",
            "metadata": {"raw": json.dumps({"message": SAID})},
        }
    },
]


async def failed(model: ChatModel, stream: bool = False) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await model.complete(ASKED, on_event=lambda _: None, stream=stream)
    return caught.value


@pytest.mark.defect("C9")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_the_providers_sentence_is_said_once_and_not_as_json(
    provider: str,
    body: Any,
    stream: bool,
    serving: Callable[..., Any],
    model_of: Callable[..., ChatModel],
) -> None:
    error = await failed(model_of(serving(Reply(400, body)), provider, max_retries=0), stream)
    assert error.status == 400
    # The cause is the SDK's own error, in the SDK's words.
    for text in (str(error), "".join(traceback.format_exception(error, chain=False))):
        assert text.count(SAID) == 1
        assert '{"' not in text
        assert "{'" not in text


@pytest.mark.defect("C9")
@pytest.mark.parametrize(
    "body",
    [
        "<html><h1>502 Bad Gateway</h1></html>",
        {"status": "nope"},
        b"\xff\xfe plain",
        b"[" * 100_000,
    ],
)
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_body_without_a_sentence_is_shown_as_it_begins(
    provider: str, body: Any, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    error = await failed(model_of(serving(Reply(400, body)), provider, max_retries=0))
    sent = (
        body
        if isinstance(body, str)
        else body.decode("utf-8", "replace")
        if isinstance(body, bytes)
        else json.dumps(body)
    )
    assert " ".join(sent.split())[:15] in str(error)
    assert len(str(error)) < 700


@pytest.mark.defect("C9")
@pytest.mark.parametrize("text", [(), ("Hel",)])
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_stream_without_an_end_says_so_once(
    provider: str,
    text: tuple[str, ...],
    serving: Callable[..., Any],
    model_of: Callable[..., ChatModel],
) -> None:
    body = streamed(provider, text, ("c1", "maps__find", "{}"), end=False)
    error = await failed(
        model_of(serving(reply(provider, body)), provider, max_retries=0), stream=True
    )
    assert type(error) is IncompleteStreamError
    for shown in (str(error), "".join(traceback.format_exception(error))):
        assert shown.count("the stream ended") == 1
        assert shown.count("the answer") == 1


@pytest.mark.defect("D9")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_refused_access_says_what_the_provider_says_and_does_not_blame_the_key(
    provider: str, stream: bool, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    said = "Access is only allowed at localhost:39103"
    for body in (said, {"error": {"message": said}}):
        error = await failed(model_of(serving(Reply(403, body)), provider), stream)
        assert type(error) is PermissionDeniedError
        assert said in str(error)
        assert "credentials" not in str(error)


def huge(beginning: bytes, times: int = 500) -> Iterator[bytes]:
    """A body of 50 MB that never ends well."""
    yield beginning
    for _ in range(times):
        yield b"no such model " * 7_500


@pytest.mark.defect("B3")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("beginning", [b'{"error": {"message": "', b"<html>"])
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_huge_body_is_read_to_a_limit_while_the_loop_goes_on(
    provider: str,
    beginning: bytes,
    stream: bool,
    serving: Callable[..., Any],
    model_of: Callable[..., ChatModel],
) -> None:
    sent: list[int] = []

    def pieces() -> Iterator[bytes]:
        for piece in huge(beginning):
            yield piece
            sent.append(len(piece))

    server = serving(Reply(400, pieces(), {"content-type": "application/json"}))
    error = await failed(model_of(server, provider, max_retries=0), stream)
    assert "no such model" in str(error)
    assert len(str(error)) < 700
    # What the system holds on the way is sent too.
    assert sum(sent) < 20_000_000
    assert error.__context__ is None or len(str(error.__context__)) <= 2 * MAX_BYTES


@pytest.mark.defect("B3")
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_not_even_half_a_key_is_shown_where_a_huge_body_is_cut(
    provider: str, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    for cut in (16_384, MAX_BYTES):
        for shift in range(0, 40, 6):
            body = b" " * (cut - shift) + KEY.encode() + b" " * 1_000_000
            error = await failed(
                model_of(serving(Reply(400, body)), provider, key=KEY, max_retries=0)
            )
            assert KEY[:6] not in "".join(traceback.format_exception(error))
