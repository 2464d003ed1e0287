"""Estimate and count tokens, with each number's origin, and estimate the cost of turns."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from casual_mcp_nb.base.displayable import Displayable
from casual_mcp_nb.base.iterables import attributes, field_names
from casual_mcp_nb.base.limits import strict_json

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage


Origin = Literal["reported", "estimated"]

_PIECE = re.compile(r"[ _]?[A-Za-z]+|\d{1,3}|[^\sA-Za-z\d]+|\s+")
# The same for ASCII: sets of characters that are written out are a fifth faster, and a large
# catalog takes long.
_ASCII_PIECE = re.compile(
    r"[A-Za-z]+|[ _][A-Za-z]+|[^\t-\r\x1c- A-Za-z0-9]+|[0-9]{1,3}|[\t-\r\x1c- ]+"
)
_LONG_WORD = 10
_DEFINITION_TOKENS = 6
_SCALE = 0.92
_COUNTED_WHOLE = 200_000
_SLICES = 50
_SLICE = _COUNTED_WHOLE // _SLICES
_MAX_TEXTS = 100

REUSED_WEIGHT = 0.1
"""A reused token's weight without prices: providers with a cache bill about a tenth."""

IMAGE_TOKENS = 1_000
"""Estimated tokens per image: providers count 100 to 1,700, depending on its size in pixels."""


def estimate_tokens(text: str) -> int:
    """Estimate how many tokens `text` has, without a network or a vocabulary.

    A word counts one for its first ten letters and one for every further eight, digits one for
    every three, a run of punctuation one, any other letter one. The sum is scaled by a measured
    factor. Over real MCP servers' tool definitions the sum is within a tenth of a real tokenizer's.
    A single short text can be off by a quarter.

    A text of more than 200,000 characters is estimated from a sample, see `sampled`.
    """
    return math.ceil(
        _SCALE * (_pieces(text) if len(text) <= _COUNTED_WHOLE else sampled(text, _pieces))
    )


class _Priced(Protocol):
    @property
    def tokens(self) -> int: ...


def total_tokens(items: Iterable[_Priced]) -> int:
    """Add up the tokens of tools, servers, or whatever else has a price."""
    return sum(item.tokens for item in items)


