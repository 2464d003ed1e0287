"""The cassette: what models and MCP servers answered, in one file that can be played without them.

A document has a `format`, a `version`, the `session` that was recorded, its `models` and `servers`, the `definitions` of the
tools that were offered, and the `interactions` in the order in which they began. An interaction has a `kind`, a `request`, a
`response` or an `error`, what happened before that (`events`), and in `pace` the milliseconds at which each of those happened,
the response last. A request to a model has only the `messages` that come after the first `keep` messages of the request to a
model before it and its answer, and `tools` only if they are not the same. Nothing in it is run, imported, rendered or opened.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from casual_mcp_nb import errors
from casual_mcp_nb.errors import CassetteError, CasualMcpError, ProviderError, ServerError, shown
from casual_mcp_nb.types.content import ContentPart, ToolResult
from casual_mcp_nb.types.event import (
    SYNTHETIC,
    UNKNOWN,
    HostedCall,
    StepFinished,
    StepStarted,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnStarted,
)
from casual_mcp_nb.types.files import write_text
from casual_mcp_nb.types.large_result import HANDLE_NOTE
from casual_mcp_nb.types.model_response import ModelResponse
from casual_mcp_nb.types.resource import Completions, PromptMessage, Resource, ServerPrompt
from casual_mcp_nb.types.secret import MASK, forms_of
from casual_mcp_nb.types.tokens import TokenUsage
from casual_mcp_nb.types.tool import ToolSpec, by_server

if TYPE_CHECKING:
    from casual_llm.messages import AssistantMessage, AssistantToolCall, ChatMessage
    from pydantic import TypeAdapter

    from casual_mcp_nb.types.stored import ConversationHead
    from casual_mcp_nb.types.trace import Turn

FORMAT = "casual-mcp-nb cassette"
VERSION = 1
ELEMENT_ID = "cassette"
"""The id of the element of an HTML file that has a cassette in it."""
MAX_BYTES = 200_000_000
MAX_MESSAGES = 1_000_000
"""How many messages the requests of a cassette may have in all."""
MAX_LINE = 120
"""How long a list or an object in the file may be to be written on one line."""

Kind = Literal["turn", "model", "call", "resources", "prompts", "read", "prompt", "completion", "approval"]
Way = Literal["bundled", "command", "url", "in-process"]
"""How a server was reached, which decides when the person is asked."""
Plain = Any
"""A JSON value."""


@dataclass(eq=False)
class Interaction:
    """A request, and what it was answered with.

    Args:
        kind: Whom it went to, and what it wants.
        request: The request, as plain values; of a model, with all its messages and tools.
        response: The answer, as plain values; None if there was an error.
        error: The error, as plain values.
        events: What happened before the answer: pieces of its text (their length, or the text itself), progress, log lines.
        pace: When each event happened, and then the answer, in milliseconds since the request.
    """

    kind: Kind
    request: dict[str, Plain]
    response: Plain = None
    error: dict[str, Plain] | None = None
    events: list[Plain] = field(default_factory=list)
    pace: list[int] = field(default_factory=list)

    def answer(self) -> Any:
        """Return the answer as a value: a `ModelResponse`, a `ToolResult`, tuples of resources, prompts or contents.

        Raises:
            CasualMcpError: The request was answered with that error.
        """
        if self.error is not None:
            raise _error_of(self.error, ProviderError if self.kind == "model" else ServerError)
        return _READERS[self.kind](self.response, self.request)


@dataclass(eq=False)
class ServerEntry:
    """A server of a cassette: what it offers, and the settings that decide how it is used.

    Args:
        way: How it was reached.
        bundled: Its name, if it ships with the package.
        options: Its settings that are neither an address nor a secret, such as `defer_loading`.
        tools: Its tools.
        version: Its own name and version.
        protocol_version: The version of the protocol that was spoken.
        instructions: What it says about its use.
        capabilities: What it declares.
        error: Why it could not be used, if it could not.
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


