"""Write results as logs of inspect-ai, and let it ask a session: https://inspect.aisi.org.uk/."""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import importlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pydantic import TypeAdapter

from casual_mcp_nb.conversation.step import read_call, text_of
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.errors import CasualMcpError, MissingDependencyError, install
from casual_mcp_nb.experiments.cases import ToolUseCase


def inspect_log(results: Any, arm: str) -> dict[str, Any]:
    """Convert an arm's runs to an inspect-ai log, version 2, without that package.

    Each run is a sample: the case is its id, and the repeat its epoch. The score `tool_use` is C or
    I, with the failure as its explanation. A run that could not be made has an error and no score,
    and one that is not judged has no score.

    Args:
        results: The `RunResults`.
        arm: The arm's name.
    """
    records = results[arm].records
    started = []
    for record in records:
        started += [turn.started.began for turn in record.turns[:1] if turn.started]
    begin, end = min(started, default=0.0), max(started, default=0.0) + results.seconds

    def stamp(seconds: float) -> str:
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")

    def identity(part: str) -> str:
        return hashlib.sha256(
            f"{part} {arm} {[record.key for record in records]}".encode()
        ).hexdigest()[:22]

    usage: dict[str, dict[str, int]] = {}
    for record in records:
        each = usage.setdefault(record.model or "none", {"input_tokens": 0, "output_tokens": 0})
        each["input_tokens"] += record.input_tokens or 0
        each["output_tokens"] += record.output_tokens or 0
        each["total_tokens"] = each["input_tokens"] + each["output_tokens"]
    right, cases = results[arm].right, list(dict.fromkeys(record.case for record in records))
    figures = {"accuracy": right.value, "low": right.low, "high": right.high} if right else {}
    metrics = {name: {"name": name, "value": value} for name, value in figures.items()}
    completed = sum(record.made for record in records)
    # In the reader's order: it stops after the header.
    return {
        "version": 2,
        "status": (
            {"done": "success", "running": "started", "failing": "error"}.get(
                results.status, "cancelled"
            )
        ),
        "eval": {
            "eval_id": identity("eval"),
            "run_id": identity("run"),
            "created": stamp(begin),
            "task": arm,
            "task_id": identity("task"),
            "dataset": {
                "name": "cases",
                "samples": len(cases),
                "sample_ids": cases,
                "shuffled": False,
            },
            "model": next(iter(usage), "none"),
            "config": {"epochs": results.repeats},
        },
        "plan": {"name": "casual_mcp_nb", "steps": [], "config": {}},
        "results": {
            "total_samples": len(records),
            "completed_samples": completed,
            "scores": [
                {
                    "name": "tool_use",
                    "scorer": "tool_use",
                    "params": {},
                    "metrics": metrics,
                }
            ],
        },
        "stats": {"started_at": stamp(begin), "completed_at": stamp(end), "model_usage": usage},
        "samples": [_sample(record) for record in records],
    }


def _sample(record: Any) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    for turn in record.turns:
        messages += inspect_messages(turn)
    fields = ("failure", "tool", "cluster", "arm", "steps", "calls", "searches")
    sample: dict[str, Any] = {
        "id": record.case,
        "epoch": record.repeat + 1,
        "input": record.message or record.case,
        "target": list(record.needed),
        "messages": messages,
        "output": {
            "model": record.model or "none",
            "choices": [
                {"message": {"role": "assistant", "content": record.answer}, "stop_reason": "stop"}
            ],
        },
        "metadata": {name: getattr(record, name) for name in fields},
        "total_time": record.seconds,
    }
    if record.right is not None:
        score = {
            "value": "C" if record.right else "I",
            "answer": record.answer,
            "explanation": record.detail or None,
        }
        sample["scores"] = {"tool_use": score}
    if not record.made:
        sample["error"] = {"message": record.detail, "traceback": "", "traceback_ansi": ""}
    return sample


def inspect_messages(turn: Turn) -> list[dict[str, Any]]:
    """Convert a turn's messages to inspect-ai's form."""
    messages: list[dict[str, Any]] = []
    for message in turn.messages:
        text = text_of(getattr(message, "content", ""))
        match message.role:
            case "assistant":
                calls = []
                for each in message.tool_calls or ():
                    called = read_call(each.function.name, each.function.arguments)
                    arguments = (
                        called.arguments
                        if isinstance(called.arguments, dict)
                        else {"": called.arguments}
                    )
                    calls.append(
                        {
                            "id": each.id,
                            "function": called.name,
                            "arguments": arguments,
                            "type": "function",
                        }
                    )
                plain = {"role": "assistant", "content": text}
                messages.append({**plain, "tool_calls": calls} if calls else plain)
            case "tool":
                messages.append(
                    {
                        "role": "tool",
                        "content": text,
                        "tool_call_id": message.tool_call_id,
                        "function": message.name,
                    }
                )
            case role:
                messages.append({"role": role, "content": text})
    return messages


def solver_of(run: Callable[..., Awaitable[Any]], options: Mapping[str, Any]) -> Any:
    """Build an inspect-ai solver that asks a session.

    Args:
        run: `session.experiments.run_async`.
        options: Its arguments.

    Raises:
        MissingDependencyError: inspect-ai is not installed.
    """
    try:
        solvers = importlib.import_module("inspect_ai.solver")
        models = importlib.import_module("inspect_ai.model")
    except ImportError:
        raise MissingDependencyError(
            "A solver needs inspect-ai, which is not installed.", hint=install("inspect")
        ) from None
    message_of = TypeAdapter(models.ChatMessage).validate_python
    # A session makes one turn after another, and inspect-ai solves samples in parallel.
    lock = asyncio.Lock()

    @solvers.solver(name="casual_mcp_nb")  # type: ignore[untyped-decorator]
    def casual_mcp() -> Any:
        async def solve(state: Any, generate: Any) -> Any:
            # Its scorers judge the answer.
            case = ToolUseCase(state.input_text, judged=False, id=str(state.sample_id))
            async with lock:
                (record,) = (await run([case], **{"progress": False, **options})).records
            if not record.made:
                raise CasualMcpError(record.detail)
            state.messages = [
                message_of(plain) for turn in record.turns for plain in inspect_messages(turn)
            ]
            state.output = models.ModelOutput.from_content(record.model or "none", record.answer)
            state.metadata["tools_called"] = list(record.called)
            return state

        return solve

    return casual_mcp()
