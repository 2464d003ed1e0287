"""Parse magic lines into typed values."""

from __future__ import annotations

import argparse
import ast
import json
import keyword
import re
import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, Protocol, cast, get_args

from casual_mcp_nb.base.model_options import Flag, flags_of
from casual_mcp_nb.cassettes import CassetteMode
from casual_mcp_nb.engine.turn_fields import ChatOptions
from casual_mcp_nb.errors import UnknownNameError, UsageError, closest, did_you_mean, shown

ECHO = ("none", "text", "output", "all")
"""The echo levels for `Session.chat`, repeated here so that loading the magics loads no engine."""

STRATEGIES = ("search", "browse")
"""The discovery strategies, repeated here for the same reason."""

_TURN_OPTIONS = flags_of(ChatOptions)

CELL_OPTIONS = {
    **{name: flag for name, (_, flag) in _TURN_OPTIONS.items()},
    "--plan": Flag("show the model's calls without running them", value=True),
    "--echo": Flag(
        "the cell's output: nothing, the answer, the usual display, or everything", "|".join(ECHO)
    ),
    "--var": Flag("replace {{ NAME }} in the text by the variable NAME (repeatable)", "NAME"),
    "-o": Flag("store the turn or the plan in the variable NAME (works for %mcp as well)", "NAME"),
}
"""Options for a `%%mcp` cell: turn options that fit on a line, and the cell's own."""

CELL_OPTIONS_OF_EVERY_DAY = (
    "--model",
    "--toolset",
    "--system",
    "--attach",
    "--plan",
    "--echo",
    "--var",
    "-o",
)
"""The options that `%mcp help cells` lists first, in this order."""

_HELP = ("?", "--help", "-h")
_ASKING = (
    "To ask the model, write %mcp ask and the question, or %%mcp with the question below it."
    " Commands: %mcp help."
)
_LISTED = "%mcp help lists the commands of every day, %mcp help --all every one."
_OUTPUT = re.compile(r"^-o\s+(?P<first>\S+)(?:\s+|$)|\s+-o\s+(?P<last>\S+)$")


@dataclass(frozen=True)
class MagicLine:
    """A `%mcp` line: its command, the text after it, and the variable for the result; `quiet` if it
    ends with a semicolon.
    """

    command: str
    arguments: str
    output: str | None = None
    quiet: bool = False


