"""From the text behind the magics to typed values."""

from __future__ import annotations

import argparse
import json
import keyword
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from casual_mcp_nb.errors import UnknownNameError, UsageError, shown

ECHO = ("none", "text", "output", "all")
"""The echo levels of `Session.chat`, here again so that loading the magics loads no engine."""

STRATEGIES = ("search", "browse")
"""The strategies of discovery, here again for the same reason."""

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""The values of `reasoning_effort`, here again for the same reason."""

_MODEL_OPTIONS = {
    "--temperature": ("NUMBER", float),
    "--top-p": ("NUMBER", float),
    "--max-tokens": ("N", int),
    "--seed": ("N", int),
    "--stop": ("TEXT", str),
    "--tool-choice": ("NAME", str),
    "--reasoning-effort": ("|".join(EFFORTS), str),
}
"""Those of `ModelOptions` that fit a line, each with what it takes and its type; `Session.chat` checks their values."""

CELL_OPTIONS = {
    "--model": "NAME",
    "--toolset": "NAME",
    "--system": "TEXT",
    "--template": "NAME",
    "--echo": "|".join(ECHO),
    "--no-discovery": "",
    "--max-steps": "N",
    **{option: takes for option, (takes, _) in _MODEL_OPTIONS.items()},
    "--var": "NAME",
    "-o": "NAME",
}
"""The options of a `%%mcp` cell, each with what it takes."""

_OUTPUT = re.compile(r"^-o\s+(?P<first>\S+)(?:\s+|$)|\s+-o\s+(?P<last>\S+)$")


@dataclass(frozen=True)
class Line:
    """A `%mcp` line.

    Args:
        command: The sub-command.
        rest: The text behind it.
        output: The variable that takes the result.
        quiet: Whether a semicolon at the end wants the result not to be shown.
    """

    command: str
    rest: str
    output: str | None = None
    quiet: bool = False


@dataclass(frozen=True)
class CellArgs:
    """The options of a `%%mcp` cell.

    Args:
        model: Name of a model.
        tool_set: Name of a toolset.
        system: The system prompt.
        template: Name of a prompt template.
        echo: What the cell shows; None for the usual.
        no_discovery: Offer all tools at once.
        max_steps: Calls of the model at most; None for the usual.
        model_options: The options that go to the model, by their names in `ModelOptions`.
        variables: Names of the notebook's variables that the text may use as `{{ name }}`.
        output: The variable that takes the turn.
    """

    model: str | None = None
    tool_set: str | None = None
    system: str | None = None
    template: str | None = None
    echo: str | None = None
    no_discovery: bool = False
    max_steps: int | None = None
    model_options: Mapping[str, Any] = field(default_factory=dict)
    variables: tuple[str, ...] = ()
    output: str | None = None


class _MagicParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"%%mcp: {message}.", hint=f"Options: {', '.join(CELL_OPTIONS)}.")


def parse_line(line: str, commands: Iterable[str]) -> Line:
    """Split a `%mcp` line. `-o NAME` stands at its beginning or its end, a semicolon behind all.

    Raises:
        UnknownNameError: There is no such command; the closest ones are named.
        UsageError: What stands behind `-o` is no name of a variable.
    """
    whole = line.strip()
    line = whole.removesuffix(";").rstrip()
    output = _OUTPUT.search(line)
    words = _OUTPUT.sub("", line, count=1).split(maxsplit=1)
    command = words[0] if words else "status"
    if command not in set(commands):
        raise UnknownNameError("%mcp command", command, commands)
    name = variable_name(output["first"] or output["last"]) if output else None
    return Line(command, words[1].strip() if len(words) > 1 else "", name, line != whole)


def parse_cell_line(line: str) -> CellArgs:
    """The options of a `%%mcp` cell.

    Raises:
        UsageError: An option does not exist or lacks its value.
    """
    parser = _MagicParser(prog="%%mcp", add_help=False, allow_abbrev=False)
    parser.add_argument("--model")
    parser.add_argument("--toolset", dest="tool_set")
    parser.add_argument("--system")
    parser.add_argument("--template")
    parser.add_argument("--echo")
    parser.add_argument("--no-discovery", action="store_true")
    parser.add_argument("--max-steps", type=int)
    for option, (_, kind) in _MODEL_OPTIONS.items():
        parser.add_argument(option, type=kind)
    parser.add_argument("--var", dest="variables", action="append", default=[])
    parser.add_argument("-o", dest="output")
    known, unknown = parser.parse_known_args(words_of(line))
    if unknown:
        raise UnknownNameError("%%mcp option", unknown[0], CELL_OPTIONS)
    values = vars(known)
    names = [option.removeprefix("--").replace("-", "_") for option in _MODEL_OPTIONS]
    model_options = {name: value for name in names if (value := values.pop(name)) is not None}
    args = CellArgs(**{**values, "variables": tuple(map(variable_name, known.variables)), "model_options": model_options})
    if args.echo is not None and args.echo not in ECHO:
        raise UnknownNameError("echo level", args.echo, ECHO)
    if args.max_steps is not None and args.max_steps < 1:
        raise UsageError("%%mcp: --max-steps must be 1 or more.")
    if args.output is not None:
        variable_name(args.output)
    return args


def variable_name(text: str) -> str:
    """`text`, if a variable can have that name.

    Raises:
        UsageError: It cannot.
    """
    if not text.isidentifier() or keyword.iskeyword(text):
        raise UsageError(f"{shown(text)} is no name of a variable.")
    return text


def fill_in(text: str, names: Iterable[str], namespace: Mapping[str, Any]) -> str:
    """`text` with `{{ name }}` replaced by the variable of that name, for these names only. All other braces stay.

    Args:
        text: The text of a cell.
        names: The variables that were named.
        namespace: All variables. What they hold is put in as it is and not looked at again.

    Raises:
        UnknownNameError: There is no such variable.
        UsageError: The text does not use it.
    """
    names = list(dict.fromkeys(names))
    for name in names:
        if name not in namespace:
            raise UnknownNameError("variable", name, [known for known in namespace if not known.startswith("_")])
        if not re.search(rf"\{{\{{\s*{name}\s*\}}\}}", text):
            raise UsageError(f"The text does not use {name}.", hint=f"Write {{{{ {name} }}}} where it belongs.")
    if not names:
        return text
    return re.sub(rf"\{{\{{\s*({'|'.join(names)})\s*\}}\}}", lambda match: str(namespace[match[1]]), text)


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


def parse_place(command: str, rest: str) -> tuple[int | None, int | None]:
    """Turn and step of `%mcp step`, `request` and `diff`, both from 1: nothing, `STEP`, or `TURN.STEP`.

    Raises:
        UsageError: It is something else.
    """
    match = re.fullmatch(r"(?:(?P<turn>[0-9]{1,9})\.)?(?P<step>[0-9]{1,9})|", rest)
    if match is None:
        raise UsageError(f"{shown(rest)} is no step.", hint=f"Write %mcp {command} 2, or 1.2 for step 2 of turn 1.")
    turn, step = match["turn"], match["step"]
    return int(turn) if turn else None, int(step) if step else None


def one_word(command: str, rest: str, noun: str) -> str:
    """The one word that a command needs.

    Raises:
        UsageError: There is none, or more than one.
    """
    words = words_of(rest)
    if len(words) != 1:
        raise UsageError(f"%mcp {command} needs one {noun}, found {len(words)}.")
    return words[0]
