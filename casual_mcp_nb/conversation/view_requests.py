"""Views for model requests: what is in them, what they cost, and what is new since the previous
one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from casual_mcp_nb.base.content import pictures_of
from casual_mcp_nb.base.tokens import CacheMiss, TokenParts, definition_tokens, estimate_tokens
from casual_mcp_nb.conversation.event import Request
from casual_mcp_nb.conversation.stats import ChatStats, StepStats
from casual_mcp_nb.conversation.step import ComingRequest, StepDiff, text_of
from casual_mcp_nb.display import words
from casual_mcp_nb.display.view import (
    Bar,
    Block,
    Blocks,
    Cell,
    DisplayLimits,
    Facts,
    KeyValues,
    Line,
    Name,
    Row,
    Section,
    StackedBar,
    Status,
    Table,
    TextBlock,
    View,
    columns,
    fraction,
    pretty,
)
from casual_mcp_nb.display.words import SUMMARY, first

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage
from casual_mcp_nb.conversation.view_calls import ImageBudget, picture_blocks

PARTS = {
    "system": "System prompt",
    "manifest": "Manifest",
    "tools": "Tool definitions",
    "history": "Messages",
    "results": "Tool results",
}
_SHORT = ("System #", "Manifest #", "Tools #", "Messages #", "Results #")


def make_up_table(parts: TokenParts) -> Table:
    """Build a table with one row per request part, with its share."""
    rows: list[Row] = []
    for colour, (name, value) in enumerate(parts.as_dict().items()):
        share = fraction(value, parts.total)
        text = words.UNKNOWN if share is None else words.percent(share)
        rows.append((PARTS[name], words.about(value, parts.origin), Bar(text, share, colour)))
    rows.append(("Total", words.about(parts.total, parts.origin), stack(parts, parts.total, "")))
    return Table(columns("Part", "Tokens #", "Share"), tuple(rows))


def stack(parts: TokenParts, most: int, text: str) -> StackedBar:
    """Draw the breakdown as one bar, in which `most` tokens take the full width."""
    return StackedBar(
        text, tuple(value / most if most > 0 else 0.0 for value in parts.as_dict().values())
    )


def step_table(steps: Sequence[StepStats], limits: DisplayLimits) -> Table:
    """Build a table with each request's breakdown and its answer's tokens.

    If there are many steps, the last ones.
    """
    last = steps[-max(1, limits.rows // 2) :]
    most = max((step.parts.total for step in last), default=0)
    turns = bool(last) and last[-1].turn > 0
    reused = any(step.reused is not None for step in last)
    output = any(step.completion_tokens is not None for step in last)
    titles = ["Step", *_SHORT, "Input"]
    if turns:
        titles.insert(0, "Turn")
    if reused:
        titles.append("Reused #")
    if output:
        titles.append("Output")
    rows: list[Row] = []
    for step in last:
        parts = step.parts
        row: list[Cell] = [str(step.step + 1), *map(words.number, parts.as_dict().values())]
        row.append(stack(parts, most, words.about(parts.total, parts.origin)))
        if turns:
            row.insert(0, str(step.turn + 1))
        if reused:
            row.append(words.about(step.reused, "estimated"))
        if output:
            row.append(words.about(step.completion_tokens, step.answer_origin))
        rows.append(tuple(row))
    return Table(columns(*titles), tuple(rows), len(steps) - len(last))


def deferral_rows(stats: ChatStats) -> Facts:
    """Compare total input with the input if every tool were loaded."""
    sent, without = stats.sent_tokens, stats.undeferred_tokens
    return (
        ("Input", words.tokens(sent, stats.parts.origin)),
        ("With every tool loaded", words.tokens(without, "estimated")),
        *saving_row(sent, without),
    )


def saving_row(price: int, without: int) -> Facts:
    """Format the saving or cost of deferring, as a label with its value, or nothing if it makes no
    difference.
    """
    share = words.difference(price, without)
    if not share:
        return ()
    if price > without:
        return (("Deferring costs", share),)
    return (("Saved by deferring", share.removesuffix(" less")),)


def change_table(before: TokenParts, after: TokenParts) -> Table:
    """Build a table with the parts in which two requests differ, and both totals."""
    pairs = zip(before.as_dict().items(), after.as_dict().values(), strict=True)
    rows: list[Row] = []
    for (name, old), new in pairs:
        if old != new:
            both = (words.about(old, before.origin), words.about(new, after.origin))
            rows.append((PARTS[name], *both, words.change(new - old), ""))
    whole = (words.about(before.total, before.origin), words.about(after.total, after.origin))
    bar = stack(after, max(before.total, after.total), "")
    rows.append(("Total", *whole, words.change(after.total - before.total), bar))
    return Table(columns("Part", "Before #", "Now #", "Change #", "Composition"), tuple(rows))


_FIRST_MESSAGES = 2
DELIVERIES = {
    "native": "added by the provider",
    "bridge": "called through call_tool",
    "code": "called in programs",
}


def request_view(shown: Request | ComingRequest, limits: DisplayLimits) -> View:
    """Show one model call's exact input. Before it is made, what is new comes first."""
    request = shown.request if isinstance(shown, ComingRequest) else shown
    blocks = request_blocks(request, limits, newest_first=request is not shown)
    return View("request", "Request", blocks, note=request_words(request))


