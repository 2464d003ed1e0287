"""Clients and models from a config."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import casual_llm
import pytest
from casual_llm.messages import AssistantMessage, UserMessage
from kit.provider import PROVIDERS, own_variable

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.base.tokens import TokenUsage
from casual_mcp_nb.cassettes.format import Cassette
from casual_mcp_nb.config.loader import load_config
from casual_mcp_nb.errors import ProviderError, UnknownNameError, UsageError, install
from casual_mcp_nb.providers.builtin.offline import OfflineClient
from casual_mcp_nb.providers.chat_model import ChatModel
from casual_mcp_nb.providers.factory import ModelFactory
from casual_mcp_nb.providers.registry import specs

KEY = "sk-planted-secret-0123456789"
CONFIG = Config.model_validate(
    {
        "clients": {
            "desk": {"provider": "openai", "api_key": KEY},
            "claude": {"provider": "anthropic", "api_key": KEY},
            "native": {"provider": "openai-responses", "api_key": KEY},
            "home": {"provider": "ollama", "api_key": KEY},
            "planner": {"provider": "offline"},
        },
        "models": {
            "large": {
                "client": "desk",
                "model": "m-large",
                "template": "plain.j2",
                "context_window": 128_000,
            },
            "small": {"client": "desk", "model": "m-small"},
            "sonnet": {"client": "claude", "model": "m-sonnet"},
            "o": {"client": "native", "model": "m-o"},
            "llama": {"client": "home", "model": "m-llama"},
            "offline": {"client": "planner", "model": "planner"},
        },
    }
)


def client_config(**client: Any) -> Config:
    return Config.model_validate(
        {"clients": {"my-desk": client}, "models": {"m": {"client": "my-desk", "model": "m"}}}
    )


async def test_a_client_is_made_once_and_shared_by_its_models() -> None:
    factory = ModelFactory(CONFIG)
    assert factory.get_client("desk") is factory.get_client("desk")
    assert factory.get_model("small") is factory.get_model("small")
    assert factory.chat_model("large").client is factory.chat_model("small").client
    await factory.close()


async def test_none_means_the_first_model_and_a_bound_model_knows_its_config() -> None:
    factory = ModelFactory(CONFIG)
    model = factory.chat_model()
    assert (model.name, model.client_name, model.provider, model.model) == (
        "large",
        "desk",
        "openai",
        "m-large",
    )
    assert (model.template, model.context_window) == ("plain.j2", 128_000)
    assert factory.chat_model(model) is model
    await factory.close()


@pytest.mark.parametrize(
    ("ask", "match"), [("get_client", "desk"), ("get_model", "small"), ("chat_model", "small")]
)
def test_an_unknown_name_is_answered_with_the_closest_ones(ask: str, match: str) -> None:
    with pytest.raises(UnknownNameError, match=f"Did you mean '{match}'"):
        getattr(ModelFactory(CONFIG), ask)(f"{match}l")


def test_an_unknown_model_is_an_error_with_the_way_to_start_it() -> None:
    with pytest.raises(UnknownNameError, match=r"Session\(…, model="):
        ModelFactory(CONFIG).chat_model("anthropic:claude-sonnet-5")


def test_a_config_without_models_says_so() -> None:
    with pytest.raises(UsageError, match="no model"):
        ModelFactory(Config()).chat_model()


@pytest.mark.defect("C12")
def test_every_provider_that_a_config_can_name_can_be_made(tmp_path: Path) -> None:
    Cassette().save(tmp_path / "lesson.json")
    clients = {
        name: {"provider": name, "api_key": KEY, "cassette": str(tmp_path / "lesson.json")}
        for name in specs()
    }
    factory = ModelFactory(load_config({"clients": clients}))
    assert all(
        factory.get_client(name)
        for name in specs()
        if importlib.util.find_spec(specs()[name].sdk or "casual_mcp_nb")
    )


@pytest.mark.parametrize("provider", ["openai", "openai-responses", "anthropic"])
@pytest.mark.fault(60)
def test_a_missing_key_is_reported_before_any_request_with_every_place_searched(
    provider: str,
) -> None:
    with pytest.raises(ProviderError) as caught:
        ModelFactory(client_config(provider=provider)).chat_model()
    places = (
        "clients.my-desk.api_key of the config, then MY_DESK_API_KEY, then"
        f" {own_variable(provider)}"
    )
    assert "'my-desk' has no API" in str(caught.value)
    assert places in str(caught.value)


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_server_of_ones_own_needs_no_key_and_gets_none_of_the_environment(
    provider: str, loopback: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(own_variable(provider), KEY)
    server = loopback({"error": "only the request matters"}, 500)
    factory = ModelFactory(client_config(provider=provider, base_url=server.url, max_retries=0))
    with pytest.raises(ProviderError):
        await factory.chat_model().complete([UserMessage(content="Hi")])
    await factory.close()
    assert KEY not in str(server.seen[0].headers)


@pytest.mark.parametrize("sdk", ["openai", "anthropic", "ollama"])
def test_a_missing_sdk_is_named_with_the_command_that_installs_it(sdk: str) -> None:
    code = f"""