@dataclass(eq=False)
class SessionEntry:
    """The session that was recorded.

    Args:
        model: The name of its model.
        system: Its system prompt, without what servers say about their use.
        selection: Its selection when the recording began.
        tool_sets: Its toolsets.
        strict: As of `Session`.
        max_result_tokens: The limit on results; None for the usual one.
        approval: As of `Session`.
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
    """A model of a cassette.

    Args:
        model: The provider's name of it.
        client: The name of its client.
        provider: Its provider.
        context_window: Its context window in tokens, if known.
        defers_natively: Whether its provider loads deferred tools itself.
        options: The options of its requests, without headers.
        price: Its price, if it had one.
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
    """A recording of what models and servers answered.

    Args:
        interactions: The requests with their answers, in the order in which they began.
        servers: The servers, by name.
        models: The models, by name.
        session: The session that was recorded.
    """

    interactions: Sequence[Interaction] = ()
    servers: Mapping[str, ServerEntry] = field(default_factory=dict)
    models: Mapping[str, ModelEntry] = field(default_factory=dict)
    session: SessionEntry = field(default_factory=SessionEntry)

    @property
    def turns(self) -> list[dict[str, Plain]]:
        """What the person sent, turn by turn: `messages`, `model`, `tool_set`, `system`."""
        return [each.request for each in self.interactions if each.kind == "turn"]

    @classmethod
    def from_conversation(
        cls,
        conversation: Iterable[Turn],
        tools: Iterable[ToolSpec] = (),
        head: ConversationHead | None = None,
    ) -> Cassette:
        """Return the cassette of turns that were not recorded, from their traces.

        Results that were too large for the model are in traces, and so in this cassette, only as far as the model read them.

        Args:
            conversation: The turns.
            tools: The tools of the session's servers, such as `session.tools`.
            head: What the conversation was set up with.
        """
        turns = list(conversation)
        models: dict[str, ModelEntry] = {}
        interactions: list[Interaction] = []
        system: str | None = None
        for turn in turns:
            started = turn.started
            name, provider = started.model, started.provider or "replay"
            interactions += _interactions_of(turn)
            requests = [step.request for step in turn.trace.of(StepStarted)]
            native = any(request.delivery == "native" for request in requests)
            models.setdefault(name, ModelEntry(name, provider, provider, defers_natively=native))
            prompts = [message.content for request in requests for message in request.messages[:1] if message.role == "system"]
            system = system or next((prompt for prompt in prompts if isinstance(prompt, str)), None)
        servers = {name: ServerEntry(tools=specs) for name, specs in by_server(tools).items()}
        session = SessionEntry(
            (head.model if head else None) or next(iter(models), None), system, dict(head.selection) if head else {}
        )
        return cls(interactions, servers, models, session)

    def to_json(self, secrets: Iterable[str] = ()) -> str:
        """Return the document, as text that is easy to read and to compare.

        Args:
            secrets: Values to mask, wherever they occur.
        """
        definitions = Definitions()
        written = list(_written(self.interactions, definitions))
        document = {
            "format": FORMAT,
            "version": VERSION,
            "session": _fields(self.session),
            "models": {name: _fields(self.models[name]) for name in sorted(self.models)},
            "servers": {
                name: {**_fields(server), "tools": [_tool(tool) for tool in server.tools]}
                for name, server in self.servers.items()
            },
            "definitions": dict(sorted(definitions.by_key.items())),
            "interactions": written,
        }
        return f"{_pretty(scrubbed(document, secrets))}\n".encode("utf-8", "replace").decode()

    def to_element(self, secrets: Iterable[str] = ()) -> str:
        """Return the cassette as an element of an HTML file, which `load` reads again.

        Args:
            secrets: Values to mask, wherever they occur.
        """
        text = self.to_json(secrets).replace("<", "\\u003c")
        return f'<script type="application/json" id="{ELEMENT_ID}">{text}</script>'

    def save(self, path: Path, secrets: Iterable[str] = ()) -> None:
        """Write the cassette to a file, whole or not at all.

        Args:
            path: The file, which is replaced.
            secrets: Values to mask, wherever they occur.

        Raises:
            UsageError: It cannot be written.
        """
        write_text(path, self.to_json(secrets), overwrite=True, hint="")

    @classmethod
    def from_json(cls, text: str | bytes, name: str = "This cassette") -> Cassette:
        """Read a document of `to_json`.

        Args:
            text: The document.
            name: What it is called in errors.

        Raises:
            CassetteError: It is not a cassette, or is damaged or from a later version.
        """
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            raise CassetteError(f"{name} is damaged: it is not JSON.", hint=_HINT) from None
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise CassetteError(f"{name} is not a cassette.", hint=_HINT)
        version = document.get("version")
        if not isinstance(version, int) or isinstance(version, bool) or not 1 <= version <= VERSION:
            raise CassetteError(
                f"{name} has version {shown(str(version))}, and this package reads versions up to {VERSION}.",
                hint="A later version of casual_mcp_nb wrote it: update the package.",
            )
        try:
            return cls(
                list(_read_interactions(document["interactions"], document.get("definitions", {}))),
                {str(name): _server(str(name), fields) for name, fields in document.get("servers", {}).items()},
                {str(name): _validated(ModelEntry, fields) for name, fields in document.get("models", {}).items()},
                _validated(SessionEntry, document.get("session", {})),
            )
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
            raise CassetteError(f"{name} is damaged: its contents are not those of a cassette.", hint=_HINT) from None

    @classmethod
    def load(cls, path: str | Path) -> Cassette:
        """Read a cassette from a file: one that was recorded, or an HTML file that has one in it.

        Args:
            path: The file.

        Raises:
            CassetteError: It does not exist, or is not a cassette, or is damaged or from a later version.
        """
        file = Path(path).expanduser()
        try:
            with file.open("rb") as opened:
                data = opened.read(MAX_BYTES + 1)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is not the name of a file"
            raise CassetteError(f"{shown(file)} cannot be read: {reason}.") from None
        if len(data) > MAX_BYTES:
            raise CassetteError(f"{shown(file)} is not a cassette: it has more than {MAX_BYTES // 1_000_000} MB.")
        if file.suffix.casefold() in (".html", ".htm"):
            data = _element_of(data, file)
        return cls.from_json(data, shown(file))


