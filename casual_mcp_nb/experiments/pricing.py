"""Compare what arms cost per run, with a cold and with a warm prompt cache, and what deferring
tools does to that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from casual_mcp_nb.experiments.arm_results import ArmResults, by_case_of
from casual_mcp_nb.experiments.arms import Arm
from casual_mcp_nb.experiments.run_record import CacheState

_BESIDE_DISCOVERY = ("model", "tool_set", "descriptions", "without", "servers")
"""What an arm sets, apart from discovery, its strategy and the delivery."""


@dataclass(frozen=True)
class ArmPrice:
    """An arm's mean price per run.

    Args:
        cold: If the first request finds nothing in the provider's prompt cache.
        warm: If it finds all its prefix there.
        currency: The currency, or None for input tokens, with reused ones counted as a tenth.
    """

    cold: float
    warm: float
    currency: str | None = None

    def at(self, cache: CacheState) -> float:
        """Return the price with a cold or a warm cache."""
        return self.cold if cache == "cold" else self.warm


@dataclass(frozen=True)
class DiscoveryEffect:
    """The effect of deferring in one arm, compared with every tool loaded.

    Args:
        on: The arm with discovery.
        off: The arm without, or None if there is none, so that `every_tool_loaded` is an estimate.
        price: The price with discovery. If `off` is None, all its input tokens.
        every_tool_loaded: The same for every tool loaded.
        fewer_right: How much lower the share of right runs is than without discovery, from 0 to 1,
            see `right_shares`, or None if no case was judged in both arms.
    """

    on: Arm
    off: Arm | None
    price: ArmPrice
    every_tool_loaded: ArmPrice
    fewer_right: float | None = None

    @property
    def costs_more(self) -> bool | None:
        """Whether deferring costs more, or None if that depends on the prompt cache."""
        cold = self.price.cold > self.every_tool_loaded.cold
        warm = self.price.warm > self.every_tool_loaded.warm
        return cold if cold == warm else None

    @property
    def loses(self) -> bool:
        """Whether deferring costs more here whatever the cache holds, or makes answers wrong."""
        return self.costs_more is True or (self.fewer_right or 0) > 0


def prices_of(arms: Sequence[ArmResults]) -> dict[str, ArmPrice]:
    """Compute each arm's price: in money if all runs have a cost in one currency, else in tokens.

    Returns:
        The prices by arm, or none if a run's tokens are unknown.
    """
    currencies = set()
    for arm in arms:
        for record in arm.done:
            if record.priced_tokens("cold") is None:
                return {}
            has_cost = record.cold_cost is not None and record.warm_cost is not None
            currencies.add(record.currency if has_cost else None)
    currency = currencies.pop() if len(currencies) == 1 else None

    def price_of(arm: ArmResults, cache: CacheState) -> float:
        if currency is None:
            return fmean(record.priced_tokens(cache) or 0.0 for record in arm.done)
        return fmean(getattr(record, f"{cache}_cost") for record in arm.done)

    prices = {}
    for arm in arms:
        prices[arm.name] = ArmPrice(price_of(arm, "cold"), price_of(arm, "warm"), currency)
    return prices


def right_shares(arms: Iterable[ArmResults]) -> dict[str, float]:
    """Compute how often each arm is right in the cases in which all of them have a verdict.

    Each case counts the same, and in it only the judged runs: one that was not made or not graded
    is neither right nor wrong.

    Returns:
        The shares by arm, or none if the arms have no such case.
    """
    arms = tuple(arms)
    cases = [set(by_case_of(arm.judged)) for arm in arms]
    common = set[str]().union(*cases).intersection(*cases)
    shares = {}
    for arm in arms:
        right = arm.of_cases(common).right
        if right is not None:
            # Rounded, so that equal shares of different numbers of runs are equal.
            shares[arm.name] = round(right.value, 12)
    return shares


def best_of(arms: Sequence[ArmResults]) -> list[ArmResults]:
    """Choose the arms that are right most often, or all if no verdicts compare them."""
    shares = right_shares(arms)
    if not shares:
        return [*arms]
    most = max(shares.values())
    return [arm for arm in arms if shares[arm.name] == most]


def cheapest_of(arms: Sequence[ArmResults]) -> ArmResults | None:
    """Choose the cheapest among the arms that are right most often, or None if that depends on the
    cache.
    """
    prices, best = prices_of(arms), best_of(arms)
    if len(arms) < 2 or not prices:
        return None
    cold = min(prices[arm.name].cold for arm in best)
    warm = min(prices[arm.name].warm for arm in best)
    for arm in best:
        price = prices[arm.name]
        if price.cold == cold and price.warm == warm:
            return arm
    return None


def discovery_effects_of(arms: Sequence[ArmResults]) -> tuple[DiscoveryEffect, ...]:
    """Compute the effect of deferring, for each arm that deferred something."""
    prices = prices_of(arms)
    if not prices:
        return ()
    effects = []
    for arm in arms:
        if any(record.discovery and record.searchable for record in arm.done):
            off = next((each for each in arms if _is_counterpart(each, arm.arm)), None)
            effects.append(_effect_of(arm, off, prices))
    return tuple(effects)


def _effect_of(
    arm: ArmResults, off: ArmResults | None, prices: Mapping[str, ArmPrice]
) -> DiscoveryEffect:
    if off is None:
        sent = fmean(record.input_tokens or 0 for record in arm.done)
        loaded = fmean(record.undeferred_tokens or 0 for record in arm.done)
        return DiscoveryEffect(arm.arm, None, ArmPrice(sent, sent), ArmPrice(loaded, loaded))
    fewer = None
    if shares := right_shares((off, arm)):
        fewer = shares[off.name] - shares[arm.name]
    return DiscoveryEffect(arm.arm, off.arm, prices[arm.name], prices[off.name], fewer)


def _is_counterpart(other: ArmResults, arm: Arm) -> bool:
    """Check whether an arm is the same but without discovery, where strategy and delivery do not
    matter.
    """
    same = all(getattr(other.arm, name) == getattr(arm, name) for name in _BESIDE_DISCOVERY)
    return same and not any(record.discovery for record in other.done)
