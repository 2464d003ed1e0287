"""Tokens in tables and bars: the breakdown of requests, over steps and turns."""

from __future__ import annotations

from collections.abc import Sequence

from casual_mcp_nb.display import format as words
from casual_mcp_nb.display.view import Bar, Cell, DisplayLimits, KeyValues, StackedBar, Table, columns, fraction
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
    """Return a row for each part of a request, with its share."""
    rows: list[tuple[Cell, ...]] = []
    for colour, (name, value) in enumerate(parts.as_dict().items()):
        share = fraction(value, parts.total)
        text = words.UNKNOWN if share is None else words.percent(share)
        rows.append((PARTS[name], words.number(value), Bar(text, share, colour)))
    rows.append(("All", words.number(parts.total), stack(parts, parts.total, "")))
    return Table(columns("Part", f"Tokens ({parts.origin}) #", "Share"), tuple(rows))


def stack(parts: TokenParts, most: int, text: str | None = None) -> StackedBar:
    """Return the breakdown as one bar, on a scale on which `most` tokens take the full width."""
    label = words.number(parts.total) if text is None else text
    return StackedBar(label, tuple(value / most if most > 0 else 0.0 for value in parts.as_dict().values()))


def step_table(steps: Sequence[StepStats], limits: DisplayLimits) -> Table:
    """Return the breakdown of each request and the tokens of its answer; of many steps the last ones."""
    last = steps[-max(1, limits.rows // 2) :]
    most = max((step.parts.total for step in last), default=0)
    turns = last[-1].turn > 0 if last else False
    titles = columns(*(("Turn",) if turns else ()), "Step", *_SHORT, "Request", "Answer")
    return Table(titles, tuple(_step_row(step, most, turns) for step in last), len(steps) - len(last))


def _step_row(step: StepStats, most: int, turns: bool) -> tuple[Cell, ...]:
    return (
        *((str(step.turn + 1),) if turns else ()),
        str(step.step + 1),
        *(words.number(value) for value in step.parts.as_dict().values()),
        stack(step.parts, most, f"{words.number(step.parts.total)} ({step.parts.origin})"),
        answer_words(step),
    )


def answer_words(step: StepStats) -> str:
    """Return the tokens of a step's answer with their origin, or `unknown`."""
    if step.completion_tokens is None:
        return words.UNKNOWN
    return f"{words.number(step.completion_tokens)} ({step.answer_origin})"


def deferral_facts(stats: ChatStats) -> KeyValues:
    """Return what all requests used, what they would have used with every tool loaded, and the difference."""
    sent, without = stats.sent_tokens, stats.undeferred_tokens
    return KeyValues(
        (
            ("All requests", words.tokens(sent, stats.parts.origin)),
            ("With nothing deferred", words.tokens(without, "estimated")),
            ("Saved by deferral", words.saving(sent, without)),
        )
    )


def change_table(before: TokenParts, after: TokenParts) -> Table:
    """Return the parts that differ between two requests, and the totals of both."""
    pairs = zip(before.as_dict().items(), after.as_dict().values(), strict=True)
    rows: list[tuple[Cell, ...]] = [
        (PARTS[name], words.number(old), words.number(new), words.change(new - old)) for (name, old), new in pairs if old != new
    ]
    whole = (words.number(before.total), stack(after, max(before.total, after.total)), words.change(after.total - before.total))
    rows.append(("Total", *whole))
    return Table(columns("Part", f"Before ({before.origin}) #", f"Now ({after.origin}) #", "Change #"), tuple(rows))
