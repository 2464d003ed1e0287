"""Code that the providers' clients share: build them, read their answers, detect invalid ones,
hosted calls, deferred tools.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import re
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.metadata import version
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from casual_mcp_nb.base.config import ClientConfig
from casual_mcp_nb.base.proxies import odd_variable
from casual_mcp_nb.base.secret import revealed_by_name
from casual_mcp_nb.base.tokens import CacheMiss, TokenUsage
from casual_mcp_nb.conversation.event import LOAD_TOOLS, SEARCH_TOOLS, HostedCall
from casual_mcp_nb.conversation.step import ModelResponse, loaded_in
from casual_mcp_nb.errors import (
    AuthenticationError,
    MissingDependencyError,
    ProviderError,
    UnknownModelError,
    UnknownNameError,
    UsageError,
    install,
    shown,
)
from casual_mcp_nb.providers._messages import Part, keep
from casual_mcp_nb.providers.registry import key_variables

if TYPE_CHECKING:
    from casual_llm import ChatOptions, LLMClient, StreamChunk
    from casual_llm.messages import AssistantMessage, AssistantToolCall, ChatMessage
    from casual_llm.usage import Usage
    from httpx import Response

    from casual_mcp_nb.providers.registry import OnText, ProviderSpec


_FIELDS = re.compile(
    r"defer_loading|tool[ _]reference|additional_tools|tool_search|\bnamespace\b", re.IGNORECASE
)
_REFUSALS = (400, 404, 422)


def first_found(messages: Sequence[ChatMessage], names: Collection[str]) -> list[list[str]]:
    """Find for each message those of these tools that it is the first to load, usually none.

    Only results from the search and `load_tools` count: any other text could name tools, too.
    """
    waiting = set(names)
    first_by_message: list[list[str]] = []
    for message in messages:
        here: list[str] = []
        if (
            message.role == "tool"
            and message.name in (SEARCH_TOOLS, LOAD_TOOLS)
            and not getattr(message, "failed", False)
        ):
            here = [name for name in loaded_in(message.content) if name in waiting]
        waiting.difference_update(here)
        first_by_message.append(here)
    return first_by_message


def refuses_deferral(status: int | None, text: str) -> bool:
    """Check whether a provider refuses the fields with which it would load deferred tools."""
    return status in _REFUSALS and _FIELDS.search(text) is not None


# Documentation of Anthropic, "Tool search tool", as of November 2026: Opus, Sonnet and Haiku from
# 4.5 on, all Fable and Mythos; not Opus 4.1, Sonnet 4 and older. Snapshots have eight digits after
# the version.
_CLAUDE = re.compile(
    r"^claude-(?:(?:opus|sonnet|haiku)-(\d+)(?:-(\d{1,2}))?(?!\d)|(fable|mythos)-)", re.IGNORECASE
)
# Documentation of OpenAI, "Tool search", as of November 2026: from GPT-5.4 on.
_GPT = re.compile(r"^(?:ft:)?gpt-(\d+)(?:\.(\d+))?(?!\d)", re.IGNORECASE)


def claude_defers(model: str) -> bool:
    """Check whether an Anthropic model is known to load deferred tools."""
    match = _CLAUDE.match(model)
    if match is None:
        return False
    return match[3] is not None or (int(match[1]), int(match[2] or 0)) >= (4, 5)


def gpt_defers(model: str) -> bool:
    """Check whether an OpenAI model is known to load deferred tools."""
    return gpt_version(model) >= (5, 4)


def gpt_version(model: str) -> tuple[int, int]:
    """Parse the version in a GPT model's name. (0, 0) for any other name."""
    match = _GPT.match(model)
    return (int(match[1]), int(match[2] or 0)) if match is not None else (0, 0)


MAX_TEXT = 2_000
"""Maximum length of a hosted call's arguments and result on the trace.

The provider gets all text back.
"""
_VERSION = re.compile(r"(.+?)_(?:\d{8}|\d{4}_\d\d_\d\d)")
_MAX_PARTS = 50
_MAX_DEPTH = 8


def hosted_tools(
    spec: ProviderSpec, wanted: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, Any], ...]:
    """Build the definitions of hosted tools in the provider's format.

    A name can have a version, as at the provider.
    """
    if wanted and not spec.hosted:
        raise UsageError(
            f"Provider {spec.name} has no hosted tools.", hint="Remove hosted_tools from the model."
        )
    return tuple(_definition(spec, name, parameters) for name, parameters in wanted.items())


