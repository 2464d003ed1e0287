"""Request options: translated for each provider, and adapted when a model refuses one.

A rule here reads in a provider's refusal what to change in the request. The request is repeated
with that change, and all later requests to the model have it. The wordings are the live APIs' own,
as other projects' issues quote them. A rule that has nothing new to change does not apply, and
`ModelRequest` bounds how often one request is changed.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from casual_mcp_nb.base.config_base import NO_OPTIONS, RequestOptions
from casual_mcp_nb.base.content import MAX_IMAGES
from casual_mcp_nb.base.iterables import attributes, drop_none
from casual_mcp_nb.errors import shown
from casual_mcp_nb.providers._messages import (
    IdRule,
    after_results,
    digest_of,
    has_images,
    images,
    in_strict_order,
    kept_fields,
    limited,
    merged,
    sendable,
)
from casual_mcp_nb.providers._offered import RefusedTools
from casual_mcp_nb.providers.registry import host_of, spec_of

if TYPE_CHECKING:
    from casual_llm import ChatOptions
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.providers.registry import ProviderSpec


_REASONING = re.compile(
    r"(?:^|/)(?:o\d|gpt-(?:[5-9]|\d\d)|codex|computer-use)(?!.*chat)", re.IGNORECASE
)


def is_reasoning_model(model: str) -> bool:
    """Check whether a name is an OpenAI reasoning model's.

    Those refuse `temperature` and count reasoning as output.
    """
    return _REASONING.search(model) is not None


def thinks(model: str, options: RequestOptions) -> bool:
    """Check whether an OpenAI model reasons before it answers."""
    return is_reasoning_model(model) and options.reasoning_effort != "none"


def unsent_to_reasoning(
    model: str, options: RequestOptions, thinks: bool = False
) -> dict[str, str]:
    """List the options not sent to an OpenAI model because it reasons, each with the reason.

    Args:
        model: The provider's name for it, which tells whether it is a reasoning model.
        options: The requested options.
        thinks: Whether it reasons, whatever its name is.
    """
    if not thinks and not is_reasoning_model(model):
        return {}
    given = options.given()
    unsent: dict[str, str] = {}
    for name in ("temperature", "top_p"):
        if name in given:
            unsent[name] = (
                f"Model {shown(model)} is asked to reason, and takes no {name}: it is not sent."
            )
    return unsent


@dataclass(frozen=True)
class Refusal:
    """A request that a provider refused: its answer, and the arguments sent."""

    status: int | None
    text: str
    wire: str
    model: str
    messages: Sequence[ChatMessage]
    options: RequestOptions = field(default_factory=RequestOptions)


SMALL_SERVERS_LACK = ("tool_choice", "parallel_tool_calls", "reasoning_effort")
"""Options to which servers such as llama.cpp's answer with status 500 rather than a refusal."""

_LEAST_ROOM = 256
_MARGIN = 16


def token_field_of(facts: Learned, model: str) -> str:
    """Choose the field for an answer's limit in chat completions."""
    if facts.token_field is not None:
        return facts.token_field
    return "max_completion_tokens" if is_reasoning_model(model) else "max_tokens"


# A number as `_number` reads it. What looks like one but is longer does not stop a turn.
_DIGITS = r"\d[\d,]{0,11}(?!\d)"
_INPUT, _MOST, _WINDOW = (
    rf"(?P<input>{_DIGITS})",
    rf"(?P<most>{_DIGITS})",
    rf"(?P<window>{_DIGITS})",
)
_EXCEEDED = (
    # Anthropic, with the limit that was sent; OpenAI; vLLM.
    re.compile(rf"exceed context limit: *{_INPUT} *\+ *{_MOST} *> *{_WINDOW}"),
    re.compile(
        rf"maximum context length is {_WINDOW} tokens.{{0,160}}?{_INPUT} in the messages", re.DOTALL
    ),
    re.compile(
        rf"maximum context length is {_WINDOW} tokens.{{0,80}}?{_INPUT} input tokens", re.DOTALL
    ),
)


