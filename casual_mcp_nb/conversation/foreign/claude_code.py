"""Sessions of Claude Code: `~/.claude/projects/FOLDER/SESSION.jsonl`, and files of its subagents.

A line has one block of a message. Lines of one message share its id and repeat its tokens, in which
the last line is right. A message can be in the session's file and in that of a subagent.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from casual_mcp_nb.base.tokens import TokenUsage
from casual_mcp_nb.conversation.foreign.draft import Draft, DraftCall, DraftStep, Reader
from casual_mcp_nb.conversation.foreign.lines import object_in, seconds_of, text_in
from casual_mcp_nb.conversation.foreign.messages import Call, Message, Result, message_in
from casual_mcp_nb.conversation.foreign.usage import usage_in

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
_IDS = frozenset({"leafUuid", "messageId", "sessionId", "uuid"})
_AGENT_TOOLS = frozenset({"Agent", "Task"})
_INTERRUPTED = "[Request interrupted by user"
_SYNTHETIC = "<synthetic>"
_MAX_LINKS = 100_000
_MAX_SUBAGENTS = 1_000


def is_claude_code(record: dict[str, Any]) -> bool:
    """Check whether a line looks like one of Claude Code."""
    kind = text_in(record, "type")
    if not kind:
        return text_in(object_in(record, "message"), "role") in ("user", "assistant")
    has_message = isinstance(record.get("message"), dict)
    return kind in _SPOKEN | _SILENT and (has_message or not record.keys().isdisjoint(_IDS))


class ClaudeCodeReader(Reader):
    """Reads lines of Claude Code into a draft."""

    def __init__(self, draft: Draft) -> None:
        super().__init__(draft)
        # The calls that started subagents, by the subagent's id and by the ids of its lines.
        self._parents: dict[str, DraftCall] = {}
        self._prompts: dict[str, DraftCall] = {}
        self._has_main = self._is_titled = False
        self._lines = 0

    def read(self, record: dict[str, Any]) -> None:
        """Read a line."""
        self._lines += 1
        self.draft.time(seconds_of(record.get("timestamp")))
        fields = object_in(record, "message")
        kind = text_in(record, "type") or text_in(fields, "role")
        aside = record.get("isSidechain") is True
        self._has_main = self._has_main or (not aside and kind in ("user", "assistant"))
        parent, message = None, message_in(fields, kind)
        aside = aside and self._has_main
        if aside:
            parent = self._parent(record, message)
        if kind == "assistant":
            self._answer(record, fields, message, aside=aside, parent=parent)
        elif kind == "user":
            for result in message.results:
                self._result(record, result)
            if not aside:
                self._ask(record, message.text)
        elif kind == "system":
            self._system(record)
        elif kind in _TITLES:
            # A title that the person gave wins.
            title = text_in(record, _TITLES[kind], "title")
            if title and (kind == "custom-title" or not self._is_titled):
                self._is_titled = True
                self.draft.name(title, again=True)
        elif kind not in _SILENT:
            self.draft.unread.add(kind or "without a type")

    def more_files(self, path: Path) -> list[Path]:
        """Find the files of subagents: in the session's folder or, of earlier versions, beside the
        session.
        """
        files = list((path.with_suffix("") / "subagents").rglob("agent-*.jsonl"))
        if not path.name.startswith("agent-"):
            for each in path.parent.glob("agent-*.jsonl"):
                if each.stem.removeprefix("agent-") in self._parents:
                    files.append(each)
        return sorted(each for each in files if not each.is_symlink())[:_MAX_SUBAGENTS]

    def _answer(
        self,
        record: dict[str, Any],
        fields: dict[str, Any],
        message: Message,
        *,
        aside: bool,
        parent: DraftCall | None,
    ) -> None:
        draft, model = self.draft, text_in(fields, "model")
        if model == _SYNTHETIC:
            # The program wrote this itself, for example that a request failed.
            draft.notice(message.text or _SYNTHETIC)
            return
        key = text_in(fields, "id") or text_in(record, "uuid") or f"line {self._lines}"
        step = draft.step(key, aside=aside, parent=parent)
        step.model = step.model or model[:100]
        step.finish = text_in(fields, "stop_reason")[:40] or step.finish
        draft.report(step, _usage(object_in(fields, "usage")) or _usage(record))
        draft.say(step, message.text)
        for call in message.calls:
            self._call(step, call)

    def _call(self, step: DraftStep, call: Call) -> None:
        query = text_in(call.arguments, "query") if call.name == "ToolSearch" else ""
        made = self.draft.call(step, *call, query)
        if made is not None and call.name in _AGENT_TOOLS and len(self._prompts) < _MAX_LINKS:
            self._prompts[text_in(call.arguments, "prompt")] = made

    def _result(self, record: dict[str, Any], result: Result) -> None:
        call = self.draft.result(*result)
        agent = text_in(object_in(record, "toolUseResult"), "agentId") or text_in(record, "agentId")
        self._link(call, agent)

    def _ask(self, record: dict[str, Any], text: str) -> None:
        if record.get("isCompactSummary") is True:
            self.draft.compact(text)
        elif text.startswith(_INTERRUPTED):
            self.draft.stop()
        elif text and record.get("isMeta") is not True:
            self.draft.ask(text)

    def _system(self, record: dict[str, Any]) -> None:
        subtype, text = record.get("subtype"), text_in(record, "content")
        if subtype == "compact_boundary":
            self.draft.compact("")
        elif text and (record.get("level") in ("error", "warning") or subtype == "api_error"):
            self.draft.notice(text)

    def _parent(self, record: dict[str, Any], message: Message) -> DraftCall | None:
        """Find the call that started the subagent of a line."""
        agent, before = text_in(record, "agentId"), text_in(record, "parentUuid")
        parent = self._parents.get(agent) or self._parents.get(before)
        if parent is None and message.role == "user":
            parent = self._prompts.get(message.text)
        if parent is None and self._prompts:
            parent = next(reversed(self._prompts.values()))
        self._link(parent, agent, text_in(record, "uuid"))
        return parent

    def _link(self, call: DraftCall | None, *ids: str) -> None:
        """Note which call started the subagent with one of these ids, unless it is known."""
        if call is not None and len(self._parents) < _MAX_LINKS:
            for id in filter(None, ids):
                self._parents.setdefault(id, call)


def _usage(fields: dict[str, Any]) -> TokenUsage | None:
    """Read the tokens of an answer. The input is what was new, and what the cache read and wrote."""
    usage = usage_in(fields)
    if usage is None:
        return None
    counts = (usage.prompt_tokens, usage.cached_tokens, usage.cache_write_tokens)
    return replace(usage, prompt_tokens=sum(filter(None, counts)))
