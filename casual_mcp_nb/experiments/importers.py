"""Read cases from other projects' formats, past conversations and tables. Write results for inspect-ai."""

from __future__ import annotations

import ast
import asyncio
import datetime
import hashlib
import importlib
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from casual_mcp_nb.cassettes.format import Cassette
from casual_mcp_nb.conversation.codec import CASSETTE, CONVERSATION
from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.conversation.event import SYNTHETIC, UNKNOWN
from casual_mcp_nb.conversation.step import calls_of_model, named_call, read_call, text_of
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.errors import CasualMcpError, MissingDependencyError, UsageError, brief, install, shown
from casual_mcp_nb.experiments.cases import (
    ArgumentMode,
    ExpectedCall,
    Functions,
    IfGiven,
    OneOf,
    Order,
    Regex,
    ToolUseCase,
    distinct,
    read_case,
    read_expectation,
    rows_of,
    table_rows,
)

CaseSource = str | Path | Iterable[Any]
"""A file, a DataFrame, a list of rows or cases, or past turns."""


def load_tool_cases(
    source: CaseSource,
    *,
    functions: Functions | None = None,
    answers: str | Path | None = None,
    arguments: ArgumentMode | None = None,
) -> tuple[ToolUseCase, ...]:
    """Read cases. The format follows from the content.

    Args:
        source: A file in this package's form (JSON lines, JSON, YAML, CSV), a saved conversation or a cassette, a file from
            pydantic-evals, MCP-Atlas, BFCL or LiveMCPBench, a DataFrame, or a list of rows, cases or past turns.
        functions: The functions that `$function` in a file may name.
        answers: The file with the possible answers, where BFCL's questions are apart from them.
        arguments: How to compare arguments, instead of as the cases define. For MCP-Atlas they are ignored by default, since
            other trajectories may be right as well.

    Raises:
        UsageError: It cannot be read. File, line and field are named.
    """
    cases = distinct(_cases(source, functions, answers))
    if arguments is None:
        return cases
    return tuple(replace(case, arguments=arguments) for case in cases)


def _cases(source: CaseSource, functions: Functions | None, answers: str | Path | None) -> Iterator[ToolUseCase]:
    if not isinstance(source, str | Path):
        if hasattr(source, "to_dict") and hasattr(source, "columns"):
            yield from _read(table_rows(source), functions, None)
            return
        items = list(source)
        if items and all(isinstance(item, Turn) for item in items):
            yield from cases_of_turns(items)
        elif items and all(isinstance(item, Mapping) for item in items):
            yield from _read(table_rows(items), functions, None)
        else:
            yield from items
        return
    path = Path(source).expanduser()
    if path.suffix.casefold() in (".json", ".html", ".htm"):
        head = _head(path)
        if CASSETTE.name in head or path.suffix.casefold() != ".json":
            yield from cases_of_cassette(Cassette.load(path))
            return
        if CONVERSATION.name in head:
            yield from cases_of_turns(Conversation.load(path), cluster=path.stem)
            return
    shared = _evaluators_of_the_dataset(path) if path.suffix.casefold() in (".yaml", ".yml", ".json") else []
    possible = {str(row.get("id")): row for _, row in rows_of(Path(answers).expanduser())} if answers is not None else None
    yield from _read(rows_of(path), functions, possible, shared)


