"""Sessions of Claude Code: `~/.claude/projects/FOLDER/SESSION.jsonl`, and files of its subagents.

A line has one block of a message. Lines of one message share its id and repeat its tokens, in which
the last line is right. A message can be in the session's file and in that of a subagent.
"""

from __future__ import annotations

from typing import Any

from casual_mcp_nb.base.tokens import TokenUsage
from casual_mcp_nb.conversation.foreign.draft import Draft, DraftCall, DraftStep
from casual_mcp_nb.conversation.foreign.lines import (
    object_in,
    objects_in,
    seconds_of,
    text_in,
    text_of,
    tokens_in,
)

_TITLES = {"summary": "summary", "custom-title": "customTitle", "ai-title": "aiTitle"}
_SPOKEN = frozenset({"user", "assistant", "system", *_TITLES})
_SILENT = frozenset(
    {
        "agent-name",
        "agent-color",
        "agent-setting",
        "attachment",
        "attribution-snapshot",
        "content-replacement",
        "file-history-snapshot",
        "last-prompt",
        "mode",
        "permission-mode",
        "pr-link",
        "progress",
        "queue-operation",
        "tag",
        "worktree-state",
    }
)
"""Kinds of lines that are about the program rather than the conversation."""
_THOUGHTS = frozenset({"thinking", "redacted_thinking"})
_AGENT_TOOLS = frozenset({"Agent", "Task"})
_INTERRUPTED = "[Request interrupted by user"
_SYNTHETIC = "<synthetic>"
_MAX_LINKS = 100_000


def is_claude_code(record: dict[str, Any]) -> bool:
    """Check whether a line looks like one of Claude Code."""
    kind, message = text_in(record, "type"), record.get("message")
    if isinstance(message, dict):
        return kind in _SPOKEN or (not kind and message.get("role") in ("user", "assistant"))
    return (kind in _SPOKEN or kind in _SILENT) and not record.keys().isdisjoint(
        {"sessionId", "uuid", "leafUuid", "messageId"}
    )


class ClaudeCodeReader:
    """Reads lines of Claude Code into a draft.

    Attributes:
        parents: The calls that started subagents, by the subagent's id and by the ids of its lines.
    """

    def __init__(self, draft: Draft) -> None:
        self.parents: dict[str, DraftCall] = {}
        self._draft = draft
        self._prompts: dict[str, DraftCall] = {}
        self._has_main = self._is_titled = False
        self._lines = 0

    def read(self, record: dict[str, Any]) -> None:
        """Read a line."""
        self._lines += 1
        draft, message = self._draft, object_in(record, "message")
        draft.time(seconds_of(record.get("timestamp")))
        kind = text_in(record, "type") or text_in(message, "role")
        aside = record.get("isSidechain") is True
        self._has_main = self._has_main or (not aside and kind in ("user", "assistant"))
        aside = aside and self._has_main
        if kind == "assistant":
            self._answer(record, message, aside)
        elif kind == "user":
            self._user(record, message, aside)
        elif kind == "system":
            self._system(record)
        elif kind in _TITLES:
            # A title that the person gave wins.
            title = text_in(record, _TITLES[kind], "title")
            if title and (kind == "custom-title" or not self._is_titled):
                self._is_titled = True
                draft.name(title, again=True)
        elif kind not in _SILENT:
            draft.unread.add(kind or "without a type")

    def _answer(self, record: dict[str, Any], message: dict[str, Any], aside: bool) -> None:
        draft, model = self._draft, text_in(message, "model")
        blocks = objects_in(message.get("content"))
        if model == _SYNTHETIC:
            # The program wrote this itself, for example that a request failed.
            draft.notice(text_of(blocks) or _SYNTHETIC)
            return
        key = text_in(message, "id") or text_in(record, "uuid") or f"line {self._lines}"
        parent = self._parent(record, message) if aside else None
        step = draft.step(key, aside=aside, parent=parent)
        step.model = step.model or model[:100]
        step.finish = text_in(message, "stop_reason")[:40] or step.finish
        draft.report(step, usage_of(message.get("usage")) or usage_of(record))
        for block in blocks:
            self._block(step, block)

    def _block(self, step: DraftStep, block: dict[str, Any]) -> None:
        draft = self._draft
        kind = text_in(block, "type")
        if kind == "text":
            draft.say(step, text_in(block, "text"))
        elif kind == "tool_use":
            name, arguments = text_in(block, "name"), object_in(block, "input")
            query = text_in(arguments, "query") if name == "ToolSearch" else ""
            call = draft.call(step, text_in(block, "id"), name, arguments, query)
            if call is not None and name in _AGENT_TOOLS and len(self._prompts) < _MAX_LINKS:
                self._prompts[text_in(arguments, "prompt")] = call
        elif kind not in _THOUGHTS:
            draft.unread.add(f"assistant: {kind}")

    def _user(self, record: dict[str, Any], message: dict[str, Any], aside: bool) -> None:
        draft, texts = self._draft, []
        for block in objects_in(message.get("content")):
            if block.get("type") == "tool_result":
                self._result(record, block)
            else:
                texts.append(block)
        text = text_of(texts)
        if aside:
            self._parent(record, message)
        elif record.get("isCompactSummary") is True:
            draft.compact(text)
        elif text.startswith(_INTERRUPTED):
            draft.stop()
        elif text and record.get("isMeta") is not True:
            draft.ask(text)

    def _result(self, record: dict[str, Any], block: dict[str, Any]) -> None:
        parts = objects_in(block.get("content"))
        call = self._draft.result(
            text_in(block, "tool_use_id"),
            text_of(parts),
            failed=block.get("is_error") is True,
            found=[text_in(each, "tool_name") for each in parts],
        )
        agent = text_in(object_in(record, "toolUseResult"), "agentId") or text_in(record, "agentId")
        self._link(call, agent)

    def _system(self, record: dict[str, Any]) -> None:
        subtype, text = record.get("subtype"), text_in(record, "content")
        if subtype == "compact_boundary":
            self._draft.compact("")
        elif text and (record.get("level") in ("error", "warning") or subtype == "api_error"):
            self._draft.notice(text)

    def _parent(self, record: dict[str, Any], message: dict[str, Any]) -> DraftCall | None:
        """Find the call that started the subagent of a line."""
        agent, before = text_in(record, "agentId"), text_in(record, "parentUuid")
        parent = self.parents.get(agent) or self.parents.get(before)
        if parent is None and message.get("role") == "user":
            parent = self._prompts.get(text_of(objects_in(message.get("content"))))
        if parent is None and self._prompts:
            parent = next(reversed(self._prompts.values()))
        self._link(parent, agent, text_in(record, "uuid"))
        return parent

    def _link(self, call: DraftCall | None, *ids: str) -> None:
        """Note which call started the subagent with one of these ids, unless it is known."""
        if call is not None and len(self.parents) < _MAX_LINKS:
            for id in filter(None, ids):
                self.parents.setdefault(id, call)


def usage_of(fields: object) -> TokenUsage | None:
    """Read the tokens of an answer. The input is what was new, and what the cache read and wrote.

    None if there are no numbers.
    """
    new = tokens_in(fields, "input_tokens", "inputTokens")
    answer = tokens_in(fields, "output_tokens", "outputTokens")
    if new is None and answer is None:
        return None
    cached = tokens_in(fields, "cache_read_input_tokens", "cacheReadInputTokens")
    written = tokens_in(fields, "cache_creation_input_tokens", "cacheCreationInputTokens")
    prompt = (new or 0) + (cached or 0) + (written or 0)
    return TokenUsage(prompt, answer or 0, cached, cache_write_tokens=written)