def room_for_answer(refusal: Refusal) -> int | None:
    """Read how many tokens the conversation leaves for an answer, if a request was refused because
    it asked for more.

    This is so for one request only: another conversation leaves another number.
    """
    most = refusal.options.max_tokens
    match = _first_match(_EXCEEDED, refusal.text)
    if refusal.status not in (400, 422) or match is None or most is None:
        return None
    if _number(match.groupdict().get("most") or str(most)) != most:
        return None
    room = _number(match["window"]) - _number(match["input"]) - _MARGIN
    if not _LEAST_ROOM <= room < most:
        return None
    return room


def _first_match(patterns: Sequence[re.Pattern[str]], text: str) -> re.Match[str] | None:
    for pattern in patterns:
        match = pattern.search(text)
        if match is not None:
            return match
    return None


_OTHER_FIELD = re.compile(r"max_tokens.{0,160}max_completion_tokens", re.DOTALL)


def _token_field(facts: Learned, refusal: Refusal) -> str | None:
    renames = spec_of(refusal.wire).renames_max_tokens
    if refusal.options.max_tokens is None or facts.token_field is not None or not renames:
        return None
    sent = token_field_of(facts, refusal.model)
    if not _UNSUPPORTED.search(refusal.text):
        return None
    if sent == "max_tokens" and _OTHER_FIELD.search(refusal.text):
        facts.token_field = "max_completion_tokens"
    elif sent == "max_completion_tokens" and sent in refusal.text:
        facts.token_field = "max_tokens"
    else:
        return None
    return (
        f"Model {shown(refusal.model)} takes {facts.token_field} for the limit of an answer: it is"
        " sent so from now on."
    )


_TOO_MANY = (
    re.compile(rf"max_tokens: *[\d,]+ *> *{_MOST}"),
    re.compile(rf"supports at most {_MOST} (?:completion|output) tokens"),
    re.compile(
        r"max_(?:completion_|output_)?tokens\W{0,3}(?: value)? must be (?:less than or equal to|at"
        rf" most)\D{{0,3}}{_MOST}"
    ),
    re.compile(rf"range of max_tokens is \[\d+, *{_MOST}\]"),
)


def _most_tokens(facts: Learned, refusal: Refusal) -> str | None:
    sent = refusal.options.max_tokens
    match = _first_match(_TOO_MANY, refusal.text)
    if match is None or sent is None:
        return None
    most = _number(match["most"])
    if not 0 < most < sent:
        return None
    facts.most_tokens = most
    return (
        f"Model {shown(refusal.model)} answers with at most {most:,} tokens: max_tokens is lowered"
        " to that from now on."
    )


_UNSUPPORTED = re.compile(
    r"unsupported|(?:not|n't|no"
    r" longer)\W+(?:\w+\W+){0,2}?support|unrecogni[sz]ed|unknown|unexpected|deprecated"
    r"|extra (?:inputs|fields)|only the default|may only be set"
    r"|not (?:permitted|allowed|accepted|available|enabled|compatible)|(?:cannot|may not) (?:both"
    r" )?be|unset|incompatible"
    r"|expected tags|additional properties",
    re.IGNORECASE,
)
# If a refusal names two, the first one here is the cause of the conflict.
_NAMES = {
    "top_p": re.compile(r"\btop_?p\b", re.IGNORECASE),
    "temperature": re.compile(r"\btemperature\b", re.IGNORECASE),
    "seed": re.compile(r"\b(?:random_)?seed\b", re.IGNORECASE),
    "stop": re.compile(r"\bstop(?:_sequences)?\b", re.IGNORECASE),
    "parallel_tool_calls": re.compile(
        r"\bparallel[_ ]tool[_ ](?:calls?|use)|disable_parallel_tool_use", re.IGNORECASE
    ),
    "tool_choice": re.compile(r"\btool[_ ]choice\b", re.IGNORECASE),
    "reasoning_effort": re.compile(
        r"\b(?:reasoning|reasoning_effort|thinking|think|output_config|effort)\b", re.IGNORECASE
    ),
    "max_tokens": re.compile(r"\bmax_(?:output_)?tokens\b"),
}
_OWN_FIELDS = {
    "stream_options": "the cost of its streamed answers is unknown",
    "cache_control": "requests are not marked for its cache",
    "prompt_cache_options": "it gives no reason for missing its cache",
    "diagnostics": "it gives no reason for missing its cache",
}
"""The losses without the request fields that we add by ourselves."""
_PARAM = re.compile(r'"param"\s*:\s*"([^"]{1,80})"')


