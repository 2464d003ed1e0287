"""A session without a config file: a model in one word, servers as they are typed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from kit.provider import Provider, answer
from kit.shops import shop

from casual_mcp_nb import Session
from casual_mcp_nb.base.secret import revealed
from casual_mcp_nb.config.loader import load_config
from casual_mcp_nb.config.quick import model_sections, quick_config, with_model
from casual_mcp_nb.errors import (
    AuthenticationError,
    MissingDependencyError,
    UnknownNameError,
    UsageError,
)
from casual_mcp_nb.providers.registry import ProviderSpec, specs

KEY = "sk-not-a-real-key-0123456789"


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "OPENAI_API_KEY",
        "QUICK_API_KEY",
        "LMSTUDIO_API_KEY",
        "ANTHROPIC_API_KEY",
        "OLLAMA_API_KEY",
    ):
        monkeypatch.delenv(name, raising=False)


def test_a_model_that_a_config_does_not_have_comes_first_in_a_copy() -> None:
    own = {"desk": {"provider": "offline"}}
    config = load_config({"clients": own, "models": {"one": {"client": "desk", "model": "a"}}})
    assert list(with_model(config, "offline:planner").models) == ["offline:planner", "one"]
    assert list(with_model(config, "one").models) == ["one"]
    assert list(config.models) == ["one"]
    with pytest.raises(UnknownNameError, match="'one'"):
        with_model(config, "onne")


def test_a_model_uses_the_configs_client_of_its_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    here = {"provider": "openai", "base_url": "http://127.0.0.1:1/v1", "api_key": "none"}
    config = with_model(load_config({"clients": {"openai": here}}), "openai:gpt-4.1")
    assert config.models["openai:gpt-4.1"].model == "gpt-4.1"
    assert config.clients["openai"].base_url == here["base_url"]


def test_a_model_needs_no_other_key_than_that_of_the_configs_client() -> None:
    here = {"provider": "openai", "api_key": KEY}
    config = with_model(load_config({"clients": {"openai": here}}), "openai:gpt-4.1")
    assert config.models["openai:gpt-4.1"].client == "openai"
    assert revealed([config.clients["openai"].api_key]) == {KEY}


def test_a_models_key_is_read_from_the_env_file_beside_the_config(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"OPENAI_API_KEY={KEY}\n")
    (tmp_path / "config.json").write_text('{"mcpServers": {}}')
    config = with_model(load_config(tmp_path / "config.json"), "openai:gpt-4.1")
    assert revealed([config.clients["openai"].api_key]) == {KEY}
    with pytest.raises(AuthenticationError):
        with_model(load_config({"servers": {}}), "openai:gpt-4.1")


def test_a_model_and_servers_are_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    with Provider(answer("openai", "Hello.")) as provider:
        servers = {
            "clock": "bundled:time",
            "math": {"bundled": "math", "transport": "in-process"},
            "shop": shop(),
        }
        with Session.quick(
            "openai:m-1", servers, base_url=f"{provider.url}/v1", system="Be brief."
        ) as session:
            assert {
                name: status.state for name, status in session.servers.items()
            } == dict.fromkeys(servers, "ready")
            assert session.model == "m-1"
            turn = session.chat("Hello?", echo="none")
            assert (turn.status, turn.answer) == ("done", "Hello.")
            assert provider.seen[-1].body["model"] == "m-1"


def test_without_a_model_the_offline_planner_answers() -> None:
    with Session.quick(servers=["math", "math"]) as session:
        assert list(session.servers) == ["math", "math-2"]
        assert session.status.provider == "offline"
    with Session.quick() as session:
        assert len(session.servers) == 0


def test_a_server_of_this_process_brings_its_name() -> None:
    with Session.quick(servers=["math", shop(), shop()]) as session:
        assert list(session.servers) == ["math", "shop", "shop-2"]
        assert session.servers.add(None, shop()).name == "shop-3"


def test_a_config_without_models_is_asked_with_a_model() -> None:
    config = {"mcpServers": {"math": {"bundled": "math", "transport": "in-process"}}}
    with Session(config) as session:
        with pytest.raises(UsageError) as caught:
            session.chat("What is 2 + 3?", echo="none")
        # The way out that is named keeps the config.
        assert "Session(…, model=" in caught.value.hint
    with Session(config, model="offline:planner") as session:
        assert "5" in session.chat("What is 2 + 3?", echo="none").answer


def test_a_key_comes_from_the_environment_and_is_never_shown() -> None:
    config, _ = quick_config("openai:gpt-4.1", environ={"OPENAI_API_KEY": KEY})
    client = config.clients["openai"]
    assert client.api_key is not None
    assert client.api_key.get_secret_value() == KEY
    assert KEY in config.secrets()
    assert KEY not in repr(config)


@pytest.mark.parametrize(
    "model", ["lmstudio:qwen3-4b", "llamacpp:any", "vllm:meta-llama/Llama-3.1-8B"]
)
def test_a_server_of_this_computer_does_not_get_the_key_of_a_provider(model: str) -> None:
    sections = model_sections(model, environ={"OPENAI_API_KEY": KEY})
    (client,) = sections["clients"].values()
    assert client["base_url"].startswith("http://127.0.0.1:")
    assert list(sections["models"]) == [model.partition(":")[2]]
    config, _ = quick_config(model, environ={"OPENAI_API_KEY": KEY})
    (read,) = config.clients.values()
    assert read.api_key is not None
    assert read.api_key.get_secret_value() == "none"


def test_another_address_has_a_separate_key() -> None:
    environ = {"OPENAI_API_KEY": KEY, "QUICK_API_KEY": "another-key"}
    config, _ = quick_config("openai:m", base_url="https://models.example/v1", environ=environ)
    (client,) = config.clients.values()
    assert client.api_key is not None
    assert client.api_key.get_secret_value() == "another-key"


def test_a_model_may_have_colons_in_its_name() -> None:
    config, _ = quick_config("ollama:qwen3:8b", environ={})
    assert config.models["qwen3:8b"].model == "qwen3:8b"
    assert config.clients["ollama"].provider == "ollama"


@pytest.mark.parametrize(
    ("model", "error", "says"),
    [
        ("opnai:gpt-4.1", UnknownNameError, "openai"),
        ("lmstudo:qwen", UnknownNameError, "lmstudio"),
        ("some-model-7b", UnknownNameError, "PROVIDER:MODEL"),
        ("mistral-large-latest", UnknownNameError, "PROVIDER:MODEL"),
        ("gpt-4.1", AuthenticationError, "OPENAI_API_KEY"),
        ("openai-chat:", UsageError, "openai:NAME"),
        ("anthropic-chat:claude-sonnet-5", UnknownNameError, "anthropic"),
        ("openai", UsageError, "openai:NAME"),
        ("openai:", UsageError, "openai:NAME"),
        ("openai:gpt-4.1", AuthenticationError, r"Set OPENAI_API_KEY, or .*\.env"),
        ("anthropic:claude-sonnet-5", AuthenticationError, "ANTHROPIC_API_KEY"),
    ],
)
def test_missing_requirements_are_named(model: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        quick_config(model, environ={})


def test_a_missing_sdk_is_named_with_the_command_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from importlib.metadata import PackageNotFoundError

    def version(name: str) -> Any:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("casual_mcp_nb.config.quick.version", version)
    with pytest.raises(MissingDependencyError, match=r"pip install 'casual-mcp-nb\[openai\]'"):
        quick_config("openai:gpt-4.1", environ={"OPENAI_API_KEY": KEY})


def test_the_demo_can_have_a_model() -> None:
    session = Session.demo("lmstudio:qwen3-4b")
    assert (session.model, session.status.provider) == ("qwen3-4b", "openai")
    assert len(session.servers) == 7
    session.close()


KEYS = {
    "OPENAI_API_KEY": KEY,
    "ANTHROPIC_API_KEY": KEY,
    "GEMINI_API_KEY": KEY,
    "GOOGLE_API_KEY": KEY,
}


def sent_to(model: str, **options: Any) -> tuple[str, str]:
    """The provider and the model that a word means."""
    (client,), (read,) = (
        model_sections(model, **{"environ": KEYS, **options})[name].values()
        for name in ("clients", "models")
    )
    return client["provider"], read["model"]


@pytest.mark.defect("H11")
@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("gpt-4.1", "openai"),
        ("GPT-4o-mini", "openai"),
        ("gpt-5-chat-latest", "openai"),
        ("gpt-5", "openai-responses"),
        ("gpt-5.4-mini", "openai-responses"),
        ("o3", "openai-responses"),
        ("claude-sonnet-5", "anthropic"),
        ("gemini-2.5-flash", "gemini"),
        ("llama3.2", "ollama"),
        ("llama3.2:3b", "ollama"),
        ("qwen3:8b", "ollama"),
        ("mistral", "ollama"),
        ("gpt-oss:20b", "ollama"),
        ("deepseek-r1", "ollama"),
    ],
)
def test_a_model_finds_its_provider_by_its_name(model: str, provider: str) -> None:
    assert sent_to(model) == (provider, model)


@pytest.mark.defect("H11")
def test_each_model_of_a_providers_table_finds_that_provider_alone() -> None:
    for spec in specs().values():
        for name in (*spec.models, spec.example_model):
            owners = [
                other.name
                for other in specs().values()
                if name and other.names and other.names.fullmatch(name)
            ]
            assert not name or owners == [spec.name.removesuffix("-responses")], name


@pytest.mark.defect("H11")
@pytest.mark.parametrize(
    ("model", "options", "provider"),
    [
        ("openai:gpt-5", {}, "openai-responses"),
        ("openai:gpt-4.1", {}, "openai"),
        ("openai-chat:gpt-5", {}, "openai"),
        ("openai-responses:gpt-4.1", {}, "openai-responses"),
        ("ollama:gpt-5", {}, "ollama"),
        # Elsewhere, few servers have more than chat completions.
        ("openai:gpt-5", {"base_url": "http://127.0.0.1:9/v1"}, "openai"),
        (
            "openai:gpt-5",
            {"environ": {**KEYS, "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}},
            "openai",
        ),
        ("lmstudio:gpt-5", {}, "openai"),
    ],
)
def test_a_model_that_reasons_is_asked_through_the_api_that_the_table_names(
    model: str, options: Any, provider: str
) -> None:
    assert sent_to(model, **options) == (provider, model.partition(":")[2])


@pytest.mark.defect("H11")
def test_a_name_of_several_providers_is_an_error_with_the_ways_to_write_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = ProviderSpec(
        name="other", about="", build=lambda name, config: None, names=re.compile("claude-.*")
    )  # type: ignore[arg-type,return-value]
    monkeypatch.setattr("casual_mcp_nb.config.quick.specs", lambda: {**specs(), "other": other})
    with pytest.raises(UsageError, match="anthropic:claude-x or other:claude-x"):
        sent_to("claude-x")


@pytest.mark.defect("H11")
def test_the_session_asks_the_api_that_was_found() -> None:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("OPENAI_API_KEY", KEY)
        environment.delenv("OPENAI_BASE_URL", raising=False)
        with Session.quick("gpt-5") as session:
            assert (session.model, session.status.provider) == ("gpt-5", "openai-responses")
