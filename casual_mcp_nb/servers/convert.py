"""Convert the SDK's types to ours. `to_mcp.py` reverses it."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from casual_mcp_nb.base.binary import bytes_of
from casual_mcp_nb.base.content import ContentPart, ToolResult, media_type_of
from casual_mcp_nb.base.limits import MAX_DEPTH, is_too_deep
from casual_mcp_nb.base.mcp import PromptArgument, PromptMessage, Resource, ServerPrompt
from casual_mcp_nb.base.schema import unusable_part
from casual_mcp_nb.base.tool import Restriction, ToolAnnotations, ToolSpec
from casual_mcp_nb.errors import shown
from casual_mcp_nb.servers.logs import logger

if TYPE_CHECKING:
    from mcp_types import CallToolResult, GetPromptResult, ReadResourceResult, Tool
    from mcp_types import Prompt as McpPrompt
    from mcp_types import Resource as McpResource
    from mcp_types import ResourceTemplate as McpResourceTemplate


SMALL_CHARACTERS = 50_000
SMALL_VALUES = 1_000
"""Results up to these sizes are converted and redacted on the event loop."""

MAX_ARGUMENTS = 100
MAX_CONTENTS = 1_000

MAX_URI = 2_000
"""How long the address of an app may be."""
MAX_TAGS = 20
MAX_TAG = 100
MAX_LEFT_OUT = 1_000
"""How many unusable tools are remembered with the reason."""
LISTED_TWICE = "it is listed twice"
_FASTMCP = ("fastmcp", "_fastmcp")

MAX_SIZE = 2**63
UNKNOWN_TYPE = "application/octet-stream"
UNKNOWN_CONTENT_META = "casual_mcp_nb/unknown"
"""Key in a text block's `_meta` that marks it as the replacement for a block with an unknown type.
"""


MIN_FRESH_SECONDS = 5.0
"""The shortest use of a listing: otherwise, each step of a turn would list every server again."""
MAX_FRESH_SECONDS = 86_400.0


class CacheHint(NamedTuple):
    """A server's terms for caching a listing: for how many milliseconds, and who may share it.

    See https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/caching. None if
    it declares nothing.
    """

    ttl_ms: int | None = None
    scope: str = ""

    def lifetime(self, own: float | None, *, reports_changes: bool) -> float | None:
        """Compute how long to use a listing, in seconds. None is until the server reports a change.

        Args:
            own: The time by the person's settings, for a server that declares none.
            reports_changes: Whether the server reports changes to its list. Then 0, which SDKs send
                for authors who set nothing, counts as that. So it does if the person wants lists
                never to expire.
        """
        if self.ttl_ms is None or (self.ttl_ms == 0 and (reports_changes or own is None)):
            return own
        if self.ttl_ms == 0 and own is not None:
            return min(own, MIN_FRESH_SECONDS)
        # Bounded before it is divided: JSON has integers that no float can hold.
        return min(max(self.ttl_ms, MIN_FRESH_SECONDS * 1000), MAX_FRESH_SECONDS * 1000) / 1000


def hint_of(page: Any) -> CacheHint:
    """Read the hint of one page of a listing.

    The SDK fills in values that the server did not send.
    """
    given = page.model_fields_set
    if "ttl_ms" not in given:
        return CacheHint()
    scope = ""
    if "cache_scope" in given:
        scope = page.cache_scope
    return CacheHint(page.ttl_ms, scope)


def shortest(hints: Iterable[CacheHint]) -> CacheHint:
    """Combine the hints of all pages: the shortest time, and private if one page is."""
    given = [hint for hint in hints if hint.ttl_ms is not None]
    if not given:
        return CacheHint()
    scope = given[0].scope
    if any(hint.scope != scope for hint in given):
        scope = "private"
    return CacheHint(min(hint.ttl_ms or 0 for hint in given), scope)


def tool_from_mcp(tool: Tool, server: str = "") -> ToolSpec:
    """Convert a listed tool.

    Raises ValueError if it has no name, or its schema is not an object schema or has external
    references. See https://modelcontextprotocol.io/specification/2025-11-25/server/tools#tool.
    """
    if not isinstance(tool.name, str) or not tool.name:
        raise ValueError("it has no name")
    schema = tool.input_schema
    if not isinstance(schema, dict) or not isinstance(schema.get("properties", {}), dict):
        raise ValueError("its input schema is not an object schema")
    problem = unusable_part(schema)
    if problem:
        raise ValueError(problem)
    annotations = _annotations(tool)
    meta = tool.meta or {}
    visibility = _visibility(meta)
    title = tool.title
    if not title and annotations is not None:
        title = annotations.title
    return ToolSpec(
        server=server,
        name=tool.name,
        description=tool.description or "",
        input_schema=schema,
        annotations=annotations,
        output_schema=tool.output_schema,
        title=title or None,
        restriction=_restriction(tool, visibility),
        tags=_tags(meta),
        always_load=meta.get("anthropic/alwaysLoad") is True,
        app=_app(meta),
        for_apps="app" in visibility,
    )


def _annotations(tool: Tool) -> ToolAnnotations | None:
    hints = tool.annotations
    if hints is None:
        return None
    return ToolAnnotations(
        title=hints.title,
        read_only=hints.read_only_hint,
        destructive=hints.destructive_hint,
        idempotent=hints.idempotent_hint,
        open_world=hints.open_world_hint,
    )


def _tags(meta: dict[str, Any]) -> tuple[str, ...]:
    """Read a tool's tags, which FastMCP writes."""
    for key in _FASTMCP:
        part = meta.get(key)
        if isinstance(part, dict) and isinstance(part.get("tags"), list):
            return _usable_tags(part["tags"])
    return ()


