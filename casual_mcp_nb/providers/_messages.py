"""Adapt the conversation copy that is sent: ids, names, images, text that can be encoded, the state
to send back.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from casual_mcp_nb.base.arguments import parse_arguments
from casual_mcp_nb.base.content import pictures_of
from casual_mcp_nb.base.limits import encodable, parts_in
from casual_mcp_nb.base.wire_names import accepted_name
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.providers._calls import calls_in

if TYPE_CHECKING:
    from casual_llm.messages import (
        AssistantMessage,
        AssistantToolCall,
        ChatMessage,
        ImageContent,
        TextContent,
        ToolResultMessage,
    )

    from casual_mcp_nb.conversation.messages import ProviderState


Part = dict[str, Any]
Fields = Mapping[str, Any]
_PLAIN = {"type", "text"}
# Every provider accepts such an id; others are accepted only by the provider that made them.
_COMMON_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")


def keep(
    message: AssistantMessage, wire: str, model: str, parts: Sequence[Part]
) -> AssistantMessage:
    """Attach an answer's parts to its message, if they contain more than its text and calls."""
    # No provider accepts an answer that ends with reasoning.
    end = len(parts)
    while end and parts[end - 1]["type"] not in ("text", "call"):
        end -= 1
    calls = iter(message.tool_calls or ())
    worth: list[Part] = []
    for part in parts[:end]:
        worth.append(_with_id(part, next(calls, None)) if part["type"] == "call" else part)
    if all(part.keys() <= _PLAIN for part in worth):
        return message
    from casual_mcp_nb.conversation.messages import ProviderState, StatefulAssistantMessage

    return StatefulAssistantMessage(
        content=message.content,
        tool_calls=message.tool_calls,
        kept=ProviderState(wire=wire, model=model, parts=tuple(worth)),
    )


def parts_with_fields(text: str, fields: Fields, of_calls: Sequence[Fields]) -> list[Part]:
    """Build an answer's parts when its provider added extra fields to it and its calls."""
    parts: list[Part] = []
    if fields:
        parts.append({"type": "fields", "fields": dict(fields)})
    if text:
        parts.append({"type": "text", "text": text})
    for own in of_calls:
        call: Part = {"type": "call"}
        if own:
            call["fields"] = dict(own)
        parts.append(call)
    return parts


def parts_of(message: AssistantMessage, wire: str, model: str) -> list[Part | AssistantToolCall]:
    """Restore an answer's parts: this model's original ones, with the calls in place, or else its
    text and calls.
    """
    calls = message.tool_calls or []
    own = _own_parts(message, wire, model)
    if own is None and not message.content:
        return [*calls]
    if own is None:
        return [{"type": "text", "text": message.content}, *calls]
    waiting = iter(calls)
    parts: list[Part | AssistantToolCall] = []
    for part in own:
        parts.append(next(waiting) if part["type"] == "call" else part)
    return parts


@dataclass(frozen=True)
class OwnFields:
    """Extra fields that a provider added to a message, and to each of its calls."""

    message: Fields
    calls: tuple[Fields, ...]


def kept_fields(message: ChatMessage, wire: str, model: str) -> OwnFields:
    """Read the fields that `parts_with_fields` kept, none if the answer is another model's or its
    text has changed.
    """
    parts = _own_parts(message, wire, model) or ()
    merged: dict[str, Any] = {}
    for part in parts:
        # Conversations saved by earlier versions have `reasoning`.
        if part["type"] in ("fields", "reasoning") and isinstance(part.get("fields"), dict):
            merged |= part["fields"]
    calls = [part.get("fields") or {} for part in parts if part["type"] == "call"]
    if not calls:
        calls = [{}] * len(calls_in(message))
    return OwnFields(merged, tuple(calls))


def own_ids(message: ChatMessage, wire: str, model: str) -> frozenset[str]:
    """Collect the call ids in a message that this model made itself and that not every provider
    accepts.
    """
    return frozenset(
        str(part["id"]) for part in _own_parts(message, wire, model) or () if part.get("id")
    )


