"""Provider for Google's Gemini API: a casual-llm client that uses the SDK `google-genai`."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from casual_mcp_nb.base.content import pictures_of
from casual_mcp_nb.providers._calls import call_of, next_number
from casual_mcp_nb.providers._clients import (
    ContentFiltered,
    InvalidResponse,
    OwnClient,
    Reported,
    StreamTruncated,
    answer_of,
    ended_early,
    headers_of,
    key_of,
    need,
    no_key,
    usage_of,
)
from casual_mcp_nb.providers._messages import (
    RESPONSES_IDS,
    Part,
    after_results,
    built,
    kept_fields,
    parts_of,
    refuse_addresses,
)
from casual_mcp_nb.providers._options import definitions_of, messages_for
from casual_mcp_nb.providers.registry import (
    ModelLimits,
    OnText,
    ProviderAdapter,
    ProviderSpec,
    no_options,
    plain_tools_param,
)

if TYPE_CHECKING:
    from casual_llm import ChatOptions, LLMClient
    from casual_llm.messages import (
        AssistantMessage,
        AssistantToolCall,
        ChatMessage,
        ImageContent,
        TextContent,
    )
    from google.genai import types
    from httpx2 import Request, Response

    from casual_mcp_nb.base.config import ClientConfig
    from casual_mcp_nb.base.config_base import RequestOptions
    from casual_mcp_nb.base.tokens import TokenUsage
    from casual_mcp_nb.conversation.step import ModelResponse


answering: ContextVar[Response | None] = ContextVar("answering", default=None)
"""The HTTP response that the current task reads, which the SDK does not expose."""


_REPLACED = "-"
"""The SDK's required conversation, before `extra_body` replaces it."""


class GenaiConnection:
    """The SDK, with an HTTP client that does not follow redirects, because the key would be sent
    along.
    """

    def __init__(
        self, api_key: str, base_url: str, timeout: float, headers: dict[str, str]
    ) -> None:
        import httpx2
        from google.genai import Client, types

        async def limit_silence(request: Request) -> None:
            # The SDK's own timeout would also be sent to the server, as the limit of a whole
            # answer.
            request.extensions["timeout"] = httpx2.Timeout(timeout).as_dict()

        async def note(response: Response) -> None:
            answering.set(response)
            if not (response.is_error or _streams(response)):
                await response.aread()

        trusted = httpx2.create_ssl_context()
        self.api_key = api_key
        # The SDK would only notice an invalid URL in the first request.
        self.base_url = str(httpx2.URL(base_url))
        self._client = httpx2.AsyncClient(
            verify=trusted,
            event_hooks={"request": [limit_silence], "response": [note]},
            headers=headers,
        )
        options = types.HttpOptions(
            base_url=self.base_url,
            headers=headers,
            httpx_async_client=self._client,
            # Never used; the SDK would load the trusted certificates again for it.
            httpx_client=httpx2.Client(verify=trusted),
            retry_options=types.HttpRetryOptions(attempts=1),
        )
        self.models = Client(api_key=api_key, vertexai=False, http_options=options).aio.models
        # The SDK's classes are built on first use, which takes too long on the event loop.
        types.GenerateContentConfig(tools=[types.Tool(function_declarations=[])])
        types.GenerateContentResponse.model_validate(
            {"candidates": [{"content": {"parts": [{"text": ""}]}}]}
        )

    async def close(self) -> None:
        """Close its connections."""
        await self._client.aclose()

    async def generate(
        self, model: str, config: types.GenerateContentConfig, *, stream: bool
    ) -> AsyncGenerator[types.GenerateContentResponse]:
        """Yield the chunks of an answer, or the complete one.

        The conversation is in the config's `extra_body`.
        """
        from google.genai import errors

        answering.set(None)
        answers = False
        try:
            if stream:
                async for chunk in await self.models.generate_content_stream(
                    model=model, contents=_REPLACED, config=config
                ):
                    answers |= _is_of_an_answer(chunk)
                    yield chunk
            else:
                whole = await self.models.generate_content(
                    model=model, contents=_REPLACED, config=config
                )
                answers = _is_of_an_answer(whole)
                yield whole
            if not answers and (sent := _body(answering.get())) is not None:
                raise InvalidResponse(sent)
        except json.JSONDecodeError:
            raise
        except errors.APIError as error:
            if getattr(error.response, "is_error", False):
                raise
            raise Reported(error.details.get("error", error.details), error.code) from None
        except (
            errors.UnknownApiResponseError,
            ValueError,
            TypeError,
            AttributeError,
            RecursionError,
        ) as error:
            # The SDK fails in many ways on anything that is neither an answer nor one of Google's
            # errors.
            response = answering.get()
            if response is not None and response.is_error:
                response.raise_for_status()
            raise InvalidResponse(_body(response) or str(error)) from None
        finally:
            if (response := answering.get()) is not None:
                await response.aclose()


