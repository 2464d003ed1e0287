"""Sessions of Claude Code: `~/.claude/projects/FOLDER/SESSION.jsonl`, and files of its subagents.

A line has one block of a message. Lines of one message share its id and repeat its tokens, in which
the last line is right. A message can be in the session's file and in that of a subagent.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from casual_mcp_nb.base.tokens import TokenUsage
from casual_mcp_nb.conversation.foreign.draft import Draft, DraftCall, Reader
from casual_mcp_nb.conversation.foreign.lines import Fields, object_in, seconds_of, text_in
from casual_mcp_nb.conversation.foreign.messages import Message, message_in
from casual_mcp_nb.conversation.foreign.usage import usage_in

_TITLES = {"summary": "summary", "custom-title": "customTitle", "ai-title": "aiTitle"}
_SILENT = re.compile(
    r"agent-(?:name|color|setting)|attachment|attribution-snapshot|content-replacement"
    r"|file-history-snapshot|last-prompt|mode|permission-mode|pr-link|progress|queue-operation|tag"
    r"|worktree-state"
)
"""Kinds of lines that are about the program rather than the conversation."""
_SPOKEN = frozenset({"user", "assistant", "system", *_TITLES})
_IDS = frozenset({"leafUuid", "messageId", "sessionId", "uuid"})
_AGENT_TOOLS = frozenset({"Agent", "Task"})
_INTERRUPTED = "[Request interrupted by user"
_SYNTHETIC = "<synthetic>"
_MAX_LINKS = 100_000
_MAX_SUBAGENTS = 1_000


class ClaudeCodeReader(Reader):
    """Reads lines of Claude Code into a draft."""

    agent, provider = "Claude Code", "anthropic"

    def __init__(self, draft: Draft) -> None:
        super().__init__(draft)
        # The calls that started subagents, by the subagent's id and by the ids of its lines.
        self._parents: dict[str, DraftCall] = {}
        self._prompts: dict[str, DraftCall] = {}
        self._has_main = self._is_titled = False
        self._lines = 0

    @staticmethod
    def can_read(record: Fields) -> bool:
        """Check whether a line looks like one of Claude Code."""
        kind = _kind(record)
        is_known = kind in _SPOKEN or _SILENT.fullmatch(kind) is not None
        # Logs of other programs have a text as their message.
        has_message = isinstance(record.get("message"), dict)
        return is_known and (has_message or not record.keys().isdisjoint(_IDS))

    def read(self, record: Fields) -> None:
        """Read a line."""
        self._lines += 1
        self.draft.time(seconds_of(record.get("timestamp")))
        kind = _kind(record)
        if kind in ("user", "assistant"):
            self._message(record, message_in(object_in(record, "message"), kind))
        elif kind == "system":
            self._system(record)
        elif kind in _TITLES:
            # A title that the person gave wins.
            title = text_in(record, _TITLES[kind], "title")
            if title and (kind == "custom-title" or not self._is_titled):
                self._is_titled = True
                self.draft.name(title, again=True)
        elif not _SILENT.fullmatch(kind):
            self.draft.unread.add(kind or "without a type")

    def _message(self, record: Fields, message: Message) -> None:
        aside, parent = record.get("isSidechain") is True, None
        self._has_main = self._has_main or not aside
        aside = aside and self._has_main
        if aside:
            parent = self._parent(record, message)
        if _kind(record) == "assistant":
            self._answer(record, message, aside, parent)
            return
        for result in message.results:
            call = self.draft.result(result)
            outcome = object_in(record, "toolUseResult")
            self._link(call, text_in(outcome, "agentId") or text_in(record, "agentId"))
        if not aside:
            self._ask(record, message.text)

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
        self, record: Fields, message: Message, aside: bool, parent: DraftCall | None
    ) -> None:
        draft, fields = self.draft, object_in(record, "message")
        model = text_in(fields, "model")
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
            query = text_in(call.arguments, "query") if call.name == "ToolSearch" else ""
            made = draft.call(step, *call, query)
            if made is not None and call.name in _AGENT_TOOLS:
                self._prompts[text_in(call.arguments, "prompt")] = made

    def _ask(self, record: Fields, text: str) -> None:
        if record.get("isCompactSummary") is True:
            self.draft.compact(text)
        elif text.startswith(_INTERRUPTED):
            self.draft.stop()
        elif text and record.get("isMeta") is not True:
            self.draft.ask(text, text_in(record, "uuid"))

    def _system(self, record: Fields) -> None:
        subtype, text = record.get("subtype"), text_in(record, "content")
        if subtype == "compact_boundary":
            self.draft.compact("")
        elif text and (record.get("level") in ("error", "warning") or subtype == "api_error"):
            self.draft.notice(text)

    def _parent(self, record: Fields, message: Message) -> DraftCall | None:
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


def _kind(record: Fields) -> str:
    return text_in(record, "type") or text_in(object_in(record, "message"), "role")


def _usage(fields: Fields) -> TokenUsage | None:
    """Read the tokens of an answer. The input is what was new, and what the cache read and wrote."""
    usage = usage_in(fields)
    if usage is None:
        return None
    counts = (usage.prompt_tokens, usage.cached_tokens, usage.cache_write_tokens)
    return replace(usage, prompt_tokens=sum(filter(None, counts)))
