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
    FINDING,
    LOAD_TOOLS,
    PACKAGE_TOOLS,
    READ_SKILL,
    SEARCH_TOOLS,
)
from casual_mcp_nb.conversation.step import text_of
from casual_mcp_nb.discovery.browse import categories_in, lines_in
from casual_mcp_nb.discovery.manifest import servers_in
from casual_mcp_nb.discovery.search_tools import ToolSearchIndex
from casual_mcp_nb.discovery.synthetic import instructions_in, skill_spec, skills_in
from casual_mcp_nb.discovery.text import terms
from casual_mcp_nb.offline.candidates import FITS, SURE, Candidate, candidates_for, nearest_to
from casual_mcp_nb.offline.deliveries import NextCall, Offered, PastCall, calls_in
from casual_mcp_nb.offline.needs import Need, needs_of
from casual_mcp_nb.offline.replies import (
    ask_for,
    cannot,
    parse_question,
    report,
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
    calls, reply = _Planner(messages, offered).next_step()
    return list(map(offered.delivered, calls)), reply


class _Planner:
    def __init__(self, messages: Sequence[ChatMessage], offered: Offered) -> None:
        before = last = len(messages)
        self.request = self.last_reply = reply = ""
        for place, message in enumerate(messages):
            text = text_of(message.content)
            if message.role == "user":
                before, last = last, place
                self.request, self.last_reply, reply = text, reply, ""
            elif message.role == "assistant" and text:
                reply = text
        if any(past.call.name not in FINDING for past in calls_in(messages[before:last])):
            # A reply that reports a result may hold a question that is not ours.
            self.last_reply = ""
        self.calls = calls_in(messages[last:])
        own = {tool.wire_name: tool.description for tool in offered.tools if not tool.server}
        self.searches, self.browses = SEARCH_TOOLS in own, LOAD_TOOLS in own
        self.deferred = categories_in(own.get(BROWSE_TOOLKIT, ""))
        if self.searches:
            self.deferred = servers_in(own[SEARCH_TOOLS])
        # The planner never reads the rest of a cut result: it reports the first part.
        tools = [tool for tool in offered.tools if tool.wire_name not in PACKAGE_TOOLS]
        self.loaded = {tool.wire_name: tool for tool in tools}
        found = [past.result for past in self.calls if past.call.name == SEARCH_TOOLS]
        for text in (own.get(READ_SKILL, ""), *found):
            tools += map(_as_tool, skills_in(text))
        self.index = ToolSearchIndex(tools)
        self._delivered = offered.delivered
        self._repeatable: tuple[ToolSpec, Mapping[str, Any]] | None = None
        for past in calls_in(messages[:last]):
            if past.call.name in self.loaded and not past.failed:
                self._repeatable = self.loaded[past.call.name], past.call.arguments

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
        left = len(self.request) - MAX_REQUEST
        if left > 0:
            note = f"(The offline planner reads the first {MAX_REQUEST:,} characters of a message"
            replies[f"{note}, and {left:,} were left out.)"] = None
        return calls, "" if calls else "\n\n".join(replies)

    def _replayed(self, steps: Steps) -> NextCall | str:
        """Find the first call that was not made yet, or the reply."""
        try:
            call = next(steps)
            while past := self._past(call):
                call = steps.send(PastCall(call, past.result))
        except StopIteration as end:
            return str(end.value)
        return call

    def _past(self, call: NextCall) -> PastCall | None:
        # A program is compared as a whole.
        alike = (call, self._delivered(call))
        return next((one for one in self.calls if one.call in alike), None)

    def _answer(self, request: str) -> list[Need]:
        """Complete the last request, if we asked for arguments and this gives only those.

        Anything else is a new request. Words that would be left over belong to the value.
        """
        question = parse_question(self.last_reply)
        if question is None or Need(request).asks:
            return []
        asked, missing = question
        known = set(terms(Need(asked).text))
        for text in (request, f'{missing}: "{request}"'):
            need = Need(f"{asked} {text}")
            best = _best(self._candidates(need))
            if best is None or best.filling.missing:
                continue
            left = " ".join(word.value for word in best.filling.left)
            if known.issuperset(terms(left)):
                return [need]
        return []

    def _candidates(self, need: Need) -> list[Candidate]:
        candidates = candidates_for(need, self.index, self._repeatable)
        calculates = any(one.kind == "expression" for one in need.mentions)
        if calculates and _best(candidates) is None:
            return candidates_for(Need(need.said, spelled=True), self.index)
        return candidates

    def _pursue(self, need: Need) -> Steps:
        if need.is_talk:
            return self._cannot("")
        candidates = self._candidates(need)
        best = _best(candidates)
        found = None
        if best is None or best.confidence < SURE:
            found = yield from self._find(need)
        if best is None and found is not None and found.failed:
            return report(found.call.name, found.result)
        if best is None:
            return self._cannot(need.said, nearest_to(candidates))
        if best.filling.missing:
            return ask_for(need.said, best)
        return (yield from self._use(best))

    def _find(self, need: Need) -> Generator[NextCall, PastCall, PastCall | None]:
        """Find tools that are not loaded, by a search or by browsing and loading."""
        if self.searches:
            return (yield NextCall(SEARCH_TOOLS, {"query": need.query}))
        if not self.browses:
            return None
        found = yield NextCall(BROWSE_TOOLKIT, {"query": need.query})
        names: list[str] = []
        for line in lines_in(found.result)[0]:
            # What was loaded in another way may have no definition here.
            if not line.loaded or line.name not in self.loaded:
                names.append(line.name)
        if names:
            found = yield NextCall(LOAD_TOOLS, {"names": names[:_MAX_LOADED]})
        return found

    def _use(self, best: Candidate) -> Steps:
        name = best.tool.wire_name
        if name in self.loaded:
            past = yield NextCall(name, best.filling.arguments)
            return report(name, past.result)
        past = yield NextCall(READ_SKILL, {"skill": name})
        return report(name, past.result if past.failed else instructions_in(past.result))

    def _cannot(self, need: str, nearest: Candidate | None = None) -> str:
        # The deferred count includes tools loaded since.
        servers = Counter(tool.server for tool in self.loaded.values() if tool.server)
        return cannot(need, servers | self.deferred, nearest)


def _best(candidates: Sequence[Candidate]) -> Candidate | None:
    return next((one for one in candidates if one.confidence >= FITS), None)


def _as_tool(skill: Skill) -> ToolSpec:
    """Describe a skill as a tool that reads, to be ranked among tools."""
    reads = ToolAnnotations(read_only=True)
    name = f"{skill.server}:{skill.name}"
    return replace(skill_spec(skill), annotations=reads, wire_name=name)
