"""A conversation as a notebook that makes its calls again, without a model.

Nothing that a server or a model said becomes code: only names that are Python identifiers, and
arguments as literals.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pprint import pformat
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

from casual_mcp_nb.base.passed import handles_passed
from casual_mcp_nb.base.schema import SchemaReader
from casual_mcp_nb.base.secret import MASK
from casual_mcp_nb.base.tool import by_tool_name
from casual_mcp_nb.conversation.event import SYNTHETIC, UNKNOWN
from casual_mcp_nb.conversation.step import ToolCall, is_program
from casual_mcp_nb.discovery.signatures import identifier, unused
from casual_mcp_nb.display.render import escape, fenced, prose_markdown
from casual_mcp_nb.display.words import (
    call_code,
    clean,
    cut,
    first,
    literal,
    one_line,
    python_call,
)
from casual_mcp_nb.engine.passed_results import places_in
from casual_mcp_nb.errors import UsageError

if TYPE_CHECKING:
    from casual_mcp_nb.base.tool import Catalog, ToolName, ToolSpec
    from casual_mcp_nb.conversation.conversation import Conversation, SavedSession
    from casual_mcp_nb.conversation.turn import Turn
    from casual_mcp_nb.conversation.written_program import WrittenProgram

_MAX_REASON = 300
_MAX_OUTPUT = 10_000
_WIDTH = 96
_ABOUT = (
    "Run all cells to make the calls of this conversation again, without a model. Calls that change"
    " something change it again."
)
_WITHOUT_CONFIG = """\
from casual_mcp_nb import Session

# The config of this conversation's session was not saved. Name the file that has it.
session = Session.from_config("casual_mcp_config.json")
session.connect()"""
_PROGRAM = "**A program of the model.** It is not run. The next cell has its calls."
_OF_PROGRAM = "The calls that the program made"
_NO_CALLS = "The program made no calls."
_NO_OBJECT = "Not run: its arguments are not a JSON object."
_MOCKED = "Not run: a stub answered in place of the tool."
_OWN = "Not run: only a model needs this tool."
_PASSES = "Not run: it passes a large result that this notebook does not have."
_HAS_SECRET = "Not run: an argument has a secret, which is not saved."
_DESTRUCTIVE = "It may change or delete something."
_OUTPUT = {"output_type": "execute_result", "execution_count": None}


def notebook_of(
    conversation: Conversation,
    title: str,
    session: SavedSession | None,
    tools: Catalog,
    programs: Sequence[WrittenProgram] = (),
) -> str:
    """Write a conversation as a notebook, in the format 4.5.

    Args:
        conversation: The conversation, with secrets masked.
        title: The notebook's title. The person is asked about programs by this name.
        session: What opens the session, or None if that is not known.
        tools: The tools that are known. Their calls are written as typed functions.
        programs: The programs that models wrote for notebook cells meanwhile.
    """
    passed: set[str] = set()
    for turn in conversation:
        for call in turn.tool_calls:
            passed.update(handles_passed(call.arguments))
    writer = _Writer(by_tool_name(tools), session.lost if session else {}, passed)
    writer.markdown(f"# {escape(one_line(title))}", _ABOUT)
    writer.code(_opening(session, title))
    for number, turn in enumerate(conversation, 1):
        writer.turn(number, turn)
    for number, program in enumerate(programs, 1):
        writer.markdown(
            f"## Written cell {number}",
            prose_markdown(clean(program.task)),
            fenced(clean(program.code), "python"),
        )
    return writer.text()


def _opening(session: SavedSession | None, title: str) -> str:
    """Write the code that opens the session."""
    if session is None or "config" in session.lost:
        return _WITHOUT_CONFIG
    lines = ["from casual_mcp_nb import Session, load_config", ""]
    for name, reason in session.lost.items():
        lines.append(_comment(f"{one_line(name)} is not here. {one_line(reason)}"))
    added = {"servers": dict(session.added)}
    if session.config is None:
        recalled = [f"the notebook {one_line(title)}"]
        lines += [
            f"config = load_config({_pretty({**session.content, **added})})",
            "# You are asked about the programs in it, as about those in a config file.",
            python_call("config = config.recalled_from", recalled, {}),
        ]
    else:
        lines.append(f"config = load_config({_pretty(session.config)})")
        if session.added:
            lines.append(f"added = load_config({_pretty(added)})")
            lines.append(f"config = config.with_servers(added, found={session.found!r})")
    options = ", strict=True" if session.strict else ""
    lines += [f"session = Session.from_config(config{options})", "session.connect()"]
    return "\n".join(lines)


def _pretty(value: Any) -> str:
    return pformat(value, sort_dicts=False, width=_WIDTH)


class _Result(NamedTuple):
    """The variables in the notebook that have the result of a call, and the call itself."""

    variable: str
    call: str


class _Code:
    """Code in place of an argument's value."""

    def __init__(self, code: str) -> None:
        self._code = code

    def __repr__(self) -> str:
        return self._code


