"""Values of a config in everything that can be shown of it."""

from __future__ import annotations

import base64
import copy
import json
import logging
import traceback
from pathlib import Path
from typing import Any

import pytest

from casual_mcp_nb.base.secret import MASK, redacted
from casual_mcp_nb.config.loader import load_config
from casual_mcp_nb.errors import ConfigError

PLANTED = "planted-"
LOOK = {"secrets": "masked"}
ENVIRON = {f"VARIABLE_{n}": f"{PLANTED}variable-{n}" for n in range(8)}
FULL: dict[str, Any] = {
    "clients": {
        "a": {"provider": "openai", "api_key": f"{PLANTED}key"},
        "b": {
            "provider": "openai",
            "api_key": "${VARIABLE_0}",
            "base_url": "https://${VARIABLE_1}.example/v1",
        },
        "c": {
            "provider": "openai",
            "base_url": f"https://me:{PLANTED}password@host/?apiKey={PLANTED}query&page=2",
        },
    },
    "servers": {
        "stdio": {
            "command": "${VARIABLE_2}",
            "args": ["--token", "${VARIABLE_3}", "--mode=${VARIABLE_4}", "plain"],
            "env": {"A": f"{PLANTED}env", "B": "${VARIABLE_5}"},
            "cwd": "/srv/${VARIABLE_6}",
        },
        "http": {
            "url": "https://host/${VARIABLE_7}/mcp",
            "headers": {"Authorization": f"Bearer {PLANTED}header"},
            "auth": f"{PLANTED}auth",
        },
    },
}


@pytest.mark.fault(81)
def test_no_form_of_a_config_shows_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        config = load_config(FULL | {"inputs": []}, environ=ENVIRON)
    things: list[Any] = [
        config,
        copy.deepcopy(config),
        config.model_copy(),
        *config.clients.values(),
        *config.servers.values(),
    ]
    for thing in things:
        forms = [
            repr(thing),
            str(thing),
            f"{thing}",
            repr(thing.model_dump(context=LOOK)),
            thing.model_dump_json(context=LOOK),
        ]
        forms.append(json.dumps(thing.model_dump(mode="json", context=LOOK)))
        forms.append(repr(list(thing.__rich_repr__())))
        for form in forms:
            assert PLANTED not in form
    assert PLANTED not in caplog.text
    assert "plain" in repr(config)
    assert "page=2" in repr(config)


@pytest.mark.fault(81)
def test_hidden_values_are_available_where_needed() -> None:
    config = load_config(FULL, environ=ENVIRON)
    assert config.servers["stdio"].args == (
        "--token",
        "planted-variable-3",
        "--mode=planted-variable-4",
        "plain",
    )
    assert config.servers["http"].url == "https://host/planted-variable-7/mcp"
    assert config.secrets() == {
        *ENVIRON.values(),
        *(f"{PLANTED}{name}" for name in ("key", "password", "query", "env", "header", "auth")),
        f"Bearer {PLANTED}header",
        base64.b64encode(f"me:{PLANTED}password".encode()).decode(),
    }


def test_values_indistinguishable_from_ordinary_text_are_not_masked() -> None:
    servers = {
        "a": {
            "command": "x",
            "env": {"A": "1", "B": "true", "C": "abcd"},
            "args": ["${HOME}/data", "${B}"],
        },
        "b": {"url": "https://host", "auth": "oauth", "transport": "${T}"},
    }
    config = load_config(
        {"servers": servers}, environ={"HOME": "/home/me", "B": "xyz", "T": "http"}
    )
    assert config.secrets() == {"abcd"}
    assert "/home/me/data" in repr(config)


def test_the_longest_secret_is_masked_first() -> None:
    assert (
        redacted("a secret-long and a secret", ["secret", "secret-long", "", "and"])
        == f"a {MASK} and a {MASK}"
    )


