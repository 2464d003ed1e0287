"""The cost of whole turns, estimated from the model's view before any of them is run."""

from __future__ import annotations

from collections.abc import Mapping

from casual_mcp_nb.engine.view import ToolView
from casual_mcp_nb.types.budget import Budget, TurnCosts
from casual_mcp_nb.types.delivery import DeliverySetting

QUESTION = 30
"""Tokens of what the person writes: one or two sentences."""
CALL = 40
"""Tokens of a tool call as it is sent back: its name and a few arguments."""
RESULT = 300
"""Tokens of a result: a short list, or a page of text that was cut to what is useful. Real ones go from 5 to 10,000."""
ANSWER = 100
"""Tokens of an answer: a short paragraph."""
CARD = 60
"""Tokens of one tool in the result of a search: its name, its parameters, the first words of its description."""
_CARDS: Mapping[DeliverySetting, int] = {"native": 10, "bridge": 20}
"""Tokens of a card that does not repeat the definition; with `bridge` the definition itself is in the result."""
TURNS = 10


def turn_budget(view: ToolView, system_tokens: int = 0) -> Budget:
    """Estimate the cost of turns with a view, and the cost if every tool in it were loaded.

    Args:
        view: What the model sees.
        system_tokens: Tokens of the system prompt.
    """
    undeferred = _costs(system_tokens + view.undeferred_tokens)
    if not view.deferred:
        return Budget(undeferred, undeferred)
    count = len(view.deferred)
    each = (view.undeferred_tokens - view.loaded_tokens) / count
    selection = view.selection
    most = count
    if selection.strategy == "browse":
        most = min(count, selection.max_active_tools, max(1, int(selection.max_active_tokens / max(each, 1))))
    # Only browsing unloads tools; what was searched stays loaded.
    per_search = min(selection.max_search_results, most)
    if selection.strategy == "search":
        per_search = min(per_search, max(1, int(selection.max_search_tokens / max(each, 1))))
    card = _CARDS.get(selection.delivery, CARD)
    return Budget(_costs(system_tokens + view.first_call_tokens, each, per_search, most, card), undeferred)


def _costs(first: int, definition: float = 0.0, per_search: int = 0, most: int = 0, card: int = CARD) -> TurnCosts:
    """Add up turns with one call each, which a search comes before where it finds something.

    Each request sends everything again: what the first one had, the definitions that searches have added, and all that was
    said. Only what is sent is counted, not what the model writes.

    Args:
        first: Tokens of the system prompt, the definitions and the manifest.
        definition: Tokens of a deferred tool's definition.
        per_search: How many tools each search adds; each turn searches for others.
        most: How many can be loaded.
        card: Tokens of a tool in the result of a search.
    """
    total = turn = 0.0
    history = active = 0
    for number in range(TURNS):
        history += QUESTION
        if per_search:
            total += first + active * definition + history
            active = min(active + per_search, most)
            history += CALL + per_search * card
        total += first + active * definition + history
        history += CALL + RESULT
        total += first + active * definition + history
        history += ANSWER
        if number == 0:
            turn = total
    return TurnCosts(first, round(turn), round(total))