def _is_of_an_answer(response: types.GenerateContentResponse) -> bool:
    return bool(response.candidates or response.prompt_feedback)


def _body(response: Response | None) -> str | None:
    """Read the body sent rather than an event stream, or None for a stream."""
    return None if response is None or _streams(response) else response.text


def _streams(response: Response) -> bool:
    return "event-stream" in response.headers.get("content-type", "")


WIRE = "gemini"
SDK = "google-genai"
_HOME = "https://generativelanguage.googleapis.com"
_SIGNATURE = "thought_signature"
# https://ai.google.dev/gemini-api/docs/thought-signatures: the substitute for one of Gemini's own
# signatures, as base64.
_ANY_SIGNATURE = "skip_thought_signature_validator"
# https://ai.google.dev/api/generate-content#FinishReason: the answer was stopped because of its
# content, or could not be parsed.
_FILTERED = re.compile(r"SAFETY|RECITATION|LANGUAGE|BLOCKLIST|PROHIBITED_CONTENT|SPII|MODEL_ARMOR")
_UNREADABLE = re.compile(
    r"MALFORMED|UNEXPECTED_TOOL_CALL|TOO_MANY_TOOL_CALLS|MISSING_THOUGHT_SIGNATURE"
)
# https://ai.google.dev/gemini-api/docs/openai#thinking: Gemini 3 accepts levels, earlier models a
# token budget.
_LEVELS = {"none": "minimal", "xhigh": "high", "max": "high"}
_BUDGETS = {
    "none": 0,
    "minimal": 1_024,
    "low": 1_024,
    "medium": 8_192,
    "high": 24_576,
    "xhigh": 24_576,
    "max": 24_576,
}
_TAKES_BUDGETS = re.compile(r"gemini-(?:1|2)(?!\d)")