def _usable_tags(listed: list[Any]) -> tuple[str, ...]:
    tags = set()
    for tag in listed[:MAX_TAGS]:
        if isinstance(tag, str) and tag.strip():
            tags.add(tag.strip()[:MAX_TAG])
    return tuple(sorted(tags))


def _restriction(tool: Tool, visibility: list[Any]) -> Restriction | None:
    """Explain why a tool is never offered to a model: MCP Apps visibility, or tasks in protocol
    revision 2025-11-25.
    """
    if "model" not in visibility:
        return "app only"
    if tool.execution and tool.execution.task_support == "required":
        return "task only"
    return None


def _visibility(meta: dict[str, Any]) -> list[Any]:
    """Read who may use a tool.

    See https://github.com/modelcontextprotocol/ext-apps, `specification/draft/apps.mdx`.
    """
    interface = meta.get("ui")
    visibility = interface.get("visibility") if isinstance(interface, dict) else None
    if isinstance(visibility, list):
        return visibility
    return ["model", "app"]


def _app(meta: dict[str, Any]) -> str:
    """Read the URI of a tool's app, also where older servers write it."""
    interface = meta.get("ui")
    uri = interface.get("resourceUri") if isinstance(interface, dict) else None
    if uri is None:
        uri = meta.get("ui/resourceUri")
    if isinstance(uri, str) and uri.startswith("ui://") and len(uri) <= MAX_URI:
        return uri
    return ""


def tools_from_mcp(tools: Iterable[Tool], server: str = "") -> list[ToolSpec]:
    """Convert a listing, in order.

    A tool that cannot be used, or is listed a second time, is left out with a logged warning.
    """
    return read_listing(tools, server)[0]


def read_listing(tools: Iterable[Tool], server: str = "") -> tuple[list[ToolSpec], dict[str, str]]:
    """Convert a listing as `tools_from_mcp` does, and tell why tools were left out, by name, up to
    a limit.
    """
    specs: dict[str, ToolSpec] = {}
    left_out: dict[str, str] = {}
    for tool in tools:
        try:
            spec = tool_from_mcp(tool, server)
        except ValueError as error:
            left_out.setdefault(str(tool.name), str(error))
            continue
        if spec.name in specs:
            left_out[spec.name] = LISTED_TWICE
        specs.setdefault(spec.name, spec)
    for name, reason in left_out.items():
        warn_left_out(server, name, reason)
    return list(specs.values()), dict(itertools.islice(left_out.items(), MAX_LEFT_OUT))


def warn_left_out(server: str, name: str, reason: str, kind: str = "Tool") -> None:
    """Log that a listed tool or other item is not offered, and why."""
    logger.warning("%s %s of server %s is left out: %s.", kind, shown(name), shown(server), reason)


def result_from_mcp(result: CallToolResult) -> ToolResult:
    """Convert a call's result: parts in the server's order, binary data as bytes with a short note,
    nothing dropped.

    See https://modelcontextprotocol.io/specification/2025-11-25/server/tools#tool-result.
    """
    content = tuple(map(_part, result.content or ()))
    structured = result.structured_content
    if is_too_deep(structured):
        structured = None
        content += (
            ContentPart(
                "unknown",
                f"structured content nested more than {MAX_DEPTH} levels deep is left out",
            ),
        )
    meta = result.meta if result.meta and has_few_values(result.meta) else None
    return ToolResult(content, structured, bool(result.is_error), meta=meta)


def with_note(result: ToolResult, text: str, *, failed: bool = False) -> ToolResult:
    """Add a note to a result, as its last part. With `failed`, it counts as failed."""
    content = (*result.content, ContentPart("text", text))
    return replace(result, content=content, is_error=result.is_error or failed)


