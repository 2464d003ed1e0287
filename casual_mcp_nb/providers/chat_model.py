"""A model that can be asked."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.providers._bound_model import BoundModel
from casual_mcp_nb.providers.registry import spec_of, specs
from casual_mcp_nb.types.options import RequestOptions

if TYPE_CHECKING:
    from casual_llm import Model
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.providers.base import RequestAdapted, RetryScheduled
    from casual_mcp_nb.providers.limits import RateLimitWait
    from casual_mcp_nb.providers.spec import ProviderSpec
    from casual_mcp_nb.types.model_response import ModelResponse


class ChatModel(BoundModel):
    """One model bound to its client: the only way in which the engine meets a provider. See `BoundModel` for its arguments."""

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

    def with_options(self, options: RequestOptions) -> ChatModel:
        """Return this model, asked with other options; what is learnt of it is shared."""
        changed = copy.copy(self)
        changed.options = self.options.overlaid(options)
        return changed

    def unforced(self) -> ChatModel:
        """Return this model, free to answer: without a choice of tools that would make it call one again and again."""
        if self.wanted.tool_choice in (None, "auto", "none"):
            return self
        return self.with_options(RequestOptions(tool_choice="auto"))

    @property
    def spec(self) -> ProviderSpec:
        """What is known of its provider, also for a client that the person made."""
        kinds = ((spec, spec.client()) for spec in specs().values())
        return next((spec for spec, kind in kinds if kind and isinstance(self.client, kind)), spec_of(self.provider))

    def __repr__(self) -> str:
        return f"<ChatModel {self.name!r}: {self.model!r} of client {self.client_name!r} ({self.provider})>"