def _own_parts(message: ChatMessage, wire: str, model: str) -> tuple[Part, ...] | None:
    own: ProviderState | None = getattr(message, "kept", None)
    if own is None or (own.wire, own.model) != (wire, model):
        return None
    # A saved conversation can have been edited.
    kinds = [part.get("type") for part in own.parts]
    text = "".join(str(part.get("text")) for part in own.parts if part.get("type") == "text")
    calls = calls_in(message)
    if None in kinds or text != (message.content or "") or len(calls) != kinds.count("call"):
        return None
    return own.parts


def _with_id(part: Part, call: AssistantToolCall | None) -> Part:
    if call is None or not call.id or _COMMON_ID.fullmatch(call.id):
        return part
    return {**part, "id": call.id}


_BRIDGE = "OK."


_T = TypeVar("_T")
_MANY = 1_000


async def built(
    build: Callable[..., _T],
    client: object,
    model: str,
    messages: Sequence[ChatMessage],
    *options: Any,
    **more: Any,
) -> _T:
    """Build a conversation's request, on a thread if it has many parts and calls.

    Each part takes up to 50 microseconds: 10,000 would hold the event loop for half a second.
    """
    if len(messages) + sum(map(parts_in, messages)) <= _MANY:
        return build(client, model, messages, *options, **more)
    return await asyncio.to_thread(build, client, model, messages, *options, **more)


@dataclass(frozen=True)
class IdRule:
    """Which call ids a provider accepts, and how a hex digest becomes one."""

    accepted: re.Pattern[str]
    prefix: str = "call_"
    digits: int = 24


# "Expected a string with maximum length 40": OpenAI's error `string_above_max_length` for
# `tool_calls[].id`.
CHAT_IDS = IdRule(re.compile(r"[!-~]{1,40}"))
# `call_id` in the OpenAPI schema of the Responses API: at most 64 characters.
RESPONSES_IDS = IdRule(re.compile(r"[A-Za-z0-9_-]{1,64}"))
# "tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'".
ANTHROPIC_IDS = IdRule(re.compile(r"[A-Za-z0-9_-]{1,64}"))
# "Tool call id was … but must be a-z, A-Z, 0-9, with a length of 9": Mistral's API, and
# mistral_common in other servers.
MISTRAL_IDS = IdRule(re.compile(r"[A-Za-z0-9]{9}"), "", 9)


def sendable(
    messages: Sequence[ChatMessage], rule: IdRule, wire: str, model: str
) -> list[ChatMessage]:
    """Convert the messages to call names, ids and arguments that a provider accepts, and without
    lone surrogates.
    """
    ids = _Ids(rule, wire, model)
    return [_sendable(message, ids) for message in messages]


@dataclass
class _Ids:
    """One request's ids: unique, with results matched to their calls."""

    rule: IdRule
    wire: str
    model: str
    used: set[str] = field(default_factory=set)
    sent_as: dict[str, str] = field(default_factory=dict)

    def of_call(self, call_id: str, own: bool) -> str:
        """Choose the id of a call. `own` says that the model made it, and so accepts it."""
        sent = call_id
        accepted = own or self.rule.accepted.fullmatch(sent)
        if not accepted or sent in self.used:
            number = 0
            while (sent := self._numbered_id(call_id, number)) in self.used:
                number += 1
        self.used.add(sent)
        self.sent_as[call_id] = sent
        return sent

    def of_result(self, call_id: str) -> str:
        if call_id in self.sent_as:
            return self.sent_as[call_id]
        if self.rule.accepted.fullmatch(call_id):
            return call_id
        return self._numbered_id(call_id, 0)

    def _numbered_id(self, call_id: str, number: int) -> str:
        text = f"{number}\0{call_id}".encode("utf-8", "surrogatepass")
        digest = hashlib.sha256(text).hexdigest()
        return f"{self.rule.prefix}{digest[: self.rule.digits]}"


