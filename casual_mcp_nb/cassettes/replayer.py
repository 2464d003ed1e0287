"""Play a cassette: answer requests to models and servers with the recorded answers."""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import json
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from casual_mcp_nb.cassettes.format import Cassette, ModelEntry, scrubbed
from casual_mcp_nb.cassettes.interaction import Interaction, Kind, Plain
from casual_mcp_nb.cassettes.state import MATCH_ON, MatchOn
from casual_mcp_nb.errors import CassetteMismatchError, shown

MAX_PAUSE = 10.0
"""The longest pause in seconds before something that is replayed."""
MAX_DIFF_LINES = 12
MAX_DIFF_LINE = 160
MAX_COMPARED = 200
"""Among how many recorded requests the closest one is looked for."""
MAX_NAMES = 8
MAX_MISMATCHES = 1_000
_NOT_COUNTED = ("turn", "approval", "resources", "prompts", "completion", "subscription", "nearest")
"""What a session asks for without the person, or does not need to ask for."""


class Replayer:
    """Answers a session's requests from a cassette.

    A request is answered with the first recorded one that is the same and was not played yet. If all of those were, with the
    last one again, so that a cell can be run twice. `pace` is how long pauses are, in relation to the recorded ones. `secrets`
    returns values that a request may have and the cassette does not. `mismatches` are errors about other requests, apart from
    those that a session makes without the person.
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
        self.mismatches: list[CassetteMismatchError] = []
        self.cassette = cassette
        self.name = name
        self._pace = pace
        self.match_on = frozenset(match_on)
        self._secrets = secrets
        self._left: dict[str, deque[Interaction]] = {}
        self._last: dict[str, Interaction] = {}
        self._unplayed: dict[int, Interaction] = {}
        for each in cassette.interactions:
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
        """The requests that were not made yet."""
        return list(self._unplayed.values())

    def model_name(self, name: str, model: str) -> str:
        """Find the name under which a model was recorded: its own, or that of another one with the same provider's name."""
        if name in self.models:
            return name
        return next((recorded for recorded, entry in self.models.items() if entry.model == model), name)

    def has(self, kind: Kind, **request: str) -> bool:
        """Check whether there is an interaction of a kind, whose request has these values."""
        return any(each.kind == kind and request.items() <= each.request.items() for each in self.cassette.interactions)

    def find(self, kind: Kind, request: Mapping[str, Plain]) -> Interaction | None:
        """Find the interaction that answers a request, which counts as played, or None if there is none."""
        key = self._key(kind, scrubbed(dict(request), self._secrets()))
        left = self._left.get(key)
        if left:
            self._last[key] = left.popleft()
            self._unplayed.pop(id(self._last[key]), None)
        return self._last.get(key)

    async def play(self, kind: Kind, request: Mapping[str, Plain], on_event: Callable[[Plain], None] = lambda _: None) -> Any:
        """Answer a request, at the pace of the recording; a CassetteMismatchError if it was not recorded."""
        interaction = self.find(kind, request)
        if interaction is None:
            mismatch = self._mismatch(kind, scrubbed(dict(request), self._secrets()))
            if kind not in _NOT_COUNTED and len(self.mismatches) < MAX_MISMATCHES:
                self.mismatches.append(mismatch)
            raise mismatch
        before, text, streamed = 0, _text_of(interaction), 0
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
        return interaction.answer()

    async def _pause(self, ms: int) -> None:
        await asyncio.sleep(min(max(ms, 0) / 1_000 * self._pace, MAX_PAUSE))

    def _key(self, kind: Kind, request: Mapping[str, Plain]) -> str:
        compared = self._compared(request) if kind == "model" else request
        text = json.dumps([kind, compared], sort_keys=True, default=str)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    def _compared(self, request: Mapping[str, Plain]) -> Mapping[str, Plain]:
        messages = request["messages"]
        system = [message for message in messages if message.get("role") == "system"]
        parts: Mapping[MatchOn, Plain] = {
            "model": request["model"],
            "system": system,
            "messages": [message for message in messages if message.get("role") != "system"],
            # In which order they are offered depends on which server was connected first.
            "tools": sorted((*request["tools"], *request.get("found", ())), key=lambda tool: str(tool["name"])),
        }
        return {part: value for part, value in parts.items() if part in self.match_on}

    def _mismatch(self, kind: Kind, request: Mapping[str, Plain]) -> CassetteMismatchError:
        recorded = [each for each in self.cassette.interactions if each.kind == kind]
        if kind == "model":
            what, difference = self._model_difference(request, recorded)
            hint = "To ignore this, leave it out of match_on. Otherwise record again: session.cassettes.use(path, mode='all')."
        else:
            what, difference = _call_difference(kind, request, recorded)
            hint = "Record again: session.cassettes.use(path, mode='all')."
        lines = f"\n{difference}\n" if difference else ""
        return CassetteMismatchError(
            f"{shown(self.name)} has no answer to this request: {what}.{lines}",
            difference=difference,
            hint=hint,
            server=request.get("server"),
            tool=request.get("tool"),
        )

    def _model_difference(self, request: Mapping[str, Plain], recorded: Sequence[Interaction]) -> tuple[str, str]:
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
        return _first_difference(self._compared(closest.request), live)


def _text_of(interaction: Interaction) -> str:
    if interaction.kind != "model" or not interaction.response:
        return ""
    content = interaction.response["message"].get("content", "")
    return content if isinstance(content, str) else ""


