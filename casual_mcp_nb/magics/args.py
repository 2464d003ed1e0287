"""Parse magic lines into typed values.

A line may end in a person's own text: a question, words to search for, a title. Nothing in this
text is read as an option. Options come before it. Quotes around the whole text are not part of it.
"""

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
    "--model": Flag("the model for this turn: a name in the config, or PROVIDER:MODEL", "NAME"),
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
_OUTPUT_FIRST = re.compile(r"-o\s+(?P<name>\S+)(?:\s+|$)")
_OUTPUT_LAST = re.compile(r"(?:^|\s+)-o\s+(?P<name>\S+)$")


@dataclass(frozen=True)
class MagicLine:
    """A `%mcp` line.

    Attributes:
        command: The name of its command.
        arguments: The text after the command.
        output: The variable in which to store the result, or None.
        quiet: Whether the line ends with a semicolon, so that the result is not shown.
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


class KnownCommand(Protocol):
    """What parsing a line needs to know about a command."""

    @property
    def topic(self) -> str:
        """The word with which `%mcp help` lists it."""

    @property
    def ends_in_text(self) -> bool:
        """Whether its line ends in a text in which nothing is an option."""


def parse_line(
    line: str, commands: Mapping[str, KnownCommand], same: Mapping[str, str] | None = None
) -> MagicLine:
    """Split a `%mcp` line.

    `-o NAME` may stand before the command, behind it, or at the end of the line. At the end it is
    part of the text if the command's line ends in one. A semicolon ends the line. `?` and `--help`,
    alone or after a command, are `help`.

    Args:
        line: What follows `%mcp`.
        commands: The commands by name.
        same: Other spellings of commands, each with the command's name.

    Raises:
        UnknownNameError: There is no such command.
        UsageError: The name after `-o` is not a variable name.
    """
    whole = line.strip()
    line = whole.removesuffix(";").rstrip()
    output, line = _without(_OUTPUT_FIRST.match(line), line)
    command, arguments = first_word(line)
    if not command:
        command = "status"
    elif command in _HELP:
        command = "help"
    elif arguments in _HELP:
        command, arguments = "help", command
    command = (same or {}).get(command, command)
    if command not in commands:
        raise UnknownNameError(
            "%mcp command", command, commands, hint=_meant(command, arguments, commands)
        )
    if output is None:
        output, arguments = _without(_OUTPUT_FIRST.match(arguments), arguments)
    if output is None and not commands[command].ends_in_text:
        output, arguments = _without(_OUTPUT_LAST.search(arguments), arguments)
    if output is not None:
        variable_name(output)
    return MagicLine(command, arguments, output, quiet=whole.endswith(";"))


def _without(match: re.Match[str] | None, line: str) -> tuple[str | None, str]:
    """Return the name that a match found, or None, and the line without the match."""
    if match is None:
        return None, line
    return match["name"], line[: match.start()] + line[match.end() :]


def first_word(line: str) -> tuple[str, str]:
    """Split a line at its first blank or tab, into its first word and the rest.

    Both are empty if there is none.
    """
    words = line.split(maxsplit=1)
    if len(words) < 2:
        return line.strip(), ""
    return words[0], words[1].rstrip()


def _meant(command: str, arguments: str, commands: Mapping[str, KnownCommand]) -> str:
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
    """Parse a `%%mcp` cell's options.

    Raises:
        UnknownNameError: There is no such option, or no such echo level.
        UsageError: A value is missing, not of its option's type, or too small.
    """
    parsed, unknown = _cell_parser().parse_known_args(words_of(line))
    if unknown:
        hint = ""
        if not unknown[0].startswith("-"):
            hint = "The question goes in the lines below %%mcp."
        raise UnknownNameError("%%mcp option", unknown[0], CELL_OPTIONS, hint=hint)
    options: dict[str, Any] = {}
    for name, (option, flag) in _TURN_OPTIONS.items():
        value = getattr(parsed, option)
        if value is None:
            continue
        if flag.least is not None and value < flag.least:
            raise UsageError(f"%%mcp: {name} must be {flag.least} or more.")
        options[option] = value
    if parsed.echo is not None and parsed.echo not in ECHO:
        raise UnknownNameError("echo level", parsed.echo, ECHO)
    for variable in parsed.variables:
        variable_name(variable)
    if parsed.output is not None:
        variable_name(parsed.output)
    return CellArgs(options, parsed.echo, tuple(parsed.variables), parsed.output, parsed.plan)


def _cell_parser() -> _MagicParser:
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
    return parser


def variable_name(text: str) -> None:
    """Check that a text is a valid variable name. A UsageError if it is not."""
    if not text.isidentifier() or keyword.iskeyword(text):
        raise UsageError(f"{shown(text)} is not a valid variable name.")


def fill_in(text: str, names: Iterable[str], namespace: Mapping[str, Any]) -> str:
    """Replace `{{ name }}` in a text with that variable, for these names only. Other braces stay.

    Values are inserted as they are: braces in them are not filled in.

    Raises:
        UnknownNameError: There is no such variable.
        UsageError: The text does not use one of the variables.
    """
    names = list(dict.fromkeys(names))
    for name in names:
        if name not in namespace:
            public = [variable for variable in namespace if not variable.startswith("_")]
            raise UnknownNameError("variable", name, public)
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
    """Fill in `{expression}` and `$name` in a magic's line, as IPython does for its own magics.

    `{{` is a brace. What is not a Python expression stays, such as JSON, and so does `$name` if
    there is no such variable. `${NAME}` stays too: it is a variable of the environment, which the
    rules of configs fill in.

    Raises:
        UsageError: An expression cannot be evaluated.
    """

    def value(match: re.Match[str]) -> str:
        if match["kept"] is not None:
            return f"{{{match['kept']}}}"
        if match["name"]:
            return str(namespace.get(match["name"], match[0]))
        text = match["expression"].strip()
        expression = _expression(text)
        if expression is None:
            return match[0]
        return _evaluated(text, expression, namespace)

    return _FIELD.sub(value, line)


def _expression(text: str) -> ast.Expression | None:
    """Parse a Python expression that can be filled in. None if the text is something else."""
    try:
        parsed = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError):
        return None
    if not isinstance(parsed.body, _FILLED_IN):
        return None
    return parsed


def _evaluated(text: str, expression: ast.Expression, namespace: Mapping[str, Any]) -> str:
    try:
        return str(eval(compile(expression, "<%mcp>", "eval"), dict(namespace)))
    except Exception as error:
        reason = f"{type(error).__name__}: {shown(str(error), 200)}"
        raise UsageError(
            f"{shown('{' + text + '}')} cannot be filled in ({reason}).",
            hint="Write the value, or define it in a cell before. To keep the braces:"
            f" {{{{{text}}}}}",
        ) from None


def without_quotes(text: str) -> str:
    """Take off the quotes around a whole text, as a shell does. Quotes within it stay."""
    text = text.strip()
    quote = text[:1]
    if len(text) > 1 and quote in ("'", '"') and text.find(quote, 1) == len(text) - 1:
        return text[1:-1].strip()
    return text


def words_of(text: str) -> list[str]:
    """Split a line into words. Quotes keep a word together.

    Raises:
        UsageError: A quotation has no end.
    """
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"Cannot read {shown(text)}: {error}.") from None


_ARGUMENTS = 'Write each with its name: a=1 b="two words", or {"a": 1, "b": "two words"}.'


def parse_call(line: str) -> tuple[str, dict[str, Any]]:
    """Parse tool and arguments in `%mcp call TOOL {json}` or `%mcp call TOOL name=value …`.

    In the second form, a value is JSON if it can be read as such, otherwise text.

    Raises:
        UsageError: There is no tool, or what follows it has neither form.
    """
    name, text = first_word(line)
    if not name:
        raise UsageError("Which tool?", hint='For example: %mcp call math:add {"a": 1, "b": 2}')
    if not text:
        return name, {}
    if "=" in text and text[0] not in "{[":
        from casual_mcp_nb.base.limits import typed_value

        name, values = parse_assignments("call", line, "tool", "math:add a=1 b=2")
        return name, {key: typed_value(value) for key, value in values.items()}
    try:
        arguments = json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(
            f"The arguments are not JSON: {error.msg} at character {error.colno}.",
            hint=_ARGUMENTS,
        ) from None
    if not isinstance(arguments, dict):
        raise UsageError("The arguments are not a JSON object.", hint=_ARGUMENTS)
    return name, arguments


def parse_assignments(
    command: str, line: str, kind: str, example: str
) -> tuple[str, dict[str, str]]:
    """Parse name and values in `%mcp prompt NAME argument=value …`.

    Quotes keep a value with spaces together. A JSON object or list needs none.

    Args:
        command: The command, for errors.
        line: What follows it.
        kind: What the name names, for errors.
        example: What could follow the command, for errors.

    Raises:
        UsageError: There is no name, a word is not an argument with its value, or a value is JSON
            with a mistake.
    """
    words: list[str] = []
    rest = line.strip(_BLANKS)
    while rest:
        word, rest = _word_or_json(rest)
        words.append(word)
    hint = f"For example: %mcp {command} {example}"
    if not words or not words[0]:
        raise UsageError(f"Which {kind}?", hint=hint)
    values: dict[str, str] = {}
    for word in words[1:]:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise UsageError(
                f"{shown(word)} is not an argument with its value.",
                hint=f'Write name=value, or name="several words". {hint}',
            )
        values[name] = value
    return words[0], values


_BLANKS = " \t\r\n"
_WORD = re.compile(r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|\\.|[^ \t\r\n"'\\])+""", re.DOTALL)
"""A word as `shlex` finds it."""
_OPENS_JSON = re.compile(r"""(?P<name>[^\s='"\\]+)=(?=[{\[])""")