def _sendable(message: ChatMessage, ids: _Ids) -> ChatMessage:
    changed: dict[str, Any] = {}
    if isinstance(message.content, str):
        text = encodable(message.content, "replace")
        if text is not message.content:
            changed["content"] = text
    if message.role == "tool":
        changed |= {
            "tool_call_id": ids.of_result(message.tool_call_id),
            "name": accepted_name(message.name),
        }
    elif message.role == "assistant" and message.tool_calls:
        accepted = own_ids(message, ids.wire, ids.model)
        changed["tool_calls"] = [
            _call(call, ids.of_call(call.id, call.id in accepted)) for call in message.tool_calls
        ]
    elif message.role == "user" and isinstance(message.content, list):
        changed["content"] = list(map(_part, message.content))
    return message.model_copy(update=changed) if changed else message


def _part(part: TextContent | ImageContent) -> TextContent | ImageContent:
    if part.type != "text":
        return part
    return part.model_copy(update={"text": encodable(part.text, "replace")})


def _call(call: AssistantToolCall, call_id: str) -> AssistantToolCall:
    function = call.function
    sent = {
        "name": accepted_name(function.name),
        "arguments": sendable_arguments(function.arguments),
    }
    return call.model_copy(update={"id": call_id, "function": function.model_copy(update=sent)})


def sendable_arguments(text: str) -> str:
    """Replace a call's arguments by `{}` if they are not a JSON object.

    Servers such as vLLM and llama.cpp parse the arguments in the whole history and refuse a request
    with invalid ones. The call's result explains the mistake.
    """
    value = parse_arguments(text) if text.lstrip().startswith("{") else None
    if not isinstance(value, dict):
        return "{}"
    try:
        written = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        return "{}"
    sent = encodable(written, "replace")
    return text if sent == written else sent


