"""Messages in the format of chat completions, which Ollama's resembles.

Convert the conversation for a request, and collect extra fields of an answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

from casual_mcp_nb.providers._history import CHAT_IDS, MISTRAL_IDS, in_strict_order, merged
from casual_mcp_nb.providers._learned import REASONING, SIGNATURE, Learned, learned, messages_for
from casual_mcp_nb.providers._pictures import after_results
from casual_mcp_nb.providers._provider_state import kept_fields

if TYPE_CHECKING:
    from casual_llm import ChatMessage

_Kind = TypeVar("_Kind")
# Fields that a stream splits into chunks; all others are complete in each chunk.
_IN_PIECES = ("text", "summary", "thinking", "content", "reasoning")
# What Gemini accepts as the signature of another model's call.
_ANY_SIGNATURE = {"google": {"thought_signature": "skip_thought_signature_validator"}}


def conversation(client: object, model: str, messages: Sequence[ChatMessage], wire: str) -> list[ChatMessage]:
    """Convert the messages to the form that this model accepts."""
    facts = learned(client, model)
    ids = MISTRAL_IDS if facts.mistral_ids else CHAT_IDS
    sent = list(after_results(messages_for(client, model, messages, wire, ids)))
    return in_strict_order(sent) if facts.strict_order else merged(sent)


def give_back(client: object, model: str, sent: Sequence[ChatMessage], built: Sequence[dict[str, Any]], wire: str) -> None:
    """Add this model's extra fields to `built`, which casual-llm built from the messages that are `sent`."""
    facts = learned(client, model)
    answers = (message for message in sent if message.role == "assistant")
    for message, answer in zip(answers, (one for one in built if one["role"] == "assistant"), strict=True):
        own = kept_fields(message, wire, model)
        answer |= _allowed(own.message, facts)
        for call, fields in zip(answer.get("tool_calls") or (), own.calls, strict=True):
            call |= _allowed(fields, facts)
        _stand_in(answer, facts)


def _allowed(fields: Mapping[str, Any], facts: Learned) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in facts.refused_fields}


def _stand_in(answer: dict[str, Any], facts: Learned) -> None:
    if REASONING in facts.stand_ins:
        answer.setdefault(REASONING, "")
    # Of parallel calls, Gemini signs only the first.
    if SIGNATURE in facts.stand_ins and answer.get("tool_calls"):
        answer["tool_calls"][0].setdefault("extra_content", _ANY_SIGNATURE)


def text_in(content: Any) -> str:
    """Extract the text of an answer's content: a string, or with Mistral's thinking models, a list of thoughts and texts."""
    if not isinstance(content, list):
        return content or ""
    return "".join(part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))


class StreamedFields:
    """Merges the fields of a streamed answer: strings are joined, list items are matched by `index`."""

    def __init__(self) -> None:
        self._pieces: dict[str, list[Any]] = {}

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def __contains__(self, name: str) -> bool:
        return name in self._pieces

    def add(self, fields: Mapping[str, Any]) -> None:
        """Add the fields of one more chunk."""
        for name, value in fields.items():
            self._pieces.setdefault(name, []).append(value)

    def whole(self) -> dict[str, Any]:
        """Join the fields as in a complete answer."""
        return {name: _joined(values) for name, values in self._pieces.items()}


def _all(values: Sequence[object], kind: type[_Kind]) -> TypeGuard[Sequence[_Kind]]:
    return all(isinstance(value, kind) for value in values)


def _joined(values: Sequence[object]) -> object:
    if _all(values, str):
        return "".join(values)
    if _all(values, list):
        return [_part(pieces) for pieces in _groups([part for value in values for part in value])]
    if _all(values, dict):
        names = dict.fromkeys(name for value in values for name in value)
        return {name: _last_or_tree([value[name] for value in values if name in value]) for name in names}
    return values[-1]


def _last_or_tree(values: Sequence[object]) -> object:
    return _joined(values) if all(isinstance(value, dict | list) for value in values) else values[-1]


def _part(pieces: Sequence[Any]) -> object:
    if len(pieces) == 1:
        return pieces[0]
    whole: dict[str, object] = {}
    for name in dict.fromkeys(name for piece in pieces for name in piece):
        values = [piece[name] for piece in pieces if piece.get(name) is not None]
        whole[name] = (_joined(values) if name in _IN_PIECES else values[-1]) if values else None
    return whole


def _groups(parts: Sequence[object]) -> list[list[object]]:
    groups: list[list[object]] = []
    by_index: dict[int, list[object]] = {}
    for part in parts:
        index = part.get("index") if isinstance(part, dict) else None
        group = by_index.get(index) if isinstance(index, int) else groups[-1] if groups and _goes_on(groups[-1], part) else None
        if group is None:
            group = []
            groups.append(group)
            if isinstance(index, int):
                by_index[index] = group
        group.append(part)
    return groups


def _goes_on(group: Sequence[object], part: object) -> bool:
    """Check whether a part without an index continues the previous one: same type, and that one is not signed yet."""
    last = group[-1]
    if not (isinstance(part, dict) and isinstance(last, dict)) or "index" in last or last.get("signature"):
        return False
    same = last.get("type") == part.get("type") and part.get("id") in (None, last.get("id"))
    return same and any(part.get(name) for name in (*_IN_PIECES, "signature"))