def resource_from_mcp(resource: McpResource, server: str) -> Resource:
    """Convert a listed resource.

    See https://modelcontextprotocol.io/specification/2025-11-25/server/resources.
    """
    return Resource(
        server=server,
        uri=resource.uri,
        name=resource.name,
        title=resource.title or "",
        description=resource.description or "",
        mime_type=resource.mime_type,
        size=_size(resource.size),
    )


def _size(size: int | None) -> int | None:
    """Return a size that a resource can have, or None."""
    if size is not None and 0 <= size <= MAX_SIZE:
        return size
    return None


def template_from_mcp(template: McpResourceTemplate, server: str) -> Resource:
    """Convert a listed resource template."""
    from mcp.shared.uri_template import UriTemplate

    return Resource(
        server=server,
        uri=template.uri_template,
        name=template.name,
        title=template.title or "",
        description=template.description or "",
        mime_type=template.mime_type,
        parameters=tuple(UriTemplate.parse(template.uri_template).variable_names),
    )


def prompt_from_mcp(prompt: McpPrompt, server: str) -> ServerPrompt:
    """Convert a listed prompt.

    See https://modelcontextprotocol.io/specification/2025-11-25/server/prompts.
    """
    arguments = tuple(
        PromptArgument(argument.name, argument.description or "", bool(argument.required))
        for argument in (prompt.arguments or ())[:MAX_ARGUMENTS]
    )
    return ServerPrompt(
        server, prompt.name, prompt.title or "", prompt.description or "", arguments
    )


def contents_from_mcp(result: ReadResourceResult) -> tuple[ContentPart, ...]:
    """Convert a resource's contents: text, or bytes with a short note."""
    return tuple(map(_resource, result.contents[:MAX_CONTENTS]))


def messages_from_mcp(result: GetPromptResult) -> tuple[PromptMessage, ...]:
    """Convert a prompt's messages."""
    return tuple(PromptMessage(message.role, _part(message.content)) for message in result.messages)


def has_structured(result: CallToolResult) -> bool:
    """Check whether a result has structured content, even if that is null."""
    return result.structured_content is not None or "structured_content" in result.model_fields_set


def is_small(result: CallToolResult) -> bool:
    """Check whether a result is small enough to be converted on the event loop."""
    size = 0
    for block in result.content or ():
        if block.type == "text":
            size += len(block.text)
        else:
            holder = getattr(block, "resource", block)
            size += sum(
                [len(getattr(holder, name, None) or "") for name in ("text", "data", "blob")]
            )
    return size < SMALL_CHARACTERS and has_few_values(result.structured_content)


def has_few_values(value: Any) -> bool:
    """Check whether a JSON value is small enough to be walked on the event loop."""
    pending, left = [value], SMALL_VALUES
    while pending:
        value = pending.pop()
        left -= 1
        items: Collection[Any] = ()
        if isinstance(value, str):
            left -= len(value) // 100
        elif isinstance(value, dict):
            items = value.values()
        elif isinstance(value, list):
            items = value
        if len(items) > left:
            return False
        pending.extend(items)
    return left >= 0


def _part(block: Any) -> ContentPart:
    match block.type:
        case "text":
            unknown = UNKNOWN_CONTENT_META in (block.meta or {})
            return ContentPart("unknown" if unknown else "text", block.text)
        case "image" | "audio":
            return _binary(block.type, block.data, block.mime_type)
        case "resource":
            return _resource(block.resource)
        case "resource_link":
            count = _size(block.size)
            size = ""
            if count is not None:
                size = f"{count:,} bytes"
            note = ", ".join(filter(None, (block.title or block.name, block.mime_type, size)))
            return ContentPart("link", note, block.mime_type, uri=str(block.uri))
        case kind:
            return ContentPart("unknown", f"content of the unknown type {shown(str(kind))}")


def _resource(resource: Any) -> ContentPart:
    uri = str(resource.uri)
    if hasattr(resource, "blob"):
        return _binary("resource", resource.blob, resource.mime_type, uri)
    return ContentPart("resource", resource.text, resource.mime_type, uri=uri)


def _binary(kind: Any, encoded: str, mime_type: str | None, uri: str | None = None) -> ContentPart:
    try:
        data, named = bytes_of(encoded)
    except ValueError:
        name = mime_type or UNKNOWN_TYPE
        return ContentPart(
            kind, f"{name}, not readable: its data is not base64", mime_type, uri=uri
        )
    if mime_type in (None, "", UNKNOWN_TYPE):
        mime_type = named or media_type_of(data) or mime_type
    return ContentPart(
        kind, f"{mime_type or UNKNOWN_TYPE}, {len(data):,} bytes", mime_type, data, uri
    )
