"""A check that a request is valid for a provider, by the types that its SDK makes from the
provider's OpenAPI schema.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, is_typeddict

from pydantic import ConfigDict, TypeAdapter

KINDS = {
    "/v1/chat/completions": (
        "openai.types.chat",
        "completion_create_params.CompletionCreateParams",
    ),
    "/v1/responses": ("openai.types.responses", "response_create_params.ResponseCreateParams"),
    "/v1/messages": ("anthropic.types", "message_create_params.MessageCreateParams"),
}


def check_request(path: str, body: Any) -> None:
    """Raise `pydantic.ValidationError` for a request that is not of the SDK's types, or has a field
    that they do not know.

    Args:
        path: The path of the request, which says what it is; others are not checked.
        body: Its body.
    """
    path = path.partition("?")[0]
    if path == "/api/chat":
        from ollama._types import ChatRequest

        # The SDK's class of a tool does not know all of JSON Schema.
        tools = [
            {**tool, "function": {**tool["function"], "parameters": {}}}
            for tool in body.get("tools", ())
        ]
        ChatRequest.model_validate({**body, "tools": tools})
    elif path.endswith(("generateContent", "GenerateContent")):
        _check_gemini(body)
    elif path in KINDS:
        _consumed(_adapter(path, bool(body.get("stream"))).validate_python(_known(body)))


def _check_gemini(body: Mapping[str, Any]) -> None:
    for name, value in body.items():
        _gemini_adapter(name).validate_python(value)


@cache
def _gemini_adapter(name: str) -> TypeAdapter[Any]:
    from google.genai import types

    kinds: dict[str, Any] = {
        "contents": list[types.Content],
        "tools": list[types.Tool],
        "toolConfig": types.ToolConfig,
        "systemInstruction": types.Content,
        "generationConfig": types.GenerationConfig,
    }
    return TypeAdapter(kinds[name])


# What OpenAI-compatible servers want back with an answer, and OpenAI's own schema does not have.
OWN_FIELDS = ("reasoning", "reasoning_content", "reasoning_details", "extra_content", "opaque")


def _known(body: Mapping[str, Any]) -> dict[str, Any]:
    messages = [_known_message(message) for message in body.get("messages", ())]
    return {**body, **({"messages": messages} if messages else {})}


def _known_message(message: Mapping[str, Any]) -> dict[str, Any]:
    # OpenAI takes a name beside the result of a tool, though its schema has none.
    unknown = (*OWN_FIELDS, *(["name"] if message["role"] == "tool" else []))
    fields = {name: value for name, value in message.items() if name not in unknown}
    if message.get("tool_calls"):
        fields["tool_calls"] = [
            {k: v for k, v in call.items() if k not in OWN_FIELDS} for call in message["tool_calls"]
        ]
    if message["role"] == "assistant" and isinstance(message.get("content"), list):
        fields["content"] = [part for part in message["content"] if part["type"] != "thinking"]
    return fields


@cache
def _adapter(path: str, stream: bool) -> TypeAdapter[Any]:
    package, name = KINDS[path]
    module, kind = name.split(".")
    for info in pkgutil.iter_modules(importlib.import_module(package).__path__):
        if info.name.endswith("_param") or info.name == module:
            for part in vars(importlib.import_module(f"{package}.{info.name}")).values():
                if is_typeddict(part):
                    part.__pydantic_config__ = ConfigDict(extra="forbid")
    way = "Streaming" if stream else "NonStreaming"
    return TypeAdapter(getattr(importlib.import_module(f"{package}.{module}"), kind + way))


def _consumed(value: Any) -> None:
    """Go through all of a checked value: the types' iterables are checked only then."""
    parts = value.values() if isinstance(value, Mapping) else value
    if isinstance(parts, Iterable) and not isinstance(parts, str | bytes):
        for part in parts:
            _consumed(part)
