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
from casual_mcp_nb.types.tool import ToolAnnotations, ToolSpec

_NOWHERE = "casual-mcp-nb:resource"
"""The URI of a resource that came without one."""


def tool_to_mcp(tool: ToolSpec) -> mcp.Tool:
    """Return a tool as it is listed: under its wire name, with all that its server says about it."""
    definition = tool.definition
    hints = tool.annotations
    if hints is None and tool.server == SYNTHETIC:
        # A host that asks its person before calls that may write need not ask before a search.
        hints = ToolAnnotations(read_only=True, open_world=False)
    return mcp.Tool(
        name=tool.wire_name,
        title=tool.title,
        description=definition["description"],
        input_schema=definition["parameters"],
        output_schema=_listed(tool.output_schema),
        annotations=_annotations(hints) if hints else None,
    )


def result_to_mcp(outcome: CallOutcome) -> mcp.CallToolResult:
    """Return how a call ended: what the server answered, or the text that a model would read."""
    failed = outcome.status != "ok"
    if outcome.result is None or outcome.status not in ("ok", "error"):
        return text_result(outcome.text, failed)
    return _result(outcome.result, failed)


def text_result(text: str, failed: bool = True) -> mcp.CallToolResult:
    """Return a result that is only a text."""
    return mcp.CallToolResult(content=[mcp.TextContent(text=text)], is_error=failed)


def _result(result: ToolResult, failed: bool) -> mcp.CallToolResult:
    content = list(map(_block, result.content))
    structured = result.structured
    if structured is not None and not isinstance(structured, dict):
        # The versions that are served allow only objects.
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


def _listed(schema: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a schema of results if clients of the versions that are served can check them: if it is that of an object."""
    return dict(schema) if schema is not None and schema.get("type") == "object" else None


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
            uri = part.uri or _NOWHERE
            if data is not None:
                return mcp.EmbeddedResource(resource=mcp.BlobResourceContents(uri=uri, mime_type=part.mime_type, blob=data))
            return mcp.EmbeddedResource(resource=mcp.TextResourceContents(uri=uri, mime_type=part.mime_type, text=text))
    return mcp.TextContent(text=text)


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