def _pieces(text: str) -> int:
    if text.isascii():
        sizes = list(map(len, _ASCII_PIECE.findall(text)))
        if max(sizes, default=0) <= _LONG_WORD:
            return len(sizes)
        return len(sizes) + sum(
            [-(-(size - _LONG_WORD) // 8) for size in sizes if size > _LONG_WORD]
        )
    return sum(
        [
            1 + max(-(-(len(piece) - _LONG_WORD) // 8), 0) if piece.isascii() else len(piece)
            for piece in _PIECE.findall(text)
        ]
    )


def sampled(text: str, count: Callable[[str], int]) -> float:
    """Count a text's tokens: exactly up to 200,000 characters, beyond that from a sample.

    The sample is 50 evenly spread slices of 4,000 characters, so that a text of any length can be
    counted on an event loop. For text that is alike throughout, or in stretches of a twentieth, the
    number is within 5% of the whole count. For a text made to mislead, it can be off by as much as
    the densest text (a token per character) differs from the sparsest (one per eight).
    """
    if len(text) <= _COUNTED_WHOLE:
        return count(text)
    starts = (number * (len(text) - _SLICE) // (_SLICES - 1) for number in range(_SLICES))
    return sum(count(text[start : start + _SLICE]) for start in starts) * len(text) / _COUNTED_WHOLE


def message_tokens(message: ChatMessage, count: Callable[[str], int] = estimate_tokens) -> int:
    """Estimate a message's tokens, including its calls and images."""
    # Not `getattr`: pydantic takes long to say that there is no such field.
    content, images = message.content, len(vars(message).get("images", ()))
    if isinstance(content, list):
        texts = [part.text for part in content if part.type == "text"]
        images += sum([part.type == "image" for part in content])
    else:
        texts = [content or ""]
    if message.role == "assistant" and message.tool_calls:
        for call in message.tool_calls:
            texts += [call.function.name, call.function.arguments]
    if len(texts) > _MAX_TEXTS:
        # As one text, so that it can be sampled.
        texts = [" ".join(texts)]
    return 4 + images * IMAGE_TOKENS + sum([count(text) for text in texts if text])


def text_tokens(text: str) -> int:
    """Estimate the tokens of a definition that is written as JSON."""
    return estimate_tokens(text) + _DEFINITION_TOKENS


def definition_tokens(definition: Mapping[str, Any]) -> int:
    """Estimate the tokens that a tool's `name`, `description` and `parameters` take, as they are
    sent.
    """
    return text_tokens(strict_json(dict(definition))[1])


def request_tokens(messages: Iterable[ChatMessage], tools: Iterable[Mapping[str, Any]]) -> int:
    """Estimate a request's size."""
    return sum(map(message_tokens, messages)) + sum(estimate_tokens(str(tool)) for tool in tools)


@dataclass(frozen=True, slots=True)
class CacheMiss:
    """A provider's reason for not reusing its cache, although a request repeats the previous one.

    `tokens` is about how many it could have reused.
    """

    reason: str
    tokens: int | None = None


@dataclass(frozen=True)
class TokenUsage:
    """One model call's tokens.

    `None` means unknown, which is never written as 0. The provider read `cached_tokens` from its
    cache and wrote `cache_write_tokens` to it, which cost more. `cache_miss` is why it could not
    reuse the previous request. `reasoning_tokens` are part of the answer.
    """

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    origin: Origin = "reported"
    cache_write_tokens: int | None = None
    cache_miss: CacheMiss | None = None

    @property
    def total_tokens(self) -> int | None:
        """Input and output together, or None if either is unknown."""
        if self.prompt_tokens is None or self.completion_tokens is None:
            return None
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class TokenParts:
    """A request's tokens by part.

    The parts are estimates. Once the provider has reported the whole request's size, they are
    scaled to add up to it and `origin` is `reported`.
    """

    system: int = 0
    manifest: int = 0
    tools: int = 0
    history: int = 0
    results: int = 0
    origin: Origin = "estimated"

    @property
    def total(self) -> int:
        """The sum."""
        return self.system + self.manifest + self.tools + self.history + self.results

    @property
    def definitions(self) -> int:
        """The tool tokens: their definitions and the manifest."""
        return self.tools + self.manifest

    def as_dict(self) -> dict[str, int]:
        """Collect the parts by name, in the order sent."""
        return attributes(self, ("system", "manifest", "tools", "history", "results"))

    def __add__(self, other: TokenParts) -> TokenParts:
        """Add up both; `estimated` if either is."""
        return summed(self, other)

    def as_counted(self, usage: TokenUsage | None) -> TokenParts:
        """Scale the parts to the provider's count, if there is one."""
        if usage is None or usage.prompt_tokens is None or usage.origin != "reported":
            return self
        return self.scaled_to(usage.prompt_tokens)

    def scaled_to(self, reported: int) -> TokenParts:
        """Scale the parts to add up to `reported`, the provider's count.

        The largest absorbs the rounding.
        """
        parts = self.as_dict()
        total = self.total
        if total == 0:
            return self
        scaled = {name: value * reported // total for name, value in parts.items()}
        largest = max(parts, key=lambda name: parts[name])
        scaled[largest] += reported - sum(scaled.values())
        return TokenParts(**scaled, origin="reported")


S = TypeVar("S")


def summed(one: S, other: S) -> S:
    """Add two statistics field by field. The sum has an unknown number only if both have, and is
    `estimated` if either is.
    """
    sums: dict[str, Any] = {}
    for name in field_names(one):
        sums[name] = _sum(getattr(one, name), getattr(other, name))
    return type(one)(**sums)


def _sum(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    if isinstance(one, str):
        return "estimated" if "estimated" in (one, other) else "reported"
    if isinstance(one, Mapping):
        return dict(Counter(one) + Counter(other))
    return one + other


@dataclass(frozen=True)
class TurnCosts:
    """Estimated input tokens.

    Args:
        definitions: Tool definitions at the start, including the search tool and the manifest.
        first_request: These and the system prompt, before any message.
        turn: A turn with one call, after a search if tools are deferred. All requests together.
        ten_turns: Ten turns with one call each. `SEARCHING_TURNS` search; the others use tools
            found before.
        ten_turns_new: The new part in these requests. A provider can cache the rest.
        ten_turns_worst: Ten turns that each search for other tools.
    """

    definitions: int
    first_request: int
    turn: int
    ten_turns: int
    ten_turns_new: int
    ten_turns_worst: int


SEARCHING_TURNS = 3
"""How many turns in ten search, typically. The others use tools found before."""


@dataclass(frozen=True)
class Budget(Displayable):
    """The cost of turns with the current selection, and if every tool were loaded.

    Includes servers' instructions.
    """

    now: TurnCosts
    undeferred: TurnCosts
    instructions: int = 0

    @property
    def saved(self) -> float | None:
        """The share of a turn's input that deferring saves, below 0 if it costs more, or None if
        nothing is deferred.
        """
        if self.now == self.undeferred or not self.undeferred.turn:
            return None
        return 1 - self.now.turn / self.undeferred.turn
