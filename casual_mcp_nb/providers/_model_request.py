"""A request to a model, which waits for limits, is retried, and is sent in the form that the provider takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.config_base import NO_OPTIONS
from casual_mcp_nb.base.limits import TimeLimit, load
from casual_mcp_nb.base.tokens import request_tokens
from casual_mcp_nb.conversation.step import ModelResponse
from casual_mcp_nb.errors import (
    AnswerLimitError,
    BadRequestError,
    CasualMcpError,
    ContextOverflowError,
    NativeDeferralError,
    ProviderError,
    RateLimitError,
    shown,
)
from casual_mcp_nb.providers import _reading as reading
from casual_mcp_nb.providers._clients import (
    ContentFiltered,
    EmptyStream,
    InvalidResponse,
    StreamTruncated,
    refuses_deferral,
)
from casual_mcp_nb.providers._failures import explained
from casual_mcp_nb.providers._offered import (
    NOTHING,
    Offered,
    RefusedTools,
    offered,
    with_real_names,
)
from casual_mcp_nb.providers._options import (
    SMALL_SERVERS_LACK,
    Refusal,
    adapted,
    chat_options,
    room_for_answer,
)
from casual_mcp_nb.providers._reading import last_headers
from casual_mcp_nb.providers._tool_refusals import ToolRefusal, ToolSearch, tool_refusal
from casual_mcp_nb.providers.limits import RequestAdapted, RetryScheduled
from casual_mcp_nb.providers.registry import is_at_home

if TYPE_CHECKING:
    from casual_llm import ChatOptions
    from casual_llm.messages import ChatMessage
    from tenacity import RetryCallState

    from casual_mcp_nb.providers._bound_model import BoundModel
    from casual_mcp_nb.providers.limits import ClientLimits, RateLimitWait, TokenReservation

_SERVER_ERRORS = (500, 501)

MAX_STREAM_BYTES = 256_000_000
"""Maximum size of a streamed answer on the wire, where each letter can be an event with hundreds of
bytes.

