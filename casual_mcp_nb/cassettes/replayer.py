"""Record a cassette while a session runs, and answer requests to models and servers with the
recorded answers.
"""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import json
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic_core import to_jsonable_python

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.status import ServerStatus
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.cassettes import MATCH_ON, Kind, MatchOn, Plain
from casual_mcp_nb.cassettes.format import Cassette, ModelEntry, ServerEntry, SessionEntry, scrubbed
from casual_mcp_nb.cassettes.interaction import (
    Interaction,
    model_response,
    plain_error,
    plain_tools,
    turn_request,
)
from casual_mcp_nb.conversation.event import CALL_TOOL, PACKAGE_TOOLS, RUN_CODE, TurnStarted
from casual_mcp_nb.conversation.step import ModelResponse
from casual_mcp_nb.errors import CassetteMismatchError, CasualMcpError, shown

MERGE_MS = 40
"""Chunks of text that arrive within this time count as one, as on the screen."""

OPTIONS = (
    "defer_loading",
    "always_load",
    "include_tools",
    "exclude_tools",
    "instructions",
    "approval",
    "max_result_tokens",
    "pin_tools",
    "enabled",
    "apps",
)
"""Server settings that decide how it is used, and contain neither an address nor a secret."""


def entry_of(server: Any) -> ServerEntry:
    """Build a cassette's entry for a server, as it is now."""
    return entry_from(server.config, server.status, server.tools, server.instructions)


def entry_from(
    config: ServerConfig | None, status: ServerStatus, tools: Iterable[ToolSpec], instructions: str
) -> ServerEntry:
    """Build a cassette's entry for a server. One that was added may have no config."""
    entry = ServerEntry(
        tools=tuple(tools),
        version=status.version,
        protocol_version=status.protocol_version,
        instructions=instructions,
        capabilities=status.capabilities,
        error=status.error,
    )
    if config is not None:
        entry.way = "url" if config.url else "command"
        if config.bundled:
            entry.way, entry.bundled = "bundled", config.bundled
        options = config.model_dump(include=set(OPTIONS), exclude_defaults=True)
        entry.options = to_jsonable_python(options)
    return entry


class Recording:
    """An interaction being recorded. It joins the cassette once it has ended."""

    def __init__(
        self, interaction: Interaction, began: float, ended: Callable[[Recording], None]
    ) -> None:
        self.interaction = interaction
        self._began = began
        self._ended = ended

    @property
    def _ms(self) -> int:
        return max(0, round((time.monotonic() - self._began) * 1_000))

    def event(self, event: Plain) -> None:
        """Record something that happened before the answer: a chunk of text, progress, a log
        line.
        """
        events, pace, now = self.interaction.events, self.interaction.pace, self._ms
        is_text = isinstance(event, str) and bool(events) and isinstance(events[-1], str)
        if is_text and now - pace[-1] < MERGE_MS:
            events[-1] += event
            return
        events.append(event)
        pace.append(now)

    def done(self, response: Plain) -> None:
        """Record the answer."""
        self.interaction.response = response
        self._end()

    def answered(self, response: ModelResponse) -> None:
        """Record a model's answer."""
        events, content = self.interaction.events, response.message.content
        if "".join(event for event in events if isinstance(event, str)) == content:
            # The text itself is in the answer.
            events[:] = [len(event) if isinstance(event, str) else event for event in events]
        self.done(model_response(response))

    def failed(self, error: BaseException) -> None:
        """Record an error, if it is one that a replay can raise.

        Otherwise, the request does not count.
        """
        if isinstance(error, CasualMcpError):
            self.interaction.error = plain_error(error)
            self._end()
        else:
            self._ended(self)

    def _end(self) -> None:
        self.interaction.pace.append(self._ms)
        self._ended(self)


