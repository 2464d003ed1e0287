"""Decide what to do next: search for tools, call them, ask for missing values, or report.

It is stateless: everything it knows is in the messages and the offered tools. What is done for a need is a generator of calls,
which is run from the beginning at each step, with the results of the calls that were made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from casual_mcp_nb.discovery._cards import definitions_in
from casual_mcp_nb.discovery.browse import categories_in, lines_in, to_unload
from casual_mcp_nb.discovery.index import ToolSearchIndex
from casual_mcp_nb.discovery.manifest import servers_in
from casual_mcp_nb.discovery.search_tools import manifest_in
from casual_mcp_nb.discovery.synthetic import discovered_in
from casual_mcp_nb.offline.candidates import CERTAIN, FITS, SURE, Candidate, candidates_for
from casual_mcp_nb.offline.conversation import MAX_REQUEST, Conversation, PastCall, PlannedCall, read_conversation, text_of
from casual_mcp_nb.offline.mentions import find_mentions
from casual_mcp_nb.offline.needs import Need, needs_of
from casual_mcp_nb.offline.replies import ask_for, asked_for, cannot, report_error, report_result
from casual_mcp_nb.types.cards import loaded_in
from casual_mcp_nb.types.event import BROWSE_TOOLKIT, CALL_TOOL, FINDING, LOAD_TOOLS, READ_RESULT, UNLOAD_TOOLS
from casual_mcp_nb.types.tool import Catalog, ToolSpec

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

_CLEARLY_BETTER = 0.25
_MAX_LOADED = 3


class Plan(NamedTuple):
    """The next step: calls that can be made at the same time, or if there are none, the reply."""

    calls: Sequence[PlannedCall] = ()
    reply: str = ""


def plan(messages: Sequence[ChatMessage], definitions: Sequence[Mapping[str, Any]]) -> Plan:
    """Decide on the next step.

    Args:
        messages: The conversation.
        definitions: The offered tools, with `name`, `description` and `parameters`.
    """
    tools = {str(definition["name"]): _tool(definition) for definition in definitions}
    bridged: dict[str, ToolSpec] = {}
    if tools.pop(CALL_TOOL, None):
        texts = [text_of(message) for message in messages if message.role == "tool" and message.name in FINDING]
        found = {each["name"]: _tool(each) for text in texts for each in definitions_in(text) if each["name"] not in tools}
        bridged = {tool.wire_name: tool for tool in discovered_in(messages, Catalog(found.values()))}
    calls, reply = _Planner(read_conversation(messages), [*tools.values(), *bridged.values()]).next_step()
    return Plan([PlannedCall(CALL_TOOL, call._asdict()) if call.name in bridged else call for call in calls], reply)


def _tool(definition: Mapping[str, Any]) -> ToolSpec:
    wire_name = str(definition["name"])
    # A tool of a server has the server in its name.
    server, _, name = wire_name.rpartition("__")
    description, schema = str(definition.get("description") or ""), definition.get("parameters") or {}
    return ToolSpec(server, name, description, schema, wire_name=wire_name)


class _Planner:
    def __init__(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> None:
        self.conversation = conversation
        own = {tool.wire_name: tool.description for tool in tools if not tool.server}
        manifests = {name: manifest for name, text in own.items() if (manifest := manifest_in(text)) is not None}
        self.search = next(iter(manifests), None)
        self.browses = LOAD_TOOLS in own
        self.deferred = servers_in("".join(manifests.values())) or categories_in(own.get(BROWSE_TOOLKIT, ""))
        # The planner never reads the rest of a cut result: it reports the beginning.
        synthetic = {self.search, READ_RESULT, BROWSE_TOOLKIT, LOAD_TOOLS, UNLOAD_TOOLS}
        self.index = ToolSearchIndex(tool for tool in tools if tool.server or tool.wire_name not in synthetic)
        self.loaded = {tool.wire_name: tool for tool in self.index.tools}

    def next_step(self) -> Plan:
        """Return the calls for the needs, or the reply if there are none."""
        steps = [self._replayed(self._pursue(need)) for need in self._needs()]
        calls = [step for step in steps if isinstance(step, PlannedCall)]
        if calls:
            return Plan(calls=list(_in_order(calls)))
        replies = list(dict.fromkeys(step for step in steps if isinstance(step, str))) or [self._cannot("")]
        if self.conversation.cut:
            note = f"(The offline planner reads the first {MAX_REQUEST:,} characters of a message"
            replies.append(f"{note}; {self.conversation.cut:,} were left out.)")
        return Plan(reply="\n\n".join(replies))

    def _replayed(self, steps: Generator[PlannedCall, PastCall, str]) -> PlannedCall | str:
        """Return the first call that was not made yet, or the reply."""
        past = list(self.conversation.calls)
        try:
            call = next(steps)
            while made := next((one for one in past if one.call == call), None):
                past.remove(made)
                call = steps.send(made)
        except StopIteration as end:
            return str(end.value)
        return call

    def _needs(self) -> list[Need]:
        needs = needs_of(self.conversation.request)
        question = asked_for(self.conversation.last_reply)
        if question is None or not needs or self._is_clear(needs[0]):
            return needs
        # The request answers our question.
        text, missing = question
        reply = self.conversation.request.strip()
        if len(missing) == 1 and not find_mentions(reply):
            reply = f'{missing[0]}: "{reply}"'
        return [Need(f"{text} {reply}")]

    def _is_clear(self, need: Need) -> bool:
        """Return whether a reply to our question is a new request."""
        best = next(iter(self._candidates(need)), None)
        sure = best is not None and best.complete and best.confidence >= SURE
        return need.is_talk or (bool(need.words) and (len(need.words) > 2 or sure))

    def _candidates(self, need: Need) -> list[Candidate]:
        used = [one.call for one in self.conversation.earlier if one.call.name in self.loaded and not one.failed]
        return candidates_for(need, self.index, {self.loaded[call.name]: call.arguments for call in used[-1:]})

    def _pursue(self, need: Need) -> Generator[PlannedCall, PastCall, str]:
        """Find the tool for a need and call it; return the reply."""
        if need.is_talk:
            return self._cannot("")
        fitting = [candidate for candidate in self._candidates(need) if candidate.confidence >= FITS]
        best = next((one for one in fitting if one.complete and one.rank > fitting[0].rank - _CLEARLY_BETTER), None)
        # If a tool is certain and lacks an argument, the person is asked, because no other tool would help.
        lacking = best is None and bool(fitting) and fitting[0].confidence >= CERTAIN
        found: list[str] | None = None
        if not lacking and (best is None or best.confidence < SURE):
            found = yield from self._find(need)
        if best is None:
            # It may have been called and unloaded since.
            for made in self.conversation.calls:
                if made.call.name in (found or ()) and not made.failed:
                    return report_result(made.call.name, made.result, need.terms)
            if not fitting:
                return self._cannot(need.text)
            return ask_for(need.text, fitting[0].tool.wire_name, fitting[0].filling.missing)
        made = yield best.call
        if made.failed and found is None and best.confidence < CERTAIN:
            # A search may find a better tool, if it is a sure match.
            found = yield from self._find(need)
            others = [one for one in fitting if one.tool.wire_name in found and one.complete and one.confidence >= SURE]
            if others and others[0] is not best:
                made = yield others[0].call
        if made.failed:
            return report_error(made.call.name, made.result)
        return report_result(made.call.name, made.result, need.terms)

    def _find(self, need: Need) -> Generator[PlannedCall, PastCall, list[str]]:
        """Find tools that are not loaded, by a search or by browsing and loading; return their wire names."""
        if self.search is not None:
            made = yield PlannedCall(self.search, {"query": need.query})
            return loaded_in(made.result)
        if not self.browses:
            return []
        made = yield PlannedCall(BROWSE_TOOLKIT, {"query": need.query})
        # What was loaded in another way may have no definition here.
        lines = [line for line in lines_in(made.result)[0] if not (line.loaded and line.name in self.loaded)]
        names = [line.name for line in lines][:_MAX_LOADED]
        if names:
            made = yield PlannedCall(LOAD_TOOLS, {"names": names})
            if made.failed and (loaded := to_unload(made.result)):
                yield PlannedCall(UNLOAD_TOOLS, {"names": loaded})
                yield PlannedCall(LOAD_TOOLS, {"names": names[:1]})
        return names

    def _cannot(self, need: str) -> str:
        # The count of deferred tools includes those loaded since.
        return cannot(need, Counter(tool.server for tool in self.index.tools if tool.server) | self.deferred)


def _in_order(calls: Sequence[PlannedCall]) -> Iterator[PlannedCall]:
    """Yield the calls of one step: at most one load or unload, and no unload next to a call that may use the tool."""
    changes = [call for call in calls if call.name in (LOAD_TOOLS, UNLOAD_TOOLS)]
    others = [call for number, call in enumerate(calls) if call not in changes and call not in calls[:number]]
    yield from others
    yield from [call for call in changes[:1] if not others or call.name == LOAD_TOOLS]
