"""Ollama's server is told how much the model can read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from casual_llm.messages import UserMessage
from kit.provider import answer

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.providers.factory import ModelFactory


@pytest.mark.parametrize(
    ("window", "options"),
    [(32_000, {"num_ctx": 32_000, "num_predict": 99}), (None, {"num_predict": 99})],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_the_context_window_of_the_config_goes_with_each_request(
    window: int | None,
    options: dict[str, int],
    stream: bool,
    serving: Callable[..., Any],
    factory_for: Callable[..., ModelFactory],
) -> None:
    server = serving(answer("ollama", "Noon."))
    config = server.config("ollama")
    config["models"]["small"] |= {"context_window": window, "max_tokens": 99}
    await (
        factory_for(Config.model_validate(config))
        .chat_model()
        .complete([UserMessage(content="When?")], stream=stream)
    )
    body = server.seen[0].body
    assert body["options"] == options
    assert "num_ctx" not in body


@pytest.mark.parametrize("provider", ["openai", "openai-responses", "anthropic"])
async def test_other_providers_are_not_told(
    provider: str, serving: Callable[..., Any], factory_for: Callable[..., ModelFactory]
) -> None:
    server = serving(answer(provider, "Noon."))
    config = server.config(provider)
    config["models"]["small"]["context_window"] = 32_000
    await (
        factory_for(Config.model_validate(config))
        .chat_model()
        .complete([UserMessage(content="When?")], stream=False)
    )
    assert "num_ctx" not in repr(server.seen[0].body)