class Recorder:
    """Records a session's requests to models and servers, and their answers."""

    replays: Literal[False] = False

    def __init__(self, session: SessionEntry) -> None:
        self.models: dict[str, ModelEntry] = {}
        self._session = session
        self._servers: dict[str, ServerEntry] = {}
        self._live: dict[str, Any] = {}
        self._versions: dict[str, str] = {}
        self._interactions: list[Interaction] = []
        self._running: list[Recording] = []

    def __len__(self) -> int:
        return sum(each.kind != "turn" for each in self._finished())

    def add(self, server: Any) -> None:
        """Record a server as it is now."""
        self._live[server.name] = server
        self._servers[server.name] = self._entry(server)
        self._versions[server.name] = server.tools_version

    def start(self, kind: Kind, request: dict[str, Plain]) -> Recording:
        """Record a request."""
        interaction = Interaction(kind, request)
        self._interactions.append(interaction)
        recording = Recording(interaction, time.monotonic(), self._running.remove)
        self._running.append(recording)
        return recording

    def turn(
        self,
        started: TurnStarted,
        system: str,
        after: int,
        selection: Mapping[str, Plain],
        options: Mapping[str, Plain],
        servers: Iterable[str],
    ) -> None:
        """Record the person's request, and the settings that differ from the session when the
        recording began.
        """
        if self._session.system is None:
            self._session.system = system
        request = turn_request(started, system if system != self._session.system else None)
        before = self._session.selection
        chosen = {name: value for name, value in selection.items() if value != before.get(name)}
        request["after"] = after
        if chosen:
            request["selection"] = chosen
        if options:
            request["options"] = options
        present = set(servers)
        if present != {name for name, entry in self._servers.items() if not entry.added}:
            request["servers"] = sorted(present)
        if started.recorded:
            request["recorded"] = started.recorded
        self._interactions.append(Interaction("turn", request))

    def log(self, server: str, event: Mapping[str, Plain]) -> None:
        """Record a server's message while it runs a call."""
        for recording in self._running:
            interaction = recording.interaction
            if interaction.kind == "call" and interaction.request["server"] == server:
                recording.event(event)
                return

    def saw(self, server: Any) -> None:
        """Record a server's tools as they are now, if they have changed.

        The list before the first request to a model and the first call belongs to the server, and
        so does the first one of a server that was added. A later one has its place among the
        requests: another turn may come in between, and the server may have ended since.
        """
        name, version = server.name, server.tools_version
        if self._versions.get(name) == version:
            return
        self._versions[name] = version
        before = self._servers[name]
        first_list = before.added and not before.tools
        if first_list or not any(each.kind in _FOLLOWED for each in self._interactions):
            self._servers[name] = self._entry(server)
        else:
            tools = plain_tools(server.tools)
            self._interactions.append(Interaction("listed", {"server": name}, tools))

    def cassette(self) -> Cassette:
        """Build the cassette as it is now, without unanswered requests."""
        return Cassette(
            list(self._finished()),
            dict(map(self._as_it_is, self._servers)),
            dict(self.models),
            self._session,
        )

    def _entry(self, server: Any) -> ServerEntry:
        """Build a server's entry as it is now, marked if the server came only after the first model
        request.
        """
        entry, before = entry_of(server), self._servers.get(server.name)
        if before is not None:
            entry.added = before.added
        else:
            entry.added = any(each.kind == "model" for each in self._interactions)
        return entry

    def _as_it_is(self, name: str) -> tuple[str, ServerEntry]:
        """Update an entry from its server once that is connected, even without tools."""
        entry, now = self._servers[name], entry_of(self._live[name])
        if self._live[name].status.state not in ("ready", "failed"):
            # It has not been connected, or not any more.
            return name, entry
        fields = ("version", "protocol_version", "instructions", "capabilities", "error")
        return name, replace(entry, **{field: getattr(now, field) for field in fields})

    def _finished(self) -> Iterable[Interaction]:
        return [
            each
            for each in self._interactions
            if each.kind == "turn" or each.response is not None or each.error
        ]


MAX_PAUSE = 10.0
"""The longest pause in a replay, in seconds."""
MAX_DIFF_LINES = 12
MAX_DIFF_LINE = 160
MAX_COMPARED = 200
"""How many recorded requests are compared to find the closest one."""
MAX_NAMES = 8
MAX_MISMATCHES = 1_000
_NOT_COUNTED = (
    *("turn", "approval", "resources", "prompts", "completion", "subscription", "nearest"),
    *("program", "tasks", "app", "listed"),
)
"""Kinds of request that a session makes without the person, or may leave out."""
_FOLLOWED = ("model", "call")
"""Kinds of request after which a server's changed tools are there in a replay."""