@dataclass
class _Writer:
    """Collects a notebook's cells.

    Args:
        tools: The tools that are known.
        lost: The servers that the notebook cannot open, with the reasons.
        passed: The handles of the results that calls pass.
    """

    tools: Mapping[ToolName, ToolSpec]
    lost: Mapping[str, str]
    passed: Collection[str]
    _offered: tuple[Mapping[str, Any], ...] = ()
    _results: dict[str, _Result] = field(default_factory=dict)
    _cells: list[dict[str, Any]] = field(default_factory=list)
    _variables: set[str] = field(default_factory=set)

    def text(self) -> str:
        """Write the notebook's file."""
        kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
        notebook = {
            "cells": self._cells,
            "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
            "nbformat": 4,
            "nbformat_minor": 5,
        }
        return json.dumps(notebook, ensure_ascii=False, indent=1) + "\n"

    def markdown(self, *parts: str) -> None:
        """Add a cell of paragraphs that are escaped."""
        self._add("markdown", "\n\n".join(filter(None, parts)))

    def code(self, source: str, result: str = "") -> None:
        """Add a cell of code, with the recorded result as its output."""
        outputs: list[dict[str, Any]] = []
        if result:
            data = {"text/plain": clean(cut(result, _MAX_OUTPUT))}
            outputs = [{**_OUTPUT, "data": data, "metadata": {}}]
        self._add("code", source, execution_count=None, outputs=outputs)

    def _add(self, kind: str, source: str, **fields: Any) -> None:
        id = f"cell-{len(self._cells) + 1}"
        self._cells.append(
            {"cell_type": kind, "id": id, "metadata": {}, "source": source, **fields}
        )

    def turn(self, number: int, turn: Turn) -> None:
        """Add a turn: what the person said, then the model's words and calls in their order."""
        self.markdown(f"## Turn {number}", prose_markdown(clean(turn.prompt)))
        for step in turn.steps:
            if step.text.strip():
                self.markdown("**Model**", prose_markdown(clean(step.text)))
            self._offered = (*step.request.tools, *step.request.found)
            for call in step.tool_calls:
                self._call(call)
        if turn.added and turn.answer:
            self.markdown("**Model**", prose_markdown(clean(turn.answer)))
        if turn.error:
            self.markdown(f"**The turn {turn.status}.** {escape(one_line(turn.error))}")

    def _call(self, call: ToolCall) -> None:
        if is_program(call.tool):
            self._program(call)
            return
        why_not = self._why_not(call)
        # Only a model's own calls pass results.
        if not why_not and not self._results.keys() >= set(handles_passed(call.arguments)):
            why_not = _PASSES
        if why_not:
            self.code("\n\n".join(self._sources(call, why_not)))
            return
        variable = self._variable(call, "result")
        # As the last line, the variable shows its value.
        self.code(f"{self._assignment(variable, self._filled(call))}\n{variable}", call.result)

    def _program(self, call: ToolCall) -> None:
        program = ""
        if isinstance(call.arguments, dict):
            program = str(call.arguments.get("code", ""))
        self.markdown(_PROGRAM, fenced(clean(program), "python"))
        heads = [_OF_PROGRAM if call.nested else _NO_CALLS]
        if call.status != "ok":
            heads.append(_ending(call))
        sources = ["\n".join(map(_comment, heads))]
        for nested in call.nested:
            sources += self._sources(nested, self._why_not(nested))
        self.code("\n\n".join(sources))

    def _filled(self, call: ToolCall) -> ToolCall:
        """Put the variables that have the results in the place of their handles."""
        schema: object = None
        tool = self.tools.get(call.tool)
        if tool is not None:
            schema = tool.input_schema
        for definition in self._offered:
            if tool is None and definition.get("name") == call.name:
                schema = definition.get("parameters")
        written: Any = call.arguments
        arguments, places = places_in(written, schema)
        for place in places:
            result, options = self._results[place.handle], []
            if place.path:
                options.append(literal(place.path))
            if place.as_text:
                options.append("as_text=True")
            code = result.variable
            if options:
                code = f"{result.call}.part({', '.join(options)})"
            place.container[place.key] = _Code(code)
        return replace(call, arguments=arguments)

    def _sources(self, call: ToolCall, why_not: str) -> Iterator[str]:
        """Yield the code of a call, or of the calls that it made if it is not run itself."""
        if why_not:
            yield _comment(f"{fill(why_not, _WIDTH)}\n{_written(call)}")
            for nested in call.nested:
                yield from self._sources(nested, self._why_not(nested))
        else:
            yield self._assignment(self._variable(call, "result"), call)

    def _assignment(self, variable: str, call: ToolCall) -> str:
        tool = self.tools.get(call.tool)
        line = f"{variable} = {_expression(call, tool)}"
        if call.large is not None and call.large.handle in self.passed:
            whole = self._variable(call, "call")
            self._results[call.large.handle] = _Result(variable, whole)
            line = f"{whole} = {code_of_call(call)}\n{variable} = {whole}.part()"
        if tool is not None and tool.annotations and tool.annotations.destructive:
            return f"{_comment(_DESTRUCTIVE)}\n{line}"
        return line

    def _variable(self, call: ToolCall, what: str) -> str:
        name = what
        if call.tool.tool.isascii():
            name = f"{identifier(call.tool.tool)}_{what}"
        name = unused(name, self._variables)
        self._variables.add(name)
        return name

    def _why_not(self, call: ToolCall) -> str:
        """Say why a call is not made again. Empty if it is."""
        if call.status != "ok":
            return _ending(call)
        if not isinstance(call.arguments, dict):
            return _NO_OBJECT
        if call.mocked:
            return _MOCKED
        if call.tool.server == SYNTHETIC:
            return _OWN
        if call.tool.server in self.lost:
            return f"Not run: {one_line(self.lost[call.tool.server])}"
        if MASK in str(call.arguments):
            return _HAS_SECRET
        return ""