@dataclass(frozen=True)
class CellArgs:
    """Options for a `%%mcp` cell.

    `Session.chat` checks the option values. The text may use notebook `variables` as `{{ name }}`.
    `output` is the variable in which to store the turn or plan.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    echo: str | None = None
    variables: tuple[str, ...] = ()
    output: str | None = None
    plan: bool = False


class _MagicParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"%%mcp: {message}.", hint="%mcp help cells has the options.")


class HasTopic(Protocol):
    """A command, as far as an error about its name needs it."""

    @property
    def topic(self) -> str:
        """The word with which `%mcp help` has it."""


def parse_line(
    line: str, commands: Mapping[str, HasTopic], same: Mapping[str, str] | None = None
) -> MagicLine:
    """Split a `%mcp` line. `-o NAME` may come first or last. A semicolon ends the line.

    `?` and `--help`, alone or after a command, are `help`.

    Args:
        line: What follows `%mcp`.
        commands: The commands by name.
        same: Other spellings of commands, each with the command's name.
    """
    whole = line.strip()
    line = whole.removesuffix(";").rstrip()
    output = _OUTPUT.search(line)
    words = _OUTPUT.sub("", line, count=1).split(maxsplit=1)
    command, arguments = (*words, "", "")[:2] if words else ("status", "")
    arguments = arguments.strip()
    if command in _HELP:
        command = "help"
    elif arguments in _HELP:
        command, arguments = "help", command
    command = (same or {}).get(command, command)
    if command not in commands:
        raise UnknownNameError(
            "%mcp command", command, commands, hint=_meant(command, arguments, commands)
        )
    name = variable_name(output["first"] or output["last"]) if output else None
    return MagicLine(command, arguments, name, line != whole)


def _meant(command: str, arguments: str, commands: Mapping[str, HasTopic]) -> str:
    """Say which command was meant, and the topic that it belongs to."""
    # A question with several words is seldom close to a command name.
    if arguments and not closest(command, commands, cutoff=0.7):
        return _ASKING
    matches = closest(command, commands)
    if not matches:
        return _LISTED
    suggestion = did_you_mean(matches, commands)
    return f"{suggestion} More like it: %mcp help {commands[matches[0]].topic}."


def parse_cell_line(line: str) -> CellArgs:
    """Parse a `%%mcp` cell's options."""
    parser = _MagicParser(prog="%%mcp", add_help=False, allow_abbrev=False)
    for name, (option, flag) in _TURN_OPTIONS.items():
        if flag.takes:
            parser.add_argument(name, dest=option, type=flag.read)
        else:
            parser.add_argument(name, dest=option, action="store_const", const=flag.value)
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--echo")
    parser.add_argument("--var", dest="variables", action="append", default=[])
    parser.add_argument("-o", dest="output")
    parsed, unknown = parser.parse_known_args(words_of(line))
    if unknown:
        hint = "" if unknown[0].startswith("-") else "The question goes in the lines below %%mcp."
        raise UnknownNameError("%%mcp option", unknown[0], CELL_OPTIONS, hint=hint)
    options = {
        option: value
        for option, _ in _TURN_OPTIONS.values()
        if (value := getattr(parsed, option)) is not None
    }
    args = CellArgs(
        options,
        parsed.echo,
        tuple(map(variable_name, parsed.variables)),
        parsed.output,
        parsed.plan,
    )
    if args.echo is not None and args.echo not in ECHO:
        raise UnknownNameError("echo level", args.echo, ECHO)
    for name, (option, flag) in _TURN_OPTIONS.items():
        least = flag.least
        if least is not None and options.get(option, least) < least:
            raise UsageError(f"%%mcp: {name} must be {least} or more.")
    if args.output is not None:
        variable_name(args.output)
    return args


def variable_name(text: str) -> str:
    """Check that `text` is a valid variable name."""
    if not text.isidentifier() or keyword.iskeyword(text):
        raise UsageError(f"{shown(text)} is not a valid variable name.")
    return text


def fill_in(text: str, names: Iterable[str], namespace: Mapping[str, Any]) -> str:
    """Replace `{{ name }}` in a text with that variable, for these names only. Other braces stay.

    Values are inserted verbatim and not processed again. Each name must be a variable that the text
    uses.
    """
    names = list(dict.fromkeys(names))
    for name in names:
        if name not in namespace:
            raise UnknownNameError(
                "variable",
                name,
                [variable for variable in namespace if not variable.startswith("_")],
            )
        if not re.search(rf"\{{\{{\s*{name}\s*\}}\}}", text):
            raise UsageError(
                f"The text does not contain {name}.",
                hint=f"Write {{{{ {name} }}}} where its value should be.",
            )
    if not names:
        return text

    def value(match: re.Match[str]) -> str:
        return str(namespace[match[1]])

    return re.sub(rf"\{{\{{\s*({'|'.join(names)})\s*\}}\}}", value, text)


_FIELD = re.compile(
    r"\{\{(?P<kept>[^{}]*)\}\}|(?<!\$)\{(?P<expression>[^{}]+)\}|\$(?P<name>[A-Za-z_]\w*)"
)
_FILLED_IN = (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.BinOp)


