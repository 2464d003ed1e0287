"""Repair a server's messages, where the SDK would refuse the whole message for one wrong part.

A listing with one invalid tool loses only that tool, and a result with one unknown part keeps the
others. What is left out or replaced is noted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import GenericAlias
from typing import Any

import mcp_types
from fastmcp.skills.models import MCPSkill
from mcp import ClientSession, MCPError
from mcp_types import INTERNAL_ERROR
from pydantic import BaseModel

from casual_mcp_nb.errors import shown
from casual_mcp_nb.servers.convert import (
    MAX_LEFT_OUT,
    UNKNOWN_CONTENT_META,
    has_few_values,
    warn_left_out,
)
from casual_mcp_nb.servers.logs import logger
from casual_mcp_nb.servers.redaction import clean
from casual_mcp_nb.servers.usable import (
    Budget,
    Unusable,
    as_text_block,
    block_kinds,
    check_whole,
    fits_all,
    fitted,
    item_kinds,
    result_kinds,
    usable,
)

MAX_PARTS = 1_000
MAX_LISTED = 2_000
FEW_PARTS = 50
"""Content up to this many parts is validated as a whole first.

Of more, the SDK's parser could list too much that is wrong.
"""
SLICE = 500
"""How many listed tools are validated at a time, to block the event loop for at most about 40 ms.
"""
_MAX_REASON = 200
_LISTINGS: Mapping[str, tuple[str, type[BaseModel]]] = {
    "resources/list": ("resources", mcp_types.Resource),
    "resources/templates/list": ("resourceTemplates", mcp_types.ResourceTemplate),
    "prompts/list": ("prompts", mcp_types.Prompt),
    "skills/list": ("skills", MCPSkill),
}
"""The listings besides tools, with their item types."""


class ToolsPage(mcp_types.ListToolsResult):
    """A page of a server's tools.

    The SDK would validate all its tools at once, so `Repairs.repair` gives it none in `tools`, and
    those that the server has sent in a field of this class.

    Attributes:
        listed: The tools as the server has sent them.
    """

    listed: list[Any]


class Repairs:
    """Repairs the messages of one session.

    Args:
        session: The session. Which messages are valid depends on its protocol version.
        server: The server's name.
        redact: Hides secrets in what is noted.
        on_ignored: Called once for each field that is left out or replaced, with what is told to
            the person.

    Attributes:
        left_out: The tools of the last listing that cannot be used, each with the reason.
        ignored: What is left out or replaced, each with the reason, by method.
        numbers: Cursors that the server sent as numbers, by method and text: the last of each
            method.
    """

    def __init__(
        self,
        session: ClientSession,
        server: str,
        redact: Callable[[str], str],
        on_ignored: Callable[[str], None],
    ) -> None:
        self.left_out: dict[str, str] = {}
        self.ignored: dict[str, dict[str, str]] = {}
        self.numbers: dict[tuple[str, str], float] = {}
        self._session = session
        self._server = server
        self._redact = redact
        self._on_ignored = on_ignored
        self._told: set[tuple[str, str]] = set()

    @property
    def _version(self) -> str | None:
        return self._session.protocol_version

    def repair(self, method: str, raw: dict[str, Any], name: str = "") -> dict[str, Any]:
        """Replace or leave out parts of an answer that the SDK would refuse.

        `name` is the requested tool or prompt, by which the person finds what is noted.
        """
        place = ""
        if name:
            place = f"{name}()"
        if "nextCursor" in raw:
            raw = self._with_text_cursor(method, raw)
        if method == "tools/list":
            if not isinstance(raw.get("tools"), list):
                raise MCPError(INTERNAL_ERROR, "its answer to tools/list contains no list of tools")
            page = self._usable_result(method, {**raw, "tools": []}, place)
            return {**page, "listed": raw["tools"]}
        if method in _LISTINGS:
            raw = self._only_valid(method, raw)
        elif method == "prompts/get" and isinstance(raw.get("messages"), list):
            raw = {
                **raw,
                "messages": [
                    self._known_message(each, place) for each in raw["messages"][:MAX_PARTS]
                ],
            }
        elif method == "tools/call":
            return self._usable_call(raw, place)
        return self._usable_result(method, raw, place)

    def usable_part(self, method: str, kinds: list[Any], value: Any, place: str = "") -> Any:
        """Leave out of a server's request or notification what is optional and not valid.

        Otherwise it stays as it is.
        """
        # Where much of a large value does not fit, the SDK's parser would list all of that.
        if has_few_values(value) and fits_all(kinds, value):
            return value
        try:
            value, ignored = usable(kinds, value, place)
        except Unusable:
            return value
        self._note_ignored(method, ignored)
        return value

    def _usable_result(self, method: str, raw: dict[str, Any], place: str) -> dict[str, Any]:
        if raw.get("resultType") not in (None, "complete", "input_required"):
            # It belongs to an extension.
            return raw
        kinds = result_kinds(method, self._version, raw)
        result: dict[str, Any] = self.usable_part(method, kinds, raw, place)
        return result

    def _with_text_cursor(self, method: str, raw: dict[str, Any]) -> dict[str, Any]:
        """Write a cursor that is a number as text. The server gets the number back."""
        cursor = raw.get("nextCursor")
        if not isinstance(cursor, int | float) or isinstance(cursor, bool):
            return raw
        others = {key: number for key, number in self.numbers.items() if key[0] != method}
        self.numbers = {**others, (method, str(cursor)): cursor}
        return {**raw, "nextCursor": str(cursor)}

    def _only_valid(self, method: str, raw: dict[str, Any]) -> dict[str, Any]:
        """Drop resources or prompts from a page that cannot be used: each would invalidate all
        others.
        """
        key, own_kind = _LISTINGS[method]
        items = raw.get(key)
        if not isinstance(items, list):
            raise MCPError(INTERNAL_ERROR, f"its answer to {method} contains no list")
        if len(items) > MAX_LISTED:
            logger.warning(
                "Server %s: the first %d of the %s in one page are kept.",
                shown(self._server),
                MAX_LISTED,
                key,
            )
        kinds = [own_kind] if own_kind is MCPSkill else item_kinds(method, self._version, key)
        valid = []
        ignored: dict[str, str] = {}
        budget = Budget()
        for item in items[:MAX_LISTED]:
            name = str((item.get("name") or item.get("uri")) if isinstance(item, dict) else item)
            try:
                item, ignored_here = usable(kinds, item, name, budget)
                check_whole(kinds, item, name)
            except Unusable as problem:
                reason = self._reason(problem, name)
                warn_left_out(self._server, self._redact(name), reason, own_kind.__name__)
            else:
                ignored.update(ignored_here)
                valid.append(item)
        self._note_ignored(method, ignored)
        return {**raw, key: valid}

    async def read_tools(self, page: ToolsPage) -> None:
        """Fill a page with those of its listed tools that are usable, slice by slice."""
        for start in range(0, len(page.listed), SLICE):
            page.tools += self._valid_slice(page.listed[start : start + SLICE])
            await asyncio.sleep(0)

    def _valid_slice(self, listed: list[Any]) -> list[mcp_types.Tool]:
        """Drop tools whose definition cannot be used, and fields that are not valid from the
        others.
        """
        kinds = item_kinds("tools/list", self._version, "tools")
        if not any(map(_is_costly, listed)):
            read = fitted([GenericAlias(list, kind) for kind in kinds], listed)
            if read is not None:
                # The SDK's own type is the last.
                tools: list[mcp_types.Tool] = read[-1]
                return tools
        budget = Budget()
        valid: list[mcp_types.Tool] = []
        for tool in listed:
            name = str(tool.get("name") if isinstance(tool, dict) else tool)
            try:
                definition, ignored = usable(kinds, tool, name, budget)
            except Unusable as problem:
                reason = f"its definition is not valid: {self._reason(problem, name)}"
                self.leave_out(name, reason)
                warn_left_out(self._server, self._redact(name), reason)
            else:
                self._note_ignored("tools/list", ignored)
                valid.append(mcp_types.Tool.model_validate(definition, by_name=False))
        return valid

    def _reason(self, problem: Unusable, name: str) -> str:
        where = problem.place.removeprefix(name).lstrip(".")
        return self._redact(f"{where}: {problem.reason}" if where else problem.reason)[:_MAX_REASON]

    def begin_listing(self) -> None:
        """Forget what was noted of the last listing of tools."""
        self.left_out = {}
        self.ignored.pop("tools/list", None)

    def leave_out(self, name: str, reason: str) -> None:
        """Note that a listed tool cannot be used, and why."""
        if len(self.left_out) < MAX_LEFT_OUT:
            self.left_out.setdefault(name[:_MAX_REASON], reason)

    def _note_ignored(self, method: str, ignored: Mapping[str, str]) -> None:
        """Note what was ignored of a message, and tell it the first time."""
        noted = self.ignored.setdefault(method, {})
        for place, problem in ignored.items():
            where, reason = clean(self._redact(place)), clean(self._redact(problem))[:_MAX_REASON]
            if where in noted or len(noted) >= MAX_LEFT_OUT:
                continue
            noted[where] = reason
            if (method, where) not in self._told and len(self._told) < MAX_LEFT_OUT:
                self._told.add((method, where))
                self._on_ignored(
                    f"{shown(where)} of its {method} is not valid, so it is left out or replaced:"
                    f" {reason}"
                )

    def _usable_call(self, raw: dict[str, Any], place: str) -> dict[str, Any]:
        """Make a tool's result usable: parts that cannot be read are replaced, and its other odd
        fields are left out.
        """
        content = raw.get("content")
        if isinstance(content, list) and len(content) > MAX_PARTS:
            left_out = (
                f"[{len(content) - MAX_PARTS:,} more parts of this result are left out, and at most"
                f" {MAX_PARTS:,} are kept]"
            )
            content = [*content[:MAX_PARTS], {"type": "text", "text": left_out}]
            raw = {**raw, "content": content}
        kinds = result_kinds("tools/call", self._version, raw)
        has_few_parts = not isinstance(content, list) or len(content) <= FEW_PARTS
        if has_few_parts and fits_all(kinds, raw):
            return raw
        if isinstance(content, list):
            blocks = [self._known_block("tools/call", block, place) for block in content]
            raw = {**raw, "content": blocks}
            if any(map(_is_replacement, blocks)):
                raw["isError"] = True
        result = self._usable_result("tools/call", raw, place)
        structured = raw.get("structuredContent")
        if (
            structured is not None
            and "structuredContent" not in result
            and not result.get("content")
        ):
            # It is all that the tool answered.
            result = {**result, "content": [as_text_block(structured)]}
        return result

    def _known_message(self, message: Any, place: str) -> Any:
        if not isinstance(message, dict):
            return message
        return {
            **message,
            "content": self._known_block("prompts/get", message.get("content"), place),
        }

    def _known_block(self, method: str, block: Any, place: str) -> Any:
        """Leave out of a part what is not valid, or replace the part if nothing of it can be
        used.
        """
        if isinstance(block, str):
            return {"type": "text", "text": block}
        try:
            known, ignored = usable(block_kinds(self._version), block, f"{place}.content[]")
        except Unusable:
            return _replacement(block, self._redact)
        self._note_ignored(method, ignored)
        return known


def _is_costly(tool: Any) -> bool:
    """Check whether so much of a tool's schemas can be wrong that the SDK's parser would take long
    to list it.
    """
    schemas = (tool.get("inputSchema"), tool.get("outputSchema")) if isinstance(tool, dict) else ()
    properties = [schema.get("properties") for schema in schemas if isinstance(schema, dict)]
    return any(isinstance(each, dict | list) and len(each) > MAX_LISTED for each in properties)


def _replacement(block: Any, redact: Callable[[str], str]) -> dict[str, Any]:
    kind = redact(str(block.get("type"))) if isinstance(block, dict) else type(block).__name__
    text = f"a part of the result cannot be read: content of type {shown(kind)}"
    return {"type": "text", "text": text, "_meta": {UNKNOWN_CONTENT_META: kind}}


def _is_replacement(block: Any) -> bool:
    meta = block.get("_meta")
    return isinstance(meta, dict) and UNKNOWN_CONTENT_META in meta
