"""Views of a conversation: as an overview, and whole for an export. Both show each turn as its cell does, answer first."""

from __future__ import annotations

from casual_mcp_nb.display import format as words
from casual_mcp_nb.display.calls import ImageBudget
from casual_mcp_nb.display.stats import stats_view
from casual_mcp_nb.display.steps import TurnDetail, step_sections
from casual_mcp_nb.display.tokens import deferral_rows, make_up_table, step_table
from casual_mcp_nb.display.turn import added_section, answer_section, figures_line, prompt_blocks, turn_blocks
from casual_mcp_nb.display.view import Block, DisplayLimits, KeyValues, Section, TextBlock, View
from casual_mcp_nb.types.conversation import Conversation
from casual_mcp_nb.types.event import StepStarted
from casual_mcp_nb.types.trace import Turn

_EMPTY = "No turns yet."


def conversation_view(conversation: Conversation, limits: DisplayLimits) -> View:
    """Show each turn with its prompt and its answer, and the total usage; of a long conversation the last turns."""
    if not len(conversation):
        return View("conversation", "Conversation", (TextBlock(_EMPTY),))
    stats = conversation.stats
    visible = list(enumerate(conversation, 1))[-limits.rows :]
    earlier = len(conversation) - len(visible)
    tokens: tuple[Block, ...] = (
        KeyValues(deferral_rows(stats)),
        Section("Tokens by part", (make_up_table(stats.parts),)),
        Section("Tokens by step", (step_table(stats.steps, limits),)),
    )
    blocks: list[Block] = [
        *_repairs(conversation),
        *([TextBlock(f"{words.count(earlier, 'earlier turn')} not shown")] if earlier else []),
        *(_turn(number, turn, limits, len(visible)) for number, turn in visible),
        Section("Tokens", tokens, note=words.tokens(stats.sent_tokens, stats.parts.origin), fold="closed"),
    ]
    return View("conversation", "Conversation", tuple(blocks), note=_note(conversation))


def document_view(conversation: Conversation, limits: DisplayLimits) -> View:
    """Show all of a conversation: every turn, the new part of each request, and the total usage."""
    turns, last = [], None
    for number, turn in enumerate(conversation, 1):
        blocks = turn_blocks(turn, limits, TurnDetail(requests="whole", since=last))
        turns.append(Section(f"Turn {number}", (_prompt(turn, limits, None), *blocks), look="turn"))
        sent = turn.trace.of(StepStarted)
        last = sent[-1].request if sent else last
    if not turns:
        return View("conversation", "Conversation", (TextBlock(_EMPTY),), note=_note(conversation))
    stats = stats_view(conversation.stats, limits)
    blocks = (*_repairs(conversation), *turns, Section("Stats", stats.blocks, note=stats.note, fold="closed"))
    return View("conversation", "Conversation", blocks, note=_note(conversation))


def _turn(number: int, turn: Turn, limits: DisplayLimits, turns: int) -> Section:
    share = max(80, min(limits.text, 8 * limits.text // turns))
    steps = turn.steps
    few = DisplayLimits(max(2, limits.rows // turns), limits.cell, share // 2, limits.document, 0)
    lines = step_sections(turn, steps, few, TurnDetail(), ImageBudget(0))
    blocks = (
        _prompt(turn, limits, share),
        answer_section(turn, steps, limits, share),
        figures_line(turn),
        added_section(turn, few)
        if turn.added
        else Section("Steps", tuple(lines), note=words.count(len(steps), "step"), fold="closed", brief=True),
    )
    return Section(f"Turn {number}", blocks, look="turn", data=(("key", f"turn-{number}"),))


def _prompt(turn: Turn, limits: DisplayLimits, limit: int | None) -> Section:
    return Section("Prompt", prompt_blocks(turn, ImageBudget(limits.images), limit), look="prompt", data=(("part", "prompt"),))


def _repairs(conversation: Conversation) -> tuple[Section, ...]:
    if not conversation.repairs:
        return ()
    return (Section("Repaired when it was loaded", (TextBlock("\n".join(conversation.repairs)),)),)


def _note(conversation: Conversation) -> str:
    return words.count(len(conversation), "turn")
