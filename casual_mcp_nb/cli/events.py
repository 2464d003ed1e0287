"""The events of a turn as JSON lines, for `casual-mcp-nb chat --json`."""

from __future__ import annotations

from typing import Any

from casual_mcp_nb.errors import CasualMcpError
from casual_mcp_nb.types.event import (
    ApprovalAnswered,
    ApprovalAsked,
    Event,
    ModelRetry,
    ModelWait,
    Notice,
    QuestionAnswered,
    QuestionAsked,
    StepFinished,
    StepStarted,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolsSearched,
    ToolStarted,
    TurnStarted,
)
from casual_mcp_nb.types.step import text_of
from casual_mcp_nb.types.trace import Turn


def plain_event(event: Event) -> dict[str, Any] | None:
    """Convert an event to the fields that the guide lists; None for one that is not written.

    The end of a turn is not: it is written once the turn is complete, see `plain_end`.

    Args:
        event: The event.
    """
    match event:
        case TurnStarted():
            counts = {"loaded": event.loaded, "deferred": event.deferred}
            return {"event": "turn_started", "model": event.model, "tool_set": event.tool_set, **counts}
        case StepStarted():
            size = {"tools": len(event.request.tools), "tokens": event.request.tokens.total}
            return {"event": "step_started", "step": event.step, **size}
        case TextDelta():
            return {"event": "text", "step": event.step, "text": event.text}
        case StepFinished():
            return {"event": "step_finished", "step": event.step, "text": text_of(event.message.content)}
        case ToolStarted():
            call = {"id": event.call_id, "tool": str(event.tool), "arguments": event.arguments}
            return {"event": "tool_started", "step": event.step, **call}
        case ToolProgress():
            progress = {"progress": event.progress, "total": event.total, "text": event.text}
            return {"event": "tool_progress", "id": event.call_id, **progress}
        case ToolFinished():
            result = {"tool": str(event.tool), "status": event.status, "text": event.text}
            return {"event": "tool_finished", "step": event.step, "id": event.call_id, **result}
        case ToolsSearched():
            hits = [{"tool": str(row.tool), "score": row.score} for row in event.rows]
            return {"event": "tools_searched", "step": event.step, "id": event.call_id, "query": event.query, "found": hits}
        case ApprovalAsked():
            return {"event": "approval_asked", "id": event.call_id}
        case ApprovalAnswered():
            return {"event": "approval_answered", "id": event.call_id}
        case QuestionAsked():
            return {"event": "question_asked", "id": event.id, "kind": event.kind, "server": event.server}
        case QuestionAnswered():
            return {"event": "question_answered", "id": event.id}
        case ModelRetry() | ModelWait():
            kind = "model_retry" if isinstance(event, ModelRetry) else "model_wait"
            return {"event": kind, "step": event.step, "seconds": event.seconds, "reason": event.reason}
        case Notice():
            return {"event": "notice", "text": event.text, "server": event.server}
    return None


def plain_end(turn: Turn) -> dict[str, Any]:
    """Describe the end of a turn: its outcome, its answer and its statistics.

    Args:
        turn: The turn, which has ended.
    """
    stats, discovery = turn.stats, turn.stats.discovery
    tokens, calls = stats.tokens, stats.tool_calls
    kind = turn.exception.kind if isinstance(turn.exception, CasualMcpError) else None
    return {
        "event": "turn_finished",
        "status": turn.status,
        "error": turn.error,
        "kind": kind,
        "failure": turn.failure.given() if turn.failure is not None else None,
        "answer": turn.answer,
        "seconds": turn.seconds,
        "stats": {
            "tokens": {
                "prompt_tokens": tokens.prompt_tokens,
                "completion_tokens": tokens.completion_tokens,
                "total_tokens": tokens.total_tokens,
            },
            "tool_calls": {"by_tool": dict(calls.by_tool), "by_server": dict(calls.by_server), "total": calls.total},
            "llm_calls": stats.llm_calls,
            "discovery": discovery and {"search_calls": discovery.search_calls, "tools_discovered": discovery.tools_discovered},
        },
    }
