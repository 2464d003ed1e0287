"""Answer a session's requests to models and servers with the recorded answers."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.content import ToolResult
from casual_mcp_nb.base.iterables import all_are
from casual_mcp_nb.base.mcp import TaskReport
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.cassettes import FOLLOWED, MATCH_ON, Kind, MatchOn, Plain
from casual_mcp_nb.cassettes.exchanges import call_request
from casual_mcp_nb.cassettes.format import Cassette, ModelEntry, scrubbed
from casual_mcp_nb.cassettes.interaction import Interaction
from casual_mcp_nb.cassettes.mismatch import call_difference, first_difference
from casual_mcp_nb.cassettes.tape import Model, Models, Tape
from casual_mcp_nb.conversation.event import CALL_TOOL, PACKAGE_TOOLS, RUN_CODE
from casual_mcp_nb.errors import CassetteMismatchError, shown

MAX_PAUSE = 10.0
"""The longest pause in a replay, in seconds."""
MAX_MISMATCHES = 1_000
_NOT_COUNTED = (
    "turn",
    "approval",
    "resources",
    "prompts",
    "completion",
    "subscription",
    "nearest",
    "program",
    "tasks",
    "app",
    "listed",
)
"""Kinds of request that a session makes without the person, or may leave out."""


class Replayer(Tape):
    """Answers a session's requests from a cassette.

    A request is answered with the first equal one that was not played yet. If all were, with the
    last one again, so that a cell can be run twice. `pace` scales the recorded pauses. `secrets`
    returns values that a request may have and the cassette does not. `mismatches` are errors about
    other requests, except those that a session makes without the person.
    """

    replays: Literal[True] = True

    def __init__(
        self,
        cassette: Cassette,
        name: str,
        *,
        pace: float = 0.0,
        match_on: Collection[MatchOn] = MATCH_ON,
        secrets: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self.strict = False
        self.how_to_record = "session.cassettes.use(path, mode='all')"
        self.mismatches: list[CassetteMismatchError] = []
        self.cassette = cassette
        self.name = name
        self._pace = pace
        self.match_on = frozenset(match_on)
        self._secrets = secrets
        self._left: dict[str, deque[Interaction]] = {}
        self._last: dict[str, Interaction] = {}
        self._unplayed: dict[int, Interaction] = {}
        self._results: dict[str, list[str]] | None = None
        self._listed: dict[int, list[Interaction]] = {}
        self._tools: dict[str, tuple[ToolSpec, ...]] = {}
        self._on_tools: dict[str, Callable[[tuple[ToolSpec, ...]], None]] = {}
        before: Interaction | None = None
        for each in cassette.interactions:
            if each.kind in FOLLOWED:
                before = each
            elif each.kind == "listed" and before is not None:
                self._listed.setdefault(id(before), []).append(each)
            self._left.setdefault(self._key(each.kind, each.request), deque()).append(each)
            if each.kind not in _NOT_COUNTED:
                self._unplayed[id(each)] = each

    def __len__(self) -> int:
        return sum(each.kind not in _NOT_COUNTED for each in self.cassette.interactions)

    @property
    def models(self) -> Mapping[str, ModelEntry]:
        """The models, by name."""
        return self.cassette.models

    @property
    def unplayed(self) -> list[Interaction]:
        """Recorded requests that were not made yet."""
        return list(self._unplayed.values())

    def model_name(self, name: str, model: str) -> str:
        """Find the name under which a model was recorded: its own, or another model's with the same
        provider name.
        """
        if name in self.models:
            return name
        for recorded, entry in self.models.items():
            if entry.model == model:
                return recorded
        return name

    def has(self, kind: Kind, **request: Plain) -> bool:
        """Check whether there is an interaction of this kind, whose request has these values."""
        for each in self.cassette.interactions:
            if each.kind == kind and request.items() <= each.request.items():
                return True
        return False

    def find(self, kind: Kind, request: Mapping[str, Plain]) -> Interaction | None:
        """Find the interaction that answers a request, which counts as played, or None if there is
        none.
        """
        key = self._key(kind, scrubbed(dict(request), self._secrets()))
        left = self._left.get(key)
        if left:
            self._last[key] = left.popleft()
            self._unplayed.pop(id(self._last[key]), None)
        return self._last.get(key)

    async def play(
        self,
        kind: Kind,
        request: Mapping[str, Plain],
        on_event: Callable[[Plain], None] = ignore,
    ) -> Any:
        """Answer a request, at the recording's pace.

        A CassetteMismatchError if it was not recorded.
        """
        interaction = self.find(kind, request)
        if interaction is None:
            mismatch = self._mismatch(kind, scrubbed(dict(request), self._secrets()))
            if kind not in _NOT_COUNTED and len(self.mismatches) < MAX_MISMATCHES:
                self.mismatches.append(mismatch)
            raise mismatch
        before = streamed = 0
        text = _text_of(interaction)
        for number, event in enumerate(interaction.events):
            at = interaction.pace[number] if number < len(interaction.pace) else before
            await self._pause(at - before)
            before = at
            if isinstance(event, int):
                on_event(text[streamed : streamed + event])
                streamed += event
            else:
                on_event(event)
        if len(interaction.pace) > len(interaction.events):
            await self._pause(interaction.pace[-1] - before)
        self._list_after(interaction)
        return interaction.answer(request)

    def skip(self, interactions: Iterable[Interaction]) -> None:
        """Count interactions as played, whose requests a replay does not make."""
        for each in interactions:
            self.find(each.kind, each.request)
            self._list_after(each)

    def follow(
        self, server: str, on_tools: Callable[[tuple[ToolSpec, ...]], None]
    ) -> tuple[ToolSpec, ...] | None:
        """Call a function with a server's tools whenever they have changed.

        Returns:
            The tools, if they have changed already.
        """
        self._on_tools[server] = on_tools
        return self._tools.get(server)

    def _list_after(self, interaction: Interaction) -> None:
        for listed in self._listed.get(id(interaction), ()):
            self._list(str(listed.request["server"]), listed.answer())

    def _list(self, server: str, tools: tuple[ToolSpec, ...]) -> None:
        self._tools[server] = tools
        if server in self._on_tools:
            self._on_tools[server](tools)

    def texts_after(
        self, messages: Iterable[Mapping[str, Plain]], tools: Iterable[Mapping[str, Plain]]
    ) -> Sequence[str]:
        """List the texts of the results that followed a model's calls in the recording."""
        if self._results is None:
            self._results = _results_in(self.cassette.interactions)
        key, secrets = "", [*self._secrets()]
        for message in messages:
            if message["role"] != "system":
                key = _chained(key, scrubbed(dict(message), secrets))
        return self._results.get(_way_to_call(tools) + key) or self._results.get(key, [])

    async def model(self, models: Models[Model], name: Any) -> Model:
        """Get a model that the cassette answers in place of."""
        return await models.taped(name, self)

    def was_called(self, server: str, tool: str, arguments: Mapping[str, Plain]) -> bool:
        """Check whether a tool was called with these arguments in the recording."""
        return self.has("call", **call_request(server, tool, arguments))

    def stub_answered(
        self, server: str, tool: str, arguments: Mapping[str, Plain], result: ToolResult
    ) -> None:
        """Count the stub's recorded answer as played."""
        self.find("call", call_request(server, tool, arguments))

    def nearest(self, query: str) -> Mapping[str, float]:
        """Find the recorded tools that are nearest in meaning, or none."""
        recorded = self.find("nearest", {"query": query})
        if recorded is None:
            return {}
        nearest: Mapping[str, float] = recorded.answer()
        return nearest

    def program_start(self, code: str) -> Mapping[str, Plain] | None:
        """Find a program's recorded clock and seed."""
        recorded = self.find("program", {"code": code})
        if recorded is None:
            return None
        start: Mapping[str, Plain] = recorded.answer()
        return start

    def task_reports(self, after: int) -> Sequence[TaskReport]:
        """List the recorded ends of tasks, or none."""
        recorded = self.find("tasks", {"after": after})
        if recorded is None:
            return ()
        reports: Sequence[TaskReport] = recorded.answer()
        return reports

    async def _pause(self, ms: int) -> None:
        await asyncio.sleep(min(max(ms, 0) / 1_000 * self._pace, MAX_PAUSE))

    def _key(self, kind: Kind, request: Mapping[str, Plain]) -> str:
        compared = self._compared(request) if kind == "model" else request
        text = json.dumps([kind, compared], sort_keys=True, default=str)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    def _compared(self, request: Mapping[str, Plain]) -> Mapping[str, Plain]:
        system, messages = [], []
        for message in request["messages"]:
            if message.get("role") == "system":
                system.append(message)
            else:
                messages.append(message)
        parts: Mapping[MatchOn, Plain] = {
            "model": request["model"],
            "system": system,
            "messages": messages,
            # In which order they are offered depends on which server was connected first.
            "tools": sorted(_tools_of_others(request), key=_name_of),
        }
        return {part: value for part, value in parts.items() if part in self.match_on}

    def _mismatch(self, kind: Kind, request: Mapping[str, Plain]) -> CassetteMismatchError:
        recorded = [each for each in self.cassette.interactions if each.kind == kind]
        if kind == "model":
            what, difference = self._model_difference(request, recorded)
            hint = "To ignore this, leave it out of match_on. Otherwise record again"
        else:
            what, difference = call_difference(kind, request, recorded)
            hint = "Record again"
        lines = f"\n{difference}\n" if difference else ""
        return CassetteMismatchError(
            f"{shown(self.name)} has no answer to this request: {what}.{lines}",
            difference=difference,
            hint=f"{hint}: {self.how_to_record}.",
            server=request.get("server"),
            tool=request.get("tool"),
        )

    def _model_difference(
        self, request: Mapping[str, Plain], recorded: Sequence[Interaction]
    ) -> tuple[str, str]:
        if not recorded:
            return "no request to a model was recorded", ""
        live = self._compared(request)

        def likeness(each: Interaction) -> tuple[int, bool]:
            theirs = self._compared(each.request).get("messages", [])
            same = 0
            for one, other in zip(theirs, live.get("messages", []), strict=False):
                if one != other:
                    break
                same += 1
            return same, id(each) in self._unplayed

        closest = max(recorded, key=likeness)
        return first_difference(self._compared(closest.request), live)


