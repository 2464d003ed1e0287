"""A session's audit, with a record of each call, and the calls of apps on their turn's trace."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic_core import to_json

from casual_mcp_nb.base.content import ToolResult
from casual_mcp_nb.base.displayable import Displayable, DisplayableList
from casual_mcp_nb.base.files import write_text
from casual_mcp_nb.base.iterables import attributes
from casual_mcp_nb.base.secret import redacted
from casual_mcp_nb.base.tool import Permission, ToolName
from casual_mcp_nb.conversation.event import (
    AppCalled,
    ApprovalAnswered,
    ApprovalAsked,
    CallStatus,
    Event,
    Notice,
    ToolFinished,
    ToolStarted,
    TurnFinished,
)
from casual_mcp_nb.conversation.step import ToolCall
from casual_mcp_nb.errors import shown

Caller = Literal["model", "person", "tool", "server", "host", "app"]
"""Who made a call.

- `model`: the model, in a turn.
- `person`: the person, in Python.
- `tool`: a notebook function or a program of the model, which calls another tool.
- `server`: a server that asked the model for an answer.
- `host`: another program that uses the session's tools.
- `app`: the page of a server that shows a result.
"""


_NOT_ASKED = Permission("", allowed=False)  # type: ignore[arg-type]
"""Of a call that did not get as far as a decision."""


@dataclass(frozen=True)
class AuditRecord(Displayable):
    """One tool call. `at` is in seconds since 1970.

    The tool's server is `_synthetic` for a built-in tool, and `_unknown` for an unknown name, which
    has no permission. `seconds` excludes the wait for approval. Sizes count characters, and bytes
    of binary parts and large results. Arguments are measured as JSON.
    """

    at: float
    tool: ToolName
    caller: Caller
    permission: Permission | None
    status: CallStatus
    seconds: float | None
    arguments_size: int
    result_size: int

    def as_dict(self) -> dict[str, Any]:
        """Convert the record to plain values, for JSON."""
        permission = self.permission or _NOT_ASKED
        decided = attributes(permission, ("scope", "policy", "reason", "definition"))
        return {
            "time": datetime.fromtimestamp(self.at, UTC).isoformat(timespec="milliseconds"),
            "server": self.tool.server,
            "tool": self.tool.tool,
            "caller": self.caller,
            "outcome": self.status,
            "seconds": None if self.seconds is None else round(self.seconds, 3),
            "allowed": permission.allowed,
            "decided_by": permission.by or None,
            **decided,
            "arguments_size": self.arguments_size,
            "result_size": self.result_size,
        }


@dataclass(frozen=True)
class Audit(DisplayableList[AuditRecord], items="records"):
    """A session's calls, oldest first: by the model, by the person, and by other programs."""

    records: tuple[AuditRecord, ...] = field(default=(), repr=False)
    dropped: int = 0

    def to_jsonl(self) -> str:
        """Format the list as JSON, one call per line."""
        return "".join(f"{json.dumps(record.as_dict())}\n" for record in self.records)

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the list to a file as JSON, one call per line, whole or not at all, and return the
        file.
        """
        file = Path(path).expanduser()
        write_text(file, self.to_jsonl(), overwrite=overwrite)
        return file


MAX_RECORDS = 10_000


class AuditTrail:
    """The last calls, up to a limit. Thread-safe.

    `secrets` returns the values to mask in people's messages.
    """

    def __init__(self, secrets: Callable[[], Collection[str]] = tuple) -> None:
        self._secrets = secrets
        self._lock = threading.Lock()
        self._records: deque[AuditRecord] = deque(maxlen=MAX_RECORDS)
        self._added = 0

    def add(self, record: AuditRecord) -> None:
        """Add a call that has ended."""
        permission = record.permission
        if permission and permission.reason:
            reason = redacted(permission.reason, self._secrets())
            record = replace(record, permission=replace(permission, reason=reason))
        with self._lock:
            self._records.append(record)
            self._added += 1

    @property
    def count(self) -> int:
        """How many calls there were, including those that are no longer listed."""
        return self._added

    def read(self) -> Audit:
        """List the calls, oldest first."""
        with self._lock:
            return Audit(tuple(self._records), self._added - len(self._records))

    def follow(self) -> Callable[[Event], None]:
        """Build a listener that receives one turn's events and adds its calls."""
        return _Follower(self.add).on_event


