"""The options of a request in the words of each provider, and what a provider has no word for."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.providers._answer_limits import default_max_tokens
from casual_mcp_nb.providers._thinking import effort_arguments
from casual_mcp_nb.types.options import TOOL_CHOICES, RequestOptions, not_sent

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
    if wire == "anthropic" and (given.get("temperature") or 0) > 1:
        raise UsageError("temperature: Anthropic's models take 0 to 1.", hint="The highest is 1.")
    unsent = not_sent(wire, model, options)
    unsent |= {name: notice for name, notice in known.left_out.items() if name in given}
    if not tools:
        unsent |= {name: "" for name in _OF_TOOLS if name in given and name not in unsent}
        if given.get("tool_choice") not in (None, "auto", "none"):
            unsent["tool_choice"] = "No tools are offered: tool_choice is not sent."
    left = options.without(unsent)
    return Sendable(_limited(wire, model, left, known), tuple(notice for notice in unsent.values() if notice))


def _limited(wire: str, model: str, options: RequestOptions, known: LearnedOptions) -> RequestOptions:
    """The options with the limit of the answer that holds."""
    wanted = options.max_tokens
    if wanted is None and wire == "anthropic":
        # Anthropic's API asks for one.
        wanted = default_max_tokens(model)
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
    extra = {**effort_arguments(wire, options.reasoning_effort), **base.extra, **offer}
    if "tools" in offer:
        extra |= _about_tools(wire, options)
    if wire == "ollama" and options.tool_choice == "none":
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


def _about_tools(wire: str, options: RequestOptions) -> dict[str, Any]:
    choice, parallel = options.tool_choice, options.parallel_tool_calls
    if wire == "ollama":
        return {}
    if wire == "anthropic":
        return _anthropic_choice(choice or "auto", parallel)
    said: dict[str, Any] = {} if parallel is None else {"parallel_tool_calls": parallel}
    if choice is None or wire == "openai-responses":
        return said
    named = {"type": "function", "function": {"name": choice}}
    return {**said, "tool_choice": choice if choice in TOOL_CHOICES else named}


def _anthropic_choice(choice: str, parallel: bool | None) -> dict[str, Any]:
    kinds = {"auto": "auto", "none": "none", "required": "any"}
    said: dict[str, Any] = {"type": kinds[choice]} if choice in kinds else {"type": "tool", "name": choice}
    if parallel is not None and choice != "none":
        said["disable_parallel_tool_use"] = not parallel
    return {"tool_choice": said}