def _word_or_json(text: str) -> tuple[str, str]:
    """Split a text into its first word and the rest.

    `name=value` is a word as it is written if its value is a JSON object or list: its quotes and
    spaces belong to the value.
    """
    opening = _OPENS_JSON.match(text)
    if opening is not None:
        try:
            _, end = json.JSONDecoder().raw_decode(text, opening.end())
        except (ValueError, RecursionError):
            end = 0
        if end and text[end : end + 1] in ("", *_BLANKS):
            return text[:end], text[end:].lstrip(_BLANKS)
        if '"' in first_word(text)[0]:
            name = opening["name"]
            raise UsageError(
                f"The value of {shown(name)} is not valid JSON.",
                hint=f"If it is a text, put it in single quotes: {name}='…'",
            )
    match = _WORD.match(text)
    if match is None:
        # A quotation without an end: this is the error.
        return words_of(text)[0], ""
    return words_of(match[0])[0], text[match.end() :].lstrip(_BLANKS)


_OF_ENDS = r"--(?:model|name)(?:=|\s+)[^\s='\"][^\s'\"]*|--trust"
_FIRST = re.compile(rf"(?P<option>{_OF_ENDS})(?:\s+|$)")
_LAST = re.compile(rf"\s+(?P<option>{_OF_ENDS})$")