def _definition(spec: ProviderSpec, name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    version = _VERSION.fullmatch(name)
    template = spec.hosted.get(version[1] if version else name)
    if template is None:
        raise UnknownNameError("hosted tool", name, spec.hosted)
    fixed = {field: template[field] for field in ("type", "name") if field in template}
    if version:
        # The provider has it under its versioned name.
        fixed["type"] = name
    return {**template, **parameters, **fixed}


def hosted_call(
    name: str, arguments: object, result: object, *, failed: bool = False
) -> HostedCall:
    """Record a hosted call, with its texts cut."""
    return HostedCall(
        name=name[:80], arguments=_text(arguments), result=_text(result), failed=failed
    )


def _text(value: object) -> str:
    """Format a value as text: pages as title and address, anything else as JSON."""
    if isinstance(value, list):
        text = "\n".join(map(_text, value[:_MAX_PARTS]))
    elif isinstance(value, Mapping) and isinstance(value.get("url"), str):
        title = value.get("title")
        text = f"{title}: {value['url']}" if isinstance(title, str) and title else value["url"]
    elif isinstance(value, str) or value is None:
        text = value or ""
    else:
        text = json.dumps(_plain(value), ensure_ascii=False, default=str)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"


def _plain(value: object, depth: int = _MAX_DEPTH) -> object:
    """Cut a value, and remove the parts that only the provider can read."""
    if not depth:
        return "…"
    if isinstance(value, Mapping):
        given = ((str(name), item) for name, item in value.items() if item is not None)
        kept: dict[str, object] = {}
        for name, item in islice(given, _MAX_PARTS):
            if not name.startswith("encrypted"):
                kept[name] = _plain(item, depth - 1)
        return kept
    if isinstance(value, list):
        return [_plain(item, depth - 1) for item in value[:_MAX_PARTS]]
    return value[:MAX_TEXT] if isinstance(value, str) else value


def parsed(arguments: object) -> dict[str, Any]:
    """Parse a call's arguments as an object, even if they were streamed as text."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return {}
    return dict(arguments) if isinstance(arguments, Mapping) else {}


_Answer = TypeVar("_Answer")
_AnswerOut = TypeVar("_AnswerOut", covariant=True)
_Whole = TypeVar("_Whole")
_WORD = re.compile(r"[a-z_]{1,60}")
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_DIGITS = 12
_FAILED = ("error", "failed")
"""Finish reasons of answers that the provider did not bring to their end."""


class InvalidResponse(Exception):
    """The provider reported success and sent something that is not a response.

    The text is its body.
    """


class StreamTruncated(Exception):
    """A response ended early."""


class EmptyStream(StreamTruncated):
    """A stream was empty."""


def ended_early(how: str, *, anything: bool) -> StreamTruncated:
    """Build the error for a stream that ended early.

    Args:
        how: How it ended, such as "without its end mark".
        anything: Whether an answer had begun.
    """
    if anything:
        return StreamTruncated(f"the stream ended {how}")
    return EmptyStream("the stream ended with nothing in it")


class Reported(Exception):
    """The provider broke off a response with an error.

    Args:
        error: Its words, or an object with a message and perhaps a status.
        status: The error's HTTP status, if it is told apart from the error.
    """

    def __init__(self, error: object, status: object = None) -> None:
        message, code = error, status
        if isinstance(error, dict):
            message = error.get("message") or error.get("error")
            code = error.get("code") or error.get("status_code")
        super().__init__(message if isinstance(message, str) else json.dumps(error, default=str))
        self.status_code: int | None = None
        for value in (code, status):
            if isinstance(value, int) and 400 <= value < 600:
                self.status_code = value


class ContentFiltered(Exception):
    """The provider blocked the answer. The text is the part that it sent."""


def answer_of(
    parts: Sequence[Part],
    calls: Sequence[AssistantToolCall],
    *,
    wire: str,
    model: str,
    usage: TokenUsage | None,
    reason: object,
    response_id: object = None,
) -> ModelResponse:
    """Build a response.

    Args:
        parts: What its provider wants back, as in `ProviderState`. Their texts are the answer's.
        calls: Its tool calls.
        wire: The provider's format, as in `ProviderState`.
        model: The provider's name for the model.
        usage: The reported usage.
        reason: Why the answer ended, in the provider's word. What is no text says nothing.
        response_id: The response's id, kept if it looks like one.

    Raises:
        ContentFiltered: The reason is a refusal.
        StreamTruncated: The reason is an error.
    """
    from casual_llm import AssistantMessage

    text = "".join(part["text"] for part in parts if part["type"] == "text")
    if not isinstance(reason, str):
        reason = None
    if reason in ("content_filter", "refusal"):
        raise ContentFiltered(text or reason)
    if reason is not None and reason.casefold() in _FAILED:
        raise StreamTruncated(
            f"the provider ended it with {reason!r} as the reason, and said no more"
        )
    message = AssistantMessage(content=text, tool_calls=list(calls) or None)
    own_id = response_id if isinstance(response_id, str) and _ID.fullmatch(response_id) else None
    return ModelResponse(
        message=keep(message, wire, model, parts),
        usage=usage,
        finish_reason=reason,
        response_id=own_id,
    )


def usage_of(
    usage: object, counts: Mapping[str, str], miss: CacheMiss | None = None
) -> TokenUsage | None:
    """Read the reported usage, or return None without one. What is no count was not reported.

    Args:
        usage: What the provider reports.
        counts: Where each count of `TokenUsage` is in it, as for `part_at`.
        miss: Why the cache was missed.
    """
    read: dict[str, Any] = {}
    for name, path in counts.items():
        read[name] = counted(part_at(usage, path))
    essential = ("prompt_tokens", "completion_tokens", "reasoning_tokens")
    if all(read.get(name) is None for name in essential):
        return None
    return TokenUsage(**read, cache_miss=miss)


def part_at(value: object, path: str) -> Any:
    """Read an attribute or item, or one below it, such as `details.tokens`. None without one."""
    for name in path.split("."):
        if isinstance(value, Mapping):
            value = value.get(name)
        else:
            value = getattr(value, name, None)
    return value


def counted(value: object) -> int | None:
    """Read a count of tokens, which some servers send as text, or None for anything else."""
    if isinstance(value, str) and value.isdecimal():
        return int(value[:_DIGITS])
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    return None


def miss_of(reason: object, tokens: object = None) -> CacheMiss | None:
    """Parse a provider's reason why it could not reuse its cache.

    Only a word and a number are kept of it.
    """
    if not isinstance(reason, str) or not _WORD.fullmatch(reason):
        return None
    return CacheMiss(reason, counted(tokens))


def added_usage(usage: TokenUsage | None, other: TokenUsage | None) -> TokenUsage | None:
    """Add up two requests' usage. A count that only one reports is unknown."""
    if usage is None or other is None:
        return None
    sums: dict[str, int | None] = {}
    for name in _COUNTS:
        one, two = getattr(usage, name), getattr(other, name)
        sums[name] = None if one is None or two is None else one + two
    return replace(usage, **sums)  # type: ignore[arg-type]


_COUNTS = (
    *("prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens"),
    "cache_write_tokens",
)


def plain_usage(usage: TokenUsage | None) -> Usage | None:
    """Convert the usage to the part that casual-llm keeps."""
    from casual_llm.usage import Usage

    if usage is None or usage.prompt_tokens is None or usage.completion_tokens is None:
        return None
    return Usage(prompt_tokens=usage.prompt_tokens, completion_tokens=usage.completion_tokens)


def taken_by(create: Callable[..., object], request: Mapping[str, Any]) -> dict[str, Any]:
    """Choose the arguments for an SDK's `create`. All lists and objects go in `extra_body`, which
    is sent unchanged.

    The SDK would go through an argument in Python, on the event loop, to fit it to its types:
    milliseconds for an ordinary request's tools, ten seconds for a message with 20,000 parts.
    Options without an argument, such as temperature in Anthropic's SDK 2, go the same way: the API
    may accept them.
    """
    parameters = _parameters(getattr(create, "__func__", create))
    taken: dict[str, Any] = {}
    for name, required in parameters.items():
        if required and isinstance(request.get(name), list):
            taken[name] = []
    body: dict[str, Any] = {}
    for name, value in request.items():
        if name in _SENDING or (name in parameters and not isinstance(value, list | dict)):
            taken[name] = value
        else:
            body[name] = value
    if body:
        taken["extra_body"] = {**body, **(taken.get("extra_body") or {})}
    return taken


_SENDING = ("extra_headers", "extra_query", "extra_body", "timeout")
"""An SDK's arguments that are not in the body."""


@lru_cache(maxsize=8)
def _parameters(function: Callable[..., object]) -> dict[str, bool]:
    """Inspect the names of a function's parameters, and whether it requires them."""
    parameters = inspect.signature(function).parameters
    return {name: parameter.default is parameter.empty for name, parameter in parameters.items()}


class StreamedAnswer(Protocol[_AnswerOut]):
    """A streamed response under construction."""

    def add(self, event: Any, /) -> str:
        """Add an event. Return the text in it."""

    def answer(self) -> _AnswerOut:
        """Assemble the complete response."""


async def read_stream(
    events: Any,
    on_text: OnText,
    parts: StreamedAnswer[_Answer],
    construct: Callable[..., _Whole],
    read: Callable[[_Whole], _Answer],
) -> _Answer:
    """Read the response from an SDK's stream, even if the server answers in one piece."""
    async with events:
        whole = await _whole_body(events.response)
        if whole is not None:
            if isinstance(whole, dict):
                whole = construct(**whole)
            return read(whole)
        async for event in events:
            on_text(parts.add(event), events.response)
    return parts.answer()


async def _whole_body(response: Response) -> Any | None:
    """Read the JSON sent rather than a stream, or None for a stream."""
    kind = response.headers.get("content-type", "")
    if "json" not in kind and "html" not in kind:
        return None
    await response.aread()
    try:
        return response.json()
    except ValueError:
        raise InvalidResponse(response.text) from None


def as_sent(response: object) -> str:
    """Convert an SDK's response to the text received."""
    dump = getattr(response, "to_json", None)
    if dump is None:
        return str(response)
    return str(dump(indent=None))


class AnsweringClient:
    """Base for clients whose answers come from no provider: planned, scripted, or recorded."""

    async def answer(
        self, model: str, messages: list[ChatMessage], options: ChatOptions
    ) -> ModelResponse:
        """Answer a request."""
        raise NotImplementedError

    async def _chat(
        self, model: str, messages: list[ChatMessage], options: ChatOptions
    ) -> tuple[AssistantMessage, Usage | None]:
        answer = await self.answer(model, messages, options)
        return answer.message, plain_usage(answer.usage)


class OwnClient:
    """Base for clients that casual-llm's `Model` can use too. Subclasses implement the request."""

    async def ask(
        self, model: str, messages: list[ChatMessage], options: ChatOptions
    ) -> ModelResponse:
        """Make a request without streaming."""
        raise NotImplementedError

    async def stream(
        self, model: str, messages: list[ChatMessage], options: ChatOptions, on_text: OnText
    ) -> ModelResponse:
        """Make a streaming request."""
        raise NotImplementedError

    async def _chat(
        self, model: str, messages: list[ChatMessage], options: ChatOptions
    ) -> tuple[AssistantMessage, Usage | None]:
        answer = await self.ask(model, messages, options)
        return answer.message, plain_usage(answer.usage)

    async def _stream(
        self, model: str, messages: list[ChatMessage], options: ChatOptions
    ) -> AsyncIterator[StreamChunk]:
        from casual_llm import StreamChunk

        pieces: asyncio.Queue[str | None] = asyncio.Queue()

        def put_text(text: str, response: object = None, /) -> None:
            pieces.put_nowait(text)

        asking = asyncio.create_task(self.stream(model, messages, options, put_text))

        def end(task: asyncio.Task[ModelResponse]) -> None:
            pieces.put_nowait(None)

        asking.add_done_callback(end)
        try:
            while (text := await pieces.get()) is not None:
                if text:
                    yield StreamChunk(content=text)
            answer = await asking
        finally:
            asking.cancel()
            await asyncio.wait([asking])
        yield StreamChunk(
            content="", finish_reason=answer.finish_reason, usage=plain_usage(answer.usage)
        )


_NO_KEY = "no-key-needed"


def key_places(name: str, provider: str) -> str:
    """Describe where a client's key is looked up."""
    return ", then ".join([f"clients.{name}.api_key of the config", *key_variables(name, provider)])


def key_of(config: ClientConfig) -> str | None:
    """Choose the key to pass to an SDK: with a `base_url` and no key, a placeholder, because local
    servers need none.

    It is never None with a `base_url`: the SDK would send the provider's key from the environment
    there.
    """
    if config.api_key is not None and config.api_key.get_secret_value():
        return config.api_key.get_secret_value()
    return _NO_KEY if config.base_url else None


def headers_of(config: ClientConfig) -> dict[str, str]:
    """Reveal a client's plain headers."""
    return revealed_by_name(config.headers)


def need(name: str, sdk: str, imported: str | None = None) -> None:
    """Import an SDK, so that its client can be built.

    Args:
        name: The client's name in the config.
        sdk: The SDK's package.
        imported: The module to import, if it is not called like the package.

    Raises:
        MissingDependencyError: The SDK is not installed.
        ProviderError: A variable of the environment would keep the SDK from building its client.
            Some SDKs also complain on stderr of a client that was only half built.
    """
    odd = odd_variable(everywhere=True)
    if odd is not None:
        raise ProviderError(
            f"Client {shown(name)} cannot be made ({odd.problem}).", hint=odd.remedy
        )
    try:
        importlib.import_module(imported or sdk)
    except ImportError as error:
        raise missing(name, sdk) from error


def missing(name: str, sdk: str) -> MissingDependencyError:
    """Build the error for an SDK that is not installed."""
    return MissingDependencyError(
        f"Client {shown(name)} needs the package {sdk}.", hint=install(sdk)
    )


def no_key(name: str, provider: str) -> AuthenticationError:
    """Build the error for a client without a key."""
    hint = (
        f"It was looked for in {key_places(name, provider)}. Set"
        f" {key_variables(name, provider)[-1]}, or write it to a .env file in this folder, and try"
        " again."
    )
    return AuthenticationError(f"Client {shown(name)} has no API key.", hint=hint, client=name)


def unknown_model(name: str, models: Collection[str]) -> UnknownModelError:
    """Build the error for a model that the config does not have, with the way to use another one."""
    error = UnknownModelError("model", name, models)
    if error.matches:
        return error
    others = (
        "A model that is not in the config: %mcp connect … --model openai:gpt-4.1, or an entry"
        " under 'models' of a config file."
    )
    return UnknownModelError("model", name, models, hint=f"{error.hint} {others}")


def builds_requests(client: Any) -> Any:
    """Return casual-llm's client if it can build a request without sending it.

    Raises:
        MissingDependencyError: It cannot, because casual-llm has changed.
    """
    if not isinstance(client, OwnClient) and not hasattr(client, "_build_request_kwargs"):
        release = version("casual-llm")
        text = (
            f"casual-llm {release} builds the requests of {type(client).__name__} differently than"
            " expected here."
        )
        raise MissingDependencyError(text, hint="Run: pip install 'casual-llm==0.8.*'")
    return client


def with_own_retries(client: Any, config: ClientConfig) -> LLMClient:
    """Have a client's SDK send the config's headers, and leave retries to this package."""
    builds_requests(client)
    sdk = client.client.with_options(max_retries=0, default_headers=headers_of(config))
    client.client = sdk
    if config.base_url:
        # The environment may add headers and ids. They are meant for the provider's own address.
        sdk._custom_headers = headers_of(config)
        for name in ("organization", "project"):
            if hasattr(sdk, name):
                setattr(sdk, name, None)
    own: LLMClient = client
    return own


def class_of_casual_llm(name: str) -> Any:
    """Look up one of casual-llm's clients, which is None if its SDK is missing."""
    import casual_llm

    return getattr(casual_llm, name)


def over_openai(name: str, config: ClientConfig, kind: Callable[[], Any]) -> LLMClient:
    """Create a client that uses OpenAI's SDK.

    Args:
        name: The client's name in the config.
        config: Its entry there.
        kind: Returns its class, which takes key, URL and timeout. Called once the SDK is imported.
    """
    need(name, "openai")
    from openai import OpenAIError

    try:
        client = kind()(api_key=key_of(config), base_url=config.base_url, timeout=config.timeout)
    except OpenAIError as error:
        raise no_key(name, config.provider) from error
    return with_own_retries(client, config)


async def embed_over_openai(client: Any, model: str, texts: list[str]) -> Any:
    """Embed texts with a client that uses OpenAI's SDK. Many numbers are read on another thread."""
    response = await client.client.embeddings.with_raw_response.create(model=model, input=texts)
    rows = (await asyncio.to_thread(response.parse)).data
    return [row.embedding for row in sorted(rows, key=attrgetter("index"))]
