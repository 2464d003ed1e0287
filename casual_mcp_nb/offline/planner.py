"""Decide what to do next: search for tools, call them, ask for missing values, or report.

It is stateless: everything it knows is in the messages and the offered tools.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from casual_mcp_nb.discovery.index import ToolSearchIndex
from casual_mcp_nb.offline.candidates import CERTAIN, SURE, Candidate, candidates_for
from casual_mcp_nb.offline.conversation import Conversation, PastCall, PlannedCall
from casual_mcp_nb.offline.finding import BROWSING, ToolFinder
from casual_mcp_nb.offline.needs import Need, needs_of
from casual_mcp_nb.offline.parameters import parameters_of
from casual_mcp_nb.offline.replies import ask_for, asked_for, cannot, report_error, report_result
from casual_mcp_nb.types.cards import loaded_in
from casual_mcp_nb.types.event import LOAD_TOOLS, READ_RESULT, UNLOAD_TOOLS
from casual_mcp_nb.types.tool import ToolSpec

_CLEARLY_BETTER = 0.25


@dataclass(frozen=True)
class Plan:
    """The next step: calls to make, or if there are none, the reply."""

    calls: tuple[PlannedCall, ...] = ()
    reply: str = ""


@dataclass
class _Progress:
    """The candidates for one need, and what was done for it in this turn."""

    need: Need
    candidates: list[Candidate] = field(default_factory=list)
    calls: list[PastCall] = field(default_factory=list)
    searches: list[PastCall] = field(default_factory=list)


def plan(conversation: Conversation, definitions: Sequence[Mapping[str, Any]]) -> Plan:
    """Decide on the next step.

    Args:
        conversation: The conversation.
        definitions: The offered tools, with `name`, `description` and `parameters`, or the same under `function`.

    Returns:
        Calls that can be made at the same time, or the reply.
    """
    return _Planner(conversation, [_tool(definition.get("function", definition)) for definition in definitions]).next_step()


def _tool(definition: Mapping[str, Any]) -> ToolSpec:
    wire_name = str(definition["name"])
    # A tool of a server has the server in its name.
    server, _, name = wire_name.rpartition("__") if "__" in wire_name else ("", "", wire_name)
    description, schema = str(definition.get("description") or ""), definition.get("parameters") or {}
    return ToolSpec(server, name, description, schema, wire_name=wire_name)


class _Planner:
    def __init__(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> None:
        self.conversation = conversation
        self.finder = ToolFinder(tools, conversation.calls)
        # The planner never reads the rest of a cut result: it reports the beginning.
        own = {self.finder.search, READ_RESULT, *BROWSING}
        self.index = ToolSearchIndex(tool for tool in tools if tool.server or tool.wire_name not in own)

    def next_step(self) -> Plan:
        """Return the calls for the needs, or the reply if there are none."""
        progress = self._progress()
        for call in self.conversation.calls if progress else ():
            self._attribute(call, progress)
        steps = [self._step(one) for one in progress]
        done = [PlannedCall(call.name, call.arguments) for call in self.conversation.calls]
        calls: list[PlannedCall] = []
        for step in steps:
            # Only a load call is repeated: to load what there was no room for.
            if isinstance(step, PlannedCall) and step not in calls and (step not in done or step.name in BROWSING):
                calls.append(step)
        if calls:
            return Plan(tuple(_in_order(calls)))
        replies = dict.fromkeys(step for step in steps if isinstance(step, str))
        return Plan(reply="\n\n".join(replies) or self._cannot())

    def _progress(self) -> list[_Progress]:
        progress = [self._begin(need) for need in needs_of(self.conversation.request)]
        question = asked_for(self.conversation.last_reply)
        if question is None or not progress or _is_clear(progress[0]):
            return progress
        # The request answers our question.
        text, missing = question
        reply = self.conversation.request.strip()
        one = self._begin(Need(f"{text} {reply}"))
        for candidate in one.candidates if len(missing) == 1 else ():
            _answer(candidate, missing[0], reply)
        return [one]

    def _begin(self, need: Need) -> _Progress:
        return _Progress(need, [] if need.is_talk else candidates_for(need, self.index, self._last_used()))

    def _last_used(self) -> dict[ToolSpec, dict[str, Any]]:
        """Return the tool of the last call of an earlier turn that succeeded, with its arguments."""
        loaded = {tool.wire_name: tool for tool in self.index.tools}
        used = [call for call in self.conversation.earlier if call.name in loaded and not call.failed]
        return {loaded[used[-1].name]: used[-1].arguments} if used else {}

    def _attribute(self, call: PastCall, progress: list[_Progress]) -> None:
        """Return the need that a call was made for: the planner would make the same call again."""
        if call.name == self.finder.search or call.name in BROWSING:
            for one in progress:
                if call.name == LOAD_TOOLS or one.need.query == call.arguments.get("query"):
                    one.searches.append(call)
            return
        owners = [
            one
            for one in progress
            for candidate in one.candidates
            if candidate.tool.wire_name == call.name and candidate.filling.arguments == call.arguments
        ]
        min(owners or progress, key=lambda one: len(one.calls)).calls.append(call)

    def _step(self, one: _Progress) -> PlannedCall | str:
        done = [call for call in one.calls if not call.failed]
        if done:
            request_terms = {term for word in one.need.words for term in word.terms}
            return "\n\n".join(report_result(call.name, call.result, request_terms) for call in done)
        if one.calls:
            return self._after_failure(one)
        fitting = [candidate for candidate in one.candidates if candidate.fits]
        best = next((one for one in fitting if one.complete and one.rank > fitting[0].rank - _CLEARLY_BETTER), None)
        if best is not None and best.confidence >= SURE:
            return _call(best)
        # The tool is certain and lacks an argument: ask the person, because no other tool would help.
        lacking = best is None and bool(fitting) and fitting[0].confidence >= CERTAIN
        finding = None if one.need.is_talk or lacking else self.finder.next_call(one.need, bool(one.searches))
        if finding is not None:
            return finding
        if best is not None:
            return _call(best)
        if fitting:
            return ask_for(one.need.text, fitting[0].tool.wire_name, fitting[0].filling.missing)
        return self._cannot("" if one.need.is_talk else one.need.text)

    def _after_failure(self, one: _Progress) -> PlannedCall | str:
        """Search once for a better tool, if not done yet; it must be a certain match."""
        failed = one.calls[-1]
        certain = any(fit.tool.wire_name == failed.name and fit.confidence >= CERTAIN for fit in one.candidates)
        finding = None if certain else self.finder.next_call(one.need, bool(one.searches))
        if finding is not None:
            return finding
        order = self.conversation.calls.index
        if one.searches and len(one.calls) == 1 and order(one.searches[-1]) > order(failed):
            names = set(loaded_in(one.searches[-1].result)) - {failed.name}
            for fit in one.candidates:
                if fit.tool.wire_name in names and fit.complete and fit.confidence >= SURE:
                    return _call(fit)
        return "\n\n".join(report_error(call.name, call.result) for call in one.calls)

    def _cannot(self, need: str = "") -> str:
        counts: dict[str, int] = {}
        for tool in self.index.tools:
            if tool.server:
                counts[tool.server] = counts.get(tool.server, 0) + 1
        # The count of deferred tools includes those loaded since.
        return cannot(need, counts | self.finder.servers)


def _call(candidate: Candidate) -> PlannedCall:
    return PlannedCall(candidate.tool.wire_name, candidate.filling.arguments)


def _in_order(calls: Sequence[PlannedCall]) -> Iterator[PlannedCall]:
    """Yield the calls of one step: at most one load or unload, and no unload next to a call that may use the tool."""
    changes = [call for call in calls if call.name in (LOAD_TOOLS, UNLOAD_TOOLS)]
    others = [call for call in calls if call not in changes]
    yield from others
    yield from [call for call in changes[:1] if not others or call.name == LOAD_TOOLS]


def _is_clear(one: _Progress) -> bool:
    """Return whether a reply to our question is a new request."""
    best = one.candidates[0] if one.candidates else None
    sure = best is not None and best.complete and best.confidence >= SURE
    return one.need.is_talk or (bool(one.need.words) and (len(one.need.words) > 2 or sure))


def _answer(candidate: Candidate, name: str, reply: str) -> None:
    """Fill the one missing argument if the reply is just its value."""
    if candidate.filling.missing == [name]:
        parameter = next(one for one in parameters_of(candidate.tool.input_schema) if one.name == name)
        value = parameter.cast(reply.strip("\"'").rstrip("."))
        if value is not None:
            candidate.filling.arguments[name] = value
            candidate.filling.missing.clear()