SECRET = "sk-planted-0123456789abcdef"
MISPLACED: dict[str, Any] = {
    "a key as a list": {"clients": {"c": {"provider": "openai", "api_key": [SECRET]}}},
    "a key as an object": {"clients": {"c": {"provider": "openai", "api_key": {"value": SECRET}}}},
    "a key as the provider": {"clients": {"c": {"provider": SECRET}}},
    "a key as the client": {"clients": SECRET},
    "a key as a number field": {
        "clients": {"c": {"provider": "openai", "timeout": SECRET, "max_retries": SECRET}}
    },
    "a key under an unknown name": {"clients": {"c": {"provider": "openai", "apikey": SECRET}}},
    "a key as the model's client": {"models": {"m": {"client": SECRET, "model": "x"}}},
    "env as a text": {"servers": {"s": {"command": "x", "env": f"TOKEN={SECRET}"}}},
    "env as a list": {"servers": {"s": {"command": "x", "env": [f"TOKEN={SECRET}"]}}},
    "env with an object": {"servers": {"s": {"command": "x", "env": {"A": {"B": SECRET}}}}},
    "env under a wrong command": {"servers": {"s": {"command": 17, "env": {"A": SECRET}}}},
    "env under both ways": {
        "servers": {"s": {"command": "x", "url": "https://a", "env": {"A": SECRET}}}
    },
    "env as the command": {"servers": {"s": {"command": {"A": SECRET}}}},
    "env beside an unknown key": {"servers": {"s": {"comand": "x", "env": {"A": SECRET}}}},
    "env at the top": {"env": {"A": SECRET}},
    "headers of a command": {"servers": {"s": {"command": "x", "headers": {"A": SECRET}}}},
    "a header as the transport": {"servers": {"s": {"url": "https://a", "transport": SECRET}}},
    "a key as the address": {"servers": {"s": {"url": SECRET}}},
    "a key as a flag": {
        "servers": {"s": {"command": "x", "disabled": SECRET, "defer_loading": SECRET}}
    },
    "a key as a toolset": {
        "servers": {"s": {"command": "x"}},
        "tool_sets": {"t": {"servers": {"s": SECRET}}},
    },
    "a key as a default": {
        "servers": {"s": {"command": "x", "args": ["${NO-NAME:-" + SECRET + "}", "${GONE}"]}}
    },
    "a key with a broken character": {
        "clients": {"c": {"provider": "openai", "api_key": SECRET + "\ud800"}}
    },
    "a key beside a missing variable": {
        "servers": {"s": {"command": SECRET, "args": ["${GONE}"], "cwd": [SECRET]}}
    },
}


@pytest.mark.fault(82)
@pytest.mark.parametrize("source", ["objects", "file"])
@pytest.mark.parametrize("data", MISPLACED.values(), ids=MISPLACED.keys())
def test_a_refused_config_is_not_quoted(data: dict[str, Any], source: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(data))
    with pytest.raises(ConfigError) as caught:
        load_config(data if source == "objects" else path, environ={})
    _assert_not_quoted(caught.value)


@pytest.mark.fault(82)
@pytest.mark.parametrize(
    "content",
    [
        f'{{"clients": {{"c": {{"api_key": "{SECRET}",,}}}}}}'.encode(),
        f'{{"clients": "{SECRET}'.encode(),
        f'{{"api_key": "{SECRET}"}}'.encode() + b"\xff",
        f'["{SECRET}"]'.encode(),
        f'{{"servers": {{"s": "{SECRET}", "s": "{SECRET}"}}}}'.encode(),
    ],
)
def test_a_broken_file_is_not_quoted(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_config(path, environ={})
    _assert_not_quoted(caught.value)


@pytest.mark.fault(82)
def test_a_refused_variable_is_not_quoted() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config({"servers": {"s": {"url": "${ADDRESS}"}}}, environ={"ADDRESS": SECRET})
    _assert_not_quoted(caught.value)


def _assert_not_quoted(error: BaseException | None) -> None:
    assert error is not None
    shown = "".join(traceback.format_exception(error))
    chain: BaseException | None = error
    while chain is not None:
        shown += repr(chain) + repr(vars(chain))
        chain = chain.__cause__ or chain.__context__
    assert SECRET not in shown
    assert SECRET[-10:] not in shown
