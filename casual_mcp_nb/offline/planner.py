"""Decide on the next step: search for tools, call them, ask for missing values, or report.

It is stateless: everything it knows is in the messages and the offered tools. A need is handled by
a generator of calls, which runs from the beginning at each step, with the results so far. Tools are
ranked by words only, so a conversation runs the same everywhere.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from casual_mcp_nb.base.content import bare_result, says_failed
from casual_mcp_nb.base.search import Explanation
from casual_mcp_nb.base.tool import Catalog, ToolName, ToolSpec
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
from casual_mcp_nb.discovery.manifest import counted, definitions_in, servers_in
from casual_mcp_nb.discovery.search_tools import ToolSearchIndex, manifest_in
from casual_mcp_nb.discovery.signatures import functions_in
from casual_mcp_nb.discovery.synthetic import discovered_in, instructions_in, skill_spec, skills_in
from casual_mcp_nb.discovery.text import emphasis, synonyms, terms
from casual_mcp_nb.offline.arguments import Filling, parameters_of
from casual_mcp_nb.offline.needs import Need, find_mentions, needs_of, spelled

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.base.mcp import Skill


FITS, SURE, CERTAIN = 0.55, 0.7, 0.9
_LIKE = 0.34
"""How much of a need a tool's words must cover for the tool to be called or named."""
_MAX_CANDIDATES = 12
_SYNONYM = 0.7
"""Weight for a word that matches only through an expansion."""
_CHANGING = """
clear copy create delete drop edit execute insert kill move overwrite random remove rename replace run send set update write
"""
_FILLER = 0.4
_ASKING = frozenset(terms("display find get give list look print show tell"))
_SAYS_LITTLE = ("parameter name", "details")


class Candidate(NamedTuple):
    """A tool that may meet a need."""

    tool: ToolSpec
    filling: Filling
    confidence: float
    """From 0 to 1: how much of the need the tool's words and parameters cover."""
    rank: float
    likeness: float = 1.0
    """From 0 to 1: how much of the need the tool's words cover, even where a call would be a guess.
    """


def candidates_for(
    need: Need, index: ToolSearchIndex, used: Mapping[ToolSpec, Mapping[str, Any]]
) -> list[Candidate]:
    """Rank the loaded tools for a need, best first.

    For a follow-up, `used` is the last used tool with its arguments.
    """
    candidates: dict[ToolSpec, Candidate] = {}
    hits = index.search(need.query, _MAX_CANDIDATES)
    for hit in hits:
        share = hit.score / hits[0].score
        candidates[hit.tool] = _candidate(need, hit.tool, hit.explain(), share)
    if need.follows:
        for tool, arguments in used.items():
            again = _again(need, tool, arguments, index)
            if again is not None:
                candidates[tool] = again
    return sorted(candidates.values(), key=_order)


def _order(candidate: Candidate) -> tuple[float, int, str]:
    return -candidate.rank, len(candidate.filling.missing), candidate.tool.wire_name


