"""Loopback providers that enforce the documented rules on options: a 400 where the real API sends
one, in its words.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from kit.provider import Provider, answer
from kit.scripted_http import Reply, Request
from kit.setups import MATH

from casual_mcp_nb.engine.chat import McpToolChat

_CHAT_FIELDS = {
    "messages", "model", "tools", "tool_choice", "parallel_tool_calls", "temperature", "top_p", "seed", "stop", "max_tokens",
    "max_completion_tokens", "reasoning_effort", "stream", "stream_options", "response_format", "logprobs", "user",
    "frequency_penalty", "presence_penalty",
}  # fmt: skip
_RESPONSES_FIELDS = {
    "input", "model", "tools", "tool_choice", "parallel_tool_calls", "temperature", "top_p", "max_output_tokens", "reasoning",
    "text", "store", "include", "stream", "instructions", "metadata",
}  # fmt: skip
_ANTHROPIC_FIELDS = {
    "messages", "model", "tools", "tool_choice", "temperature", "top_p", "top_k", "stop_sequences", "max_tokens", "system",
    "stream", "thinking", "output_config", "metadata", "service_tier",
}  # fmt: skip
_GEMINI_FIELDS = {
    "contents",
    "systemInstruction",
    "tools",
    "toolConfig",
    "generationConfig",
    "safetySettings",
    "cachedContent",
}
_GEMINI_CONFIG = {
    "temperature", "topP", "topK", "seed", "maxOutputTokens", "stopSequences", "thinkingConfig", "responseMimeType",
    "responseJsonSchema",
}  # fmt: skip


@dataclass(frozen=True)
class Rules:
    """The rules of one model.

    Args:
        refuses: Fields that it does not take, each with what the provider says.
        most_tokens: The highest limit of an answer that it takes.
        window: What it can read and write together, and what of it the conversation takes.
        takes: More fields of a body.
        facts: What Ollama's server says about it.
    """

    refuses: Mapping[str, str] = field(default_factory=dict)
    most_tokens: int | None = None
    window: tuple[int, int] | None = None
    takes: frozenset[str] = frozenset()
    facts: Mapping[str, Any] | None = None


class OptionsProvider(Provider):
    """A provider that names the error in a request whose options its API does not accept; others
    get the next reply.

    Args:
        provider: One of `kit.provider.PROVIDERS`.
        rules: What its model takes.
        replies: As of `Provider`; "Done." if there are none.
    """

    def __init__(self, provider: str, rules: Rules | None = None, *replies: Any) -> None:
        super().__init__(*(replies or (answer(provider, "Done."),)))
        self.provider = provider
        self.rules = rules or Rules()
        self.facts_asked = 0

    def _next(self, request: Request) -> Reply:
        if request.path == "/api/show":
            self.seen.remove(request)
            self.facts_asked += 1
            if self.rules.facts is None:
                return Reply(404, {"error": "model not found"})
            return Reply(200, self.rules.facts)
        problem = _CHECKS[self.provider](request.body, self.rules)
        if problem is not None:
            return Reply(400, _error(self.provider, problem))
        return super()._next(request)

    def config_of(self, model: Mapping[str, Any] | None = None, **client: Any) -> dict[str, Any]:
        """Make a config as of `Provider`, with more fields of the model and the client."""
        config = self.config(self.provider, **client)
        config["models"]["small"].update(model or {})
        return config

    @property
    def bodies(self) -> list[Any]:
        """The bodies of its requests, oldest first."""
        return [request.body for request in self.seen]


def _error(provider: str, problem: str) -> Any:
    if provider == "ollama":
        return {"error": problem}
    if provider == "gemini":
        return {"error": {"code": 400, "message": problem, "status": "INVALID_ARGUMENT"}}
    if provider == "anthropic":
        return {"type": "error", "error": {"type": "invalid_request_error", "message": problem}}
    return {
        "error": {"message": problem, "type": "invalid_request_error", "param": None, "code": None}
    }


def _openai(body: Any, rules: Rules) -> str | None:
    strange = body.keys() - _CHAT_FIELDS - rules.takes
    if strange:
        return f"Unrecognized request argument supplied: {min(strange)}"
    for name in ("tool_choice", "parallel_tool_calls"):
        if name in body and not body.get("tools"):
            return (
                f"Invalid value for '{name}': '{name}' is only allowed when 'tools' are specified."
            )
    if "max_tokens" in body and "max_completion_tokens" in body:
        return "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."
    limit = body.get("max_tokens") or body.get("max_completion_tokens")
    if rules.most_tokens and limit and limit > rules.most_tokens:
        most = (
            f"This model supports at most {rules.most_tokens} completion tokens, whereas you"
            f" provided {limit}."
        )
        return f"max_tokens is too large: {limit}. {most}"
    choice = body.get("tool_choice", "auto")
    if choice not in ("auto", "none", "required") and not _names_tool(
        choice.get("function"), body, "function"
    ):
        return "Tool choice 'x' not found in 'tools' parameter."
    return _refused(body, rules)


def _responses(body: Any, rules: Rules) -> str | None:
    strange = body.keys() - _RESPONSES_FIELDS - rules.takes
    if strange:
        return f"Unknown parameter: '{min(strange)}'."
    if body.get("max_output_tokens", 16) < 16:
        return "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16."
    choice = body.get("tool_choice", "auto")
    if choice not in ("auto", "none", "required") and not _names_tool(choice, body, None):
        return "Tool choice 'x' not found in 'tools' parameter."
    return _refused(body, rules)


def _anthropic(body: Any, rules: Rules) -> str | None:
    strange = body.keys() - _ANTHROPIC_FIELDS - rules.takes
    if strange:
        return f"{min(strange)}: Extra inputs are not permitted"
    if not isinstance(body.get("max_tokens"), int):
        return "max_tokens: Field required"
    most = rules.most_tokens or 128_000
    if body["max_tokens"] > most:
        named = f"which is the maximum allowed number of output tokens for {body['model']}"
        return f"max_tokens: {body['max_tokens']} > {most}, {named}"
    if rules.window and sum((rules.window[1], body["max_tokens"])) > rules.window[0]:
        counted = f"{rules.window[1]} + {body['max_tokens']} > {rules.window[0]}"
        advice = "decrease input length or `max_tokens` and try again"
        return f"input length and `max_tokens` exceed context limit: {counted}, {advice}"
    if not 0 <= body.get("temperature", 1) <= 1:
        return "temperature: range: 0..1"
    if "temperature" in body and "top_p" in body:
        return (
            "`temperature` and `top_p` cannot both be specified for this model. Please use only"
            " one."
        )
    choice = body.get("tool_choice", {"type": "auto"})
    if choice["type"] not in ("auto", "any", "tool", "none"):
        return "tool_choice: Input tag does not match any of the expected tags"
    if choice["type"] == "tool" and not _names_tool(choice, body, None):
        return "Tool 'x' not found in provided tools"
    if choice["type"] in ("any", "tool") and body.get("thinking", {}).get("type") in (
        "enabled",
        "adaptive",
    ):
        return "Thinking may not be enabled when tool_choice forces tool use."
    return _refused(body, rules)


def _ollama(body: Any, rules: Rules) -> str | None:
    facts = rules.facts or {}
    if body.get("think") and "capabilities" in facts and "thinking" not in facts["capabilities"]:
        return f'"{body["model"]}" does not support thinking'
    if isinstance(body.get("think"), str) and facts.get("details", {}).get("family") != "gptoss":
        return f'think value "{body["think"]}" is not supported for this model'
    return _refused(body, rules)


def _gemini(body: Any, rules: Rules) -> str | None:
    config = body.get("generationConfig", {})
    strange = [
        *(body.keys() - _GEMINI_FIELDS - rules.takes),
        *(config.keys() - _GEMINI_CONFIG - rules.takes),
    ]
    if strange:
        return f'Invalid JSON payload received. Unknown name "{min(strange)}": Cannot find field.'
    if len(config.get("stopSequences", ())) > 5:
        return "The number of stop sequences must be at most 5."
    thinking = config.get("thinkingConfig", {})
    if len(thinking) > 1:
        return "You can only set only one of thinking budget and thinking level."
    calling = body.get("toolConfig", {}).get("functionCallingConfig", {})
    if calling and not body.get("tools"):
        return "Function calling config is set without function_declarations."
    offered = [
        tool["name"] for tools in body.get("tools", ()) for tool in tools["functionDeclarations"]
    ]
    if calling.get("allowedFunctionNames") and (
        calling.get("mode") not in ("ANY", "VALIDATED")
        or not set(calling["allowedFunctionNames"]) <= set(offered)
    ):
        return (
            "allowed_function_names should only be set when function calling mode is ANY or"
            " VALIDATED."
        )
    return _refused(config | body, rules)


def _refused(body: Any, rules: Rules) -> str | None:
    return next((refusal for name, refusal in rules.refuses.items() if name in body), None)


def _names_tool(choice: Any, body: Any, within: str | None) -> bool:
    tools = [tool[within] if within else tool for tool in body.get("tools", ())]
    return isinstance(choice, Mapping) and choice.get("name") in [tool["name"] for tool in tools]


_CHECKS: dict[str, Callable[[Any, Rules], str | None]] = {
    "openai": _openai,
    "openai-responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "ollama": _ollama,
}


@asynccontextmanager
async def chatting(
    server: OptionsProvider, model: dict[str, Any] | None = None, **client: Any
) -> AsyncIterator[McpToolChat]:
    """A chat with the bundled math server, whose model this provider is."""
    with server:
        config = {**server.config_of(model, **client), "servers": {"math": MATH}}
        async with McpToolChat.from_config(config) as chat:
            yield chat
