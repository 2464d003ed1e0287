"""The description of a provider: everything specific to it, in one value."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from casual_mcp_nb.types.model_options import ReasoningEffort
from casual_mcp_nb.types.options import TOOL_CHOICES, RequestOptions

if TYPE_CHECKING:
    from casual_llm import ChatMessage, ChatOptions, LLMClient

    from casual_mcp_nb.types.config import ClientConfig
    from casual_mcp_nb.types.model_response import ModelResponse

Definitions = Sequence[Mapping[str, Any]]


class OnText(Protocol):
    """Receives an answer's text as it arrives."""

    def __call__(self, text: str, response: object = None, /) -> None:
        """Receive the next chunk of text; an empty one means that something else arrived.

        With the response that it came in, the total size is limited too.
        """


@dataclass(frozen=True)
class ProviderAdapter:
    """Functions that make requests with one kind of client.

    Args:
        offer: Tool definitions to extra arguments of the request.
        ask: One request: client, model, messages and options to an answer.
        stream: The same, with the text told as it arrives; None where that cannot be had with calls of tools.
        name: The format, as what is kept for a provider has it; empty where a client makes its own requests.
        offer_found: Definitions that are always loaded, and those that searches have found, to extra arguments of a request
            whose rendered beginning stays the same when more are found; None where the provider cannot do that.
    """

    offer: Callable[[Definitions], dict[str, Any]]
    ask: Callable[[Any, str, list[ChatMessage], ChatOptions], Awaitable[ModelResponse]]
    stream: Callable[[Any, str, list[ChatMessage], ChatOptions, OnText], Awaitable[ModelResponse]] | None = None
    name: str = ""
    offer_found: Callable[[Definitions, Definitions], dict[str, Any]] | None = None


def plain_tools_param(tools: Definitions) -> dict[str, Any]:
    """Pass the definitions unchanged as request arguments, for a client that converts them itself."""
    return {"tools": [dict(tool) for tool in tools]} if tools else {}


def choose_tools(options: RequestOptions) -> dict[str, Any]:
    """Convert tool choice and parallel calls to OpenAI's format."""
    choice, parallel = options.tool_choice, options.parallel_tool_calls
    arguments: dict[str, Any] = {} if parallel is None else {"parallel_tool_calls": parallel}
    if choice is None:
        return arguments
    named = {"type": "function", "function": {"name": choice}}
    return {**arguments, "tool_choice": choice if choice in TOOL_CHOICES else named}


def reasoning_effort(effort: ReasoningEffort) -> dict[str, Any]:
    """Convert the reasoning effort to OpenAI's format for chat completions."""
    return {"reasoning_effort": effort}


class ModelLimits(NamedTuple):
    """The limits on a model's input and output.

    Args:
        window: Its context window in tokens, the answer included.
        answer: The most tokens of an answer.
    """

    window: int
    answer: int


ANSWER_TOKENS = 8_192
"""The limit of an answer that nobody has set: what a model that does not stop costs at most."""
THOUGHT_AND_ANSWER_TOKENS = 32_768
"""The same where the model's thinking counts in the limit."""
MODELS_AS_OF = "2026-11"
"""When the providers' pages were read for `ProviderSpec.models`."""