def _candidate(need: Need, tool: ToolSpec, explanation: Explanation, share: float) -> Candidate:
    filling = Filling(need.text, need.mentions, parameters_of(tool.input_schema))
    # How well the tool matches each term in the request, by itself or by a synonym; not as a choice
    # besides the chosen one.
    matched = [
        part for part in explanation.shares if not filling.chosen or part.field not in _SAYS_LITTLE
    ]
    worth = {part.query_term or part.term: _SYNONYM for part in matched}
    worth |= {part.term: 1.0 for part in matched if not part.query_term}
    for name, (start, end) in list(filling.loose.items()):
        # `Sort the lines` says what the tool does, not which lines.
        inside = [word for word in need.words if start <= word.start and word.end <= end]
        holds_a_value = any(
            start <= mention.start and mention.end <= end for mention in need.mentions
        )
        if filling.missing or (
            not holds_a_value and all(worth.keys() >= set(word.terms) for word in inside)
        ):
            filling.drop(name)
    if "exact name" in worth:
        return Candidate(tool, filling, 1.0, 3.0)
    covered = _coverage(need, filling, explanation, worth)
    used = [filling.covers(one.start, one.end) for one in need.mentions]
    taken = sum(used) / len(used) if used else None
    named = any(part.field == "name" and part.frequency for part in explanation.shares)
    verb = next(iter(terms(tool.name)), "")
    # A tool that changes something, or draws at random, needs a word in the request for it.
    unasked = verb in terms(_CHANGING) and need.terms.union(need.implied).isdisjoint(
        {verb, *synonyms().get(verb, ())}
    )
    guessed = bool(filling.loose) and (covered is None or not named)
    if guessed or unasked:
        confidence = 0.0
    elif covered is None:
        confidence = 0.9 if taken == 1 else 0.0
    elif covered < _LIKE:
        confidence = 0.0
    elif taken is None:
        confidence = covered
    else:
        confidence = 0.6 * covered + 0.4 * taken
    rank = confidence + 0.3 * share + 0.02 * min(filling.typed, 5)
    likeness = 0.0 if guessed else covered or 0.0
    return Candidate(tool, filling, confidence, rank, likeness)


def _again(
    need: Need, tool: ToolSpec, arguments: Mapping[str, Any], index: ToolSearchIndex
) -> Candidate | None:
    """Propose the last used tool if it can use all new values: it is implied, even if no word names
    it.
    """
    filling = Filling(need.text, need.mentions, parameters_of(tool.input_schema), arguments)
    missing = set(index.explain(need.query, tool).missing)
    strange = [
        word
        for word in need.words
        if not filling.covers(word.start, word.end) and missing.issuperset(word.terms)
    ]
    all_taken = need.mentions and all(filling.covers(one.start, one.end) for one in need.mentions)
    if not all_taken or strange or not filling.typed:
        return None
    return Candidate(tool, filling, 0.95, 2.0)


def _coverage(
    need: Need, filling: Filling, explanation: Explanation, worth: Mapping[str, float]
) -> float | None:
    """Compute the share of the need's words that the tool matches, or None if all became
    arguments.
    """
    words = [word for word in need.words if not filling.covers(word.start, word.end, loosely=True)]
    word_terms = {term for word in words for term in word.terms}
    wanted = word_terms.union(terms(" ".join(need.implied)))
    if not wanted:
        return None
    # Parameter names and choices alone, such as `order`, say nothing about the tool's purpose.
    telling = wanted if filling.chosen else word_terms
    if not any(
        (part.query_term or part.term) in telling and part.field not in _SAYS_LITTLE
        for part in explanation.shares
    ):
        return 0.0
    # A verb that asks for anything says as little as a filler word, but a question such as `which`
    # asks for a list.
    asking = _ASKING.difference(terms(" ".join(need.implied)))
    weights = {term: _FILLER if term in asking else emphasis(term) for term in wanted}
    orders = words and words[0].start == 0 and not need.implied
    if orders and not any(term in worth or weights[term] < 1 for term in words[0].terms):
        # `Reverse the text` is an order for a tool that reverses, not for any that takes a text.
        return 0.0
    matched = sum(weight * worth.get(term, 0.0) for term, weight in weights.items())
    return matched / sum(weights.values())


_MAX_TEXT, _MAX_INLINE = 2000, 500
_MAX_ROWS, _MAX_ITEMS, _MAX_EXAMPLES = 20, 40, 3
EXAMPLES = {
    "time": "What time is it in Tokyo when it is 14:30 in Oslo?",
    "units": "Convert 26.2 miles to kilometres",
    "sqlite": "Which tables are in the database?",
    "math": "What is 17 * 23 + 4?",
    "system-info": "How much memory is free?",
}
"""Questions that the planner answers with these bundled servers."""
_QUESTION = re.compile(
    r"For “(?P<need>.*?)” I can use `(?P<tool>[^`]+)`, but I still need (?P<names>`[^\n]+`)\.", re.S
)


