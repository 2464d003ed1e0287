"""How tools were used, and what searches learned from it, as views."""

from __future__ import annotations

from casual_mcp_nb.conversation.past_questions import PastQuestion, PastQuestions, local_time
from casual_mcp_nb.conversation.usage import ToolUsage, ToolUse
from casual_mcp_nb.display import words
from casual_mcp_nb.display.view import (
    Bar,
    Cell,
    DisplayLimits,
    KeyValues,
    Line,
    Name,
    Table,
    TextBlock,
    View,
    columns,
    fraction,
)

_COLUMNS = columns(
    "Tool", "Calls #", "Succeeded #", "Found #", "Requests #", "Tokens sent", "Time #", "Last used"
)


def tool_usage_view(usage: ToolUsage, limits: DisplayLimits) -> View:
    """Show the tools, the most called first, and what those cost that were never called."""
    most = max((tool.tokens for tool in usage), default=0)
    # The files of some agents do not say which tools a request offered.
    offers_known = any(tool.requests for tool in usage)
    rows = tuple(_row(tool, most, offers_known) for tool in usage.tools[: limits.rows])
    blocks: list[Line | Table] = [Table(_COLUMNS, rows, len(usage) - len(rows))]
    unused = usage.never_used
    if unused:
        tools = f"Never used: {words.count(len(unused), 'tool')}"
        cost = f"{words.about(usage.unused_tokens, 'estimated')} tokens a request"
        blocks.insert(0, Line(None, (tools, cost)))
    note = (
        f"{words.count(usage.conversations, 'conversation')},"
        f" {words.count(usage.turns, 'turn')}, {words.count(usage.requests, 'request')},"
        f" {words.count(usage.calls, 'call')}"
    )
    if usage.unread_records:
        note += f", {words.count(usage.unread_records, 'record')} not understood"
    return View("tool-usage", "Use of tools", tuple(blocks), note=note)


def _row(tool: ToolUse, most: int, offers_known: bool) -> tuple[Cell, ...]:
    requests, tokens = words.UNKNOWN, Bar(words.UNKNOWN, None)
    if offers_known:
        requests = words.number(tool.requests)
        tokens = Bar(words.about(tool.tokens, "estimated"), fraction(tool.tokens, most))
    return (
        Name(str(tool.tool)),
        words.number(tool.calls),
        words.number(tool.succeeded) if tool.calls else "",
        words.number(tool.found),
        requests,
        tokens,
        words.seconds(tool.seconds) if tool.calls else "",
        _day(tool.last_used),
    )


def tool_use_view(tool: ToolUse, limits: DisplayLimits) -> View:
    """Show one tool's row."""
    facts = (
        ("Requests with its definition", words.number(tool.requests)),
        ("Turns with them", words.number(tool.turns)),
        ("Tokens sent", words.about(tool.tokens, "estimated")),
        ("Found by searches", words.number(tool.found)),
        ("Calls", words.number(tool.calls)),
        ("Succeeded", words.number(tool.succeeded)),
        ("Time", words.seconds(tool.seconds)),
        ("Last used", _day(tool.last_used) or "never"),
    )
    return View("tool-use", str(tool.tool), (KeyValues(facts),), note="use of a tool")


def past_questions_view(questions: PastQuestions, limits: DisplayLimits) -> View:
    """Show the questions that searches learn from, numbered from the latest."""
    use = "Searches rank the tools higher that were called after a question like theirs."
    shown = questions.questions[: limits.rows]
    rows = tuple(_past_question_row(number, each) for number, each in enumerate(shown, 1))
    table = Table(
        columns("#", "Question", "Tool", "Day", "Conversation"), rows, len(questions) - len(rows)
    )
    blocks = (TextBlock(questions.note or use), table if rows else TextBlock("None."))
    note = words.count(len(questions), "question")
    return View("past-questions", "What searches learn from", blocks, note=note)


def _past_question_row(number: int, question: PastQuestion) -> tuple[Cell, ...]:
    text = words.first(question.text, words.SUMMARY)
    conversation: Cell = Name(question.conversation)
    if question.agent:
        conversation = f"{question.conversation} ({question.agent})"
    return (str(number), text, Name(str(question.tool)), question.day, conversation)


def _day(when: float | None) -> str:
    moment = local_time(when)
    if moment is None:
        return ""
    return f"{moment:%Y-%m-%d %H:%M}"