@dataclass(frozen=True, kw_only=True)
class ProviderSpec:
    """A provider. The defaults are those of a server compatible with OpenAI's chat completions.

    Args:
        name: Its name in a config; also the wire format in `ProviderState`.
        about: A short description, for lists of providers.
        position: Its position in lists of bundled providers.
        build: Returns the client for a name and its config.
        adapter: How to make requests with its client; None if the client makes its own requests (it has `answer`).
        client: The class of its client, None if its SDK is missing; also identifies the provider of a custom client.
        sdk: The package of its SDK, which is also our extra and, with `_`, the name of its logger; None if it needs none.
        key_variable: The environment variable for its key, looked up after the client's own.
        homes: The hosts that the key belongs to, the provider's own first.
        names: The names of its models, by which a name without a provider finds it; None if they are not known by their names.
        reasons_with: The provider that its models which reason use instead, at its own address, where only `NAME:MODEL` is
            given; `NAME-chat:MODEL` stays with this one.
        example_model: One of its models that calls tools, for those who have not chosen one.
        needs_key: Whether it requires a key.
        is_language_model: Whether it is one, with a price, a window and an answer that can be extracted from.
        api: The API's name in notices about unsupported options.
        lacking: The options that it does not support.
        own_fields: The fields that we add to a request by ourselves, and leave out once a server has refused them.
        unsent: Further options that are not sent to a model, each with the reason.
        notes: Notices about the options of a model.
        highest_temperature: Its maximum temperature if lower than others', with the name of its models.
        choose_tools: The tool choice in its format.
        offers_none: Whether no tools are offered if none may be called.
        effort: The reasoning effort in its format.
        think: Asks its server for the value of the argument `think` for an effort; None if it cannot think.
        takes_thinking_tokens: Whether a thinking budget can be set.
        models: Its current models by the beginnings of their names, as of `MODELS_AS_OF`; the longest one applies. It holds at
            the provider's own address: elsewhere a name says nothing about a server's limits.
        needs_answer_limit: Whether every request must have a limit of the answer.
        thinks: Whether a model thinks before it answers, by its name and options, and its thinking counts in that limit.
        window_option: The argument for a model's context window.
        window_note: What happens without it.
        overflow: What happens to a conversation that is too long.
        takes_format: Whether it has a JSON mode.
        chat_messages: Whether its messages are in the format of chat completions, with the quirks of many servers.
        renames_max_tokens: Whether the limit of an answer has a different name for some of its models.
        hosted: Tools that the provider runs itself: by name, the beginning of their definitions.
        diagnose: Client, model and the id of the response before to the fields that ask why the cache was missed; None where
            that cannot be asked.
        max_tools: How many tools a request may have at the provider's own address; None if no limit is known.
        defers: Whether a model is known to load deferred tools itself, at the provider's own address.
        read_first: The options that its models read before the messages, so that a change of one costs the cache of them.
        counted_by_tiktoken: Whether tiktoken has its vocabularies.
        first_used: Attributes of its client that its SDK imports on first access.
        warm_up: Makes its SDK build what it would leave for the first answer.
    """

    name: str
    about: str
    build: Callable[[str, ClientConfig], LLMClient]
    position: int = 100
    adapter: ProviderAdapter | None = None
    client: Callable[[], type[Any] | None] = lambda: None
    sdk: str | None = None
    key_variable: str | None = None
    homes: tuple[str, ...] = ()
    names: re.Pattern[str] | None = None
    reasons_with: str | None = None
    example_model: str | None = None
    needs_key: bool = True
    is_language_model: bool = True
    api: str = "The provider's API"
    lacking: tuple[str, ...] = ()
    own_fields: tuple[str, ...] = ("stream_options",)
    unsent: Callable[[str, RequestOptions], dict[str, str]] = lambda model, options: {}
    notes: Callable[[str, RequestOptions], list[str]] = lambda model, options: []
    highest_temperature: tuple[float, str] | None = None
    choose_tools: Callable[[RequestOptions], dict[str, Any]] = choose_tools
    offers_none: bool = False
    effort: Callable[[ReasoningEffort], dict[str, Any]] = reasoning_effort
    think: Callable[[Any, str, str], Awaitable[bool | str | None]] | None = None
    takes_thinking_tokens: bool = False
    models: Mapping[str, ModelLimits] = field(default_factory=dict)
    needs_answer_limit: bool = False
    thinks: Callable[[str, RequestOptions], bool] = lambda model, options: options.reasoning_effort not in (None, "none")
    window_option: str | None = None
    window_note: str = ""
    overflow: str = "the provider refuses it first, and only then is it trimmed"
    takes_format: bool = True
    chat_messages: bool = False
    renames_max_tokens: bool = False
    hosted: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    diagnose: Callable[[Any, str, str | None], dict[str, Any]] | None = None
    max_tools: int | None = None
    defers: Callable[[str], bool] = lambda model: False
    read_first: tuple[str, ...] = ("parallel_tool_calls", "reasoning_effort")
    counted_by_tiktoken: bool = False
    first_used: tuple[str, ...] = ()
    warm_up: Callable[[], None] = lambda: None

    def limits_of(self, model: str) -> ModelLimits | None:
        """Look up the limits of a model by its name; None if they are unknown."""
        name = model.rsplit("/", 1)[-1].rsplit("anthropic.", 1)[-1]
        starts = [start for start in self.models if name == start or re.match(rf"{re.escape(start)}(?![0-9a-z.])", name)]
        return self.models[max(starts, key=len)] if starts else None

    def answer_limit(self, model: str, options: RequestOptions) -> int:
        """Choose the limit of an answer where neither the person nor the config sets one; never more than the model's own."""
        limits, most = self.limits_of(model), THOUGHT_AND_ANSWER_TOKENS if self.thinks(model, options) else ANSWER_TOKENS
        return min(most, limits.answer) if limits else most
