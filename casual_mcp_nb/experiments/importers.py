"""Read rows of other projects' cases: pydantic-evals, MCP-Atlas, BFCL, LiveMCPBench, and queries
with their needs.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from casual_mcp_nb.base.iterables import all_are
from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.errors import UsageError, cannot_be, shown
from casual_mcp_nb.experiments.cases import ArgumentMode, ExpectedCall, Order, ToolUseCase
from casual_mcp_nb.experiments.checks import Functions
from casual_mcp_nb.experiments.drafts import text_in
from casual_mcp_nb.experiments.matchers import IfGiven, OneOf, Regex, read_expectation
from casual_mcp_nb.experiments.one_or_several import shortest
from casual_mcp_nb.experiments.rows import Fields


@dataclass(frozen=True)
class Context:
    """What a row's meaning depends on beside the row.

    Args:
        functions: The functions that `$function` may name.
        answers: The rows with possible answers by id, or None if no such file was given.
        evaluators: The evaluators that a pydantic-evals file has for all its cases.
    """

    functions: Functions = field(default_factory=dict)
    answers: Mapping[str, Fields] | None = None
    evaluators: Sequence[Any] = ()


class MissingAnswersError(UsageError):
    """The rows need a second file, which was not given: no row can be read."""


Importer = Callable[[Fields, Context], ToolUseCase]
"""Converts a row to a case.

It may raise anything on a row with other content than it should have.
"""


def importer_of(row: Fields, context: Context) -> Importer | None:
    """Find the importer for a row by its fields, or None if it is in this package's own form."""
    if "inputs" in row:
        return _of_pydantic_evals
    if "PROMPT" in row and "TRAJECTORY" in row:
        return _of_mcp_atlas
    if "question" in row and ("function" in row or context.answers is not None):
        return _of_bfcl
    if "Question" in row and "Annotator Metadata" in row:
        return _of_livemcpbench
    if "query" in row and "gold" in row:
        return _of_gold
    return None


def _of_gold(row: Fields, context: Context) -> ToolUseCase:
    """Read a query, and for each need the tools that meet it: `{"query": text, "gold": [[[server,
    tool]]]}`.
    """
    return ToolUseCase(
        str(row["query"]), [frozenset(map(_tool_name, need)) for need in row["gold"]]
    )


def _tool_name(pair: Any) -> ToolName:
    if not isinstance(pair, list | tuple):
        raise cannot_be("A tool", pair, "Write [server, tool].")
    server, tool = pair
    return ToolName(str(server), str(tool))


# pydantic-evals: https://ai.pydantic.dev/evals/

_ORDERS: Mapping[str, Order] = {"exact": "exact", "in_order": "in_order", "any_order": "any"}


def _of_pydantic_evals(row: Fields, context: Context) -> ToolUseCase:
    own_evaluators = row.get("evaluators") or []
    evaluators = [_evaluator(each) for each in (*context.evaluators, *own_evaluators)]
    fields = {"message": _message(row["inputs"]), "id": str(row.get("name") or "")}
    calls = []
    checks = []
    others = []
    for name, given in evaluators:
        match name:
            case "ToolCorrectness":
                may_fail = bool(given.get("include_failed"))
                tools = _first(given, "expected_tools")
                calls = [ExpectedCall(tool, may_fail=may_fail) for tool in tools]
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
    for name, given in evaluators:
        if name == "ArgumentCorrectness":
            _add_arguments(calls, given, context.functions)
    metadata = dict(_mapping(row.get("metadata")))
    if others:
        metadata["evaluators not read"] = others
    return ToolUseCase(**fields, calls=calls, answer=checks or None, metadata=metadata)


def _evaluator(spec: Any) -> tuple[str, Fields]:
    """Read an evaluator: `Name`, `{Name: argument}` or `{Name: {argument: value}}`."""
    if isinstance(spec, str):
        return spec, {}
    ((name, given),) = spec.items()
    return str(name), given if isinstance(given, Mapping) else {"": given}


def _first(given: Fields, name: str) -> Any:
    return given[name] if name in given else given[""]


def _add_arguments(calls: list[ExpectedCall], given: Fields, functions: Functions | None) -> None:
    tool = str(given["tool_name"])
    which: Any = given.get("occurrence", "first")
    arguments = read_expectation(given["expected_arguments"], functions)
    match: ArgumentMode = "exact" if given.get("match_mode") == "exact" else "subset"
    places = [number for number, call in enumerate(calls) if call.tool == tool]
    if not places:
        calls.append(ExpectedCall(tool, arguments, match=match))
        return
    place = places[{"first": 0, "last": -1}.get(which, which)]
    call = calls[place]
    # Another evaluator may have given the same call arguments.
    calls[place] = replace(call, arguments={**call.arguments, **arguments}, match=match)


def _message(inputs: Any) -> Any:
    if isinstance(inputs, str) or (isinstance(inputs, list) and all_are(inputs, str)):
        return inputs
    if isinstance(inputs, Mapping):
        for name in ("message", "prompt", "question", "query", "input", "user_prompt"):
            if isinstance(inputs.get(name), str):
                return inputs[name]
    raise cannot_be(
        "The inputs of a case", inputs, "A text, a list of texts, or an object with prompt."
    )


