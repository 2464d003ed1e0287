"""Tools and results in the form in which MCP sends them; the way back from `connections/convert.py`."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import mcp_types as mcp

from casual_mcp_nb.engine.dispatch import CallOutcome
from casual_mcp_nb.engine.results import STRUCTURED
from casual_mcp_nb.types.content import ContentPart, ToolResult
from casual_mcp_nb.types.event import SYNTHETIC
from casual_mcp_nb.types.resource import Completions, PromptMessages, Resource, ResourceContents, ServerPrompt
from casual_mcp_nb.types.tool import ToolAnnotations, ToolSpec

MAX_TEXT = 4_000
"""Maximum length of a name or a description of a resource or a prompt."""
_NOWHERE = "casual-mcp-nb:resource"
"""The URI of a resource that came without one."""


def tool_to_mcp(tool: ToolSpec, name: str, modern: bool) -> mcp.Tool:
    """Convert a tool to its form in a listing, with the whole definition of its server.

    Args:
        tool: The tool.
        name: Its name here.
        modern: Whether it is for the version in which results are not only objects.
    """
    definition = tool.definition
    hints = tool.annotations
    if hints is None and tool.server == SYNTHETIC:
        # A host that asks its person before calls that may write need not ask before a search.
        hints = ToolAnnotations(read_only=True, open_world=False)
    return mcp.Tool(
        name=name,
        title=tool.title,
        description=definition["description"],
        input_schema=definition["parameters"],
        output_schema=_listed(tool.output_schema, modern),
        annotations=_annotations(hints) if hints else None,
    )


def result_to_mcp(outcome: CallOutcome, modern: bool) -> mcp.CallToolResult:
    """Convert the outcome of a call: the server's answer, or the text that a model would read; `modern` as in `tool_to_mcp`."""
    failed = outcome.status != "ok"
    if outcome.result is None or outcome.status not in ("ok", "error"):
        return text_result(outcome.text, failed)
    return _result(outcome.result, failed, modern)


def text_result(text: str, failed: bool = True) -> mcp.CallToolResult:
    """Build a result that is only a text."""
    return mcp.CallToolResult(content=[mcp.TextContent(text=text)], is_error=failed)


def _result(result: ToolResult, failed: bool, modern: bool) -> mcp.CallToolResult:
    content = list(map(_block, result.content))
    structured = result.structured
    if structured is not None and not isinstance(structured, dict) and not modern:
        # The versions with a handshake allow only objects.
        if not content:
            text = json.dumps(structured, ensure_ascii=False, default=str)
            content.append(mcp.TextContent(text=f"{STRUCTURED}\n{_encodable(text)}"))
        structured = None
    return mcp.CallToolResult(content=content, structured_content=structured, is_error=failed or result.is_error)


def _annotations(hints: ToolAnnotations) -> mcp.ToolAnnotations:
    return mcp.ToolAnnotations(
        title=hints.title,
        read_only_hint=hints.read_only,
        destructive_hint=hints.destructive,
        idempotent_hint=hints.idempotent,
        open_world_hint=hints.open_world,
    )


def _listed(schema: Mapping[str, Any] | None, modern: bool) -> dict[str, Any] | None:
    """Select a schema of results if clients can check them: before the modern version, if it is that of an object."""
    return dict(schema) if schema is not None and (modern or schema.get("type") == "object") else None


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
        mcp.PromptArgument(name=each.name, description=_cut(each.description) or None, required=each.required)
        for each in prompt.arguments
    ]
    title, description = _cut(prompt.title) or None, _cut(prompt.description) or None
    return mcp.Prompt(name=name, title=title, description=description, arguments=arguments)


def contents_to_mcp(contents: ResourceContents) -> mcp.ReadResourceResult:
    """Convert the contents of a resource."""
    return mcp.ReadResourceResult(contents=[_contents(part, contents.uri) for part in contents.parts])


def messages_to_mcp(messages: PromptMessages) -> mcp.GetPromptResult:
    """Convert the messages of a prompt."""
    return mcp.GetPromptResult(
        description=messages.description or None,
        messages=[
            mcp.PromptMessage(role="assistant" if each.role == "assistant" else "user", content=_block(each.content))
            for each in messages.messages
        ],
    )


def completions_to_mcp(completions: Completions) -> mcp.CompleteResult:
    """Convert suggestions."""
    return mcp.CompleteResult(
        completion=mcp.Completion(values=list(completions.values), total=completions.total, has_more=completions.more)
    )


def _block(part: ContentPart) -> mcp.ContentBlock:
    text = _encodable(part.text)
    data = None if part.data is None else base64.b64encode(part.data).decode()
    match part.kind:
        case "image" if data is not None:
            return mcp.ImageContent(data=data, mime_type=part.mime_type or "application/octet-stream")
        case "audio" if data is not None:
            return mcp.AudioContent(data=data, mime_type=part.mime_type or "application/octet-stream")
        case "link" if part.uri:
            return mcp.ResourceLink(name=text or part.uri, uri=part.uri, mime_type=part.mime_type)
        case "resource":
            return mcp.EmbeddedResource(resource=_contents(part, _NOWHERE))
    return mcp.TextContent(text=text)


def _cut(text: str) -> str:
    """Cut a description of a listing where it is too long to be one."""
    return _encodable(text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]} [...]")


def _contents(part: ContentPart, uri: str) -> mcp.TextResourceContents | mcp.BlobResourceContents:
    uri = part.uri or uri
    if part.data is not None:
        blob = base64.b64encode(part.data).decode()
        return mcp.BlobResourceContents(uri=uri, mime_type=part.mime_type, blob=blob)
    return mcp.TextResourceContents(uri=uri, mime_type=part.mime_type, text=_encodable(part.text))


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
