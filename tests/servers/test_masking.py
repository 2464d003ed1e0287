from __future__ import annotations

import pytest

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.secret import MASK, redacted
from casual_mcp_nb.servers.redaction import clean, secrets_of, shown_address


def test_secrets_are_masked_the_longest_first_and_very_short_ones_not() -> None:
    assert redacted("abcdef abcd xy", ["abcd", "abcdef", "xy"]) == f"{MASK} {MASK} xy"


def test_env_headers_and_auth_are_secrets_also_without_their_scheme() -> None:
    stdio = ServerConfig.model_validate({"command": "x", "env": {"TOKEN": "s3cret-env"}})
    assert "s3cret-env" in secrets_of(stdio)
    remote = ServerConfig.model_validate(
        {
            "url": "https://x.org",
            "headers": {"Authorization": "Bearer t0ken"},
            "auth": "0ther-token",
        }
    )
    assert {"Bearer t0ken", "t0ken", "0ther-token"} <= secrets_of(remote)
    assert secrets_of(None) == frozenset()


def test_an_address_shows_no_user_no_query_and_no_token_in_its_path() -> None:
    config = ServerConfig(
        url="https://me:pass@x.org:8443/s/a1b2c3d4e5f6a7b8c9d0e1f2/mcp?key=hunter2#f"
    )
    assert shown_address(config) == f"https://x.org:8443/s/{MASK}/mcp"
    assert {"pass", "hunter2", "a1b2c3d4e5f6a7b8c9d0e1f2"} <= secrets_of(config)


@pytest.mark.parametrize(
    "args", [("--api-key", "hunter2"), ("--token=hunter2",), ("--Password", "hunter2")]
)
def test_a_command_is_shown_without_the_values_of_secret_options(args: tuple[str, ...]) -> None:
    shown = shown_address(ServerConfig(command="npx", args=("-y", "server", *args)))
    assert shown.startswith("npx -y server")
    assert "hunter2" not in shown


def test_hidden_characters_become_marks_and_terminal_escapes_are_removed() -> None:
    assert (
        clean("a\x1b[31mred\x1b[0m\x1b]8;;http://x\x07b\x00\u202ec\u200bd\te\n")
        == "aredb��c�d\te\n"
    )
