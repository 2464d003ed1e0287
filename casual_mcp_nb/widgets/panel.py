"""The chat panel and the token meter."""

from __future__ import annotations

from typing import Any, Unpack
from weakref import WeakKeyDictionary

from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.conversation.event import Event, StepFinished, StepStarted
from casual_mcp_nb.conversation.stats import ChatStats, StepStats
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.conversation.view_calls import PARTS
from casual_mcp_nb.display.render import style
from casual_mcp_nb.engine.turn_fields import ChatOptions, spelled_out
from casual_mcp_nb.notebook.apps import App
from casual_mcp_nb.widgets._transcript import MAX_TURNS
from casual_mcp_nb.widgets.app import AppsState
from casual_mcp_nb.widgets.base import HasParts, SessionWidget, State
from casual_mcp_nb.widgets.conversation import ConversationsState, ConversationState
from casual_mcp_nb.widgets.resources import ResourcesState

MAX_STEPS = 200


class TokensState(State):
    """Tokens per step and turn, with each number's origin. In Python: `session.stats`."""

    def __init__(self, session: HasParts) -> None:
        super().__init__(session)
        self._cache: WeakKeyDictionary[Turn, tuple[int, ChatStats]] = WeakKeyDictionary()
        self.follow(session.parts.observers.events.add(self._on_event))
        self.follow(session.parts.observers.changes.add(self.changed))

    def snapshot(self) -> dict[str, Any]:
        """Collect rows by turn and step, from 1, the sums, and the names of request parts."""
        stats = [self._stats(turn) for turn in self.parts.runner.turns]
        rows = {f"{number}.{step.step + 1}": _row(step, number) for number, turn in enumerate(stats, 1) for step in turn.steps}
        return {
            "parts": list(PARTS.values()),
            "rows": dict(list(rows.items())[-MAX_STEPS:]),
            "earlier": max(0, len(rows) - MAX_STEPS),
            "turns": {str(number): _sum(turn) for number, turn in enumerate(stats, 1) if turn.steps},
            "all": _sum(sum(stats, ChatStats())),
        }

    def _stats(self, turn: Turn) -> ChatStats:
        size = len(turn.trace)
        cached = self._cache.get(turn)
        if cached is None or cached[0] != size:
            cached = self._cache[turn] = (size, turn.stats)
        return cached[1]

    def _on_event(self, turn: Turn, event: Event) -> None:
        if isinstance(event, StepStarted | StepFinished):
            self.changed()


def _row(step: StepStats, turn: int) -> dict[str, Any]:
    return {
        "turn": turn,
        "step": step.step + 1,
        "parts": list(step.parts.as_dict().values()),
        "sent": step.parts.total,
        "reused": step.reused,
        "origin": step.parts.origin,
        "answer": step.completion_tokens,
        "answer_origin": step.answer_origin,
    }


def _sum(stats: ChatStats) -> dict[str, Any]:
    sent: dict[str, Any] = {"sent": stats.sent_tokens, "origin": stats.parts.origin, "steps": len(stats.steps)}
    sent["reused"] = stats.reused_tokens if any(step.reused is not None for step in stats.steps) else None
    sent["parts"] = list(stats.parts.as_dict().values())
    return sent | {"answer": stats.tokens.completion_tokens, "answer_origin": stats.tokens.origin}


class Panel(SessionWidget):
    """A chat with the session's model: message box, transcript, approvals, servers' forms, step mode, tokens.

    In Python: `session.submit`, `stop`, `questions`, `consent.step_mode`, `rerun`, `undo`, `new_conversation`, `resume`,
    `store`, `unload`.

    Args:
        session: The session. Turns from cells and other panels show here too.
        options: For turns started here, see `Session.chat`.
    """

    bundle = "panel"
    more_css = style()
    footer = "Ask a question: run this cell to get the live panel."

    @spelled_out(ChatOptions)
    def __init__(self, session: HasParts, **options: Unpack[ChatOptions]) -> None:
        self.conversation = ConversationState(session, **options)
        self.tokens = TokensState(session)
        self.resources = ResourcesState(session)
        self.conversations = ConversationsState(session)
        self.apps = AppsState(session, self._apps_of_turns)
        super().__init__(
            session,
            conversation=self.conversation,
            tokens=self.tokens,
            resources=self.resources,
            conversations=self.conversations,
            apps=self.apps,
        )

    def _apps_of_turns(self) -> list[App]:
        parts = self.session.parts
        return [app for turn in parts.runner.turns[-MAX_TURNS:] for app in parts.apps.opened_in(turn)]

    def static(self) -> Conversation:
        """Get the conversation as it is now."""
        return self.session.parts.runner.conversation


class TokenMeter(SessionWidget):
    """Tokens per step and turn, as bars. In Python: `session.stats`."""

    bundle = "token_meter"

    def __init__(self, session: HasParts) -> None:
        self.tokens = TokensState(session)
        super().__init__(session, tokens=self.tokens)

    def static(self) -> ChatStats:
        """Get the counts as they are now."""
        return self.session.parts.runner.stats
