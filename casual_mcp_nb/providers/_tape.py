"""Have a cassette record a model's answers, or answer in its place."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.providers.base import RequestAdapted, RetryScheduled
from casual_mcp_nb.providers.limits import RateLimitWait
from casual_mcp_nb.store.cassette import ModelEntry
from casual_mcp_nb.store.interaction import Plain, model_request
from casual_mcp_nb.types.model_response import ModelResponse

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.providers._bound_model import BoundModel
    from casual_mcp_nb.store.recorder import Recorder
    from casual_mcp_nb.store.replayer import Replayer

OnEvent = Callable[[str | RetryScheduled | RateLimitWait | RequestAdapted], None]

_EVENTS: Mapping[str, Any] = {"retry": RetryScheduled, "wait": RateLimitWait, "adapted": RequestAdapted}


async def taped(
    tape: Recorder | Replayer,
    model: BoundModel,
    native: bool,
    messages: Sequence[ChatMessage],
    tools: Sequence[Mapping[str, Any]],
    found_tools: Sequence[Mapping[str, Any]],
    on_event: OnEvent | None,
    ask: Callable[[OnEvent | None], Awaitable[ModelResponse]],
) -> ModelResponse:
    """Answer a request: from the model, recorded, or from the recording.

    Args:
        tape: Records or replays.
        model: The model.
        native: Whether its provider loads deferred tools itself.
        messages: The messages.
        tools: The definitions.
        found_tools: Those that the provider adds itself.
        on_event: Called with what happens before the answer.
        ask: Sends the request; called with the function that receives its events.
    """
    if tape.replays:
        request = model_request(tape.model_name(model.name, model.model), messages, tools, found_tools)
        tell = on_event or (lambda _: None)
        response: ModelResponse = await tape.play("model", request, lambda event: _tell(event, tell))
        return response
    tape.models.setdefault(model.name, _entry_of(model, native))
    recording = tape.start("model", model_request(model.name, messages, tools, found_tools))

    def happened(event: str | RetryScheduled | RateLimitWait | RequestAdapted) -> None:
        recording.event(_plain(event))
        if on_event is not None:
            on_event(event)

    try:
        # Without a receiver, nothing is streamed.
        answer = await ask(happened if on_event is not None else None)
    except BaseException as error:
        recording.failed(error)
        raise
    recording.answered(answer)
    return answer


def _plain(event: str | RetryScheduled | RateLimitWait | RequestAdapted) -> Plain:
    if isinstance(event, str):
        return event
    return next({name: asdict(event)} for name, kind in _EVENTS.items() if isinstance(event, kind))


def _tell(event: Plain, tell: OnEvent) -> None:
    if isinstance(event, str):
        tell(event)
        return
    for name, kind in _EVENTS.items():
        if name in event:
            # In a file that somebody edited, fields can be missing.
            with suppress(TypeError):
                tell(kind(**event[name]))


def _entry_of(model: BoundModel, native: bool) -> ModelEntry:
    return ModelEntry(
        model.model,
        model.client_name,
        model.provider,
        model.context_window,
        native,
        model.own_options.without(["extra_body"]).shown(),
        model.price.model_dump(mode="json", exclude_defaults=True) if model.price else {},
    )