def merged(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Merge consecutive messages by the person, and by the model, into one.

    Some servers refuse them, and others read only the last one. Answers with provider state stay as
    they are: it belongs to the whole answer.
    """
    return _merged(messages, _has_state)


def _has_state(message: ChatMessage) -> bool:
    return hasattr(message, "kept")


def _merged(
    messages: Iterable[ChatMessage], stays: Callable[[ChatMessage], bool]
) -> list[ChatMessage]:
    ordered: list[ChatMessage] = []
    for message in messages:
        joined = None
        if ordered and not stays(ordered[-1]) and not stays(message):
            joined = _joined(ordered[-1], message)
        if joined is None:
            ordered.append(message)
        else:
            ordered[-1] = joined
    return ordered


def in_strict_order(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Order the messages as Mistral's API and many chat templates require.

    One system message first. Then user and assistant alternate, with an assistant message between
    tool results and the user.
    """
    from casual_llm.message_converters.utils import merge_system_messages
    from casual_llm.messages import AssistantMessage

    systems: list[ChatMessage] = [message for message in messages if message.role == "system"]
    others = [message for message in messages if message.role != "system"]
    ordered: list[ChatMessage] = merge_system_messages(systems)
    for message in _merged(others, _never):
        if ordered and ordered[-1].role == "tool" and message.role == "user":
            ordered.append(AssistantMessage(content=_BRIDGE))
        ordered.append(message)
    return ordered


def _never(message: ChatMessage) -> bool:
    return False


def _joined(first: ChatMessage, second: ChatMessage) -> ChatMessage | None:
    """Merge two messages with the same role, or None if they cannot be merged."""
    if first.role == second.role == "user":
        if isinstance(first.content, list) or isinstance(second.content, list):
            parts = [*_parts(first.content), *_parts(second.content)]
            return first.model_copy(update={"content": parts})
        return first.model_copy(update={"content": _lines(first.content, second.content)})
    if first.role == second.role == "assistant" and not first.tool_calls:
        # Provider state belongs to one whole answer: the first one's is dropped, because its text
        # has changed.
        return second.model_copy(update={"content": _lines(first.content, second.content)})
    return None


def _parts(
    content: str | list[TextContent | ImageContent] | None,
) -> list[TextContent | ImageContent]:
    from casual_llm.messages import TextContent

    if isinstance(content, list):
        return content
    return [TextContent(text=content)] if content else []


def _lines(*texts: Any) -> str:
    return "\n\n".join(filter(None, texts))


MAX_CHARACTERS = 16_000_000
"""Maximum size of all tools' images in a request, as base64: Anthropic accepts 32 MB for the whole
request.
"""


def has_images(messages: Sequence[ChatMessage]) -> bool:
    """Check whether a tool returned an image in these messages."""
    return any(map(images, messages))


def images(message: ChatMessage) -> tuple[ImageContent, ...]:
    """List the images in a tool's result."""
    shown: tuple[ImageContent, ...] = getattr(message, "images", ())
    return shown


def refuse_addresses(messages: Sequence[ChatMessage], why: str) -> None:
    """Raise UsageError if a person's image is a URL, because none is fetched from here."""
    if not all(picture.data for picture in pictures_of(messages)):
        raise UsageError(f"{why}.", hint="Pass the image itself: its path or its bytes.")


def data_of(image: ImageContent) -> str:
    """Encode an image as base64."""
    return "" if isinstance(image.source, str) else image.source.get("data", "")


def digest_of(image: ImageContent) -> str:
    """Compute the digest by which refused images are remembered."""
    return hashlib.sha256(data_of(image).encode()).hexdigest()


def limited(
    messages: Sequence[ChatMessage], most: int, refused: Collection[str] = ()
) -> list[ChatMessage]:
    """Keep only the newest images that tools returned. A result that loses one gets a note.

    Args:
        messages: The conversation.
        most: How many images a request may have, with the person's own, which are always sent.
        refused: The digests of images that are not sent.
    """
    if not has_images(messages):
        return list(messages)
    left = max(0, most - len(pictures_of(messages)))
    characters = MAX_CHARACTERS
    sent: list[ChatMessage] = []
    for message in reversed(messages):
        taken: list[ImageContent] = []
        for image in images(message):
            size = len(data_of(image))
            if left == 0 or size > characters:
                continue
            if refused and digest_of(image) in refused:
                continue
            left -= 1
            characters -= size
            taken.append(image)
        sent.append(_with_images(message, taken, cannot_see=most == 0))
    return sent[::-1]


def _with_images(message: ChatMessage, taken: list[ImageContent], cannot_see: bool) -> ChatMessage:
    missing = len(images(message)) - len(taken)
    if not missing:
        return message
    what = "1 image of this result is" if missing == 1 else f"{missing} images of this result are"
    why = ": you cannot see images" if cannot_see else ""
    content = f"{message.content}\n[{what} not shown{why}.]".lstrip()
    return message.model_copy(update={"images": tuple(taken), "content": content})


def after_results(messages: Sequence[ChatMessage]) -> Iterator[ChatMessage]:
    """Yield the messages with tools' images moved to a user message after all results in a step.

    Tool results are text only in chat completions, in Ollama and with many Google models.
    """
    waiting: list[ToolResultMessage] = []
    for message in messages:
        if message.role != "tool" and waiting:
            yield _shown(waiting)
            waiting = []
        yield message
        if message.role == "tool" and images(message):
            waiting.append(message)
    if waiting:
        yield _shown(waiting)


def _shown(results: list[ToolResultMessage]) -> ChatMessage:
    from casual_llm.messages import TextContent, UserMessage

    parts: list[TextContent | ImageContent] = []
    for result in results:
        parts += [TextContent(text=label_of(result)), *images(result)]
    return UserMessage(content=parts)


def label_of(result: ToolResultMessage) -> str:
    """Describe which call images belong to."""
    what = "Image" if len(images(result)) == 1 else "Images"
    return f"{what} returned by {result.name} (call {result.tool_call_id}):"
