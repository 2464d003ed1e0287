"""Decide on the next step: search for tools, call them, ask for missing values, or report.

It is stateless: everything it knows is in the messages and the offered tools. Each step pursues the
needs from the beginning, with the results so far, up to the first call that was not made yet. Tools
are ranked by words only, so a conversation runs the same everywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
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
from casual_mcp_nb.offline.candidates import SURE, Candidate, choose
from casual_mcp_nb.offline.deliveries import NextCall, Offered, PastCall, calls_in
from casual_mcp_nb.offline.needs import Need, needs_of
from casual_mcp_nb.offline.replies import QUESTION, ask_for, cannot, report

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.base.mcp import Skill

MAX_REQUEST = 4_000
_MAX_LOADED = 3
_READS = ToolAnnotations(read_only=True)


def plan(
    messages: Sequence[ChatMessage], definitions: Sequence[Mapping[str, Any]]
) -> tuple[list[NextCall], str]:
    """Choose the next step's calls, which can be made at the same time, or if there are none, the
    reply.
    """
    return _Planner(messages, Offered(messages, definitions)).next_step()


class _NotYet(Exception):
    """A call that has to be made before a need can be pursued further."""

    def __init__(self, call: NextCall) -> None:
        self.call = call


class _Planner:
    def __init__(self, messages: Sequence[ChatMessage], offered: Offered) -> None:
        asked = [place for place, message in enumerate(messages) if message.role == "user"]
        before, last = [len(messages), len(messages), *asked][-2:]
        earlier, current = messages[before:last], messages[last:]
        self.request = "".join(text_of(one.content) for one in current[:1])
        self.last_reply = ""
        # A reply that reports a result may hold a question that is not ours.
        if all(past.call.name in FINDING for past in calls_in(earlier)):
            self.last_reply = "".join(text_of(one.content) for one in earlier[-1:])
        self.calls = calls_in(current)
        self.own = {tool.wire_name: tool.description for tool in offered.tools if not tool.server}
        # The planner never reads the rest of a cut result: it reports the first part.
        tools = [tool for tool in offered.tools if tool.wire_name not in PACKAGE_TOOLS]
        self.loaded = {tool.wire_name: tool for tool in tools}
        found = [past.result for past in self.calls if past.call.name == SEARCH_TOOLS]
        for text in (self.own.get(READ_SKILL, ""), *found):
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
            try:
                replies[self._pursue(need)] = None
            except _NotYet as missing:
                if missing.call not in calls:
                    calls.append(missing.call)
        if len(self.request) > MAX_REQUEST:
            note = f"(The offline planner reads only the first {MAX_REQUEST:,} characters.)"
            replies[note] = None
        return calls, "" if calls else "\n\n".join(replies)

    def _made(self, name: str, arguments: dict[str, Any]) -> PastCall:
        """Find a call that was made, or raise `_NotYet`."""
        call = NextCall(name, arguments)
        delivered = self._delivered(call)
        for past in self.calls:
            # A program is compared as a whole.
            if past.call in (call, delivered):
                return past
        raise _NotYet(delivered)

    def _answer(self, request: str) -> list[Need]:
        """Complete the last request, if we asked for arguments and this gives only those.

        Anything else is a new request. Words that would be left over belong to the value.
        """
        question = QUESTION.search(self.last_reply)
        if question is None or Need(request).asks:
            return []
        asked, missing = question.groups()
        known = set(terms(asked))
        for text in (request, f'{missing}: "{request}"'):
            need = Need(f"{asked} {text}")
            best, _ = choose(need, self.index, self._repeatable)
            if best is None or best.filling.missing:
                continue
            if all(known.issuperset(word.terms) for word in best.filling.left):
                return [need]
        return []

    def _pursue(self, need: Need) -> str:
        """Meet a need with the calls made so far, and reply, or raise `_NotYet` for the next."""
        if need.is_talk:
            return self._cannot("")
        best, nearest = choose(need, self.index, self._repeatable)
        if best is None or best.confidence < SURE:
            found = self._find(need)
            if best is None and found is not None and found.failed:
                return report(found.call.name, found.result)
        if best is None:
            return self._cannot(need.said, nearest)
        if best.filling.missing:
            return ask_for(need.said, best)
        name = best.tool.wire_name
        if name in self.loaded:
            return report(name, self._made(name, best.filling.arguments).result)
        read = self._made(READ_SKILL, {"skill": name})
        if read.failed:
            return report(name, read.result)
        return report(name, instructions_in(read.result))

    def _find(self, need: Need) -> PastCall | None:
        """Find tools that are not loaded, by a search or by browsing and loading."""
        if SEARCH_TOOLS in self.own:
            return self._made(SEARCH_TOOLS, {"query": need.query})
        if LOAD_TOOLS not in self.own:
            return None
        found = self._made(BROWSE_TOOLKIT, {"query": need.query})
        lines, _ = lines_in(found.result)
        # What was loaded in another way may have no definition here.
        names = [one.name for one in lines if not one.loaded or one.name not in self.loaded]
        if names:
            return self._made(LOAD_TOOLS, {"names": names[:_MAX_LOADED]})
        return found

    def _cannot(self, need: str, nearest: Candidate | None = None) -> str:
        servers = Counter(tool.server for tool in self.loaded.values() if tool.server)
        # The deferred count includes tools loaded since.
        deferred = servers_in(self.own.get(SEARCH_TOOLS, ""))
        categories = categories_in(self.own.get(BROWSE_TOOLKIT, ""))
        return cannot(need, servers | deferred | categories, nearest)


def _as_tool(skill: Skill) -> ToolSpec:
    """Describe a skill as a tool that reads, to be ranked among tools."""
    name = f"{skill.server}:{skill.name}"
    return replace(skill_spec(skill), annotations=_READS, wire_name=name)