def report_result(name: str, text: str, request_terms: Collection[str] = ()) -> str:
    """Report a tool's result: its `summary` and the rows in it.

    Otherwise, its fields, those named in the request first.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
        if re.match(r"image/[\w+-]+, [\d,]+ bytes$", text):
            value = f"It returned a picture: {text}"
    parts: list[str] = []
    values: list[Any] = [value]
    if isinstance(value, dict) and isinstance(value.get("summary"), str):
        parts.append(value["summary"])
        values = [item for item in value.values() if _is_table(item)][:1]
    elif isinstance(value, dict) and list(value) == ["result"]:
        values = [value["result"]]
    elif isinstance(value, dict):
        asked = {key: item for key, item in value.items() if _is_asked(key, request_terms)}
        values = [{**asked, **value}]
    shown = "\n\n".join([*parts, *map(_shown, values)])
    gap = "\n\n" if "\n" in shown else " "
    return f"{shown}{gap}(from\u00a0`{_for_people(name)}`)"


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(row, dict) for row in value)


def _is_asked(name: str, request_terms: Collection[str]) -> bool:
    return not set(terms(name)).isdisjoint(request_terms)


def ask_for(need: str, tool: str, missing: Sequence[str]) -> str:
    """Ask for a request's missing arguments; `parse_question` parses the question."""
    names = ", ".join(f"`{name}`" for name in missing)
    return f"For “{need}” I can use `{tool}`, but I still need {names}."


def parse_question(text: str) -> tuple[str, list[str]] | None:
    """Parse the need and the missing parameters that an `ask_for` was about, or None for any other
    text.
    """
    match = _QUESTION.search(text)
    if match is None:
        return None
    return match["need"], re.findall(r"`([^`]+)`", match["names"])


def cannot(need: str, servers: Mapping[str, int], nearest: Candidate | None = None) -> str:
    """Reply that no offered tool matches, or that nothing was requested, with the nearest tool and
    the available servers.
    """
    listed = ", ".join(f"{name} ({counted(count)})" for name, count in sorted(servers.items()))
    available = f"Available: {listed}." if listed else "No tools are offered."
    about = "Ask for something that a tool can do."
    if need:
        about = f"None of the tools fits “{_cut(need, 200)}”."
    if nearest is not None:
        about = f"{about} {_how_to_call(nearest)}"
    examples = [f"“{question}”" for server, question in EXAMPLES.items() if server in servers]
    tries = f" Try {' or '.join(examples[:_MAX_EXAMPLES])}" if examples else ""
    return (
        f"{about} This is the offline planner, not a language model: it can only use tools."
        f" {available}{tries}"
    )


def _how_to_call(nearest: Candidate) -> str:
    """Name a tool, the arguments that it still needs, and a request that calls it."""
    name, filling = _for_people(nearest.tool.wire_name), nearest.filling
    request = [name, *(f"{each}=…" for each in (*filling.arguments, *filling.missing))]
    names = ", ".join(f"`{each}`" for each in filling.missing)
    lacking = f", which still needs {names}" if names else ""
    return f"The nearest is `{name}`{lacking}. To call it, ask for “{' '.join(request)}”."


def _for_people(name: str) -> str:
    """Convert a tool's name on the wire to the spelling for people: `server:tool`."""
    tool = ToolName.split(name)
    return str(tool) if tool.server else name


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return _list(value)
    if not isinstance(value, dict):
        return _scalar(value)
    lines = [f"- {key}: {_item(item)}" for key, item in islice(value.items(), _MAX_ITEMS)]
    if len(value) > _MAX_ITEMS:
        lines.append(f"- … and {len(value) - _MAX_ITEMS:,} more")
    return "\n".join(lines) or "Nothing."


