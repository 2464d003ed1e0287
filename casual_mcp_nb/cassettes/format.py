"""The cassette: models' and MCP servers' answers in one file, which can be played without them.

A document has a `format`, a `version`, the recorded `session`, its `models` and `servers`, the
offered tools' `definitions`, and the `interactions` in the order in which they began. An
interaction has a `kind`, a `request`, a `response` or an `error`, earlier `events`, and a `pace`:
when each of these happened, in milliseconds, the response last. A model request keeps the first
`keep` messages of the previous one and its answer, and has only the `messages` after these. It has
`tools` only if they changed. Nothing in it is run, imported, rendered or opened.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from casual_mcp_nb.base.content import HANDLE_NOTE
from casual_mcp_nb.base.files import write_text
from casual_mcp_nb.base.iterables import all_are
from casual_mcp_nb.base.tool import ToolSpec, by_server
from casual_mcp_nb.cassettes import Kind, Plain
from casual_mcp_nb.cassettes.exchanges import call_request
from casual_mcp_nb.cassettes.interaction import (
    Interaction,
    checked_event,
    checked_message,
    checked_turn,
    model_request,
    model_response,
    plain_result,
    plain_tool,
    progress_event,
    read_error,
    read_tools,
    turn_request,
)
from casual_mcp_nb.conversation.codec import (
    CASSETTE,
    NEWER,
    PlainLimits,
    dump_value,
    load_value,
    plain,
)
from casual_mcp_nb.conversation.event import (
    SYNTHETIC,
    UNKNOWN,
    StepFinished,
    StepStarted,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)
from casual_mcp_nb.conversation.step import ModelResponse
from casual_mcp_nb.errors import CassetteError, ServerError, shown

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.conversation.conversation import ConversationHead
    from casual_mcp_nb.conversation.turn import Turn


ELEMENT_ID = "cassette"
"""The id for the HTML element that contains a cassette."""
MAX_DEPTH = 150
"""How deeply lists and objects may nest in the file."""
MAX_LINE = 120
"""A list or object up to this length is written on one line."""


def scrubbed(value: Plain, secrets: Iterable[str]) -> Plain:
    """Mask the secrets in a JSON value, even in keys and numbers.

    Values that JSON lacks, or nested too deep, become text.
    """
    return plain(value, PlainLimits(depth=MAX_DEPTH), secrets)


def pretty(value: Plain, indent: str = "") -> str:
    """Format JSON with short lists and objects, and lists of numbers, on one line."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    if not isinstance(value, dict | list) or len(text) + len(indent) <= MAX_LINE:
        return text
    deeper = f"{indent}  "
    if isinstance(value, list):
        if all_are(value, int | float):
            return text
        items = [f"{deeper}{pretty(item, deeper)}" for item in value]
        return "[\n" + ",\n".join(items) + f"\n{indent}]"
    items = []
    for key, item in value.items():
        name = json.dumps(str(key), ensure_ascii=False)
        items.append(f"{deeper}{name}: {pretty(item, deeper)}")
    return "{\n" + ",\n".join(items) + f"\n{indent}}}"


class _Element(HTMLParser):
    """Extracts the cassette element's text from an HTML file."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.text: list[str] = []
        self._inside = self.seen = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "script" and dict(attrs).get("id") == ELEMENT_ID and not self.seen:
            self._inside = self.seen = True

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.text.append(data)


def element_of(data: bytes, file: Path) -> bytes:
    """Extract the cassette element's text from an HTML file."""
    parser = _Element()
    parser.feed(data.decode("utf-8", "replace"))
    parser.close()
    if not parser.seen:
        raise CassetteError(
            f"{shown(file)} has no cassette in it.",
            hint="Use a page that session.export(path, player=True) wrote, or a .json file.",
        )
    return "".join(parser.text).encode()


MAX_BYTES = 200_000_000
MAX_MESSAGES = 1_000_000
"""How many messages a cassette's requests may have in total."""
Way = Literal["bundled", "command", "url", "in-process"]
"""How a server was reached, which decides when the person is asked."""


@dataclass(eq=False)
class ServerEntry:
    """A server in a cassette: tools, resources, prompts, and the settings that decide how it is
    used.

    `options` are settings that are neither an address nor a secret, such as `defer_loading`. An
    `added` server came after the first model request, so that a replay begins without it.
    """

    way: Way = "in-process"
    bundled: str = ""
    options: Mapping[str, Plain] = field(default_factory=dict)
    tools: tuple[ToolSpec, ...] = ()
    version: str | None = None
    protocol_version: str | None = None
    instructions: str = ""
    capabilities: tuple[str, ...] = ()
    error: str | None = None
    added: bool = False


