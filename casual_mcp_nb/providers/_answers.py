"""What the wires have in common: how an answer is put together, and what is no answer."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from casual_mcp_nb.providers._provider_state import Part, keep
from casual_mcp_nb.types.model_response import ModelResponse
from casual_mcp_nb.types.tokens import TokenUsage

if TYPE_CHECKING:
    from casual_llm import AssistantToolCall
    from casual_llm.usage import Usage
    from httpx import Response

    from casual_mcp_nb.providers.spec import OnText

_Event = TypeVar("_Event")
_EventIn = TypeVar("_EventIn", contravariant=True)
_EventOut = TypeVar("_EventOut", covariant=True)
_Whole = TypeVar("_Whole")


class InvalidResponse(Exception):
    """The provider said that all is well and sent something that is no answer; the text is what it sent."""


class StreamTruncated(Exception):
    """An answer stopped before its end."""


class EmptyStream(StreamTruncated):
    """A stream ended with nothing in it."""


def ended_early(how: str, *, anything: bool) -> StreamTruncated:
    """Return the error for a stream without its end.

    Args:
        how: What is missing.
        anything: Whether anything of an answer was in it.
    """
    return StreamTruncated(f"the stream ended {how}") if anything else EmptyStream("the stream ended with nothing in it")


class Reported(Exception):
    """The provider broke an answer off with an error.

    Args:
        error: What it said: a text, or an object with a `message`.
        status: The HTTP status that the error would have had, where it says one.
    """

    def __init__(self, error: object, status: object = None) -> None:
        said = error.get("message") or error.get("error") if isinstance(error, dict) else error
        super().__init__(said if isinstance(said, str) else json.dumps(error, default=str))
        code = (error.get("code") or error.get("status_code")) if isinstance(error, dict) else status
        self.status_code = next((value for value in (status, code) if isinstance(value, int) and 400 <= value < 600), None)


class ContentFiltered(Exception):
    """The provider did not let the model answer; the text is as much as it sent."""


def answer_of(
    wire: str,
    model: str,
    parts: Sequence[Part],
    calls: Sequence[AssistantToolCall],
    usage: TokenUsage | None,
    reason: str | None,
) -> ModelResponse:
    """Return an answer, with what its provider wants back of it.

    Args:
        wire: Which format the parts are in.
        model: The model that can read them.
        parts: The parts of the answer in their order, as `ProviderState` has them.
        calls: The calls in it.
        usage: What the provider reported.
        reason: Why it ended.

    Raises:
        ContentFiltered: The provider says that it refused.
    """
    from casual_llm import AssistantMessage

    text = "".join(part["text"] for part in parts if part["type"] == "text")
    if reason in ("content_filter", "refusal"):
        raise ContentFiltered(text or reason)
    message = AssistantMessage(content=text, tool_calls=list(calls) or None)
    return ModelResponse(keep(message, wire, model, parts), usage, reason)


def call_of(call_id: str | None, name: str | None, arguments: object) -> AssistantToolCall:
    """Return a call of a tool; arguments that are a text stay as they are."""
    from casual_llm import AssistantToolCall, AssistantToolCallFunction

    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return AssistantToolCall(id=call_id or "", function=AssistantToolCallFunction(name=name or "", arguments=text or "{}"))


def usage_of(
    prompt: int | None, completion: int | None, cached: int | None = None, reasoning: int | None = None
) -> TokenUsage | None:
    """Return what the provider reported, or None where it reported nothing."""
    return None if prompt is None and completion is None else TokenUsage(prompt, completion, cached, reasoning)


def plain_usage(usage: TokenUsage | None) -> Usage | None:
    """Return what casual-llm keeps of the usage."""
    from casual_llm.usage import Usage

    if usage is None or usage.prompt_tokens is None or usage.completion_tokens is None:
        return None
    return Usage(prompt_tokens=usage.prompt_tokens, completion_tokens=usage.completion_tokens)


def taken_by(create: Callable[..., object], request: dict[str, Any]) -> dict[str, Any]:
    """Return the request in arguments that the SDK takes.

    What it has no argument for, such as temperature in Anthropic's SDK 2, goes into the body as it is: the API can know it.
    """
    known = _parameters(getattr(create, "__func__", create))
    strange = {name: value for name, value in request.items() if name not in known}
    if not strange:
        return request
    taken = {name: value for name, value in request.items() if name in known}
    return {**taken, "extra_body": {**strange, **(taken.get("extra_body") or {})}}


@lru_cache(maxsize=8)
def _parameters(function: Callable[..., object]) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


class EventStream(Protocol[_EventOut]):
    """A stream of an SDK over the response of its server."""

    @property
    def response(self) -> Response: ...
    def __aiter__(self) -> AsyncIterator[_EventOut]: ...
    async def __aenter__(self) -> object: ...
    async def __aexit__(self, kind: Any, error: Any, frames: Any, /) -> None: ...


class StreamedAnswer(Protocol[_EventIn]):
    """A streamed answer as far as it has come."""

    def take(self, event: _EventIn, /) -> str:
        """Take an event; the text in it comes back."""

    def answer(self) -> ModelResponse:
        """Return the whole answer.

        Raises:
            StreamTruncated: The stream stopped before its end.
        """


async def read_stream(
    events: EventStream[_Event],
    say: OnText,
    parts: StreamedAnswer[_Event],
    construct: Callable[..., _Whole],
    read: Callable[[_Whole], ModelResponse],
) -> ModelResponse:
    """Return the answer in a stream of an SDK; a server that answers in one piece all the same is read too.

    Args:
        events: The SDK's stream.
        say: What is told of the text while it comes.
        parts: Takes the events.
        construct: Makes the SDK's answer in one piece from its fields.
        read: Reads such an answer.
    """
    async with events:
        whole = await _whole_body(events.response)
        if whole is not None:
            return read(construct(**whole) if isinstance(whole, dict) else whole)
        async for event in events:
            say(parts.take(event), events.response)
    return parts.answer()


async def _whole_body(response: Response) -> Any | None:
    """Return what was sent instead of a stream, read from its JSON; None for a stream.

    Raises:
        InvalidResponse: It is not JSON.
    """
    kind = response.headers.get("content-type", "")
    if "json" not in kind and "html" not in kind:
        return None
    await response.aread()
    try:
        return response.json()
    except ValueError:
        raise InvalidResponse(response.text) from None


def as_sent(response: object) -> str:
    """Return an SDK's answer as the text that came."""
    dump = getattr(response, "to_json", None)
    return str(dump(indent=None)) if dump is not None else str(response)
