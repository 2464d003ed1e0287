"""Values of a server's entry that other hosts take as they are meant."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from casual_mcp_nb.base.config import ClientConfig, ServerConfig, SignInConfig


@pytest.mark.defect("M19")
@pytest.mark.parametrize(
    ("entry", "field", "value"),
    [
        (
            {"command": "x", "args": ["--port", 8080, 1.5, True]},
            "args",
            ("--port", "8080", "1.5", "true"),
        ),
        ({"command": "x", "env": {"GONE": None, "KEPT": 5}}, "env", {"KEPT": "5"}),
        (
            {"url": "http://127.0.0.1/mcp", "headers": {"X-Gone": None, "X-Kept": 7}},
            "headers",
            {"X-Kept": "7"},
        ),
        ({"url": " http://127.0.0.1/mcp\n"}, "url", "http://127.0.0.1/mcp"),
        ({"command": " npx "}, "command", "npx"),
    ],
)
def test_a_value_is_read_as_other_hosts_read_it(
    entry: dict[str, Any], field: str, value: Any
) -> None:
    read = getattr(ServerConfig.model_validate(entry), field)
    if isinstance(read, dict):
        read = {name: secret.get_secret_value() for name, secret in read.items()}
    assert read == value


@pytest.mark.defect("M19")
def test_spaces_around_other_addresses_are_dropped_too() -> None:
    assert (
        ClientConfig(provider="openai", base_url=" http://127.0.0.1/v1 ").base_url
        == "http://127.0.0.1/v1"
    )
    assert SignInConfig(issuer="https://id.example ").issuer == "https://id.example"


@pytest.mark.defect("M19")
@pytest.mark.parametrize(
    "entry",
    [
        {"command": "x", "args": [None]},
        {"command": "x", "args": [[]]},
        {"command": "x", "env": {"X": []}},
        {"url": " "},
    ],
)
def test_what_means_nothing_is_still_refused(entry: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ServerConfig.model_validate(entry)
