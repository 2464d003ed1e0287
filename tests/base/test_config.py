"""The config as a value."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from casual_mcp_nb.base.config import (
    ClientConfig,
    Config,
    DiscoveryConfig,
    ModelConfig,
    ServerConfig,
)
from casual_mcp_nb.base.config_base import ConfigOrigin

LOOK = {"secrets": "masked"}


def test_the_defaults_are_those_of_the_documents() -> None:
    server = ServerConfig(command="x")
    assert (server.init_timeout, server.call_timeout, server.total_timeout) == (20, 60, 600)
    assert (server.defer_loading, server.approval, server.transport) == (False, None, None)
    assert DiscoveryConfig() == DiscoveryConfig(
        enabled=False, defer_all=False, max_search_results=5, strategy="search"
    )
    assert Config().servers == {}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "found none of them"),
        ({"command": ""}, "found none of them"),
        ({"command": "x", "bundled": "math"}, "found command and bundled"),
        ({"url": "https://a", "env": {"A": "b"}}, "env cannot be used with url"),
        ({"bundled": "math", "auth": "oauth"}, "auth cannot be used with bundled"),
        (
            {"bundled": "math", "transport": "http"},
            "transport with bundled is one of stdio, in-process",
        ),
    ],
)
def test_a_server_is_reached_in_exactly_one_way(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        ServerConfig(**fields)


def test_models_name_what_exists() -> None:
    with pytest.raises(ValidationError) as caught:
        Config(
            clients={"local": ClientConfig(provider="offline")},
            models={"m": ModelConfig(client="lokal", model="planner")},
        )
    assert "models.m.client: " in str(caught.value)
    assert "mean 'local'?" in str(caught.value)


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        ServerConfig(command="x").command = "y"


def test_where_a_config_came_from_does_not_make_it_another() -> None:
    data = {"servers": {"a": {"command": "x"}}}
    assert Config.model_validate(
        data, context=ConfigOrigin(notes=("a note",))
    ) == Config.model_validate(data)


@pytest.mark.fault(81)
def test_secrets_of_a_config_made_in_python_are_hidden() -> None:
    server = ServerConfig(
        url="https://me:planted-1@host/mcp?token=planted-2",
        headers={"X": SecretStr("planted-3")},
        auth=SecretStr("planted-4"),
    )
    client = ClientConfig(provider="openai", api_key=SecretStr("planted-5"))
    config = Config(servers={"s": server}, clients={"c": client})
    assert config.secrets() - {"bWU6cGxhbnRlZC0x"} == {f"planted-{n}" for n in range(1, 6)}
    for form in (
        repr(config),
        str(server),
        repr(config.model_dump(context=LOOK)),
        config.model_dump_json(context=LOOK),
        repr(client),
    ):
        assert "planted" not in form
    assert (client.key_state, ClientConfig(provider="ollama").key_state) == ("set", "not set")


def test_an_address_that_cannot_be_read_still_shows() -> None:
    assert "https://[broken" in repr(ServerConfig(url="https://[broken"))
