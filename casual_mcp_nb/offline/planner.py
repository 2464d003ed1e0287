"""Decide on the next step: search for tools, call them, ask for missing values, or report.

It is stateless: everything it knows is in the messages and the offered tools. What is done for a need is a generator of calls,
which is run from the beginning at each step, with the results of the calls that were made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from casual_mcp_nb.discovery._cards import definitions_in
from casual_mcp_nb.discovery.browse import categories_in, lines_in, to_unload
from casual_mcp_nb.discovery.index import ToolSearchIndex
from casual_mcp_nb.discovery.manifest import servers_in
from casual_mcp_nb.discovery.search_tools import manifest_in
from casual_mcp_nb.discovery.synthetic import discovered_in
from casual_mcp_nb.offline.candidates import CERTAIN, FITS, SURE, Candidate, candidates_for
from casual_mcp_nb.offline.mentions import find_mentions
from casual_mcp_nb.offline.needs import Need, needs_of
from casual_mcp_nb.offline.replies import ask_for, cannot, parse_question, report_error, report_result
from casual_mcp_nb.types.bridged_call import read_call
from casual_mcp_nb.types.cards import loaded_in
from casual_mcp_nb.types.event import BROWSE_TOOLKIT, CALL_TOOL, FINDING, LOAD_TOOLS, READ_RESULT, UNLOAD_TOOLS
from casual_mcp_nb.types.result_text import bare_result, says_failed
from casual_mcp_nb.types.tool import Catalog, ToolSpec

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

MAX_REQUEST = 4_000
"""Maximum number of characters of a message that the planner reads."""
_CLEARLY_BETTER = 0.25
_MAX_LOADED = 3


class NextCall(NamedTuple):
    """A call to make: the tool's wire name and its arguments."""

    name: str
    arguments: dict[str, Any]


class PastCall(NamedTuple):
    """A call that was made, and the text of its result."""

    call: NextCall
    result: str

    @property
    def failed(self) -> bool:
        """Whether the result says that the call failed."""
        return says_failed(self.result)


def plan(messages: Sequence[ChatMessage], definitions: Sequence[Mapping[str, Any]]) -> tuple[list[NextCall], str]:
    """Choose the calls of the next step, which can be made at the same time, or if there are none, the reply."""
    tools = {str(definition["name"]): _tool(definition) for definition in definitions}
    bridged: dict[str, ToolSpec] = {}
    if tools.pop(CALL_TOOL, None):
        texts = [_text(message) for message in messages if message.role == "tool" and message.name in FINDING]
        new_tools = {each["name"]: _tool(each) for text in texts for each in definitions_in(text) if each["name"] not in tools}
        bridged = {tool.wire_name: tool for tool in discovered_in(messages, Catalog(new_tools.values()))}
    calls, reply = _Planner(messages, [*tools.values(), *bridged.values()]).next_step()
    return [NextCall(CALL_TOOL, call._asdict()) if call.name in bridged else call for call in calls], reply


def _tool(definition: Mapping[str, Any]) -> ToolSpec:
    wire_name = str(definition["name"])
    # A tool of a server has the server in its name.
    server, _, name = wire_name.rpartition("__")
    description, schema = str(definition.get("description") or ""), definition.get("parameters") or {}
    return ToolSpec(server, name, description, schema, wire_name=wire_name)


