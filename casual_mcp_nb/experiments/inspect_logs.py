"""Write results as logs of inspect-ai, and let it ask a session: https://inspect.aisi.org.uk/."""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import importlib
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from casual_mcp_nb.base.files import write_text
from casual_mcp_nb.base.iterables import attributes
from casual_mcp_nb.conversation.step import read_call, text_of
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.errors import (
    CasualMcpError,
    MissingDependencyError,
    UsageError,
    install,
    shown,
)
from casual_mcp_nb.experiments.arm_results import ArmResults
from casual_mcp_nb.experiments.cases import ToolUseCase
from casual_mcp_nb.experiments.run_record import RunRecord
from casual_mcp_nb.experiments.statistics import Interval

if TYPE_CHECKING:
    from casual_llm.messages import AssistantToolCall

_STATUSES = {"done": "success", "running": "started", "failing": "error"}
"""inspect-ai's names for the statuses of results. Others are `cancelled`."""


def write_logs(
    logs: Mapping[str, Mapping[str, Any]], path: str | Path, *, overwrite: bool
) -> tuple[Path, ...]:
    """Write logs by arm, see `RunResults.to_inspect`."""
    path = Path(path).expanduser()
    is_file = path.suffix.casefold() == ".json"
    if is_file and len(logs) > 1:
        raise UsageError(
            "A file holds only one arm's log.",
            hint=f"Name a folder, or one arm: {', '.join(logs)}.",
        )
    files = []
    for name, log in logs.items():
        file = path if is_file else path / _file_name(log, name)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{shown(file.parent)} cannot be created: {error.strerror}.") from None
        text = json.dumps(log, ensure_ascii=False, indent=1)
        write_text(file, text, overwrite=overwrite)
        files.append(file)
    return tuple(files)


def _file_name(log: Mapping[str, Any], arm: str) -> str:
    """Name an arm's file so that the viewer reads time, task and id from it."""
    slug = re.sub(r"[^A-Za-z0-9]+", "-", arm).strip("-")[:60] or "arm"
    stamp = log["eval"]["created"].replace(":", "-")
    return f"{stamp}_{slug}_{log['eval']['task_id']}.json"


def inspect_log(arm: ArmResults, *, status: str, repeats: int) -> dict[str, Any]:
    """Convert an arm's runs to an inspect-ai log, version 2, without that package.

    Each run is a sample: the case is its id, and the repeat its epoch. The score `tool_use` is C or
    I, with the failure as its explanation. A run that could not be made has an error and no score,
    and one that is not judged has no score.

    Args:
        arm: The arm's runs.
        status: The status of the results.
        repeats: How often each case is run.
    """
    name, records = arm.name, arm.records
    times = _times(records)
    begin = min((began for began, _ in times), default=0.0)
    end = max((ended for _, ended in times), default=0.0)
    usage = _usage_by_model(records)
    cases = list(dict.fromkeys(record.case for record in records))

    def identity(part: str) -> str:
        text = f"{part} {name} {[record.key for record in records]}"
        return hashlib.sha256(text.encode()).hexdigest()[:22]

    # In the reader's order: it stops after the header.
    return {
        "version": 2,
        "status": _STATUSES.get(status, "cancelled"),
        "eval": {
            "eval_id": identity("eval"),
            "run_id": identity("run"),
            "created": _stamp(begin),
            "task": name,
            "task_id": identity("task"),
            "dataset": {
                "name": "cases",
                "samples": len(cases),
                "sample_ids": cases,
                "shuffled": False,
            },
            "model": next(iter(usage), "none"),
            "config": {"epochs": repeats},
        },
        "plan": {"name": "casual_mcp_nb", "steps": [], "config": {}},
        "results": {
            "total_samples": len(records),
            "completed_samples": len(arm.done),
            "scores": [
                {
                    "name": "tool_use",
                    "scorer": "tool_use",
                    "params": {},
                    "metrics": _metrics(arm.right),
                }
            ],
        },
        "stats": {"started_at": _stamp(begin), "completed_at": _stamp(end), "model_usage": usage},
        "samples": list(map(_sample, records)),
    }


def _times(records: Iterable[RunRecord]) -> list[tuple[float, float]]:
    """List when the turns of runs began and ended, as far as that is known, in seconds since 1970.

    Runs that a file had already are among them, so how long an experiment took says nothing of it.
    """
    times = []
    for record in records:
        for turn in record.turns:
            began = turn.started.began
            if began is not None:
                times.append((began, began + turn.trace.last_at))
    return times


def _stamp(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")


def _usage_by_model(records: Iterable[RunRecord]) -> dict[str, dict[str, int]]:
    usage: dict[str, dict[str, int]] = {}
    for record in records:
        each = usage.setdefault(record.model or "none", {"input_tokens": 0, "output_tokens": 0})
        each["input_tokens"] += record.input_tokens or 0
        each["output_tokens"] += record.output_tokens or 0
        each["total_tokens"] = each["input_tokens"] + each["output_tokens"]
    return usage


def _metrics(right: Interval | None) -> dict[str, dict[str, Any]]:
    if right is None:
        return {}
    figures = {"accuracy": right.value, "low": right.low, "high": right.high}
    return {name: {"name": name, "value": value} for name, value in figures.items()}


def _sample(record: RunRecord) -> dict[str, Any]:
    messages = []
    for turn in record.turns:
        messages += inspect_messages(turn)
    fields = ("failure", "tool", "cluster", "arm", "steps", "calls", "searches")
    sample = {
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
        "metadata": attributes(record, fields),
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
    messages = []
    for message in turn.messages:
        plain: dict[str, Any] = {
            "role": message.role,
            "content": text_of(getattr(message, "content", "")),
        }
        if message.role == "assistant" and message.tool_calls:
            plain["tool_calls"] = list(map(_call, message.tool_calls))
        elif message.role == "tool":
            plain["tool_call_id"] = message.tool_call_id
            plain["function"] = message.name
        messages.append(plain)
    return messages


def _call(call: AssistantToolCall) -> dict[str, Any]:
    called = read_call(call.function.name, call.function.arguments)
    arguments = called.arguments
    if not isinstance(arguments, dict):
        arguments = {"": arguments}
    return {
        "id": call.id,
        "function": called.name,
        "arguments": arguments,
        "type": "function",
    }


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
            state.messages = []
            for turn in record.turns:
                state.messages += map(message_of, inspect_messages(turn))
            state.output = models.ModelOutput.from_content(record.model or "none", record.answer)
            state.metadata["tools_called"] = list(record.called)
            return state

        return solve

    return casual_mcp()