def _dropped(facts: Learned, refusal: Refusal) -> str | None:
    if not _UNSUPPORTED.search(refusal.text):
        return None
    model = shown(refusal.model)
    for own in spec_of(refusal.wire).own_fields:
        if own not in facts.fields_left_out and own in refusal.text:
            facts.fields_left_out.add(own)
            return f"Model {model} does not take {own}: {_OWN_FIELDS[own]}."
    sent = refusal.options.given()
    param = _PARAM.search(refusal.text)
    places = [param[1], refusal.text] if param else [refusal.text]
    for sentence in places:
        for name, words in _NAMES.items():
            if name in sent and words.search(sentence):
                notice = f"Model {model} does not take {name}: it is left out."
                facts.left_out[name] = notice
                return notice
    return None


def _number(text: str) -> int:
    return int(text.replace(",", ""))


# Codestral, Devstral, Magistral, Ministral, Mistral, Mixtral, Pixtral, Voxtral.
_MISTRAL = re.compile(r"(?:codes|devs|magis|minis|mis|mix|pix|vox)tral", re.IGNORECASE)
_REFUSALS = (400, 404, 413, 422, 500)

MAX_EMPTY_STREAMS = 2
"""After so many streams in a row that bring nothing, answers are requested in one piece."""


@dataclass
class Learned:
    """The facts learnt about a client's model.

    Args:
        most_images: Maximum number of images in a request, or 0 if it has no vision.
        refused_images: Digests of refused images.
        mistral_ids: Whether call ids must be nine letters and digits.
        stand_ins: Fields that it requires in other models' answers, which are sent with a stand-in.
        refused_fields: Fields of its answers that it refuses in a request.
        refuses_deferral: Whether it refused the fields with which a provider loads deferred tools
            itself.
        window: The context window that the provider stated when it refused a request, in tokens.
        left_out: The options that it refused, each with the notice for the person.
        token_field: The field for an answer's limit, once learnt.
        most_tokens: The highest answer limit that it accepts, if known.
        fields_left_out: Those of `ProviderSpec.own_fields` that it refuses.
        touched: Whether its SDK has built everything that it would leave for the first request, see
            `touch`.
        refused_tools: The tools that its provider refuses.
        told_of_dialect: Whether the person has read that nothing says what it takes.
        empty_streams: How many streams in a row brought nothing, though the same request was
            answered in one piece. Requests at the same time count once, since one lost network
            breaks them all.
    """

    most_images: int = MAX_IMAGES
    refused_images: set[str] = field(default_factory=set)
    mistral_ids: bool = False
    strict_order: bool = False
    stand_ins: set[str] = field(default_factory=set)
    refused_fields: set[str] = field(default_factory=set)
    refuses_deferral: bool = False
    window: int | None = None
    left_out: dict[str, str] = field(default_factory=dict)
    token_field: str | None = None
    most_tokens: int | None = None
    fields_left_out: set[str] = field(default_factory=set)
    touched: bool = False
    refused_tools: RefusedTools = field(default_factory=RefusedTools)
    told_of_dialect: bool = False
    empty_streams: int = 0

    @property
    def streams(self) -> bool:
        """Whether a stream is worth asking for."""
        return self.empty_streams < MAX_EMPTY_STREAMS


