"""A model bound to its client, and what it answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.errors import CasualMcpError
from casual_mcp_nb.types.tokens import TokenUsage

if TYPE_CHECKING:
    from casual_llm import ChatOptions, LLMClient, Model
    from casual_llm.messages import AssistantMessage, ChatMessage


@dataclass(frozen=True)
class ModelAnswer:
    """What one call of a model came to.

    Args:
        message: The answer: text, calls of tools, or both.
        usage: What it cost, as the provider reported it with this answer; None where it did not.
        finish_reason: The provider's word for why it ended.
    """

    message: AssistantMessage
    usage: TokenUsage | None = None
    finish_reason: str | None = None


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
        default_options: Options that go with every request.
        key_places: Where the key is looked for, in words, for the error about a key that was refused.
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
        key_places: str = "",
    ) -> None:
        self.client = client
        self.model = model
        self.name = name or model
        self.provider = provider or type(client).__name__
        self.client_name = client_name or self.provider
        self.template = template
        self.context_window = context_window
        self.default_options = default_options
        self.key_places = key_places

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
        on_event: Callable[[Any], None] | None = None,
    ) -> ModelAnswer:
        """Ask the model once.

        Args:
            messages: The whole conversation, the system message first.
            tools: What is offered: definitions with `name`, `description` and `parameters`, sent as they are.
            on_event: Gets what happens before the answer is complete; providers that answer in one piece have nothing to tell.

        Returns:
            The answer with its own usage.

        Raises:
            ProviderError: The provider cannot be reached, refused the request, or answered something that cannot be used.
        """
        from casual_mcp_nb.providers._failures import explained
        from casual_mcp_nb.providers._wire import wire_of

        wire = wire_of(self.client)
        try:
            return await wire.ask(self.client, self.model, list(messages), self._options(wire.offer(tools)))
        except CasualMcpError:
            raise
        except Exception as error:
            failure, cause = explained(error, self)
        # Raised out here, so that an error which carries a key is not kept as the context of this one.
        raise failure from cause

    def _options(self, extra: dict[str, Any]) -> ChatOptions:
        from casual_llm import ChatOptions

        options = self.default_options or ChatOptions()
        # casual-llm's own tools would stand in the way of the raw definitions and cannot carry every schema.
        return dataclasses.replace(options, tools=None, tool_choice=None, extra={**options.extra, **extra})

    def __repr__(self) -> str:
        return f"<ChatModel {self.name!r}: {self.model!r} of client {self.client_name!r} ({self.provider})>"