class Replayer:
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
            if each.kind in _FOLLOWED:
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

    def has(self, kind: Kind, **request: str) -> bool:
        """Check whether there is an interaction of this kind, whose request has these values."""
        return any(
            each.kind == kind and request.items() <= each.request.items()
            for each in self.cassette.interactions
        )

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
        for listed in self._listed.get(id(interaction), ()):
            self._list(str(listed.request["server"]), listed.answer())
        return interaction.answer(request)

    def follow(
        self, server: str, on_tools: Callable[[tuple[ToolSpec, ...]], None]
    ) -> tuple[ToolSpec, ...] | None:
        """Call a function with a server's tools whenever they have changed.

        Returns:
            The tools, if they have changed already.
        """
        self._on_tools[server] = on_tools
        return self._tools.get(server)

    def _list(self, server: str, tools: tuple[ToolSpec, ...]) -> None:
        self._tools[server] = tools
        if server in self._on_tools:
            self._on_tools[server](tools)

    def results_after(
        self, messages: Iterable[Mapping[str, Plain]], tools: Iterable[Mapping[str, Plain]]
    ) -> list[str]:
        """List the texts of the results that followed a model's calls in the recording, in the
        calls' order.

        Args:
            messages: A request's messages and the answer with the calls, as plain values.
            tools: The request's tools. Results for the same way to call tools are preferred.

        Returns:
            Nothing where that was not recorded, or where a result is more than a text.
        """
        if self._results is None:
            self._results = _results_in(self.cassette.interactions)
        key, secrets = "", [*self._secrets()]
        for message in messages:
            if message["role"] != "system":
                key = _chained(key, scrubbed(dict(message), secrets))
        return self._results.get(_way_to_call(tools) + key) or self._results.get(key, [])

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
            "tools": sorted(_tools_of_others(request), key=lambda tool: str(tool["name"])),
        }
        return {part: value for part, value in parts.items() if part in self.match_on}

    def _mismatch(self, kind: Kind, request: Mapping[str, Plain]) -> CassetteMismatchError:
        recorded = [each for each in self.cassette.interactions if each.kind == kind]
        if kind == "model":
            what, difference = self._model_difference(request, recorded)
            hint = (
                "To ignore this, leave it out of match_on. Otherwise record again:"
                f" {self.how_to_record}."
            )
        else:
            what, difference = _call_difference(kind, request, recorded)
            hint = f"Record again: {self.how_to_record}."
        lines = f"\n{difference}\n" if difference else ""
        return CassetteMismatchError(
            f"{shown(self.name)} has no answer to this request: {what}.{lines}",
            difference=difference,
            hint=hint,
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
        return _first_difference(self._compared(closest.request), live)


def _tools_of_others(request: Mapping[str, Plain]) -> Iterator[Mapping[str, Plain]]:
    """Yield the definitions in a request, except those of this package's tools: their texts are
    another release's.
    """
    for tool in (*request["tools"], *request.get("found", ())):
        if tool["name"] not in PACKAGE_TOOLS:
            yield tool


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
            if calls and len(texts) == len(calls) and all(map(_is_text, texts)):
                # A later request may have edited ones.
                results.setdefault(key, texts)
                results.setdefault(way + key, texts)
    return results


def _is_text(value: Plain) -> bool:
    return isinstance(value, str)


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
    return content if isinstance(content, str) else ""


def _first_difference(recorded: Mapping[str, Plain], live: Mapping[str, Plain]) -> tuple[str, str]:
    """Describe the first part in which a request differs, with a diff."""
    if recorded.get("model") != live.get("model"):
        return "it goes to another model", _diff(str(recorded.get("model")), str(live.get("model")))
    if recorded.get("system") != live.get("system"):
        return "its system prompt differs", _diff(_text(recorded["system"]), _text(live["system"]))
    ours, theirs = live.get("messages", []), recorded.get("messages", [])
    for number, (one, other) in enumerate(zip(theirs, ours, strict=False), 1):
        if one != other:
            return f"message {number} ({_role(other)}) differs", _diff(_text(one), _text(other))
    number = min(len(theirs), len(ours))
    if len(ours) > number:
        new = ours[number]
        return f"message {number + 1} ({_role(new)}) is new", _diff("", _text(new))
    if len(theirs) > number:
        old = theirs[number]
        return f"message {number + 1} ({_role(old)}) is missing", _diff(_text(old), "")
    before = {tool["name"]: tool for tool in recorded.get("tools", [])}
    now = {tool["name"]: tool for tool in live.get("tools", [])}
    for name in dict.fromkeys((*before, *now)):
        if name not in now:
            return f"tool {shown(name)} is not offered any more", ""
        if name not in before:
            return f"tool {shown(name)} was not offered", ""
        if before[name] != now[name]:
            difference = _diff(_text(before[name]), _text(now[name]))
            return f"the definition of tool {shown(name)} differs", difference
    return "the tools differ", ""


def _call_difference(
    kind: Kind, request: Mapping[str, Plain], recorded: Sequence[Interaction]
) -> tuple[str, str]:
    server, tool = request.get("server"), request.get("tool")
    if kind != "call":
        named = str(request.get("uri") or request.get("name") or "")
        of_server = f"{shown(named)} of server {shown(str(server))}"
        same = [each for each in recorded if each.request.get("server") == server]
        got = [each for each in same if each.request.get("name") == named]
        if kind == "prompt" and got:
            difference = _arguments_difference(got, request)
            return f"prompt {of_server} was read with other arguments", difference
        names = _names(str(each.request.get("uri") or each.request.get("name")) for each in same)
        return f"{of_server} was not read, {names}", ""
    what = shown(f"{server}:{tool}")
    called = [f"{each.request['server']}:{each.request['tool']}" for each in recorded]
    same = [each for each, name in zip(recorded, called, strict=True) if name == f"{server}:{tool}"]
    if not same:
        return f"{what} was never called, {_names(called)}", ""
    return f"{what} was called with other arguments", _arguments_difference(same, request)


def _arguments_difference(recorded: Sequence[Interaction], request: Mapping[str, Plain]) -> str:
    closest = _closest(recorded, request)
    return _diff(_text(closest.request["arguments"]), _text(request["arguments"]))


def _closest(recorded: Sequence[Interaction], request: Mapping[str, Plain]) -> Interaction:
    """Find the recorded request whose arguments are most like a request's."""
    arguments = _text(request["arguments"])[:500]

    def likeness(each: Interaction) -> float:
        theirs = _text(each.request["arguments"])[:500]
        return difflib.SequenceMatcher(None, theirs, arguments).ratio()

    return max(recorded[:MAX_COMPARED], key=likeness)


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
    if isinstance(value, list) and all(
        isinstance(item, Mapping) and set(item) == {"role", "content"} for item in value
    ):
        return "\n".join(_text(item["content"]) for item in value)
    if isinstance(value, Mapping) and not value.get("calls"):
        content = value.get("content")
        if isinstance(content, str):
            return content
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def _diff(recorded: str, live: str) -> str:
    """Format a diff's first lines, cut and without characters that a terminal would obey."""
    before, now = recorded.splitlines(), live.splitlines()
    same = 0
    while same < min(len(before), len(now)) and before[same] == now[same]:
        same += 1
    # Comparing many lines takes long; those after the first difference are enough.
    before, now = before[max(0, same - 1) : same + 50], now[max(0, same - 1) : same + 50]
    lines = list(difflib.unified_diff(before, now, n=1, lineterm=""))[3:]
    cut = [_cut(line, before, now) for line in lines[:MAX_DIFF_LINES]]
    if len(lines) > MAX_DIFF_LINES:
        cut.append("…")
    return "\n".join(cut)


def _cut(line: str, before: Sequence[str], now: Sequence[str]) -> str:
    if len(line) > MAX_DIFF_LINE:
        # From long lines, only the part around the difference.
        pairs: Iterator[tuple[str, str]] = zip(before, now, strict=False)
        at = next((_first(one, other) for one, other in pairs if one != other), 0)
        start = max(0, min(at - MAX_DIFF_LINE // 3, len(line) - MAX_DIFF_LINE))
        before_it = "…" if start else ""
        line = f"{line[0]}{before_it}{line[start + 1 : start + MAX_DIFF_LINE]}…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def _first(one: str, other: str) -> int:
    for number, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return number
    return min(len(one), len(other))
