"""Sessions of Codex: `~/.codex/sessions/YYYY/MM/DD/rollout-*.jsonl`, also archived ones.

An event often repeats an item. After each answer a count of tokens has those of the answer, and
those of the session so far: the difference between two of the latter is counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from casual_mcp_nb.base.tokens import TokenUsage
from casual_mcp_nb.conversation.event import HostedCall
from casual_mcp_nb.conversation.foreign.draft import Draft, DraftStep
from casual_mcp_nb.conversation.foreign.lines import (
    object_in,
    objects_in,
    parsed,
    seconds_of,
    text_in,
    text_of,
    tokens_in,
)

_LINES = frozenset(
    {"session_meta", "turn_context", "response_item", "event_msg", "compacted", "world_state"}
)
_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call", "tool_search_call"})
_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output", "tool_search_output"})
_HOSTED = frozenset({"web_search_call", "image_generation_call"})
_ITEMS = _CALLS | _OUTPUTS | {"message", "reasoning"}
_SILENT_ITEMS = frozenset({"reasoning", "ghost_snapshot", "compaction", "other"})
_SILENT_EVENTS = re.compile(
    r"agent_reasoning\w*|background_event|deprecation_notice|\w+_begin|\w+_delta|\w+_end"
    r"|(?:entered|exited)_review_mode|item_(?:started|completed)|mcp_startup_\w+|patch_apply_\w+"
    r"|plan_update|session_configured|(?:task|turn)_(?:started|complete|diff)|thread_\w+"
    r"|undo_\w+|warning|raw_response_item|skills_update_available|collab_\w+"
)
"""Events that repeat what an item has, or are about the program."""
_INJECTED = re.compile(
    r"\s*(?:<(?:environment_context|user_instructions|permissions|skill|turn_aborted"
    r"|subagent_notification|collaboration_mode|app-context|INSTRUCTIONS)\b|# AGENTS\.md)"
)
"""How texts begin that the program adds to what the person writes."""
_EXIT = re.compile(r"^(?:Exit code:|Process exited with code) (-?\d{1,9})", re.MULTILINE)
_HEAD = 500
_OTHERS = frozenset({"sessionId", "providerData"})
_REASONING = "reasoning_output_tokens"
_COUNTS = ("input_tokens", "cached_input_tokens", "output_tokens", "total_tokens", _REASONING)


def is_codex(record: dict[str, Any]) -> bool:
    """Check whether a line looks like one of Codex."""
    if text_in(record, "type") == "message":
        # The first versions wrote the items themselves. Other agents do so too, with a session's id.
        is_item = "role" in record and isinstance(record.get("content"), list)
        return is_item and record.keys().isdisjoint(_OTHERS)
    return isinstance(record.get("payload"), dict) and text_in(record, "type") in _LINES


class CodexReader:
    """Reads lines of Codex into a draft."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._model = ""
        self._step: DraftStep | None = None
        self._has_tokens = False
        self._said: set[tuple[str, str]] = set()
        self._answers = 0
        self._total: dict[str, int] = {}

    def read(self, record: dict[str, Any]) -> None:
        """Read a line."""
        self._draft.time(seconds_of(record.get("timestamp")))
        payload, kind = object_in(record, "payload"), text_in(record, "type")
        match kind:
            case "session_meta":
                self._session(payload)
            case "turn_context":
                self._model = text_in(payload, "model")[:100] or self._model
            case "response_item":
                self._item(payload)
            case "event_msg":
                self._event(payload)
            case "compacted":
                self._step = None
                self._draft.compact(text_in(payload, "message"))
            case "world_state":
                pass
            case _ if kind in _ITEMS:
                self._item(record)
            case "" if "id" in record:
                self._session(record)
            case _:
                self._draft.unread.add(kind or "without a type")

    def _session(self, payload: dict[str, Any]) -> None:
        draft = self._draft
        draft.provider = text_in(payload, "model_provider")[:40] or draft.provider
        prompt = text_in(object_in(payload, "base_instructions"), "text")
        prompt = prompt or text_in(payload, "base_instructions", "instructions")
        if prompt and not draft.system:
            draft.system = draft.text(prompt)

    # Items.

    def _item(self, item: dict[str, Any]) -> None:
        draft, kind = self._draft, text_in(item, "type")
        if not kind and "role" in item:
            kind = "message"
        match kind:
            case "message":
                self._message(item)
            case _ if kind in _CALLS:
                self._call(item)
            case _ if kind in _OUTPUTS:
                text, failed = _output(item)
                draft.result(text_in(item, "call_id"), text, failed=failed, found=_found(item))
                # What the model says next is another answer.
                self._has_tokens = True
                self._said.clear()
            case _ if kind in _HOSTED:
                step = self._open_step()
                if step.kept:
                    arguments = item.get("action", item.get("revised_prompt"))
                    written = json.dumps(draft.arguments(arguments), ensure_ascii=False)
                    step.hosted.append(HostedCall(kind.removesuffix("_call"), written))
            case _ if kind in _SILENT_ITEMS:
                if kind == "reasoning":
                    self._open_step()
            case _:
                draft.unread.add(f"response_item: {kind}")

    def _message(self, item: dict[str, Any]) -> None:
        texts = [text_in(part, "text") for part in objects_in(item.get("content"))]
        # Without a word for images: an event repeats the text alone.
        text = "\n".join(filter(None, texts))
        role = text_in(item, "role")
        if role == "assistant":
            self._say(text)
        elif role == "user" and text and not _INJECTED.match(text):
            self._ask(text)
        elif role not in ("user", "developer", "system"):
            self._draft.unread.add(f"response_item: message of {role}")

    def _call(self, item: dict[str, Any]) -> None:
        kind = text_in(item, "type")
        name, arguments, query = text_in(item, "name"), item.get("arguments"), ""
        if kind == "custom_tool_call":
            arguments = {"input": item.get("input")}
        elif kind == "local_shell_call":
            name, arguments = "local_shell", object_in(item, "action")
        elif kind == "tool_search_call":
            name = "tool_search"
            if isinstance(arguments, str):
                arguments = parsed(arguments)
            query = text_in(arguments, "query") or "tools"
        space = text_in(item, "namespace").rstrip("_")
        if space and not name.startswith(space):
            name = f"{space}__{name}"
        call_id = text_in(item, "call_id", "id")
        self._draft.call(self._open_step(), call_id, name, arguments, query)

    # Events.

    def _event(self, payload: dict[str, Any]) -> None:
        draft, kind = self._draft, text_in(payload, "type")
        match kind:
            case "token_count":
                self._tokens(object_in(payload, "info"))
            case "user_message":
                text = text_in(payload, "message")
                if text:
                    self._ask(text)
            case "agent_message":
                self._say(text_in(payload, "message"))
            case "turn_aborted":
                self._step = None
                draft.stop()
            case "context_compacted":
                draft.compact("")
            case "error" | "stream_error":
                draft.notice(text_in(payload, "message") or kind)
            case _ if _SILENT_EVENTS.fullmatch(kind):
                pass
            case _:
                draft.unread.add(f"event_msg: {kind}")

    def _ask(self, text: str) -> None:
        """Begin a turn, unless an event or an item before it says the same."""
        self._step = None
        if not self._draft.waiting:
            self._said.clear()
        if self._is_new("user", text):
            self._draft.ask(text)

    def _say(self, text: str) -> None:
        """Add a text to the answer, unless an event or an item before it says the same."""
        if text and self._is_new("assistant", text):
            self._draft.say(self._open_step(), text)

    def _is_new(self, role: str, text: str) -> bool:
        before = len(self._said)
        self._said.add((role, text.strip()))
        return len(self._said) > before

    def _open_step(self) -> DraftStep:
        """Find the answer to which the next item belongs."""
        if self._step is None or self._has_tokens:
            self._answers += 1
            self._has_tokens = False
        self._step = self._draft.step(f"answer {self._answers}")
        self._step.model = self._step.model or self._model
        return self._step

    def _tokens(self, info: dict[str, Any]) -> None:
        last, total = _numbers(info, "last_token_usage"), _numbers(info, "total_token_usage")
        if total and total == self._total:
            # The limits have changed, and not the tokens.
            return
        grown = {name: number - self._total.get(name, 0) for name, number in total.items()}
        counted = grown or last
        if any(number < 0 for number in grown.values()):
            # It counts from zero again.
            counted = last or total
        self._total = total or self._total
        if not counted:
            return
        self._model = text_in(info, "model")[:100] or self._model
        step = self._step
        if step is None or step.usage is not None:
            self._step = None
            step = self._open_step()
        prompt, answer = counted.get("input_tokens", 0), counted.get("output_tokens", 0)
        # What the total has beyond the input is the answer's.
        answer = max(answer, counted.get("total_tokens", 0) - prompt)
        cached, reasoning = counted.get("cached_input_tokens"), counted.get(_REASONING)
        self._draft.report(step, TokenUsage(prompt, answer, cached, reasoning))
        self._has_tokens = True