_HINT = "Record it again: session.cassette(path, mode='all')."


# --- messages and requests


def plain_message(message: ChatMessage) -> dict[str, Plain]:
    """Return a message as a cassette has it in requests: without ids, and of images only what they are."""
    plain: dict[str, Plain] = {"role": message.role}
    if message.role == "tool":
        plain["tool"] = message.name
    if message.content not in (None, ""):
        content: Any = message.content
        plain["content"] = content if isinstance(content, str) else [_plain_part(part) for part in content]
    images = getattr(message, "images", ())
    if images:
        plain["images"] = [_plain_part(image)["image"] for image in images]
    if message.role == "assistant" and message.tool_calls:
        plain["calls"] = [_plain_call(call) for call in message.tool_calls]
    return plain


def _plain_part(part: Any) -> dict[str, Plain]:
    if part.type == "text":
        return {"text": part.text}
    source = part.source if isinstance(part.source, str) else str(part.source.get("data", ""))
    return {"image": f"{part.media_type} sha256:{hashlib.sha256(source.encode()).hexdigest()[:16]}"}


def _plain_call(call: AssistantToolCall) -> dict[str, Plain]:
    text = call.function.arguments
    plain: dict[str, Plain] = {"tool": call.function.name}
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        arguments = None
    if isinstance(arguments, dict):
        if text == _spaced(arguments):
            return {**plain, "arguments": arguments}
        if text == _compact(arguments):
            return {**plain, "arguments": arguments, "compact": True}
    return {**plain, "text": text}


def _spaced(value: Plain) -> str:
    return json.dumps(value, ensure_ascii=False)


def _compact(value: Plain) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def arguments_text(call: Mapping[str, Plain]) -> str:
    """Return the arguments of a call in a cassette as the model wrote them."""
    if "arguments" not in call:
        return str(call["text"])
    return _compact(call["arguments"]) if call.get("compact") else _spaced(call["arguments"])


def model_request(
    model: str, messages: Iterable[ChatMessage], tools: Iterable[Mapping[str, Plain]], found: Iterable[Mapping[str, Plain]]
) -> dict[str, Plain]:
    """Return a request to a model as plain values.

    Args:
        model: The model's name.
        messages: The messages.
        tools: The definitions of the tools.
        found: Those that the provider adds itself.
    """
    request: dict[str, Plain] = {"model": model, "messages": list(map(plain_message, messages)), "tools": [*tools]}
    if added := [*found]:
        request["found"] = added
    return request