_learned_models: WeakKeyDictionary[object, dict[str, Learned]] = WeakKeyDictionary()


def learned(client: object, model: str) -> Learned:
    """Look up the facts about a client's model, at first those that its name and address tell.

    They are kept as long as the client is.
    """
    try:
        models = _learned_models.setdefault(client, {})
    except TypeError:
        # A custom client that is not hashable: nothing is remembered about it.
        return Learned()
    facts = models.get(model)
    if facts is None:
        mistral = bool(_MISTRAL.search(model)) or host_of(client).endswith("mistral.ai")
        facts = models[model] = Learned(mistral_ids=mistral, strict_order=mistral)
    return facts


def messages_for(
    client: object, model: str, messages: Sequence[ChatMessage], wire: str, ids: IdRule
) -> list[ChatMessage]:
    """Adapt a conversation to a model: names, arguments and ids (which follow `ids`) in calls, and
    images.
    """
    facts = learned(client, model)
    return limited(sendable(messages, ids, wire, model), facts.most_images, facts.refused_images)


Rule = Callable[[Learned, Refusal], str | None]
"""Learns from a refusal, and returns a description of the change, or None if it does not apply."""


def adapted(facts: Learned, refusal: Refusal) -> str | None:
    """Learn from a refusal. Return a description of the change for later requests, or None."""
    if refusal.status not in _REFUSALS:
        return None
    is_chat = spec_of(refusal.wire).chat_messages
    is_of_options = refusal.status in (400, 422)
    rules: list[Rule] = []
    if is_chat:
        rules += [_stand_ins, _ids, _order]
    if is_of_options:
        rules += [_token_field, _most_tokens, _dropped]
    rules.append(_images)
    if is_chat and is_of_options:
        rules.append(_fields)
    for rule in rules:
        notice = rule(facts, refusal)
        if notice is not None:
            return notice
    return None


_CANNOT_SEE = re.compile(
    r"(?:image|vision|multi-?modal).{0,80}(?:not support|unsupported|not enabled|only supported|not"
    r" a |not available)"
    r"|(?:not support|unsupported|no endpoints|not a |text-only|does not have|only accepts?"
    r" text|missing data).{0,80}"
    r"(?:image|vision|multi-?modal)"
    r"|unknown variant `image_url`|content must be a string",
    re.IGNORECASE | re.DOTALL,
)
_AT_MOST = re.compile(
    r"at most (\d{1,9}) image|(?:maximum|max|limit)\D{0,30}(\d{1,9})\D{0,10}images?\b",
    re.IGNORECASE,
)


def _images(facts: Learned, refusal: Refusal) -> str | None:
    sent = limited(refusal.messages, facts.most_images, facts.refused_images)
    if not has_images(sent):
        return None
    counted = _AT_MOST.search(refusal.text)
    if counted:
        most = int(counted[1] or counted[2])
        takes_fewer = most < facts.most_images
    else:
        most = 0
        takes_fewer = _CANNOT_SEE.search(refusal.text) is not None
    if takes_fewer:
        facts.most_images = most
        if most:
            return (
                f"Model {shown(refusal.model)} takes at most {most} images in a request: it is"
                " shown the newest ones."
            )
        return (
            f"Model {shown(refusal.model)} cannot see images: it reads a note in place of each"
            " image that a tool returns."
        )
    if refusal.status == 413 or re.search(r"\bimage", refusal.text, re.IGNORECASE):
        for message in sent:
            facts.refused_images |= set(map(digest_of, images(message)))
        return (
            "The provider refused an image that a tool returned: the model reads a note in its"
            " place."
        )
    return None


_ID = re.compile(r"tool call id .{0,200}length of 9", re.IGNORECASE | re.DOTALL)


