"""A model provider that plays a list of replies, in the wire formats of OpenAI (both of them),
Anthropic, Google and Ollama.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import distributions
from typing import Any

from kit.scripted_http import Reply, Request, ScriptedHttp

# As many as are installed: google-genai came last, and LiteLLM's own environment is without it.
WITH_GOOGLE = any(distribution.name == "google-genai" for distribution in distributions())
PROVIDERS = (
    "openai",
    "openai-responses",
    "anthropic",
    *(["gemini"] if WITH_GOOGLE else []),
    "ollama",
)

Calls = tuple[tuple[str, Mapping[str, Any]], ...]


class Provider(ScriptedHttp):
    """Gives each request the next reply; the last one for ever.

    Args:
        replies: A `Reply`, or what is the body of one with status 200: an answer of this module, a
            value, or a text (as HTML).
    """

    def __init__(self, *replies: Any) -> None:
        super().__init__(self._next)
        self.replies = [
            reply if isinstance(reply, Reply) else Reply(body=reply) for reply in replies
        ]
        self._lock = threading.Lock()

    @property
    def answer(self) -> Any:
        """The body of the last reply; when it is set, every request gets it from now on, with the
        status of that reply.
        """
        return self.replies[-1].body

    @answer.setter
    def answer(self, body: Any) -> None:
        self.replies[:] = [replace(self.replies[-1], body=body)]

    def _next(self, request: Request) -> Reply:
        with self._lock:
            return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]

    def config(
        self, provider: str, key: str = "sk-not-a-real-key", **client: Any
    ) -> dict[str, Any]:
        """A config whose model `small` of client `desk` asks this server."""
        base = (
            f"{self.url}/v1" if provider.startswith("openai") or provider == "litellm" else self.url
        )
        desk = {"provider": provider, "base_url": base, "api_key": key, "timeout": 30, **client}
        return {"clients": {"desk": desk}, "models": {"small": {"client": "desk", "model": "m-1"}}}


def own_variable(provider: str) -> str:
    """The variable of the environment in which a provider's key is looked for."""
    return f"{provider.partition('-')[0].upper()}_API_KEY"


def answer(
    provider: str,
    text: str,
    *calls: tuple[str, Mapping[str, Any]],
    usage: tuple[int, int] | None = (30, 7),
) -> Any:
    """The body of a provider's answer.

    Args:
        provider: One of `PROVIDERS`.
        text: The text of the answer.
        calls: Calls of tools: name on the wire and arguments.
        usage: Tokens of the prompt and of the answer; None where the provider reports none.
    """
    makers = {
        "openai": _openai,
        "openai-responses": _responses,
        "anthropic": _anthropic,
        "gemini": _gemini,
        "ollama": _ollama,
    }
    return makers[provider](text, calls, usage)


def _openai(text: str, calls: Calls, usage: tuple[int, int] | None) -> dict[str, Any]:
    chunks = [
        {
            "id": f"c{number}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for number, (name, arguments) in enumerate(calls)
    ]
    message = {"role": "assistant", "content": text, **({"tool_calls": chunks} if chunks else {})}
    choice = {"index": 0, "finish_reason": "tool_calls" if chunks else "stop", "message": message}
    body: dict[str, Any] = {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "m-1",
        "choices": [choice],
    }
    if usage:
        body["usage"] = {
            "prompt_tokens": usage[0],
            "completion_tokens": usage[1],
            "total_tokens": sum(usage),
        }
    return body


def _responses(text: str, calls: Calls, usage: tuple[int, int] | None) -> dict[str, Any]:
    items = [response_text(text)] if text else []
    items += [
        response_call(f"c{number}", name, json.dumps(arguments))
        for number, (name, arguments) in enumerate(calls)
    ]
    counted = usage and {
        "input_tokens": usage[0],
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": usage[1],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": sum(usage),
    }
    return response(*items, usage=counted)


def response(
    *output: Mapping[str, Any], status: str = "completed", **fields: Any
) -> dict[str, Any]:
    """A response of OpenAI's Responses API with these items as its output."""
    response = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "m-1",
        "status": status,
        "output": list(output),
    }
    return {**response, "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], **fields}


def response_text(text: str, **fields: Any) -> dict[str, Any]:
    """A message in the output of a response."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": content,
        **fields,
    }


def response_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """A call of a tool in the output of a response."""
    item = {
        "type": "function_call",
        "id": f"fc_{call_id}",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
    }
    return {**item, "status": "completed"}


def _anthropic(text: str, calls: Calls, usage: tuple[int, int] | None) -> dict[str, Any]:
    blocks = [
        {"type": "tool_use", "id": f"c{number}", "name": name, "input": dict(arguments)}
        for number, (name, arguments) in enumerate(calls)
    ]
    return {
        "id": "1",
        "type": "message",
        "role": "assistant",
        "model": "m-1",
        "stop_reason": "tool_use" if blocks else "end_turn",
        "stop_sequence": None,
        "content": [*([{"type": "text", "text": text}] if text else []), *blocks],
        **({"usage": {"input_tokens": usage[0], "output_tokens": usage[1]}} if usage else {}),
    }


def _gemini(text: str, calls: Calls, usage: tuple[int, int] | None) -> dict[str, Any]:
    parts = [
        gemini_call(f"c{number}", name, arguments) for number, (name, arguments) in enumerate(calls)
    ]
    return gemini_answer([*([{"text": text}] if text else []), *parts], usage=usage)


def gemini_call(
    call_id: str, name: str, arguments: Mapping[str, Any], **fields: Any
) -> dict[str, Any]:
    """A part of an answer of Gemini's that calls a tool."""
    return {"functionCall": {"id": call_id, "name": name, "args": dict(arguments)}, **fields}


def gemini_answer(
    parts: Sequence[Mapping[str, Any]],
    reason: str | None = "STOP",
    usage: tuple[int, int] | None = (30, 7),
    **counts: int,
) -> dict[str, Any]:
    """The body of an answer of Gemini's, or of a piece of one."""
    candidate = {
        "content": {"role": "model", "parts": list(parts)},
        "index": 0,
        **({"finishReason": reason} if reason else {}),
    }
    counted = usage and {
        "promptTokenCount": usage[0],
        "candidatesTokenCount": usage[1],
        "totalTokenCount": sum(usage),
        **counts,
    }
    return {
        "candidates": [candidate],
        **({"usageMetadata": counted} if counted else {}),
        "modelVersion": "m-1",
    }


def _ollama(text: str, calls: Calls, usage: tuple[int, int] | None) -> dict[str, Any]:
    tool_calls = [
        {"function": {"name": name, "arguments": dict(arguments)}} for name, arguments in calls
    ]
    return {
        "model": "m-1",
        "created_at": "2026-01-01T00:00:00Z",
        "done": True,
        "done_reason": "stop",
        "message": {
            "role": "assistant",
            "content": text,
            **({"tool_calls": tool_calls} if tool_calls else {}),
        },
        **({"prompt_eval_count": usage[0], "eval_count": usage[1]} if usage else {}),
    }