class GeminiClient(OwnClient):
    """A casual-llm client for Google's Gemini API."""

    def __init__(
        self,
        api_key: str,
        base_url: str | None = None,
        timeout: float = 60.0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.client = GenaiConnection(api_key, base_url or _HOME, timeout, dict(headers or {}))

    async def ask(
        self, model: str, messages: list[ChatMessage], options: ChatOptions
    ) -> ModelResponse:
        """Make a request without streaming."""
        return await self._answer(model, messages, options)

    async def stream(
        self, model: str, messages: list[ChatMessage], options: ChatOptions, on_text: OnText
    ) -> ModelResponse:
        """Make a streaming request."""
        return await self._answer(model, messages, options, on_text)

    async def _answer(
        self,
        model: str,
        messages: list[ChatMessage],
        options: ChatOptions,
        on_text: OnText | None = None,
    ) -> ModelResponse:
        answer = _Answer(model, messages, options)
        contents = await built(_contents, self, model, messages)
        config = _config(model, messages, options, contents)
        async with aclosing(
            self.client.generate(model, config, stream=on_text is not None)
        ) as pieces:
            async for piece in pieces:
                text = answer.add(piece)
                if on_text is not None:
                    on_text(text, answering.get())
        return answer.whole()


def _contents(
    client: GeminiClient, model: str, messages: Sequence[ChatMessage]
) -> list[dict[str, Any]]:
    """Convert the conversation to the form sent.

    The SDK would convert it on the event loop, 70 microseconds a part.
    """
    refuse_addresses(messages, "Google's API does not accept image URLs")
    contents: list[dict[str, Any]] = []
    for message in after_results(messages_for(client, model, messages, WIRE, RESPONSES_IDS)):
        role = "model" if message.role == "assistant" else "user"
        parts = list(_parts(message, model))
        # Results of parallel calls must be in one content.
        if parts and contents and contents[-1]["role"] == role:
            contents[-1]["parts"] += parts
        elif parts:
            contents.append(_Uncopied(role=role, parts=parts))
    return contents or [_Uncopied(role="user", parts=[{"text": "(nothing)"}])]


class _Uncopied(dict[str, Any]):
    """An object that never changes: the SDK makes a deep copy of a request's settings, value by
    value.
    """

    def __deepcopy__(self, memo: object) -> Self:
        return self


def _parts(message: ChatMessage, model: str) -> Iterator[Part]:
    match message.role:
        case "system":
            # It is among the request's settings.
            return
        case "assistant":
            yield from _parts_of_answer(message, model)
        case "tool":
            # Only text: Google interprets `$ref` in an object as its own kind of reference
            # (vercel/ai#14369).
            result = {"error" if getattr(message, "failed", False) else "output": message.content}
            yield {
                "functionResponse": {
                    "id": message.tool_call_id,
                    "name": _wire_name(message.name),
                    "response": result,
                }
            }
        case _ if isinstance(message.content, list):
            yield from _parts_of_list(message, message.content)
        case _ if message.content and message.content.strip():
            yield {"text": message.content}


def _parts_of_list(
    message: ChatMessage, content: Iterable[TextContent | ImageContent]
) -> Iterator[Part]:
    # Also one that is written as a data URL.
    pictures = iter(pictures_of([message]))
    for part in content:
        if part.type == "image":
            picture = next(pictures)
            data = base64.b64encode(picture.data).decode()
            yield {"inlineData": {"data": data, "mimeType": picture.media_type}}
        elif part.text.strip():
            yield {"text": part.text}


def _parts_of_answer(message: AssistantMessage, model: str) -> Iterator[Part]:
    """Yield an answer's parts with this model's signatures.

    Gemini 3 signs a step's first call, and refuses it without its signature.
    """
    of_calls = iter(kept_fields(message, WIRE, model).calls)
    stand_in: str | None = _ANY_SIGNATURE
    for part in parts_of(message, WIRE, model):
        if isinstance(part, dict):
            yield _signed({"text": part["text"]}, part.get(_SIGNATURE))
            continue
        call = {
            "id": part.id,
            "name": _wire_name(part.function.name),
            "args": json.loads(part.function.arguments),
        }
        yield _signed({"functionCall": call}, next(of_calls, {}).get(_SIGNATURE, stand_in))
        # Only the step's first call needs one.
        stand_in = None


def _signed(part: Part, signature: str | None) -> Part:
    if signature:
        part["thoughtSignature"] = signature
    return part


def _wire_name(name: str) -> str:
    """Convert a name to one that Google accepts: it must not begin with a digit or a dash."""
    if name[0].isalpha() or name[0] == "_":
        return name
    return f"_{name}"


def _config(
    model: str,
    messages: Iterable[ChatMessage],
    options: ChatOptions,
    contents: Sequence[dict[str, Any]],
) -> types.GenerateContentConfig:
    from google.genai import types

    instructions = [str(message.content) for message in messages if message.role == "system"]
    extra = dict(options.extra)
    tools: list[types.FunctionDeclarationDict] = [
        {
            "name": _wire_name(tool["name"]),
            "description": tool["description"],
            "parameters_json_schema": tool["parameters"],
        }
        for tool in definitions_of(options)
    ]
    extra.pop("tools", None)
    body = {"contents": contents, **(extra.pop("extra_body", None) or {})}
    config: types.GenerateContentConfigDict = {
        "http_options": {"headers": extra.pop("extra_headers", None), "extra_body": body},
        "automatic_function_calling": {"disable": True},
        "system_instruction": "\n\n".join(instructions) or None,
        "temperature": options.temperature,
        "max_output_tokens": options.max_tokens,
        "top_p": options.top_p,
        "seed": options.seed,
        "stop_sequences": options.stop,
        "thinking_config": _thinking(
            model, extra.pop("reasoning_effort", None), extra.pop("thinking", None)
        ),
    }
    if tools:
        config |= {
            "tools": [{"function_declarations": tools}],
            "tool_config": _tool_config(options.tool_choice),
        }
    if options.response_format != "text":
        config["response_mime_type"] = "application/json"
    if not isinstance(options.response_format, str):
        config["response_json_schema"] = options.response_format.model_json_schema()
    return types.GenerateContentConfig.model_validate({**config, **extra})


def _tool_config(choice: str | None) -> types.ToolConfigDict | None:
    from google.genai.types import FunctionCallingConfigMode as Mode

    if choice is None:
        return None
    mode = {"auto": Mode.AUTO, "none": Mode.NONE}.get(choice, Mode.ANY)
    names = None if choice in ("auto", "none", "required") else [_wire_name(choice)]
    return {"function_calling_config": {"mode": mode, "allowed_function_names": names}}


def _thinking(
    model: str, effort: str | None, budget: Mapping[str, int] | None
) -> types.ThinkingConfigDict | None:
    from google.genai.types import ThinkingLevel

    if budget is not None:
        return {"thinking_budget": budget["budget_tokens"]}
    if effort is None:
        return None
    if _TAKES_BUDGETS.search(model):
        return {"thinking_budget": _BUDGETS[effort]}
    return {"thinking_level": ThinkingLevel(_LEVELS.get(effort, effort).upper())}


@dataclass
class _Answer:
    model: str
    messages: Sequence[ChatMessage]
    options: ChatOptions
    parts: list[types.Part] = field(default_factory=list)
    usage: TokenUsage | None = None
    reason: str | None = None
    why: str | None = None

    def add(self, response: types.GenerateContentResponse) -> str:
        """Add a chunk. Return the text in it."""
        feedback = response.prompt_feedback
        if feedback is not None and feedback.block_reason is not None:
            raise ContentFiltered(feedback.block_reason_message or feedback.block_reason.value)
        self.usage = _usage(response.usage_metadata) or self.usage
        if not response.candidates:
            return ""
        # Only one candidate is requested.
        candidate = response.candidates[0]
        if candidate.finish_reason:
            self.reason = candidate.finish_reason.value
        self.why = candidate.finish_message or self.why
        sent = candidate.content.parts if candidate.content else None
        new = [part for part in sent or () if not part.thought]
        self.parts += new
        return "".join(part.text or "" for part in new)

    def whole(self) -> ModelResponse:
        """Assemble the response."""
        if self.reason is None:
            raise ended_early("without a reason for its end", anything=bool(self.parts))
        if _FILTERED.search(self.reason):
            raise ContentFiltered(self.why or self.reason)
        if _UNREADABLE.search(self.reason):
            raise StreamTruncated(self.why or self.reason)
        calls: list[AssistantToolCall] = []
        own: list[Part] = []
        for part in self.parts:
            signature = None
            if part.thought_signature:
                signature = base64.urlsafe_b64encode(part.thought_signature).decode()
            if part.function_call is not None:
                calls.append(self._call(part.function_call, len(calls)))
                call: Part = {"type": "call"}
                if signature:
                    call["fields"] = {_SIGNATURE: signature}
                own.append(call)
            elif signature:
                # A signature may come with an empty text; it is sent back in the same position.
                own.append({"type": "text", "text": part.text or "", _SIGNATURE: signature})
            elif part.text:
                own.append({"type": "text", "text": part.text})
        return answer_of(
            _joined(own),
            calls,
            wire=WIRE,
            model=self.model,
            usage=self.usage,
            reason=self.reason,
        )

    def _call(self, call: types.FunctionCall, before: int) -> AssistantToolCall:
        names = {
            _wire_name(tool["name"]): str(tool["name"]) for tool in definitions_of(self.options)
        }
        # Not all of Google's models give their calls ids.
        return call_of(
            call.id or f"call_{next_number(self.messages) + before}",
            names.get(call.name or "", call.name),
            call.args or {},
        )


def _joined(parts: Iterable[Part]) -> list[Part]:
    """Merge adjacent pieces of text, except those with a signature."""
    joined: list[Part] = []
    for part in parts:
        if joined and joined[-1].keys() == part.keys() == {"type", "text"}:
            joined[-1] = {"type": "text", "text": joined[-1]["text"] + part["text"]}
        else:
            joined.append(part)
    return joined


_COUNTS = {
    "prompt_tokens": "prompt_token_count",
    "completion_tokens": "candidates_token_count",
    "cached_tokens": "cached_content_token_count",
    "reasoning_tokens": "thoughts_token_count",
}


def _usage(reported: types.GenerateContentResponseUsageMetadata | None) -> TokenUsage | None:
    usage = usage_of(reported, _COUNTS)
    if usage is None or usage.reasoning_tokens is None:
        return usage
    # Google counts thoughts separately from the answer, but bills them together.
    completion = (usage.completion_tokens or 0) + usage.reasoning_tokens
    return replace(usage, completion_tokens=completion)


def _client() -> type[Any]:
    return GeminiClient


def _thinks(model: str, options: RequestOptions) -> bool:
    return "gemini-2.0" not in model


def _build(name: str, config: ClientConfig) -> LLMClient:
    need(name, SDK, "google.genai")
    key = key_of(config)
    if key is None:
        raise no_key(name, WIRE)
    return GeminiClient(key, config.base_url, config.timeout, headers_of(config))


# https://ai.google.dev/gemini-api/docs/models
_MODELS = {
    "gemini-3": ModelLimits(1_048_576, 65_536),
    "gemini-3.1": ModelLimits(1_048_576, 65_536),
    "gemini-2.5": ModelLimits(1_048_576, 65_536),
    "gemini-2.0": ModelLimits(1_048_576, 8_192),
}


_MAX_EMBEDDED = 100
"""How many texts Google embeds in a request."""


async def _embed(client: GeminiClient, model: str, texts: list[str]) -> Any:
    from google.genai import types

    vectors: list[Any] = []
    for start in range(0, len(texts), _MAX_EMBEDDED):
        # As contents, because newer models embed a list of plain texts as one.
        contents: Any = list(map(types.UserContent, texts[start : start + _MAX_EMBEDDED]))
        response = await client.client.models.embed_content(model=model, contents=contents)
        vectors += (embedding.values for embedding in response.embeddings or ())
    return vectors


SPEC = ProviderSpec(
    name=WIRE,
    about="Google's Gemini models",
    position=35,
    build=_build,
    adapter=ProviderAdapter(
        plain_tools_param, ask=GeminiClient.ask, stream=GeminiClient.stream, name=WIRE
    ),
    client=_client,
    sdk=SDK,
    key_variable="GEMINI_API_KEY",
    homes=("googleapis.com",),
    names=re.compile(r"gemini-[\w.-]+", re.IGNORECASE),
    example_model="gemini-2.5-flash",
    models=_MODELS,
    thinks=_thinks,
    api="Google's Gemini API",
    lacking=("parallel_tool_calls",),
    choose_tools=no_options,
    takes_thinking_tokens=True,
    embed=_embed,
)