def _tools_of_others(request: Mapping[str, Plain]) -> Iterator[Mapping[str, Plain]]:
    """Yield the definitions in a request, except those of this package's tools: their texts are
    another release's.
    """
    for tool in (*request["tools"], *request.get("found", ())):
        if tool["name"] not in PACKAGE_TOOLS:
            yield tool


def _name_of(tool: Mapping[str, Plain]) -> str:
    return str(tool["name"])


def _results_in(interactions: Iterable[Interaction]) -> dict[str, list[str]]:
    """Collect the texts of all results, by the messages before them, and by the way to call tools
    and these messages.
    """
    results: dict[str, list[str]] = {}
    # Requests share the messages that they have in common.
    chained: dict[tuple[str, int], str] = {}
    for each in interactions:
        if each.kind != "model":
            continue
        key, way = "", _way_to_call(each.request["tools"])
        messages = [each for each in each.request["messages"] if each.get("role") != "system"]
        for number, message in enumerate(messages, start=1):
            known = chained.get((key, id(message)))
            if known is None:
                known = chained[key, id(message)] = _chained(key, message)
            key = known
            calls = message.get("calls", ())
            answers = messages[number : number + len(calls)]
            texts = [each.get("content", "") for each in answers if each.get("role") == "tool"]
            are_texts = all_are(texts, str)
            if calls and len(texts) == len(calls) and are_texts:
                # A later request may have edited ones.
                results.setdefault(key, texts)
                results.setdefault(way + key, texts)
    return results


def _way_to_call(tools: Iterable[Mapping[str, Plain]]) -> str:
    """Name the tool through which a request's model calls those that it finds.

    Searches tell it to, so their texts differ.
    """
    for tool in tools:
        if tool["name"] in (CALL_TOOL, RUN_CODE):
            return f"{tool['name']} "
    return "by name "


def _chained(key: str, message: Mapping[str, Plain]) -> str:
    text = json.dumps(message, sort_keys=True, default=str)
    return hashlib.sha256(f"{key}\n{text}".encode("utf-8", "surrogatepass")).hexdigest()


def _text_of(interaction: Interaction) -> str:
    if interaction.kind != "model" or not interaction.response:
        return ""
    content = interaction.response["message"].get("content", "")
    if not isinstance(content, str):
        return ""
    return content
