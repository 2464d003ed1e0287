"""The options of a request in the words of each provider, and what a provider has no word for."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.providers.registry import not_sent, spec_of
from casual_mcp_nb.types.options import RequestOptions

if TYPE_CHECKING:
    from casual_llm import ChatOptions

    from casual_mcp_nb.providers._refused_options import LearnedOptions

_OF_TOOLS = ("tool_choice", "parallel_tool_calls")


@dataclass(frozen=True)
class Sendable:
    """What of the options a request is sent with.

    Args:
        options: The options that are sent, with the provider's defaults that are ours.
        notices: What is not sent, in words for the person.
    """

    options: RequestOptions
    notices: tuple[str, ...] = ()


def options_of(chat: ChatOptions | None) -> RequestOptions:
    """Return the options that stand in casual-llm's own, for a model that a person made with it."""
    if chat is None:
        return RequestOptions()
    names = ("temperature", "max_tokens", "top_p", "seed", "tool_choice")
    values = {name: value for name in names if (value := getattr(chat, name)) is not None}
    return RequestOptions.model_construct(None, **values, **({"stop": tuple(chat.stop)} if chat.stop else {}))


def sendable(wire: str, model: str, options: RequestOptions, known: LearnedOptions, *, tools: bool) -> Sendable:
    """Find out what of the options this model is sent.

    Args:
        wire: The format of the request; empty where a client makes its own.
        model: The provider's name of the model.
        options: What the person wants.
        known: What was learnt of the model.
        tools: Whether tools are offered; without them nothing can be said of their calls.

    Raises:
        UsageError: A value can never be sent to this provider.
    """
    given = options.given()
    highest = spec_of(wire).highest_temperature
    if highest is not None and (options.temperature or 0) > highest[0]:
        raise UsageError(f"temperature: {highest[1]} take 0 to {highest[0]:g}.", hint=f"The highest is {highest[0]:g}.")
    unsent = not_sent(wire, model, options)
    unsent |= {name: notice for name, notice in known.left_out.items() if name in given}
    if not tools:
        unsent |= {name: "" for name in _OF_TOOLS if name in given and name not in unsent}
        if given.get("tool_choice") not in (None, "auto", "none"):
            unsent["tool_choice"] = "No tools are offered: tool_choice is not sent."
    left = options.without(unsent)
    return Sendable(_limited(wire, model, left, known), tuple(notice for notice in unsent.values() if notice))


def _limited(wire: str, model: str, options: RequestOptions, known: LearnedOptions) -> RequestOptions:
    """Return the options with the limit of the answer that holds."""
    wanted = spec_of(wire).answer_limit(model) if options.max_tokens is None else options.max_tokens
    if wanted is None:
        return options
    most = min(limit for limit in (wanted, known.most_tokens, known.room) if limit is not None)
    return options if most == options.max_tokens else options.overlaid(RequestOptions(max_tokens=most))


def chat_options(wire: str, base: ChatOptions, options: RequestOptions, offer: dict[str, Any]) -> ChatOptions:
    """Build what the request is made from.

    Args:
        wire: The format of the request.
        base: What else the model is asked with.
        options: The options that are sent.
        offer: The tools, as arguments of the request.
    """
    spec = spec_of(wire)
    effort = {} if options.reasoning_effort is None else spec.effort(options.reasoning_effort)
    extra = {**effort, **base.extra, **offer}
    if "tools" in offer:
        extra |= spec.choose_tools(options)
    if spec.offers_none and options.tool_choice == "none":
        extra.pop("tools", None)
    if options.extra_body:
        extra["extra_body"] = {**(base.extra.get("extra_body") or {}), **options.extra_body}
    if options.extra_headers:
        extra["extra_headers"] = {**(base.extra.get("extra_headers") or {}), **options.headers()}
    return dataclasses.replace(
        base,
        # casual-llm's own tools would stand in the way of the raw definitions and cannot carry every schema.
        tools=None,
        tool_choice=options.tool_choice,
        temperature=options.temperature,
        max_tokens=options.max_tokens,
        top_p=options.top_p,
        seed=options.seed,
        stop=list(options.stop) if options.stop else None,
        extra=extra,
    )


def definitions_of(options: ChatOptions) -> list[dict[str, Any]]:
    """Return the tools of a request: casual-llm's own where it is asked through it, and the raw definitions."""
    from casual_llm.tool_converters import tools_to_openai

    own = tools_to_openai(options.tools) if options.tools else []
    return [*(dict(tool["function"]) for tool in own), *options.extra.get("tools", ())]
