"""The same few conversations with each real provider, for cents, and with a server on the loopback
that plays it.

`python3 tests/run.py tests/live --live` asks every provider whose key is in the environment, and
says what it saw. Without the option, nothing but the loopback is asked. docs/live-tests.md
says what is covered and what it costs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from fastmcp import FastMCP
from kit.provider import PROVIDERS, Provider
from kit.scripted_http import Reply
from kit.streams import reply, streamed

from casual_mcp_nb import Session
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.errors import MissingDependencyError
from casual_mcp_nb.providers._clients import need
from casual_mcp_nb.providers.registry import spec_of, specs

pytestmark = pytest.mark.defect("H12")

MAX_COST = 0.05
"""The most that one run may cost with one provider, in dollars."""
CODES = {"amber": "7Q4-ZULU", "cobalt": "9K2-MIKE"}
UNKNOWN_MODEL = "no-such-model-of-the-live-tests"


@dataclass(frozen=True)
class Target:
    """A provider to ask.

    Args:
        provider: Its name.
        model: Its cheapest model that calls tools; the variable `LIVE_PROVIDER_MODEL` names another
            one.
        price: Dollars per million tokens, input and output; None if it has no price per token.
        max_tokens: The limit of each answer, with room for thinking where the model thinks.
        options: More of the model's config.
        client: More of the client's config.
    """

    provider: str
    model: str
    price: tuple[float, float] | None
    max_tokens: int = 200
    options: dict[str, Any] = field(default_factory=dict)
    client: dict[str, Any] = field(default_factory=dict)

    def session(self, model: str | None = None, **config: Any) -> Session:
        """A session with this model and one server."""
        name = model or os.environ.get(
            f"LIVE_{self.provider.upper().replace('-', '_')}_MODEL", self.model
        )
        client = {"provider": self.provider, "timeout": 60, "max_retries": 1, **self.client}
        limits = {"max_tokens": self.max_tokens, **self.options}
        prices = {name: {"input": self.price[0], "output": self.price[1]}} if self.price else {}
        models = {"asked": {"client": self.provider, "model": name, **limits}}
        whole = {"clients": {self.provider: client}, "models": models, "prices": prices, **config}
        return Session(whole, in_process={"crates": crates()}, quiet=True)


# Prices and names as of 2026-11, from the providers' pages.
TARGETS = {
    target.provider: target
    for target in (
        Target("openai", "gpt-4.1-nano", (0.10, 0.40)),
        Target(
            "openai-responses", "gpt-5.4-nano", (0.20, 1.25), 2_000, {"reasoning_effort": "low"}
        ),
        Target("anthropic", "claude-haiku-4-5", (1.0, 5.0)),
        Target("gemini", "gemini-2.5-flash-lite", (0.10, 0.40), 1_000),
        Target("ollama", "gpt-oss:20b", None, 1_000, client={"base_url": "https://ollama.com"}),
        Target("litellm", "openai/gpt-4.1-nano", (0.10, 0.40)),
    )
}
KEYS = {name: spec_of(name).key_variable or "OPENAI_API_KEY" for name in TARGETS}


def crates() -> FastMCP[Any]:
    """A server that knows what no model can."""
    server: FastMCP[Any] = FastMCP("crates")

    @server.tool(annotations={"readOnlyHint": True})
    def crate_code(name: str) -> str:
        """Return the code of the crate with this name."""
        return CODES.get(name.lower(), "unknown")

    return server


@dataclass(frozen=True)
class Seen:
    """What a conversation used."""

    requests: int
    tokens: int | None
    cost: float | None
    request_ids: tuple[str, ...]

    @classmethod
    def of(cls, *turns: Turn) -> Seen:
        """What these turns used."""
        steps = [step for turn in turns for step in turn.steps]
        tokens = [turn.stats.tokens.total_tokens for turn in turns]
        costs = [turn.stats.cost.amount for turn in turns if turn.stats.cost is not None]
        failures = [turn.failure.request_id for turn in turns if turn.failure is not None]
        ids = [name for name in (*(step.request_id for step in steps), *failures) if name]
        whole = None if None in tokens else sum(count or 0 for count in tokens)
        return cls(len(steps), whole, sum(costs) if costs else None, tuple(ids))


def answers(target: Target) -> Seen:
    """Ask for a word; the answer is streamed, and its tokens are reported."""
    with target.session() as session:
        turn = session.chat("Reply with the single word: blue", echo="none")
        turn.raise_for_status()
        assert "blue" in turn.answer.lower()
        assert turn.stats.tokens.origin == "reported"
        assert not turn.truncated
        return Seen.of(turn)


def calls_tools(target: Target) -> Seen:
    """Have a tool called in two turns, so that what the provider wants back of the first one is
    sent with the second.
    """
    with target.session() as session:
        turns = []
        for name, code in CODES.items():
            turn = session.chat(
                f"What is the code of the crate {name}? Use the tool, then reply with the code.",
                echo="none",
            )
            turn.raise_for_status()
            assert (turn.tool_calls[0].tool.tool, turn.tool_calls[0].status) == ("crate_code", "ok")
            assert code in turn.answer
            turns.append(turn)
        return Seen.of(*turns)


def finds_tools(target: Target) -> Seen:
    """Have a deferred tool found by a search and called."""
    with target.session(tool_discovery={"enabled": True, "defer_all": True}) as session:
        asked = (
            "Find a tool that knows the codes of crates, call it, and reply with the code of the"
            " crate amber."
        )
        turn = session.chat(asked, echo="none", max_steps=6)
        turn.raise_for_status()
        assert turn.searches
        assert CODES["amber"] in turn.answer
        return Seen.of(turn)


def is_refused(target: Target) -> Seen:
    """Ask a model that does not exist: the error keeps what the provider's support asks for."""
    with target.session(UNKNOWN_MODEL) as session:
        turn = session.chat("Hello?", echo="none")
        assert turn.status == "failed"
        assert turn.failure is not None
        assert turn.failure.status is None or 400 <= turn.failure.status < 500
        assert turn.exception is not None
        return Seen.of(turn)


