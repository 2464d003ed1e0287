"""Mask secrets, terminal escapes and invisible characters in what servers send, before anybody reads
it.

Every text is redacted before it is cut: half a secret would not be recognized.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any
from urllib.parse import urlsplit

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.content import ContentPart, ToolResult
from casual_mcp_nb.base.mcp import Resource, ServerPrompt
from casual_mcp_nb.base.secret import MASK, Secrets, mask_of, random_parts, redacted
from casual_mcp_nb.base.tool import ToolSpec

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
_STRUCTURE = frozenset(
    {"$anchor", "$dynamicRef", "$id", "$ref", "$schema", "format", "pattern", "required", "type"}
)
"""JSON Schema keywords whose values must not change."""


class Redactor:
    """Masks secrets in every text that a server sends.

    `base.secret` decides which can be masked.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = Secrets()
        self._mask = mask_of(())
        self.longest = 0
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Mask these secrets too from now on."""
        self._secrets = Secrets({*self._secrets, *secrets})
        self._mask = mask_of(self._secrets)
        self.longest = self._mask.longest

    def __call__(self, text: str) -> str:
        """Redact a text."""
        return self._mask(text)

    def start(self, text: str, length: int, *, cut: bool) -> str:
        """Redact a text's beginning.

        If it is cut, its end, which may be half a secret, is dropped.
        """
        result = self(text)
        return result[: max(0, len(result) - self.longest) if cut else None][:length]

    def value(self, value: Any) -> Any:
        """Redact a JSON value, including keys and secret numbers."""
        text = self._json(value)
        result = self(text)
        if result == text:
            return value
        try:
            return json.loads(result)
        except ValueError:
            # The secret was in a number, or partly in the JSON's punctuation.
            return self._walk(value)

    def schema(self, schema: Any) -> Any:
        """Redact a JSON schema: all strings in it except names and structural keywords."""
        if self._is_in(schema):
            return self._walk_schema(schema)
        return schema

    def result(self, result: ToolResult) -> ToolResult:
        """Redact a call's result: text, URLs, structured content, and bytes that are text."""
        if not self._mask:
            return result
        content, structured = tuple(map(self._part, result.content)), self.value(result.structured)
        return replace(result, content=content, structured=structured, meta=self.value(result.meta))

    def tool(self, tool: ToolSpec) -> ToolSpec:
        """Redact a tool, except its name and its parameters' names, which are needed to call it."""
        if not self._mask or not self._is_in([tool.as_listed]):
            return tool
        hints = tool.annotations
        return replace(
            tool,
            description=self(tool.description),
            title=self(tool.title or "") or None,
            annotations=replace(hints, title=self(hints.title or "") or None) if hints else None,
            input_schema=self.schema(tool.input_schema),
            output_schema=self.schema(tool.output_schema),
        )

    def resource(self, resource: Resource) -> Resource:
        """Redact a resource, with its URI."""
        if not self._is_in(asdict(resource)):
            return resource
        return replace(
            resource,
            uri=self(resource.uri),
            name=self(resource.name),
            title=self(resource.title),
            description=self(resource.description),
            mime_type=self(resource.mime_type or "") or None,
        )

    def prompt(self, prompt: ServerPrompt) -> ServerPrompt:
        """Redact a prompt, except its name and its arguments' names, which are needed to get it."""
        arguments = tuple(
            replace(argument, description=self(argument.description))
            for argument in prompt.arguments
        )
        return replace(
            prompt,
            title=self(prompt.title),
            description=self(prompt.description),
            arguments=arguments,
        )

    def _is_in(self, value: Any) -> bool:
        return self._mask.is_in(self._json(value))

    def _json(self, value: Any) -> str:
        # Searching this is much faster than a walk in Python; the mask knows secrets as they are
        # written in it.
        if self._mask and value is not None:
            return json.dumps(value, ensure_ascii=False, default=str)
        return ""

    def _walk(self, value: Any) -> Any:
        if isinstance(value, str):
            return self(value)
        if isinstance(value, Mapping):
            return {self(str(key)): self._walk(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return list(map(self._walk, value))
        if isinstance(value, int | float) and str(value) in self._mask.plain:
            return MASK
        return value

    def _walk_schema(self, value: Any, keyword: str = "") -> Any:
        if isinstance(value, Mapping):
            return {key: self._walk_schema(item, key) for key, item in value.items()}
        if keyword in _STRUCTURE:
            return value
        if isinstance(value, list | tuple):
            return list(map(self._walk_schema, value))
        return self._walk(value)

    def _part(self, part: ContentPart) -> ContentPart:
        return replace(
            part,
            text=self(part.text),
            mime_type=part.mime_type and self(part.mime_type),
            uri=part.uri and self(part.uri),
            data=part.data and self._bytes(part.data),
        )

    def _bytes(self, data: bytes) -> bytes:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return data
        return self(text).encode()


def clean(text: str) -> str:
    """Remove terminal escapes, and replace each control, bidirectional and zero-width character
    with U+FFFD.
    """
    return _INVISIBLE.sub("�", _ESCAPES.sub("", text.replace("\r\n", "\n")))


def secrets_of(config: ServerConfig | None) -> Secrets:
    """Collect every string in a server's config that must not be shown."""
    if config is not None:
        return config.secrets()
    return Secrets()


def shown_address(config: ServerConfig | None, secrets: Iterable[str] = ()) -> str:
    """Format a server's address: its command, or its URL without user, query, and path segments
    that look like tokens.
    """
    if config is None:
        return "in this process"
    hidden = secrets_of(config).union(secrets)
    if config.url:
        parts = urlsplit(config.url)
        host = parts.netloc.rpartition("@")[2]
        path = redacted(parts.path, [*random_parts(parts.path), *hidden])
        return clean(f"{parts.scheme}://{redacted(host, hidden)}{path}")
    words = [config.command] if config.command else ["bundled", config.bundled or ""]
    return clean(redacted(shlex.join([*words, *config.args]), hidden))
