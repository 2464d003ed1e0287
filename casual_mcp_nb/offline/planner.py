"""Decide on the next step: search for tools, call them, ask for missing values, or report.

It is stateless: everything it knows is in the messages and the offered tools. A need is handled by
a generator of calls, which runs from the beginning at each step, with the results so far. Tools are
ranked by words only, so a conversation runs the same everywhere.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from casual_mcp_nb.base.content import bare_result, says_failed
from casual_mcp_nb.base.tool import Catalog, ToolAnnotations, ToolName, ToolSpec
from casual_mcp_nb.conversation.event import (
    BROWSE_TOOLKIT,
    CALL_TOOL,
    FINDING,
    LOAD_TOOLS,
    READ_RESULT,
    READ_SKILL,
    RUN_CODE,
    UNLOAD_TOOLS,
)
from casual_mcp_nb.conversation.step import loaded_in, read_call, text_of
from casual_mcp_nb.discovery.browse import categories_in, lines_in, to_unload
from casual_mcp_nb.discovery.manifest import definitions_in, servers_in
from casual_mcp_nb.discovery.search_tools import ToolSearchIndex, manifest_in
from casual_mcp_nb.discovery.signatures import functions_in
from casual_mcp_nb.discovery.synthetic import discovered_in, instructions_in, skill_spec, skills_in
from casual_mcp_nb.offline.arguments import Filling, parameters_of
from casual_mcp_nb.offline.candidates import (
    CERTAIN,
    FITS,
    SURE,
    Candidate,
    candidate_for,
    candidates_for,
    nearest_to,
)
from casual_mcp_nb.offline.mentions import find_mentions
from casual_mcp_nb.offline.needs import Need, content_words, needs_of, spelled
from casual_mcp_nb.offline.replies import (
    ask_for,
    cannot,
    cut,
    parse_question,
    report_failure,
    report_result,
)

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.base.mcp import Skill

MAX_REQUEST = 4_000
_CLEARLY_BETTER = 0.1
_MAX_LOADED = 3


class NextCall(NamedTuple):
    """A call to make: the tool's wire name and its arguments."""

    name: str
    arguments: dict[str, Any]


class PastCall(NamedTuple):
    """A call that was made, and its result's text."""

    call: NextCall
    result: str

    @property
    def failed(self) -> bool:
        """Whether the result reports a failed call."""
        return says_failed(self.result)


Steps = Generator[NextCall, PastCall, str]
"""The calls for a need, each resumed with its result, and at the end the reply."""


def plan(
    messages: Sequence[ChatMessage], definitions: Sequence[Mapping[str, Any]]
) -> tuple[list[NextCall], str]:
    """Choose the next step's calls, which can be made at the same time, or if there are none, the
    reply.

    Tools that a text describes are called through the tool for that: `run_code` runs a program,
    here of one call each, and `call_tool` takes a name and arguments.
    """
    tools = {str(definition["name"]): _tool(definition) for definition in definitions}
    texts = [text_of(one.content) for one in messages if one.role == "tool" and one.name in FINDING]
    programs, bridge = tools.pop(RUN_CODE, None), tools.pop(CALL_TOOL, None)
    described: dict[str, ToolSpec] = {}
    if programs is not None:
        described = _functions(programs.description, texts, messages)
    elif bridge is not None:
        found = [_tool(each) for text in texts for each in definitions_in(text)]
        new = Catalog({one.wire_name: one for one in found if one.wire_name not in tools}.values())
        described = {one.wire_name: one for one in discovered_in(messages, new)}
    calls, reply = _Planner(messages, [*tools.values(), *described.values()]).next_step()
    for number, call in enumerate(calls):
        if call.name in described:
            calls[number] = NextCall(CALL_TOOL, call._asdict())
            if programs is not None:
                calls[number] = NextCall(RUN_CODE, {"code": _program(call)})
    return calls, reply


def _functions(
    description: str, texts: Sequence[str], messages: Sequence[ChatMessage]
) -> dict[str, ToolSpec]:
    """Find the functions that a program can call: described at the start, or found since."""
    functions = functions_in(description.partition("<functions>\n")[2])
    found: dict[str, dict[str, Any]] = {}
    for text in texts:
        found |= functions_in(text)
    by_marker = Catalog(replace(_tool(each), wire_name=name) for name, each in found.items())
    for tool in discovered_in(messages, by_marker):
        functions[tool.wire_name] = found[tool.wire_name]
    return {each["name"]: _tool(each) for each in functions.values()}


def _program(call: NextCall) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
    return f"{call.name}({arguments})"


def _call_in(code: object) -> NextCall | None:
    """Parse the call in a planner's program."""
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        tree = ast.parse(str(code), mode="eval").body
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and not tree.args:
            arguments = {str(each.arg): ast.literal_eval(each.value) for each in tree.keywords}
            return NextCall(tree.func.id, arguments)
    return None


