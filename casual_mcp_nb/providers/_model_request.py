"""A request to a model, which waits for limits and is retried.

The form in which it is sent is in `_request_form`, the tools that it offers are in `_tool_offer`.
`docs/ways.md` has a table of everything that repeats a request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.limits import load
from casual_mcp_nb.base.tokens import request_tokens
from casual_mcp_nb.conversation.step import ModelResponse
from casual_mcp_nb.errors import (
    AnswerLimitError,
    CasualMcpError,
    ContextOverflowError,
    NativeDeferralError,
    ProviderError,
    RateLimitError,
    shown,
)
from casual_mcp_nb.providers import _reading as reading
from casual_mcp_nb.providers._failures import explained
from casual_mcp_nb.providers._offered import with_real_names
from casual_mcp_nb.providers._options import chat_options
from casual_mcp_nb.providers._reading import last_headers
from casual_mcp_nb.providers._request_form import RequestForm
from casual_mcp_nb.providers._tool_offer import ToolOffer
from casual_mcp_nb.providers.limits import RequestAdapted, RetryScheduled
from casual_mcp_nb.providers.registry import is_at_home
from casual_mcp_nb.providers.spending import FREE, Charge

if TYPE_CHECKING:
    from casual_llm import ChatOptions
    from casual_llm.messages import ChatMessage
    from tenacity import RetryCallState

    from casual_mcp_nb.providers._bound_model import BoundModel
    from casual_mcp_nb.providers.limits import ClientLimits, OnEvent, TokenReservation
    from casual_mcp_nb.providers.registry import Definition, Definitions
    from casual_mcp_nb.providers.spending import Account

MAX_CHANGES = 1_000
"""How often one request is changed because it was refused. More than that is a provider that refuses
everything, one thing after the other.
"""
_PROBE, _PROBE_TOKENS = "Say yes.", 16
"""A request that costs little. OpenAI's least limit for an answer is 16 tokens."""
MAX_STREAM_BYTES = 256_000_000
"""Maximum size of a streamed answer on the wire, where each letter can be an event with hundreds of
bytes.

The engine limits text. This limits arguments and thinking, which the engine sees only at the end.
"""