The engine limits text. This limits arguments and thinking, which the engine sees only at the end.
"""


class ModelRequest:
    """A request in progress. Call `answer` once.

    `on_event` hears text, waits (`RetryScheduled`, `RateLimitWait`) and `RequestAdapted` if the
    model refuses a request's form.
    """

    def __init__(
        self,
        model: BoundModel,
        messages: Sequence[ChatMessage],
        tools: Sequence[Mapping[str, Any]],
        found_tools: Sequence[Mapping[str, Any]] | None,
        on_event: Callable[[str | RetryScheduled | RateLimitWait | RequestAdapted], None] | None,
        stream: bool,
        before: str | None = None,
    ) -> None:
        self.model = model
        self.messages = list(messages)
        self._tools = tools
        self.found_tools = found_tools
        self._before = before
        self._on_event = on_event
        self._wire = model.wire
        self._facts = model.facts
        self._spec = model.wire_spec
        self._stream = None
        if stream and on_event is not None and self._facts.streams:
            self._stream = self._wire.stream
        self._offered_loaded = NOTHING
        self._offered_found = NOTHING
        self._search: ToolSearch | None = None
        self.streamed: list[str] = []
        self.attempts = 0
        self.lacked: tuple[str, ...] = ()
        self._without: tuple[str, ...] = ()
        self._sent = NO_OPTIONS
        self._room: int | None = None
        self._streamed_nothing = False
        self._reconnected = False
        self._heard = False
        self._limit: TimeLimit | None = None
        self._spent = 0.0

    @property
    def definitions(self) -> list[Mapping[str, Any]]:
        """The offered definitions, with those that searches have found."""
        return [*self._tools, *(self.found_tools or ())]

    async def answer(self) -> ModelResponse:
        """Send the request until it succeeds or fails permanently."""
        if self.found_tools is not None and self._wire.offer_found is None:
            model = self.model
            raise NativeDeferralError(
                f"Client {shown(model.client_name)}, model {shown(model.model)}: the provider does"
                " not load deferred tools itself.",
                hint="Choose another delivery of search results.",
                client=model.client_name,
                model=model.model,
            )
        try:
            return await self._in_any_form()
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
            return await self._in_any_form()

        return await retrying(attempt)

    async def _in_any_form(self) -> ModelResponse:
        """Send the request, and again in each form that a refusal calls for."""
        # This ends: whatever a refusal teaches, it teaches once, see `_has_another_form`.
        while (answer := await self._once()) is None:
            pass
        if self._streamed_nothing and self._facts.streams:
            self._facts.streams = False
            self._adapt(
                f"Model {shown(self.model.model)} streams nothing: its answers come in one piece"
                " from now on."
            )
        for name in self._without:
            notice = (
                f"Model {shown(self.model.model)} fails with {name}: it is left out from now on."
            )
            self._facts.left_out[name] = notice
            self._adapt(notice)
        if self._offered_loaded.left_out or self._offered_found.left_out:
            self._tell_left_out()
        return answer

    async def _once(self) -> ModelResponse | None:
        """Make one request, or None if it must be repeated in another form."""
        charge = None
        if self.model.limits is not None:
            charge = await self._wait_for_the_limits(self.model.limits)
        self.attempts += 1
        self._heard = False
        loop = asyncio.get_running_loop()
        last_headers.set(None)
        began = loop.time()
        left = self._time_left
        try:
            if left is None:
                answer = await self._send()
            else:
                with TimeLimit(began + left) as self._limit:
                    answer = await self._send()
            if charge is not None and self.model.limits is not None:
                used = answer.usage.total_tokens if answer.usage else None
                self.model.limits.settle(charge, used)
            headers = last_headers.get()
            if self._offered_loaded.renamed or self._offered_found.renamed:
                answer = self._with_real_names(answer)
            return self._with_request_id(answer, headers) if headers else answer
        except CasualMcpError:
            raise
        except Exception as error:
            if await self._leaves_out_tools(error) or self._has_another_form(error):
                self.attempts -= 1
                return None
            failure, origin = explained(error, self)
            self._without = ()
            delay = failure.retry_after if isinstance(failure, RateLimitError) else None
            if delay and self.model.limits is not None and delay <= self.model.retries.max_wait:
                self.model.limits.pause(delay)
            if isinstance(failure, ContextOverflowError) and failure.window is not None:
                self._facts.window = failure.window
            self._facts.refuses_deferral |= isinstance(failure, NativeDeferralError)
        finally:
            self._spent += loop.time() - began
        # Raised outside the handler, so that an error with a key is not kept as its context.
        failure.__context__ = origin
        raise failure from origin

    def _has_another_form(self, error: Exception) -> bool:
        """Check whether there is another form that the model may accept.

        The next request uses it.
        """
        status, text = reading.status_of(error), reading.start_of_body(error)
        if self.streamed or not self._wire.name:
            return False
        if self.found_tools is not None and refuses_deferral(status, text):
            return False
        empty = isinstance(error, EmptyStream) or (not self._heard and reading.broke_off(error))
        if self._stream is not None and empty:
            # Remembered only if it helps: a stream can also break accidentally.
            self._stream, self._streamed_nothing = None, True
            return True
        if self._streamed_nothing and not self._reconnected and reading.is_lost_connection(error):
            # A server that fails within a stream closes the connection that the next request was
            # sent on.
            self._reconnected = True
            return True
        lacked = self._maybe_lacking() if status in _SERVER_ERRORS and not self.lacked else ()
        if lacked:
            # Remembered only if it helps: the server can also have failed for another reason.
            self.lacked = self._without = lacked
            return True
        refusal = Refusal(
            status, text, self._wire.name, self.model.model, self.messages, self._sent
        )
        room = room_for_answer(refusal)
        if room is not None and self._room is None:
            self._room = room
            self._adapt(
                f"The conversation leaves {room:,} tokens for an answer, so max_tokens is lowered to"
                " that for this request."
            )
            return True
        notice = adapted(self._facts, refusal)
        if notice is not None:
            self._adapt(notice)
        return notice is not None

    def _maybe_lacking(self) -> tuple[str, ...]:
        """List the options that a small server may have failed on.

        None at the provider's own address.
        """
        if is_at_home(self.model.client, self._spec.homes):
            return ()
        given = self._sent.given()
        return tuple(name for name in SMALL_SERVERS_LACK if name in given)

    def _adapt(self, notice: str) -> None:
        if self._on_event is not None:
            self._on_event(RequestAdapted(notice))

    async def _wait_for_the_limits(self, limits: ClientLimits) -> TokenReservation | None:
        # On a thread, because the definitions of many tools are long.
        tokens = 0
        if limits.counts_tokens:
            tokens = await asyncio.to_thread(request_tokens, self.messages, self.definitions)
        return await limits.turn(tokens, self._on_event or ignore)

    def _with_request_id(self, answer: ModelResponse, headers: Mapping[str, str]) -> ModelResponse:
        if reading.request_id_in(headers) is None:
            return answer
        safe = reading.kept_headers(headers, reading.secrets_of(self.model))
        return replace(answer, request_id=reading.request_id_in(safe))

    async def _send(self) -> ModelResponse:
        client, name = self.model.client, self.model.model
        if self._tools or self.found_tools:
            await self._admit()
        options = await self._options()
        if self._stream is None:
            return await self._wire.ask(client, name, self.messages, options)
        return await self._stream(client, name, self.messages, options, self._stream_text)

    async def _options(self) -> ChatOptions:
        self._sent = self.model.sendable(
            tools=bool(self._offered_loaded.definitions or self.model.hosted_tools)
        ).options
        if self._without:
            self._sent = self._sent.without(self._without)
        if self._room is not None and self._sent.max_tokens is not None:
            most = min(self._sent.max_tokens, self._room)
            self._sent = self._sent.model_copy(update={"max_tokens": most})
        if self._offered_loaded.left_out or self._offered_found.left_out:
            self._check_forced_tool()
        options = chat_options(
            self._spec,
            self.model.default_options,
            self._sent,
            self._offer(self._offered_loaded, self._offered_found),
        )
        if self._spec.diagnose is not None:
            for name, value in self._diagnosis(self._spec.diagnose).items():
                options.extra.setdefault(name, value)
        think, effort = self._spec.think, self._sent.reasoning_effort
        if think is not None and effort is not None:
            value = await think(self.model.client, self.model.model, effort)
            self._think(options.extra, effort, value)
        return options

    def _diagnosis(
        self, diagnose: Callable[[Any, str, str | None], dict[str, Any]]
    ) -> dict[str, Any]:
        """Build the fields that ask why the cache was missed: at the provider's own address, and if
        the config requests it.
        """
        model, spec = self.model, self._spec
        fields = diagnose(model.client, model.model, self._before)
        asks = model.cache_diagnostics
        if asks is None:
            asks = is_at_home(model.client, spec.homes)
        if not asks:
            return {}
        return {
            name: value for name, value in fields.items() if name not in self._facts.fields_left_out
        }

    def _offer(self, loaded: Offered, found: Offered) -> dict[str, Any]:
        if self.found_tools is None or self._wire.offer_found is None:
            offer = self.model.offer(loaded.definitions)
        else:
            names = set(loaded.names)
            new = [tool for tool in found.definitions if tool["name"] not in names]
            offer = self._wire.offer_found(loaded.definitions, new)
        if not self.model.hosted_tools:
            return offer
        tools = offer.get("tools", [])
        loaded_tools = [tool for tool in tools if not tool.get("defer_loading")]
        offer["tools"] = [*loaded_tools, *self.model.hosted_tools, *tools[len(loaded_tools) :]]
        return offer

    # Tools that the provider refuses

    async def _admit(self) -> None:
        """Have the definitions pass the door."""
        facts = self._facts
        dialect, refused = self.model.dialect, facts.tools
        self._offered_loaded = await offered(self._tools, dialect, refused)
        if self.found_tools:
            self._offered_found = await offered(self.found_tools, dialect, refused)

    def _tell_left_out(self) -> None:
        """Tell the person which tools the model did not have."""
        for definition, reason in (*self._offered_loaded.left_out, *self._offered_found.left_out):
            name, model = shown(str(definition["name"])), shown(self.model.model)
            self._adapt(f"Tool {name} is left out for model {model}: {reason.rstrip('.')}.")

    def _with_real_names(self, answer: ModelResponse) -> ModelResponse:
        renamed = {**self._offered_loaded.renamed, **self._offered_found.renamed}
        return replace(answer, message=with_real_names(answer.message, renamed))

    def _check_forced_tool(self) -> None:
        """Check that the tool that the model has to call is offered."""
        choice = self._sent.tool_choice
        for definition, reason in (*self._offered_loaded.left_out, *self._offered_found.left_out):
            if choice == definition["name"]:
                raise BadRequestError(
                    f"Tool {shown(str(choice))}, which has to be called (tool_choice), is left out"
                    f" for model {shown(self.model.model)}: {reason.rstrip('.')}.",
                    hint=(
                        "Choose another tool or another model, or ask the server's author to"
                        " correct its schema."
                    ),
                    client=self.model.client_name,
                    model=self.model.model,
                )

    def _refusal(self, error: Exception, loaded: Offered, found: Offered) -> ToolRefusal | None:
        """Read an error as the refusal of a tool's definition."""
        status, text = reading.status_of(error), reading.start_of_body(error)
        if self.found_tools is not None and refuses_deferral(status, text):
            return None
        sent = [_name_in(tool) for tool in self._offer(loaded, found).get("tools", ())]
        sent += [name for name in found.names if name not in sent]
        return tool_refusal(
            status, text, reading.text_of(error, reading.secrets_of(self.model)), sent
        )

    async def _leaves_out_tools(self, error: Exception) -> bool:
        """Leave out the tool for whose definition the request was refused.

        Return whether the request is now another one.
        """
        has_tools = self._offered_loaded.definitions or self._offered_found.definitions
        if self.streamed or self.model.dialect is None or not has_tools:
            return False
        refusal = self._refusal(error, self._offered_loaded, self._offered_found)
        if refusal is None:
            return False
        refused, longest = self._facts.tools, refusal.longest_description
        if longest is not None and longest != refused.longest_description:
            refused.longest_description = longest
            reads = f"reads {longest:,} characters of a tool's description"
            self._adapt(f"Model {shown(self.model.model)} {reads}: the rest is cut.")
            return True
        names = [*self._offered_loaded.names, *self._offered_found.names]
        reason = f"the provider refuses its definition: {refusal.reason}"
        if refusal.name in names:
            return self._leave_out([refusal.name], reason)
        search = self._search = self._search or ToolSearch(self._is_refused_for)
        if search.given_up:
            return False
        found = await search.next(names)
        if search.given_up:
            suspects = [*names, search.unproven]
            others = [name for name in suspects if name not in search.accepted]
            return self._leave_out(
                others, "the provider refuses it together with the other tools: defer tools"
            )
        return found is not None and self._leave_out([found], reason)

    def _leave_out(self, names: Sequence[str], reason: str) -> bool:
        left_out = [definition for definition in self.definitions if definition["name"] in names]
        for definition in left_out:
            self._facts.tools.add(definition, reason)
        return bool(left_out)

    async def _is_refused_for(self, names: Sequence[str]) -> bool | None:
        """Ask the provider for a few tokens with some of the tools.

        None if it cannot be told whether it refuses them.
        """
        from casual_llm.messages import UserMessage

        dialect = self.model.dialect
        rules = RefusedTools(longest_description=self._facts.tools.longest_description)
        some = [tool for tool in self._tools if tool["name"] in names]
        some_found = [tool for tool in self.found_tools or () if tool["name"] in names]
        loaded = await offered(some, dialect, rules)
        found = await offered(some_found, dialect, rules)
        dropped: dict[str, Any] = dict.fromkeys(
            self._sent.given().keys() - {"extra_headers", "extra_body"}
        )
        options = self._sent.model_copy(update={**dropped, "max_tokens": _PROBE_TOKENS})
        request = chat_options(
            self._spec, self.model.default_options, options, self._offer(loaded, found)
        )
        if self.model.limits is not None:
            await self._wait_for_the_limits(self.model.limits)
        try:
            async with asyncio.timeout(self.model.timeout):
                await self._wire.ask(
                    self.model.client, self.model.model, [UserMessage(content=_PROBE)], request
                )
        except Exception as error:
            if self._refusal(error, loaded, found) is not None:
                return True
            # An answer that cannot be used is one all the same.
            if isinstance(error, StreamTruncated | ContentFiltered | InvalidResponse):
                return False
            return None
        return False

    def _think(self, extra: dict[str, Any], effort: str, value: bool | str | None) -> None:
        if value is not None:
            extra["think"] = value
        elif effort != "none":
            notice = f"Model {shown(self.model.model)} cannot think: reasoning_effort is not sent."
            self._facts.left_out["reasoning_effort"] = notice
            self._adapt(notice)

    def _stream_text(self, text: str, response: object = None, /) -> None:
        if getattr(response, "num_bytes_downloaded", 0) > MAX_STREAM_BYTES:
            raise AnswerLimitError(
                f"The stream of model {shown(self.model.name)} went on for more than"
                f" {MAX_STREAM_BYTES // 1_000_000} MB.",
                hint="Give the model a smaller max_tokens, or ask for less at a time.",
            )
        # The provider has started to answer: from here on, only its silence is limited, by the SDK.
        if self._limit is not None:
            self._limit.move(None)
        self._heard = True
        if text and self._on_event is not None:
            self.streamed.append(text)
            self._on_event(text)

    @property
    def _time_left(self) -> float | None:
        """Seconds that are left for all attempts together, or None without a limit."""
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
        if self._on_event is not None and isinstance(failure, ProviderError):
            self._on_event(RetryScheduled(self.attempts, state.upcoming_sleep, failure.reason))


_PROBE, _PROBE_TOKENS = "Say yes.", 16
"""A request that costs little. OpenAI's least limit for an answer is 16 tokens."""


def _name_in(tool: Mapping[str, Any]) -> str:
    """Read the name in a definition in a provider's format.

    A tool that the provider runs itself may have none.
    """
    function = tool.get("function")
    if isinstance(function, Mapping):
        tool = function
    return str(tool.get("name") or "")


def _failure(state: RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome is not None else None