def _tool(definition: Mapping[str, Any]) -> ToolSpec:
    wire_name = str(definition["name"])
    # A server's tool has the server in its name.
    owner = ToolName.split(wire_name)
    return ToolSpec(
        owner.server,
        owner.tool,
        str(definition.get("description") or ""),
        definition.get("parameters") or {},
        annotations=ToolAnnotations(read_only=getattr(definition, "read_only", None)),
        wire_name=wire_name,
    )


def _calls(messages: Sequence[ChatMessage]) -> list[PastCall]:
    results: dict[str, str] = {}
    made: list[Any] = []
    for message in messages:
        if message.role == "tool":
            results[message.tool_call_id] = text_of(message.content)
        elif message.role == "assistant":
            made += message.tool_calls or ()
    past: list[PastCall] = []
    for each in made:
        name, arguments, _ = read_call(each.function.name, each.function.arguments)
        call = NextCall(name, arguments if isinstance(arguments, dict) else {})
        if name == RUN_CODE:
            call = _call_in(call.arguments.get("code")) or call
        past.append(PastCall(call, bare_result(results.get(each.id, ""), name)))
    return past


class _Planner:
    def __init__(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> None:
        places = [index for index, message in enumerate(messages) if message.role == "user"]
        last = places[-1] if places else len(messages)
        said = [text_of(one.content) for one in messages[:last] if one.role == "assistant"]
        self.last_reply = next(filter(None, reversed(said)), "")
        self.request = "".join(text_of(message.content) for message in messages[last : last + 1])
        self.earlier_calls, self.calls = _calls(messages[:last]), _calls(messages[last:])
        own = {tool.wire_name: tool.description for tool in tools if not tool.server}
        manifests = {name: manifest_in(text) for name, text in own.items()}
        self.search = next((name for name, text in manifests.items() if text is not None), None)
        self.deferred = servers_in("\n".join(filter(None, manifests.values())))
        self.browses = LOAD_TOOLS in own
        self.deferred = self.deferred or categories_in(own.get(BROWSE_TOOLKIT, ""))
        self.skills = skills_in(own.get(READ_SKILL, ""))
        # The planner never reads the rest of a cut result: it reports the first part.
        synthetic = {self.search, READ_RESULT, READ_SKILL, BROWSE_TOOLKIT, LOAD_TOOLS, UNLOAD_TOOLS}
        self.index = ToolSearchIndex(
            tool for tool in tools if tool.server or tool.wire_name not in synthetic
        )
        self.loaded = {tool.wire_name: tool for tool in self.index.tools}

    def next_step(self) -> tuple[list[NextCall], str]:
        """Choose the calls for the needs, or the reply if there are none."""
        request = self.request[:MAX_REQUEST].strip()
        needs = self._answer(request) or needs_of(request)
        steps = [self._replayed(self._pursue(need)) for need in needs]
        calls = [step for step in steps if isinstance(step, NextCall)]
        if calls:
            # At most one load or unload in a step, and no unload next to a call that may use the
            # tool.
            changes = [call for call in calls if call.name in (LOAD_TOOLS, UNLOAD_TOOLS)]
            chosen = [
                call
                for place, call in enumerate(calls)
                if call not in changes and call not in calls[:place]
            ]
            if changes and (not chosen or changes[0].name == LOAD_TOOLS):
                chosen.append(changes[0])
            return chosen, ""
        replies = list(dict.fromkeys(map(str, steps))) or [self._cannot("")]
        if (left := len(self.request) - MAX_REQUEST) > 0:
            note = f"(The offline planner reads the first {MAX_REQUEST:,} characters of a message"
            replies.append(f"{note}, and {left:,} were left out.)")
        return [], "\n\n".join(replies)

    def _replayed(self, steps: Steps) -> NextCall | str:
        """Find the first call that was not made yet, or the reply."""
        past = list(self.calls)
        try:
            call = next(steps)
            while match := next((one for one in past if one.call == call), None):
                past.remove(match)
                call = steps.send(match)
        except StopIteration as end:
            return str(end.value)
        return call

    def _answer(self, request: str) -> list[Need]:
        """Complete the last request, if we asked for arguments and this gives only those.

        Anything else is a new request.
        """
        question = parse_question(self.last_reply)
        tools = [
            one for one in self.index.tools if question and str(one.tool_name) == question.tool
        ]
        if question is None or not tools or Need(request).asks:
            return []
        parameters = [
            one for one in parameters_of(tools[0].input_schema) if one.name in question.missing
        ]
        readings = [request]
        if len(parameters) == 1:
            readings.append(f'{parameters[0].name}: "{request}"')
        for text in readings:
            filling = Filling(text, find_mentions(text), parameters)
            words = content_words(text)
            if filling.typed == len(parameters) and all(
                filling.covers(one.start, one.end) for one in words
            ):
                return [Need(f"{question.need} {text}")]
        return []

    def _candidates(self, need: Need) -> list[Candidate]:
        used: dict[ToolSpec, Mapping[str, Any]] = {}
        for past in self.earlier_calls:
            if past.call.name in self.loaded and not past.failed:
                used = {self.loaded[past.call.name]: past.call.arguments}
        candidates = candidates_for(need, self.index, used)
        operation = spelled(need)
        if operation is None or any(one.confidence >= FITS for one in candidates):
            return candidates
        return candidates_for(operation, self.index, {})

    def _pursue(self, need: Need) -> Steps:
        if need.is_talk:
            return self._cannot("")
        candidates = self._candidates(need)
        fitting = [one for one in candidates if one.confidence >= FITS]
        complete = [one for one in fitting if not one.filling.missing]
        best: Candidate | None = None
        if complete and complete[0].rank > fitting[0].rank - _CLEARLY_BETTER:
            best = complete[0]
        # If a tool is certain and lacks an argument, the person is asked, because no other tool
        # would help.
        lacking = best is None and bool(fitting) and fitting[0].confidence >= CERTAIN
        names_found: list[str] | None = None
        if not lacking and (best is None or best.confidence < SURE):
            skill = _fitting_skill(need, self.skills, best)
            if skill is None:
                names_found, skills = yield from self._find(need)
                skill = _fitting_skill(need, skills, best)
            if skill is not None:
                name = f"{skill.server}:{skill.name}"
                past = yield NextCall(READ_SKILL, {"skill": name})
                answer = f"{cut(instructions_in(past.result))}\n\n(from the skill `{name}`)"
                return report_failure(name, past.result) if past.failed else answer
        if best is None:
            # It may have been called and unloaded since.
            for past in self.calls:
                if past.call.name in (names_found or ()) and not past.failed:
                    return report_result(past.call.name, past.result)
            if fitting:
                return ask_for(need.text, fitting[0])
            nearest = None if need.is_chat else nearest_to(need, candidates, self.index)
            return self._cannot(need.text, nearest)
        past = yield NextCall(best.tool.wire_name, best.filling.arguments)
        if past.failed and names_found is None and best.confidence < CERTAIN:
            # A search may find a better tool, if it is a sure match.
            names_found, _ = yield from self._find(need)
            for one in complete[1:]:
                if one.confidence >= SURE and one.tool.wire_name in names_found:
                    past = yield NextCall(one.tool.wire_name, one.filling.arguments)
                    break
        if past.failed:
            return report_failure(past.call.name, past.result)
        return report_result(past.call.name, past.result)

    def _find(
        self, need: Need
    ) -> Generator[NextCall, PastCall, tuple[list[str], tuple[Skill, ...]]]:
        """Find tools that are not loaded, by a search or by browsing and loading.

        Return their wire names, and skills.
        """
        if self.search is not None:
            past = yield NextCall(self.search, {"query": need.query})
            return loaded_in(past.result), skills_in(past.result)
        if not self.browses:
            return [], ()
        past = yield NextCall(BROWSE_TOOLKIT, {"query": need.query})
        # What was loaded in another way may have no definition here.
        lines, _ = lines_in(past.result)
        new = [line.name for line in lines if not (line.loaded and line.name in self.loaded)]
        names = new[:_MAX_LOADED]
        if names:
            past = yield NextCall(LOAD_TOOLS, {"names": names})
            if past.failed and (loaded := to_unload(past.result)):
                yield NextCall(UNLOAD_TOOLS, {"names": loaded})
                yield NextCall(LOAD_TOOLS, {"names": names[:1]})
        return names, ()

    def _cannot(self, need: str, nearest: Candidate | None = None) -> str:
        # The deferred count includes tools loaded since.
        servers = Counter(tool.server for tool in self.index.tools if tool.server)
        return cannot(need, servers | self.deferred, nearest)


def _fitting_skill(need: Need, skills: Sequence[Skill], best: Candidate | None) -> Skill | None:
    """Find the skill whose words cover most of a need, if that is enough, and more than the tool
    that fits best covers.
    """
    by_spec = {skill_spec(skill): skill for skill in skills}
    hits = ToolSearchIndex(by_spec).search(need.query, len(skills)) if skills else []
    likeness = {hit.tool: candidate_for(need, hit.tool, hit.explain()).likeness for hit in hits}
    most = max(likeness.values(), default=0.0)
    if most < FITS or (best is not None and most <= best.confidence):
        return None
    return next(by_spec[spec] for spec, each in likeness.items() if each == most)