def _first_difference(recorded: Mapping[str, Plain], live: Mapping[str, Plain]) -> tuple[str, str]:
    """Describe the first part of a request that differs, and a diff of it."""
    if recorded.get("model") != live.get("model"):
        return "it goes to another model", _diff(str(recorded.get("model")), str(live.get("model")))
    if recorded.get("system") != live.get("system"):
        return "its system prompt differs", _diff(_text(recorded["system"]), _text(live["system"]))
    ours, theirs = live.get("messages", []), recorded.get("messages", [])
    for number, (one, other) in enumerate(zip(theirs, ours, strict=False), 1):
        if one != other:
            return f"message {number} ({_role(other)}) differs", _diff(_text(one), _text(other))
    if len(theirs) != len(ours):
        number = min(len(theirs), len(ours)) + 1
        extra = (ours if len(ours) > len(theirs) else theirs)[number - 1]
        what = f"message {number} ({_role(extra)}) is {'new' if len(ours) > len(theirs) else 'missing'}"
        return what, _diff("" if len(ours) > len(theirs) else _text(extra), _text(extra) if len(ours) > len(theirs) else "")
    before, now = ({tool["name"]: tool for tool in request.get("tools", [])} for request in (recorded, live))
    for name in dict.fromkeys((*before, *now)):
        if name not in now:
            return f"tool {shown(name)} is not offered any more", ""
        if name not in before:
            return f"tool {shown(name)} was not offered", ""
        if before[name] != now[name]:
            return f"the definition of tool {shown(name)} differs", _diff(_text(before[name]), _text(now[name]))
    return "the tools differ", ""


def _call_difference(kind: Kind, request: Mapping[str, Plain], recorded: Sequence[Interaction]) -> tuple[str, str]:
    server, tool = request.get("server"), request.get("tool")
    if kind != "call":
        named = str(request.get("uri") or request.get("name") or "")
        same = [each for each in recorded if each.request.get("server") == server]
        if kind == "prompt" and (got := [each for each in same if each.request["name"] == named]):
            closest = _closest(got, request)
            difference = _diff(_text(closest.request["arguments"]), _text(request["arguments"]))
            return f"prompt {shown(named)} of server {shown(str(server))} was read with other arguments", difference
        names = _names(str(each.request.get("uri") or each.request.get("name")) for each in same)
        return f"{shown(named)} of server {shown(str(server))} was not read, {names}", ""
    same = [each for each in recorded if (each.request["server"], each.request["tool"]) == (server, tool)]
    what = f"{shown(f'{server}:{tool}')}"
    if not same:
        names = _names(":".join((each.request["server"], each.request["tool"])) for each in recorded)
        return f"{what} was never called, {names}", ""
    closest = _closest(same, request)
    difference = _diff(_text(closest.request["arguments"]), _text(request["arguments"]))
    return f"{what} was called with other arguments", difference


def _closest(recorded: Sequence[Interaction], request: Mapping[str, Plain]) -> Interaction:
    """Find the recorded request whose arguments are most like those of a request."""
    arguments = _text(request["arguments"])[:500]
    return max(
        recorded[:MAX_COMPARED],
        key=lambda each: difflib.SequenceMatcher(None, _text(each.request["arguments"])[:500], arguments).ratio(),
    )


def _names(recorded: Iterable[str]) -> str:
    names = list(dict.fromkeys(recorded))
    if not names:
        return "nothing like it was recorded"
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return f"recorded: {', '.join(map(shown, names[:MAX_NAMES]))}{more}"


def _role(message: Mapping[str, Plain]) -> str:
    tool = message.get("tool")
    return f"result of {shown(str(tool))}" if tool else str(message.get("role"))


def _text(value: Plain) -> str:
    """Format a value as text to compare by lines."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(item, Mapping) and set(item) == {"role", "content"} for item in value):
        return "\n".join(_text(item["content"]) for item in value)
    if isinstance(value, Mapping) and isinstance(value.get("content"), str) and not value.get("calls"):
        return str(value["content"])
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def _diff(recorded: str, live: str) -> str:
    """Format the first lines of a diff, cut and without characters that a terminal would obey."""
    before, now = recorded.splitlines(), live.splitlines()
    same = 0
    while same < min(len(before), len(now)) and before[same] == now[same]:
        same += 1
    # Comparing many lines takes long; those after the first difference are enough.
    before, now = before[max(0, same - 1) : same + 50], now[max(0, same - 1) : same + 50]
    lines = list(difflib.unified_diff(before, now, n=1, lineterm=""))[3:]
    cut = [_cut(line, before, now) for line in lines[:MAX_DIFF_LINES]]
    return "\n".join([*cut, *(["…"] if len(lines) > MAX_DIFF_LINES else [])])


def _cut(line: str, before: Sequence[str], now: Sequence[str]) -> str:
    if len(line) > MAX_DIFF_LINE:
        # Of long lines, what is around the difference.
        pairs: Iterator[tuple[str, str]] = zip(before, now, strict=False)
        at = next((_first(one, other) for one, other in pairs if one != other), 0)
        start = max(0, min(at - MAX_DIFF_LINE // 3, len(line) - MAX_DIFF_LINE))
        line = f"{line[0]}{'…' if start else ''}{line[start + 1 : start + MAX_DIFF_LINE]}…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def _first(one: str, other: str) -> int:
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
