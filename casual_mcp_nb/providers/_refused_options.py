"""Detect options that a model refuses in the provider's message, drop or change them, and remember that.

The wordings are those of the live APIs, as quoted in issues of other projects.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from casual_mcp_nb.errors import shown
from casual_mcp_nb.providers._thinking import is_reasoning_model
from casual_mcp_nb.providers.registry import spec_of
from casual_mcp_nb.types.options import RequestOptions

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage


@dataclass(frozen=True)
class Refusal:
    """A request that a provider refused.

    Args:
        status: The HTTP status.
        text: The provider's message.
        wire: The wire format.
        model: The provider's name of the model.
        messages: The conversation.
        options: The options sent.
    """

    status: int | None
    text: str
    wire: str
    model: str
    messages: Sequence[ChatMessage]
    options: RequestOptions = field(default_factory=RequestOptions)


SMALL_SERVERS_LACK = ("tool_choice", "parallel_tool_calls", "reasoning_effort")
"""Options to which servers such as llama.cpp's answer with status 500 instead of a refusal."""

_LEAST_ROOM = 256
_MARGIN = 16


@dataclass
class LearnedOptions:
    """The facts known about the options that a model accepts.

    Args:
        left_out: The options that it refused, each with the notice for the person.
        token_field: The field for the limit of an answer, once learnt.
        most_tokens: The highest limit of an answer that it accepts, if known.
        room: The tokens that the current conversation leaves for an answer, if known.
        fields_left_out: Those of `ProviderSpec.own_fields` that it refuses.
    """

    left_out: dict[str, str] = field(default_factory=dict)
    token_field: str | None = None
    most_tokens: int | None = None
    room: int | None = None
    fields_left_out: set[str] = field(default_factory=set)


def token_field_of(facts: LearnedOptions, model: str) -> str:
    """Choose the field for the limit of an answer in chat completions."""
    return facts.token_field or ("max_completion_tokens" if is_reasoning_model(model) else "max_tokens")


def adapt_options(facts: LearnedOptions, refusal: Refusal) -> str | None:
    """Learn from a refusal which option to drop or change; return a description, or None if no option is refused."""
    if refusal.status not in (400, 422):
        return None
    return _room(facts, refusal) or _token_field(facts, refusal) or _most_tokens(facts, refusal) or _dropped(facts, refusal)


_EXCEEDED = (
    # Anthropic, with the limit that was sent; OpenAI; vLLM.
    re.compile(r"exceed context limit: *(?P<input>[\d,]+) *\+ *(?P<most>[\d,]+) *> *(?P<window>[\d,]+)"),
    re.compile(r"maximum context length is (?P<window>[\d,]+) tokens.{0,160}?(?P<input>[\d,]+) in the messages", re.DOTALL),
    re.compile(r"maximum context length is (?P<window>[\d,]+) tokens.{0,80}?(?P<input>[\d,]+) input tokens", re.DOTALL),
)


def _room(facts: LearnedOptions, refusal: Refusal) -> str | None:
    most = refusal.options.max_tokens
    match = next((match for pattern in _EXCEEDED if (match := pattern.search(refusal.text))), None)
    if match is None or most is None or facts.room is not None:
        return None
    if _number(match.groupdict().get("most") or str(most)) != most:
        return None
    room = _number(match["window"]) - _number(match["input"]) - _MARGIN
    if not _LEAST_ROOM <= room < most:
        return None
    facts.room = room
    return f"The conversation leaves {room:,} tokens for an answer: max_tokens is lowered to that for this request."


_OTHER_FIELD = re.compile(r"max_tokens.{0,160}max_completion_tokens", re.DOTALL)


def _token_field(facts: LearnedOptions, refusal: Refusal) -> str | None:
    renames = spec_of(refusal.wire).renames_max_tokens
    if refusal.options.max_tokens is None or facts.token_field is not None or not renames:
        return None
    sent = token_field_of(facts, refusal.model)
    if sent == "max_tokens" and _OTHER_FIELD.search(refusal.text) and _UNSUPPORTED.search(refusal.text):
        facts.token_field = "max_completion_tokens"
    elif sent == "max_completion_tokens" and sent in refusal.text and _UNSUPPORTED.search(refusal.text):
        facts.token_field = "max_tokens"
    else:
        return None
    return f"Model {shown(refusal.model)} takes {facts.token_field} for the limit of an answer: it is sent so from now on."