def expanded(line: str, namespace: Mapping[str, Any]) -> str:
    """Fill in `{expression}` and `$name` in a magic's line, as IPython does for its own magics;
    `{{` is a brace.

    Anything that is not a Python expression, such as JSON, and `$name` without such a variable
    stay: `${NAME}` is a variable of the environment, which the config's rules fill in. A UsageError
    if an expression cannot be evaluated.
    """

    def value(match: re.Match[str]) -> str:
        name, expression = match["name"], (match["expression"] or "").strip()
        if match["kept"] is not None:
            return f"{{{match['kept']}}}"
        if name:
            if name in namespace:
                return str(namespace[name])
            return match[0]
        try:
            parsed = ast.parse(expression, mode="eval")
        except (SyntaxError, ValueError):
            return match[0]
        if not isinstance(parsed.body, _FILLED_IN):
            return match[0]
        try:
            return str(eval(compile(parsed, "<%mcp>", "eval"), dict(namespace)))
        except Exception as error:
            reason = f"{type(error).__name__}: {shown(str(error), 200)}"
            hint = (
                "Write the value, or define it in a cell before. To keep the braces:"
                f" {{{{{expression}}}}}"
            )
            raise UsageError(
                f"{shown('{' + expression + '}')} cannot be filled in ({reason}).", hint=hint
            ) from None

    return _FIELD.sub(value, line)


def words_of(text: str) -> list[str]:
    """Split a line into words. Quotes keep a word together."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"Cannot read {shown(text)}: {error}.") from None


def parse_call(line: str) -> tuple[str, dict[str, Any]]:
    """Parse tool and arguments in `%mcp call TOOL {json}` or `%mcp call TOOL name=value …`.

    In the second form, a value is JSON if it can be read as such, otherwise text.
    """
    name, _, text = line.partition(" ")
    if not name:
        raise UsageError("Which tool?", hint='For example: %mcp call math:add {"a": 1, "b": 2}')
    if re.match(r"\s*[^\W\d]\w*=", text):
        from casual_mcp_nb.base.limits import typed_value

        name, values = parse_assignments("call", line, "tool", "math:add a=1 b=2")
        return name, {key: typed_value(value) for key, value in values.items()}
    try:
        arguments = json.loads(text) if text.strip() else {}
    except json.JSONDecodeError as error:
        raise UsageError(
            f"The arguments are not JSON: {error.msg} at character {error.colno}.",
            hint='Write them as {"a": 1, "b": 2}.',
        ) from None
    if not isinstance(arguments, dict):
        raise UsageError(
            "The arguments are not a JSON object.", hint='Write them as {"a": 1, "b": 2}.'
        )
    return name, arguments


def parse_assignments(
    command: str, line: str, kind: str, example: str
) -> tuple[str, dict[str, str]]:
    """Parse name and values in `%mcp prompt NAME argument=value …`.

    Quotes keep a value with spaces together.
    """
    name, *words = words_of(line) or [""]
    hint = f"For example: %mcp {command} {example}"
    if not name:
        raise UsageError(f"Which {kind}?", hint=hint)
    for word in words:
        if not re.match(r"[^=]+=", word):
            raise UsageError(
                f"{shown(word)} is not an argument with its value.",
                hint=f"Write name=value. {hint}",
            )
    return name, dict(word.split("=", 1) for word in words)


_MODEL_FIRST = re.compile(r"--model(?:=|\s+)(?P<model>[^\s=]\S*)(?:\s+|$)")
_MODEL_LAST = re.compile(r"\s+--model(?:=|\s+)(?P<model>[^\s=]\S*)$")


def split_model(line: str) -> tuple[str, str | None]:
    """Take `--model PROVIDER:MODEL` from a line's beginning or end.

    Elsewhere it belongs to a server's command.
    """
    line = line.strip()
    match = _MODEL_FIRST.match(line) or _MODEL_LAST.search(line)
    if match is None:
        return line, None
    return line[: match.start()] + line[match.end() :], match["model"]


COMPARE_OPTIONS = {
    "--discovery": "discovery",
    "--models": "models",
    "--toolsets": "tool_sets",
    "--strategies": "strategies",
    "--deliveries": "deliveries",
    "--repeats": "repeats",
    "--check": "check",
    "--max-runs": "max_runs",
}
"""Options for `%mcp compare`, each with its keyword argument for `session.experiments.compare`."""
DISCOVERY = {"on": True, "off": False, "auto": "auto"}
"""Values for `%mcp compare --discovery`."""
_VALUE = r"(?:=|\s+)(?P<value>\"[^\"]*\"|'[^']*'|[^\s\"'-][^\s\"']*)"
_OPTION_FIRST = re.compile(rf"(?P<name>--[\w-]+){_VALUE}(?:\s+|$)")
_OPTION_LAST = re.compile(rf"(?:^|\s+)(?P<name>--[\w-]+){_VALUE}$")


@dataclass(frozen=True)
class CassetteArgs:
    """A cassette command's words. An empty path if it names none."""

    path: str
    mode: CassetteMode | None = None
    pace: float | None = None


