"""The chat panel and the token meter."""

from __future__ import annotations

from typing import Unpack

from casual_mcp_nb.display import style
from casual_mcp_nb.engine.signatures import spelled_out
from casual_mcp_nb.engine.turn_fields import ChatOptions
from casual_mcp_nb.types.conversation import Conversation
from casual_mcp_nb.types.stats import ChatStats
from casual_mcp_nb.widgets.base import SessionWidget
from casual_mcp_nb.widgets.conversation import ConversationState
from casual_mcp_nb.widgets.conversations import ConversationsState
from casual_mcp_nb.widgets.resources import ResourcesState
from casual_mcp_nb.widgets.state import SessionParts
from casual_mcp_nb.widgets.tokens import TokensState


class Panel(SessionWidget):
    """A chat with the session's model: message box, transcript, approvals, forms of servers, step mode, tokens.

    In Python: `session.submit`, `stop`, `questions`, `step_mode`, `rerun`, `undo`, `new_conversation`, `resume`,
    `store`, `unload`.

    Args:
        session: The session; turns of cells and of other panels show here too.
        options: For the turns that are started here, as of `Session.chat`.
    """

    bundle = "panel"
    more_css = style()

    @spelled_out(ChatOptions)
    def __init__(self, session: SessionParts, **options: Unpack[ChatOptions]) -> None:
        self.conversation = ConversationState(session, **options)
        self.tokens = TokensState(session)
        self.resources = ResourcesState(session)
        self.conversations = ConversationsState(session)
        super().__init__(
            session,
            conversation=self.conversation,
            tokens=self.tokens,
            resources=self.resources,
            conversations=self.conversations,
        )

    def static(self) -> Conversation:
        """Get the conversation as it is now."""
        return self.session.turn_service.runner.conversation


class TokenMeter(SessionWidget):
    """The tokens of each step and turn, as bars. In Python: `session.stats`.

    Args:
        session: The session.
    """

    bundle = "token_meter"

    def __init__(self, session: SessionParts) -> None:
        self.tokens = TokensState(session)
        super().__init__(session, tokens=self.tokens)

    def static(self) -> ChatStats:
        """Get the counts as they are now."""
        return self.session.turn_service.runner.stats