FOLLOWED = frozenset({ToolStarted, ApprovalAsked, ApprovalAnswered, ToolFinished, TurnFinished})
"""Events that become records."""


class _Follower:
    """Turns one turn's events into records."""

    def __init__(self, add: Callable[[AuditRecord], None]) -> None:
        self._add = add
        self._started: dict[str, tuple[float, ToolStarted]] = {}
        self._waits: dict[str, float] = {}

    def on_event(self, event: Event) -> None:
        match event:
            case ToolStarted():
                self._started[event.call_id] = time.time(), event
            case ApprovalAsked():
                self._waits[event.call_id] = self._waits.get(event.call_id, 0.0) - event.at
            case ApprovalAnswered():
                self._waits[event.call_id] = self._waits.get(event.call_id, 0.0) + event.at
            case ToolFinished() if event.call_id in self._started:
                at, start = self._started.pop(event.call_id)
                waited = self._waits.pop(event.call_id, 0.0)
                if waited < 0:
                    # It was stopped while it waited.
                    waited += event.at
                size = size_of_result(event.result, event.text)
                if event.large is not None:
                    size = event.large.size
                self._add(
                    AuditRecord(
                        at,
                        event.tool,
                        _caller(start),
                        event.permission,
                        event.status,
                        event.at - start.at - waited,
                        size_of_arguments(start.arguments),
                        size,
                    )
                )
            case TurnFinished():
                for at, start in self._started.values():
                    size = size_of_arguments(start.arguments)
                    self._add(
                        AuditRecord(at, start.tool, _caller(start), None, "unknown", None, size, 0)
                    )
                self._started.clear()


def _caller(start: ToolStarted) -> Caller:
    return "model" if start.parent is None else "tool"


def size_of_arguments(arguments: Mapping[str, Any] | str) -> int:
    """Measure a call's arguments as JSON, in characters, or 0 if they are not JSON, and so cannot
    be sent.
    """
    if isinstance(arguments, str):
        return len(arguments)
    try:
        return len(to_json(arguments, fallback=str).decode())
    except ValueError:
        return 0


def size_of_result(result: ToolResult | None, text: str) -> int:
    """Measure a result, in characters: its parts as they came, or its text where it has none."""
    size = 0
    if result is not None:
        for part in result.content:
            size += len(part.text) + len(part.data or b"")
    return size or len(text)


MAX_APP_CALLS = 200
"""How many calls of one app are on its turn's trace."""
MAX_APP_CALLS_SIZE = 2_000_000
"""Their size together, in characters and bytes."""
_MAX_TEXT = 20_000


def app_call_event(
    trace: Iterable[Event],
    shown_call: ToolCall,
    at: float,
    call: ToolCall,
    permission: Permission | None,
) -> AppCalled | Notice | None:
    """Build the event for an app's call, in which long texts are cut.

    After too many, one notice, and then None.

    Args:
        trace: The turn's events so far.
        shown_call: The call that the app shows.
        at: When the app's call started, in seconds since 1970.
        call: The app's call.
        permission: Who decided whether it may run.
    """
    arguments: dict[str, Any] | str = call.arguments
    if size_of_arguments(arguments) > _MAX_TEXT:
        arguments = _short(json.dumps(arguments))
    text, result = _short(call.result), None
    if call.content and text == call.result:
        result = ToolResult(call.content, call.structured, call.status != "ok")
    seconds = call.seconds or 0.0
    event = AppCalled(
        shown_call.id, call.tool, arguments, call.status, text, result, at, seconds, permission
    )
    calls, size, texts = 0, _size_of_app_call(event), set()
    for each in trace:
        if isinstance(each, AppCalled) and each.call_id == shown_call.id:
            calls += 1
            size += _size_of_app_call(each)
        elif isinstance(each, Notice):
            texts.add(each.text)
    if calls < MAX_APP_CALLS and size <= MAX_APP_CALLS_SIZE:
        return event
    text = (
        f"The app of {shown(str(shown_call.tool))} makes more calls than a turn keeps: see"
        " session.consent.audit."
    )
    return None if text in texts else Notice(text)


def _short(text: str) -> str:
    if len(text) <= _MAX_TEXT:
        return text
    return f"{text[:_MAX_TEXT]}… {len(text):,} characters in all"


def _size_of_app_call(event: AppCalled) -> int:
    return size_of_arguments(event.arguments) + len(event.text) + size_of_result(event.result, "")
