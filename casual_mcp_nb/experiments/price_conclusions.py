"""Sentences about what arms did and cost: first whether they did the same, then which costs less,
and when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from casual_mcp_nb.base.prices import Cost
from casual_mcp_nb.display import words
from casual_mcp_nb.experiments.arm_results import ArmResults
from casual_mcp_nb.experiments.pricing import (
    ArmPrice,
    DiscoveryEffect,
    best_of,
    cheapest_of,
    prices_of,
)
from casual_mcp_nb.experiments.results import RunResults
from casual_mcp_nb.experiments.run_record import CacheState, RunRecord


def price_conclusions(results: RunResults) -> Iterator[str]:
    """Write whether arms called the same tools and answered alike, which costs least, and where
    discovery loses.
    """
    arms = results.comparable
    yield from _absent(results)
    if not results.judged and not arms and sum(bool(arm.done) for arm in results.values()) > 1:
        yield "The arms have no answered case in common, so nothing compares them."
    yield from _other_tools(arms)
    if not results.judged:
        yield from _other_answers(arms)
    prices = prices_of(arms)
    if len(arms) > 1 and prices:
        yield _cheapest(arms, prices)
    for effect in results.discovery_effects:
        if sentence := _effect(effect):
            yield sentence
    if _defers_nothing(arms):
        yield (
            "No tool is deferred here, so discovery makes no difference: defer a server, or set"
            " defer_all."
        )
    if len(arms) > 1 and prices:
        yield from _first_requests(arms)
    if len(arms) > 1 and not results.judged:
        yield "Whether the answers are right was not checked: read them below, or pass check=…"


def _defers_nothing(arms: Sequence[ArmResults]) -> bool:
    """Check whether discovery was on in some runs, and no tool was deferred in them."""
    was_on = False
    for arm in arms:
        for record in arm.done:
            if record.discovery and record.searchable:
                return False
            was_on = was_on or bool(record.discovery)
    return was_on


def _absent(results: RunResults) -> Iterator[str]:
    for name, reason in results.failed_arms.items():
        yield f"{name} could not be run: {reason}"
    absent = results.absent
    by_server: dict[str, list[str]] = {}
    for arm, servers in absent.items():
        for server in servers:
            by_server.setdefault(server, []).append(arm)
    for server, arms in by_server.items():
        who, had = words.listed(arms, 3), "ran without the tools of"
        if len(arms) == len(results):
            who, had = "No arm", "had the tools of"
        yield f"{who} {had} server {server}: {absent[arms[0]][server]}"


def _other_tools(arms: Sequence[ArmResults]) -> Iterator[str]:
    """Write which arms called other tools than the first one, since their prices then are for other
    work.
    """
    tools = [_by_case(arm, _called) for arm in arms]
    for arm, own in zip(arms[1:], tools[1:], strict=True):
        differing = sum(own[case] != tools[0][case] for case in own)
        if differing:
            yield (
                f"{_capital(arm.name)} called other tools than {arms[0].name} in"
                f" {differing:,} of {words.count(len(own), 'case')}, so their prices are for"
                " different work."
            )


def _other_answers(arms: Sequence[ArmResults]) -> Iterator[str]:
    answers = [_by_case(arm, _answer) for arm in arms]
    differing = 0
    for case in answers[0] if answers else ():
        differing += any(each[case] != answers[0][case] for each in answers)
    if differing:
        yield (
            f"The arms answered differently in {differing:,} of"
            f" {words.count(len(answers[0]), 'case')}."
        )


def _by_case(
    arm: ArmResults, parts: Callable[[RunRecord], Iterable[str]]
) -> dict[str, frozenset[str]]:
    """Collect something that an arm's runs have, by case."""
    cases = {}
    for case, runs in arm.by_case.items():
        cases[case] = frozenset[str]().union(*map(parts, runs))
    return cases


def _called(record: RunRecord) -> Iterable[str]:
    return record.called


def _answer(record: RunRecord) -> Iterable[str]:
    return (" ".join(record.answer.casefold().split()),)


