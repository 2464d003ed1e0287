"""From the text behind `%mcp` and `%%mcp` to typed values."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from casual_mcp_nb.errors import UnknownNameError, UsageError, shown


@dataclass(frozen=True)
class Line:
    """A `%mcp` line: its command and the text behind it."""

    command: str
    rest: str


@dataclass(frozen=True)
class CellArgs:
    """The options of a `%%mcp` cell.

    Args:
        model: Name of a model.
        tool_set: Name of a toolset.
        system: The system prompt.
        template: Name of a prompt template.
        no_discovery: Offer all tools at once.
        max_steps: Calls of the model at most.
    """

    model: str | None = None
    tool_set: str | None = None
    system: str | None = None
    template: str | None = None
    no_discovery: bool = False
    max_steps: int | None = None


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"%%mcp: {message}.", hint=f"Options: {', '.join(CELL_OPTIONS)}.")


CELL_OPTIONS = ("--model", "--toolset", "--system", "--template", "--no-discovery", "--max-steps")


def parse_line(line: str, commands: Iterable[str]) -> Line:
    """Split a `%mcp` line.

    Raises:
        UnknownNameError: There is no such command; the closest ones are named.
    """
    words = line.strip().split(maxsplit=1)
    command = words[0] if words else "status"
    if command not in set(commands):
        raise UnknownNameError("%mcp command", command, commands)
    return Line(command, words[1].strip() if len(words) > 1 else "")


def parse_cell_line(line: str) -> CellArgs:
    """The options of a `%%mcp` cell.

    Raises:
        UsageError: An option does not exist or lacks its value.
    """
    parser = _Parser(prog="%%mcp", add_help=False, allow_abbrev=False)
    parser.add_argument("--model")
    parser.add_argument("--toolset", dest="tool_set")
    parser.add_argument("--system")
    parser.add_argument("--template")
    parser.add_argument("--no-discovery", action="store_true")
    parser.add_argument("--max-steps", type=int)
    known, unknown = parser.parse_known_args(words_of(line))
    if unknown:
        raise UnknownNameError("%%mcp option", unknown[0], CELL_OPTIONS)
    return CellArgs(**vars(known))


def words_of(text: str) -> list[str]:
    """The words of a line; quotes hold a word together.

    Raises:
        UsageError: A quote is not closed.
    """
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"Cannot read {shown(text)}: {error}.") from None


def parse_call(rest: str) -> tuple[str, dict[str, Any]]:
    """The tool and the arguments of `%mcp call TOOL {json}`.

    Raises:
        UsageError: The arguments are no JSON object; the place of the fault is named.
    """
    name, _, text = rest.partition(" ")
    if not name:
        raise UsageError("%mcp call needs a tool.", hint='For example: %mcp call math__add {"a": 1, "b": 2}')
    try:
        arguments = json.loads(text) if text.strip() else {}
    except json.JSONDecodeError as error:
        raise UsageError(
            f"The arguments are not JSON: {error.msg} at character {error.colno}.", hint='Write them as {"a": 1, "b": 2}.'
        ) from None
    if not isinstance(arguments, dict):
        raise UsageError("The arguments are not a JSON object.", hint='Write them as {"a": 1, "b": 2}.')
    return name, arguments


def one_word(command: str, rest: str, noun: str) -> str:
    """The one word that a command needs.

    Raises:
        UsageError: There is none, or more than one.
    """
    words = words_of(rest)
    if len(words) != 1:
        raise UsageError(f"%mcp {command} needs one {noun}, found {len(words)}.")
    return words[0]
