"""Translate request options for each provider, and report those that it does not support."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.providers.registry import not_sent, spec_of
from casual_mcp_nb.types.options import NO_OPTIONS, RequestOptions

if TYPE_CHECKING:
    from casual_llm import ChatOptions

    from casual_mcp_nb.providers._refused_options import LearnedOptions
    from casual_mcp_nb.providers.spec import ProviderSpec

_OF_TOOLS = ("tool_choice", "parallel_tool_calls")


@dataclass(frozen=True)
class Sendable:
    """The options that a request is sent with.

    Args:
        options: The options to send, with our defaults for the provider.
        notices: Descriptions of what is not sent, for the person.
        plain: Whether none were requested or added, so that they are the same for every request.
    """

    options: RequestOptions
    notices: tuple[str, ...] = ()
    plain: bool = False


def options_of(chat: ChatOptions | None) -> RequestOptions:
    """Read the options set in casual-llm's own, for a model that the user created with it."""
    if chat is None:
        return NO_OPTIONS
    names = ("temperature", "max_tokens", "top_p", "seed", "tool_choice")
    values = {name: value for name in names if (value := getattr(chat, name)) is not None}
    if chat.stop:
        values["stop"] = tuple(chat.stop)
    # Not validated: the user's own may be wrong in ways that only the provider knows.
    return NO_OPTIONS.model_copy(update=values) if values else NO_OPTIONS


def sendable(
    wire: str, model: str, options: RequestOptions, facts: LearnedOptions, *, tools: bool, at_home: bool = False
) -> Sendable:
    """Determine which options to send to this model.

    Args:
        wire: The wire format; empty if a client makes its own requests.
        model: The provider's name of the model.
        options: The requested options.
        facts: What has been learnt about the model.
        tools: Whether tools are offered; without them, options about calls are not sent.
        at_home: Whether the request goes to the provider itself. Only there, and where every request needs one, an answer has a
            limit that nobody has set: other servers have windows that are not known.

    Raises:
        UsageError: A value can never be sent to this provider.
    """
    given, spec = options.given(), spec_of(wire)
    usual = spec.answer_limit(model, options) if spec.needs_answer_limit or (at_home and spec.models) else None
    most = usual if options.max_tokens is None else options.max_tokens
    if not given and most is None:
        return Sendable(options, plain=True)
    highest = spec.highest_temperature
    if highest is not None and (options.temperature or 0) > highest[0]:
        raise UsageError(f"temperature: {highest[1]} take 0 to {highest[0]:g}.", hint=f"The highest is {highest[0]:g}.")
    unsent = not_sent(wire, model, options)
    unsent |= {name: notice for name, notice in facts.left_out.items() if name in given}
    if not tools:
        unsent |= {name: "" for name in _OF_TOOLS if name in given and name not in unsent}
        if given.get("tool_choice") not in (None, "auto", "none"):
            unsent["tool_choice"] = "No tools are offered: tool_choice is not sent."
    changes: dict[str, Any] = dict.fromkeys(unsent)
    if "max_tokens" in unsent:
        most = usual
    if most is not None:
        changes["max_tokens"] = min(limit for limit in (most, facts.most_tokens, facts.room) if limit is not None)
    return Sendable(options.model_copy(update=changes), tuple(notice for notice in unsent.values() if notice))


def chat_options(spec: ProviderSpec, base: ChatOptions | None, options: RequestOptions, offer: dict[str, Any]) -> ChatOptions:
    """Build the input of the request.

    Args:
        spec: The provider.
        base: The model's other options, if it has any.
        options: The options to send.
        offer: The tools, as arguments of the request.
    """
    from casual_llm import ChatOptions

    if base is None and options is NO_OPTIONS:
        return ChatOptions(extra={**offer, **spec.choose_tools(options)} if "tools" in offer else offer)
    base = base or ChatOptions()
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
        # casual-llm's own tools would replace the raw definitions and cannot represent every schema.
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
    """List the tools of a request: casual-llm's own if it makes the request, and the raw definitions."""
    from casual_llm.tool_converters import tools_to_openai

    own = tools_to_openai(options.tools) if options.tools else []
    return [*(dict(tool["function"]) for tool in own), *options.extra.get("tools", ())]
