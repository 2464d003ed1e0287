"""What a session's requests to models may take: `session.limits`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.config import PERIODS, Period
from casual_mcp_nb.base.displayable import NamespaceList
from casual_mcp_nb.base.iterables import drop_none
from casual_mcp_nb.base.status import SpendRow, SpendStatus
from casual_mcp_nb.conversation.stored_spending import Spent
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.errors import UnknownNameError, UsageError, brief
from casual_mcp_nb.notebook.saving import ConversationSaver


class SessionLimits(NamespaceList[SpendRow]):
    """A session's spend limits, and what its requests to models took: `session.limits`.

    The limits are those of the config's `limits` until you set others.
    """

    def __init__(
        self,
        chat: McpToolChat,
        saver: ConversationSaver,
        changed: Callable[[], object] = ignore,
    ) -> None:
        self._chat = chat
        self._saver = saver
        self._changed = changed
        self._complete = True

    @property
    def now(self) -> SpendStatus:
        """What was spent in the last turn, in this conversation and today, and the limits."""
        spending = self._chat.models.spending
        account = self._chat.state.last_account or self._chat.account()
        store, place, spent = self._saver.store, "", {}
        if store is not None:
            place = str(store.path)
        if store is None or store.path.exists():
            spent = spending.spent(account.keys())
        rows: list[SpendRow] = []
        for period in PERIODS:
            limits: Mapping[Any, Any] = spending.limits.of(period)
            rows.append(SpendRow(period, **limits, **vars(spent.get(period, Spent()))))
        return SpendStatus(tuple(rows), place)

    def set(
        self,
        period: Period,
        *,
        max_cost: float | None = None,
        max_total_tokens: int | None = None,
    ) -> None:
        """Set a period's limits for this session, from the next request on. The config stays.

        Args:
            period: `turn`, `conversation`, or `day`.
            max_cost: The most US dollars, or None to leave that limit as it is. It needs prices.
            max_total_tokens: The most tokens, input and output, or None to leave that limit.

        Raises:
            UsageError: There is no such period, or a limit is not more than 0.
        """
        limits = {"max_cost": max_cost, "max_total_tokens": max_total_tokens}
        self._replace(period, drop_none(limits))

    def clear(self, period: Period | None = None) -> None:
        """End the limits of a period, or all of them.

        Args:
            period: `turn`, `conversation`, or `day`, or None for all.

        Raises:
            UsageError: There is no such period.
        """
        periods = PERIODS
        if period is not None:
            periods = (period,)
        for each in periods:
            self._replace(each, {"max_cost": None, "max_total_tokens": None})

    def _replace(self, period: Period, limits: Mapping[str, float | None]) -> None:
        if period not in PERIODS:
            raise UnknownNameError("period", str(period), PERIODS)
        spending = self._chat.models.spending
        try:
            spending.limits = spending.limits.replaced(period, limits)
        except ValidationError:
            raise UsageError(
                f"A limit cannot be {brief(list(limits.values()))}.",
                hint="max_cost is a number of dollars above 0, max_total_tokens one of tokens.",
            ) from None
        self._changed()
