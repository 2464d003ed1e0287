"""Embeddings over each provider's wire: its SDK against a server on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from kit.provider import WITH_GOOGLE
from kit.scripted_http import Reply, Request, ScriptedHttp

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.discovery.meaning import EmbeddingModel, quantized
from casual_mcp_nb.errors import AuthenticationError, ProviderError
from casual_mcp_nb.providers.factory import ModelFactory

KEY = "sk-not-a-real-key"
WIRES = ("openai", "openai-responses", *(["gemini"] if WITH_GOOGLE else []), "ollama")
PATHS = {"gemini": "/v1/models/{model}:batchEmbedContents", "ollama": "/api/embed"}


def texts_of(request: Request) -> list[str]:
    """The texts that a request asks to embed, one for each vector that the real service would
    return.
    """
    if "requests" in request.body:
        assert len(request.body["requests"]) <= 100, "Google refuses more in a batch"
        return [
            "".join(part["text"] for part in each["content"]["parts"])
            for each in request.body["requests"]
        ]
    return list(request.body["input"])


def answer_of(request: Request, rows: list[Any]) -> Reply:
    """These vectors in the form of the wire that a request came over."""
    if "requests" in request.body:
        return Reply(body={"embeddings": [{"values": row} for row in rows]})
    if request.path == PATHS["ollama"]:
        return Reply(body={"model": "m", "embeddings": rows})
    data = [{"object": "embedding", "index": n, "embedding": row} for n, row in enumerate(rows)]
    return Reply(body={"object": "list", "data": data[::-1], "model": "m", "usage": {}})


class Service(ScriptedHttp):
    """An embedding server that speaks every wire: a vector has the length of its text."""

    def __init__(self) -> None:
        super().__init__(lambda request: self.reply(request))
        self.reply: Callable[[Request], Reply] = lambda request: answer_of(
            request, [[float(len(text)), 1.0] for text in texts_of(request)]
        )

    def model(
        self, provider: str, name: str = "small", url: str = "", **client: Any
    ) -> EmbeddingModel:
        base = (url or self.url) + ("/v1" if provider.startswith("openai") else "")
        config = Config.model_validate(
            {
                "clients": {
                    "desk": {
                        "provider": provider,
                        "base_url": base,
                        "api_key": KEY,
                        "timeout": 5,
                        **client,
                    }
                },
                "tool_discovery": {"embedding": {"client": "desk", "model": name}},
            }
        )
        embedding = config.tool_discovery.embedding
        assert embedding is not None
        return ModelFactory(config).embedding_model(embedding)


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as server:
        yield server


MODELS = [
    *((wire, "small") for wire in WIRES if wire != "gemini"),
    *(
        ("gemini", name)
        for name in ("gemini-embedding-001", "gemini-embedding-2", "text-embedding-004")
        if WITH_GOOGLE
    ),
]


@pytest.mark.parametrize(("provider", "name"), MODELS)
def test_each_text_gets_a_vector_in_its_place_in_batches_that_the_service_takes(
    service: Service, provider: str, name: str
) -> None:
    texts = ["x" * length for length in range(1, 251)]
    rows = asyncio.run(service.model(provider, name).embed(texts, False))
    assert [row[0] for row in rows] == [float(len(text)) for text in texts]
    assert [text for request in service.seen for text in texts_of(request)] == texts
    assert {request.path for request in service.seen} == {
        PATHS.get(provider, "/v1/embeddings").format(model=name)
    }
    assert all(KEY in str(request.headers) and KEY not in request.path for request in service.seen)


FAILURES: dict[str, tuple[Callable[[Request], Reply], str]] = {
    "wrong key": (
        lambda request: Reply(401, {"error": {"message": f"wrong key {KEY}"}}),
        "DESK_API_KEY",
    ),
    "unknown model": (lambda request: Reply(404, {"error": {"message": "no such model"}}), "name"),
    "overloaded": (lambda request: Reply(503, {"error": {"message": "busy"}}), "again"),
    "too many requests": (lambda request: Reply(429, {"error": {"message": "slow down"}}), "again"),
    "too long": (lambda request: Reply(400, {"error": {"message": "too long"}}), "message"),
    "reset": (lambda request: Reply(reset=True), "base_url"),
    "a web page": (lambda request: Reply(body="<html>"), "base_url"),
}


@pytest.mark.parametrize("provider", WIRES)
@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_names_a_remedy_and_not_the_key(
    service: Service, provider: str, failure: str
) -> None:
    service.reply, remedy = FAILURES[failure]
    with pytest.raises(ProviderError) as caught:
        asyncio.run(service.model(provider).embed(["a text"], False))
    assert remedy in caught.value.hint
    assert KEY not in f"{caught.value!r} {caught.value.hint}"
    assert caught.value.retryable is (failure in ("overloaded", "too many requests", "reset"))
    assert len(service.seen) == 1
    if failure == "wrong key":
        assert isinstance(caught.value, AuthenticationError)


@pytest.mark.parametrize("provider", WIRES)
@pytest.mark.parametrize(
    "rows", [[], [[1.0, 2.0]], [[1.0], [1.0, 2.0]]], ids=["none", "too few", "different lengths"]
)
def test_vectors_of_another_number_or_length_are_not_used(
    service: Service, provider: str, rows: list[list[float]]
) -> None:
    service.reply = lambda request: answer_of(request, rows)
    with pytest.raises((ProviderError, ValueError)):
        quantized(asyncio.run(service.model(provider).embed(["one", "another"], False)), 2)


@pytest.mark.parametrize("provider", WIRES)
def test_the_key_goes_to_the_configured_address_only(service: Service, provider: str) -> None:
    with Service() as elsewhere:
        service.reply = lambda request: Reply(
            307, "", headers={"location": f"{elsewhere.url}{request.path}"}
        )
        with suppress(ProviderError):
            asyncio.run(service.model(provider).embed(["a text"], False))
        assert service.seen
        assert not any(KEY in str(request.headers) + request.path for request in elsewhere.seen)


@pytest.mark.parametrize("provider", WIRES)
def test_a_server_that_is_down_is_named_in_the_remedy(service: Service, provider: str) -> None:
    with ScriptedHttp(lambda request: Reply()) as closed:
        url = closed.url
    with pytest.raises(ProviderError) as caught:
        asyncio.run(service.model(provider, url=url).embed(["a text"], False))
    assert "base_url" in caught.value.hint
    assert caught.value.retryable
