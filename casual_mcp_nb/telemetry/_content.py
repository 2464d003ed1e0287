"""The messages as the conventions write them: JSON with messages of parts, masked and bounded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

MAX_TEXT = 4_000
"""How many characters of one text are kept."""
MAX_MESSAGES = 50
"""How many messages of a request are kept, the last ones."""
MAX_JSON = 100_000
"""How long an attribute may be: beyond it, the first items are left out whole, so that the rest stays JSON."""


@dataclass(frozen=True)
class Content:
    """Writes content for attributes.

    Args:
        mask: Returns a text without secrets.
    """

    mask: Callable[[str], str]

    def text(self, text: str) -> str:
        """Cut a long text to its beginning. It is masked first: half a secret would not be recognized."""
        masked = self.mask(text)
        return masked if len(masked) <= MAX_TEXT else f"{masked[:MAX_TEXT]} [...]"

    def messages(self, messages: Sequence[ChatMessage], finish_reason: str | None = None) -> str:
        """Format messages as JSON, without system messages.

        Args:
            messages: The messages.
            finish_reason: Why the model ended its answer, for the messages of one.
        """
        ended = {} if finish_reason is None else {"finish_reason": finish_reason}
        sent = [message for message in messages if message.role != "system"][-MAX_MESSAGES:]
        return _fitting([{**self._message(message), **ended} for message in sent])

    def instructions(self, messages: Iterable[ChatMessage]) -> str:
        """Format the system messages as JSON."""
        return _fitting([part for message in messages if message.role == "system" for part in self._texts(message.content)])

    def definitions(self, definitions: Iterable[Mapping[str, Any]]) -> str:
        """Format the definitions of tools as JSON."""
        described = ({**definition, "description": self.text(definition["description"])} for definition in definitions)
        return self.mask(_fitting([{"type": "function", **definition} for definition in described]))

    def arguments(self, arguments: dict[str, Any] | str) -> str:
        """Format the arguments of a call as JSON, or their text where that is not JSON."""
        return self.text(arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=str))

    def _message(self, message: ChatMessage) -> dict[str, Any]:
        if message.role == "tool":
            answer = {"type": "tool_call_response", "id": message.tool_call_id, "response": self.text(str(message.content))}
            return {"role": "tool", "parts": [answer]}
        parts = self._texts(message.content)
        for call in (message.role == "assistant" and message.tool_calls) or ():
            arguments = self.text(call.function.arguments)
            parts.append({"type": "tool_call", "id": call.id, "name": call.function.name, "arguments": arguments})
        return {"role": message.role, "parts": parts}

    def _texts(self, content: Any) -> list[dict[str, Any]]:
        """Convert the parts of a content; an image is only mentioned."""
        parts = [content] if isinstance(content, str) else content or ()
        texts = [part if isinstance(part, str) else part.text if part.type == "text" else f"[{part.type}]" for part in parts]
        return [{"type": "text", "content": self.text(text)} for text in texts if text]


def _fitting(items: list[Any]) -> str:
    """Format a list as JSON, without its first items where it is too long."""
    written = [json.dumps(item, ensure_ascii=False, default=str) for item in items]
    size = sum(map(len, written))
    while written and size > MAX_JSON:
        size -= len(written.pop(0))
    return f"[{', '.join(written)}]"
