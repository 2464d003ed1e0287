"""The audit list of a session, made from the events of its turns. It outlives `undo` and a new conversation."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from casual_mcp_nb.types.audit import Audit, AuditRecord, Caller
from casual_mcp_nb.types.content import ContentPart
from casual_mcp_nb.types.event import ApprovalAnswered, ApprovalAsked, Event, ToolFinished, ToolStarted, TurnFinished
from casual_mcp_nb.types.secret import redacted

MAX_RECORDS = 10_000
_JSON = json.JSONEncoder(ensure_ascii=False, default=str)


class AuditTrail:
    """The last calls, bounded in number; for any thread.

    Args:
        secrets: Returns the values to mask in what people typed.
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
            record = replace(record, permission=replace(permission, reason=redacted(permission.reason, self._secrets())))
        with self._lock:
            self._records.append(record)
            self._added += 1

    @property
    def count(self) -> int:
        """How many calls there were, also those that are no longer listed."""
        return self._added

    def read(self) -> Audit:
        """List the calls, oldest first."""
        with self._lock:
            return Audit(tuple(self._records), self._added - len(self._records))

    def follow(self) -> Callable[[Event], None]:
        """Build a listener that adds the calls of one turn; it is called with each event of the turn."""
        return _Follower(self.add).on_event


FOLLOWED = frozenset({ToolStarted, ApprovalAsked, ApprovalAnswered, ToolFinished, TurnFinished})
"""The events that become records."""


class _Follower:
    """Turns the events of one turn into records.

    Args:
        add: Called with each call that has ended.
    """

    def __init__(self, add: Callable[[AuditRecord], None]) -> None:
        self._add = add
        self._started: dict[str, tuple[float, ToolStarted]] = {}
        self._waits: dict[str, float] = {}

    def on_event(self, event: Event) -> None:
        """Note when a call starts and waits; add it when it ends."""
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
                # Negative: it was stopped while it waited.
                waited += event.at if waited < 0 else 0.0
                content = event.result.content if event.result else ()
                self._add(
                    AuditRecord(
                        at,
                        event.tool,
                        _caller(start),
                        event.permission,
                        event.status,
                        event.at - start.at - waited,
                        size_of_arguments(start.arguments),
                        size_of_result(content, event.text),
                    )
                )
            case TurnFinished():
                for at, start in self._started.values():
                    size = size_of_arguments(start.arguments)
                    self._add(AuditRecord(at, start.tool, _caller(start), None, "unknown", None, size, 0))
                self._started.clear()


def _caller(start: ToolStarted) -> Caller:
    return "model" if start.parent is None else "tool"


def size_of_arguments(arguments: Mapping[str, Any] | str) -> int:
    """Measure a call's arguments as JSON, in characters; 0 if they are not JSON, and so cannot be sent."""
    try:
        return len(arguments if isinstance(arguments, str) else _JSON.encode(arguments))
    except (ValueError, RecursionError):
        return 0


def size_of_result(content: tuple[ContentPart, ...], text: str) -> int:
    """Measure a result, in characters: its parts as they came, or its text where it has none."""
    return sum([len(part.text) + len(part.data or b"") for part in content]) or len(text)