@dataclass(eq=False)
class SessionEntry:
    """The recorded session, with its selection when the recording began.

    The system prompt is without the servers' instructions. For `strict` and `approval` see
    `Session`.
    """

    model: str | None = None
    system: str | None = None
    selection: Mapping[str, Plain] = field(default_factory=dict)
    tool_sets: Mapping[str, Plain] = field(default_factory=dict)
    strict: bool = False
    max_result_tokens: int | None = None
    approval: Mapping[str, Plain] = field(default_factory=dict)


@dataclass(eq=False)
class ModelEntry:
    """A model in a cassette: the provider's name for it, its client's name, and its request
    options, without headers.
    """

    model: str
    client: str
    provider: str
    context_window: int | None = None
    defers_natively: bool = False
    options: Mapping[str, Plain] = field(default_factory=dict)
    price: Mapping[str, Plain] = field(default_factory=dict)


@dataclass(eq=False)
class Cassette:
    """Recorded answers from models and servers, in the order in which the requests began."""

    interactions: Sequence[Interaction] = ()
    servers: Mapping[str, ServerEntry] = field(default_factory=dict)
    models: Mapping[str, ModelEntry] = field(default_factory=dict)
    session: SessionEntry = field(default_factory=SessionEntry)

    @property
    def turns(self) -> list[dict[str, Plain]]:
        """The person's requests, turn by turn: `messages`, `model`, `tool_set`, `system`, `after`,
        `selection`, `options`.
        """
        return [each.request for each in self.interactions if each.kind == "turn"]

    @classmethod
    def from_conversation(
        cls,
        conversation: Iterable[Turn],
        tools: Iterable[ToolSpec] = (),
        head: ConversationHead | None = None,
    ) -> Cassette:
        """Build a cassette from the traces of turns that were not recorded.

        Traces, and so the cassette, have large results only as far as the model read them.
        """
        models: dict[str, ModelEntry] = {}
        interactions: list[Interaction] = []
        system: str | None = None
        after = 0
        for turn in conversation:
            started, before = turn.started, after
            after += len(turn.messages)
            if turn.added:
                # What comes after it has its messages.
                continue
            interactions += _interactions_of(turn, before)
            native = False
            for step in turn.trace.of(StepStarted):
                native = native or step.request.delivery == "native"
                system = system or _system_prompt(step.request.messages)
            name, provider = started.model, started.provider or "replay"
            models.setdefault(name, ModelEntry(name, provider, provider, defers_natively=native))
        servers = {name: ServerEntry(tools=specs) for name, specs in by_server(tools).items()}
        session = SessionEntry(next(iter(models), None), system)
        if head is not None:
            session.model = head.model or session.model
            session.selection = dict(head.selection)
        return cls(interactions, servers, models, session)

    def to_json(self, secrets: Iterable[str] = ()) -> str:
        """Format the document as text that is easy to read and to compare, with secrets masked
        wherever they occur.
        """
        definitions = Definitions()
        written = list(_written(self.interactions, definitions))
        servers: dict[str, Plain] = {}
        for name, server in self.servers.items():
            tools = list(map(plain_tool, server.tools))
            servers[name] = {**dump_value(server, ("tools",)), "tools": tools}
        document = {
            **CASSETTE.head,
            "session": dump_value(self.session),
            "models": {name: dump_value(self.models[name]) for name in sorted(self.models)},
            "servers": servers,
            "definitions": dict(sorted(definitions.by_key.items())),
            "interactions": written,
        }
        return f"{pretty(scrubbed(document, secrets))}\n".encode("utf-8", "replace").decode()

    def to_element(self, secrets: Iterable[str] = ()) -> str:
        """Format the cassette as an HTML element, which `load` reads again, with secrets masked."""
        text = self.to_json(secrets).replace("<", "\\u003c")
        return f'<script type="application/json" id="{ELEMENT_ID}">{text}</script>'

    def save(self, path: Path, secrets: Iterable[str] = ()) -> None:
        """Write the cassette to a file, whole or not at all, with secrets masked wherever they
        occur.
        """
        write_text(path, self.to_json(secrets), overwrite=True)

    @classmethod
    def from_json(cls, text: str | bytes, name: str = "This cassette") -> Cassette:
        """Read a document from `to_json`.

        A CassetteError if it is damaged or from a later version.
        """
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            raise CassetteError(f"{name} is damaged: it is not JSON.", hint=_HINT) from None
        if not isinstance(document, dict) or document.get("format") != CASSETTE.name:
            raise CassetteError(f"{name} is not a cassette.", hint=_HINT)
        if problem := CASSETTE.problem(name, document.get("version")):
            raise CassetteError(problem, hint=NEWER)
        try:
            rows, definitions = document["interactions"], document.get("definitions", {})
            interactions = list(_read_interactions(rows, definitions))
            servers: dict[str, ServerEntry] = {}
            for server, fields in document.get("servers", {}).items():
                servers[server] = _server(server, fields)
            models: dict[str, ModelEntry] = {}
            for model, fields in document.get("models", {}).items():
                models[model] = load_value(ModelEntry, fields)
            session = load_value(SessionEntry, document.get("session", {}))
            return cls(interactions, servers, models, session)
        except (
            KeyError,
            IndexError,
            TypeError,
            ValueError,
            AttributeError,
            OverflowError,
            RecursionError,
        ):
            raise CassetteError(
                f"{name} is damaged: its contents are not a cassette's.", hint=_HINT
            ) from None

    @classmethod
    def load(cls, path: str | Path) -> Cassette:
        """Read a cassette from a file: a recording, or an HTML file that contains one."""
        file = Path(path).expanduser()
        try:
            with file.open("rb") as opened:
                data = opened.read(MAX_BYTES + 1)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is not a file name"
            raise CassetteError(f"{shown(file)} cannot be read: {reason}.") from None
        if len(data) > MAX_BYTES:
            raise CassetteError(
                f"{shown(file)} is not a cassette: it has more than {MAX_BYTES // 1_000_000} MB."
            )
        if file.suffix.casefold() in (".html", ".htm"):
            data = element_of(data, file)
        return cls.from_json(data, shown(file))