def _ids(facts: Learned, refusal: Refusal) -> str | None:
    if facts.mistral_ids or not _ID.search(refusal.text):
        return None
    facts.mistral_ids = True
    return (
        f"Model {shown(refusal.model)} takes ids of nine letters and digits only: calls are sent"
        " with such ids."
    )


_ORDER = re.compile(
    r"roles? must alternate|alternate user|after role|message_order|expected last role"
    r"|system"
    r" (?:message|role|prompt).{0,60}(?:beginning|first|start|must)|(?:beginning|first|start|must).{0,60}system"
    r" message",
    re.IGNORECASE | re.DOTALL,
)


def _order(facts: Learned, refusal: Refusal) -> str | None:
    if facts.strict_order or not _ORDER.search(refusal.text):
        return None
    sent = list(after_results(limited(refusal.messages, facts.most_images)))
    if in_strict_order(sent) == merged(sent):
        return None
    facts.strict_order = True
    return (
        f"Model {shown(refusal.model)} wants person and model to take turns: messages of one role"
        " are sent as one."
    )


REASONING, SIGNATURE = "reasoning_content", "thought_signature"
_MISSING = {
    # https://api-docs.deepseek.com/guides/thinking_mode: also answers of other models must have the
    # field, be it empty.
    REASONING: re.compile(
        r"missing .?reasoning_content|reasoning_content.{0,80}must be passed back",
        re.IGNORECASE | re.DOTALL,
    ),
    # https://ai.google.dev/gemini-api/docs/thought-signatures: calls of other models take a fixed
    # text for a signature.
    SIGNATURE: re.compile(r"missing a .?thought_signature", re.IGNORECASE),
}


def _stand_ins(facts: Learned, refusal: Refusal) -> str | None:
    for name, words in _MISSING.items():
        if name not in facts.stand_ins and words.search(refusal.text):
            facts.stand_ins.add(name)
            return (
                f"Model {shown(refusal.model)} wants {name} with each answer: other models' get a"
                " stand-in."
            )
    return None


def _fields(facts: Learned, refusal: Refusal) -> str | None:
    for message in refusal.messages:
        own = kept_fields(message, refusal.wire, refusal.model)
        names = set(own.message).union(*own.calls) - facts.refused_fields - {"content"}
        for name in names:
            if name in refusal.text:
                facts.refused_fields.add(name)
                return (
                    f"Model {shown(refusal.model)} does not take {shown(name)} back: it is left"
                    " out."
                )
    return None


def options_of(chat: ChatOptions | None) -> RequestOptions:
    """Read the options set in casual-llm's own, for a model that the user created with it."""
    if chat is None:
        return NO_OPTIONS
    names = ("temperature", "max_tokens", "top_p", "seed", "tool_choice")
    values = drop_none(attributes(chat, names))
    if chat.stop:
        values["stop"] = tuple(chat.stop)
    # Not validated: the user's own may be wrong in ways that only the provider knows.
    return NO_OPTIONS.model_copy(update=values) if values else NO_OPTIONS


def chat_options(
    spec: ProviderSpec, base: ChatOptions | None, options: RequestOptions, offer: dict[str, Any]
) -> ChatOptions:
    """Build the request's input. `offer` are the tools, as its arguments."""
    from casual_llm import ChatOptions

    if base is None and options is NO_OPTIONS:
        if "tools" in offer:
            offer = {**offer, **spec.choose_tools(options)}
        return ChatOptions(extra=offer)
    base = base or ChatOptions()
    effort: dict[str, Any] = {}
    if options.reasoning_effort is not None:
        effort = spec.effort(options.reasoning_effort)
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
        # casual-llm's own tools would replace the raw definitions and cannot represent every
        # schema.
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
    """List a request's tools: casual-llm's own if it makes the request, and the raw definitions."""
    from casual_llm.tool_converters import tools_to_openai

    own = tools_to_openai(options.tools) if options.tools else []
    return [*(dict(tool["function"]) for tool in own), *options.extra.get("tools", ())]