def model_response(response: ModelResponse) -> dict[str, Plain]:
    """Return the answer of a model as plain values, without what only its provider can read."""
    plain: dict[str, Plain] = {"message": plain_message(response.message)}
    if response.message.content == "":
        plain["message"]["content"] = ""
    for plain_call, call in zip(plain["message"].get("calls", ()), response.message.tool_calls or (), strict=True):
        plain_call["id"] = call.id
    if response.usage is not None:
        plain["usage"] = _dumped(TokenUsage, response.usage)
    if response.finish_reason is not None:
        plain["finish_reason"] = response.finish_reason
    if response.hosted_calls:
        plain["hosted_calls"] = [_dumped(HostedCall, call) for call in response.hosted_calls]
    return plain


class Definitions:
    """The definitions of tools in a cassette, each stored once under the tool's name, a changed one with a number."""

    def __init__(self) -> None:
        self.by_key: dict[str, Plain] = {}
        self._keys: dict[str, str] = {}

    def key(self, definition: Mapping[str, Plain]) -> str:
        """Return the key of a definition; add it if it is new."""
        text = json.dumps(definition, sort_keys=True, default=str)
        if text not in self._keys:
            name, number = str(definition["name"]), 1
            key = name
            while key in self.by_key:
                number += 1
                key = f"{name} ({number})"
            self._keys[text] = key
            self.by_key[key] = {field: value for field, value in definition.items() if field != "name"}
        return self._keys[text]


def _written(interactions: Sequence[Interaction], definitions: Definitions) -> Iterator[dict[str, Plain]]:
    # They differ with each recording, and only handles depend on them.
    with_ids = _has_handles(interactions)
    before: list[Plain] = []
    offered: tuple[list[str], list[str]] = [], []
    for each in interactions:
        request = dict(each.request)
        if each.kind == "model":
            messages = request.pop("messages")
            tools = [definitions.key(tool) for tool in request.pop("tools")]
            found = [definitions.key(tool) for tool in request.pop("found", ())]
            keep = 0
            while keep < min(len(before), len(messages)) and before[keep] == messages[keep]:
                keep += 1
            request |= {"keep": keep, "messages": messages[keep:]}
            if (tools, found) != offered:
                request["tools"] = tools
                if found:
                    request["found"] = found
            offered = tools, found
            before = _continued(messages, each.response)
        written: dict[str, Plain] = {"kind": each.kind, "request": request}
        response = each.response
        if each.kind == "model" and response and not with_ids:
            response = {**response, "message": _without_ids(response["message"])}
        for name, value in (("events", each.events), ("response", response), ("error", each.error), ("pace", each.pace)):
            if value is not None and value != []:
                written[name] = value
        yield written


def _read_interactions(rows: Any, definitions: Mapping[str, Any]) -> Iterator[Interaction]:
    before: list[Plain] = []
    tools: list[Plain] = []
    found: list[Plain] = []
    expanded = 0
    named = {key: {"name": _name_of(key), **fields} for key, fields in definitions.items()}
    for row in rows:
        if row["kind"] not in get_args(Kind):
            # Of a later version.
            continue
        request = dict(row["request"])
        if row["kind"] == "model":
            keep = request.pop("keep", 0)
            if not isinstance(keep, int) or not 0 <= keep <= len(before) or not isinstance(request["messages"], list):
                raise ValueError("Messages that are not there.")
            messages = [*before[:keep], *request["messages"]]
            expanded += len(messages)
            if expanded > MAX_MESSAGES:
                raise ValueError("Too many messages.")
            if "tools" in request:
                tools, found = ([named[key] for key in request.get(name, ())] for name in ("tools", "found"))
            request = {"model": str(request["model"]), "messages": messages, "tools": tools}
            if found:
                request["found"] = found
            before = _continued(messages, row.get("response"))
        interaction = Interaction(row["kind"], request, row.get("response"), row.get("error"))
        interaction.events = list(map(_checked_event, row.get("events", ())))
        interaction.pace = [int(ms) for ms in row.get("pace", ())]
        if interaction.error is None:
            interaction.answer()
        else:
            _error_of(interaction.error, ServerError)
        yield interaction


