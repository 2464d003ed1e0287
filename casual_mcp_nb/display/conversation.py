"""Views of a conversation: as an overview, and whole for an export."""

from __future__ import annotations

from casual_mcp_nb.display import format as words
from casual_mcp_nb.display.stats import stats_view
from casual_mcp_nb.display.text import first
from casual_mcp_nb.display.tokens import deferral_facts, make_up_table, step_table
from casual_mcp_nb.display.turn import TurnDetail, turn_blocks, turn_mark
from casual_mcp_nb.display.view import Bar, Block, Cell, DisplayLimits, Section, Table, Text, View, columns, fraction
from casual_mcp_nb.types.conversation import Conversation
from casual_mcp_nb.types.event import StepStarted
from casual_mcp_nb.types.trace import Turn

_EXCERPT = 60
_COLUMNS = columns("Turn", "State", "Prompt", "Answer", "Model calls #", "Tool calls #", "Tokens sent", "Took #")


def conversation_view(conversation: Conversation, limits: DisplayLimits) -> View:
    """Return a row for each turn, what each said, and what all used; of a long conversation the last turns."""
    if not len(conversation):
        return View("conversation", "Conversation", (Text("Nothing has been said yet."),))
    stats = conversation.stats
    visible = list(enumerate(conversation))[-limits.rows :]
    share = max(80, min(limits.text, 4 * limits.text // len(visible)))
    blocks: list[Block] = [
        *_repairs(conversation),
        _turn_table(visible, len(conversation)),
        Section("What was said", tuple(_said(number, turn, share) for number, turn in visible), fold="open"),
        Section("Requests by part", (make_up_table(stats.parts),)),
        Section("Requests by step", (step_table(stats.steps, limits),), fold="closed"),
    ]
    if stats.discovery is not None:
        blocks.append(Section("Discovery", (deferral_facts(stats),)))
    return View("conversation", "Conversation", tuple(blocks), note=_note(conversation))


def document_view(conversation: Conversation, limits: DisplayLimits) -> View:
    """All of a conversation: every turn, with what was new in each request since the one before it, and what all took."""
    turns, last = [], None
    for number, turn in enumerate(conversation):
        blocks = turn_blocks(turn, limits, TurnDetail(requests="whole", since=last))
        note = words.seconds(turn.seconds)
        turns.append(Section(f"Turn {number + 1}", blocks, mark=turn_mark(turn), note=note, fold="open"))
        sent = turn.trace.of(StepStarted)
        last = sent[-1].request if sent else last
    if not turns:
        return View("conversation", "Conversation", (Text("Nothing was said."),), note=_note(conversation))
    stats = stats_view(conversation.stats, limits)
    blocks = (*_repairs(conversation), *turns, Section("Stats", stats.blocks, note=stats.note))
    return View("conversation", "Conversation", blocks, note=_note(conversation))


def _repairs(conversation: Conversation) -> tuple[Section, ...]:
    if not conversation.repairs:
        return ()
    return (Section("Repaired when it was loaded", (Text("\n".join(conversation.repairs)),)),)


def _note(conversation: Conversation) -> str:
    return words.count(len(conversation), "turn")


def _turn_table(visible: list[tuple[int, Turn]], count: int) -> Table:
    sent = {number: turn.stats.parts for number, turn in visible}
    most = max(parts.total for parts in sent.values())
    rows: list[tuple[Cell, ...]] = [
        (
            str(number + 1),
            turn_mark(turn),
            first(turn.prompt, _EXCERPT),
            first(turn.answer, _EXCERPT),
            words.number(len(turn.steps)),
            words.number(len(turn.tool_calls)),
            Bar(words.tokens(sent[number].total, sent[number].origin), fraction(sent[number].total, most)),
            words.seconds(turn.seconds),
        )
        for number, turn in visible
    ]
    return Table(_COLUMNS, tuple(rows), count - len(visible))


def _said(number: int, turn: Turn, limit: int) -> Section:
    blocks: list[Block] = [Text(turn.prompt, label="Prompt", limit=limit)]
    calls = [call.name for call in turn.tool_calls]
    if calls:
        blocks.append(Text(", ".join(calls), label="Tools called", limit=limit))
    blocks.append(Text(turn.answer or "The model said nothing.", label="Answer", limit=limit, prose=True))
    if turn.error:
        blocks.append(Text(turn.error, label="Error", limit=limit))
    return Section(f"Turn {number + 1}", tuple(blocks), fold="closed")
