"""Prices with a cold and with a warm prompt cache, over a provider that records what it is asked
and what it has cached.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, takewhile
from typing import Any

import pytest
from fastmcp import FastMCP
from kit.provider import answer
from kit.scripted_http import Reply, Request, ScriptedHttp

from casual_mcp_nb import Session
from casual_mcp_nb.base.tokens import REUSED_WEIGHT
from casual_mcp_nb.experiments.arms import Arm
from casual_mcp_nb.experiments.price_conclusions import price_conclusions
from casual_mcp_nb.experiments.prompt_cache import least_prefix
from casual_mcp_nb.experiments.results import RunResults
from casual_mcp_nb.experiments.run_record import RunRecord

pytestmark = pytest.mark.defect("P4")

LEAST = 1_024


class Caching(ScriptedHttp):
    """A provider as OpenAI's, which has in its cache what it was asked before, from 1,024 tokens
    on.

    Args:
        reports: Whether it says how much it has read from the cache.
    """

    def __init__(self, *, reports: bool = True) -> None:
        super().__init__(self._reply)
        self.reports = reports
        self.usages: list[tuple[int, int]] = []
        self._texts: list[str] = []

    def _reply(self, request: Request) -> Reply:
        tools, messages = request.body.get("tools", ()), request.body["messages"]
        text = json.dumps(tools) + json.dumps(messages)
        shared = max((_common(text, other) for other in self._texts), default=0) // 4
        self._texts.append(text)
        prompt, cached = len(text) // 4, shared if shared >= LEAST else 0
        self.usages.append((prompt, cached))
        body = answer("openai", *self._next(tools, messages), usage=(prompt, 5))
        if self.reports:
            body["usage"]["prompt_tokens_details"] = {"cached_tokens": cached}
        return Reply(body=body)

    def _next(self, tools: Any, messages: Any) -> tuple[Any, ...]:
        names = [tool["function"]["name"] for tool in tools]
        asked = sum(message["role"] == "tool" for message in messages)
        if "search_tools" in names and asked == 0:
            return "", ("search_tools", {"query": "thing number 7"})
        if asked < (2 if "search_tools" in names else 1):
            return "", ("shop__thing_7", {"number": 1})
        return ("Done.",)

    def config(self) -> dict[str, Any]:
        client = {"provider": "openai", "base_url": f"{self.url}/v1", "api_key": "sk-x"}
        models = {"m": {"client": "desk", "model": "gpt-4o"}}
        return {
            "clients": {"desk": client},
            "models": models,
            "tool_discovery": {"enabled": True, "defer_all": True},
        }


def _common(text: str, other: str) -> int:
    """How many letters two texts begin with."""
    return sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(text, other, strict=False))
    )


def shop() -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("shop")
    for number in range(30):

        def thing(number: int) -> str:
            return "It is done. " * 20

        server.tool(
            name=f"thing_{number}", description=f"Do thing number {number}, and nothing else. " * 8
        )(thing)
    return server


@pytest.fixture(params=[True, False], ids=["reports", "silent"])
def server(request: pytest.FixtureRequest) -> Iterator[Caching]:
    with Caching(reports=request.param) as server:
        yield server


def compared(session: Session) -> RunResults:
    return session.experiments.compare(
        "Do thing 7", discovery=[False, True], deliveries=["bridge"], progress=False
    )


def by_hand(usages: list[tuple[int, int]], first_reads: float) -> float:
    """The tokens that a run's requests cost, if what is cached costs a tenth.

    Args:
        usages: Each request's tokens, and those that were in the cache.
        first_reads: What the first request reads from the cache.
    """
    price = usages[0][0] - (1 - REUSED_WEIGHT) * first_reads
    for (before, _), (prompt, cached) in pairwise(usages):
        # The rest of an identical conversation is no part of this one's own price.
        reads = min(cached, before) if before >= LEAST else 0
        price += prompt - (1 - REUSED_WEIGHT) * reads
    return price


def test_cold_and_warm_are_told_apart_and_the_verdict_does_not_flip(server: Caching) -> None:
    with Session(server.config(), in_process={"shop": shop()}, store=None, quiet=True) as session:
        cold = compared(session)
        first = len(server.usages)
        warm = compared(session)
    runs = {}
    for name, results, usages in (
        ("cold", cold, server.usages[:first]),
        ("warm", warm, server.usages[first:]),
    ):
        lengths = [record.steps for record in results.records]
        assert sum(lengths) == len(usages)
        runs[name] = dict(zip(results, (usages[: lengths[0]], usages[lengths[0] :]), strict=True))
    near = 0.001 if server.reports else 0.1
    for arm in cold:
        told, recorded = cold.prices[arm], runs["cold"][arm]
        again = runs["warm"][arm]
        assert recorded[0][1] == 0, "the first request was cold"
        assert told.cold == pytest.approx(by_hand(recorded, 0), rel=near)
        # The end that did not happen is an estimate: all of the first request but the message.
        assert told.warm == pytest.approx(by_hand(recorded, again[0][1]), rel=0.1)
        told = warm.prices[arm]
        assert told.cold == pytest.approx(by_hand(again, 0), rel=near)
        assert told.warm == pytest.approx(by_hand(again, again[0][1]), rel=near)
    texts = [" ".join(price_conclusions(results)) for results in (cold, warm)]
    assert cold.cheapest is warm.cheapest is None
    for text in texts:
        assert "the prompt cache" in text
        assert "loses" not in text
    if server.reports:
        assert "the cache was cold" in texts[0]
        assert "read from the cache" in texts[1]
    else:
        assert all("reports no cache reads" in text for text in texts)


def test_what_is_too_short_for_the_cache_is_not_counted_as_reused() -> None:
    with Caching(reports=False) as server:
        short: FastMCP[Any] = FastMCP("shop")
        short.tool(name="thing_7", description="Do thing 7.")(lambda number: number)
        with Session(
            server.config(), in_process={"shop": short}, store=None, quiet=True
        ) as session:
            results = compared(session)
        assert {cached for _, cached in server.usages} == {0}
    assert {(record.tokens_reused, record.warm_reused) for record in results.records} == {(0, 0)}
    assert all(price.cold == price.warm for price in results.prices.values())


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("claude-opus-4-5-20251101", 4_096),
        ("claude-haiku-4.5", 4_096),
        ("anthropic/claude-sonnet-4-5", 1_024),
        ("claude-opus-4-7", 2_048),
        ("claude-opus-5", 512),
        ("claude-3-5-haiku-latest", 2_048),
        ("gpt-5.6", 1_024),
        ("o3-mini", 1_024),
        ("gemini-2.5-flash", 2_048),
        ("gemini-3.6-flash", 4_096),
        ("llama3", 0),
        ("planner", 0),
    ],
)
def test_the_shortest_prefix_that_is_cached_depends_on_the_model(model: str, tokens: int) -> None:
    assert least_prefix(model) == tokens


def of(*runs: RunRecord) -> RunResults:
    return RunResults(runs, tuple(Arm(run.arm) for run in runs), ("p",))


def run(arm: str, tool: str, answer: str, tokens: int = 100) -> RunRecord:
    figures = {"input_tokens": tokens, "tokens_reused": 0, "cold_reused": 0, "warm_reused": 0}
    return RunRecord(arm, "p", arm, 0, "p", ("p",), called=(tool,), answer=answer, **figures)  # type: ignore[arg-type]


def test_the_arm_that_is_right_most_often_is_not_compared_with_cheaper_ones() -> None:
    wrong, right, dear = (
        run(arm, "s:x", "Yes.", tokens) for arm, tokens in (("a", 100), ("b", 200), ("c", 400))
    )
    verdicts = of(
        replace(wrong, right=False), replace(right, right=True), replace(dear, right=True)
    )
    (sentence,) = [text for text in price_conclusions(verdicts) if "costs least" in text]
    assert re.findall(r"\d+% \w+ than \w", sentence) == ["50% less than c"]
    assert re.search(r"\ba can cost less, .*less often right\.$", sentence)
    alone = of(replace(wrong, right=False), replace(right, right=True))
    (sentence,) = [text for text in price_conclusions(alone) if "costs least" in text]
    assert "% more" not in sentence


def test_the_first_sentence_tells_that_arms_did_different_work() -> None:
    same = of(run("a", "s:x", "Yes."), run("b", "s:x", " yes. "))
    assert not [
        text for text in price_conclusions(same) if "other tools" in text or "differently" in text
    ]
    first, second, *others = price_conclusions(
        of(run("a", "s:x", "Yes."), run("b", "s:y", "No.", 50))
    )
    assert "other tools" in first
    assert "differently" in second
    assert "costs least" in others[0]