class _Planner:
    def __init__(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> None:
        last = max((index for index, message in enumerate(messages) if message.role == "user"), default=len(messages))
        replies = [_text(message) for message in messages[:last] if message.role == "assistant" and message.content]
        self.last_reply = "".join(replies[-1:])
        self.request = "".join(map(_text, messages[last : last + 1]))
        self.earlier_calls, self.calls = _calls(messages[:last]), _calls(messages[last:])
        own = {tool.wire_name: tool.description for tool in tools if not tool.server}
        manifests = {name: manifest for name, text in own.items() if (manifest := manifest_in(text)) is not None}
        self.search = next(iter(manifests), None)
        self.browses = LOAD_TOOLS in own
        self.deferred = servers_in("".join(manifests.values())) or categories_in(own.get(BROWSE_TOOLKIT, ""))
        # The planner never reads the rest of a cut result: it reports the beginning.
        synthetic = {self.search, READ_RESULT, BROWSE_TOOLKIT, LOAD_TOOLS, UNLOAD_TOOLS}
        self.index = ToolSearchIndex(tool for tool in tools if tool.server or tool.wire_name not in synthetic)
        self.loaded = {tool.wire_name: tool for tool in self.index.tools}

    def next_step(self) -> tuple[list[NextCall], str]:
        """Choose the calls for the needs, or the reply if there are none."""
        steps = [self._replayed(self._pursue(need)) for need in self._needs()]
        if calls := [step for step in steps if isinstance(step, NextCall)]:
            return _in_order(calls), ""
        replies = list(dict.fromkeys(step for step in steps if isinstance(step, str))) or [self._cannot("")]
        if (cut := len(self.request) - MAX_REQUEST) > 0:
            note = f"(The offline planner reads the first {MAX_REQUEST:,} characters of a message"
            replies.append(f"{note}; {cut:,} were left out.)")
        return [], "\n\n".join(replies)

    def _replayed(self, steps: Generator[NextCall, PastCall, str]) -> NextCall | str:
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

    def _needs(self) -> list[Need]:
        request = self.request[:MAX_REQUEST].strip()
        needs, question = needs_of(request), parse_question(self.last_reply)
        if question is None or not needs or self._is_clear(needs[0]):
            return needs
        # The request answers our question.
        text, missing = question
        if len(missing) == 1 and not find_mentions(request):
            request = f'{missing[0]}: "{request}"'
        return [Need(f"{text} {request}")]

    def _is_clear(self, need: Need) -> bool:
        """Check whether a reply to our question is a new request."""
        best = self._candidates(need)[:1]
        sure = any(one.confidence >= SURE and not one.filling.missing for one in best)
        return need.is_talk or (bool(need.words) and (len(need.words) > 2 or sure))

    def _candidates(self, need: Need) -> list[Candidate]:
        used = [one.call for one in self.earlier_calls if one.call.name in self.loaded and not one.failed]
        return candidates_for(need, self.index, {self.loaded[call.name]: call.arguments for call in used[-1:]})

    def _pursue(self, need: Need) -> Generator[NextCall, PastCall, str]:
        """Find the tool for a need and call it; return the reply."""
        if need.is_talk:
            return self._cannot("")
        fitting = [candidate for candidate in self._candidates(need) if candidate.confidence >= FITS]
        best = next((one for one in fitting if not one.filling.missing and one.rank > fitting[0].rank - _CLEARLY_BETTER), None)
        # If a tool is certain and lacks an argument, the person is asked, because no other tool would help.
        lacking = best is None and bool(fitting) and fitting[0].confidence >= CERTAIN
        names_found: list[str] | None = None
        if not lacking and (best is None or best.confidence < SURE):
            names_found = yield from self._find(need)
        if best is None:
            # It may have been called and unloaded since.
            for past in self.calls:
                if past.call.name in (names_found or ()) and not past.failed:
                    return report_result(past.call.name, past.result, need.terms)
            if not fitting:
                return self._cannot(need.text)
            return ask_for(need.text, fitting[0].tool.wire_name, fitting[0].filling.missing)
        past = yield NextCall(best.tool.wire_name, best.filling.arguments)
        if past.failed and names_found is None and best.confidence < CERTAIN:
            # A search may find a better tool, if it is a sure match.
            names_found = yield from self._find(need)
            sure = [one for one in fitting if one.confidence >= SURE and not one.filling.missing and one is not best]
            if others := [one for one in sure if one.tool.wire_name in names_found]:
                past = yield NextCall(others[0].tool.wire_name, others[0].filling.arguments)
        if past.failed:
            return report_error(past.call.name, past.result)
        return report_result(past.call.name, past.result, need.terms)

    def _find(self, need: Need) -> Generator[NextCall, PastCall, list[str]]:
        """Find tools that are not loaded, by a search or by browsing and loading; return their wire names."""
        if self.search is not None:
            past = yield NextCall(self.search, {"query": need.query})
            return loaded_in(past.result)
        if not self.browses:
            return []
        past = yield NextCall(BROWSE_TOOLKIT, {"query": need.query})
        # What was loaded in another way may have no definition here.
        names = [line.name for line in lines_in(past.result)[0] if not (line.loaded and line.name in self.loaded)][:_MAX_LOADED]
        if names:
            past = yield NextCall(LOAD_TOOLS, {"names": names})
            if past.failed and (loaded := to_unload(past.result)):
                yield NextCall(UNLOAD_TOOLS, {"names": loaded})
                yield NextCall(LOAD_TOOLS, {"names": names[:1]})
        return names

    def _cannot(self, need: str) -> str:
        # The count of deferred tools includes those loaded since.
        return cannot(need, Counter(tool.server for tool in self.index.tools if tool.server) | self.deferred)


def _calls(messages: Sequence[ChatMessage]) -> list[PastCall]:
    results = {message.tool_call_id: _text(message) for message in messages if message.role == "tool"}
    model_calls = (call for message in messages if message.role == "assistant" for call in message.tool_calls or ())
    read = [(read_call(call.function.name, call.function.arguments), results.get(call.id, "")) for call in model_calls]
    return [
        PastCall(NextCall(name, arguments if isinstance(arguments, dict) else {}), bare_result(text, name))
        for (name, arguments, _), text in read
    ]


def _text(message: ChatMessage) -> str:
    """Extract the text of a message, without its images."""
    if isinstance(message.content, list):
        return "\n".join(part.text for part in message.content if part.type == "text")
    return message.content or ""


def _in_order(calls: Sequence[NextCall]) -> list[NextCall]:
    """Order the calls of one step: at most one load or unload, and no unload next to a call that may use the tool."""
    changes = [call for call in calls if call.name in (LOAD_TOOLS, UNLOAD_TOOLS)]
    others = [call for number, call in enumerate(calls) if call not in changes and call not in calls[:number]]
    return others + [call for call in changes[:1] if not others or call.name == LOAD_TOOLS]
