"""From the text behind the magics to typed values; mistakes are one line with the closest name."""

from __future__ import annotations

import pytest

from casual_mcp_nb.errors import UnknownNameError, UsageError
from casual_mcp_nb.magics.args import CellArgs, Line, parse_call, parse_cell_line, parse_line
from casual_mcp_nb.magics.commands import COMMANDS


@pytest.mark.parametrize(
    ("line", "parsed"),
    [
        ("", Line("status", "")),
        ("tools", Line("tools", "")),
        ("  search   convert a time ", Line("search", "convert a time")),
        ('call math__add {"a": 1}', Line("call", 'math__add {"a": 1}')),
    ],
)
def test_a_line_is_split_into_command_and_rest(line: str, parsed: Line) -> None:
    assert parse_line(line, COMMANDS) == parsed


def test_an_unknown_command_is_an_error_with_the_closest() -> None:
    with pytest.raises(UnknownNameError, match="'servers'"):
        parse_line("server", COMMANDS)


def test_the_options_of_a_cell_become_typed_values() -> None:
    assert parse_cell_line("--model gpt --toolset 'my tools' --no-discovery --max-steps 3") == CellArgs(
        model="gpt", tool_set="my tools", no_discovery=True, max_steps=3
    )
    assert parse_cell_line("") == CellArgs()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--modle gpt", "--model"),
        ("--model", "expected one argument"),
        ("--max-steps x", "invalid int"),
        ("--system 'a", "quotation"),
    ],
)
def test_a_wrong_option_is_one_line(line: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as error:
        parse_cell_line(line)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("rest", "call"),
    [
        ('math__add {"a": 1, "b": 2}', ("math__add", {"a": 1, "b": 2})),
        ("time__now", ("time__now", {})),
        ('text__x {"text": "$HOME {braces}"}', ("text__x", {"text": "$HOME {braces}"})),
    ],
)
def test_a_call_is_a_tool_and_a_json_object(rest: str, call: tuple[str, dict[str, object]]) -> None:
    assert parse_call(rest) == call


@pytest.mark.parametrize("rest", ["", "math__add {", "math__add [1]", "math__add a=1"])
def test_a_call_that_cannot_be_read_says_how_it_is_written(rest: str) -> None:
    with pytest.raises(UsageError, match=r"\{\"a\": 1"):
        parse_call(rest)