_HINT = "Record it again: session.cassettes.use(path, mode='all')."


class Definitions:
    """A cassette's tool definitions, each stored once under the tool's name, a changed one with a
    number.
    """

    def __init__(self) -> None:
        self.by_key: dict[str, Plain] = {}
        self._keys: dict[str, str] = {}

    def key(self, definition: Mapping[str, Plain]) -> str:
        """Compute a definition's key. Add it if it is new."""
        text = json.dumps(definition, sort_keys=True, default=str)
        if text not in self._keys:
            key = name = str(definition["name"])
            numbers = count(2)
            while key in self.by_key:
                key = f"{name} ({next(numbers)})"
            self._keys[text] = key
            self.by_key[key] = dict(definition)
            del self.by_key[key]["name"]
        return self._keys[text]


def _written(
    interactions: Sequence[Interaction], definitions: Definitions
) -> Iterator[dict[str, Plain]]:
    # They differ with each recording, and only handles depend on them.
    with_ids = any(_has_handle(each) for each in interactions if each.kind == "model")
    before: list[Plain] = []
    offered: tuple[list[str], list[str]] = [], []
    for each in interactions:
        request = dict(each.request)
        if each.kind == "model":
            messages = request.pop("messages")
            tools = list(map(definitions.key, request.pop("tools")))
            found_keys = [definitions.key(tool) for tool in request.pop("found", ())]
            keep = 0
            while keep < min(len(before), len(messages)) and before[keep] == messages[keep]:
                keep += 1
            request |= {"keep": keep, "messages": messages[keep:]}
            if (tools, found_keys) != offered:
                request["tools"] = tools
                if found_keys:
                    request["found"] = found_keys
            offered = tools, found_keys
            before = _continued(messages, each.response)
        written: dict[str, Plain] = {"kind": each.kind, "request": request}
        if each.events:
            written["events"] = each.events
        response = each.response
        if each.kind == "model" and response and not with_ids:
            response = {**response, "message": _without_ids(response["message"])}
        if each.error is not None:
            written["error"] = each.error
        elif each.kind != "turn":
            # Even an empty one: that was the answer.
            written["response"] = response
        if each.pace:
            written["pace"] = each.pace
        yield written


def _has_handle(interaction: Interaction) -> bool:
    """Check whether a result in a model request names a handle."""
    for message in interaction.request["messages"]:
        text = message.get("content")
        if message.get("role") == "tool" and isinstance(text, str) and HANDLE_NOTE.search(text):
            return True
    return False