def _expression(call: ToolCall, tool: ToolSpec | None) -> str:
    """Write a call's value: of the tool's function, if the tool is known and has a plain name."""
    arguments: Any = call.arguments
    if tool is not None and _is_plain(tool.server) and _is_plain(tool.name):
        schema = SchemaReader(tool.input_schema).resolved()
        declared = schema.properties.keys()
        is_complete = declared & schema.required <= arguments.keys()
        if is_complete and (not declared or arguments.keys() <= declared):
            return python_call(f"session.tools.functions.{tool.server}.{tool.name}", [], arguments)
    return f"{code_of_call(call)}.value"


def code_of_call(call: ToolCall) -> str:
    """Write a call as Python that makes it, see `call_code`.

    Raises:
        UsageError: Its arguments are not an object, so that no Python can make it.
    """
    if isinstance(call.arguments, str):
        raise UsageError(
            "The arguments of this call are not a JSON object, so no Python makes the same call."
        )
    if call.tool.server in (SYNTHETIC, UNKNOWN):
        return call_code(call.name, call.arguments)
    return call_code(call.tool, call.arguments)


def _is_plain(name: str) -> bool:
    """Check whether a name is its own Python identifier."""
    return name.isascii() and identifier(name) == name


def _written(call: ToolCall) -> str:
    """Write a call that is not run."""
    if isinstance(call.arguments, str):
        return f"{call.name}: {first(call.arguments, _MAX_REASON)}"
    return code_of_call(call)


def _ending(call: ToolCall) -> str:
    """Describe how a call ended that has no result, which is what its model read instead."""
    return first(call.result, _MAX_REASON) or f"Not run: its state was {call.status}."


def _comment(text: str) -> str:
    return "\n".join(f"# {line}".rstrip() for line in clean(text).split("\n"))
