"""A model with its client and everything that a request needs to know of both."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from casual_mcp_nb.providers.base import Retries
from casual_mcp_nb.types.options import RequestOptions

if TYPE_CHECKING:
    from casual_llm import ChatOptions, LLMClient

    from casual_mcp_nb.providers._options import Sendable
    from casual_mcp_nb.providers.limits import ClientLimits
    from casual_mcp_nb.types.prices import Price


class BoundModel:
    """One model bound to its client, and how it is asked.

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

    @property
    def wanted(self) -> RequestOptions:
        """The options that are wanted for each request, wherever they were given."""
        from casual_mcp_nb.providers._options import options_of

        return options_of(self.default_options).overlaid(self.options)

    def sendable(self, *, tools: bool) -> Sendable:
        """Return what of the wanted options a request is sent with, as far as that is known.

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
