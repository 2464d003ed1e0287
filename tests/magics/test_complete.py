"""Completions of the tab key behind the magics."""

from __future__ import annotations

import pytest

from casual_mcp_nb.magics.args import CELL_OPTIONS
from casual_mcp_nb.magics.commands import COMMANDS
from casual_mcp_nb.magics.completion import Names, complete

NAMES = Names(
    servers=["math", "mail", "time"],
    tools=["math__add", "mail__send"],
    tool_sets=["reading"],
    models=["gpt", "llama"],
    templates=["careful", "teacher"],
    variables=["city"],
    cases=["cases.jsonl"],
    resources=["docs://readme", "docs://tides/{port}"],
    prompts=["docs:compare"],
    arguments={"docs:compare": ["first", "second"], "docs://tides/{port}": ["port"]},
)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("%mcp", []),
        ("%mcp se", ["servers", "selection", "search"]),
        ("%mcp tool m", ["math__add", "mail__send"]),
        ("%mcp call math", ["math__add"]),
        ('%mcp call math__add {"a', []),
        ("%mcp tool math__add ", []),
        ("%mcp off ma", ["math", "mail"]),
        ("%mcp off math ", ["mail", "time"]),
        ("%mcp reconnect t", ["time"]),
        ("%mcp toolset ", ["reading", "all"]),
        ("%mcp model l", ["llama"]),
        ("%mcp strategy ", ["search", "browse"]),
        ("%mcp delivery ", ["auto", "definitions", "native", "bridge", "code"]),
        ("%mcp evaluate ", ["cases.jsonl"]),
        ("%mcp evaluate cases.jsonl ", []),
        ("%mcp preview t", ["teacher"]),
        ("%mcp help doc", ["doctor"]),
        ("%mcp help me", ["measure", "memory", "messages"]),
        ("%mcp servers m", ["math", "mail"]),
        ("%mcp read docs://r", ["docs://readme"]),
        ("%mcp read docs://readme ", []),
        ("%mcp read docs://tides/{port} ", ["port="]),
        ("%mcp prompt d", ["docs:compare"]),
        ("%mcp prompt docs:compare first=Oslo ", ["second="]),
        ("%mcp resources ma", ["math", "mail"]),
        ("%%mcp --attach docs://r", ["docs://readme"]),
        ("%mcp search ma", []),
        ("%mcp tols ", []),
        ("%%mcp --mo", ["--model"]),
        ("%%mcp --model ", ["gpt", "llama"]),
        ("%%mcp --toolset r", ["reading"]),
        ("%%mcp --template c", ["careful"]),
        ("%%mcp --echo ", ["none", "text", "output", "all"]),
        ("%%mcp --var ", ["city"]),
        ("%%mcp --var city --v", ["--var"]),
        ("%%mcp --model gpt --m", ["--max-steps", "--max-tokens"]),
        ("%%mcp --reasoning-effort m", ["minimal", "medium", "max"]),
        ("%%mcp --delivery b", ["bridge"]),
        ("%%mcp --strategy ", ["search", "browse"]),
        ("%mcp compare --disc", ["--discovery"]),
        ("%mcp compare --discovery ", ["on", "off", "auto"]),
        ("%mcp compare --deliveries b", ["bridge"]),
        ("%mcp compare --repeats ", []),
        ("%mcp wire ma", ["math", "mail"]),
        ("%mcp wire --", ["--method", "--text"]),
        ("%mcp wire math ", ["--method", "--text"]),
        ("%mcp wire math --method el", ["elicitation/create"]),
        ("%mcp wire math --text ", []),
        ("%%mcp --tool-choice math__a", ["math__add"]),
        ("%%mcp --system ", []),
        ("%%mcp --no-discovery --no", []),
    ],
)
def test_names_valid_at_that_position_are_offered(text: str, names: list[str]) -> None:
    assert complete(text, NAMES) == names


def test_all_commands_and_all_options_are_offered_at_the_start() -> None:
    assert complete("%mcp ", NAMES) == list(COMMANDS)
    assert complete("%%mcp ", NAMES) == list(CELL_OPTIONS)


def test_without_a_session_only_commands_and_variables_are_known() -> None:
    names = Names.of(None, ["b", "_hidden", "a"])
    assert complete("%mcp tool ", names) == []
    assert complete("%%mcp --var ", names) == ["a", "b"]