def _checked_event(event: Plain) -> Plain:
    if isinstance(event, int | str) and not isinstance(event, bool):
        return event
    if not isinstance(event, Mapping):
        raise ValueError("Not an event.")
    if "progress" in event:
        _validated(ToolProgress, {"call_id": "", **event})
    elif "tools" in event:
        read_tools("", event["tools"])
    return dict(event)


def _continued(messages: list[Plain], response: Plain) -> list[Plain]:
    """Return what the next request usually begins with: the messages of a request, and its answer as requests have it."""
    if not response:
        return messages
    answer = {name: value for name, value in _without_ids(response["message"]).items() if value != ""}
    return [*messages, answer]


def _without_ids(message: Mapping[str, Plain]) -> dict[str, Plain]:
    """Return an answer without the ids of its calls."""
    calls = [{name: value for name, value in call.items() if name != "id"} for call in message.get("calls", ())]
    return {**message, **({"calls": calls} if calls else {})}


def _has_handles(interactions: Iterable[Interaction]) -> bool:
    """Return whether a model read the handle of a large result."""
    messages = (message for each in interactions if each.kind == "model" for message in each.request["messages"])
    texts = (message.get("content") for message in messages if message.get("role") == "tool")
    return any(isinstance(text, str) and HANDLE_NOTE.search(text) for text in texts)


def _name_of(key: str) -> str:
    return key.partition(" (")[0]


# --- answers


def plain_error(error: CasualMcpError) -> dict[str, Plain]:
    """Return an error as plain values."""
    plain: dict[str, Plain] = {"kind": type(error).__name__, "message": str(error)}
    for name in _ERROR_FIELDS:
        value = getattr(error, name, None)
        if value not in (None, False, "", plain["message"]):
            plain[name] = value
    return plain


_ERROR_FIELDS = ("server", "tool", "retryable", "client", "model", "status", "reason", "retry_after", "partial")
_SHARED_FIELDS = ("server", "tool", "retryable")


def _error_of(plain: Mapping[str, Plain], default: type[CasualMcpError]) -> CasualMcpError:
    kind = getattr(errors, str(plain["kind"]), None)
    if not (isinstance(kind, type) and issubclass(kind, ServerError | ProviderError)):
        kind = default
    names = _ERROR_FIELDS if issubclass(kind, ProviderError) else _SHARED_FIELDS
    error = kind(str(plain["message"]))
    for name in names:
        value = plain.get(name)
        if isinstance(value, str | int | float):
            setattr(error, name, value)
    return error


def plain_result(result: ToolResult) -> dict[str, Plain]:
    """Return the result of a call as plain values; a payload stays in the kernel."""
    plain: dict[str, Plain] = {"content": plain_parts(result.content)}
    if result.structured is not None:
        plain["structured"] = result.structured
    if result.is_error:
        plain["is_error"] = True
    return plain


def plain_parts(parts: Iterable[ContentPart]) -> list[dict[str, Plain]]:
    """Return contents as plain values, their bytes as base64."""
    return [
        {"kind": part.kind}
        | {name: value for name in ("text", "mime_type", "uri") if (value := getattr(part, name))}
        | ({"data": base64.b64encode(part.data).decode("ascii")} if part.data is not None else {})
        for part in parts
    ]


def plain_offers(offers: Iterable[Resource] | Iterable[ServerPrompt]) -> list[dict[str, Plain]]:
    """Return resources or prompts as plain values, without their server."""
    return [{name: value for name, value in _dumped(type(offer), offer).items() if name != "server"} for offer in offers]


def _parts(plain: Any) -> tuple[ContentPart, ...]:
    return tuple(
        _validated(
            ContentPart, {**part, "data": base64.b64decode(part["data"], validate=True)} if "data" in part else dict(part)
        )
        for part in plain
    )


def _read_response(plain: Any, request: Mapping[str, Plain]) -> ModelResponse:
    usage = plain.get("usage")
    return ModelResponse(
        _assistant(plain["message"]),
        _validated(TokenUsage, usage) if usage is not None else None,
        _text_or_none(plain.get("finish_reason")),
        tuple(_validated(HostedCall, call) for call in plain.get("hosted_calls", ())),
    )


