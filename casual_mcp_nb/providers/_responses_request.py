"""A conversation as a request of OpenAI's Responses API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.providers._history import RESPONSES_IDS, sendable
from casual_mcp_nb.providers._learned import learned
from casual_mcp_nb.providers._pictures import images, limited
from casual_mcp_nb.providers._provider_state import kept
from casual_mcp_nb.providers._strict import all_required, strict_schema
from casual_mcp_nb.providers._thinking import is_reasoning_model

if TYPE_CHECKING:
    from casual_llm import AssistantToolCall, ChatMessage, ChatOptions, ImageContent, TextContent

WIRE = "openai-responses"


def request_for(client: Any, model: str, messages: Sequence[ChatMessage], options: ChatOptions) -> dict[str, Any]:
    """Return what `responses.create` is called with.

    Nothing is stored at OpenAI: each request has the whole conversation.

    Args:
        client: The client.
        model: The provider's name of the model.
        messages: The conversation.
        options: Its tools are casual-llm's own, or raw definitions in `extra["tools"]`. A reasoning model is sent no
            `temperature` and no `top_p`: it refuses them. What the API does not have (`stop`, `seed`, penalties) is left out.
    """
    known = learned(client, model)
    messages = limited(sendable(messages, RESPONSES_IDS, WIRE, model), known.most_images, known.refused_images)
    if options.system_message_handling == "merge":
        from casual_llm.message_converters.utils import merge_system_messages

        messages = merge_system_messages(list(messages))
    extra = dict(options.extra)
    tools = [_tool(tool) for tool in (*_own_tools(options), *extra.pop("tools", ()))]
    thinks = is_reasoning_model(model) or "reasoning" in extra
    request: dict[str, Any] = {"store": False, **extra}
    if thinks:
        request.setdefault("include", ["reasoning.encrypted_content"])
    else:
        sampling = {"temperature": options.temperature, "top_p": options.top_p}
        request |= {name: value for name, value in sampling.items() if value is not None}
    if options.max_tokens is not None:
        request["max_output_tokens"] = options.max_tokens
    if tools:
        request |= {"tools": tools, "tool_choice": _tool_choice(options.tool_choice)}
    if options.response_format != "text":
        request["text"] = {**request.get("text", {}), "format": _format(options.response_format)}
    return request | {"model": model, "input": [item for message in messages for item in _items(message, model)]}


def _own_tools(options: ChatOptions) -> list[dict[str, Any]]:
    if not options.tools:
        return []
    from casual_llm.tool_converters import tools_to_openai

    return [dict(tool["function"]) for tool in tools_to_openai(options.tools)]


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    if "type" in tool:
        return dict(tool)
    strict = strict_schema(tool["parameters"])
    return {
        "type": "function",
        "name": tool["name"],
        "description": tool["description"],
        "parameters": strict or dict(tool["parameters"]),
        "strict": strict is not None,
    }


def _tool_choice(choice: str | None) -> str | dict[str, str]:
    return choice or "auto" if choice in (None, "auto", "none", "required") else {"type": "function", "name": choice or ""}


def _format(wanted: Any) -> dict[str, Any]:
    if wanted == "json":
        return {"type": "json_object"}
    schema = wanted.model_json_schema()
    strict = strict_schema(all_required(schema))
    return {"type": "json_schema", "name": wanted.__name__[:64], "schema": strict or schema, "strict": strict is not None}


def _items(message: ChatMessage, model: str) -> Iterator[dict[str, Any]]:
    match message.role:
        case "tool":
            yield {"type": "function_call_output", "call_id": message.tool_call_id, "output": _output(message)}
        case "assistant":
            yield from _answered(message, model)
        case "user" if isinstance(message.content, list):
            yield {"role": "user", "content": [_part(part) for part in message.content]}
        case role:
            yield {"role": role, "content": message.content or ""}


def _output(message: Any) -> str | list[dict[str, Any]]:
    shown = images(message)
    if not shown:
        text: str = message.content
        return text
    return [*([{"type": "input_text", "text": message.content}] if message.content else []), *map(_part, shown)]


def _answered(message: Any, model: str) -> Iterator[dict[str, Any]]:
    parts = kept(message, WIRE, model)
    if parts is None:
        parts = [*([{"type": "text", "text": message.content}] if message.content else []), *(message.tool_calls or ())]
    for part in parts:
        if not isinstance(part, dict):
            yield _call(part)
        elif part["type"] == "text":
            more = {name: value for name, value in part.items() if name not in ("type", "text")}
            yield {"role": "assistant", "content": part["text"], **more}
        else:
            yield part


def _call(call: AssistantToolCall) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": call.id,
        "name": call.function.name,
        "arguments": call.function.arguments,
    }


def _part(part: TextContent | ImageContent) -> dict[str, Any]:
    if part.type == "text":
        return {"type": "input_text", "text": part.text}
    source = part.source
    url = source if isinstance(source, str) else f"data:{part.media_type};base64,{source.get('data', '')}"
    return {"type": "input_image", "image_url": url, "detail": "auto"}
