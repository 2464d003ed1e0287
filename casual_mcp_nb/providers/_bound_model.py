"""A model bound to its client, with everything that requests need."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.providers.base import Retries
from casual_mcp_nb.types.options import NO_OPTIONS, RequestOptions

if TYPE_CHECKING:
    from casual_llm import ChatOptions, LLMClient

    from casual_mcp_nb.providers._learned import Learned
    from casual_mcp_nb.providers._options import Sendable
    from casual_mcp_nb.providers.limits import ClientLimits
    from casual_mcp_nb.providers.spec import ProviderAdapter
    from casual_mcp_nb.store.recorder import Recorder
    from casual_mcp_nb.store.replayer import Replayer
    from casual_mcp_nb.types.prices import Price


class BoundModel:
    """A model bound to its client, with its request options.

    Args:
        client: A casual-llm client, shared by its models.
        model: The provider's name of the model.
        name: Its name in the config; the default is the provider's name.
        client_name: The client's name in the config.
        provider: The provider, such as `openai`; the default is the client's class.
        template: The file that generates the system prompt.
        context_window: The context window in tokens; None if unknown.
        default_options: casual-llm's options, sent with every request.
        options: Further options of every request, see `RequestOptions`; they take precedence.
        key_places: Where the key is looked up, in words, for the error about a rejected key.
        timeout: Seconds until the answer, or the first chunk of a stream, for all attempts together; None for only the SDK's
            own limit.
        retries: How temporary failures are retried.
        secrets: Returns the values to mask in errors, in addition to the client's key.
        price: Its price in the user's price table.
        limits: The rate limits of its client; None for none.
        native_deferral: Whether the provider loads deferred tools itself; None if that follows from the model's name.
        hosted_tools: Definitions of tools that the provider runs itself, in its format.
        cache_diagnostics: Whether the provider is asked why its cache was missed; None if that follows from its address.
        repair_calls: Whether calls that it writes as text are run.

    Attributes:
        own_options: The options without those of a turn.
        tape: Records its answers, or answers in its place; None for neither.
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
        native_deferral: bool | None = None,
        hosted_tools: Sequence[Mapping[str, Any]] = (),
        cache_diagnostics: bool | None = None,
        repair_calls: bool = False,
    ) -> None:
        self.client = client
        self.model = model
        self.name = name or model
        self.provider = provider or type(client).__name__
        self.client_name = client_name or self.provider
        self.template = template
        self.context_window = context_window
        self.default_options = default_options
        self.options = self.own_options = options or NO_OPTIONS
        self.key_places = key_places
        self.timeout = timeout
        self.retries = retries or Retries()
        self.secrets = secrets
        self.price = price
        self.limits = limits
        self.native_deferral = native_deferral
        self.hosted_tools = tuple(hosted_tools)
        self.cache_diagnostics = cache_diagnostics
        self.repair_calls = repair_calls
        self.tape: Recorder | Replayer | None = None
        self._facts: tuple[str, Learned | None] = "", None
        self._plain: tuple[str, RequestOptions, Sendable | None] = "", NO_OPTIONS, None
        self._offered: tuple[Sequence[Mapping[str, Any]], dict[str, Any]] = (), {}

    @cached_property
    def wire(self) -> ProviderAdapter:
        """How requests are made with its client."""
        from casual_mcp_nb.providers._adapter import adapter_of

        return adapter_of(self.client)

    @property
    def facts(self) -> Learned:
        """The facts learnt about the model; all that are bound to the same client share them."""
        name, facts = self._facts
        if facts is None or name is not self.model:
            from casual_mcp_nb.providers._learned import learned

            facts = learned(self.client, self.model)
            self._facts = self.model, facts
        return facts

    @cached_property
    def wanted(self) -> RequestOptions:
        """The requested options, wherever they were set."""
        from casual_mcp_nb.providers._options import options_of

        return options_of(self.default_options).overlaid(self.options)

    @property
    def window(self) -> int | None:
        """The context window in tokens: `context_window`, or the size that the provider stated in a refusal if that is less."""
        own, stated = self.context_window, self.facts.window
        return own if stated is None else stated if own is None else min(own, stated)

    def sendable(self, *, tools: bool) -> Sendable:
        """Select the options that a request is sent with, as far as known.

        Args:
            tools: Whether tools are offered.

        Raises:
            UsageError: A value can never be sent to this provider.
        """
        name, wanted, plain = self._plain
        if plain is not None and name is self.model and wanted is self.wanted:
            return plain
        from casual_mcp_nb.providers._options import sendable

        wire, facts = self.wire.name or self.provider, self.facts.options
        sent = sendable(wire, self.model, self.wanted, facts, tools=tools, at_home=self._is_at_home)
        if sent.plain:
            self._plain = self.model, self.wanted, sent
        return sent

    def offer(self, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return definitions as request arguments; a tuple that is sent again is converted once.

        Args:
            tools: The definitions.
        """
        last, offer = self._offered
        if tools is not last:
            offer = self.wire.offer(tools)
            if isinstance(tools, tuple):
                self._offered = tools, offer
        # Adapters mark tools in the list of their request.
        return {**offer, "tools": [*offer["tools"]]} if "tools" in offer else dict(offer)

    @cached_property
    def _is_at_home(self) -> bool:
        from casual_mcp_nb.providers.registry import is_at_home, spec_of

        return is_at_home(self.client, spec_of(self.wire.name or self.provider).homes)
