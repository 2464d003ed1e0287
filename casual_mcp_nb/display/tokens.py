"""Tokens in tables and bars: the breakdown of requests, over steps and turns."""

from __future__ import annotations

from collections.abc import Sequence

from casual_mcp_nb.display import format as words
from casual_mcp_nb.display.view import Bar, Cell, DisplayLimits, StackedBar, Table, columns, fraction
from casual_mcp_nb.types.stats import ChatStats, StepStats
from casual_mcp_nb.types.tokens import TokenParts

PARTS = {
    "system": "System prompt",
    "manifest": "Manifest",
    "tools": "Tool definitions",
    "history": "Messages",
    "results": "Tool results",
}

_SHORT = ("System #", "Manifest #", "Tools #", "Messages #", "Results #")


def make_up_table(parts: TokenParts) -> Table:
    """Build a table with a row for each part of a request, with its share."""
    rows: list[tuple[Cell, ...]] = []
    for colour, (name, value) in enumerate(parts.as_dict().items()):
        share = fraction(value, parts.total)
        text = words.UNKNOWN if share is None else words.percent(share)
        rows.append((PARTS[name], words.about(value, parts.origin), Bar(text, share, colour)))
    rows.append(("Total", words.about(parts.total, parts.origin), stack(parts, parts.total, "")))
    return Table(columns("Part", "Tokens #", "Share"), tuple(rows))


def stack(parts: TokenParts, most: int, text: str) -> StackedBar:
    """Draw the breakdown as one bar, on a scale on which `most` tokens take the full width."""
    return StackedBar(text, tuple(value / most if most > 0 else 0.0 for value in parts.as_dict().values()))


def step_table(steps: Sequence[StepStats], limits: DisplayLimits) -> Table:
    """Build a table with the breakdown of each request and the tokens of its answer; of many steps the last ones."""
    last = steps[-max(1, limits.rows // 2) :]
    most = max((step.parts.total for step in last), default=0)
    turns = last[-1].turn > 0 if last else False
    reused, output = any(step.reused is not None for step in last), _has_output(last)
    more = (*(("Reused #",) if reused else ()), *(("Output",) if output else ()))
    titles = columns(*(("Turn",) if turns else ()), "Step", *_SHORT, "Input", *more)
    return Table(titles, tuple(_step_row(step, most, turns, reused, output) for step in last), len(steps) - len(last))


def _has_output(steps: Sequence[StepStats]) -> bool:
    return any(step.completion_tokens is not None for step in steps)


def _step_row(step: StepStats, most: int, turns: bool, reused: bool, output: bool) -> tuple[Cell, ...]:
    return (
        *((str(step.turn + 1),) if turns else ()),
        str(step.step + 1),
        *(words.number(value) for value in step.parts.as_dict().values()),
        stack(step.parts, most, words.about(step.parts.total, step.parts.origin)),
        *((words.about(step.reused, "estimated"),) if reused else ()),
        *((words.about(step.completion_tokens, step.answer_origin),) if output else ()),
    )


def deferral_rows(stats: ChatStats) -> tuple[tuple[str, Cell], ...]:
    """Compare the input of all requests with the input if every tool were loaded."""
    sent, without = stats.sent_tokens, stats.undeferred_tokens
    return (
        ("Input", words.tokens(sent, stats.parts.origin)),
        ("If every tool were loaded", words.tokens(without, "estimated")),
        *saving_row(sent, without),
    )


def saving_row(price: int, without: int) -> tuple[tuple[str, Cell], ...]:
    """Format the saving or extra cost of deferring, as a label with its value; nothing where it makes no difference."""
    share = words.difference(price, without)
    if not share:
        return ()
    return (("Deferring costs", share),) if price > without else (("Saved by deferring", share.removesuffix(" less")),)


def change_table(before: TokenParts, after: TokenParts) -> Table:
    """Build a table of the parts that differ between two requests, and the totals of both."""
    pairs = zip(before.as_dict().items(), after.as_dict().values(), strict=True)
    rows: list[tuple[Cell, ...]] = [
        (PARTS[name], words.about(old, before.origin), words.about(new, after.origin), words.change(new - old))
        for (name, old), new in pairs
        if old != new
    ]
    total = stack(after, max(before.total, after.total), words.about(after.total, after.origin))
    whole = (words.about(before.total, before.origin), total, words.change(after.total - before.total))
    rows.append(("Total", *whole))
    return Table(columns("Part", "Before #", "Now #", "Change #"), tuple(rows))
