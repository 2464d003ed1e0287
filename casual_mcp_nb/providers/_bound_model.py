"""A model bound to its client and to its provider's adapter.

casual-llm builds the requests. Responses are parsed here, because its own `_chat` drops the finish
reason and cached tokens, and fails on a response without usage (Ollama) or without choices. Its own
`_stream` drops tool calls.
"""

from __future__ import annotations

import asyncio
import importlib
import re
from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.config_base import NO_OPTIONS, RequestOptions
from casual_mcp_nb.base.dialects import Dialect, dialect_of
from casual_mcp_nb.base.iterables import present
from casual_mcp_nb.base.tokens import TokenUsage
from casual_mcp_nb.conversation.step import ModelResponse
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.providers._clients import part_at
from casual_mcp_nb.providers._options import (
    Learned,
    learned,
    options_of,
)
from casual_mcp_nb.providers.builtin import openai
from casual_mcp_nb.providers.limits import Retries
from casual_mcp_nb.providers.registry import (
    Definitions,
    OnText,
    ProviderAdapter,
    ProviderSpec,
    host_of,
    is_at_home,
    not_sent,
    plain_tools_param,
    spec_of,
    spec_of_kind,
)

if TYPE_CHECKING:
    from casual_llm import ChatOptions, LLMClient
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.base.prices import Price
    from casual_mcp_nb.cassettes.recorder import Recorder
    from casual_mcp_nb.cassettes.replayer import Replayer
    from casual_mcp_nb.providers.limits import ClientLimits


_OF_TOOLS = ("tool_choice", "parallel_tool_calls")


@dataclass(frozen=True)
class Sendable:
    """The options to send with a request, and notices for the person about those that are not
    sent.
    """

    options: RequestOptions
    notices: tuple[str, ...] = ()


def adapter_of(client: Any) -> ProviderAdapter:
    """Find a client's adapter.

    An unknown client is called through casual-llm's protocol, with tools in OpenAI's format.
    """
    return _adapter_of_kind(client.__class__)


@lru_cache(maxsize=64)
def _adapter_of_kind(own: Any) -> ProviderAdapter:
    if hasattr(own, "answer"):
        stream = _stream_own if getattr(own, "streams", False) else None
        offer_found = _offer_all if getattr(own, "loads_found_tools", False) else None
        return ProviderAdapter(
            plain_tools_param,
            ask=_complete_own,
            stream=stream,
            offer_found=offer_found,
            is_own=True,
        )
    spec = spec_of_kind(own)
    offer: Callable[[Definitions], dict[str, Any]] = openai.offer
    if spec is not None and spec.adapter is not None:
        # A subclass that overrides `_chat` is called through it.
        if own._chat is getattr(spec.client(), "_chat", None):
            return spec.adapter
        offer = spec.adapter.offer
    return ProviderAdapter(offer, ask=_ask_protocol, is_own=True)


def _offer_all(tools: Definitions, found_tools: Definitions) -> dict[str, Any]:
    return plain_tools_param([*tools, *found_tools])


async def _complete_own(
    client: Any, model: str, messages: list[ChatMessage], options: ChatOptions
) -> ModelResponse:
    answer: ModelResponse = await client.answer(model, messages, options)
    return answer


async def _stream_own(
    client: Any, model: str, messages: list[ChatMessage], options: ChatOptions, on_text: OnText
) -> ModelResponse:
    answer = await _complete_own(client, model, messages, options)
    for piece in re.findall(r"\s*(?:\S+\s*){1,3}", answer.message.content or ""):
        on_text(piece)
        await asyncio.sleep(0)
    return answer


async def _ask_protocol(
    client: LLMClient, model: str, messages: list[ChatMessage], options: ChatOptions
) -> ModelResponse:
    message, usage = await client._chat(model=model, messages=messages, options=options)
    if not usage:
        return ModelResponse(message)
    counts = TokenUsage(
        prompt_tokens=usage.prompt_tokens, completion_tokens=usage.completion_tokens
    )
    return ModelResponse(message, counts)


