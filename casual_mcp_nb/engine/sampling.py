"""Answers to servers that ask for an answer of the model (sampling): the person allows each one."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from casual_mcp_nb.engine.consent import Consent
from casual_mcp_nb.errors import CasualMcpError, shown
from casual_mcp_nb.providers import ModelFactory
from casual_mcp_nb.types.model_response import ModelResponse
from casual_mcp_nb.types.options import RequestOptions
from casual_mcp_nb.types.sampling import SamplingAnswer, SamplingRefused, SamplingRequest
from casual_mcp_nb.types.secret import redacted
from casual_mcp_nb.types.step import text_of

if TYPE_CHECKING:
    from casual_llm import Model

    from casual_mcp_nb.providers.chat_model import ChatModel


class Sampling:
    """Lets the default model answer servers whose entry allows it.

    Args:
        models: The models.
        consent: Asks the person.
        secrets: Values to redact in errors.

    Attributes:
        choose_model: Returns the model that answers; None for the first one of the config.
    """

    def __init__(self, models: ModelFactory, consent: Consent, secrets: Callable[[], Collection[str]]) -> None:
        self._models = models
        self._consent = consent
        self._secrets = secrets
        self.choose_model: Callable[[], str | Model | ChatModel | None] = lambda: None

    async def answer(self, server: str, request: SamplingRequest) -> SamplingAnswer:
        """Ask the person, and then the model.

        Raises:
            SamplingRefused: The person did not allow it, or the model could not answer.
        """
        try:
            model = await self._models.ready(self.choose_model())
            messages = [{"role": role, "text": text} for role, text in request.messages]
            system = {"system": request.system} if request.system else {}
            arguments = {"model": model.name, **system, "messages": messages, "max_tokens": request.max_tokens}
            permission = await self._consent.sampling(server, arguments)
            if not permission.allowed:
                reason = f": {permission.reason}" if permission.reason else ""
                raise SamplingRefused(f"the user did not allow it{reason}")
            response = await _asked(model, request)
        except CasualMcpError as error:
            details = f"{type(error).__name__}: {redacted(str(error), self._secrets())}"
            # What went wrong at a provider is none of the server's business.
            raise SamplingRefused("the model could not answer", details) from None
        usage = response.usage
        took = f": {usage.prompt_tokens:,} + {usage.completion_tokens:,} tokens" if usage else ""
        cost = model.price.of(usage) if model.price else None
        note = f"Model {shown(model.name)} answered messages of this server{took}{f', {cost}' if cost else ''}."
        return SamplingAnswer(text_of(response.message.content), model.model, response.truncated, note)


async def _asked(model: ChatModel, request: SamplingRequest) -> ModelResponse:
    from casual_llm import AssistantMessage, SystemMessage, UserMessage

    kinds = {"user": UserMessage, "assistant": AssistantMessage}
    messages = [SystemMessage(content=request.system)] if request.system else []
    limited = model.unforced().with_options(RequestOptions(max_tokens=request.max_tokens))
    return await limited.complete([*messages, *(kinds[role](content=text) for role, text in request.messages)], stream=False)