def _mapping(value: Any) -> Fields:
    if isinstance(value, Mapping):
        return value
    return {} if value is None else {"metadata": value}


# MCP-Atlas: https://huggingface.co/datasets/ScaleAI/MCP-Atlas


def _of_mcp_atlas(row: Fields, context: Context) -> ToolUseCase:
    trajectory = _literal(row["TRAJECTORY"])
    results_of = {}
    for each in trajectory:
        if each.get("role") == "tool":
            results_of[str(each.get("tool_call_id"))] = text_in(each)
    calls, results = [], []
    for message in trajectory:
        for call in message.get("tool_calls") or ():
            function = call["function"]
            arguments = _literal(function.get("arguments") or "{}")
            calls.append(ExpectedCall(str(function["name"]), arguments))
            results.append(
                {
                    "tool": function["name"],
                    "arguments": arguments,
                    "result": results_of.get(str(call.get("id")), ""),
                }
            )
    enabled = _literal(row.get("ENABLED_TOOLS") or "[]")
    tools = [each if isinstance(each, str) else each["name"] for each in enabled]
    claims = _literal(row.get("GTFA_CLAIMS") or "[]")
    return ToolUseCase(
        str(row["PROMPT"]).strip(),
        calls,
        arguments="ignore",
        id=str(row.get("TASK") or ""),
        metadata={
            "tools": tools,
            "claims": claims if isinstance(claims, list) else [str(claims)],
            "results": results,
        },
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


def _of_bfcl(row: Fields, context: Context) -> ToolUseCase:
    name = str(row["id"])
    turns = row["question"]
    if not turns or not isinstance(turns[0], list):
        turns = [turns]
    messages = []
    for turn in turns:
        texts = [str(each["content"]) for each in turn if each["role"] == "user"]
        messages.append("\n\n".join(texts))
    functions = row.get("function") or []
    if not isinstance(functions, list):
        functions = [functions]
    answers = context.answers or {}
    fields: dict[str, Any] = {
        "message": shortest(messages),
        "id": name,
        "metadata": {"tools": [each["name"] for each in functions]},
    }
    truth = row.get("ground_truth", answers.get(name, {}).get("ground_truth"))
    if truth is None and "irrelevance" in name:
        return ToolUseCase(**fields, no_call=True)
    if truth is None and "relevance" in name:
        return ToolUseCase(**fields, any_call=True)
    if truth is None and context.answers is None:
        hint = "Give the file with the possible answers: answers=…."
        raise MissingAnswersError(f"There is no answer for {shown(name)}.", hint=hint)
    if truth is None:
        raise UsageError(f"The file with the possible answers has none for {shown(name)}.")
    if truth and isinstance(truth[0], list):
        calls = []
        for number, texts in enumerate(truth, 1):
            calls += [_python_call(text, number) for text in texts]
        return ToolUseCase(**fields, calls=calls, order="in_order")
    calls = []
    for each in truth:
        for tool, parameters in each.items():
            arguments = {name: _acceptable(values) for name, values in parameters.items()}
            calls.append(ExpectedCall(_spellings(tool), arguments))
    return ToolUseCase(**fields, calls=calls, extra_calls=0, arguments="exact")


def _spellings(tool: str) -> tuple[str, ...]:
    """List a function's names: providers refuse a dot in one."""
    return tuple(dict.fromkeys((tool, tool.replace(".", "_"))))


def _acceptable(values: Any) -> Any:
    """Convert a parameter's acceptable values. An empty text means that it may be missing."""
    if not isinstance(values, list):
        return values
    options = []
    for value in values:
        if isinstance(value, Mapping):
            options.append({name: _acceptable(each) for name, each in value.items()})
        else:
            options.append(value)
    accepted = options[0] if len(options) == 1 else OneOf(options)
    return IfGiven(accepted) if "" in values else accepted


def _python_call(text: str, turn: int) -> ExpectedCall:
    """Read a call that is written as Python: `cd(folder='document')`. Nothing is run."""
    node = ast.parse(text.strip(), mode="eval").body
    if not isinstance(node, ast.Call):
        raise UsageError(f"{shown(text)} is not a call.")
    arguments = {str(each.arg): ast.literal_eval(each.value) for each in node.keywords}
    return ExpectedCall(_spellings(ast.unparse(node.func)), arguments, turn=turn)


# LiveMCPBench: https://huggingface.co/datasets/ICIP/LiveMCPBench


def _of_livemcpbench(row: Fields, context: Context) -> ToolUseCase:
    listed = _literal(row["Annotator Metadata"])["Tools"]
    tools = [re.sub(r"^\s*\d+[.)]\s*", "", line).strip() for line in str(listed).splitlines()]
    metadata = {"category": row.get("category"), "answers": row.get("answers")}
    return ToolUseCase(
        str(row["Question"]),
        list(filter(None, tools)),
        id=str(row.get("task_id") or ""),
        metadata=metadata,
    )
