"""Sessions of Codex: `~/.codex/sessions/YYYY/MM/DD/rollout-*.jsonl`, also archived ones.

An event often repeats an item. After each answer a count of tokens has those of the answer, which
are counted, and those of the session so far: if these are the same as before, it is a repetition,
and if a file has only them, the difference is counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from casual_mcp_nb.conversation.event import HostedCall
from casual_mcp_nb.conversation.foreign.added import own_words
from casual_mcp_nb.conversation.foreign.draft import Draft, DraftStep, Reader
from casual_mcp_nb.conversation.foreign.lines import (
    Fields,
    object_in,
    objects_in,
    parsed,
    seconds_of,
    text_in,
)
from casual_mcp_nb.conversation.foreign.messages import Result, from_text, text_of
from casual_mcp_nb.conversation.foreign.usage import usage_in

_LINES = frozenset(
    {"session_meta", "turn_context", "response_item", "event_msg", "compacted", "world_state"}
)
_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call", "tool_search_call"})
_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output", "tool_search_output"})
_HOSTED = frozenset({"web_search_call", "image_generation_call"})
_SILENT = re.compile(
    r"agent_reasoning\w*|background_event|compaction|deprecation_notice|ghost_snapshot|other"
    r"|\w+_(?:begin|delta|end)|(?:entered|exited)_review_mode|item_(?:started|completed)"
    r"|mcp_startup_\w+|patch_apply_\w+|plan_update|raw_response_item|session_configured"
    r"|skills_update_available|(?:task|turn)_(?:started|complete|diff)|thread_\w+|undo_\w+"
    r"|collab_\w+|warning|world_state"
)
"""What repeats an item, or is about the program."""
_EXIT = re.compile(r"^(?:Exit code:|Process exited with code) (-?\d{1,9})", re.MULTILINE)
_HEAD = 500
_ROLES = {"user_message": "user", "agent_message": "assistant"}
_OTHERS = frozenset({"sessionId", "providerData"})


class CodexReader(Reader):
    """Reads lines of Codex into a draft."""

    agent, provider = "Codex", "openai"

    def __init__(self, draft: Draft) -> None:
        super().__init__(draft)
        self._model = ""
        self._step: DraftStep | None = None
        self._has_tokens = False
        self._said: set[tuple[str, str]] = set()
        self._answers = 0
        self._total: dict[str, int] = {}

    @staticmethod
    def can_read(record: Fields) -> bool:
        """Check whether a line looks like one of Codex."""
        kind = text_in(record, "type")
        if kind == "message":
            # The first versions wrote the items themselves. Other agents do so, with a session's id.
            is_item = "role" in record and isinstance(record.get("content"), list)
            return is_item and record.keys().isdisjoint(_OTHERS)
        return kind in _LINES and isinstance(record.get("payload"), dict)

    def read(self, record: Fields) -> None:
        """Read a line."""
        self.draft.time(seconds_of(record.get("timestamp")))
        kind, fields = text_in(record, "type"), object_in(record, "payload")
        if kind in ("response_item", "event_msg"):
            kind = text_in(fields, "type") or ("message" if "role" in fields else "")
        elif kind not in _LINES:
            fields = record
        match kind:
            case "session_meta":
                self._session(fields)
            case "turn_context":
                self._model = text_in(fields, "model")[:100] or self._model
            case "message":
                # Without a word for images: an event repeats the text alone.
                texts = [text_in(part, "text") for part in objects_in(fields.get("content"))]
                self._message(text_in(fields, "role"), "\n".join(filter(None, texts)))
            case "user_message" | "agent_message":
                self._message(_ROLES[kind], text_in(fields, "message"))
            case "reasoning":
                self._open_step()
            case _ if kind in _CALLS:
                self._call(fields, kind)
            case _ if kind in _OUTPUTS:
                self._result(fields)
            case _ if kind in _HOSTED:
                self._hosted(fields, kind)
            case "token_count":
                self._tokens(object_in(fields, "info"))
            case "turn_aborted":
                self._step = None
                self.draft.stop()
            case "compacted" | "context_compacted":
                self._step = None
                self.draft.compact(text_in(fields, "message"))
            case "error" | "stream_error":
                self.draft.notice(text_in(fields, "message") or kind)
            case "" if "id" in fields:
                # The first versions wrote the session's and the items' fields themselves.
                self._session(fields)
            case _ if not _SILENT.fullmatch(kind):
                self.draft.unread.add(kind or "without a type")

    def _session(self, fields: Fields) -> None:
        draft = self.draft
        draft.provider = text_in(fields, "model_provider")[:40] or draft.provider
        prompt = text_in(object_in(fields, "base_instructions"), "text")
        prompt = prompt or text_in(fields, "base_instructions", "instructions")
        draft.system = draft.system or draft.text(prompt)

    def _message(self, role: str, text: str) -> None:
        """Add a text, unless an event or an item before it says the same."""
        if role not in ("assistant", "user", "developer", "system"):
            self.draft.unread.add(f"message of {role}")
        if role == "user":
            if text.lstrip()[:1] in ("<", "#") and not own_words(text).strip():
                return
            if text and not self.draft.waiting:
                self._said.clear()
        said = role, text.strip()
        if not text or said in self._said:
            return
        if role == "user":
            self._step = None
            self.draft.ask(text)
        elif role == "assistant":
            self.draft.say(self._open_step(), text)
        self._said.add(said)

    def _call(self, item: Fields, kind: str) -> None:
        name, arguments, query = text_in(item, "name"), item.get("arguments"), ""
        if kind == "custom_tool_call":
            arguments = {"input": item.get("input")}
        elif kind == "local_shell_call":
            name, arguments = "local_shell", item.get("action")
        elif kind == "tool_search_call":
            name, query = "tool_search", text_in(from_text(arguments), "query") or "tools"
        space = text_in(item, "namespace").rstrip("_")
        if space and not name.startswith(space):
            name = f"{space}__{name}"
        call_id = text_in(item, "call_id", "id")
        self.draft.call(self._open_step(), call_id, name, arguments, query)

    def _result(self, item: Fields) -> None:
        self.draft.result(_output(item))
        # What the model says next is another answer.
        self._has_tokens = True
        self._said.clear()

    def _hosted(self, item: Fields, kind: str) -> None:
        step = self._open_step()
        if step.kept:
            arguments = self.draft.arguments(item.get("action", item.get("revised_prompt")))
            written = json.dumps(arguments, ensure_ascii=False)
            step.hosted.append(HostedCall(kind.removesuffix("_call"), written))

    def _open_step(self) -> DraftStep:
        """Find the answer to which the next item belongs."""
        if self._step is None or self._has_tokens:
            self._answers += 1
            self._has_tokens = False
        self._step = self.draft.step(f"answer {self._answers}")
        self._step.model = self._step.model or self._model
        return self._step

    def _tokens(self, info: Fields) -> None:
        total = {}
        for name, number in object_in(info, "total_token_usage").items():
            if isinstance(number, int):
                total[name] = number
        if total and total == self._total:
            # The limits have changed, and not the tokens.
            return
        grown = {name: number - self._total.get(name, 0) for name, number in total.items()}
        # It can count from zero again, so that nothing has grown.
        last = object_in(info, "last_token_usage")
        usage = usage_in(last) or usage_in(grown) or usage_in(total)
        self._total = total or self._total
        if usage is None:
            return
        self._model = text_in(info, "model")[:100] or self._model
        step = self._step
        if step is None or step.usage is not None:
            self._step = None
            step = self._open_step()
        self.draft.report(step, usage)
        self._has_tokens = True


def _output(item: Fields) -> Result:
    """Read a call's result, and whether it says that the call failed."""
    output = item.get("output")
    fields = output
    if isinstance(output, str) and output.startswith('{"output":'):
        fields = parsed(output)
    if isinstance(fields, dict):
        output = fields.get("output", fields.get("content"))
    found = list(_found(item))
    text = text_of(output) or "\n".join(found)
    # Only the first line is Codex's own: what the command prints may look the same.
    codes = [object_in(fields, "metadata").get("exit_code"), *_EXIT.findall(text[:_HEAD])[:1]]
    failed = any(code not in (None, 0, "0") for code in codes)
    failed = failed or (isinstance(fields, dict) and fields.get("success") is False)
    return Result(text_in(item, "call_id"), text, failed, found)


def _found(item: Fields) -> Iterator[str]:
    """Yield the names of the tools that a search found: each by itself, or within a namespace."""
    for tool in objects_in(item.get("tools")):
        name, inner = text_in(tool, "name"), objects_in(tool.get("tools"))
        if not inner:
            yield name
        for each in inner:
            yield f"{name.rstrip('_')}__{text_in(each, 'name')}"