_TOO_MANY = (
    re.compile(r"max_tokens: *[\d,]+ *> *(?P<most>[\d,]+)"),
    re.compile(r"supports at most (?P<most>[\d,]+) (?:completion|output) tokens"),
    re.compile(
        r"max_(?:completion_|output_)?tokens\W{0,3}(?: value)? must be (?:less than or equal to|at most)\D{0,3}(?P<most>[\d,]+)"
    ),
    re.compile(r"range of max_tokens is \[\d+, *(?P<most>\d+)\]"),
)


def _most_tokens(facts: LearnedOptions, refusal: Refusal) -> str | None:
    sent = refusal.options.max_tokens
    match = next((match for pattern in _TOO_MANY if (match := pattern.search(refusal.text))), None)
    if match is None or sent is None:
        return None
    most = _number(match["most"])
    if not 0 < most < sent:
        return None
    facts.most_tokens = most
    return f"Model {shown(refusal.model)} answers with at most {most:,} tokens: max_tokens is lowered to that from now on."


_UNSUPPORTED = re.compile(
    r"unsupported|(?:not|n't|no longer)\W+(?:\w+\W+){0,2}?support|unrecogni[sz]ed|unknown|unexpected|deprecated"
    r"|extra (?:inputs|fields)|only the default|may only be set"
    r"|not (?:permitted|allowed|accepted|available|enabled|compatible)|(?:cannot|may not) (?:both )?be|unset|incompatible"
    r"|expected tags|additional properties",
    re.IGNORECASE,
)
# If a refusal names two, the first one here is the cause of the conflict.
_NAMES = {
    "top_p": re.compile(r"\btop_?p\b", re.IGNORECASE),
    "temperature": re.compile(r"\btemperature\b", re.IGNORECASE),
    "seed": re.compile(r"\b(?:random_)?seed\b", re.IGNORECASE),
    "stop": re.compile(r"\bstop(?:_sequences)?\b", re.IGNORECASE),
    "parallel_tool_calls": re.compile(r"\bparallel[_ ]tool[_ ](?:calls?|use)|disable_parallel_tool_use", re.IGNORECASE),
    "tool_choice": re.compile(r"\btool[_ ]choice\b", re.IGNORECASE),
    "reasoning_effort": re.compile(r"\b(?:reasoning|reasoning_effort|thinking|think|output_config|effort)\b", re.IGNORECASE),
    "max_tokens": re.compile(r"\bmax_(?:output_)?tokens\b"),
}
_OWN_FIELDS = {
    "stream_options": "what its streamed answers cost is not known",
    "cache_control": "requests are not marked for its cache",
    "prompt_cache_options": "it does not say why its cache was missed",
    "diagnostics": "it does not say why its cache was missed",
}
"""What is lost without the fields of a request that we add by ourselves."""
_PARAM = re.compile(r'"param"\s*:\s*"([^"]{1,80})"')


def _dropped(facts: LearnedOptions, refusal: Refusal) -> str | None:
    if not _UNSUPPORTED.search(refusal.text):
        return None
    own_fields = (name for name in spec_of(refusal.wire).own_fields if name not in facts.fields_left_out)
    own = next((name for name in own_fields if name in refusal.text), None)
    if own is not None:
        facts.fields_left_out.add(own)
        return f"Model {shown(refusal.model)} does not take {own}: {_OWN_FIELDS[own]}."
    sent = refusal.options.given()
    param = _PARAM.search(refusal.text)
    places = [param[1], refusal.text] if param else [refusal.text]
    names = (name for sentence in places for name, words in _NAMES.items() if name in sent and words.search(sentence))
    name = next(names, None)
    if name is None:
        return None
    facts.left_out[name] = f"Model {shown(refusal.model)} does not take {name}: it is left out."
    return facts.left_out[name]


def _number(text: str) -> int:
    return int(text.replace(",", ""))
