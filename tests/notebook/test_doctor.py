"""The findings of the doctor, and its advice."""

from __future__ import annotations

import re
from typing import Any

import pytest

from casual_mcp_nb import Session
from casual_mcp_nb.base.config import Config
from casual_mcp_nb.base.status import Check

SECRET = "sk-a-secret-that-nobody-reads-0123456789"


def find(config: dict[str, Any], part: str, name: str, *, connect: bool = False) -> Check:
    session = Session.from_config(config)
    try:
        if connect:
            session.connect()
        found = session.servers.doctor()
        assert SECRET not in "".join(found._repr_mimebundle_().values()) + repr(found)
        return next(finding for finding in found if finding.part == part and finding.name == name)
    finally:
        session.close()


def test_a_set_up_in_which_all_works_is_said_to_work() -> None:
    with Session.from_config(
        {"servers": {"math": {"bundled": "math", "transport": "in-process"}}}
    ) as session:
        found = session.servers.doctor()
        assert found.ok
        assert {finding.part for finding in found} >= {
            "Kernel",
            "Packages",
            "Model SDKs",
            "Config",
            "Servers",
            "Templates",
        }
        assert next(finding for finding in found if finding.name == "math").found.startswith(
            "ready, 13 tools"
        )


@pytest.mark.parametrize(
    ("client", "verdict", "words"),
    [
        ({"provider": "openai"}, "fail", "MY_CLIENT_API_KEY"),
        ({"provider": "openai", "api_key": SECRET}, "ok", ""),
        ({"provider": "offline"}, "ok", ""),
    ],
)
def test_a_key_that_is_missing_is_told_with_the_variable_that_it_comes_from(
    client: dict[str, Any], verdict: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    config = {
        "clients": {"my-client": client},
        "models": {"m": {"client": "my-client", "model": "m"}},
    }
    finding = find(config, "Keys", "my-client")
    assert finding.verdict == verdict
    assert words in finding.advice


HOME = "https://eu.api.openai.com/v1"
ELSEWHERE = "https://models.example/openai.com/v1"


@pytest.mark.parametrize(
    ("name", "client", "environment", "verdict"),
    [
        ("my-client", {"base_url": ELSEWHERE}, {"OPENAI_API_KEY": SECRET}, "warn"),
        (
            "my-client",
            {"base_url": "https://openai.com.example"},
            {"OPENAI_API_KEY": SECRET},
            "warn",
        ),
        ("openai", {"base_url": ELSEWHERE}, {"OPENAI_API_KEY": SECRET}, "warn"),
        (
            "my-client",
            {"base_url": ELSEWHERE},
            {"OPENAI_API_KEY": SECRET, "MY_CLIENT_API_KEY": "own"},
            "ok",
        ),
        (
            "my-client",
            {"base_url": ELSEWHERE, "api_key": "${OPENAI_API_KEY}"},
            {"OPENAI_API_KEY": SECRET},
            "ok",
        ),
        ("my-client", {"base_url": HOME}, {"OPENAI_API_KEY": SECRET}, "ok"),
        ("my-client", {}, {"OPENAI_API_KEY": SECRET}, "ok"),
        (
            "my-client",
            {"base_url": ELSEWHERE, "provider": "ollama"},
            {"OLLAMA_API_KEY": SECRET},
            "warn",
        ),
    ],
)
def test_a_providers_key_that_goes_to_another_address_is_warned_of(
    name: str,
    client: dict[str, Any],
    environment: dict[str, str],
    verdict: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for variable in ("OPENAI_API_KEY", "MY_CLIENT_API_KEY", "OLLAMA_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    clients = {name: {"provider": "openai", **client}}
    finding = find(
        {"clients": clients, "models": {"m": {"client": name, "model": "m"}}}, "Keys", name
    )
    assert finding.verdict == verdict
    if verdict == "warn":
        variable = "OLLAMA_API_KEY" if client.get("provider") == "ollama" else "OPENAI_API_KEY"
        assert re.search(rf"\b{variable}, .*\bbase_url\b", finding.found)
        assert f"clients.{name}.api_key" in finding.advice
        assert ("MY_CLIENT_API_KEY" in finding.advice) == (name == "my-client")
        assert variable not in finding.advice


def test_a_command_that_is_missing_is_a_failure_with_what_to_do() -> None:
    finding = find(
        {"servers": {"a": {"command": "no-such-command-anywhere"}}},
        "Commands",
        "no-such-command-anywhere",
    )
    assert finding.verdict == "fail"
    assert "Install it" in finding.advice


def test_a_server_that_failed_says_why_and_how_to_come_back() -> None:
    finding = find(
        {"servers": {"a": {"command": "no-such-command-anywhere"}}}, "Servers", "a", connect=True
    )
    assert finding.verdict == "fail"
    assert "no-such-command-anywhere" in finding.found
    assert 'session.servers.reconnect("a")' in finding.advice


def test_a_server_that_was_not_used_yet_is_no_failure() -> None:
    finding = find({"servers": {"math": {"bundled": "math"}}}, "Servers", "math")
    assert (finding.verdict, finding.found) == ("ok", "not connected yet")


def test_a_template_that_a_model_names_and_nobody_has_is_a_failure() -> None:
    config = {
        "clients": {"o": {"provider": "offline"}},
        "models": {"m": {"client": "o", "model": "m", "template": "no-such-template"}},
    }
    assert find(config, "Templates", "no-such-template").verdict == "fail"


def test_notes_of_the_config_are_passed_on() -> None:
    config = {"mcpServers": {"a": {"command": "python", "disabled": True}}}
    assert find(config, "Config", "note").verdict == "warn"


def test_the_system_prompt_of_a_template_can_be_read_before_it_is_sent() -> None:
    config = {
        "clients": {"o": {"provider": "offline"}},
        "models": {"m": {"client": "o", "model": "m", "template": "teacher"}},
        "servers": {"math": {"bundled": "math", "transport": "in-process"}},
    }
    with Session.from_config(config) as session:
        assert session.models.preview().template == "teacher"
        assert session.models.preview().text != session.models.preview("default").text
        turn = session.chat("What is 2 + 3?", template="careful")
        assert turn.steps[0].request.messages[0].content == session.models.preview("careful").text


def test_clients_show_whether_a_key_is_set_and_who_uses_them() -> None:
    config = {
        "clients": {
            "c": {
                "provider": "openai",
                "api_key": SECRET,
                "base_url": "https://u:pass-word-1@models.example/v1",
            }
        },
        "models": {"m": {"client": "c", "model": "x"}},
    }
    session = Session.from_config(config)
    try:
        text = session.models.clients._repr_mimebundle_()["text/plain"]
        assert session.models.clients[0].key == "set"
        assert session.models.clients[0].models == ("m",)
        assert SECRET not in text
        assert "pass-word-1" not in text
        assert "models.example" in text
    finally:
        session.close()


def test_whether_deferring_pays_is_told_for_a_whole_turn() -> None:
    servers = {"units": {"bundled": "units", "transport": "in-process"}}
    few = {"servers": servers, "tool_discovery": {"enabled": True, "defer_all": True}}
    finding = find(few, "Discovery", "deferring", connect=True)
    with Session.from_config(few) as session:
        session.connect()
        saved = session.tools.budget.saved
        assert saved is not None
        assert f"{abs(saved):.0%}" in finding.found
        assert finding.verdict == ("ok" if saved > 0 else "warn")
        session.selection.discovery = False
        assert session.tools.budget.saved is None
        assert not [row for row in session.servers.doctor() if row.part == "Discovery"]


def test_a_price_without_one_for_the_cache_is_named() -> None:
    client = {"provider": "openai", "api_key": SECRET}
    models, prices = {"m": {"client": "c", "model": "m"}}, {"m": {"input": 1, "output": 2}}
    config = {"clients": {"c": client}, "models": models, "prices": prices}
    assert "cached_input" in find(config, "Prices", "m").advice


def test_a_missing_sdk_has_one_remedy_in_one_spelling(monkeypatch: pytest.MonkeyPatch) -> None:
    from casual_mcp_nb.notebook import doctor
    from casual_mcp_nb.providers._clients import missing
    from casual_mcp_nb.providers.registry import specs

    monkeypatch.setattr(doctor, "_version", lambda name: None)
    for spec in specs().values():
        if not spec.sdk:
            continue
        config = Config.model_validate(
            {
                "clients": {"c": {"provider": spec.name}},
                "models": {"m": {"client": "c", "model": "x"}},
            }
        )
        remedies = {check.advice for check in doctor._sdks(config) if check.verdict == "fail"}
        assert remedies == {f"Run: pip install 'casual-mcp-nb[{spec.sdk}]'"}
        assert remedies.pop() in str(missing("c", spec.sdk))
        at_hand = [
            model.reason
            for model in doctor._by_key({spec.key_variable: "k"} if spec.key_variable else {})
        ]
        assert all(f"casual-mcp-nb[{spec.sdk}]" in reason for reason in at_hand)