def _item(value: Any) -> str:
    if isinstance(value, dict) and value:
        return "".join(f"\n  - {name}: {_inline(item)}" for name, item in value.items())
    tabular = isinstance(value, list) and value and all(isinstance(item, dict) for item in value)
    if tabular:
        return f"\n\n{_list(value)}\n"
    return _inline(value)


def _list(items: list[Any]) -> str:
    rows = items[:_MAX_ROWS]
    more = f"\n\n… and {len(items) - _MAX_ROWS:,} more" if len(items) > _MAX_ROWS else ""
    if rows and all(isinstance(item, dict) and list(item) == list(rows[0]) for item in rows):
        lines = [_table_row(rows[0]), _table_row(["---"] * len(rows[0]))]
        lines += [_table_row(map(_inline, row.values())) for row in rows]
        return "\n".join(lines) + more
    if all(map(_is_plain, items)) and not more:
        return ", ".join(map(_scalar, items)) or "None."
    return "\n".join(f"- {_inline(item)}" for item in rows) + more


def _table_row(cells: Iterable[Any]) -> str:
    texts = [str(cell).replace("|", r"\|") for cell in cells]
    return f"| {' | '.join(texts)} |"


def _inline(value: Any) -> str:
    if _is_plain(value):
        return " ".join(_scalar(value).split("\n"))
    if isinstance(value, list) and all(map(_is_plain, value)):
        text = ", ".join(map(_scalar, value)) or "none"
    else:
        text = json.dumps(value, ensure_ascii=False)
    return _cut(text, _MAX_INLINE)


def _is_plain(value: Any) -> bool:
    return not isinstance(value, dict | list)


def _scalar(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    if isinstance(value, float):
        return f"{value:.12g}"
    return _cut(str(value)) or "(empty)"


def _cut(text: str, limit: int = _MAX_TEXT) -> str:
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text):,} characters in all)"


MAX_REQUEST = 4_000
_CLEARLY_BETTER = 0.25
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


def plan(
    messages: Sequence[ChatMessage], definitions: Sequence[Mapping[str, Any]]
) -> tuple[list[NextCall], str]:
    """Choose the next step's calls, which can be made at the same time, or if there are none, the
    reply.
    """
    tools = {str(definition["name"]): _tool(definition) for definition in definitions}
    texts = [
        text_of(message.content)
        for message in messages
        if message.role == "tool" and message.name in FINDING
    ]
    coded = tools.pop(RUN_CODE, None)
    if coded is not None:
        return _plan_program(messages, tools, coded.description, texts)
    bridged: dict[str, ToolSpec] = {}
    if tools.pop(CALL_TOOL, None):
        new_tools: dict[str, ToolSpec] = {}
        for each in chain.from_iterable(map(definitions_in, texts)):
            if each["name"] not in tools:
                new_tools[each["name"]] = _tool(each)
        loaded = discovered_in(messages, Catalog(new_tools.values()))
        bridged = {tool.wire_name: tool for tool in loaded}
    calls, reply = _Planner(messages, [*tools.values(), *bridged.values()]).next_step()
    for number, call in enumerate(calls):
        if call.name in bridged:
            calls[number] = NextCall(CALL_TOOL, call._asdict())
    return calls, reply


def _plan_program(
    messages: Sequence[ChatMessage],
    tools: Mapping[str, ToolSpec],
    description: str,
    texts: Sequence[str],
) -> tuple[list[NextCall], str]:
    """Choose the next step's calls when the model writes programs.

    Here, each program makes one call.
    """
    functions = functions_in(description.partition("<functions>\n")[2])
    found_tools: dict[str, dict[str, Any]] = {}
    for text in texts:
        found_tools |= functions_in(text)
    by_marker = Catalog(replace(_tool(each), wire_name=name) for name, each in found_tools.items())
    for tool in discovered_in(messages, by_marker):
        functions[tool.wire_name] = found_tools[tool.wire_name]
    callable_tools = {each["name"]: _tool(each) for each in functions.values()}
    calls, reply = _Planner(messages, [*tools.values(), *callable_tools.values()]).next_step()
    for number, call in enumerate(calls):
        if call.name in callable_tools:
            calls[number] = NextCall(RUN_CODE, {"code": _program(call)})
    return calls, reply


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
    description = str(definition.get("description") or "")
    schema = definition.get("parameters") or {}
    return ToolSpec(owner.server, owner.tool, description, schema, wire_name=wire_name)