def request_words(request: Request) -> str:
    """Summarize a request: `3 messages, 7 tools, ≈ 824 tokens, ≈ 640 of them reused`."""
    messages = words.count(len(request.messages), "message")
    tools = words.count(len(request.tools), "tool")
    text = f"{messages}, {tools}, {price_words(request)}"
    if request.reused:
        text = f"{text}, {words.about(request.reused, 'estimated')} of them reused"
    return text


def folded_request_view(request: Request | ComingRequest, limits: DisplayLimits) -> View:
    """Show a request in little space: no heading, and only the messages unfolded."""
    folded: list[Block] = []
    for block in request_view(request, limits).blocks:
        if isinstance(block, Section) and block.title != "Messages":
            block = replace(block, fold="closed")
        folded.append(block)
    return View("request", "", tuple(folded))


def request_blocks(
    request: Request,
    limits: DisplayLimits,
    definitions: bool = True,
    *,
    newest_first: bool = False,
) -> Blocks:
    """Show a request's options, its breakdown, its messages and the tools that it offers.

    Args:
        request: The request.
        limits: How much is shown of it.
        definitions: Show the definitions of the tools as well.
        newest_first: Begin with the messages, of which the newest comes first.
    """
    options = tuple((name, pretty(value, indent=None)) for name, value in request.options.items())
    blocks: list[Block] = []
    if options:
        blocks.append(Section("Options", (KeyValues(options),)))
    blocks.append(Section("Breakdown", (make_up_table(request.tokens),)))
    if newest_first:
        newest = message_blocks(request.messages, limits, _reuse(request, "↓"), newest_first=True)
        blocks.insert(0, Section("Messages", newest, note=f"{_how_many(request)}, newest first"))
    else:
        messages = message_blocks(request.messages, limits, _reuse(request))
        blocks.append(Section("Messages", messages, note=_how_many(request)))
    tools = _offered(request, limits, definitions)
    note = words.count(len(request.tools), "tool")
    blocks.append(Section("Tools offered", tools, note=note))
    return (*blocks, *_added_by_provider(request, limits, definitions))


def _added_by_provider(
    request: Request, limits: DisplayLimits, definitions: bool
) -> tuple[Section, ...]:
    if not request.found:
        return ()
    tools = _offered(replace(request, tools=request.found, reused=None), limits, definitions)
    note = words.count(len(request.found), "tool")
    return (Section("Tools found, added by the provider", tools, note=note),)


def _reuse(request: Request, arrow: Literal["↑", "↓"] = "↑") -> tuple[int, Line] | None:
    """Count the messages in the reused part, or None if it ends before the messages."""
    if request.reused is None or not request.reused_messages:
        return None
    what = f"the tools and {words.count(request.reused_messages, 'message')}"
    return request.reused_messages, reuse_line(request, what, arrow)


def reuse_line(request: Request, what: str, arrow: Literal["↑", "↓"] = "↑") -> Line:
    """Write the line at the border of the part repeated from the previous request.

    The arrow points to that part.
    """
    where = "up to here" if arrow == "↑" else "below"
    text = (
        f"{arrow} Reused {where}: {what}, {words.tokens(request.reused, 'estimated')}, are repeated"
        " from the previous request"
    )
    return Line(Status(text, "quiet"), data=(("part", "reused"),))


def _how_many(request: Request) -> str:
    count = words.count(len(request.messages), "message")
    if request.left_out:
        count = f"{count}, {request.left_out:,} older ones not sent"
    return count


def miss_words(miss: CacheMiss) -> str:
    """Explain why a provider did not reuse its cache, in its own word: `tools_changed, 1,200
    tokens`.
    """
    if miss.tokens is None:
        return miss.reason
    return f"{miss.reason}, {words.tokens(miss.tokens, 'estimated')}"


def diff_view(diff: StepDiff, limits: DisplayLimits) -> View:
    """Show the parts that a request adds to the previous one."""
    before = diff.tokens_before
    note = "first request of its turn"
    if before:
        note = f"{words.change(diff.tokens.total - before.total)} tokens"
    title = f"Step {diff.index + 1}: new in this request"
    return View("diff", title, change_blocks(diff, limits), note=note)