@dataclass(eq=False, repr=False)
class ModelRequest:
    """A request in progress. Call `answer` once.

    `answer` retries (`_with_retries`) what succeeds or fails in some form (`_in_some_form`), each
    time with one attempt (`_once`). See `ChatModel.complete` for the arguments.

    `on_event` is called with text, with waits (`RetryScheduled`, `RateLimitWait`), and with
    `RequestAdapted` if the model refuses a request's form.
    """

    model: BoundModel
    messages: list[ChatMessage]
    tools: Definitions
    found_tools: Definitions | None
    on_event: OnEvent | None
    stream: bool
    before: str | None
    account: Account | None
    tokens: int | None

    def __post_init__(self) -> None:
        self.streamed: list[str] = []
        self.attempts = 0
        facts, on_event = self.model.facts, self.on_event

        def notify(notice: str) -> None:
            # Not a method, because then this request would hold itself, with all its messages.
            if on_event is not None:
                on_event(RequestAdapted(notice))

        self._notify = notify
        self._offer = ToolOffer(self.model, self.tools, self.found_tools, notify)
        self._form = RequestForm(
            self.model,
            self.messages,
            stream=self.stream and on_event is not None and facts.streams,
            deferred=self.found_tools is not None,
            notify=notify,
        )
        self._changes = 0
        self._heard = False
        self._limit: asyncio.Timeout | None = None
        self._spent = 0.0

    @property
    def definitions(self) -> list[Definition]:
        """The offered definitions, with those that searches have found."""
        return self._offer.definitions

    @property
    def lacked(self) -> tuple[str, ...]:
        """The options that were left out because the server may lack them."""
        return self._form.lacked

    async def answer(self) -> ModelResponse:
        """Send the request until it succeeds or fails permanently."""
        if self.found_tools is not None and self.model.wire.offer_found is None:
            model = self.model
            raise NativeDeferralError(
                f"Client {shown(model.client_name)}, model {shown(model.model)}: the provider does"
                " not load deferred tools itself.",
                hint="Choose another delivery of search results.",
                client=model.client_name,
                model=model.model,
            )
        try:
            return await self._in_some_form()
        except ProviderError as error:
            if not self._another_can_help(error):
                raise
            failure = error
        return await self._with_retries(failure)

    async def _with_retries(self, failure: ProviderError) -> ModelResponse:
        await load("tenacity")
        from tenacity import AsyncRetrying, retry_if_exception, wait_exponential, wait_random

        first = self.model.retries.first_wait
        growing = wait_exponential(
            multiplier=first, max=self.model.retries.max_wait / 2
        ) + wait_random(0, first / 2)

        def wait(state: RetryCallState) -> float:
            return getattr(_failure(state), "retry_after", None) or growing(state)

        retrying = AsyncRetrying(
            sleep=asyncio.sleep,
            retry=retry_if_exception(self._another_can_help),
            wait=wait,
            stop=self._enough,
            before_sleep=self._tell,
            reraise=True,
        )
        earlier = [failure]

        async def attempt() -> ModelResponse:
            # The failed attempt counts: its error determines the first wait.
            if earlier:
                raise earlier.pop()
            return await self._in_some_form()

        return await retrying(attempt)

    async def _in_some_form(self) -> ModelResponse:
        """Make one attempt: send the request, and again in each form that a refusal calls for."""
        self.attempts += 1
        answer: ModelResponse | None = None
        while answer is None:
            # This ends: there are at most `MAX_CHANGES` changes, see `_changes_after`.
            answer = await self._counted(self._once, self._size, self.model.wanted.max_tokens)
        self._form.note_success()
        if self._offer.left_out:
            self._offer.notify_of_left_out()
        return answer

    async def _counted(
        self,
        send: Callable[[], Awaitable[ModelResponse | None]],
        size: Callable[[], int],
        most: int | None,
    ) -> ModelResponse | None:
        """Send a request, and count what it takes."""
        if self.account is None:
            return await send()
        model, price = self.model, self.model.price
        if model.provider == "offline":
            price = FREE
        return await Charge(self.account, model.name, price, size, most).counted(send)

    def _size(self) -> int:
        if self.tokens is not None:
            return self.tokens
        return request_tokens(self.messages, self.definitions)

    async def _once(self) -> ModelResponse | None:
        """Send the request once. Return None if it is to be sent again in another form."""
        charge = None
        if self.model.limits is not None:
            charge = await self._wait_for_the_limits(
                self.model.limits, self.messages, self.definitions
            )
        self._heard = False
        last_headers.set(None)
        try:
            async with self._timed() as self._limit:
                answer = await self._send()
            self._settle(charge, answer.usage.total_tokens if answer.usage else None)
            return self._completed(answer)
        except CasualMcpError:
            raise
        except Exception as error:
            if await self._changes_after(error):
                # A request that was refused for its form took no tokens.
                self._settle(charge, 0)
                return None
            failure, origin = explained(error, self)
            self._form.note_failure()
            self._learn_from(failure)
        finally:
            self._limit = None
        # Raised outside the handler, so that an error with a key is not kept as its context.
        failure.__context__ = origin
        raise failure from origin

    def _settle(self, charge: TokenReservation | None, used: int | None) -> None:
        if charge is not None and self.model.limits is not None:
            self.model.limits.settle(charge, used)

    def _completed(self, answer: ModelResponse) -> ModelResponse:
        """Add to an answer what is known of its request: the tools' real names, and its id."""
        renamed, headers = self._offer.renamed, last_headers.get() or {}
        if renamed:
            answer = replace(answer, message=with_real_names(answer.message, renamed))
        if reading.request_id_in(headers) is not None:
            safe = reading.kept_headers(headers, reading.secrets_of(self.model))
            answer = replace(answer, request_id=reading.request_id_in(safe))
        return answer

    def _learn_from(self, failure: ProviderError) -> None:
        """Remember what an error says of the requests to come: a pause, a window, a refusal."""
        limits = self.model.limits
        delay = failure.retry_after if isinstance(failure, RateLimitError) else None
        if delay and limits is not None and delay <= self.model.retries.max_wait:
            limits.pause(delay)
        if isinstance(failure, ContextOverflowError) and failure.window is not None:
            self.model.facts.window = failure.window
        if isinstance(failure, NativeDeferralError):
            self.model.facts.refuses_deferral = True

    async def _changes_after(self, error: Exception) -> bool:
        """Change the request so that the model may accept the next attempt.

        Returns:
            Whether there is a change.
        """
        if self.streamed or self._changes == MAX_CHANGES:
            return False
        self._changes += 1
        if await self._offer.changes_after(error, self._probe):
            return True
        return self._form.changes_after(error, heard=self._heard)

    async def _wait_for_the_limits(
        self, limits: ClientLimits, messages: Sequence[ChatMessage], definitions: Definitions
    ) -> TokenReservation:
        tokens = 0
        if limits.counts_tokens:
            # On a thread, because the definitions of many tools are long.
            tokens = await asyncio.to_thread(request_tokens, messages, definitions)
        return await limits.turn(tokens, self.on_event or ignore)

    async def _send(self) -> ModelResponse:
        client, name = self.model.client, self.model.model
        await self._offer.admit()
        options = await self._options()
        if self._form.streams and self.model.wire.stream is not None:
            return await self.model.wire.stream(
                client, name, self.messages, options, self._stream_text
            )
        return await self.model.wire.ask(client, name, self.messages, options)

    async def _options(self) -> ChatOptions:
        offer = self._offer
        has_tools = bool(offer.loaded.definitions or self.model.hosted_tools)
        sent = self._form.choose_options(tools=has_tools)
        if offer.left_out:
            offer.check_forced(sent.tool_choice)
        options = chat_options(
            self.model.wire_spec,
            self.model.default_options,
            sent,
            offer.arguments(offer.loaded, offer.found),
        )
        if self.model.wire_spec.diagnose is not None:
            for name, value in self._diagnosis(self.model.wire_spec.diagnose).items():
                options.extra.setdefault(name, value)
        think, effort = self.model.wire_spec.think, sent.reasoning_effort
        if think is not None and effort is not None:
            value = await think(self.model.client, self.model.model, effort)
            self._think(options.extra, effort, value)
        return options

    def _diagnosis(
        self, diagnose: Callable[[Any, str, str | None], dict[str, Any]]
    ) -> dict[str, Any]:
        """Build the fields that ask why the cache was missed.

        The config says whether to ask. By default, the provider is asked at its own address.
        """
        model = self.model
        asks = model.cache_diagnostics
        if asks is None:
            asks = is_at_home(model.client, self.model.wire_spec.homes)
        if not asks:
            return {}
        fields = diagnose(model.client, model.model, self.before)
        refused = self.model.facts.fields_left_out
        return {name: value for name, value in fields.items() if name not in refused}

    async def _probe(self, offer: dict[str, Any]) -> Exception | None:
        """Send a request for a few tokens with some of the tools. A `Probe`."""
        from casual_llm.messages import UserMessage

        sent = self._form.sent
        dropped: dict[str, Any] = dict.fromkeys(
            sent.given().keys() - {"extra_headers", "extra_body"}
        )
        options = sent.model_copy(update={**dropped, "max_tokens": _PROBE_TOKENS})
        request = chat_options(self.model.wire_spec, self.model.default_options, options, offer)
        messages: list[ChatMessage] = [UserMessage(content=_PROBE)]
        tools = offer.get("tools") or ()
        if self.model.limits is not None:
            await self._wait_for_the_limits(self.model.limits, messages, tools)
        refusals: list[Exception] = []

        async def ask() -> ModelResponse | None:
            try:
                async with self._timed():
                    return await self.model.wire.ask(
                        self.model.client, self.model.model, messages, request
                    )
            except Exception as error:
                refusals.append(error)
                return None

        await self._counted(ask, partial(request_tokens, messages, tools), _PROBE_TOKENS)
        return refusals[0] if refusals else None

    def _think(self, extra: dict[str, Any], effort: str, value: bool | str | None) -> None:
        if value is not None:
            extra["think"] = value
        elif effort != "none":
            notice = f"Model {shown(self.model.model)} cannot think: reasoning_effort is not sent."
            self.model.facts.left_out["reasoning_effort"] = notice
            self._notify(notice)

    def _stream_text(self, text: str, response: object = None, /) -> None:
        if getattr(response, "num_bytes_downloaded", 0) > MAX_STREAM_BYTES:
            raise AnswerLimitError(
                f"The stream of model {shown(self.model.name)} went on for more than"
                f" {MAX_STREAM_BYTES // 1_000_000} MB.",
                hint="Give the model a smaller max_tokens, or ask for less at a time.",
            )
        # The provider has started to answer: from here on, only its silence is limited, by the SDK.
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(None)
        self._heard = True
        if text and self.on_event is not None:
            self.streamed.append(text)
            self.on_event(text)

    @asynccontextmanager
    async def _timed(self) -> AsyncIterator[asyncio.Timeout]:
        """Give the provider the time that is left, and count what it takes."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(self._time_left) as limit:
                yield limit
        finally:
            self._spent += loop.time() - began

    @property
    def _time_left(self) -> float | None:
        """Seconds that are left for all attempts and probes together, or None without a limit."""
        if self.model.timeout is None:
            return None
        return self.model.timeout - self._spent

    def _another_can_help(self, error: BaseException) -> bool:
        if not isinstance(error, ProviderError) or not error.retryable or self.streamed:
            return False
        left = self._time_left
        return left is None or left > 0

    def _enough(self, state: RetryCallState) -> bool:
        retries, wait = self.model.retries, state.upcoming_sleep
        return (
            self.attempts > retries.most
            or wait > retries.max_wait
            or state.idle_for + wait > retries.max_total_wait
        )

    def _tell(self, state: RetryCallState) -> None:
        failure = _failure(state)
        if self.on_event is not None and isinstance(failure, ProviderError):
            self.on_event(
                RetryScheduled(
                    attempt=self.attempts, seconds=state.upcoming_sleep, reason=failure.reason
                )
            )


def _failure(state: RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome is not None else None