class _Planner:
    def __init__(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> None:
        last = len(messages)
        for index, message in enumerate(messages):
            if message.role == "user":
                last = index
        self.last_reply = ""
        for message in messages[:last]:
            if message.role == "assistant" and message.content:
                self.last_reply = text_of(message.content)
        self.request = "".join(text_of(message.content) for message in messages[last : last + 1])
        self.earlier_calls, self.calls = _calls(messages[:last]), _calls(messages[last:])
        own = {tool.wire_name: tool.description for tool in tools if not tool.server}
        self.search: str | None = None
        self.deferred: dict[str, int] = {}
        for name, text in own.items():
            manifest = manifest_in(text)
            if manifest is not None:
                self.search = self.search or name
                self.deferred |= servers_in(manifest)
        self.browses = LOAD_TOOLS in own
        self.deferred = self.deferred or categories_in(own.get(BROWSE_TOOLKIT, ""))
        self.listed_skills = skills_in(own.get(READ_SKILL, ""))
        # The planner never reads the rest of a cut result: it reports the first part.
        synthetic = {self.search, READ_RESULT, READ_SKILL, BROWSE_TOOLKIT, LOAD_TOOLS, UNLOAD_TOOLS}
        self.index = ToolSearchIndex(
            tool for tool in tools if tool.server or tool.wire_name not in synthetic
        )
        self.loaded = {tool.wire_name: tool for tool in self.index.tools}

    def next_step(self) -> tuple[list[NextCall], str]:
        """Choose the calls for the needs, or the reply if there are none."""
        steps = [self._replayed(self._pursue(need)) for need in self._needs()]
        calls = [step for step in steps if isinstance(step, NextCall)]
        if calls:
            # At most one load or unload in a step, and no unload next to a call that may use the
            # tool.
            chosen: list[NextCall] = []
            changes: list[NextCall] = []
            for call in calls:
                if call.name in (LOAD_TOOLS, UNLOAD_TOOLS):
                    changes.append(call)
                elif call not in chosen:
                    chosen.append(call)
            if changes and (not chosen or changes[0].name == LOAD_TOOLS):
                chosen.append(changes[0])
            return chosen, ""
        replies = list(dict.fromkeys(map(str, steps))) or [self._cannot("")]
        if (cut := len(self.request) - MAX_REQUEST) > 0:
            note = f"(The offline planner reads the first {MAX_REQUEST:,} characters of a message"
            replies.append(f"{note}, and {cut:,} were left out.)")
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
        best = self._candidates(need)[:1]
        sure = any(one.confidence >= SURE and not one.filling.missing for one in best)
        return need.is_talk or (bool(need.words) and (len(need.words) > 2 or sure))

    def _candidates(self, need: Need) -> list[Candidate]:
        used: dict[ToolSpec, Mapping[str, Any]] = {}
        for past in self.earlier_calls:
            if past.call.name in self.loaded and not past.failed:
                used = {self.loaded[past.call.name]: past.call.arguments}
        candidates = candidates_for(need, self.index, used)
        if any(one.confidence >= FITS for one in candidates):
            return candidates
        operation = spelled(need)
        if operation:
            return candidates_for(operation, self.index, {})
        return candidates

    def _pursue(self, need: Need) -> Generator[NextCall, PastCall, str]:
        if need.is_talk:
            return self._cannot("")
        fitting = [one for one in self._candidates(need) if one.confidence >= FITS]
        complete = [one for one in fitting if not one.filling.missing]
        best: Candidate | None = None
        if complete and complete[0].rank > fitting[0].rank - _CLEARLY_BETTER:
            best = complete[0]
        # If a tool is certain and lacks an argument, the person is asked, because no other tool
        # would help.
        lacking = best is None and bool(fitting) and fitting[0].confidence >= CERTAIN
        names_found: list[str] | None = None
        if not lacking and (best is None or best.confidence < SURE):
            skills = self.listed_skills
            if (skill := _fitting_skill(need, skills, best)) is None:
                names_found, skills = yield from self._find(need)
                skill = _fitting_skill(need, skills, best)
            if skill is not None:
                name = f"{skill.server}:{skill.name}"
                past = yield NextCall(READ_SKILL, {"skill": name})
                answer = f"{_cut(instructions_in(past.result))}\n\n(from the skill `{name}`)"
                return _failure(past, name) if past.failed else answer
        if best is None:
            # It may have been called and unloaded since.
            for past in self.calls:
                if past.call.name in (names_found or ()) and not past.failed:
                    return report_result(past.call.name, past.result, need.terms)
            if not fitting:
                return self._cannot(need.text, None if need.is_chat else self._nearest(need))
            return ask_for(need.text, fitting[0].tool.wire_name, fitting[0].filling.missing)
        past = yield NextCall(best.tool.wire_name, best.filling.arguments)
        if past.failed and names_found is None and best.confidence < CERTAIN:
            # A search may find a better tool, if it is a sure match.
            names_found, _ = yield from self._find(need)
            for one in complete:
                if one is not best and one.confidence >= SURE and one.tool.wire_name in names_found:
                    past = yield NextCall(one.tool.wire_name, one.filling.arguments)
                    break
        if past.failed:
            return _failure(past)
        return report_result(past.call.name, past.result, need.terms)

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

    def _nearest(self, need: Need) -> Candidate | None:
        """Find the tool to name if none fits: its words cover most of the need, or its name has one
        of them.
        """
        like = [one for one in self._candidates(need) if one.likeness >= _LIKE]
        if like:
            return max(like, key=lambda one: one.likeness)
        wanted = set(terms(need.text)) - _ASKING
        hits = self.index.search(need.text, _MAX_LOADED)
        for hit in hits:
            if wanted.intersection(terms(f"{hit.tool.name} {hit.tool.description}")):
                return _candidate(need, hit.tool, hit.explain(), 1.0)
        return None

    def _cannot(self, need: str, nearest: Candidate | None = None) -> str:
        # The deferred count includes tools loaded since.
        servers = Counter(tool.server for tool in self.index.tools if tool.server)
        return cannot(need, servers | self.deferred, nearest)


def _fitting_skill(need: Need, skills: Sequence[Skill], best: Candidate | None) -> Skill | None:
    """Find the skill whose words cover most of a need, if that is enough, and more than the tool
    that fits best covers.
    """
    by_spec = {skill_spec(skill): skill for skill in skills}
    hits = ToolSearchIndex(by_spec).search(need.query, _MAX_CANDIDATES) if skills else []
    best_likeness, spec = 0.0, None
    for hit in hits:
        likeness = _candidate(need, hit.tool, hit.explain(), 1.0).likeness
        if likeness > best_likeness:
            best_likeness, spec = likeness, hit.tool
    if spec is None or best_likeness < FITS:
        return None
    if best is not None and best_likeness <= best.confidence:
        return None
    return by_spec[spec]


def _failure(past: PastCall, name: str = "") -> str:
    reason = re.sub(r"^error:?\s*", "", past.result.strip(), flags=re.I)
    return f"`{name or _for_people(past.call.name)}` failed: {_cut(reason) or 'it gave no reason.'}"


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
