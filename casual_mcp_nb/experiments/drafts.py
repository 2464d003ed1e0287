"""Draft cases from past conversations and cassettes, for a person to correct: a model may have
called the wrong tools.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.cassettes.format import Cassette
from casual_mcp_nb.conversation.event import SYNTHETIC, UNKNOWN, ToolsSearched
from casual_mcp_nb.conversation.step import calls_of_model, named_call
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.experiments.cases import ExpectedCall, ToolUseCase
from casual_mcp_nb.experiments.one_or_several import shortest

MAX_QUERY = 300
"""How many characters of a search are kept."""


def cases_of_turns(turns: Iterable[Turn], cluster: str | None = None) -> list[ToolUseCase]:
    """Draft a case from each past turn that called tools: its message, and the calls that
    succeeded.

    A call has the search that found its tool, so that the evaluation of discovery can search for
    the same. A turn that only makes sense after those before it should be removed, or be given
    their messages too.

    Args:
        turns: The turns.
        cluster: Their cluster, or None for none.
    """
    cases: dict[str, ToolUseCase] = {}
    for turn in turns:
        calls = list(_made(turn))
        if calls and turn.prompt.strip():
            case = ToolUseCase(
                turn.prompt, calls, cluster=cluster, metadata={"answer": turn.answer}
            )
            cases.setdefault(case.id, case)
    return list(cases.values())


def _made(turn: Turn) -> Iterator[ExpectedCall]:
    """Yield the calls that succeeded, each with the last search that found its tool."""
    searches = []
    for call in calls_of_model(turn.tool_calls):
        if call.search is not None:
            searches.append(call.search)
        elif (
            call.status == "ok"
            and call.tool.server not in (SYNTHETIC, UNKNOWN)
            and isinstance(call.arguments, Mapping)
        ):
            query = _found_by(call.tool, searches)
            yield ExpectedCall(str(call.tool), call.arguments, query=query or None)


def _found_by(tool: ToolName, searches: Sequence[ToolsSearched]) -> str:
    """Find the query of the last search that returned a tool, or return an empty text."""
    for each in reversed(searches):
        if any(row.tool == tool for row in each.rows):
            return " ".join(each.query.split())[:MAX_QUERY]
    return ""


def cases_of_cassette(cassette: Cassette) -> list[ToolUseCase]:
    """Draft a case from each recorded answer that ends a turn, with the calls before it.

    See `cases_of_turns`.
    """
    names: dict[str, str] = {}
    for entry in cassette.servers.values():
        names.update((tool.wire_name, str(tool.tool_name)) for tool in entry.tools)
    cases: dict[tuple[str, ...], ToolUseCase] = {}
    for each in cassette.interactions:
        if each.kind != "model" or each.error is not None or each.response["message"].get("calls"):
            continue
        messages = each.request["messages"]
        texts = tuple(text_in(message) for message in messages if message.get("role") == "user")
        calls = list(_recorded(messages, names, several=len(texts) > 1))
        if calls and all(text.strip() for text in texts):
            answer = {"answer": text_in(each.response["message"])}
            case = ToolUseCase(shortest(texts), calls, metadata=answer)
            cases.setdefault(texts, case)
    return list(cases.values())


def _recorded(
    messages: Sequence[Mapping[str, Any]], names: Mapping[str, str], several: bool
) -> Iterator[ExpectedCall]:
    """Yield the calls in recorded messages.

    With `several` messages from the person, each has its turn.
    """
    turn = 0
    for message in messages:
        turn += message.get("role") == "user"
        if not turn:
            continue
        for written in message.get("calls", ()):
            called = named_call(str(written["tool"]), written.get("arguments", ""))
            if called.name in names and isinstance(called.arguments, dict):
                yield ExpectedCall(
                    names[called.name], called.arguments, turn=turn if several else None
                )


def text_in(message: Mapping[str, Any]) -> str:
    """Return the text of a message in JSON: its content, or the texts of its parts."""
    content = message.get("content") or ""
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content)
    return str(content)
