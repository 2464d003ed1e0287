"""LiteLLM under our client: streams, errors in our words, nothing sent elsewhere.

Runs where litellm is installed.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import casual_llm
import pytest
from casual_llm.messages import AssistantMessage, ChatMessage, UserMessage
from kit.provider import answer
from kit.scripted_http import Reply
from kit.streams import anthropic_blocks, reply, streamed

from casual_mcp_nb.base.config_base import RequestOptions
from casual_mcp_nb.base.tokens import TokenUsage
from casual_mcp_nb.errors import (
    AuthenticationError,
    BadRequestError,
    ContextOverflowError,
    IncompleteStreamError,
    MalformedAnswerError,
    OverloadedError,
    PermissionDeniedError,
    ProviderError,
    ProviderTimeoutError,
    RateLimitError,
)
from casual_mcp_nb.providers.builtin.litellm import LiteLLMClient, quiet_litellm
from casual_mcp_nb.providers.chat_model import ChatModel

pytest.importorskip("litellm")
# Its warnings are about its own types, and about connections that its own cache holds.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{kind}Warning")
    for kind in ("User", "Deprecation", "Resource")
]
pytestmark.append(
    pytest.mark.holds_the_loop("LiteLLM imports what a request needs while it makes the first one")
)

ASKED: list[ChatMessage] = [UserMessage(content="Where is it?")]
KEY = "sk-planted-secret-0123456789"
TOOL = {
    "name": "maps__find",
    "description": "Find a place.",
    "parameters": {"type": "object", "properties": {}},
}
CALLS = (("c1", "maps__find", '{"place": "Tromsø ☃"}'), ("c2", "noop", "{}"))
MODELS = {
    "openai": "openai/m-1",
    "anthropic": "anthropic/claude-3-7-sonnet-latest",
    "ollama": "ollama_chat/m-1",
}
WIRES = pytest.mark.parametrize("wire", MODELS)
WAYS = pytest.mark.parametrize("stream", [False, True])


@pytest.fixture(autouse=True)
async def connections() -> AsyncIterator[None]:
    """Close the connections that LiteLLM keeps open."""
    yield
    from litellm import close_litellm_async_clients

    await close_litellm_async_clients()


@pytest.fixture
def model_at(model_of: Callable[..., ChatModel]) -> Callable[..., ChatModel]:
    """The model at a server that speaks a wire format."""

    def make(server: Any, wire: str, **client: Any) -> ChatModel:
        base = f"{server.url}/v1" if wire == "openai" else server.url
        model = model_of(
            server, "litellm", base_url=base, **{"max_retries": 0, "key": KEY, **client}
        )
        model.model = MODELS[wire]
        return model

    return make


async def failure(model: ChatModel, stream: bool = False) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await model.complete(ASKED, [TOOL], on_event=lambda _: None, stream=stream)
    return caught.value


@WIRES
@WAYS
async def test_text_calls_usage_and_the_reason_come_back(
    wire: str, stream: bool, serving: Callable[..., Any], model_at: Callable[..., ChatModel]
) -> None:
    calls = [(name, json.loads(arguments)) for _, name, arguments in CALLS]
    body = (
        reply(wire, streamed(wire, ("Wa", "it ☃", "."), *CALLS))
        if stream
        else answer(wire, "Wait ☃.", *calls)
    )
    server = serving(body)
    said: list[Any] = []
    got = await model_at(server, wire).complete(ASKED, [TOOL], on_event=said.append, stream=stream)
    assert said == (["Wa", "it ☃", "."] if stream else [])
    assert got.message.content == "Wait ☃."
    assert [
        (call.function.name, json.loads(call.function.arguments))
        for call in got.message.tool_calls or ()
    ] == calls
    assert got.finish_reason == "tool_calls"
    assert got.usage is not None
    assert (got.usage.prompt_tokens, got.usage.completion_tokens) == (30, 7)
    (seen,) = server.seen
    assert KEY in seen.headers.get("authorization", "") + seen.headers.get("x-api-key", "")


@pytest.mark.parametrize("wire", ["openai", "ollama"])
async def test_a_stream_without_usage_has_none_and_not_what_litellm_guesses(
    wire: str, serving: Callable[..., Any], model_at: Callable[..., ChatModel]
) -> None:
    server = serving(reply(wire, streamed(wire, ("Hi",), usage=False)))
    assert (await model_at(server, wire).complete(ASKED, on_event=lambda _: None)).usage is None


async def test_an_answer_without_usage_has_none(
    serving: Callable[..., Any], model_at: Callable[..., ChatModel]
) -> None:
    server = serving(answer("openai", "Hi", usage=None))
    assert (await model_at(server, "openai").complete(ASKED)).usage is None


@WIRES
@pytest.mark.parametrize("how", ["cut", "no end mark"])
async def test_a_stream_that_stops_early_is_incomplete_and_its_text_is_kept(
    wire: str, how: str, serving: Callable[..., Any], model_at: Callable[..., ChatModel]
) -> None:
    body = streamed(wire, ("Wa", "it"), end=False)
    server = serving(
        reply(wire, body + b"\n" * 9, cut=len(body)) if how == "cut" else reply(wire, body)
    )
    error = await failure(model_at(server, wire), stream=True)
    assert isinstance(error, IncompleteStreamError)
    assert error.partial == "Wait"


BY_STATUS = {
    400: BadRequestError,
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: BadRequestError,
    429: RateLimitError,
    500: OverloadedError,
    503: OverloadedError,
}


@WIRES
@WAYS
@pytest.mark.parametrize(("status", "kind"), BY_STATUS.items())
async def test_a_refusal_is_the_error_of_its_status_after_one_request_and_shows_no_key(
    wire: str,
    stream: bool,
    status: int,
    kind: type[ProviderError],
    serving: Callable[..., Any],
    model_at: Callable[..., ChatModel],
) -> None:
    said = {"error": {"type": "x", "message": f"no good: {KEY}"}}
    server = serving(Reply(status, said, {"Retry-After": "7"}))
    error = await failure(model_at(server, wire), stream)
    assert type(error) is kind
    assert error.status == status
    assert error.retry_after == 7
    # LiteLLM masks some by itself.
    assert re.search(r"no good: (\*{10}|REDACTED)", str(error))
    assert KEY not in str(error)
    assert "Traceback" not in str(error)
    assert len(server.seen) == 1


async def test_too_much_text_is_recognised(
    serving: Callable[..., Any], model_at: Callable[..., ChatModel]
) -> None:
    said = (
        "This model's maximum context length is 8192 tokens. However, your messages resulted in"
        " 9001 tokens."
    )
    server = serving(Reply(400, {"error": {"message": said}}))
    assert type(await failure(model_at(server, "openai"))) is ContextOverflowError


@WIRES
async def test_a_page_instead_of_an_answer_is_one_clear_error(
    wire: str, serving: Callable[..., Any], model_at: Callable[..., ChatModel]
) -> None:
    error = await failure(model_at(serving("<html><body>Log in here</body></html>"), wire))
    assert type(error) is MalformedAnswerError
    assert "Traceback" not in str(error)


@WIRES
@WAYS
async def test_a_refused_connection_names_the_address(
    wire: str, stream: bool, serving: Callable[..., Any], model_at: Callable[..., ChatModel]
) -> None:
    model = model_at(serving(""), wire)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        model.client.client.base_url = f"http://127.0.0.1:{taken.getsockname()[1]}"  # type: ignore[attr-defined]
        error = await failure(model, stream)
        assert f"http://127.0.0.1:{taken.getsockname()[1]} cannot be reached" in str(error)
    assert error.retryable


async def test_a_silent_provider_is_given_up_at_the_clients_timeout(
    serving: Callable[..., Any], model_at: Callable[..., ChatModel]
) -> None:
    error = await failure(model_at(serving(Reply(silent=True)), "openai", timeout=0.3))
    assert type(error) is ProviderTimeoutError


@pytest.mark.defect("D7")
@WAYS
async def test_options_go_through_litellm_and_what_it_refuses_is_left_out(
    stream: bool, serving: Callable[..., Any], model_at: Callable[..., ChatModel]
) -> None:
    done = reply("openai", streamed("openai", ("Hi",))) if stream else answer("openai", "Hi")
    server = serving(Reply(400, {"error": {"message": "Unsupported parameter: 'seed'"}}), done)
    options = {
        "temperature": 0.3,
        "seed": 7,
        "stop": "END",
        "tool_choice": "maps__find",
        "extra_body": {"route": "fast"},
        "extra_headers": {"X-Team": KEY},
    }
    model = model_at(server, "openai", headers={"X-Desk": "desk"}, timeout=60).with_options(
        RequestOptions.of(options)
    )
    await model.complete(ASKED, [TOOL], on_event=lambda _: None, stream=stream)
    first, second = server.seen
    assert (first.body["seed"], "seed" in second.body) == (7, False)
    assert (second.body["temperature"], second.body["stop"], second.body["route"]) == (
        0.3,
        ["END"],
        "fast",
    )
    assert second.body["tool_choice"] == {"type": "function", "function": {"name": "maps__find"}}
    assert (second.headers["x-team"], second.headers["x-desk"]) == (KEY, "desk")


@WAYS
async def test_signed_thinking_of_claude_goes_back_through_litellm(
    stream: bool, serving: Callable[..., Any], model_at: Callable[..., ChatModel]
) -> None:
    thought = {"type": "thinking", "thinking": "Hmm.", "signature": "c2lnbmVk"}
    call = {"type": "tool_use", "id": "c1", "name": "maps__find", "input": {}}
    whole = {**answer("anthropic", ""), "content": [thought, call], "stop_reason": "tool_use"}
    server = serving(
        reply("anthropic", anthropic_blocks([thought, call], "tool_use")) if stream else whole
    )
    model = model_at(server, "anthropic")
    model.default_options = casual_llm.ChatOptions(
        max_tokens=4_000, extra={"thinking": {"type": "enabled", "budget_tokens": 2_000}}
    )
    got = await model.complete(ASKED, [TOOL], on_event=lambda _: None, stream=stream)
    result = casual_llm.ToolResultMessage(name="maps__find", tool_call_id="c1", content="north")
    await model.complete(
        [*ASKED, got.message, result], [TOOL], on_event=lambda _: None, stream=stream
    )
    assert server.seen[1].body["thinking"] == {"type": "enabled", "budget_tokens": 2_000}
    assert server.seen[1].body["messages"][1]["content"] == [thought, call]


@pytest.mark.parametrize("variable", ["OPENAI_API_KEY", "LITELLM_API_KEY"])
async def test_a_server_of_ones_own_gets_no_key_of_the_environment(
    variable: str,
    serving: Callable[..., Any],
    model_at: Callable[..., ChatModel],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(variable, KEY)
    for wire in MODELS:
        server = serving(answer(wire, "Hi"))
        await model_at(server, wire, key="").complete(ASKED)
        assert KEY not in str(server.seen[0].headers)


async def test_a_key_that_litellm_found_is_masked_when_a_provider_echoes_it(
    serving: Callable[..., Any], model_at: Callable[..., ChatModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = "planted:key.of,another/shape"
    monkeypatch.setenv("OPENAI_API_KEY", planted)
    server = serving(Reply(401, {"error": {"message": f"Incorrect API key: {planted}"}}))
    model = model_at(server, "openai")
    monkeypatch.setattr(model.client.client, "api_key", None)  # type: ignore[attr-defined]
    error = await failure(model)
    assert planted in server.seen[0].headers["authorization"]
    assert planted not in str(error)


async def test_a_name_without_a_provider_uses_openais_format_where_there_is_an_address(
    serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = serving(answer("openai", "Hi"))
    got = await model_of(server, "litellm").complete(ASKED)
    assert (got.message.content, server.seen[0].body["model"]) == ("Hi", "m-1")


async def test_casual_llms_own_model_works_over_the_client(serving: Callable[..., Any]) -> None:
    server = serving(answer("openai", "Hi"), reply("openai", streamed("openai", ("a", "b"))))
    model = casual_llm.Model(LiteLLMClient(api_key="k", base_url=f"{server.url}/v1"), "m-1")
    message = await model.chat(ASKED)
    usage = model.get_usage()
    assert isinstance(message, AssistantMessage)
    assert (message.content, usage and usage.total_tokens) == ("Hi", 37)
    assert "".join([chunk.content async for chunk in model.stream(ASKED)]) == "ab"
    assert TokenUsage(30, 7).total_tokens == 37


def test_its_import_asks_nobody_reads_no_env_file_and_leaves_its_callbacks_alone(
    tmp_path: Any,
) -> None:
    (tmp_path / ".env").write_text("PLANTED=1\n")
    code = """
import os, socket
def refuse(*args, **kwargs):
    raise SystemExit("a connection was tried")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
from casual_mcp_nb.providers.builtin.litellm import quiet_litellm
litellm = quiet_litellm()
print(litellm.callbacks, litellm.success_callback, litellm.num_retries, os.environ.get("PLANTED"))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[] [] None None"), done.stderr


def test_what_a_person_set_for_litellm_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_MODE", "DEV")
    quiet_litellm()
    import os

    assert os.environ["LITELLM_MODE"] == "DEV"
