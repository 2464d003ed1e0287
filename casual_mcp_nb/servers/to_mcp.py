"""Write tools, results, resources and prompts as MCP sends them, for clients of this package's
server and for apps. It reverses `convert.py`.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Literal

import mcp_types as mcp
from pydantic import BaseModel

from casual_mcp_nb.base.content import ContentPart, ToolResult
from casual_mcp_nb.base.limits import encodable
from casual_mcp_nb.base.mcp import (
    Completions,
    PromptMessage,
    PromptMessages,
    Resource,
    ResourceContents,
    ServerPrompt,
)
from casual_mcp_nb.base.tool import ToolAnnotations, ToolSpec
from casual_mcp_nb.servers.convert import UNKNOWN_TYPE

MAX_TEXT = 4_000
"""Maximum length for the name or description of a resource or prompt."""
_NOWHERE = "casual-mcp-nb:resource"
"""The URI for a resource that came without one."""


def plain(value: BaseModel) -> dict[str, Any]:
    """Convert a value of MCP to the JSON object that an app gets."""
    return value.model_dump(by_alias=True, exclude_none=True)


def tool_to_mcp(tool: ToolSpec) -> mcp.Tool:
    """Convert a tool to its form in a listing, as its server defined it."""
    return mcp.Tool(
        name=tool.name,
        title=None if tool.title is None else encodable(tool.title),
        description=encodable(tool.description),
        input_schema=dict(tool.input_schema) or {"type": "object"},
        output_schema=None if tool.output_schema is None else dict(tool.output_schema),
        annotations=annotations_to_mcp(tool.annotations),
        _meta={"ui": {"resourceUri": tool.app}} if tool.app else None,
    )


def annotations_to_mcp(hints: ToolAnnotations | None) -> mcp.ToolAnnotations | None:
    """Convert a server's claims about a tool. None if it makes none."""
    if hints is None or hints == ToolAnnotations():
        return None
    return mcp.ToolAnnotations(
        title=hints.title,
        read_only_hint=hints.read_only,
        destructive_hint=hints.destructive,
        idempotent_hint=hints.idempotent,
        open_world_hint=hints.open_world,
    )


def plain_result(result: ToolResult) -> dict[str, Any]:
    """Convert a call's result to the JSON object that an app gets, with what its server adds for
    apps.
    """
    given: dict[str, Any] = {"content": list(map(plain, blocks(result.content)))}
    if isinstance(result.structured, dict):
        given["structuredContent"] = result.structured
    if result.meta:
        given["_meta"] = result.meta
    if result.is_error:
        given["isError"] = True
    return given


def resource_to_mcp(resource: Resource) -> mcp.Resource:
    """Convert a resource to its form in a listing."""
    return mcp.Resource(uri=resource.uri, size=resource.size, **_described(resource))


def template_to_mcp(template: Resource) -> mcp.ResourceTemplate:
    """Convert a resource template to its form in a listing."""
    return mcp.ResourceTemplate(uri_template=template.uri, **_described(template))


def _described(resource: Resource) -> dict[str, Any]:
    return {
        "name": _cut(resource.name or resource.uri),
        "title": _cut(resource.title) or None,
        "description": _cut(resource.description) or None,
        "mime_type": resource.mime_type,
    }


def prompt_to_mcp(name: str, prompt: ServerPrompt) -> mcp.Prompt:
    """Convert a prompt to its form in a listing, under a name."""
    arguments = [
        mcp.PromptArgument(
            name=each.name, description=_cut(each.description) or None, required=each.required
        )
        for each in prompt.arguments
    ]
    title, description = _cut(prompt.title) or None, _cut(prompt.description) or None
    return mcp.Prompt(name=name, title=title, description=description, arguments=arguments)


def contents_to_mcp(contents: ResourceContents) -> mcp.ReadResourceResult:
    """Convert a resource's contents."""
    return mcp.ReadResourceResult(
        contents=[_contents(part, contents.uri) for part in contents.parts]
    )


def messages_to_mcp(messages: PromptMessages) -> mcp.GetPromptResult:
    """Convert a prompt's messages."""
    return mcp.GetPromptResult(
        description=messages.description or None,
        messages=list(map(_message, messages.messages)),
    )


def _message(message: PromptMessage) -> mcp.PromptMessage:
    role: Literal["assistant", "user"] = "user"
    if message.role == "assistant":
        role = "assistant"
    return mcp.PromptMessage(role=role, content=_block(message.content))


def completions_to_mcp(completions: Completions) -> mcp.CompleteResult:
    """Convert suggestions."""
    return mcp.CompleteResult(
        completion=mcp.Completion(
            values=list(completions.values), total=completions.total, has_more=completions.more
        )
    )


def blocks(parts: Sequence[ContentPart]) -> list[mcp.ContentBlock]:
    """Convert the parts of a result."""
    return list(map(_block, parts))


def _block(part: ContentPart) -> mcp.ContentBlock:
    text = encodable(part.text)
    match part.kind:
        case "image" if part.data is not None:
            return mcp.ImageContent(
                data=_base64(part.data), mime_type=part.mime_type or UNKNOWN_TYPE
            )
        case "audio" if part.data is not None:
            return mcp.AudioContent(
                data=_base64(part.data), mime_type=part.mime_type or UNKNOWN_TYPE
            )
        case "link" if part.uri:
            return mcp.ResourceLink(name=text or part.uri, uri=part.uri, mime_type=part.mime_type)
        case "resource":
            return mcp.EmbeddedResource(resource=_contents(part, _NOWHERE))
    return mcp.TextContent(text=text)


def _contents(part: ContentPart, uri: str) -> mcp.TextResourceContents | mcp.BlobResourceContents:
    uri = part.uri or uri
    if part.data is None:
        text = encodable(part.text)
        return mcp.TextResourceContents(uri=uri, mime_type=part.mime_type, text=text)
    return mcp.BlobResourceContents(uri=uri, mime_type=part.mime_type, blob=_base64(part.data))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _cut(text: str) -> str:
    return encodable(text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]} [...]")
