"""The use of the environment before a config is accepted, and the changes of an accepted one that
need no question.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kit.provider import PROVIDERS, Provider, answer, own_variable
from kit.secrets import assert_nowhere, planted
from pydantic import BaseModel

from casual_mcp_nb import Session, TrustRequiredError, doors, load_config
from casual_mcp_nb.base.config import ClientConfig, Config, ModelConfig, ServerConfig
from casual_mcp_nb.config.trust import TrustStore
from casual_mcp_nb.providers.factory import ModelFactory
from casual_mcp_nb.providers.registry import specs

AT_HOME = "http://127.0.0.1:4321/v1"
LANGUAGE_MODELS = [name for name, spec in specs().items() if spec.is_language_model]


def state_of(file: Path, config: Mapping[str, Any], environ: Mapping[str, str]) -> set[str]:
    file.write_text(json.dumps(config))
    return {
        entry.state
        for entry in TrustStore(file.parent / "trust").entries(load_config(file, environ=environ))
    }


def one_client(
    name: str = "desk", model: Mapping[str, Any] | None = None, **client: Any
) -> dict[str, Any]:
    return {
        "clients": {name: client},
        "models": {"m": {"client": name, "model": "m-1", **(model or {})}},
    }


@pytest.mark.defect("F5")
@pytest.mark.parametrize("provider", LANGUAGE_MODELS)
def test_a_key_of_the_environment_goes_unasked_to_its_own_provider_only(
    provider: str, tmp_path: Path
) -> None:
    own = specs()[provider].key_variable
    everywhere = {
        spec.key_variable: planted("key") for spec in specs().values() if spec.key_variable
    }
    file = tmp_path / "config.json"
    elsewhere = one_client(provider=provider, base_url=AT_HOME)
    assert state_of(file, one_client(provider=provider), everywhere) == {"harmless"}
    # LiteLLM finds keys by itself, whatever was loaded.
    assert state_of(file, elsewhere, {}) == {"harmless" if own else "new"}
    if own:
        assert state_of(file, elsewhere, everywhere) == {"new"}
    assert state_of(file, elsewhere, {"DESK_API_KEY": planted("key")}) == {"new"}
    # The name of a client is the config's choice, so it could name anybody's key.
    for other in everywhere.keys() - {own}:
        named = one_client(name=other.removesuffix("_API_KEY"), provider=provider)
        assert state_of(file, named, {other: planted("key")}) == {"new"}


@pytest.mark.defect("F5")
@pytest.mark.parametrize(
    ("changes", "beside"),
    [
        (
            {
                "clients": {
                    "desk": {"provider": "openai", "base_url": AT_HOME, "api_key": "${TOKEN}"}
                }
            },
            "",
        ),
        (
            {
                "clients": {
                    "desk": {"provider": "openai", "base_url": AT_HOME, "api_key": "${env:TOKEN}"}
                }
            },
            "",
        ),
        (
            {
                "clients": {
                    "desk": {"provider": "openai", "base_url": AT_HOME, "api_key": "${input:token}"}
                }
            },
            "",
        ),
        (
            {
                "clients": {
                    "desk": {"provider": "openai", "base_url": f"{AT_HOME}?${{input:token}}"}
                }
            },
            "",
        ),
        (
            {
                "clients": {
                    "desk": {
                        "provider": "openai",
                        "base_url": AT_HOME,
                        "headers": {"X-A": "${input:token}"},
                    }
                }
            },
            "",
        ),
        ({"clients": {"desk": {"provider": "openai"}}}, "DESK_API_KEY=${TOKEN}\n"),
        ({"clients": {"desk": {"provider": "openai"}}}, "A=${TOKEN}\nOPENAI_API_KEY=${A}\n"),
        (
            {
                "models": {
                    "m": {
                        "client": "desk",
                        "model": "m-1",
                        "extra_headers": {"X-A": "${input:token}"},
                    }
                }
            },
            "",
        ),
        (
            {
                "models": {
                    "m": {"client": "desk", "model": "m-1", "extra_body": {"user": "${TOKEN}"}}
                }
            },
            "",
        ),
        ({"models": {"m": {"client": "desk", "model": "${TOKEN}"}}}, ""),
        (
            {
                "servers": {
                    "math": {"bundled": "math", "instructions": True, "exclude_tools": ["${TOKEN}"]}
                }
            },
            "",
        ),
        ({"clients": {"desk": {"provider": "litellm", "base_url": AT_HOME}}}, ""),
        (
            one_client(
                provider="litellm", model={"model": "huggingface/https://models.example/v1"}
            ),
            "",
        ),
    ],
)
def test_no_other_way_takes_a_value_of_the_environment_away_unasked(
    changes: dict[str, Any], beside: str, tmp_path: Path
) -> None:
    plain = {
        "clients": {"desk": {"provider": "openai"}},
        "models": {"m": {"client": "desk", "model": "m-1"}},
    }
    (tmp_path / ".env").write_text(beside)
    assert "new" in state_of(
        tmp_path / "config.json", {**plain, **changes}, {"TOKEN": planted("token")}
    )


@pytest.mark.defect("F5")
@pytest.mark.usefixtures("asks_first")
def test_a_local_port_gets_no_key_until_the_config_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = planted("key")
    monkeypatch.setenv("OPENAI_API_KEY", key)
    file = tmp_path / "config.json"
    with Provider(answer("openai", "Noon.")) as server:
        file.write_text(json.dumps(one_client(provider="openai", base_url=f"{server.url}/v1")))
        session = Session.from_config(file)
        with pytest.raises(TrustRequiredError):
            session.chat("When?")
        assert server.seen == []
        session.consent.trust().accept()
        assert session.chat("When?").answer == "Noon."
        session.close()
    assert server.seen[0].headers["authorization"] == f"Bearer {key}"


SDK_VARIABLES = {
    "OPENAI_ADMIN_KEY": "{}",
    "OPENAI_ORG_ID": "{}",
    "OPENAI_PROJECT_ID": "{}",
    "OPENAI_CUSTOM_HEADERS": "X-Gateway: {}\nAuthorization: Bearer {}",
    "ANTHROPIC_AUTH_TOKEN": "{}",
    "ANTHROPIC_CUSTOM_HEADERS": "X-Gateway: {}\nX-Api-Key: {}",
    "GOOGLE_API_KEY": "{}",
    "GOOGLE_CLOUD_PROJECT": "{}",
}
"""What SDKs read by themselves besides the providers' own keys."""


