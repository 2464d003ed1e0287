"""A turn's estimated cost before it is made, and the cost with every tool loaded."""

from __future__ import annotations

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


def turn_budget(view: ToolView, system_tokens: int = 0) -> Budget:
    """Estimate the cost of turns with a view, and the cost if every tool in it were loaded."""
    undeferred = _costs(system_tokens, view.undeferred_tokens)
    if not view.deferred:
        return Budget(
            _costs(system_tokens, view.first_call_tokens) if view.coded else undeferred, undeferred
        )
    count = len(view.deferred)
    each = view.deferred_tokens / count
    selection = view.selection
    most = count
    if selection.strategy == "browse":
        most = min(
            count,
            selection.max_active_tools,
            max(1, int(selection.max_active_tokens / max(each, 1))),
        )
    # Only browsing unloads tools; what was searched stays loaded.
    per_search = min(selection.max_search_results, most)
    if selection.strategy == "search":
        per_search = min(per_search, max(1, int(selection.max_search_tokens / max(each, 1))))
    if selection.delivery == "code":
        # In place of its definition, a tool has a function in the search's result.
        each = sum(estimate_tokens(function_card(tool)) for tool in view.deferred) / count
    search = _SearchCost(
        each, per_search, most, _CARDS.get(selection.delivery, CARD), selection.delivery in _CARDS
    )
    return Budget(_costs(system_tokens, view.first_call_tokens, search), undeferred)


@dataclass(frozen=True)
class _SearchCost:
    """A search's cost.

    Args:
        at_the_end: Whether definitions come after the conversation, so that everything before them
            stays in a cache.
    """

    definition: float
    per_search: int
    most: int
    card: int
    at_the_end: bool


def _costs(system: int, definitions: int, search: _SearchCost | None = None) -> TurnCosts:
    turn, _ = _requests(system, definitions, search, 1, range(1))
    typical, new = _requests(
        system, definitions, search, TURNS, range(0, TURNS, -(-TURNS // SEARCHING_TURNS))
    )
    worst, _ = _requests(system, definitions, search, TURNS, range(TURNS))
    return TurnCosts(definitions, system + definitions, *map(round, (turn, typical, new, worst)))


def _requests(
    system: int, definitions: int, search: _SearchCost | None, turns: int, searching: range
) -> tuple[float, float]:
    """Add up the requests in turns with one call each.

    A search comes before it in the `searching` ones.

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
        for request in range(3 if search and turn in searching else 2):
            size = tools + system + history
            sent += size
            new += size - reused
            reused = size
            if search and turn in searching and request == 0:
                added = min(search.per_search, search.most - active)
                active += added
                reused = size if search.at_the_end or not added else tools
                tools += added * search.definition
                history += CALL + search.per_search * search.card
            elif request == (2 if search and turn in searching else 1):
                history += ANSWER
            else:
                history += CALL + RESULT
    return sent, new
