"""Answers to servers that ask for an answer of the model (sampling): the person allows each one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from casual_mcp_nb.engine.audit import size_of_arguments
from casual_mcp_nb.engine.consent import Consent
from casual_mcp_nb.errors import CasualMcpError, shown
from casual_mcp_nb.providers import ModelFactory
from casual_mcp_nb.types.audit import AuditRecord
from casual_mcp_nb.types.event import CallStatus
from casual_mcp_nb.types.model_response import ModelResponse
from casual_mcp_nb.types.options import RequestOptions
from casual_mcp_nb.types.sampling import METHOD, SamplingAnswer, SamplingRefused, SamplingRequest
from casual_mcp_nb.types.secret import redacted
from casual_mcp_nb.types.step import text_of
from casual_mcp_nb.types.tool import ToolName

if TYPE_CHECKING:
    from casual_llm import Model

    from casual_mcp_nb.providers.chat_model import ChatModel


class Sampling:
    """Lets the default model answer servers whose entry allows it.

    Args:
        models: The models.
        consent: Asks the person.
        secrets: Values to redact in errors.
        add: Called with the audit record of each request that a person was to be asked about.
        asking: Returns what is entered while the person is asked about a server's request.

    Attributes:
        choose_model: Returns the model that answers; None for the first one of the config.
    """

    def __init__(
        self,
        models: ModelFactory,
        consent: Consent,
        secrets: Callable[[], Collection[str]],
        add: Callable[[AuditRecord], None] = lambda _: None,
        asking: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext(),
    ) -> None:
        self._asking = asking
        self._add = add
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
            at, permission = time.time(), await self._consent.sampling(server, arguments, partial(self._asking, server))
            record = AuditRecord(
                at, ToolName(server, METHOD), "server", permission, "denied", None, size_of_arguments(arguments), 0
            )
            if not permission.allowed:
                self._add(record)
                reason = f": {permission.reason}" if permission.reason else ""
                raise SamplingRefused(f"the user did not allow it{reason}")
            response = await self._complete(model, request, record)
        except CasualMcpError as error:
            details = f"{type(error).__name__}: {redacted(str(error), self._secrets())}"
            # What went wrong at a provider is none of the server's business.
            raise SamplingRefused("the model could not answer", details) from None
        usage = response.usage
        counts = [(usage.prompt_tokens, "in"), (usage.completion_tokens, "out")] if usage else []
        estimates = " + ".join(f"{count:,} tokens {way}" for count, way in counts if count is not None)
        took = f": {estimates}" if estimates else ""
        cost = model.price.of(usage) if model.price else None
        note = f"Model {shown(model.name)} answered messages of this server{took}{f', {cost}' if cost else ''}."
        return SamplingAnswer(text_of(response.message.content), model.model, response.truncated, note)

    async def _complete(self, model: ChatModel, request: SamplingRequest, record: AuditRecord) -> ModelResponse:
        start, size = time.perf_counter(), 0
        status: CallStatus = "error"
        try:
            response = await _answer(model, request)
            status, size = "ok", len(text_of(response.message.content))
            return response
        except asyncio.CancelledError:
            status = "stopped"
            raise
        finally:
            self._add(replace(record, status=status, seconds=time.perf_counter() - start, result_size=size))


async def _answer(model: ChatModel, request: SamplingRequest) -> ModelResponse:
    from casual_llm import AssistantMessage, SystemMessage, UserMessage

    kinds = {"user": UserMessage, "assistant": AssistantMessage}
    messages = [SystemMessage(content=request.system)] if request.system else []
    # The person allowed an answer to these messages, and nothing that the provider's own tools would do with them.
    limited = model.unforced().without_hosted_tools().with_options(RequestOptions(max_tokens=request.max_tokens))
    return await limited.complete([*messages, *(kinds[role](content=text) for role, text in request.messages)], stream=False)