def _assistant(plain: Mapping[str, Plain]) -> AssistantMessage:
    from casual_llm.messages import AssistantMessage, AssistantToolCall, AssistantToolCallFunction

    calls = [
        # Where it has no id, the engine gives it one that is unique in the conversation.
        AssistantToolCall(
            id=str(call.get("id", "")), function=AssistantToolCallFunction(name=call["tool"], arguments=arguments_text(call))
        )
        for call in plain.get("calls", ())
    ]
    return AssistantMessage(content=plain.get("content"), tool_calls=calls or None)


def _read_result(plain: Any, request: Mapping[str, Plain]) -> ToolResult:
    return ToolResult(_parts(plain["content"]), plain.get("structured"), bool(plain.get("is_error")))


def _read_offers(kind: type[Any]) -> Callable[[Any, Mapping[str, Plain]], Any]:
    return lambda plain, request: tuple(_validated(kind, {**fields, "server": request["server"]}) for fields in plain)


def _read_prompt(plain: Any, request: Mapping[str, Plain]) -> tuple[tuple[PromptMessage, ...], str]:
    messages = tuple(PromptMessage(str(each["role"]), _parts([each["content"]])[0]) for each in plain["messages"])
    return messages, str(plain.get("description", ""))


def _read_verdict(plain: Any, request: Mapping[str, Plain]) -> tuple[bool | str, str, bool]:
    verdict, scope = plain["verdict"], plain.get("scope", "call")
    if not isinstance(verdict, bool | str) or scope not in ("call", "tool", "server"):
        raise ValueError("Not an answer.")
    return verdict, scope, bool(plain.get("answered", True))


_READERS: Mapping[Kind, Callable[[Any, Mapping[str, Plain]], Any]] = {
    "turn": lambda plain, request: list(map(prompt_message, request["messages"])),
    "model": _read_response,
    "call": _read_result,
    "resources": _read_offers(Resource),
    "prompts": _read_offers(ServerPrompt),
    "read": lambda plain, request: _parts(plain),
    "prompt": _read_prompt,
    "completion": lambda plain, request: _validated(Completions, plain),
    "approval": _read_verdict,
}


def _text_or_none(value: Any) -> str | None:
    return None if value is None else str(value)


def prompt_message(plain: Mapping[str, Plain]) -> ChatMessage:
    """Return a message of the person from a turn of a cassette."""
    from casual_llm.messages import AssistantMessage, SystemMessage, UserMessage

    kinds: Mapping[str, Any] = {"user": UserMessage, "assistant": AssistantMessage, "system": SystemMessage}
    message: ChatMessage = kinds[plain["role"]].model_validate(plain)
    return message


def turn_request(started: TurnStarted, system: str | None = None) -> dict[str, Plain]:
    """Return what the person sent as plain values.

    Args:
        started: How the turn started.
        system: The system prompt of this turn alone.
    """
    messages = [message.model_dump(mode="json", exclude_none=True) for message in started.messages]
    request: dict[str, Plain] = {"messages": messages, "model": started.model}
    if started.tool_set not in (None, "custom"):
        request["tool_set"] = started.tool_set
    return request | ({"system": system} if system is not None else {})


def _interactions_of(turn: Turn) -> list[Interaction]:
    """Return the interactions of a turn, from its trace, in the order in which they began."""
    interactions = [Interaction("turn", turn_request(turn.started))]
    model: Interaction | None = None
    calls: dict[str, tuple[Interaction, float]] = {}
    began = 0.0
    for event in turn.trace:
        match event:
            case StepStarted(request=request):
                found = request.found if request.delivery == "native" else ()
                model = Interaction("model", model_request(turn.started.model, request.messages, request.tools, found))
                began = event.at
            case TextDelta() if model is not None:
                model.events.append(len(event.text))
                model.pace.append(_ms(event.at - began))
            case StepFinished() if model is not None:
                response = ModelResponse(event.message, event.usage, event.finish_reason, event.hosted_calls)
                model.response = model_response(response)
                model.pace.append(_ms(event.at - began))
                interactions.append(model)
                model = None
            case ToolStarted(tool=tool) if tool.server not in (SYNTHETIC, UNKNOWN) and isinstance(event.arguments, dict):
                request_ = {"server": tool.server, "tool": tool.tool, "arguments": event.arguments}
                calls[event.call_id] = Interaction("call", request_), event.at
                interactions.append(calls[event.call_id][0])
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
                if event.status in ("denied", "stopped") or (event.permission is not None and event.permission.by == "mock"):
                    interactions.remove(call)
    left = {id(call) for call, _ in calls.values()}
    return [each for each in interactions if id(each) not in left]