def _head(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(2_000)
    except OSError as error:
        raise UsageError(f"{shown(path)} cannot be read: {error.strerror}.") from None


def _read(
    rows: Iterable[tuple[str, Mapping[str, Any]]],
    functions: Functions | None,
    possible: Mapping[str, Mapping[str, Any]] | None,
    shared: Sequence[Any] = (),
) -> Iterator[ToolUseCase]:
    for where, row in rows:
        try:
            if "inputs" in row:
                yield _of_pydantic_evals(row, shared, functions)
            elif "PROMPT" in row and "TRAJECTORY" in row:
                yield _of_mcp_atlas(row)
            elif "question" in row and ("function" in row or possible is not None):
                yield _of_bfcl(row, possible or {})
            elif "Question" in row and "Annotator Metadata" in row:
                yield _of_livemcpbench(row)
            else:
                yield read_case(row, where, functions)
        except UsageError as error:
            text = str(error)
            raise error if text.startswith(where) else UsageError(f"{where}: {text}") from None
        except (KeyError, TypeError, ValueError, AttributeError, SyntaxError, RecursionError) as error:
            raise UsageError(f"{where} cannot be read: {type(error).__name__}: {error}.") from None


def cases_of_turns(turns: Iterable[Turn], cluster: str | None = None) -> list[ToolUseCase]:
    """Build cases from past turns that called tools, with the calls that succeeded. A first draft for a person to correct.

    A turn that only makes sense after those before it should be removed, or be given their messages too.

    Args:
        turns: The turns.
        cluster: Their cluster, or None for none.
    """
    cases: dict[str, ToolUseCase] = {}
    for turn in turns:
        calls = [
            ExpectedCall(str(call.tool), call.arguments)
            for call in calls_of_model(turn.tool_calls)
            if call.status == "ok" and call.tool.server not in (SYNTHETIC, UNKNOWN) and isinstance(call.arguments, Mapping)
        ]
        if calls and turn.prompt.strip():
            case = ToolUseCase(turn.prompt, calls, cluster=cluster, metadata={"answer": turn.answer})
            cases.setdefault(case.id, case)
    return list(cases.values())


def cases_of_cassette(cassette: Cassette) -> list[ToolUseCase]:
    """Build a case from each recorded answer that ends a turn, with the calls before it. See `cases_of_turns`."""
    names = {tool.wire_name: str(tool.tool_name) for entry in cassette.servers.values() for tool in entry.tools}
    cases: dict[str, ToolUseCase] = {}
    for each in cassette.interactions:
        if each.kind != "model" or each.error is not None or each.response["message"].get("calls"):
            continue
        messages = each.request["messages"]
        users = [number for number, message in enumerate(messages) if message.get("role") == "user"]
        if not users:
            continue
        texts = [_text(messages[number]) for number in users]
        calls = []
        for number, last in zip(range(1, len(users) + 1), [*users[1:], len(messages)], strict=True):
            for message in messages[users[number - 1] : last]:
                for written in message.get("calls", ()):
                    called = named_call(str(written["tool"]), written.get("arguments", ""))
                    if called.name in names and isinstance(called.arguments, dict):
                        turn = number if len(users) > 1 else None
                        calls.append(ExpectedCall(names[called.name], called.arguments, turn=turn))
        if calls and all(text.strip() for text in texts):
            answer = {"answer": _text(each.response["message"])}
            case = ToolUseCase(texts[0] if len(texts) == 1 else texts, calls, metadata=answer)
            cases.setdefault(json.dumps(texts), case)
    return list(cases.values())


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content", "")
    return content if isinstance(content, str) else "\n".join(str(part.get("text", "")) for part in content)


# pydantic-evals: https://ai.pydantic.dev/evals/

_ORDERS: Mapping[str, Order] = {"exact": "exact", "in_order": "in_order", "any_order": "any"}


def _evaluators_of_the_dataset(path: Path) -> list[Any]:
    """Read the evaluators that a pydantic-evals file has for all its cases."""
    import yaml

    try:
        text = path.read_text(encoding="utf-8-sig")
        document = json.loads(text) if path.suffix.casefold() == ".json" else yaml.safe_load(text)
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        # The rows are read next, which reports it with its line.
        return []
    evaluators = document.get("evaluators") if isinstance(document, Mapping) else None
    return evaluators if isinstance(evaluators, list) else []


def _of_pydantic_evals(row: Mapping[str, Any], shared: Sequence[Any], functions: Functions | None) -> ToolUseCase:
    fields: dict[str, Any] = {"message": _message(row["inputs"]), "id": str(row.get("name") or "")}
    calls: list[ExpectedCall] = []
    checks: list[Any] = []
    others: list[str] = []
    for name, given in map(_evaluator, [*shared, *(row.get("evaluators") or [])]):
        match name:
            case "ToolCorrectness":
                calls = [
                    ExpectedCall(tool, may_fail=bool(given.get("include_failed"))) for tool in _first(given, "expected_tools")
                ]
                fields |= {"order": "any", "extra_calls": None if given.get("allow_extra") else 0}
            case "TrajectoryMatch":
                calls = [ExpectedCall(tool) for tool in _first(given, "expected_trajectory")]
                fields |= {"order": _ORDERS[str(given.get("order", "in_order"))], "extra_calls": 0}
            case "ArgumentCorrectness":
                pass
            case "Contains":
                flags = "" if given.get("case_sensitive", True) else "(?i)"
                checks.append(Regex(f"{flags}{re.escape(str(_first(given, 'value')))}"))
            case "EqualsExpected":
                checks.append(Regex(rf"\A\s*{re.escape(str(row['expected_output']))}\s*\Z"))
            case _:
                others.append(name)
    for name, given in map(_evaluator, [*shared, *(row.get("evaluators") or [])]):
        if name == "ArgumentCorrectness":
            _add_arguments(calls, given, functions)
    metadata = {**_mapping(row.get("metadata")), **({"evaluators not read": others} if others else {})}
    return ToolUseCase(**fields, calls=calls, answer=checks or None, metadata=metadata)


def _evaluator(spec: Any) -> tuple[str, Mapping[str, Any]]:
    """Read an evaluator: `Name`, `{Name: argument}` or `{Name: {argument: value}}`."""
    if isinstance(spec, str):
        return spec, {}
    ((name, given),) = spec.items()
    return str(name), given if isinstance(given, Mapping) else {"": given}


def _first(given: Mapping[str, Any], name: str) -> Any:
    return given[name] if name in given else given[""]


def _add_arguments(calls: list[ExpectedCall], given: Mapping[str, Any], functions: Functions | None) -> None:
    tool, which = str(given["tool_name"]), given.get("occurrence", "first")
    arguments = read_expectation(given["expected_arguments"], functions)
    match: ArgumentMode = "exact" if given.get("match_mode") == "exact" else "subset"
    places = [number for number, call in enumerate(calls) if call.tool == tool]
    index = {"first": 0, "last": -1}.get(which, which)
    if not places:
        calls.append(ExpectedCall(tool, arguments, match))
    else:
        calls[places[index]] = ExpectedCall(tool, arguments, match)


def _message(inputs: Any) -> Any:
    if isinstance(inputs, str) or (isinstance(inputs, list) and all(isinstance(text, str) for text in inputs)):
        return inputs
    if isinstance(inputs, Mapping):
        for name in ("message", "prompt", "question", "query", "input", "user_prompt"):
            if isinstance(inputs.get(name), str):
                return inputs[name]
    raise UsageError(
        f"The inputs of a case cannot be {brief(inputs)}.", hint="A text, a list of texts, or an object with prompt."
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {} if value is None else {"metadata": value}


# MCP-Atlas: https://huggingface.co/datasets/ScaleAI/MCP-Atlas


def _of_mcp_atlas(row: Mapping[str, Any]) -> ToolUseCase:
    trajectory = _literal(row["TRAJECTORY"])
    outputs = {
        str(message.get("tool_call_id")): "\n".join(part.get("text", "") for part in message["content"])
        if isinstance(message.get("content"), list)
        else str(message.get("content") or "")
        for message in trajectory
        if message.get("role") == "tool"
    }
    calls, results = [], []
    for message in trajectory:
        for call in message.get("tool_calls") or ():
            function = call["function"]
            arguments = _literal(function.get("arguments") or "{}")
            calls.append(ExpectedCall(str(function["name"]), arguments))
            results.append({"tool": function["name"], "arguments": arguments, "result": outputs.get(str(call.get("id")), "")})
    tools = [each if isinstance(each, str) else each["name"] for each in _literal(row.get("ENABLED_TOOLS") or "[]")]
    claims = _literal(row.get("GTFA_CLAIMS") or "[]")
    return ToolUseCase(
        str(row["PROMPT"]).strip(),
        calls,
        arguments="ignore",
        id=str(row.get("TASK") or ""),
        metadata={"tools": tools, "claims": claims if isinstance(claims, list) else [str(claims)], "results": results},
    )


def _literal(value: Any) -> Any:
    """Read a cell with JSON or with a Python list."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        pass
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return value


# BFCL: https://github.com/ShishirPatil/gorilla/tree/main/berkeley-function-call-leaderboard


def _of_bfcl(row: Mapping[str, Any], possible: Mapping[str, Mapping[str, Any]]) -> ToolUseCase:
    name = str(row["id"])
    turns = row["question"] if row["question"] and isinstance(row["question"][0], list) else [row["question"]]
    messages = ["\n\n".join(str(each["content"]) for each in turn if each["role"] == "user") for turn in turns]
    functions = row.get("function") or []
    metadata = {"tools": [each["name"] for each in (functions if isinstance(functions, list) else [functions])]}
    truth = row.get("ground_truth", possible.get(name, {}).get("ground_truth"))
    message = messages[0] if len(messages) == 1 else messages
    if truth is None:
        if "irrelevance" in name:
            return ToolUseCase(message, no_call=True, id=name, metadata=metadata)
        if "relevance" in name:
            return ToolUseCase(message, any_call=True, id=name, metadata=metadata)
        raise UsageError(f"There is no answer for {shown(name)}.", hint="Give the file with the possible answers: answers=….")
    if truth and isinstance(truth[0], list):
        calls = [_python_call(text, number) for number, texts in enumerate(truth, 1) for text in texts]
        return ToolUseCase(message, calls, order="in_order", id=name, metadata=metadata)
    calls = [
        ExpectedCall(_spellings(tool), {parameter: _acceptable(values) for parameter, values in parameters.items()})
        for each in truth
        for tool, parameters in each.items()
    ]
    return ToolUseCase(message, calls, extra_calls=0, arguments="exact", id=name, metadata=metadata)


def _spellings(tool: str) -> tuple[str, ...]:
    """List a function's names: providers refuse a dot in one."""
    return tuple(dict.fromkeys((tool, tool.replace(".", "_"))))


def _acceptable(values: Any) -> Any:
    """Convert a parameter's acceptable values. An empty text means that it may be missing."""
    if not isinstance(values, list):
        return values
    options = [
        {name: _acceptable(each) for name, each in value.items()} if isinstance(value, Mapping) else value
        for value in values
        if value != ""
    ]
    expected = options[0] if len(options) == 1 else OneOf([*options, *([""] if "" in values else [])])
    return IfGiven(expected) if "" in values else expected


def _python_call(text: str, turn: int) -> ExpectedCall:
    """Read a call that is written as Python: `cd(folder='document')`. Nothing is run."""
    node = ast.parse(text.strip(), mode="eval").body
    if not isinstance(node, ast.Call):
        raise UsageError(f"{shown(text)} is not a call.")
    arguments = {str(each.arg): ast.literal_eval(each.value) for each in node.keywords}
    return ExpectedCall(_spellings(ast.unparse(node.func)), arguments, turn=turn)


# LiveMCPBench: https://huggingface.co/datasets/ICIP/LiveMCPBench


def _of_livemcpbench(row: Mapping[str, Any]) -> ToolUseCase:
    listed = _literal(row["Annotator Metadata"])["Tools"]
    tools = [re.sub(r"^\s*\d+[.)]\s*", "", line).strip() for line in str(listed).splitlines()]
    metadata = {"category": row.get("category"), "answers": row.get("answers")}
    return ToolUseCase(
        str(row["Question"]), [tool for tool in tools if tool], id=str(row.get("task_id") or ""), metadata=metadata
    )


# inspect-ai: https://inspect.aisi.org.uk/


def inspect_log(results: Any, arm: str) -> dict[str, Any]:
    """Convert an arm's runs to an inspect-ai log, version 2, without that package.

    Each run is a sample: the case is its id, and the repeat its epoch. The score `tool_use` is C or I, with the failure as its
    explanation. A run that could not be made has an error and no score.

    Args:
        results: The `RunResults`.
        arm: The arm's name.
    """
    records = results[arm].records
    started = [turn.started.began for record in records for turn in record.turns[:1] if turn.started]
    begin, end = min(started, default=0.0), max(started, default=0.0) + results.seconds

    def stamp(seconds: float) -> str:
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")

    def identity(part: str) -> str:
        return hashlib.sha256(f"{part} {arm} {[record.key for record in records]}".encode()).hexdigest()[:22]

    usage: dict[str, dict[str, int]] = {}
    for record in records:
        each = usage.setdefault(record.model or "none", {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0})
        for name, value in (("input_tokens", record.input_tokens or 0), ("output_tokens", record.output_tokens or 0)):
            each[name] += value
            each["total_tokens"] += value
    right, cases = results[arm].right, list(dict.fromkeys(record.case for record in records))
    metrics = {"accuracy": {"name": "accuracy", "value": right.value}} if right else {}
    if right is not None:
        metrics |= {name: {"name": name, "value": value} for name, value in (("low", right.low), ("high", right.high))}
    completed = sum(record.made for record in records)
    # In the reader's order: it stops after the header.
    return {
        "version": 2,
        "status": {"done": "success", "running": "started", "failing": "error"}.get(results.status, "cancelled"),
        "eval": {
            "eval_id": identity("eval"),
            "run_id": identity("run"),
            "created": stamp(begin),
            "task": arm,
            "task_id": identity("task"),
            "dataset": {"name": "cases", "samples": len(cases), "sample_ids": cases, "shuffled": False},
            "model": next(iter(usage), "none"),
            "config": {"epochs": results.repeats},
        },
        "plan": {"name": "casual_mcp_nb", "steps": [], "config": {}},
        "results": {
            "total_samples": len(records),
            "completed_samples": completed,
            "scores": [{"name": "tool_use", "scorer": "tool_use", "params": {}, "metrics": metrics}],
        },
        "stats": {"started_at": stamp(begin), "completed_at": stamp(end), "model_usage": usage},
        "samples": [_sample(record) for record in records],
    }


def _sample(record: Any) -> dict[str, Any]:
    messages = [plain for turn in record.turns for plain in inspect_messages(turn)]
    fields = ("failure", "tool", "cluster", "arm", "steps", "calls", "searches")
    sample: dict[str, Any] = {
        "id": record.case,
        "epoch": record.repeat + 1,
        "input": record.message or record.case,
        "target": list(record.needed),
        "messages": messages,
        "output": {
            "model": record.model or "none",
            "choices": [{"message": {"role": "assistant", "content": record.answer}, "stop_reason": "stop"}],
        },
        "metadata": {name: getattr(record, name) for name in fields},
        "total_time": record.seconds,
    }
    if record.made:
        score = {"value": "C" if record.right else "I", "answer": record.answer, "explanation": record.detail or None}
        sample["scores"] = {"tool_use": score}
    else:
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
                    arguments = called.arguments if isinstance(called.arguments, dict) else {"": called.arguments}
                    calls.append({"id": each.id, "function": called.name, "arguments": arguments, "type": "function"})
                messages.append({"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})})
            case "tool":
                messages.append(
                    {"role": "tool", "content": text, "tool_call_id": message.tool_call_id, "function": message.name}
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
        raise MissingDependencyError("A solver needs inspect-ai, which is not installed.", hint=install("inspect")) from None
    message_of = TypeAdapter(models.ChatMessage).validate_python
    # A session makes one turn after another, and inspect-ai solves samples in parallel.
    lock = asyncio.Lock()

    @solvers.solver(name="casual_mcp_nb")  # type: ignore[untyped-decorator]
    def casual_mcp() -> Any:
        async def solve(state: Any, generate: Any) -> Any:
            # Its scorers judge the answer, so that any will do here.
            case = ToolUseCase(state.input_text, answer=Regex(""), id=str(state.sample_id))
            async with lock:
                (record,) = (await run([case], **{"progress": False, **options})).records
            if not record.made:
                raise CasualMcpError(record.detail)
            state.messages = [message_of(plain) for turn in record.turns for plain in inspect_messages(turn)]
            state.output = models.ModelOutput.from_content(record.model or "none", record.answer)
            state.metadata["tools_called"] = list(record.called)
            return state

        return solve

    return casual_mcp()