def split_ends(line: str, allowed: Collection[str]) -> tuple[str, dict[str, str]]:
    """Take options from a line's beginning and end.

    Elsewhere they belong to a server's command. One that ends in such an option itself is put in
    quotes.

    Args:
        line: What follows the command.
        allowed: Those of `--model`, `--name` and `--trust` that it takes.

    Returns:
        The rest of the line, and the value of each option, empty for `--trust`.
    """
    line = line.strip()
    options: dict[str, str] = {}
    while match := _FIRST.match(line) or _LAST.search(line):
        name, *value = re.split(r"[=\s]+", match["option"], maxsplit=1)
        if name not in allowed or name in options:
            break
        options[name] = "".join(value)
        line = line[: match.start()] + line[match.end() :]
    return line, options


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
_SETTINGS = ("discovery", "models", "tool_sets", "strategies", "deliveries")
"""Those that make set-ups differ."""
DISCOVERY = {"on": True, "off": False, "auto": "auto"}
"""Values for `%mcp compare --discovery`."""
_VALUE = r"(?:=|\s+)(?P<value>\"[^\"]*\"|'[^']*'|[^\s\"'-][^\s\"']*)"
_OPTION = re.compile(rf"(?P<name>--[\w-]+){_VALUE}(?:\s+|$)")