def _read_interactions(rows: Any, definitions: Mapping[str, Any]) -> Iterator[Interaction]:
    before: list[Plain] = []
    tools: list[Plain] = []
    found_tools: list[Plain] = []
    expanded = 0
    named = {key: {"name": key.partition(" (")[0], **fields} for key, fields in definitions.items()}
    for row in rows:
        if row["kind"] not in get_args(Kind):
            # Of a later version.
            continue
        request = dict(row["request"])
        if row["kind"] == "model":
            keep = request.pop("keep", 0)
            if not isinstance(keep, int) or not 0 <= keep <= len(before):
                raise ValueError("Messages that are not there.")
            if not isinstance(request["messages"], list):
                raise ValueError("Messages that are no list.")
            messages = before[:keep]
            messages += map(checked_message, request["messages"])
            expanded += len(messages)
            if expanded > MAX_MESSAGES:
                raise ValueError("Too many messages.")
            if "tools" in request:
                tools = [named[key] for key in request["tools"]]
                found_tools = [named[key] for key in request.get("found", ())]
            request = {"model": str(request["model"]), "messages": messages, "tools": tools}
            if found_tools:
                request["found"] = found_tools
            before = _continued(messages, row.get("response"))
        elif row["kind"] == "turn":
            checked_turn(request)
        nothing: Plain = None
        if row["kind"] in ("resources", "prompts", "skills", "read", "listed"):
            # Earlier versions left out a list without an entry.
            nothing = []
        error = row.get("error") if row["kind"] != "turn" else None
        interaction = Interaction(row["kind"], request, row.get("response", nothing), error)
        interaction.events = [checked_event(event) for event in row.get("events", ())]
        interaction.pace = [int(ms) for ms in row.get("pace", ())]
        if interaction.error is None:
            interaction.answer()
        else:
            read_error(interaction.error, ServerError)
        yield interaction


def _continued(messages: list[Plain], response: Plain) -> list[Plain]:
    """Predict how the next request usually begins: a request's messages, and its answer as requests
    have it.
    """
    if not response:
        return messages
    answer = _without_ids(response["message"])
    return [*messages, {name: value for name, value in answer.items() if value != ""}]


def _without_ids(message: Mapping[str, Plain]) -> dict[str, Plain]:
    """Copy an answer without its calls' ids."""
    answer = dict(message)
    calls = [dict(call) for call in message.get("calls", ())]
    for call in calls:
        call.pop("id", None)
    if calls:
        answer["calls"] = calls
    return answer


def _system_prompt(messages: Sequence[ChatMessage]) -> str | None:
    if messages and messages[0].role == "system" and isinstance(messages[0].content, str):
        return messages[0].content
    return None


def _interactions_of(turn: Turn, after: int) -> list[Interaction]:
    """Build a turn's interactions, in order.

    It comes `after` so many messages in the conversation.
    """
    interactions = [Interaction("turn", {**turn_request(turn.started), "after": after})]
    model: Interaction | None = None
    # Those that have not ended, by id, each with the time of its beginning.
    calls: dict[str, tuple[Interaction, float]] = {}
    began = 0.0
    for event in turn.trace:
        match event:
            case StepStarted(request=request):
                found_tools = request.found if request.delivery == "native" else ()
                plain = model_request(
                    turn.started.model, request.messages, request.tools, found_tools
                )
                model, began = Interaction("model", plain), event.at
            case TextDelta() if model is not None:
                model.events.append(len(event.text))
                model.pace.append(_ms(event.at - began))
            case StepFinished(dropped=False) if model is not None:
                response = ModelResponse(
                    event.message, event.usage, event.finish_reason, event.hosted_calls
                )
                model.response = model_response(response)
                model.pace.append(_ms(event.at - began))
                interactions.append(model)
                model = None
            case ToolStarted(tool=tool) if tool.server not in (SYNTHETIC, UNKNOWN) and isinstance(
                event.arguments, dict
            ):
                call = Interaction("call", call_request(tool.server, tool.tool, event.arguments))
                calls[event.call_id] = call, event.at
                interactions.append(call)
            case ToolProgress() if event.call_id in calls:
                call, started = calls[event.call_id]
                call.events.append(progress_event(event.progress, event.total, event.text))
                call.pace.append(_ms(event.at - started))
            case ToolFinished() if event.call_id in calls:
                call, started = calls.pop(event.call_id)
                call.pace.append(_ms(event.at - started))
                if event.result is not None:
                    call.response = plain_result(event.result)
                else:
                    kind = "ToolTimeoutError" if event.status == "timeout" else "ToolCallError"
                    call.error = {"kind": kind, "message": event.text.removeprefix("Error: ")}
                if event.status in ("denied", "stopped"):
                    interactions.remove(call)
    for call, _ in calls.values():
        interactions.remove(call)
    failed_in_request = turn.status == "failed" and model is not None
    if turn.status == "stopped" or failed_in_request:
        interactions[0].request["incomplete"] = True
    return interactions


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1_000))


def _server(name: str, fields: Mapping[str, Any]) -> ServerEntry:
    entry = load_value(ServerEntry, {**fields, "tools": ()})
    entry.tools = read_tools(name, fields.get("tools", ()))
    return entry