import sys
sys.modules[{sdk!r}] = None
from casual_mcp_nb.errors import MissingDependencyError
from casual_mcp_nb.providers.factory import ModelFactory
from casual_mcp_nb.base.config import Config
config = Config.model_validate({{"clients": {{"desk": {{"provider": {sdk!r}, "api_key": "k"}}}}}})
try:
    ModelFactory(config).get_client("desk")
except MissingDependencyError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert re.search(rf"'desk' .*\bpackage {sdk}\. {re.escape(install(sdk))}", done.stdout)


@pytest.mark.fault(81)
async def test_no_key_is_in_the_text_forms_of_the_factory_its_clients_and_models() -> None:
    factory = ModelFactory(CONFIG)
    for name in CONFIG.models:
        model = factory.chat_model(name)
        for thing in (factory, model, model.client, factory.get_model(name), vars(model)):
            assert KEY not in f"{thing!r} {thing}"
    await factory.close()


async def test_a_closed_factory_makes_new_clients() -> None:
    factory = ModelFactory(CONFIG)
    before = factory.get_client("desk")
    await factory.close()
    await factory.close()
    assert before.client.is_closed()  # type: ignore[attr-defined]
    assert factory.get_client("desk") is not before
    await factory.close()


def test_the_offline_planner_is_a_provider() -> None:
    model = ModelFactory(CONFIG).chat_model("offline")
    assert isinstance(model.client, OfflineClient)
    assert model.provider == "offline"


class OwnClient:
    """A client of the person's own, by casual-llm's protocol only."""

    def __init__(self) -> None:
        self.options: Any = None

    async def _chat(
        self, model: str, messages: list[Any], options: Any
    ) -> tuple[AssistantMessage, casual_llm.Usage]:
        self.options = options
        return AssistantMessage(content=f"{model} says hi"), casual_llm.Usage(
            prompt_tokens=3, completion_tokens=2
        )


async def test_a_users_model_keeps_its_options_and_its_usage() -> None:
    client = OwnClient()
    options = casual_llm.ChatOptions(top_p=0.5, extra={"logprobs": True})
    own = casual_llm.Model(client, "mine", default_options=options, system_message_handling="merge")  # type: ignore[arg-type]
    model = ModelFactory(Config()).chat_model(own)
    answer = await model.complete(
        [UserMessage(content="Hi")], [{"name": "t", "description": "", "parameters": {}}]
    )
    assert answer.message.content == "mine says hi"
    assert answer.usage == TokenUsage(3, 2)
    assert own.get_usage() is None
    assert (client.options.top_p, client.options.system_message_handling) == (0.5, "merge")
    assert client.options.extra["logprobs"] is True
    assert client.options.extra["tools"][0]["function"]["name"] == "t"
    assert ChatModel.of(own, "pet").name == "pet"


class Careful(casual_llm.OpenAIClient):
    """A person's subclass that changes a request."""

    async def _chat(
        self, model: str, messages: list[Any], options: Any
    ) -> tuple[AssistantMessage, None]:
        return AssistantMessage(content="mine"), None


async def test_a_subclass_of_a_client_is_asked_through_its_own_method() -> None:
    client = Careful(api_key=KEY)
    answer = await ChatModel(client, "m").complete([UserMessage(content="Hi")])
    assert answer.message.content == "mine"
    assert answer.usage is None
    await client.client.close()