def _numbers(info: dict[str, Any], name: str) -> dict[str, int]:
    """Read the counts that are there."""
    numbers: dict[str, int] = {}
    for each in _COUNTS:
        number = tokens_in(info.get(name), each)
        if number is not None:
            numbers[each] = number
    return numbers


def _output(item: dict[str, Any]) -> tuple[str, bool]:
    """Read a call's result, and whether it says that the call failed."""
    output = item.get("output")
    failed = object_in(item, "output").get("success") is False
    if isinstance(output, dict):
        output = output.get("content")
    if isinstance(output, str) and output.startswith('{"output":'):
        inner = parsed(output)
        code = object_in(inner, "metadata").get("exit_code")
        failed = failed or (isinstance(code, int) and code != 0)
        output = text_in(inner, "output") or output
    text = text_of(objects_in(output)) or "\n".join(_found(item))
    code_line = _EXIT.search(text[:_HEAD])
    return text, failed or (code_line is not None and int(code_line[1]) != 0)


def _found(item: dict[str, Any]) -> Iterator[str]:
    """Yield the names of the tools that a search found: each by itself, or within a namespace."""
    for tool in objects_in(item.get("tools")):
        name, inner = text_in(tool, "name"), objects_in(tool.get("tools"))
        if not inner:
            yield name
        for each in inner:
            yield f"{name.rstrip('_')}__{text_in(each, 'name')}"