def progress_event(progress: float, total: float | None, text: str | None) -> dict[str, Plain]:
    """Return a report of progress as an event of a cassette."""
    fields = {"progress": progress, "total": total, "text": text}
    return {name: value for name, value in fields.items() if value is not None}


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1_000))


# --- the document


def scrubbed(value: Plain, secrets: Iterable[str]) -> Plain:
    """Return a JSON value with secrets masked, in keys and numbers too, and as text what JSON cannot have.

    Args:
        value: The value.
        secrets: The values to mask.
    """
    return _scrubbed(value, forms_of(secrets))


def _scrubbed(value: Plain, forms: Sequence[str]) -> Plain:
    match value:
        case str():
            for form in forms:
                value = value.replace(form, MASK)
            return value
        case Mapping():
            return {_scrubbed(str(key), forms): _scrubbed(item, forms) for key, item in value.items()}
        case list() | tuple():
            return [_scrubbed(item, forms) for item in value]
        case int() | float() if not isinstance(value, bool) and str(value) in forms:
            return MASK
        case float() if not math.isfinite(value):
            return str(value)
        case _:
            return value


def _pretty(value: Plain, indent: str = "") -> str:
    """Return JSON with short lists and objects, and lists of numbers, on one line."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    numbers = isinstance(value, list) and all(isinstance(item, int | float) for item in value)
    if not isinstance(value, dict | list) or not value or numbers or len(text) + len(indent) <= MAX_LINE:
        return text
    deeper = f"{indent}  "
    if isinstance(value, list):
        items = [f"{deeper}{_pretty(item, deeper)}" for item in value]
        return "[\n" + ",\n".join(items) + f"\n{indent}]"
    items = [f"{deeper}{json.dumps(str(key), ensure_ascii=False)}: {_pretty(item, deeper)}" for key, item in value.items()]
    return "{\n" + ",\n".join(items) + f"\n{indent}}}"


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _validated(kind: Any, fields: Any) -> Any:
    if not isinstance(fields, Mapping):
        raise ValueError("Not an object.")
    known = kind.__dataclass_fields__
    return _adapter(kind).validate_python({name: value for name, value in fields.items() if name in known})


def _dumped(kind: Any, value: Any) -> dict[str, Plain]:
    fields: dict[str, Plain] = _adapter(kind).dump_python(value, mode="json", exclude_defaults=True)
    return fields


def _fields(entry: Any) -> dict[str, Plain]:
    """Return the fields of an entry that are not the default, apart from tools."""
    defaults = ModelEntry("", "", "") if isinstance(entry, ModelEntry) else type(entry)()
    values = {name: getattr(entry, name) for name in entry.__dataclass_fields__ if name != "tools"}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if value != getattr(defaults, name)
    }


def _tool(tool: ToolSpec) -> dict[str, Plain]:
    fields = _dumped(ToolSpec, tool)
    return {name: value for name, value in fields.items() if name not in ("server", "wire_name")}


def read_tools(server: str, plain: Any) -> tuple[ToolSpec, ...]:
    """Return the tools of a server from plain values."""
    return tuple(_validated(ToolSpec, {**fields, "server": server, "wire_name": ""}) for fields in plain)


def plain_tools(tools: Iterable[ToolSpec]) -> list[dict[str, Plain]]:
    """Return the tools of a server as plain values."""
    return [_tool(tool) for tool in tools]


def _server(name: str, fields: Mapping[str, Any]) -> ServerEntry:
    entry: ServerEntry = _validated(ServerEntry, {**fields, "tools": ()})
    entry.tools = read_tools(name, fields.get("tools", ()))
    return entry


class _Element(HTMLParser):
    """Takes the text of the element with the cassette out of an HTML file."""

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


def _element_of(data: bytes, file: Path) -> bytes:
    parser = _Element()
    parser.feed(data.decode("utf-8", "replace"))
    parser.close()
    if not parser.seen:
        raise CassetteError(
            f"{shown(file)} has no cassette in it.",
            hint="Use a page that session.export(path, player=True) wrote, or a .json file.",
        )
    return "".join(parser.text).encode()
