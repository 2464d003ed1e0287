"""The providers' rules for requests with deferred tools that they load themselves, as of November
2026.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kit.message_rules import ANTHROPIC, RESPONSES, Rule


def anthropic_references(body: Mapping[str, Any]) -> str | None:
    """Anthropic's documentation of its tool search: each reference names a tool of the request."""
    names = {tool["name"] for tool in body.get("tools", ())}
    referred = [
        part["tool_name"]
        for parts in _referring(body)
        for part in parts
        if part["type"] == "tool_reference"
    ]
    lost = [name for name in referred if name not in names]
    return f"Tool reference '{lost[0]}' not found in available tools" if lost else None


def anthropic_alone(body: Mapping[str, Any]) -> str | None:
    """Anthropic's API, though the SDK's types allow it: references are the only content of their
    result.
    """
    mixed = any(part["type"] != "tool_reference" for parts in _referring(body) for part in parts)
    return (
        "Tool definitions/code execution functions cannot be mixed with other content"
        if mixed
        else None
    )


def anthropic_marks(body: Mapping[str, Any]) -> str | None:
    """Anthropic's documentation: a deferred tool cannot be marked for the cache."""
    both = [
        tool["name"]
        for tool in body.get("tools", ())
        if tool.get("defer_loading") and tool.get("cache_control")
    ]
    return (
        f"Tool '{both[0]}' cannot have both defer_loading=true and cache_control set"
        if both
        else None
    )


def anthropic_loaded(body: Mapping[str, Any]) -> str | None:
    """Anthropic's documentation: not all tools can be deferred."""
    tools = body.get("tools", ())
    deferred = bool(tools) and all(tool.get("defer_loading") for tool in tools)
    return "At least one tool must have defer_loading=false" if deferred else None


def _referring(body: Mapping[str, Any]) -> Iterator[list[Mapping[str, Any]]]:
    for message in body["messages"]:
        for block in message["content"]:
            content = block.get("content") if block["type"] == "tool_result" else None
            if isinstance(content, list) and any(
                part["type"] == "tool_reference" for part in content
            ):
                yield content


def responses_namespaces(own: bool) -> Rule:
    """OpenAI's API (vercel/ai#15193, dust-tt/dust#31323): a call has the namespace in which its
    function is.

    Args:
        own: Whether functions that an item adds are in namespaces of their own names, as with
            GPT-5.4; else they are in the default one, as with GPT-5.6.
    """

    def rule(body: Mapping[str, Any]) -> str | None:
        default = {tool.get("name") for tool in body.get("tools", ())}
        added: set[str] = set()
        for item in body["input"]:
            names = {tool["name"] for tool in item.get("tools", ())}
            added, default = (added | names, default) if own else (added, default | names)
        for number, item in enumerate(body["input"]):
            name, namespace = item.get("name"), item.get("namespace")
            if item.get("type") != "function_call":
                continue
            if namespace is None and name in added - default:
                return (
                    f"Missing namespace for function_call '{name}'. It does not exist in the"
                    " default namespace."
                )
            if namespace is not None and namespace not in added:
                return f"Invalid 'input[{number}].namespace': there is no namespace '{namespace}'."
        return None

    return rule


def responses_search(body: Mapping[str, Any]) -> str | None:
    """OpenAI's API: a search by the client has a description, and functions are deferred only
    beside a search.
    """
    tools = body.get("tools", ())
    searches = [tool for tool in tools if tool["type"] == "tool_search"]
    if any(tool.get("execution") == "client" and not tool.get("description") for tool in searches):
        return "Invalid type for 'tools[0].description': expected a string, but got null instead."
    if not searches and any(tool.get("defer_loading") for tool in tools):
        return "Invalid Value: 'tools.defer_loading'. Deferred tools require tools.tool_search."
    return None


def responses_once(body: Mapping[str, Any]) -> str | None:
    """A function is declared once."""
    names = [
        tool["name"]
        for item in (body, *body["input"])
        for tool in item.get("tools", ())
        if "name" in tool
    ]
    return "Duplicate tool names." if len(names) != len(set(names)) else None


DEFERRING: Mapping[str, tuple[Rule, ...]] = {
    "anthropic": (
        *ANTHROPIC,
        anthropic_references,
        anthropic_alone,
        anthropic_marks,
        anthropic_loaded,
    ),
    "openai-responses": (
        *RESPONSES,
        responses_namespaces(own=True),
        responses_search,
        responses_once,
    ),
    "openai-responses-default": (
        *RESPONSES,
        responses_namespaces(own=False),
        responses_search,
        responses_once,
    ),
}