def _cheapest(arms: Sequence[ArmResults], prices: dict[str, ArmPrice]) -> str:
    """Write which arm costs least, if that is the same with a cold and with a warm cache, or else
    both.
    """
    if len({(price.cold, price.warm) for price in prices.values()}) == 1:
        return f"All arms cost the same: {_price(prices[arms[0].name], 'cold', arms[0])}."
    chosen = cheapest_of(arms)
    if chosen is None:
        best = best_of(arms)
        cold = min(best, key=lambda arm: prices[arm.name].cold)
        warm = min(best, key=lambda arm: prices[arm.name].warm)
        return (
            f"Which arm costs least depends on the prompt cache: {cold.name} if it is cold,"
            f" {_compared(cold, prices, 'cold')}; {warm.name} if it is warm,"
            f" {_compared(warm, prices, 'warm')}."
        )
    name, price = chosen.name, prices[chosen.name]
    cost = f"costs least: {_compared(chosen, prices, 'cold')}"
    if any(each.cold != each.warm for each in prices.values()):
        cost = f"{cost}; with a warm prompt cache {_compared(chosen, prices, 'warm')}"
    cheaper = []
    for each, other in prices.items():
        if other.cold < price.cold or other.warm < price.warm:
            cheaper.append(each)
    if not cheaper:
        return f"{_capital(name)} {cost}."
    are = "is" if len(cheaper) == 1 else "are"
    return (
        f"Of the arms that are right most often in these runs, {name} {cost}."
        f" {words.listed(cheaper, 3)} can cost less, but {are} less often right."
    )


def _compared(arm: ArmResults, prices: dict[str, ArmPrice], cache: CacheState) -> str:
    """Write an arm's price, compared with that of the arm that costs most, unless it is that
    itself.
    """
    name, price = arm.name, prices[arm.name].at(cache)
    text = _price(prices[name], cache, arm)
    most = max(prices, key=lambda each: prices[each].at(cache))
    than = _difference(price, prices[most].at(cache))
    if most == name or not than:
        return text
    return f"{text}, {than} than {most}"


def _effect(effect: DiscoveryEffect) -> str:
    """Write where discovery loses, or may lose, or nothing where it does not."""
    on, off = effect.on.name, "every tool loaded"
    if effect.off is not None:
        off = effect.off.name
    losses = []
    if effect.costs_more and effect.off is None:
        more = _difference(effect.price.cold, effect.every_tool_loaded.cold)
        if more:
            losses.append(f"{on} sends {more} input than {off} would (estimated)")
    elif effect.costs_more:
        losses.append(
            f"{on} costs {_change(effect, 'cold')} than {off}, with a warm prompt cache"
            f" {_change(effect, 'warm')}"
        )
    if effect.fewer_right and effect.fewer_right > 0:
        losses.append(f"{on} is right {words.percent(effect.fewer_right)} less often")
    sentences = []
    if effect.costs_more is None:
        sentences.append(
            f"Whether discovery pays depends on the prompt cache: {on} costs"
            f" {_change(effect, 'cold')} than {off} if it is cold, and {_change(effect, 'warm')} if"
            " it is warm."
        )
    if losses:
        sentences.append(f"Discovery loses here: {' and '.join(losses)}.")
    return " ".join(sentences)


def _change(effect: DiscoveryEffect, cache: CacheState) -> str:
    price, loaded = effect.price.at(cache), effect.every_tool_loaded.at(cache)
    return _difference(price, loaded) or "the same"


def _difference(price: float, other: float) -> str:
    """Write how two prices differ. Those in money have cents and less."""
    return words.difference(round(price * 10_000), round(other * 10_000))


def _first_requests(arms: Sequence[ArmResults]) -> Iterator[str]:
    """Write what is known of the cache in these runs, since it is why a second comparison can
    differ.
    """
    first = []
    for arm in arms:
        first += [record.first_reused for record in arm.done]
    if all(tokens is None for tokens in first):
        yield "The provider reports no cache reads: cold and warm are estimates of the two ends."
        return
    warm = sum(map(bool, first))
    if warm == 0:
        yield "In these runs the cache was cold: no first request read anything from it."
    elif warm == len(first):
        yield "In these runs the cache was warm: each first request read from it."
    else:
        yield (
            f"In {warm:,} of {words.count(len(first), 'run')} the first request read from the"
            " cache, in the others not."
        )


def _price(price: ArmPrice, cache: CacheState, arm: ArmResults) -> str:
    if price.currency is not None:
        return f"{Cost(price.at(cache), price.currency)} per run"
    return (
        f"{words.about(round(price.at(cache)), arm.origin)} input tokens per run (reused tokens"
        " count one tenth)"
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:] if text.startswith("discovery") else text