def change_blocks(diff: StepDiff, limits: DisplayLimits) -> Blocks:
    """Show how a request differs from the previous one."""
    if diff.tokens_before is None:
        tokens = make_up_table(diff.tokens)
    else:
        tokens = change_table(diff.tokens_before, diff.tokens)
    note = words.count(len(diff.messages_added), "message")
    if diff.messages_left_out:
        note = f"{note}, {diff.messages_left_out:,} old ones not sent"
    added = message_blocks(diff.messages_added, limits)
    return (
        Section("Tokens", (tokens,)),
        Section("Messages added", added, note=note),
        *_tool_changes(diff),
    )


def _tool_changes(diff: StepDiff) -> tuple[Section, ...]:
    lines = [f"+ {name}" for name in diff.tools_added]
    lines += [f"- {name}" for name in diff.tools_removed]
    if not lines:
        return ()
    note = f"{len(diff.tools_added):,} added, {len(diff.tools_removed):,} removed"
    return (Section("Tools", (TextBlock("\n".join(lines), code=True),), note=note),)


def message_blocks(
    messages: Sequence[ChatMessage],
    limits: DisplayLimits,
    reuse: tuple[int, Line] | None = None,
    *,
    newest_first: bool = False,
) -> Blocks:
    """Show messages as a model reads them. If there are many, the first and the last ones.

    Args:
        messages: The messages, the oldest first.
        limits: How much is shown of them.
        reuse: How many messages are reused, and the line at their border.
        newest_first: Show the newest one first.
    """
    if not messages:
        return (TextBlock("None."),)
    numbers = list(range(len(messages)))
    left_out = max(0, len(messages) - limits.rows)
    if left_out:
        numbers = [*numbers[:_FIRST_MESSAGES], *numbers[_FIRST_MESSAGES - limits.rows :]]
    share = max(80, min(limits.text, 8 * limits.text // len(numbers)))
    blocks: list[Block] = []
    for place, number in enumerate(numbers):
        if left_out and place == _FIRST_MESSAGES:
            blocks.append(Section(f"{words.count(left_out, 'message')} more", ()))
        if reuse is not None and number >= reuse[0]:
            blocks.append(reuse[1])
            reuse = None
        blocks.append(_message(messages[number], number, share))
    if reuse is not None:
        blocks.append(reuse[1])
    if newest_first:
        blocks.reverse()
    return tuple(blocks)


def _message(message: ChatMessage, number: int, limit: int) -> Section:
    text = text_of(message.content)
    blocks: list[Block] = []
    size = ""
    if text:
        blocks.append(TextBlock(text, code=True, limit=limit))
        size = words.tokens(estimate_tokens(text), "estimated")
    blocks += picture_blocks(pictures_of([message]), "this message", ImageBudget(0))
    for call in getattr(message, "tool_calls", None) or ():
        label = f"Calls {call.function.name}"
        blocks.append(TextBlock(call.function.arguments, label=label, code=True, limit=limit))
    title = f"{number + 1}. {message.role}"
    note = words.joined(getattr(message, "name", None), size)
    if not blocks:
        blocks.append(TextBlock("Empty."))
    is_long = len(text) > limit // 4
    return Section(title, tuple(blocks), note=note, fold="closed" if is_long else "open")


def _tool_row(tool: Mapping[str, Any]) -> Row:
    return (
        Name(str(tool.get("name", ""))),
        words.about(definition_tokens(tool), "estimated"),
        first(str(tool.get("description", "")), SUMMARY),
    )


def _offered(request: Request, limits: DisplayLimits, whole: bool) -> Blocks:
    tools: Sequence[Mapping[str, Any]] = request.tools
    if not tools:
        return (TextBlock("None."),)
    visible = tools[: limits.rows]
    rows = tuple(map(_tool_row, visible))
    titles = columns("Tool", "Tokens #", "Description")
    hidden = len(tools) - len(rows)
    table: list[Block] = [Table(titles, rows, hidden)]
    if request.reused is not None and not request.reused_messages:
        same = request.reused_tools
        table = [reuse_line(request, words.count(same, "tool"))]
        if same:
            table.insert(0, Table(titles, rows[:same]))
        if same < len(tools):
            table.append(Table(titles, rows[same:], hidden))
    if whole:
        definitions = TextBlock(pretty(list(visible)), code=True, limit=limits.document // 4)
        table.append(Section("Definitions", (definitions,), fold="closed"))
    return tuple(table)


def price_words(request: Request) -> str:
    """Describe the size of a request in tokens."""
    return words.tokens(request.tokens.total, request.tokens.origin)
