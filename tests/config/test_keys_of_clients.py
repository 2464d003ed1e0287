"""A client's key is looked for under one name, and the error, the doctor and the status say that
name.
"""

from __future__ import annotations

from typing import Any

import pytest
from kit.provider import Provider, answer

from casual_mcp_nb import Session, load_config
from casual_mcp_nb.errors import AuthenticationError
from casual_mcp_nb.providers.factory import ModelFactory

KEY = "sk-0123456789-of-the-test"

NAMES = [
    ("desk", "DESK_API_KEY"),
    ("my-gpt", "MY_GPT_API_KEY"),
    ("straße", "STRASSE_API_KEY"),
    ("4o", "4O_API_KEY"),
    ("a.b c", "A_B_C_API_KEY"),
    ("é", "__API_KEY"),
]


def config_of(name: str, provider: str = "openai", **client: Any) -> dict[str, Any]:
    return {
        "clients": {name: {"provider": provider, **client}},
        "models": {"m": {"client": name, "model": "m-1"}},
    }


@pytest.mark.defect("C13")
@pytest.mark.parametrize(("name", "variable"), NAMES)
def test_config_error_and_doctor_name_the_same_variable(
    name: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for own in ("OPENAI_API_KEY", variable):
        monkeypatch.delenv(own, raising=False)
    assert (
        load_config(config_of(name), environ={variable: KEY}).clients[name].key_variable == variable
    )
    with pytest.raises(AuthenticationError) as caught:
        ModelFactory(load_config(config_of(name), environ={})).chat_model()
    assert f" {variable}," in str(caught.value)
    with Session.from_config(config_of(name)) as session:
        advice = next(
            finding.advice for finding in session.servers.doctor() if finding.part == "Keys"
        )
    assert f" {variable} " in advice


@pytest.mark.defect("C13")
@pytest.mark.parametrize(
    ("environ", "sent"),
    [
        ({"OLLAMA_API_KEY": KEY}, f"Bearer {KEY}"),
        ({"OLLAMA_API_KEY": "sk-another-one", "DESK_API_KEY": KEY}, f"Bearer {KEY}"),
        ({}, "Bearer no-key-needed"),
    ],
)
async def test_ollama_at_a_custom_address_gets_the_environments_key(
    environ: dict[str, str], sent: str
) -> None:
    from casual_llm.messages import UserMessage

    with Provider(answer("ollama", "Noon.")) as server:
        factory = ModelFactory(
            load_config(config_of("desk", "ollama", base_url=server.url), environ=environ)
        )
        await factory.chat_model().complete([UserMessage(content="When?")])
        await factory.close()
    assert server.seen[0].headers["authorization"] == sent


@pytest.mark.defect("C13")
@pytest.mark.parametrize(
    ("client", "verdict"),
    [
        ({"base_url": "http://gateway.example:11434"}, "warn"),
        ({"base_url": "https://ollama.com"}, "ok"),
        ({"base_url": "http://localhost:11434"}, "ok"),
        ({}, "ok"),
    ],
)
def test_the_doctor_says_where_ollamas_own_key_goes(
    client: dict[str, Any], verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_API_KEY", KEY)
    monkeypatch.delenv("DESK_API_KEY", raising=False)
    with Session.from_config(config_of("desk", "ollama", **client)) as session:
        finding = next(finding for finding in session.servers.doctor() if finding.part == "Keys")
        assert session.models.clients[0].key == "set"
    assert finding.verdict == verdict
    assert KEY not in repr(finding)
