"""What the package knows of a provider: everything that differs from one to the next, in one value."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from casual_mcp_nb.types.model_options import ReasoningEffort
from casual_mcp_nb.types.options import TOOL_CHOICES, RequestOptions

if TYPE_CHECKING:
    from casual_llm import ChatMessage, ChatOptions, LLMClient

    from casual_mcp_nb.types.config import ClientConfig
    from casual_mcp_nb.types.model_response import ModelResponse

Definitions = Sequence[Mapping[str, Any]]


class OnText(Protocol):
    """What is told of an answer while it comes."""

    def __call__(self, text: str, response: object = None, /) -> None:
        """Take the next piece of text; an empty one means that something else arrived.

        With the response that it came in, how much has come altogether is bounded too.
        """


@dataclass(frozen=True)
class ProviderAdapter:
    """How to talk to one kind of client.

    Args:
        offer: Tool definitions to extra arguments of the request.
        ask: One request: client, model, messages and options to an answer.
        stream: The same, with the text told as it arrives; None where that cannot be had with calls of tools.
        name: The format, as what is kept for a provider has it; empty where a client makes its own requests.
    """

    offer: Callable[[Definitions], dict[str, Any]]
    ask: Callable[[Any, str, list[ChatMessage], ChatOptions], Awaitable[ModelResponse]]
    stream: Callable[[Any, str, list[ChatMessage], ChatOptions, OnText], Awaitable[ModelResponse]] | None = None
    name: str = ""


def offer_plain(tools: Definitions) -> dict[str, Any]:
    """Return the definitions as arguments of a request as they are, for a client that puts them in its own words."""
    return {"tools": [dict(tool) for tool in tools]} if tools else {}


def choose_tools(options: RequestOptions) -> dict[str, Any]:
    """Return which tools may be called, and whether several at once, in OpenAI's words."""
    choice, parallel = options.tool_choice, options.parallel_tool_calls
    said: dict[str, Any] = {} if parallel is None else {"parallel_tool_calls": parallel}
    if choice is None:
        return said
    named = {"type": "function", "function": {"name": choice}}
    return {**said, "tool_choice": choice if choice in TOOL_CHOICES else named}


def reasoning_effort(effort: ReasoningEffort) -> dict[str, Any]:
    """Return how much a model is to think, in OpenAI's word for chat completions."""
    return {"reasoning_effort": effort}


@dataclass(frozen=True, kw_only=True)
class ProviderSpec:
    """A provider; what is not given is as with a server that speaks OpenAI's chat completions.

    Args:
        name: Its name in a config; also the format of its requests, as what is kept for later requests has it.
        about: What it is, for lists of providers.
        place: Where it stands in lists of those that ship with the package.
        build: The client for a name and its settings in a config.
        adapter: How to talk to its client; None where the client makes its own requests (it has `answer`).
        client: The class of its client, None where its SDK is missing; by it a client of the person's own is known too.
        sdk: The package of its SDK, which is also our extra and, with `_`, the name of its logger; None where it needs none.
        key_variable: The environment variable in which its key is looked for after the client's own.
        homes: The hosts to which that key belongs, the provider's own first.
        example_model: One of its models that calls tools, for those who have not chosen one.
        needs_key: Whether it cannot be asked without a key.
        is_language_model: Whether it is one, with a price, a window and an answer that can be extracted from.
        api: What is said to lack an option.
        lacking: The options that it has no field for.
        unsent: More options that a model is not sent, each with the reason.
        notes: What a person should know about the options of a model.
        highest_temperature: What it takes at most, where that is less than others take, with whose models they are.
        choose_tools: Which tools may be called, in its words.
        offers_none: Whether no tools are offered where none may be called.
        effort: How much to think, in its words.
        think: Asks its server for what it takes for an effort, as the argument `think`; None where it cannot think.
        takes_thinking_tokens: Whether a budget for thinking can be set.
        answer_limit: The limit of an answer where the person gives none; None where none must be sent.
        window_option: The argument that tells it a model's window.
        window_note: What happens where that is not told.
        overflow: What happens to a conversation that is too long.
        takes_format: Whether it can be told to answer with JSON.
        chat_messages: Whether it has messages in the shape of chat completions, with the quirks of many servers.
        renames_max_tokens: Whether the limit of an answer has another name for some of its models.
        counted_by_tiktoken: Whether tiktoken knows its vocabularies.
        first_used: What its SDK imports when it is first looked at, as attributes of its client.
        warm_up: Has its SDK build what it leaves for its first answer.
    """

    name: str
    about: str
    build: Callable[[str, ClientConfig], LLMClient]
    place: int = 100
    adapter: ProviderAdapter | None = None
    client: Callable[[], type[Any] | None] = lambda: None
    sdk: str | None = None
    key_variable: str | None = None
    homes: tuple[str, ...] = ()
    example_model: str | None = None
    needs_key: bool = True
    is_language_model: bool = True
    api: str = "The provider's API"
    lacking: tuple[str, ...] = ()
    unsent: Callable[[str, RequestOptions], dict[str, str]] = lambda model, options: {}
    notes: Callable[[str, RequestOptions], list[str]] = lambda model, options: []
    highest_temperature: tuple[float, str] | None = None
    choose_tools: Callable[[RequestOptions], dict[str, Any]] = choose_tools
    offers_none: bool = False
    effort: Callable[[ReasoningEffort], dict[str, Any]] = reasoning_effort
    think: Callable[[Any, str, str], Awaitable[bool | str | None]] | None = None
    takes_thinking_tokens: bool = False
    answer_limit: Callable[[str], int | None] = lambda model: None
    window_option: str | None = None
    window_note: str = ""
    overflow: str = "the provider refuses it"
    takes_format: bool = True
    chat_messages: bool = False
    renames_max_tokens: bool = False
    counted_by_tiktoken: bool = False
    first_used: tuple[str, ...] = ()
    warm_up: Callable[[], None] = lambda: None