@dataclass(frozen=True)
class CassetteArgs:
    """What follows a command about cassettes.

    Attributes:
        path: The file, or an empty string if none is named.
        mode: When to record, or None for the default.
        pace: The factor for the time between recorded events, or None for the default.
    """

    path: str
    mode: CassetteMode | None = None
    pace: float | None = None


def _split_options(
    command: str, line: str, allowed: Collection[str]
) -> tuple[list[str], dict[str, str]]:
    """Split what follows a command into plain words, and the values of options.

    An option is `--name value` or `--name=value`.
    """
    words = words_of(line)
    plain: list[str] = []
    values: dict[str, str] = {}
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if not name.startswith("--"):
            plain.append(word)
            continue
        if name not in allowed:
            raise UnknownNameError(f"option of %mcp {command}", name, allowed)
        if not equals:
            if not words:
                raise UsageError(f"{name} needs a value.", hint=f"See %mcp help {command}.")
            value = words.pop(0)
        values[name] = value
    return plain, values


_CASSETTE_OPTIONS = {"cassette": ("--mode", "--pace"), "replay": ("--pace",), "test": ()}


def parse_cassette(command: str, line: str) -> CassetteArgs:
    """Parse file and options for `%mcp cassette`, `replay` or `test`.

    Raises:
        UnknownNameError: The command has no such option, or there is no such mode.
        UsageError: There is no file where one is needed, or more than one, or the pace is not a
            number.
    """
    files, values = _split_options(command, line, _CASSETTE_OPTIONS[command])
    may_lack_a_file = command == "cassette" and not values
    if len(files) > 1 or (not files and not may_lack_a_file):
        text = f"%mcp {command} takes one file, but this line has {len(files)}."
        raise UsageError(text, hint=f"For example: %mcp {command} lesson.json")
    mode = values.get("--mode")
    if mode is not None and mode not in get_args(CassetteMode):
        raise UnknownNameError("cassette mode", mode, get_args(CassetteMode))
    pace = None
    if "--pace" in values:
        try:
            pace = float(values["--pace"])
        except ValueError:
            raise UsageError(
                f"--pace is a number, not {shown(values['--pace'])}.",
                hint="For example: --pace 0.5",
            ) from None
    return CassetteArgs("".join(files), cast("CassetteMode | None", mode), pace)


def parse_compare(line: str) -> tuple[str, dict[str, Any]]:
    """Parse `%mcp compare [--OPTION VALUE,VALUE …] MESSAGE`.

    The first word that is not an option or its value begins the message. The message may be in
    quotes, which is necessary if it begins with two hyphens.

    Without an option that makes set-ups differ, discovery on is compared with every tool loaded.

    Returns the message, and keyword arguments for `session.experiments.compare`, which checks the
    names.

    Raises:
        UnknownNameError: There is no such option.
        UsageError: There is no message, or an option's value cannot be read.
    """
    message = line.strip()
    given: dict[str, Any] = {}
    while match := _OPTION.match(message):
        option = match["name"]
        if option not in COMPARE_OPTIONS:
            raise UnknownNameError("option of %mcp compare", option, COMPARE_OPTIONS)
        given[COMPARE_OPTIONS[option]] = _compared(option, match["value"].strip("\"'"))
        message = message[match.end() :]
    message = without_quotes(message)
    if not message:
        raise UsageError(
            "What is your message?",
            hint="For example: %mcp compare --discovery on,off What is 17 * 24?",
        )
    if not any(given.get(setting) for setting in _SETTINGS):
        given["discovery"] = [True, False]
    return message, given


