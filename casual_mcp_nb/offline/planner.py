"""Decide on the next step: search for tools, call them, ask for missing values, or report.

It is stateless: everything it knows is in the messages and the offered tools. A need is handled by
a generator of calls, which runs from the beginning at each step, with the results so far. Tools are
ranked by words only, so a conversation runs the same everywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.tool import ToolAnnotations, ToolSpec
from casual_mcp_nb.conversation.event import (
    BROWSE_TOOLKIT,
    LOAD_TOOLS,
    PACKAGE_TOOLS,
    READ_SKILL,
    SEARCH_TOOLS,
    UNLOAD_TOOLS,
)
from casual_mcp_nb.conversation.step import loaded_in, text_of
from casual_mcp_nb.discovery.browse import categories_in, lines_in, to_unload
from casual_mcp_nb.discovery.manifest import servers_in
from casual_mcp_nb.discovery.search_tools import ToolSearchIndex, manifest_in
from casual_mcp_nb.discovery.synthetic import instructions_in, skill_spec, skills_in
from casual_mcp_nb.offline.arguments import Filling, parameters_of
from casual_mcp_nb.offline.candidates import (
    CERTAIN,
    FITS,
    SURE,
    Candidate,
    candidates_for,
    nearest_to,
)
from casual_mcp_nb.offline.deliveries import NextCall, Offered, PastCall, calls_in
from casual_mcp_nb.offline.needs import Need, needs_of, spelled
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
_MAX_LOADED = 3

Steps = Generator[NextCall, PastCall, str]
"""The calls for a need, each resumed with its result, and at the end the reply."""


def plan(
    messages: Sequence[ChatMessage], definitions: Sequence[Mapping[str, Any]]
) -> tuple[list[NextCall], str]:
    """Choose the next step's calls, which can be made at the same time, or if there are none, the
    reply.
    """
    offered = Offered(messages, definitions)
    calls, reply = _Planner(messages, offered.tools).next_step()
    return list(map(offered.delivered, calls)), reply


class _Planner:
    def __init__(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> None:
        last = len(messages)
        self.request = self.last_reply = ""
        for place, message in enumerate(messages):
            if message.role == "user":
                last, self.request = place, text_of(message.content)
        for message in messages[:last]:
            if message.role == "assistant" and message.content:
                self.last_reply = text_of(message.content)
        self.earlier_calls, self.calls = calls_in(messages[:last]), calls_in(messages[last:])
        own = {tool.wire_name: tool.description for tool in tools if not tool.server}
        self.searches, self.browses = SEARCH_TOOLS in own, LOAD_TOOLS in own
        self.deferred = categories_in(own.get(BROWSE_TOOLKIT, ""))
        if self.searches:
            self.deferred = servers_in(manifest_in(own[SEARCH_TOOLS]) or "")
        # The planner never reads the rest of a cut result: it reports the first part.
        offered = [tool for tool in tools if tool.wire_name not in PACKAGE_TOOLS]
        self.loaded = {tool.wire_name: tool for tool in offered}
        found = [past.result for past in self.calls if past.call.name == SEARCH_TOOLS]
        for text in (own.get(READ_SKILL, ""), *found):
            offered += map(_as_tool, skills_in(text))
        self.index = ToolSearchIndex(offered)

    def next_step(self) -> tuple[list[NextCall], str]:
        """Choose the calls for the needs, or the reply if there are none."""
        request = self.request[:MAX_REQUEST].strip()
        calls: list[NextCall] = []
        replies: dict[str, None] = {}
        for need in self._answer(request) or needs_of(request) or [Need("")]:
            step = self._replayed(self._pursue(need))
            if isinstance(step, str):
                replies[step] = None
            elif step not in calls:
                calls.append(step)
        # What is loaded now may be used before it changes, and changes once in a step.
        changes = [call for call in calls if call.name in (LOAD_TOOLS, UNLOAD_TOOLS)]
        calls = [call for call in calls if call not in changes] or changes[:1]
        left = len(self.request) - MAX_REQUEST
        if left > 0:
            note = f"(The offline planner reads the first {MAX_REQUEST:,} characters of a message"
            replies[f"{note}, and {left:,} were left out.)"] = None
        return calls, "" if calls else "\n\n".join(replies)

    def _replayed(self, steps: Steps) -> NextCall | str:
        """Find the first call that was not made yet, or the reply."""
        made = list(self.calls)
        try:
            call = next(steps)
            while past := next((one for one in made if one.call == call), None):
                made.remove(past)
                call = steps.send(past)
        except StopIteration as end:
            return str(end.value)
        return call

    def _answer(self, request: str) -> list[Need]:
        """Complete the last request, if we asked for arguments and this gives only those.

        Anything else is a new request.
        """
        question = parse_question(self.last_reply)
        if question is None or Need(request).asks:
            return []
        asked, name, missing = question
        parameters = []
        for tool in self.loaded.values():
            if str(tool.tool_name) == name:
                parameters = [
                    one for one in parameters_of(tool.input_schema) if one.name in missing
                ]
        for text in (request, f'{missing[0]}: "{request}"'):
            filling = Filling(Need(text), parameters)
            if parameters and filling.typed == len(parameters) and not filling.left:
                return [Need(f"{asked} {text}")]
        return []

    def _candidates(self, need: Need) -> list[Candidate]:
        past = []
        for one in self.earlier_calls:
            tool = self.loaded.get(one.call.name)
            if tool is not None and not one.failed:
                past.append((tool, one.call.arguments))
        candidates = candidates_for(need, self.index, past)
        operation = spelled(need)
        if operation is None or any(one.confidence >= FITS for one in candidates):
            return candidates
        return candidates_for(operation, self.index)

    def _pursue(self, need: Need) -> Steps:
        if need.is_talk:
            return self._cannot("")
        candidates = self._candidates(need)
        fitting = [one for one in candidates if one.confidence >= FITS]
        best = fitting[0] if fitting and not fitting[0].filling.missing else None
        names_found: list[str] = []
        # If a tool is certain and lacks an argument, the person is asked, because no other tool
        # would help.
        enough = CERTAIN if best is None else SURE
        if not fitting or fitting[0].confidence < enough:
            names_found = yield from self._find(need)
        if best is not None:
            return (yield from self._use(best))
        for past in self.calls:
            # It was loaded, called and unloaded since.
            if past.call.name in names_found and not past.failed:
                return _report(past)
        if fitting:
            return ask_for(need.text, fitting[0])
        nearest = None if need.is_chat else nearest_to(need, candidates)
        return self._cannot(need.said, nearest)

    def _find(self, need: Need) -> Generator[NextCall, PastCall, list[str]]:
        """Find tools that are not loaded, by a search or by browsing and loading."""
        if self.searches:
            past = yield NextCall(SEARCH_TOOLS, {"query": need.query})
            return loaded_in(past.result)
        if not self.browses:
            return []
        past = yield NextCall(BROWSE_TOOLKIT, {"query": need.query})
        names: list[str] = []
        for line in lines_in(past.result)[0]:
            # What was loaded in another way may have no definition here.
            if not line.loaded or line.name not in self.loaded:
                names.append(line.name)
        names = names[:_MAX_LOADED]
        if names:
            past = yield NextCall(LOAD_TOOLS, {"names": names})
            if past.failed and (loaded := to_unload(past.result)):
                yield NextCall(UNLOAD_TOOLS, {"names": loaded})
                yield NextCall(LOAD_TOOLS, {"names": names[:1]})
        return names

    def _use(self, best: Candidate) -> Steps:
        name = best.tool.wire_name
        if name in self.loaded:
            return _report((yield NextCall(name, best.filling.arguments)))
        past = yield NextCall(READ_SKILL, {"skill": name})
        if past.failed:
            return report_failure(name, past.result)
        return f"{cut(instructions_in(past.result))}\n\n(from the skill `{name}`)"

    def _cannot(self, need: str, nearest: Candidate | None = None) -> str:
        # The deferred count includes tools loaded since.
        servers = Counter(tool.server for tool in self.loaded.values() if tool.server)
        return cannot(need, servers | self.deferred, nearest)


def _report(past: PastCall) -> str:
    if past.failed:
        return report_failure(past.call.name, past.result)
    return report_result(past.call.name, past.result)


def _as_tool(skill: Skill) -> ToolSpec:
    """Describe a skill as a tool that reads, to be ranked among tools."""
    reads = ToolAnnotations(read_only=True)
    name = f"{skill.server}:{skill.name}"
    return replace(skill_spec(skill), annotations=reads, wire_name=name)