@dataclass(eq=False, repr=False)
class BoundModel:
    """A model bound to its client, with its request options.

    Args:
        name: Its name in the config. The default is the provider's name.
        provider: The provider, such as `openai`. The default is the client's class.
        options: Every request's further options, see `RequestOptions`. They take precedence.
        key_places: Where the key is looked up, in words, for the error about a rejected key.
        timeout: Seconds until the answer, or a stream's first chunk, for all attempts together, or
            None for only the SDK's own limit.
        secrets: Returns the values to mask in errors, in addition to the client's key.
        native_deferral: Whether the provider loads deferred tools itself, or None if that follows
            from the model's name.
        hosted_tools: Definitions for tools that the provider runs itself, in its format.
        cache_diagnostics: Whether the provider is asked why its cache was missed, or None if that
            follows from its address.
        repair_calls: Whether calls that it writes as text are run.
        small: Whether it is a small model, or None to find out.

    Attributes:
        own_options: The options without a turn's.
        tape: Records its answers, or answers in its place, or None for neither.
    """

    client: LLMClient
    model: str
    _: KW_ONLY
    name: str = ""
    client_name: str = ""
    provider: str = ""
    template: str | None = None
    context_window: int | None = None
    default_options: ChatOptions | None = None
    options: RequestOptions = NO_OPTIONS
    key_places: str = ""
    timeout: float | None = None
    retries: Retries = field(default_factory=Retries)
    secrets: Callable[[], Collection[str]] = tuple
    price: Price | None = None
    limits: ClientLimits | None = None
    native_deferral: bool | None = None
    hosted_tools: Definitions = ()
    cache_diagnostics: bool | None = None
    repair_calls: bool = False
    small: bool | None = None

    def __post_init__(self) -> None:
        self.name = self.name or self.model
        self.provider = self.provider or type(self.client).__name__
        self.client_name = self.client_name or self.provider
        self.own_options = self.options
        self.tape: Recorder | Replayer | None = None
        self._facts: dict[str, Learned] = {}
        self._offered: tuple[Definitions, dict[str, Any]] = (), {}

    @cached_property
    def wire(self) -> ProviderAdapter:
        """How requests are made with its client."""
        return adapter_of(self.client)

    @cached_property
    def dialect(self) -> Dialect | None:
        """What its provider takes of tools, or None for a client that makes its own requests."""
        if hasattr(type(self.client), "answer"):
            return None
        return self.wire.dialect or dialect_of(
            self.wire.name or "litellm", host_of(self.client), at_home=self.is_at_home
        )

    @cached_property
    def wire_spec(self) -> ProviderSpec:
        """The spec of the provider whose requests these are."""
        return spec_of(self.wire.name)

    @property
    def facts(self) -> Learned:
        """The facts learnt about the model. All that are bound to the same client share them."""
        if self.model not in self._facts:
            self._facts[self.model] = learned(self.client, self.model)
        return self._facts[self.model]

    @cached_property
    def wanted(self) -> RequestOptions:
        """The requested options, wherever they were set."""
        return options_of(self.default_options).overlaid(self.options)

    @property
    def window(self) -> int | None:
        """The context window in tokens: `context_window`, or the size that the provider stated in a
        refusal if that is less.
        """
        sizes = present((self.context_window, self.facts.window))
        return min(sizes, default=None)

    def sendable(self, *, tools: bool) -> Sendable:
        """Select the options to send with a request, as far as known.

        An answer limit that nobody has set is chosen here where every request needs one, and at the
        provider's own address. The windows of other servers are not known.

        Args:
            tools: Whether the request offers tools.
        """
        wire, name = self.wire.name or self.provider, self.model
        options, facts = self.wanted, self.facts
        given, spec = options.given(), spec_of(wire)
        usual = None
        if spec.needs_answer_limit or (spec.models and self.is_at_home):
            usual = spec.answer_limit(name, options)
        most = usual if options.max_tokens is None else options.max_tokens
        if not given and most is None:
            return Sendable(options)
        if spec.highest_temperature is not None:
            highest, models = spec.highest_temperature
            if (options.temperature or 0) > highest:
                raise UsageError(
                    f"temperature: {models} take 0 to {highest:g}.",
                    hint=f"The highest is {highest:g}.",
                )
        unsent = not_sent(wire, name, options)
        unsent |= {option: notice for option, notice in facts.left_out.items() if option in given}
        if not tools:
            for option in _OF_TOOLS:
                if option in given:
                    unsent.setdefault(option, "")
            if given.get("tool_choice") not in (None, "auto", "none"):
                unsent["tool_choice"] = "No tools are offered: tool_choice is not sent."
        changes: dict[str, Any] = dict.fromkeys(unsent)
        if "max_tokens" in unsent:
            most = usual
        if most is not None:
            changes["max_tokens"] = most
            if facts.most_tokens is not None:
                changes["max_tokens"] = min(most, facts.most_tokens)
        notices = tuple(filter(None, unsent.values()))
        return Sendable(options.model_copy(update=changes), notices)

    def offer(self, tools: Definitions) -> dict[str, Any]:
        """Convert definitions to request arguments. A tuple that is sent again is converted once."""
        last, offer = self._offered
        # Not by equality, for which a schema's `true` is the same as 1.
        if tools is not last:
            offer = self.wire.offer(tools)
            if isinstance(tools, tuple):
                self._offered = tools, offer
        # Adapters mark tools in the list of their request.
        if "tools" in offer:
            return {**offer, "tools": [*offer["tools"]]}
        return dict(offer)

    @cached_property
    def is_at_home(self) -> bool:
        """Whether its client's URL is the provider's own."""
        return is_at_home(self.client, spec_of(self.wire.name or self.provider).homes)


def touch(provider: str, client: object) -> None:
    """Do the imports and setup that an SDK, and our adapter for it, would leave for the first
    request.
    """
    adapter_of(client)
    # Its asyncio backend is imported in the first request.
    importlib.import_module("anyio._backends._asyncio")
    spec = spec_of(provider)
    for path in spec.first_used:
        part_at(client, f"client.{path}")
    spec.warm_up()