def _split_options(
    command: str, line: str, allowed: Collection[str]
) -> tuple[list[str], dict[str, str]]:
    """Split a line's rest into plain words, and option values: `--name value` or `--name=value`."""
    words, plain, values = words_of(line), list[str](), dict[str, str]()
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if not name.startswith("--"):
            plain.append(word)
        elif name not in allowed:
            raise UnknownNameError(f"option of %mcp {command}", name, allowed)
        elif equals or words:
            values[name] = value if equals else words.pop(0)
        else:
            raise UsageError(f"{name} needs a value.", hint=f"See %mcp help {command}.")
    return plain, values


def parse_cassette(command: str, line: str) -> CassetteArgs:
    """Read file and options for `%mcp cassette`, `replay` or `test`."""
    allowed = {"cassette": ("--mode", "--pace"), "replay": ("--pace",)}.get(command, ())
    files, values = _split_options(command, line, allowed)
    if len(files) > 1 or (not files and (values or command != "cassette")):
        text = f"%mcp {command} takes one file, but this line has {len(files)}."
        raise UsageError(text, hint=f"For example: %mcp {command} lesson.json")
    mode = values.get("--mode")
    if mode is not None and mode not in get_args(CassetteMode):
        raise UnknownNameError("cassette mode", mode, get_args(CassetteMode))
    try:
        pace = float(values["--pace"]) if "--pace" in values else None
    except ValueError:
        raise UsageError(
            f"--pace is a number, not {shown(values['--pace'])}.", hint="For example: --pace 0.5"
        ) from None
    return CassetteArgs(files[0] if files else "", cast("CassetteMode | None", mode), pace)


def parse_compare(line: str) -> tuple[str, dict[str, Any]]:
    """Parse `%mcp compare [--OPTION VALUE,VALUE …] MESSAGE`.

    The options are before or after the message.

    Returns the message, and keyword arguments for `session.experiments.compare`, which checks the
    names.
    """
    line, given = line.strip(), dict[str, Any]()
    while match := _OPTION_FIRST.match(line) or _OPTION_LAST.search(line):
        line = (line[: match.start()] + line[match.end() :]).strip()
        if match["name"] not in COMPARE_OPTIONS:
            raise UnknownNameError("option of %mcp compare", match["name"], COMPARE_OPTIONS)
        given[COMPARE_OPTIONS[match["name"]]] = _compared(
            match["name"], match["value"].strip("\"'")
        )
    if len(line) > 1 and line[0] == line[-1] and line[0] in "\"'":
        line = line[1:-1].strip()
    if not line:
        raise UsageError(
            "What is your message?",
            hint="For example: %mcp compare --discovery on,off What is 17 * 24?",
        )
    return line, given


def _compared(option: str, text: str) -> Any:
    if option in ("--repeats", "--max-runs"):
        if not re.fullmatch(r"[0-9]{1,6}", text):
            raise UsageError(f"{option} takes a number, not {shown(text)}.")
        return int(text)
    if option == "--check":
        return text
    names = [name.strip() for name in text.split(",") if name.strip()]
    if option != "--discovery":
        return [None if option == "--toolsets" and name == "all" else name for name in names]
    unknown = next((name for name in names if name not in DISCOVERY), None)
    if unknown is not None:
        raise UnknownNameError("value of --discovery", unknown, DISCOVERY)
    return [DISCOVERY[name] for name in names]


