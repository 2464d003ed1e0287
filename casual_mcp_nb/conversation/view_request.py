"""Views of requests to the model: their contents and cost, and the changes since the previous step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.content import pictures_of
from casual_mcp_nb.base.tokens import CacheMiss, TokenParts, TokenUsage, definition_tokens, estimate_tokens
from casual_mcp_nb.conversation.event import Request
from casual_mcp_nb.conversation.stats import ChatStats, StepStats
from casual_mcp_nb.conversation.step import Step, StepDiff, text_of
from casual_mcp_nb.conversation.view_calls import ImageBudget, call_section, hosted_section, picture_blocks
from casual_mcp_nb.display import words
from casual_mcp_nb.display.view import (
    Bar,
    Block,
    Cell,
    DisplayLimits,
    KeyValues,
    Line,
    Name,
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
    reused, output = any(step.reused is not None for step in last), any(step.completion_tokens is not None for step in last)
    more = (*(("Reused #",) if reused else ()), *(("Output",) if output else ()))
    titles = columns(*(("Turn",) if turns else ()), "Step", *_SHORT, "Input", *more)
    return Table(titles, tuple(_step_row(step, most, turns, reused, output) for step in last), len(steps) - len(last))


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
        ("With every tool loaded", words.tokens(without, "estimated")),
        *saving_row(sent, without),
    )


def saving_row(price: int, without: int) -> tuple[tuple[str, Cell], ...]:
    """Format the saving or extra cost of deferring, as a label with its value, or nothing where it makes no difference."""
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
    whole = (words.about(before.total, before.origin), words.about(after.total, after.origin))
    bar = stack(after, max(before.total, after.total), "")
    rows = [(*row, "") for row in rows]
    rows.append(("Total", *whole, words.change(after.total - before.total), bar))
    return Table(columns("Part", "Before #", "Now #", "Change #", "Now"), tuple(rows))


_FIRST_MESSAGES = 2
_DELIVERIES = {"native": "added by the provider", "bridge": "called through call_tool"}


def request_view(request: Request, limits: DisplayLimits) -> View:
    """Show the exact input of one model call."""
    return View("request", "Request", request_blocks(request, limits), note=request_words(request))


def request_words(request: Request) -> str:
    """Describe the contents of a request: `3 messages, 7 tools, ≈ 824 tokens, ≈ 640 of them reused`."""
    reused = f", {words.about(request.reused, 'estimated')} of them reused" if request.reused else ""
    return (
        f"{words.count(len(request.messages), 'message')}, {words.count(len(request.tools), 'tool')}, {_price(request)}{reused}"
    )


def folded_request_view(request: Request, limits: DisplayLimits) -> View:
    """Show the same without a heading, all but the messages folded, for a place where there is little room."""
    folded = tuple(
        replace(block, fold="closed") if isinstance(block, Section) and block.title != "Messages" else block
        for block in request_blocks(request, limits)
    )
    return View("request", "", folded)


def request_blocks(request: Request, limits: DisplayLimits, definitions: bool = True) -> tuple[Block, ...]:
    """Show the options of a request, its breakdown, its messages and the tools that it offers, with their definitions."""
    options = tuple((name, pretty(value, indent=None)) for name, value in request.options.items())
    return (
        *((Section("Options", (KeyValues(options),)),) if options else ()),
        Section("Breakdown", (make_up_table(request.tokens),)),
        Section("Messages", message_blocks(request.messages, limits, _reuse(request)), note=_how_many(request)),
        Section("Tools offered", _offered(request, limits, definitions), note=words.count(len(request.tools), "tool")),
        *_added_by_provider(request, limits, definitions),
    )


def _added_by_provider(request: Request, limits: DisplayLimits, definitions: bool) -> tuple[Section, ...]:
    if not request.found:
        return ()
    tools = _offered(replace(request, tools=request.found, reused=None), limits, definitions)
    return (Section("Tools found, added by the provider", tools, note=words.count(len(request.found), "tool")),)


def _reuse(request: Request) -> tuple[int, Line] | None:
    """Count the messages before the end of the reused part, or None if it ends before the messages."""
    if request.reused is None or not request.reused_messages:
        return None
    return request.reused_messages, reuse_line(request, f"the tools and {words.count(request.reused_messages, 'message')}")


def reuse_line(request: Request, what: str) -> Line:
    """Write the line that ends the part of a request repeated from the previous one."""
    text = f"↑ Reused up to here: {what}, {words.tokens(request.reused, 'estimated')}, are repeated from the previous request"
    return Line(Status(text, "quiet"), data=(("part", "reused"),))


def _how_many(request: Request) -> str:
    count = words.count(len(request.messages), "message")
    return f"{count}, {request.left_out:,} older ones not sent" if request.left_out else count


def step_view(step: Step, limits: DisplayLimits) -> View:
    """Show one model call: its usage, the new part of its request, its answer and its calls."""
    usage = step.usage or TokenUsage()
    facts = (
        ("Input", _price(step.request)),
        ("Search results", _DELIVERIES.get(step.request.delivery, "")),
        ("Repeated from the previous request", words.tokens(step.request.reused, "estimated")),
        ("Read from the cache", words.tokens(usage.cached_tokens, usage.origin)),
        ("Written to the cache", words.tokens(usage.cache_write_tokens or None, usage.origin)),
        ("Not read from the cache", miss_words(usage.cache_miss) if usage.cache_miss else ""),
        ("Output", words.tokens(usage.completion_tokens, usage.origin)),
        ("Time", words.seconds(step.seconds)),
        ("First text after", words.seconds(step.first_token_seconds)),
        ("Cost", str(step.cost or "")),
        ("Ending", words.ending(step.finish_reason)),
    )
    images = ImageBudget(limits.images)
    blocks: list[Block] = [KeyValues(tuple((label, value) for label, value in facts if value not in ("", words.UNKNOWN)))]
    if step.text:
        blocks.append(Section("Text", (TextBlock(step.text, prose=True),)))
    if step.hosted_calls:
        hosted = tuple(hosted_section(call, limits.text) for call in step.hosted_calls[: limits.rows])
        blocks.append(Section("Calls that the provider ran", hosted, note=words.count(len(step.hosted_calls), "call")))
    if step.tool_calls:
        calls = tuple(
            call_section(call, False, limits.text, images, key=f"call-{number}") for number, call in enumerate(step.tool_calls)
        )
        blocks.append(Section("Calls", calls, note=words.count(len(calls), "call")))
    blocks.append(Section("New in this request", change_blocks(step.diff(), limits), fold="closed"))
    blocks.append(Section("The whole request", request_blocks(step.request, limits), fold="closed"))
    return View("step", f"Step {step.index + 1}", tuple(blocks))


def miss_words(miss: CacheMiss) -> str:
    """Explain why a provider did not reuse its cache, in its own word: `tools_changed, 1,200 tokens`."""
    return miss.reason if miss.tokens is None else f"{miss.reason}, {words.tokens(miss.tokens, 'estimated')}"


def diff_view(diff: StepDiff, limits: DisplayLimits) -> View:
    """Show the parts of a request that the previous one did not have."""
    before = diff.tokens_before
    note = f"{words.change(diff.tokens.total - before.total)} tokens" if before else "first request of its turn"
    return View("diff", f"Step {diff.index + 1}: new in this request", change_blocks(diff, limits), note=note)


def change_blocks(diff: StepDiff, limits: DisplayLimits) -> tuple[Block, ...]:
    """Show how a request differs from the previous one."""
    tokens = make_up_table(diff.tokens) if diff.tokens_before is None else change_table(diff.tokens_before, diff.tokens)
    added = diff.messages_added
    gone = f", {diff.messages_left_out:,} old ones not sent" if diff.messages_left_out else ""
    return (
        Section("Tokens", (tokens,)),
        Section("Messages added", message_blocks(added, limits), note=words.count(len(added), "message") + gone),
        *_tool_changes(diff),
    )


def _tool_changes(diff: StepDiff) -> tuple[Section, ...]:
    lines = [*(f"+ {name}" for name in diff.tools_added), *(f"- {name}" for name in diff.tools_removed)]
    if not lines:
        return ()
    note = f"{len(diff.tools_added):,} added, {len(diff.tools_removed):,} removed"
    return (Section("Tools", (TextBlock("\n".join(lines), code=True),), note=note),)


def message_blocks(
    messages: Sequence[ChatMessage], limits: DisplayLimits, reuse: tuple[int, Line] | None = None
) -> tuple[Block, ...]:
    """Show messages as a model reads them; of many the first ones and the last ones.

    `reuse` is after how many of them a line comes, and the line.
    """
    if not messages:
        return (TextBlock("None."),)
    numbers = list(range(len(messages)))
    if len(messages) > limits.rows:
        numbers = [*numbers[:_FIRST_MESSAGES], *numbers[_FIRST_MESSAGES - limits.rows :]]
    share = max(80, min(limits.text, 8 * limits.text // len(numbers)))
    sections: list[Block] = [_message(messages[number], number, share) for number in numbers]
    end = sum(number < reuse[0] for number in numbers) if reuse else 0
    if len(numbers) < len(messages):
        sections.insert(_FIRST_MESSAGES, Section(f"{words.count(len(messages) - len(numbers), 'message')} more", ()))
        end += end >= _FIRST_MESSAGES
    if reuse:
        sections.insert(end, reuse[1])
    return tuple(sections)


def _message(message: ChatMessage, number: int, limit: int) -> Section:
    text = text_of(message.content)
    blocks: list[Block] = [TextBlock(text, code=True, limit=limit)] if text else []
    blocks += picture_blocks(pictures_of([message]), "this message", ImageBudget(0))
    for call in getattr(message, "tool_calls", None) or ():
        blocks.append(TextBlock(call.function.arguments, label=f"Calls {call.function.name}", code=True, limit=limit))
    title = f"{number + 1}. {message.role}"
    name = getattr(message, "name", None)
    note = ", ".join(filter(None, (name, words.tokens(estimate_tokens(text), "estimated") if text else "")))
    return Section(
        title, tuple(blocks) or (TextBlock("Empty."),), note=note, fold="closed" if len(text) > limit // 4 else "open"
    )


def _offered(request: Request, limits: DisplayLimits, whole: bool) -> tuple[Block, ...]:
    tools: Sequence[Mapping[str, Any]] = request.tools
    if not tools:
        return (TextBlock("None."),)
    visible = tools[: limits.rows]
    rows = tuple(
        (
            Name(str(tool.get("name", ""))),
            words.about(definition_tokens(tool), "estimated"),
            first(str(tool.get("description", "")), SUMMARY),
        )
        for tool in visible
    )
    titles = columns("Tool", "Tokens #", "Description")
    hidden = len(tools) - len(rows)
    table: tuple[Block, ...] = (Table(titles, rows, hidden),)
    if request.reused is not None and not request.reused_messages:
        same = request.reused_tools
        first_rows = (Table(titles, rows[:same]),) if same else ()
        other_rows = (Table(titles, rows[same:], hidden),) if same < len(tools) else ()
        table = (*first_rows, reuse_line(request, words.count(same, "tool")), *other_rows)
    if not whole:
        return table
    definitions = TextBlock(pretty(list(visible)), code=True, limit=limits.document // 4)
    return (*table, Section("Definitions", (definitions,), fold="closed"))


def _price(request: Request) -> str:
    return words.tokens(request.tokens.total, request.tokens.origin)
