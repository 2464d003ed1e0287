"""Dispatch one tool call: check that it is offered, valid and approved, run it, and return the
outcome.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from casual_mcp_nb.base.arguments import parse_arguments, problem_of
from casual_mcp_nb.base.arguments_by_schema import problems, put_right
from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.content import ContentPart, OnProgress, ToolResult
from casual_mcp_nb.base.passed import FilledArguments, as_written
from casual_mcp_nb.base.tool import Permission, ToolSpec, servers_of
from casual_mcp_nb.cassettes.tape import NO_TAPE, Tape
from casual_mcp_nb.conversation.event import (
    BROWSE_TOOLKIT,
    CALL_TOOL,
    FINDING,
    READ_RESULT,
    SEARCH_TOOLS,
    UNKNOWN,
    CallStatus,
    Notice,
)
from casual_mcp_nb.conversation.past_questions import PastQuestion
from casual_mcp_nb.conversation.step import NamedCall, read_call
from casual_mcp_nb.discovery.search_tools import query_in
from casual_mcp_nb.discovery.synthetic import ReadSkillTool, contents_text
from casual_mcp_nb.engine.answers import clean_name
from casual_mcp_nb.engine.consent import Consent
from casual_mcp_nb.engine.conversation_state import no_questions
from casual_mcp_nb.engine.instructions import first_instructions
from casual_mcp_nb.engine.loose_arguments import Reduced, explained
from casual_mcp_nb.engine.offered_tools import OfferedTools
from casual_mcp_nb.engine.outcomes import CallOutcome
from casual_mcp_nb.engine.passed_results import CannotPass, ResultPasser
from casual_mcp_nb.engine.programs import CodeTool, Program, ProgramStart, program_in
from casual_mcp_nb.engine.results import result_text_async
from casual_mcp_nb.engine.small_models import SmallModelAid
from casual_mcp_nb.engine.tool_view import GuardedTool, mismatch
from casual_mcp_nb.engine.tools import changed_skill_notice
from casual_mcp_nb.engine.unavailable import why_unavailable
from casual_mcp_nb.errors import ClosedError, ServerError, ToolTimeoutError, UsageError, shown
from casual_mcp_nb.isolation.worker import Worker
from casual_mcp_nb.own_tools.context import SCOPE
from casual_mcp_nb.own_tools.toolbox import NOTEBOOK
from casual_mcp_nb.servers.tasks import OnTask

if TYPE_CHECKING:
    from casual_llm.messages import AssistantToolCall

    from casual_mcp_nb.own_tools.toolbox import Mocks
    from casual_mcp_nb.servers.server_manager import ServerManager


class CallListener(NamedTuple):
    """A listener to a call's events.

    Args:
        on_progress: Called with progress, total and message.
        on_approval: Called with True when the person is asked, and with False when that has ended.
        on_permission: Called with the decision whether the call may run.
        on_task: Called with the task that the call became, if that may continue after the call, see
            `OnTask`.
    """

    on_progress: OnProgress
    on_approval: Callable[[bool], None]
    on_permission: Callable[[Permission], None]
    on_task: OnTask | None = None


@dataclass(eq=False)
class Dispatcher:
    """Runs one turn's calls.

    Args:
        offered: The tools that calls can mean.
        worker: The process that checks arguments before a call, or None to leave that to the
            servers.
        tape: The cassette, which also has stub answers.
        aid: What the model gets if it is a small one.
        passer: Fills in the results that calls pass, or None where no model makes the calls.
        past_questions: Returns the questions that searches learn from.
    """

    offered: OfferedTools
    caller: ServerManager
    consent: Consent
    meta: Mapping[str, Any] | None = None
    mocks: Mocks | None = None
    context: Mapping[str, Any] = field(default_factory=dict, repr=False)
    on_notice: Callable[[Notice], None] = ignore
    worker: Worker | None = None
    tape: Tape = NO_TAPE
    aid: SmallModelAid = field(default_factory=SmallModelAid)
    passer: ResultPasser | None = None
    past_questions: Callable[[], Awaitable[Sequence[PastQuestion]]] = no_questions
    _told: set[str] = field(default_factory=set)

    def read(self, call: AssistantToolCall) -> NamedCall:
        """Parse the call that a model meant.

        A call through `call_tool` counts as one to the tool named in it, even if only earlier steps
        offered `call_tool`.
        """
        written = call.function.name
        if (
            written == CALL_TOOL
            and not self.offered.bridges
            and self.offered.find(CALL_TOOL) is not None
        ):
            # A server's tool has this name.
            return NamedCall(written, parse_arguments(call.function.arguments))
        name, arguments, bridged = read_call(written, call.function.arguments)
        name = clean_name(name, self.offered.wire_name)
        is_search = name in self.offered.synthetic and name in (SEARCH_TOOLS, BROWSE_TOOLKIT)
        if is_search and isinstance(arguments, str) and arguments.lstrip()[:1] not in ("{", "["):
            # Some models write only what they look for, without the parameter's name.
            arguments = {"query": bare_text(arguments)}
        return NamedCall(name, arguments, bridged)

    async def unknown(self, calls: Sequence[AssistantToolCall]) -> set[str]:
        """Find the calls, by id, that name no tool, even after servers have listed their tools
        again.
        """
        if self._unknown(calls):
            await self.offered.refresh()
        return self._unknown(calls)

    def _unknown(self, calls: Sequence[AssistantToolCall]) -> set[str]:
        unknown = set()
        for call in calls:
            if self.offered.resolve(self.read(call).name).server == UNKNOWN:
                unknown.add(call.id)
        return unknown

    async def dispatch(
        self,
        name: str,
        arguments: dict[str, Any] | str,
        listener: CallListener,
        bridged: bool = False,
        late: bool = False,
    ) -> CallOutcome:
        """Run one call of a model or a host. A failure becomes an outcome with a text for the model.

        Only two things raise: a cancellation, and a cassette in which the call is missing, since
        that ends the turn.

        Args:
            name: The tool's name as it was written.
            arguments: The arguments, or the model's text where that is not a JSON object.
            listener: Gets the call's events.
            bridged: Whether it came through `call_tool`.
            late: Whether the tool did not exist when the answer's other calls began.
        """
        if isinstance(arguments, str):
            return CallOutcome(
                "error",
                f"Error: the arguments of {shown(name)} {problem_of(arguments)}:"
                f" {shown(arguments)}.",
            )
        if bridged and name in self.offered.synthetic and name != READ_RESULT:
            return CallOutcome(
                "error",
                f"Error: {shown(name)} is not called through {CALL_TOOL}. Call it by its name.",
            )
        if name in FINDING:
            # Tools and servers may have appeared while the model was writing its answer.
            await self.offered.refresh()
        if name in self.offered.synthetic:
            listener.on_permission(Permission("built-in"))
            return await self._run_synthetic(name, arguments)
        tool = self.offered.find(name)
        if tool is None:
            # An earlier call of the same response may have added the tool.
            await self.offered.refresh()
            tool = self.offered.find(name)
        arguments = self._put_right(name, arguments)
        direct = self._direct(name) if tool is None else None
        meant = tool or direct
        if meant is None:
            return await self._unavailable(name)
        if late and tool is not None:
            return CallOutcome("error", added_meanwhile(tool.wire_name))
        if self.passer is not None:
            try:
                arguments = await self.passer.fill(meant.input_schema, arguments)
            except CannotPass as error:
                return CallOutcome("error", f"Error: {error}.")
        if direct is not None:
            return await self._call_deferred(direct, arguments, listener)
        return await self._call_offered(meant, arguments, listener, bridged)

    async def _call_offered(
        self, tool: ToolSpec, arguments: dict[str, Any], listener: CallListener, bridged: bool
    ) -> CallOutcome:
        """Call a tool that the model has. The parameters are those of `dispatch`."""
        reduced = await self._reduced(tool, arguments)
        if reduced is not None:
            return await self._call(tool, reduced.arguments, listener, reduced)
        filled = isinstance(arguments, FilledArguments)
        if filled or bridged or self.offered.is_bridged(tool):
            # Neither a provider nor the model has seen these values beside the schema.
            wrong = await self._problems(tool, arguments)
            if wrong:
                return CallOutcome("error", mismatch(tool, as_written(arguments), wrong))
        return await self._call(tool, arguments, listener)

    async def _call_deferred(
        self, tool: ToolSpec, arguments: dict[str, Any], listener: CallListener
    ) -> CallOutcome:
        """Load a deferred tool that was called, and call it if the arguments fit.

        The model has not seen its schema.
        """
        wrong: Sequence[str] | None = ()
        reduced = await self._reduced(tool, arguments)
        if reduced is not None:
            arguments = reduced.arguments
        else:
            wrong = await self._problems(tool, arguments)
        instructions = ""
        if self.aid.reads_instructions:
            instructions = self._first_instructions([tool])
        self.offered.load_directly(tool)
        unchecked = wrong is None and not isinstance(arguments, FilledArguments)
        if unchecked or wrong:
            text = mismatch(tool, as_written(arguments), wrong or ())
            return CallOutcome("error", text + instructions)
        outcome = await self._call(tool, arguments, listener, reduced)
        return outcome._replace(note=outcome.note + instructions)

    async def dispatch_nested(
        self, tool: ToolSpec, arguments: dict[str, Any], listener: CallListener
    ) -> CallOutcome:
        """Run one call of a notebook function or a program, as `dispatch` does.

        It can call tools that the model does not have.
        """
        if tool.tool_name in self.offered.view.blocked or tool.restriction == "task only":
            return await self._unavailable(tool.wire_name)
        return await self._call(tool, arguments, listener)

    async def _unavailable(self, name: str) -> CallOutcome:
        text = await why_unavailable(name, self.offered, self._calls_directly)
        return CallOutcome("error", text)

    async def _call(
        self,
        tool: ToolSpec,
        arguments: dict[str, Any],
        listener: CallListener,
        reduced: Reduced | None = None,
    ) -> CallOutcome:
        """Call a tool, if the person permits it.

        Args:
            tool: The tool, which is known to be available.
            arguments: What is sent.
            listener: Gets the call's events.
            reduced: How these arguments were made from those of a small model, if they were.
        """
        self.offered.used.add(tool.tool_name)
        if self.mocks is not None and (stub := self.mocks.stub_for(tool)):
            # Nothing is run, so nobody is asked.
            listener.on_permission(Permission("mock", definition=tool.digest))
            mocked = await mocked_result(self.mocks, stub[0], tool, arguments, self.tape)
            return await _outcome(mocked)
        permission = await self.consent.permission(
            tool, arguments, listener.on_approval, self.on_notice
        )
        listener.on_permission(permission)
        if not permission.allowed:
            reason = f" {permission.reason}" if permission.reason else ""
            return CallOutcome(
                "denied", f"Error: this call was not approved, so it was not run.{reason}"
            )
        note = ""
        if reduced is not None:
            if not reduced.may_run(tool, permission):
                return CallOutcome("error", reduced.refusal(tool))
            self.on_notice(Notice(reduced.notice(tool), tool.server))
            note = reduced.note(tool)
        try:
            result = await self.caller.call(
                tool,
                arguments,
                on_progress=listener.on_progress,
                meta=self.meta,
                on_task=listener.on_task,
            )
        except ToolTimeoutError as error:
            return CallOutcome("timeout", f"Error: {error}")
        except (ServerError, ClosedError) as error:
            # Each server has a separate connection: the others' calls go on.
            return CallOutcome("error", f"Error: {error}")
        if result.is_error and self.aid.explains_failures:
            note += await self._explanation(tool, arguments)
        return await _outcome(result, note)

    def _put_right(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Put arguments right where the tool's schema leaves no doubt, and tell the person."""
        schema = None if name in self.offered.synthetic else self.offered.schema_of(name)
        if schema is None:
            return arguments
        right, changes = put_right(schema, arguments)
        if not changes:
            return arguments
        tool = self.offered.resolve(name)
        if self.tape.was_called(tool.server, tool.tool, arguments):
            return arguments
        text = (
            f"The arguments of {shown(tool.tool)} were put right by its schema:"
            f" {'; '.join(changes)}."
        )
        self.on_notice(Notice(text, tool.server))
        return right

    async def _reduced(self, tool: ToolSpec, arguments: dict[str, Any]) -> Reduced | None:
        """Leave out arguments that a tool does not have, or move values to where they fit.

        None if that is not necessary, or if the result does not fit the schema either.
        """
        if isinstance(arguments, FilledArguments):
            return None
        reduced = self.aid.reduced(tool, arguments)
        if reduced is None or self.worker is None:
            return None
        if tool.server == NOTEBOOK and not reduced.says_nothing:
            # It may be an injected parameter. The toolbox explains that it is not the model's.
            return None
        wrong = await self._problems(tool, reduced.arguments)
        if wrong is None or wrong:
            return None
        return reduced

    async def _problems(self, tool: ToolSpec, arguments: dict[str, Any]) -> Sequence[str] | None:
        """List the problems with arguments. None if the check failed, empty if nothing can check."""
        if self.worker is None:
            return ()
        return await asyncio.to_thread(problems, tool.input_schema, arguments, self.worker)

    async def _explanation(self, tool: ToolSpec, arguments: dict[str, Any]) -> str:
        """Explain why the arguments of a call that failed do not fit, or return an empty text if
        they do.
        """
        wrong = await self._problems(tool, arguments)
        return explained(tool, as_written(arguments), wrong) if wrong else ""

    async def _run_synthetic(self, name: str, arguments: dict[str, Any]) -> CallOutcome:
        """Run a tool that no server has."""
        tool = self.offered.synthetic[name]
        if isinstance(tool, CodeTool):
            return await self._run_program(arguments)
        if isinstance(tool, ReadSkillTool):
            return await self._read_skill(tool, arguments)
        if name in (SEARCH_TOOLS, BROWSE_TOOLKIT) and (query := query_in(arguments)):
            await self._prepare(query)
            # Servers may have changed their tools meanwhile.
            tool = self.offered.synthetic[name]
        if isinstance(tool, GuardedTool):
            spec = tool.custom.spec
            wrong = await self._problems(spec, arguments)
            if wrong:
                return CallOutcome("error", mismatch(spec, arguments, wrong))
        answer = await tool.execute(arguments)
        content = answer.content + self._first_instructions(answer.newly_loaded_tools)
        status: CallStatus = "error" if answer.is_error else "ok"
        return CallOutcome(status, content, synthetic=answer)

    def _first_instructions(self, tools: Sequence[ToolSpec]) -> str:
        """Format the instructions of the servers whose first tools are loaded now, each once."""
        if not tools:
            return ""
        told = self._told.union(
            tool.server for tool in (*self.offered.view.loaded, *self.offered.discovered.values())
        )
        self._told.update(servers_of(tools))
        return first_instructions(tools, told, self.offered.view, self.caller)

    def _direct(self, name: str) -> ToolSpec | None:
        """Find the deferred tool that a name means, if tools may be called before a search."""
        return self.offered.find_deferred(name) if self._calls_directly else None

    @property
    def _calls_directly(self) -> bool:
        return self.aid.calls_directly or self.offered.view.selection.direct_calls

    async def _read_skill(self, reader: ReadSkillTool, arguments: dict[str, Any]) -> CallOutcome:
        """Read a file of a skill. The server's connection checks its digest."""
        try:
            skill, path = reader.find(arguments)
            resources = self.caller.resources_of(skill.server)
            known = skill.name in resources.changed_skills
            contents = await resources.read_skill(skill, path)
        except (ServerError, UsageError) as error:
            return CallOutcome("error", f"Error: {error}")
        config = self.consent.config_of(skill.server)
        pinned = self.consent.strict or (config is not None and config.pin_tools)
        blocked = contents.changed and pinned
        if contents.changed and not known:
            self.on_notice(changed_skill_notice(skill.server, skill.name, blocked=blocked))
        if blocked:
            problem = "its server changed it, and the change was not accepted yet"
            return CallOutcome("error", f"Error: Skill {shown(skill.name)} is blocked: {problem}.")
        text = contents_text(contents)
        return CallOutcome("ok", text, ToolResult((ContentPart("text", text),)), skill=contents)

    async def _run_program(self, arguments: dict[str, Any]) -> CallOutcome:
        """Run a program of the model. Its calls are nested in this one."""
        try:
            code = program_in(arguments)
        except ValueError as error:
            return CallOutcome("error", f"Error: {error}")
        scope = SCOPE.get()
        assert scope is not None
        start = ProgramStart()
        recorded = self.tape.program_start(code)
        if recorded is not None:
            start = ProgramStart.of(recorded)
        self.tape.record_program_start(code, start.plain())

        async def check(tool: ToolSpec, values: dict[str, Any]) -> Sequence[str]:
            return await self._problems(tool, values) or ()

        def call(tool: ToolSpec, values: dict[str, Any]) -> Awaitable[Any]:
            return scope.make_call(tool.wire_name, values)

        program = Program(code, lambda: self.offered.view.functions, call, check, start)
        end = await program.run()
        return CallOutcome("error" if end.failed else "ok", end.text, end.result)

    async def _prepare(self, query: str) -> None:
        """Get ready to search for a query.

        A cassette has the tools nearest in meaning, so a replay embeds nothing.
        """
        recorded = self.tape.nearest(query)
        if recorded is not None:
            index = await self.offered.view.searchable()
            index.recall(query, recorded)
            return
        past = self.offered.past_questions = await self.past_questions()
        index = await self.offered.view.searchable(query=query, past=past)
        meaning = self.offered.view.meaning
        problem = meaning.new_problem() if meaning is not None else ""
        if problem:
            self.on_notice(Notice(problem))
        self.tape.record_nearest(query, index.nearest_in_meaning(query))


async def _outcome(result: ToolResult, note: str = "") -> CallOutcome:
    """Build the outcome of a call that has a result."""
    status: CallStatus = "error" if result.is_error else "ok"
    return CallOutcome(status, await result_text_async(result), result, note=note)


def bare_text(arguments: str) -> str:
    """Read arguments that are only a text, with or without JSON's quotes."""
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        value = arguments
    return value if isinstance(value, str) else arguments


def added_meanwhile(name: str) -> str:
    """Format the error for a model that called a tool before it could see its definition."""
    return (
        f"Error: Tool {shown(name)} was added while the calls of this answer ran, so it was not"
        " called: you have not seen its definition yet. Read it now, and make the call again."
    )


async def mocked_result(
    mocks: Mocks,
    stub: Any,
    tool: ToolSpec,
    arguments: Mapping[str, Any],
    tape: Tape,
) -> ToolResult:
    """Have a stub answer a call. A replay without the stub gives the same answer."""
    result = await mocks.answer(stub, tool, arguments)
    tape.stub_answered(tool.server, tool.name, arguments, result)
    return result
