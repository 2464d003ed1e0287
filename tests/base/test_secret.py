"""Which texts are secret, and how they are masked."""

from __future__ import annotations

import pytest

from casual_mcp_nb.base.config import ClientConfig, ServerConfig
from casual_mcp_nb.base.secret import MASK, option_secrets, redacted, url_secrets

TOKEN = "a1b2c3d4e5f6a7b8c9d0e1f2"


@pytest.mark.parametrize(
    ("url", "found"),
    [
        (None, set()),
        ("https://host/path?page=2&mode=production", set()),
        ("https://me:pa%24s@host/", {"pa%24s", "pa$s", "bWU6cGEkcw=="}),
        ("https://host/?apiKey=short&page=2", {"short"}),
        ("https://host/?access_token=abc==&x=1", {"abc=="}),
        (f"https://host/s/{TOKEN}/mcp?{TOKEN[::-1]}", {TOKEN, TOKEN[::-1]}),
        ("https://host/?signature=a%2Fb%3D", {"a%2Fb%3D", "a/b="}),
        ("http://[broken", set()),
    ],
)
def test_what_is_secret_in_an_address(url: str | None, found: set[str]) -> None:
    assert url_secrets(url) - {""} == found


@pytest.mark.parametrize(
    ("args", "found"),
    [
        (["--token", "x", "--mode=fast", "y"], ["x"]),
        (["--api-key=x", "-password", "y"], ["x", "y"]),
        (["--author", "someone"], ["someone"]),
        (["--token", "--verbose"], []),
        (["token=x", "mode=y"], ["x"]),
        (
            [
                "-k",
                "s3cret",
                "-k",
                "5",
                "-k",
                "/etc/key.pem",
                "-p",
                "8080",
                "-t",
                "30",
                "-k",
                "linux",
            ],
            ["s3cret"],
        ),
        (["-t", "a1b2c3d4e5f6", "-pa1b2c3d4e5f6"], ["a1b2c3d4e5f6", "a1b2c3d4e5f6"]),
        (
            ["-e", "API_KEY=x", "-e", "TZ=UTC", "-H", "Authorization: Bearer y", "-H", "X-Mode: z"],
            ["x", "Bearer y", "y"],
        ),
        (["postgresql://me:pw@host/db"], ["pw", "bWU6cHc="]),
        (
            ["sk-abcdefghijklmnop", "@scope/server-1.2.3", "mcp-server==2025.1.14"],
            ["sk-abcdefghijklmnop"],
        ),
    ],
)
def test_what_is_secret_in_the_options_of_a_command(args: list[str], found: list[str]) -> None:
    assert sorted(set(option_secrets(args)) - {""}) == sorted(set(found))


def test_a_mask_says_nothing_of_a_value_not_even_its_length() -> None:
    short, long = "abcd", "sk-" + "x" * 80
    assert redacted(f"{short} {long}", [short, long]) == f"{MASK} {MASK}"


@pytest.mark.fault(81)
def test_a_config_that_is_turned_into_a_dict_or_a_list_is_masked() -> None:
    server = ServerConfig(command="x", args=("--token", "planted-option"))
    client = ClientConfig(provider="openai", base_url="https://me:planted-password@host/v1")
    for thing in (server, client):
        assert "planted" not in repr(dict(thing)) + repr(list(thing)) + repr(
            thing
        ) + thing.model_dump_json(context={"secrets": "masked"})
    assert server.args == ("--token", "planted-option")