@pytest.mark.defect("F5")
@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_sdk_sends_nothing_of_the_environment_to_an_address_of_the_config(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from casual_llm.messages import UserMessage

    secret = planted("environment")
    for name, form in {
        **dict.fromkeys(map(own_variable, PROVIDERS), "{}"),
        **SDK_VARIABLES,
    }.items():
        monkeypatch.setenv(name, form.replace("{}", secret))
    with Provider(answer(provider, "Noon.")) as server:
        config = server.config(provider, headers={"X-Own": "1"})
        del config["clients"]["desk"]["api_key"]
        model = ModelFactory(load_config(config, environ={})).chat_model()
        asyncio.run(model.complete([UserMessage(content="When?")]))
    assert_nowhere([secret], server.seen)
    assert server.seen[0].headers["x-own"] == "1"


ENTRIES: dict[str, dict[str, Any]] = {
    "clients": {"provider": "openai", "base_url": "https://models.example/v1"},
    "models": {"client": "entry", "model": "m-1"},
    "command": {"command": "shop-server", "enabled": True},
    "url": {"url": "https://shop.example/mcp"},
    "account": {"url": "https://shop.example/mcp", "auth": "oauth"},
    "bundled": {"bundled": "math"},
    "folder": {"bundled": "files", "args": ["."]},
}
"""What is accepted: one entry of each section, and of servers one of each way to reach them."""

ASKED: dict[str, tuple[str, Any]] = {
    "clients.provider": ("clients", "anthropic"),
    "clients.base_url": ("clients", "https://other.example/v1"),
    "clients.api_key": ("clients", "sk-in-the-config-0123456789"),
    "clients.headers": ("clients", {"X-App": "1"}),
    "clients.cassette": ("clients", "other.json"),
    "models.hosted_tools": ("models", ["web_search"]),
    "models.extra_body": ("models", {"tools": []}),
    "models.extra_headers": ("models", {"X-Target": "1"}),
    "servers.command": ("command", "other-server"),
    "servers.args": ("command", ["--all"]),
    "servers.env": ("command", {"NODE_OPTIONS": "--require ./x.js"}),
    "servers.cwd": ("command", "elsewhere"),
    "servers.url": ("url", "https://other.example/mcp"),
    "servers.headers": ("url", {"X-App": "1"}),
    "servers.auth": ("url", "oauth"),
    "servers.sign_in": ("account", {"client_id": "another"}),
    "servers.transport": ("url", "sse"),
    "servers.bundled": ("folder", "sqlite"),
    "servers.enabled": ("command", False),
    "servers.include_tools": ("bundled", ["add"]),
    "servers.exclude_tools": ("bundled", ["add"]),
    "servers.instructions": ("bundled", False),
    "servers.approval": ("bundled", "always"),
    "servers.pin_tools": ("bundled", True),
    "servers.roots": ("command", ["data"]),
    "servers.sampling": ("command", True),
    "servers.apps": ("command", False),
    "strict": ("", True),
    "store": ("", False),
    "registry": ("", "https://registry.example"),
    "apps": ("", False),
}
"""What is part of a trust fact: for each field, an entry and another value of the field."""

UNASKED = {
    "clients": "each is compared itself",
    "models": "their fields are compared with those of their clients",
    "servers": "each is compared itself",
    "tool_sets": (
        "a choice among the tools that the servers' facts allow; approval stays; the explorer"
        " writes them"
    ),
    "tool_discovery": "how tools are found, not which ones may run",
    "prices": "numbers for estimates",
    "servers.descriptions": (
        "texts that the model reads, as templates are; each call still follows its policy"
    ),
    "tool_results": "how much of a result the model reads",
    "limits": "less is spent with a limit, and as much as before without",
    "clients.timeout": "patience",
    "clients.max_retries": "patience",
    "clients.requests_per_minute": "pace",
    "clients.tokens_per_minute": "pace",
    "clients.prompt_caching": "cost, at the same provider",
    "clients.cache_diagnostics": "a question to the same provider",
    "clients.native_deferral": "how the same tools are sent to the same provider",
    "models.client": "another entry, which is compared itself",
    "models.model": (
        "another model of the same provider; part of the facts where the name can be an address"
    ),
    "models.template": "a sandboxed text of the folder of templates",
    "models.context_window": "how much history is sent to the same provider",
    "models.thinking_tokens": "cost",
    "models.small": (
        "how a model is helped, and what of its calls is repaired; each still follows its policy"
    ),
    "models.repair_calls": "how calls of offered tools are read; each still follows its policy",
    "models.temperature": "style",
    "models.max_tokens": "cost",
    "models.top_p": "style",
    "models.seed": "style",
    "models.stop": "style",
    "models.tool_choice": (
        "which offered tool the model prefers; each call still follows its policy"
    ),
    "models.parallel_tool_calls": (
        "how many calls come in one answer; each still follows its policy"
    ),
    "models.reasoning_effort": "cost",
    "servers.protocol": (
        "the same server in another version; what only old versions have are `roots` and `sampling`"
    ),
    "servers.defer_loading": "how tools are found",
    "servers.always_load": "how tools are found",
    "servers.init_timeout": "patience",
    "servers.call_timeout": "patience",
    "servers.total_timeout": "patience",
    "servers.task_wait": "patience",
    "servers.max_result_tokens": "how much of a result the model reads",
}
"""The fields that may change without a question, each with the reason."""

MODELS: dict[str, type[BaseModel]] = {
    "": Config,
    "clients.": ClientConfig,
    "models.": ModelConfig,
    "servers.": ServerConfig,
}


def accepted_config() -> dict[str, Any]:
    entries = json.loads(json.dumps(ENTRIES))
    servers = {way: entries[way] for way in ("command", "url", "account", "bundled", "folder")}
    return {
        "clients": {"entry": entries["clients"]},
        "models": {"entry": entries["models"]},
        "servers": servers,
    }


@pytest.mark.defect("F6")
def test_each_field_of_a_config_is_asked_about_or_has_a_reason() -> None:
    fields = {f"{prefix}{name}" for prefix, model in MODELS.items() for name in model.model_fields}
    assert ASKED.keys() & UNASKED.keys() == set()
    assert sorted(fields - ASKED.keys() - UNASKED.keys()) == [], (
        "fields that nobody has decided about"
    )
    assert sorted({*ASKED, *UNASKED} - fields) == [], "there are no such fields"


@pytest.mark.defect("F6")
@pytest.mark.parametrize("field", ASKED)
def test_a_field_that_protects_is_asked_about_in_both_directions(
    field: str, tmp_path: Path
) -> None:
    where, value = ASKED[field]
    plain, other = accepted_config(), accepted_config()
    entry = {
        "": other,
        "clients": other["clients"].get("entry"),
        "models": other["models"]["entry"],
    }.get(where, other["servers"].get(where))
    assert entry is not None
    entry[field.rpartition(".")[2]] = value
    file, store = tmp_path / "config.json", TrustStore(tmp_path / "trust")

    def read(config: Mapping[str, Any]) -> Config:
        file.write_text(json.dumps(config))
        return load_config(file, environ={})

    for before, after in ((plain, other), (other, plain)):
        store.accept(read(before))
        assert {each.state for each in store.entries(read(before))} <= {"trusted", "harmless"}
        changed = [each for each in store.entries(read(after)) if each.state == "changed"]
        assert len(changed) == 1
        # What is gone is shown, too.
        assert set(changed[0].changed) <= {label for label, _ in changed[0].facts}


@pytest.mark.defect("F6")
@pytest.mark.usefixtures("asks_first")
@pytest.mark.parametrize("options", [{}, {"strict": False}])
def test_a_config_that_is_no_longer_strict_starts_nothing(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    file = tmp_path / "config.json"
    servers = {"time": {"bundled": "time", "transport": "in-process"}}
    file.write_text(json.dumps({"strict": True, "servers": servers}))
    with closing(Session.from_config(file)) as session:
        assert session.consent.trust().required
        session.consent.trust().accept()
        assert not session.consent.trust().required
    file.write_text(json.dumps({"servers": servers, **options}))
    with closing(Session.from_config(file)) as session, pytest.raises(TrustRequiredError):
        session.connect()


@pytest.mark.usefixtures("asks_first")
@pytest.mark.parametrize(
    ("door", "way"), [("notebook", "%mcp trust"), ("python", "session.consent.trust()")]
)
def test_a_config_that_was_not_accepted_says_how_to_read_and_accept_it(
    tmp_path: Path, door: doors.Door, way: str
) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"servers": {"shop": {"command": "shop"}}}))
    with closing(Session.from_config(file)) as session, doors.at(door):
        with pytest.raises(TrustRequiredError) as caught:
            session.connect()
        assert caught.value.hint.startswith(f"Read {way}, then ")
