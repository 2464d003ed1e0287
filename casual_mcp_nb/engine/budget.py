"""A turn's estimated cost before it is made, and the cost with every tool loaded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from casual_mcp_nb.base.model_options import DeliverySetting
from casual_mcp_nb.base.tokens import SEARCHING_TURNS, Budget, TurnCosts, estimate_tokens
from casual_mcp_nb.discovery.manifest import function_card
from casual_mcp_nb.engine.tool_view import ToolView

QUESTION = 30
"""Tokens in the person's message: one or two sentences."""
CALL = 40
"""Tokens in a tool call as it goes back to the model: its name and a few arguments."""
RESULT = 300
"""A result's tokens: a short list, or the useful part from a page.

Real ones have from 5 to 10,000.
"""
ANSWER = 100
"""An answer's tokens: a short paragraph."""
CARD = 60
"""Tokens for one tool in a search result: its name, its parameters, its description's first words.
"""
_CARDS: Mapping[DeliverySetting, int] = {"native": 10, "bridge": 20, "code": 10}
"""Tokens in a card that does not repeat the definition.

With `bridge` and `code` the definition is in the result itself.
"""
TURNS = 10
"""How many turns the longer estimates are for."""


def turn_budget(view: ToolView, system_tokens: int = 0) -> Budget:
    """Estimate the cost of turns with a view, and the cost if every tool in it were loaded."""
    undeferred = _costs(system_tokens, view.undeferred_tokens)
    if view.deferred:
        now = _costs(system_tokens, view.first_call_tokens, _search_cost(view))
    elif view.coded:
        now = _costs(system_tokens, view.first_call_tokens)
    else:
        now = undeferred
    return Budget(now=now, undeferred=undeferred)


@dataclass(frozen=True)
class _SearchCost:
    """A search's cost.

    Args:
        definition: An average tool's tokens, once a search has found it.
        per_search: How many tools a search finds.
        most: How many found tools can be loaded at the same time.
        card: Tokens for one tool in the search's result.
        at_the_end: Whether definitions come after the conversation, so that everything before them
            stays in a cache.
    """

    definition: float
    per_search: int
    most: int
    card: int
    at_the_end: bool


def _search_cost(view: ToolView) -> _SearchCost:
    """Estimate a search's cost with a view that has deferred tools."""
    selection, count = view.selection, len(view.deferred)
    definition = view.deferred_tokens / count
    # Only browsing unloads tools; what was searched stays loaded.
    most = count
    if selection.strategy == "browse":
        fitting = max(1, int(selection.max_active_tokens / max(definition, 1)))
        most = min(count, selection.max_active_tools, fitting)
    per_search = min(selection.max_search_results, most)
    if selection.strategy == "search":
        fitting = max(1, int(selection.max_search_tokens / max(definition, 1)))
        per_search = min(per_search, fitting)
    if selection.delivery == "code":
        # In place of its definition, a tool has a function in the search's result.
        definition = sum(estimate_tokens(function_card(tool)) for tool in view.deferred) / count
    return _SearchCost(
        definition=definition,
        per_search=per_search,
        most=most,
        card=_CARDS.get(selection.delivery, CARD),
        at_the_end=selection.delivery in _CARDS,
    )


def _costs(system: int, definitions: int, search: _SearchCost | None = None) -> TurnCosts:
    turn, _ = _requests(system, definitions, search, 1, range(1))
    some_turns = range(0, TURNS, math.ceil(TURNS / SEARCHING_TURNS))
    typical, new = _requests(system, definitions, search, TURNS, some_turns)
    worst, _ = _requests(system, definitions, search, TURNS, range(TURNS))
    return TurnCosts(
        definitions=definitions,
        first_request=system + definitions,
        turn=round(turn),
        ten_turns=round(typical),
        ten_turns_new=round(new),
        ten_turns_worst=round(worst),
    )


def _requests(
    system: int, definitions: int, search: _SearchCost | None, turns: int, searching: range
) -> tuple[float, float]:
    """Add up the requests in turns with one call each. In the turns `searching`, a search comes
    before the call.

    Each request sends everything again: the first one's content, the definitions that searches have
    added, and the conversation. Only input counts, not the model's output.

    Returns:
        All tokens, and those after the beginning shared with the previous request.
    """
    sent = new = reused = history = 0.0
    tools = float(definitions)
    active = 0
    for turn in range(turns):
        history += QUESTION
        searches = search is not None and turn in searching
        last = 2 if searches else 1
        for request in range(last + 1):
            size = tools + system + history
            sent += size
            new += size - reused
            reused = size
            if search is not None and searches and request == 0:
                added = min(search.per_search, search.most - active)
                active += added
                if added and not search.at_the_end:
                    reused = tools
                tools += added * search.definition
                history += CALL + search.per_search * search.card
            elif request == last:
                history += ANSWER
            else:
                history += CALL + RESULT
    return sent, new
