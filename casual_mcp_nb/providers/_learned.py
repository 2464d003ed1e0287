"""The options and forms that a model accepts, learnt from its refusals and applied to every later request.

A rule here handles a refusal: it determines from the provider's message what to change, and the request is repeated in that
form. Each rule applies once per model and client, so that a provider that refuses everything is not retried forever.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from casual_mcp_nb.errors import shown
from casual_mcp_nb.providers._history import IdRule, in_strict_order, merged, sendable
from casual_mcp_nb.providers._pictures import after_results, digest_of, has_images, images, limited
from casual_mcp_nb.providers._provider_state import kept_fields
from casual_mcp_nb.providers._refused_options import LearnedOptions, Refusal, adapt_options
from casual_mcp_nb.providers.registry import spec_of
from casual_mcp_nb.types.image import MAX_IMAGES

if TYPE_CHECKING:
    from casual_llm import ChatMessage

# Codestral, Devstral, Magistral, Ministral, Mistral, Mixtral, Pixtral, Voxtral.
_MISTRAL = re.compile(r"(?:codes|devs|magis|minis|mis|mix|pix|vox)tral", re.IGNORECASE)
_REFUSALS = (400, 404, 413, 422, 500)


@dataclass
class Learned:
    """The facts learnt about a model of a client.

    Args:
        streams: Whether it supports streaming.
        most_images: Maximum number of images in a request; 0 if it has no vision.
        refused_images: Digests of images that were refused.
        mistral_ids: Whether call ids must be nine letters and digits.
        strict_order: Whether messages must be in the order of `_history.in_strict_order`.
        stand_ins: Fields that it requires in answers of other models, which are sent with a stand-in.
        refused_fields: Fields of its answers that it refuses in a request.
        refuses_deferral: Whether it refused the fields with which a provider loads deferred tools itself.
        window: The context window that the provider stated when it refused a request, in tokens.
        options: Which options it accepts.
        touched: Whether its SDK has built what it would leave for the first request, see `touch`.
    """

    streams: bool = True
    most_images: int = MAX_IMAGES
    refused_images: set[str] = field(default_factory=set)
    mistral_ids: bool = False
    strict_order: bool = False
    stand_ins: set[str] = field(default_factory=set)
    refused_fields: set[str] = field(default_factory=set)
    refuses_deferral: bool = False
    window: int | None = None
    options: LearnedOptions = field(default_factory=LearnedOptions)
    touched: bool = False


_learned_models: WeakKeyDictionary[object, dict[str, Learned]] = WeakKeyDictionary()


def learned(client: object, model: str) -> Learned:
    """Look up the facts about this model, initially from its name. Closed clients are forgotten."""
    try:
        models = _learned_models.setdefault(client, {})
    except TypeError:
        # A custom client that is not hashable: nothing is remembered about it.
        return Learned()
    facts = models.get(model)
    if facts is None:
        host = urlsplit(str(getattr(getattr(client, "client", None), "base_url", None) or "")).hostname or ""
        mistral = bool(_MISTRAL.search(model)) or host.endswith("mistral.ai")
        facts = models[model] = Learned(mistral_ids=mistral, strict_order=mistral)
    return facts


def messages_for(client: object, model: str, messages: Sequence[ChatMessage], wire: str, ids: IdRule) -> list[ChatMessage]:
    """Adapt a conversation to a model: names, arguments and ids of calls, which follow `ids`, and images."""
    facts = learned(client, model)
    return limited(sendable(messages, ids, wire, model), facts.most_images, facts.refused_images)


def adapted(facts: Learned, refusal: Refusal) -> str | None:
    """Learn from a refusal; return a description of the change for later requests, or None."""
    if refusal.status not in _REFUSALS:
        return None
    return next((notice for rule in _RULES if (notice := rule(facts, refusal)) is not None), None)


_CANNOT_SEE = re.compile(
    r"(?:image|vision|multi-?modal).{0,80}(?:not support|unsupported|not enabled|only supported|not a |not available)"
    r"|(?:not support|unsupported|no endpoints|not a |text-only|does not have|only accepts? text|missing data).{0,80}"
    r"(?:image|vision|multi-?modal)"
    r"|unknown variant `image_url`|content must be a string",
    re.IGNORECASE | re.DOTALL,
)
_AT_MOST = re.compile(r"at most (\d+) image|(?:maximum|max|limit)\D{0,30}(\d+)\D{0,10}images?\b", re.IGNORECASE)


def _images(facts: Learned, refusal: Refusal) -> str | None:
    sent = limited(refusal.messages, facts.most_images, facts.refused_images)
    if not has_images(sent):
        return None
    counted = _AT_MOST.search(refusal.text)
    most = int(counted[1] or counted[2]) if counted else 0
    if (counted and most < facts.most_images) or (counted is None and _CANNOT_SEE.search(refusal.text)):
        facts.most_images = most
        if most:
            return f"Model {shown(refusal.model)} takes at most {most} images in a request: it is shown the newest ones."
        return f"Model {shown(refusal.model)} cannot see images: it reads a note in place of each image that a tool returns."
    if refusal.status == 413 or re.search(r"\bimage", refusal.text, re.IGNORECASE):
        facts.refused_images |= {digest_of(image) for message in sent for image in images(message)}
        return "The provider refused an image that a tool returned: the model reads a note in its place."
    return None


_ID = re.compile(r"tool call id .{0,200}length of 9", re.IGNORECASE | re.DOTALL)


def _ids(facts: Learned, refusal: Refusal) -> str | None:
    if not spec_of(refusal.wire).chat_messages or facts.mistral_ids or not _ID.search(refusal.text):
        return None
    facts.mistral_ids = True
    return f"Model {shown(refusal.model)} takes ids of nine letters and digits only: calls are sent with such ids."


_ORDER = re.compile(
    r"roles? must alternate|alternate user|after role|message_order|expected last role"
    r"|system (?:message|role|prompt).{0,60}(?:beginning|first|start|must)|(?:beginning|first|start|must).{0,60}system message",
    re.IGNORECASE | re.DOTALL,
)


def _order(facts: Learned, refusal: Refusal) -> str | None:
    if not spec_of(refusal.wire).chat_messages or facts.strict_order or not _ORDER.search(refusal.text):
        return None
    sent = list(after_results(limited(refusal.messages, facts.most_images)))
    if in_strict_order(sent) == merged(sent):
        return None
    facts.strict_order = True
    return f"Model {shown(refusal.model)} wants person and model to take turns: messages of one role are sent as one."


REASONING, SIGNATURE = "reasoning_content", "thought_signature"
_MISSING = {
    # https://api-docs.deepseek.com/guides/thinking_mode: also answers of other models must have the field, be it empty.
    REASONING: re.compile(
        r"missing .?reasoning_content|reasoning_content.{0,80}must be passed back", re.IGNORECASE | re.DOTALL
    ),
    # https://ai.google.dev/gemini-api/docs/thought-signatures: calls of other models take a fixed text for a signature.
    SIGNATURE: re.compile(r"missing a .?thought_signature", re.IGNORECASE),
}


def _stand_ins(facts: Learned, refusal: Refusal) -> str | None:
    if not spec_of(refusal.wire).chat_messages:
        return None
    for name, words in _MISSING.items():
        if name not in facts.stand_ins and words.search(refusal.text):
            facts.stand_ins.add(name)
            return f"Model {shown(refusal.model)} wants {name} with each answer: other models' get a stand-in."
    return None


def _fields(facts: Learned, refusal: Refusal) -> str | None:
    if not spec_of(refusal.wire).chat_messages or refusal.status not in (400, 422):
        return None
    for message in refusal.messages:
        own = kept_fields(message, refusal.wire, refusal.model)
        for name in {*own.message, *(name for call in own.calls for name in call)} - facts.refused_fields:
            if name in refusal.text and name != "content":
                facts.refused_fields.add(name)
                return f"Model {shown(refusal.model)} does not take {shown(name)} back: it is left out."
    return None


def _options(facts: Learned, refusal: Refusal) -> str | None:
    return adapt_options(facts.options, refusal)


_RULES: tuple[Callable[[Learned, Refusal], str | None], ...] = (_stand_ins, _ids, _order, _options, _images, _fields)