def _compared(option: str, text: str) -> Any:
    if option in ("--repeats", "--max-runs"):
        if not re.fullmatch(r"[0-9]{1,6}", text):
            raise UsageError(f"{option} takes a number, not {shown(text)}.")
        return int(text)
    if option == "--check":
        return text
    values: list[Any] = []
    for part in text.split(","):
        name = part.strip()
        if option == "--discovery" and name and name not in DISCOVERY:
            raise UnknownNameError("value of --discovery", name, DISCOVERY)
        if option == "--discovery" and name:
            values.append(DISCOVERY[name])
        elif option == "--toolsets" and name == "all":
            values.append(None)
        elif name:
            values.append(name)
    return values


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
    """Parse `STEP` or `TURN.STEP` for `%mcp step`, `request` and `diff`. Both count from 1.

    Returns turn and step, each None where the line has none.

    Raises:
        UsageError: The line is something else.
    """
    match = re.fullmatch(r"(?:(?P<turn>[0-9]{1,9})\.)?(?P<step>[0-9]{1,9})|", line)
    if match is None:
        raise UsageError(
            f"{shown(line)} is not a step number.",
            hint=f"Write %mcp {command} 2, or 1.2 for step 2 of turn 1.",
        )
    return _number(match["turn"]), _number(match["step"])


def _number(digits: str | None) -> int | None:
    if not digits:
        return None
    return int(digits)


@dataclass(frozen=True)
class ForkArgs:
    """What follows `%mcp fork`.

    Attributes:
        turn: The turn's number from 1, or None for the last one.
        step: The step's number from 1, or None for the whole turn.
        options: Keyword arguments for `session.conversations.fork_at`.
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
    """Parse server and options in `%mcp wire` into keyword arguments for `session.servers.wire`.

    Raises:
        UnknownNameError: There is no such option.
        UsageError: There is more than one server, or an option has no value.
    """
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
    """Parse position and options in `%mcp fork`.

    Raises:
        UnknownNameError: There is no such option.
        UsageError: The position is not one, or there are options without a step.
    """
    hint = "For example: %mcp fork 2 for turn 2, or %mcp fork 2.1 --model gpt for its first step."
    positions, values = _split_options("fork", line, _FORK_OPTIONS)
    position = " ".join(positions)
    match = re.fullmatch(r"(?P<turn>[0-9]{1,9})(?:\.(?P<step>[0-9]{1,9}))?|", position)
    if match is None:
        raise UsageError(f"{shown(position)} is not a turn or a step.", hint=hint)
    step = _number(match["step"])
    if values and step is None:
        raise UsageError("Which step?", hint=hint)
    options = {_FORK_OPTIONS[name]: value for name, value in values.items()}
    return ForkArgs(_number(match["turn"]), step, options)


def one_word(command: str, line: str, kind: str, example: str = "") -> str:
    """Parse the single word that a command needs.

    Args:
        command: The command, for errors.
        line: What follows it.
        kind: What the word names, for errors.
        example: A word that could stand there, for errors.

    Raises:
        UsageError: There is no word, or more than one.
    """
    words = words_of(line)
    if len(words) == 1:
        return words[0]
    text = f"Which {kind}?"
    if words:
        text = f"%mcp {command} takes only one {kind}, but this line has {len(words)}."
    hint = ""
    if example:
        hint = f"For example: %mcp {command} {example}"
    raise UsageError(text, hint=hint)
