"""Which system prompt is sent, at every door: the call's, the model's template, the chat's own, the
default template.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from casual_llm.messages import SystemMessage, UserMessage
from kit.obedient import Obedient, order

from casual_mcp_nb import McpToolChat, Session
from casual_mcp_nb.cli.app import main
from casual_mcp_nb.conversation.event import Notice
from casual_mcp_nb.main import served as served_by_asgi

pytestmark = pytest.mark.defect("H1")

OWN, GIVEN, TEMPLATE, OTHER = (
    "Of the chat.",
    "Of the call.",
    "Of the model.",
    "Of another template.",
)
ASK = order("Hello.")


@pytest.fixture(scope="module")
def provider() -> Iterator[Obedient]:
    with Obedient() as provider:
        yield provider


@pytest.fixture
def config(provider: Obedient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A config file with a model that has a template, and one that has none."""
    (tmp_path / "prompt-templates").mkdir()
    for name, text in {"model": TEMPLATE, "other": OTHER}.items():
        (tmp_path / "prompt-templates" / f"{name}.j2").write_text(text, encoding="utf-8")
    plain = provider.config["models"]["small"]
    models = {"templated": {**plain, "template": "model"}, "plain": plain}
    path = tmp_path / "casual_mcp_config.json"
    path.write_text(json.dumps({**provider.config, "models": models}), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return path


def sent_to(provider: Obedient) -> str:
    """Read the system prompt of the last request."""
    first = provider.seen[-1].body["messages"][0]
    return str(first["content"]) if first["role"] == "system" else ""


Door = Callable[..., Any]


def served(session: Session, *, model: str, system: str | None = None) -> None:
    with session.serve.http(port=0) as service:
        body = {
            "model": model,
            "messages": [{"role": "user", "content": ASK}],
            "system_prompt": system,
        }
        assert httpx.post(f"{service.url}/chat", json=body, timeout=30).status_code == 200


DOORS: dict[str, Door] = {
    "chat": lambda session, **options: session.chat(ASK, **options),
    "submit": lambda session, **options: session.submit(ASK, **options).result(20),
    "plan": lambda session, **options: session.plan(ASK, **options),
    "HTTP": served,
}


@pytest.mark.parametrize("door", DOORS)
def test_a_session_sends_the_calls_prompt_else_the_models_template_else_its_own(
    door: str, config: Path, provider: Obedient
) -> None:
    with Session(config, system=OWN, trust=True, quiet=True) as session:
        for options, expected in {
            ("templated", GIVEN): GIVEN,
            ("templated", None): TEMPLATE,
            ("plain", GIVEN): GIVEN,
            ("plain", ""): "",
            ("plain", None): OWN,
        }.items():
            DOORS[door](session, model=options[0], system=options[1])
            assert sent_to(provider) == expected, options


def test_the_template_of_a_call_overrides_that_of_the_model_and_the_session(
    config: Path, provider: Obedient
) -> None:
    with Session(config, system=OWN, trust=True, quiet=True) as session:
        for model in ("templated", "plain"):
            session.chat(ASK, model=model, template="other")
            assert sent_to(provider) == OTHER
            session.chat(ASK, model=model, template="other", system=GIVEN)
            assert sent_to(provider) == GIVEN


def test_a_comparison_of_models_sends_each_its_own(config: Path, provider: Obedient) -> None:
    with Session(config, system=OWN, trust=True, quiet=True) as session:
        first = len(provider.seen)
        session.experiments.compare(ASK, models=["templated", "plain"], progress=False)
        assert [request.body["messages"][0]["content"] for request in provider.seen[first:]] == [
            TEMPLATE,
            OWN,
        ]


async def test_a_chat_without_a_session_sends_them_in_the_same_order(
    config: Path, provider: Obedient
) -> None:
    async with McpToolChat.from_config(config, system=OWN) as chat:
        for (model, system), expected in {
            ("templated", GIVEN): GIVEN,
            ("templated", None): TEMPLATE,
            (None, None): TEMPLATE,
            ("plain", None): OWN,
        }.items():
            await chat.chat([UserMessage(content=ASK)], model=model, system=system)
            assert sent_to(provider) == expected, (model, system)
        await chat.chat([SystemMessage(content=GIVEN), UserMessage(content=ASK)], model="templated")
        assert sent_to(provider) == GIVEN


async def test_code_and_requests_written_for_casual_mcp_send_no_prompt_of_ours(
    config: Path, provider: Obedient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with McpToolChat.from_config(config) as chat:
        await chat.chat([UserMessage(content=ASK)], model="plain")
        assert sent_to(provider) == ""
    monkeypatch.setenv("MCP_TRUST_CONFIGS", "1")
    body = {"messages": [{"role": "user", "content": ASK}]}
    async with served_by_asgi() as api:
        client = httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://127.0.0.1")
        for model, expected in {"plain": "", "templated": TEMPLATE}.items():
            answer = await client.post("/chat", json={**body, "model": model})
            assert (answer.status_code, sent_to(provider)) == (200, expected)


@pytest.mark.parametrize(("words", "expected"), [((), TEMPLATE), (("--system", GIVEN), GIVEN)])
def test_the_command_line_sends_the_one_of_its_option_before_the_template(
    words: tuple[str, ...], expected: str, config: Path, provider: Obedient
) -> None:
    assert main(("chat", ASK, "--trust", *words)) == 0
    assert sent_to(provider) == expected


def test_what_is_sent_is_what_the_preview_shows_and_a_cassette_has(
    config: Path, provider: Obedient, tmp_path: Path
) -> None:
    path = tmp_path / "cassette.json"
    with (
        Session(config, system=OWN, trust=True, quiet=True) as session,
        session.cassettes.use(path, "all"),
    ):
        assert str(session.models.preview()) == TEMPLATE
        session.chat(ASK)
    with Session.quick(cassette=path, quiet=True) as session:
        assert session.system == TEMPLATE
        (turn,) = session.cassettes.replay()
        assert turn.status == "done"


def test_the_person_learns_once_that_a_template_comes_before_the_sessions_prompt(
    config: Path,
) -> None:
    with Session(config, system=OWN, trust=True, quiet=True) as session:
        turns = [
            session.chat(ASK, **options)
            for options in ({"system": GIVEN}, {"model": "plain"}, {}, {})
        ]
    notices = [
        [notice.text for notice in turn.trace.of(Notice) if "template" in notice.text]
        for turn in turns
    ]
    assert [len(texts) for texts in notices] == [0, 0, 1, 0]
    assert "templated" in notices[2][0]
