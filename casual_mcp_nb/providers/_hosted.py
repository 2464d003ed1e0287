"""Hosted tools, which a provider runs itself: their definitions, and the record of their calls."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.errors import UnknownNameError, UsageError
from casual_mcp_nb.types.event import HostedCall

if TYPE_CHECKING:
    from casual_mcp_nb.providers.spec import ProviderSpec

MAX_TEXT = 2_000
"""Maximum characters of the arguments and of the result of a hosted call on the trace; the provider gets back all of it."""
_VERSION = re.compile(r"(.+?)_(?:\d{8}|\d{4}_\d\d_\d\d)")
_MAX_PARTS = 50
_MAX_DEPTH = 8


def hosted_tools(spec: ProviderSpec, wanted: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Build the definitions of hosted tools in the provider's format.

    Args:
        spec: The provider.
        wanted: Their parameters by name, as in `hosted_tools` of a model; a name can have a version, as at the provider.

    Raises:
        UsageError: The provider has no such tool.
    """
    if wanted and not spec.hosted:
        raise UsageError(f"Provider {spec.name} has no hosted tools.", hint="Remove hosted_tools from the model.")
    return tuple(_definition(spec, name, parameters) for name, parameters in wanted.items())


def _definition(spec: ProviderSpec, name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    version = _VERSION.fullmatch(name)
    template = spec.hosted.get(version[1] if version else name)
    if template is None:
        raise UnknownNameError("hosted tool", name, spec.hosted)
    fixed = {"type": template["type"], **({"name": template["name"]} if "name" in template else {})}
    return {**template, **parameters, **fixed, **({"type": name} if version else {})}


def hosted_call(name: str, arguments: object, result: object, *, failed: bool = False) -> HostedCall:
    """Build the record of a call.

    Args:
        name: The tool.
        arguments: What the model requested.
        result: What the provider reports of the result.
        failed: Whether it reports an error.
    """
    return HostedCall(name[:80], _text(arguments), _text(result), failed)


def _text(value: object) -> str:
    """Format a value as text: pages as title and address, anything else as JSON."""
    if isinstance(value, list):
        text = "\n".join(_text(part) for part in value[:_MAX_PARTS])
    elif isinstance(value, Mapping) and isinstance(value.get("url"), str):
        title = value.get("title")
        text = f"{title}: {value['url']}" if isinstance(title, str) and title else value["url"]
    elif isinstance(value, str) or value is None:
        text = value or ""
    else:
        text = json.dumps(_plain(value), ensure_ascii=False, default=str)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"


def _plain(value: object, depth: int = _MAX_DEPTH) -> object:
    """Cut a value, and remove the parts that only the provider can read."""
    if not depth:
        return "…"
    if isinstance(value, Mapping):
        named = ((str(name), item) for name, item in value.items() if item is not None)
        return {name: _plain(item, depth - 1) for name, item in _first(named) if not name.startswith("encrypted")}
    if isinstance(value, list):
        return [_plain(item, depth - 1) for item in value[:_MAX_PARTS]]
    return value[:MAX_TEXT] if isinstance(value, str) else value


def _first(pairs: Iterable[tuple[str, object]]) -> list[tuple[str, object]]:
    return [pair for _, pair in zip(range(_MAX_PARTS), pairs, strict=False)]


def parsed(arguments: object) -> dict[str, Any]:
    """Parse the arguments of a call as an object, even if they were streamed as text."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return {}
    return dict(arguments) if isinstance(arguments, Mapping) else {}