CHECKS: dict[str, Callable[[Target], Seen]] = {
    "answers": answers,
    "calls_tools": calls_tools,
    "finds_tools": finds_tools,
    "is_refused": is_refused,
}


def test_every_provider_has_a_live_test() -> None:
    assert {name for name, spec in specs().items() if spec.sdk} == TARGETS.keys()


@pytest.fixture(scope="module")
def spent() -> dict[str, float]:
    """What was spent so far, by provider."""
    return {}


@pytest.mark.live
@pytest.mark.holds_the_loop("SDKs import parts on their first request")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("provider", TARGETS)
def test_a_real_provider(
    provider: str, check: str, spent: dict[str, float], record_property: Any
) -> None:
    target = TARGETS[provider]
    if not os.environ.get(KEYS[provider]):
        pytest.skip(f"{KEYS[provider]} is not set")
    try:
        need(provider, (spec_of(provider).sdk or "").replace("google-genai", "google.genai"))
    except MissingDependencyError as error:
        pytest.skip(str(error))
    assert spent.get(provider, 0.0) < MAX_COST, "The limit of a run was reached."
    seen = CHECKS[check](target)
    spent[provider] = spent.get(provider, 0.0) + (seen.cost or 0.0)
    cost = f"{seen.cost:.5f} USD" if seen.cost is not None else "no price"
    tokens = f"{seen.tokens:,} tokens" if seen.tokens is not None else "tokens not reported"
    line = (
        f"{provider} {target.model} {check}: {seen.requests} requests, {tokens}, {cost}, ids"
        f" {', '.join(seen.request_ids)}"
    )
    record_property("live", line)


FOUND = ("search_tools", '{"query": "codes of crates"}')
AMBER, COBALT = (("crates__crate_code", f'{{"name": "{name}"}}') for name in CODES)


def played(provider: str, check: str) -> Iterator[Reply]:
    """What a healthy provider would send in a check."""
    script: dict[str, list[Any]] = {
        "answers": ["Blue."],
        "calls_tools": [AMBER, CODES["amber"], COBALT, CODES["cobalt"]],
        "finds_tools": [FOUND, AMBER, CODES["amber"]],
        "is_refused": [None],
    }
    for number, said in enumerate(script[check]):
        headers = {"x-request-id": f"req_{number}"}
        if said is None:
            yield Reply(
                404,
                {"error": {"message": "The model does not exist", "type": "not_found_error"}},
                headers,
            )
        else:
            body = (
                streamed(provider, (said,))
                if isinstance(said, str)
                else streamed(provider, (), (f"c{number}", *said))
            )
            sent = reply(provider, body)
            yield Reply(200, body, {**sent.headers, **headers})


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_live_tests_work_with_a_provider_on_the_loopback(
    provider: str, check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(f"LIVE_{provider.upper().replace('-', '_')}_MODEL", raising=False)
    with Provider(*played(provider, check)) as server:
        desk = server.config(provider)["clients"]["desk"]
        target = TARGETS[provider]
        client = {name: desk[name] for name in ("base_url", "api_key")}
        local = Target(
            provider, target.model, target.price, target.max_tokens, target.options, client
        )
        seen = CHECKS[check](local)
        models = {request.body.get("model") for request in server.seen}
    assert seen.requests == len(server.seen) == len([*played(provider, check)])
    assert len(seen.request_ids) == seen.requests
    # Google has it in the path.
    assert provider == "gemini" or models == {
        UNKNOWN_MODEL if check == "is_refused" else target.model
    }
    if check != "is_refused":
        assert seen.tokens
        assert (seen.cost is None) == (target.price is None)
        assert seen.cost is None or 0 < seen.cost < MAX_COST / len(CHECKS)


def test_without_the_option_no_provider_is_asked(
    pytestconfig: pytest.Config, request: pytest.FixtureRequest
) -> None:
    live = [item for item in request.session.items if item.get_closest_marker("live")]
    asked = pytestconfig.getoption("--live") or os.environ.get("MCP_LIVE_TESTS") == "1"
    assert all(item.get_closest_marker("skip") for item in live) or asked