def is_config_file(text: str) -> bool:
    """Check whether a text is a config file's path: an existing file, or one that is named like a
    config. A server's script is none.
    """
    from casual_mcp_nb.config.quick import SCRIPTS

    try:
        words = shlex.split(text)
        path = Path(*words).expanduser()
        is_named_like_one = path.suffix in (".json", ".jsonc", ".toml") and "://" not in text
        is_other_file = path.is_file() and path.suffix not in SCRIPTS
        return len(words) == 1 and (is_named_like_one or is_other_file)
    except (OSError, ValueError, RuntimeError):
        return False


def parse_position(command: str, line: str) -> tuple[int | None, int | None]:
    """Parse turn and step for `%mcp step`, `request` and `diff`, both from 1: nothing, `STEP`, or
    `TURN.STEP`.
    """
    match = re.fullmatch(r"(?:(?P<turn>[0-9]{1,9})\.)?(?P<step>[0-9]{1,9})|", line)
    if match is None:
        raise UsageError(
            f"{shown(line)} is not a step number.",
            hint=f"Write %mcp {command} 2, or 1.2 for step 2 of turn 1.",
        )
    turn, step = match["turn"], match["step"]
    return int(turn) if turn else None, int(step) if step else None


@dataclass(frozen=True)
class ForkArgs:
    """A `%mcp fork` line: turn and step by number from 1, and options for
    `session.conversations.fork_at`.

    Without a turn it is the last one, without a step the whole turn.
    """

    turn: int | None = None
    step: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


WIRE_OPTIONS = {"--method": "method", "--text": "text"}
"""Options for `%mcp wire`, each with its keyword argument for `session.servers.wire`."""
METHODS = (
    "tools/*",
    "tools/call",
    "tools/list",
    "resources/*",
    "prompts/*",
    "elicitation/create",
    "sampling/createMessage",
    "notifications/*",
)
"""MCP methods that completion offers."""


def parse_wire(line: str) -> dict[str, str]:
    """Parse server and options in `%mcp wire` into keyword arguments for `session.servers.wire`."""
    servers, values = _split_options("wire", line, WIRE_OPTIONS)
    if len(servers) > 1:
        text = f"%mcp wire takes one server, but this line has {len(servers)}."
        raise UsageError(
            text, hint='For example: %mcp wire time --method tools/* --text "not found"'
        )
    options = {WIRE_OPTIONS[name]: value for name, value in values.items()}
    if servers:
        return {"server": servers[0], **options}
    return options


_FORK_OPTIONS = {
    "--result": "result",
    "--text": "text",
    "--model": "model",
    "--toolset": "tool_set",
}


def parse_fork(line: str) -> ForkArgs:
    """Parse position and options in `%mcp fork`."""
    hint = "For example: %mcp fork 2 for turn 2, or %mcp fork 2.1 --model gpt for its first step."
    positions, values = _split_options("fork", line, _FORK_OPTIONS)
    position = " ".join(positions)
    match = re.fullmatch(r"(?P<turn>[0-9]{1,9})(?:\.(?P<step>[0-9]{1,9}))?|", position)
    if match is None:
        raise UsageError(f"{shown(position)} is not a turn or a step.", hint=hint)
    turn, step = match["turn"], match["step"]
    if values and step is None:
        raise UsageError("Which step?", hint=hint)
    options = {_FORK_OPTIONS[name]: value for name, value in values.items()}
    return ForkArgs(int(turn) if turn else None, int(step) if step else None, options)


def one_word(command: str, line: str, kind: str, example: str = "") -> str:
    """Parse the single word that a command needs.

    The category and the example are for the error.
    """
    words = words_of(line)
    if len(words) != 1:
        text = f"Which {kind}?"
        if words:
            text = f"%mcp {command} takes only one {kind}, but this line has {len(words)}."
        raise UsageError(text, hint=f"For example: %mcp {command} {example}" if example else "")
    return words[0]
