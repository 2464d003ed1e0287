"""A model bound to its client, and what it answers."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.types.options import RequestOptions
from casual_mcp_nb.types.tokens import TokenUsage

if TYPE_CHECKING:
    from casual_llm import ChatOptions, LLMClient, Model
    from casual_llm.messages import AssistantMessage, ChatMessage

    from casual_mcp_nb.providers._options import Sendable
    from casual_mcp_nb.providers.limits import ClientLimits, RateLimitWait
    from casual_mcp_nb.providers.spec import ProviderSpec
    from casual_mcp_nb.types.prices import Price


# Chat completions and Ollama: length; Anthropic: max_tokens, model_context_window_exceeded; Responses: max_output_tokens, and
# incomplete where it gives no reason; Mistral: model_length.
_CUT = frozenset({"length", "max_tokens", "max_output_tokens", "incomplete", "model_length", "model_context_window_exceeded"})


@dataclass(frozen=True)
class ModelResponse:
    """What one call of a model came to.

    Args:
        message: The answer: text, calls of tools, or both.
        usage: What it cost, as the provider reported it with this answer; None where it did not.
        finish_reason: The provider's word for why it ended.
    """

    message: AssistantMessage
    usage: TokenUsage | None = None
    finish_reason: str | None = None

    @property
    def truncated(self) -> bool:
        """Whether the answer was cut at a limit of tokens, its own or that of what the model can read."""
        return (self.finish_reason or "").lower() in _CUT


@dataclass(frozen=True)
class RetryScheduled:
    """A request failed and is made again after a wait.

    Args:
        attempt: How many requests were made so far.
        seconds: The wait that begins now.
        reason: What went wrong, in few words.
    """

    attempt: int
    seconds: float
    reason: str


@dataclass(frozen=True)
class RequestAdapted:
    """A request is made again in another form, since the model does not take the first one.

    Args:
        notice: What is done differently from now on, in words for the person.
    """

    notice: str


@dataclass(frozen=True)
class Retries:
    """How often and how patiently a request is made again. Where the provider says how long to wait, that holds.

    Args:
        most: How often at most.
        first_wait: Seconds of the first wait where the provider does not say; each further one is twice as long, and all are
            lengthened by chance.
        most_wait: Seconds of the longest single wait; a provider that asks for more is not waited for.
        most_waits: Seconds of all waits together.
    """

    most: int = 0
    first_wait: float = 0.5
    most_wait: float = 60.0
    most_waits: float = 120.0


class ChatModel:
    """One model bound to its client: the only way in which the engine meets a provider.

    Args:
        client: A casual-llm client, shared by its models.
        model: The provider's name of the model.
        name: Its name in the config; the provider's name where there is none.
        client_name: The client's name in the config.
        provider: Which provider, for instance `openai`; the class of the client where it is not given.
        template: The file that makes the system prompt.
        context_window: How many tokens the model can read; None when not known.
        default_options: casual-llm's options that go with every request.
        options: What goes with every request beside them, see `RequestOptions`; it wins over them.
        key_places: Where the key is looked for, in words, for the error about a key that was refused.
        timeout: Seconds until an answer must be there, or its first piece where it is streamed, all attempts together; None
            where only the SDK's own limit holds.
        retries: How often a request that can succeed later is made again.
        secrets: Gives the values to mask in errors, beside the client's own key.
        price: What its tokens cost, by the person's own table.
        limits: What its client may ask in a minute; None for no limit of ours.
    """

    def __init__(
        self,
        client: LLMClient,
        model: str,
        *,
        name: str | None = None,
        client_name: str | None = None,
        provider: str | None = None,
        template: str | None = None,
        context_window: int | None = None,
        default_options: ChatOptions | None = None,
        options: RequestOptions | None = None,
        key_places: str = "",
        timeout: float | None = None,
        retries: Retries | None = None,
        secrets: Callable[[], Collection[str]] = tuple,
        price: Price | None = None,
        limits: ClientLimits | None = None,
    ) -> None:
        self.client = client
        self.model = model
        self.name = name or model
        self.provider = provider or type(client).__name__
        self.client_name = client_name or self.provider
        self.template = template
        self.context_window = context_window
        self.default_options = default_options
        self.options = options or RequestOptions()
        self.key_places = key_places
        self.timeout = timeout
        self.retries = retries or Retries()
        self.secrets = secrets
        self.price = price
        self.limits = limits

    @classmethod
    def of(cls, model: Model, name: str | None = None) -> ChatModel:
        """Bind a model that the person made: any `casual_llm.Model`, also over a client of their own.

        Args:
            model: The model; its options are used, its own bookkeeping of usage is not.
            name: What to call it; the provider's name by default.
        """
        options = model.default_options
        if model.system_message_handling and not (options and options.system_message_handling):
            from casual_llm import ChatOptions

            options = dataclasses.replace(options or ChatOptions(), system_message_handling=model.system_message_handling)
        return cls(model._client, model.name, name=name, default_options=options)

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        on_event: Callable[[str | RetryScheduled | RateLimitWait | RequestAdapted], None] | None = None,
        stream: bool = True,
    ) -> ModelResponse:
        """Ask the model, and again where the provider can answer later; see `Retries`.

        Args:
            messages: The whole conversation, the system message first.
            tools: What is offered: definitions with `name`, `description` and `parameters`, sent as they are.
            on_event: Gets what happens before the answer is complete: its text piece by piece where the provider can do that,
                `RetryScheduled` before the wait for another attempt, `RateLimitWait` before one for the client's limits, and
                `RequestAdapted` where the request is made again in a form that the model takes.
            stream: False asks for the answer in one piece.

        Returns:
            The answer with its own usage.

        Raises:
            ProviderError: The provider cannot be reached, refused the request, or answered something that cannot be used; see
                its subclasses. Where text was given to `on_event` before, it is an `IncompleteStreamError` that has it.
        """
        from casual_mcp_nb.providers._model_request import ModelRequest

        return await ModelRequest(self, messages, tools, on_event, stream).answer()

    @property
    def wanted(self) -> RequestOptions:
        """The options that are wanted for each request, wherever they were given."""
        from casual_mcp_nb.providers._options import options_of

        return options_of(self.default_options).overlaid(self.options)

    def with_options(self, options: RequestOptions) -> ChatModel:
        """This model, asked with other options; what is learnt of it is shared."""
        changed = copy.copy(self)
        changed.options = self.options.overlaid(options)
        return changed

    def unforced(self) -> ChatModel:
        """This model, free to answer: without a choice of tools that would make it call one again and again."""
        if self.wanted.tool_choice in (None, "auto", "none"):
            return self
        return self.with_options(RequestOptions(tool_choice="auto"))

    def sendable(self, *, tools: bool) -> Sendable:
        """What of the wanted options a request is sent with, as far as that is known.

        Args:
            tools: Whether tools are offered.

        Raises:
            UsageError: A value can never be sent to this provider.
        """
        from casual_mcp_nb.providers._adapter import wire_of
        from casual_mcp_nb.providers._learned import learned
        from casual_mcp_nb.providers._options import sendable

        api = wire_of(self.client).name or self.provider
        return sendable(api, self.model, self.wanted, learned(self.client, self.model).options, tools=tools)

    @property
    def spec(self) -> ProviderSpec:
        """What is known of its provider, also for a client that the person made."""
        from casual_mcp_nb.providers.registry import spec_of, specs

        kinds = ((spec, spec.client()) for spec in specs().values())
        return next((spec for spec, kind in kinds if kind and isinstance(self.client, kind)), spec_of(self.provider))

    def __repr__(self) -> str:
        return f"<ChatModel {self.name!r}: {self.model!r} of client {self.client_name!r} ({self.provider})>"
