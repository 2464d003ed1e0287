"""A spending limit for runs, which a results file carries from one process to the next."""

from __future__ import annotations

import asyncio
import math
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.tokens import TokenUsage
from casual_mcp_nb.conversation.event import Request
from casual_mcp_nb.errors import ProviderError, SpendLimitError, cannot_be
from casual_mcp_nb.providers.spending import (
    MARGIN,
    UsualAnswer,
    costs_nothing,
    reported_or_estimated,
)

if TYPE_CHECKING:
    from casual_mcp_nb.base.prices import Price

Amount = tuple[float, float]
"""Tokens and money."""
NOTHING = (0.0, 0.0)


class BudgetReachedError(SpendLimitError):
    """The next model call could pass the budget."""


class Ledger:
    """What was spent so far, as a results file records it.

    A reservation that never ended counts as spent: its process was killed during a model call.

    Args:
        write: Appends an entry to the file.
    """

    def __init__(self, write: Callable[[str, str, Amount], None] = ignore) -> None:
        self.write = write
        self._spent = NOTHING
        self._open: dict[str, Amount] = {}

    def read(self, kind: str, call: str, amount: Amount) -> None:
        """Count an entry: a model call's amount is `reserved` before it, and `spent` when it has
        ended.
        """
        if kind == "reserved":
            self._open[call] = amount
            return
        self._open.pop(call, None)
        self._spent = _sum(self._spent, amount)

    @property
    def spent(self) -> Amount:
        """The tokens and money, with reservations that never ended."""
        return _sum(self._spent, *self._open.values())


class Budget:
    """A spending limit for runs.

    It is never passed, because each model call first reserves its share.

    A request is estimated, with a margin. An answer is assumed to take all tokens that `max_tokens`
    allows. Without that, 4,096, or after ten answers twice the longest one, if that is less.

    Args:
        tokens: Input and output tokens, or None for no limit.
        cost: Money, in the prices' currency, or None for no limit.

    Attributes:
        spent: The tokens and money that are spent, also by earlier processes on the same results
            file.
        ledger: Records each model call.
    """

    def __init__(self, tokens: float | None = None, cost: float | None = None) -> None:
        for name, value in {"max_total_tokens": tokens, "max_cost": cost}.items():
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, int | float) or value <= 0
            ):
                raise cannot_be(name, value, "It must be more than 0, or None for no limit.")
        self.limits: Amount = (float(tokens or math.inf), float(cost or math.inf))
        self.spent = NOTHING
        self.ledger = Ledger()
        self._reserved: dict[int, tuple[str, Amount]] = {}
        self._freed = asyncio.Event()
        self._usual = UsualAnswer()

    @classmethod
    def of(cls, left: Amount) -> Budget:
        """Create a limit from a share of what another budget has left."""
        budget = cls()
        budget.limits = left
        return budget

    @property
    def limited(self) -> bool:
        """Whether there is a limit."""
        return min(self.limits) < math.inf

    def continue_from(self, ledger: Ledger) -> None:
        """Go on from what a file's earlier runs have spent, and record the next calls there."""
        self.ledger, self.spent = ledger, ledger.spent

    def left(self) -> Amount:
        """Compute the tokens and money that are neither spent nor reserved."""
        taken = _sum(self.spent, *(amount for _, amount in self._reserved.values()))
        return self.limits[0] - taken[0], self.limits[1] - taken[1]

    async def reserve(self, run: int, request: Request, price: Price | None) -> bool:
        """Reserve the budget for a run's model call, when necessary after waiting for calls that
        hold too much of it.

        Returns:
            False if too little is left, with nothing reserved that could be freed.
        """
        return await self.reserve_tokens(
            run, request.tokens.total, request.options.get("max_tokens"), price
        )

    async def reserve_tokens(
        self, run: int, tokens: int, limit: int | None, price: Price | None
    ) -> bool:
        """Reserve the budget for a call with so many input tokens, and at most so many output
        tokens.

        See `reserve`.
        """
        self.release(run)
        while True:
            answer = int(limit or self._usual.tokens)
            need = _amount(TokenUsage(round(tokens * MARGIN), answer), price)
            left = self.left()
            if need[0] <= left[0] and need[1] <= left[1]:
                call = uuid.uuid4().hex[:16]
                self._reserved[run] = call, need
                self.ledger.write("reserved", call, need)
                return True
            if not self._reserved:
                return False
            await self._freed.wait()

    def spend(
        self, run: int, usage: TokenUsage | None, request: Request, answer: str, price: Price | None
    ) -> None:
        """Record a model call's usage: reported, or estimated."""
        known = reported_or_estimated(usage, request.tokens.total, answer)
        self._usual.add(known)
        self.settle(run, known, price)

    def settle(self, run: int, usage: TokenUsage, price: Price | None) -> None:
        """End a reservation with what the call has taken."""
        self._end(run, _amount(usage, price))

    def release(self, run: int, *, refused: bool = False) -> None:
        """End a run's reservation, if it has one.

        What a broken call has cost is unknown, so that all of it counts.

        Args:
            run: The run.
            refused: Whether the provider refused the call, and so asks nothing for it.
        """
        if run in self._reserved:
            _, amount = self._reserved[run]
            self._end(run, NOTHING if refused else amount)

    def take(self, amount: Amount, *, recorded: bool) -> None:
        """Add what another process has spent, and record it unless that process did."""
        self.spent = _sum(self.spent, amount)
        if not recorded:
            self.ledger.write("spent", uuid.uuid4().hex[:16], amount)

    def _end(self, run: int, amount: Amount) -> None:
        call, _ = self._reserved.pop(run, (uuid.uuid4().hex[:16], NOTHING))
        self.spent = _sum(self.spent, amount)
        self.ledger.write("spent", call, amount)
        # Those that wait look again. The next ones wait for the next event.
        self._freed.set()
        self._freed = asyncio.Event()


def is_refusal(error: BaseException | None) -> bool:
    """Check whether a call was refused and so costs nothing: by a limit before it was sent, or by
    its provider, in an answer that says so.
    """
    if isinstance(error, SpendLimitError):
        return True
    return isinstance(error, ProviderError) and error.status is not None and costs_nothing(error)


def _amount(usage: TokenUsage, price: Price | None) -> Amount:
    tokens = float((usage.prompt_tokens or 0) + (usage.completion_tokens or 0))
    cost = price and price.of(usage)
    return tokens, cost.amount if cost else 0.0


def _sum(*amounts: Amount) -> Amount:
    return sum(amount[0] for amount in amounts), sum(amount[1] for amount in amounts)
