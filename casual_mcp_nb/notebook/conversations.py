"""The conversation of a session and the saved ones: continue, fork, find and keep them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Unpack, cast

from casual_mcp_nb.base.displayable import NamespaceList
from casual_mcp_nb.conversation.conversation import Conversation, StoredConversation, StoredConversations, StoredStatus
from casual_mcp_nb.conversation.store import MAX_LISTED, ConversationStore
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.engine.events import Observers
from casual_mcp_nb.engine.turn_fields import NamedTurnFields, spelled_out
from casual_mcp_nb.notebook.conversation_runner import ConversationRunner
from casual_mcp_nb.notebook.live import Echo
from casual_mcp_nb.notebook.loop import EngineThread, awaited, blocking
from casual_mcp_nb.notebook.turn_service import TurnService

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.engine.turn_fields import ChatOptions


class SessionConversations(NamespaceList[StoredConversation]):
    """The saved conversations, the last changed one first, and the current one: `session.conversations`."""

    def __init__(self, engine: EngineThread, observers: Observers, runner: ConversationRunner, turns: TurnService) -> None:
        self._engine = engine
        self._observers = observers
        self._runner = runner
        self._turns = turns
        self._complete = True

    @property
    def now(self) -> StoredConversations:
        """The saved conversations, read when they are used."""
        store = self.store
        if store is None:
            return StoredConversations(problem="This session saves no conversations.")
        return StoredConversations(find=store.find)

    @property
    def current(self) -> Conversation:
        """The conversation as it is now."""
        return self._runner.conversation

    @property
    def id(self) -> str | None:
        """The id of the current conversation, or None as long as nothing of it is saved."""
        return self._runner.saver.id

    @property
    def store(self) -> ConversationStore | None:
        """The file of the saved conversations, or None if they are not saved."""
        return self._runner.saver.store

    def find(self, words: str = "", *, status: StoredStatus | None = "active", limit: int = MAX_LISTED) -> StoredConversations:
        """Find saved conversations with a text in their title or their messages.

        Args:
            words: The text, or empty for all.
            status: Only `active` or `archived` ones, or None for both.
            limit: The maximum number.

        Returns:
            The conversations, the last changed one first. `total` counts those beyond the limit too.

        Raises:
            UsageError: This session saves no conversations.
        """
        return self._runner.saver.required.find(words, status=status, limit=limit)

    def new(self, *, private: bool = False) -> None:
        """Start a new conversation: no turns, no discovered tools, no approvals, no `tools.context`. The selection stays.

        Args:
            private: Whether it is not saved.
        """
        self._turns.new_conversation(private=private)

    def resume(self, id: str) -> Conversation:
        """Continue a saved conversation, with the model, the system prompt and the selection that it had.

        The conversation so far stays saved. Anything that is no longer available, such as a model that was removed from the
        config, is left as it is, and a warning says so.

        Args:
            id: Its id, or the beginning of it.

        Returns:
            The conversation. One whose process was killed is valid: a call without a result has one that says so.

        Raises:
            UsageError: Nothing is saved, a turn is running, or the conversation is damaged.
            UnknownNameError: There is no conversation of that id.
        """
        conversation, problems = self._turns.resume(id)
        for problem in problems:
            warnings.warn(problem, stacklevel=2)
        return conversation

    def fork(self, turn: int = -1) -> Conversation:
        """Continue in a new conversation that begins with the turns up to one of this conversation. This one stays as it is.

        Args:
            turn: Index of the last turn to take over. Negative ones count from the end.

        Raises:
            UsageError: There is no such turn, or a turn is running.
        """
        return self._turns.fork(turn)

    @blocking
    @spelled_out(NamedTurnFields)
    async def fork_at(
        self,
        step: int,
        turn: int = -1,
        *,
        result: str | Mapping[str, str] | None = None,
        text: str | None = None,
        echo: Echo = "output",
        **options: Unpack[NamedTurnFields],
    ) -> Turn:
        """Continue in a new conversation from one step of a turn, with something changed. This conversation stays as it is.

        The steps before are taken over as they were recorded: no model is asked and no tool is called again. The model is
        asked from this step on, or, with `result` or `text`, from the next one on.

        Args:
            step: Index of the step in `turn.steps`. Negative ones count from the end.
            turn: Index of the turn in `session.turns`.
            result: The replacement for the result of the step's call. For a step with several calls, a mapping from
                `server:tool` or the call's id.
            text: The replacement for the model's text in this step. Its calls and their results stay. Without calls, this is
                the answer, and no model is asked.
            echo: See `session.chat`.
            options: See `session.chat`, such as another `model` or `tool_set`. The default is the session's present choice.

        Returns:
            The turn in the new conversation.

        Raises:
            UsageError: There is no such turn or step, an option or a name does not exist, the step has nothing that `result` or
                `text` could replace, or a turn is running. The conversation is unchanged.
        """
        return await self._turns.fork_at(step, turn, result, text, cast("ChatOptions", options), echo)

    fork_at_async = awaited(fork_at)

    def add(self, messages: Sequence[ChatMessage]) -> Conversation:
        """Add messages to the conversation without asking a model: a history from elsewhere, or words to put into its mouth.

        The next turn's model reads them as if they had been said here.

        Args:
            messages: `UserMessage`, `AssistantMessage` and `ToolResultMessage`. Each call is followed by its result. A message
                of yours begins another turn if it follows one of a model or a tool.

        Returns:
            The turns that they are. A call gets another id if the conversation has one with the same.

        Raises:
            UsageError: They are not valid, and the error says which is not, or a turn is running. Nothing was added.
        """
        return Conversation(self._runner.add(messages))

    def save(self, conversation: Conversation) -> StoredConversation:
        """Save a conversation from elsewhere, such as one that `Conversation.load` has read from a file, under a new id.

        Args:
            conversation: The conversation.

        Raises:
            UsageError: It has no turns, or it cannot be saved.
        """
        return self._changed(self._runner.saver.required.add(conversation))

    def rename(self, id: str, title: str) -> StoredConversation:
        """Give a saved conversation another title.

        Args:
            id: Its id, or the beginning of it.
            title: The title.

        Raises:
            UsageError: Nothing is saved.
            UnknownNameError: There is no conversation of that id.
        """
        return self._changed(self._runner.saver.required.rename(id, title))

    def archive(self, id: str) -> StoredConversation:
        """Leave a saved conversation out of the list. Arguments and errors are those of `rename`."""
        return self._changed(self._runner.saver.required.archive(id))

    def restore(self, id: str) -> StoredConversation:
        """List an archived conversation again. Arguments and errors are those of `rename`."""
        return self._changed(self._runner.saver.required.restore(id))

    def delete(self, id: str) -> StoredConversation:
        """Delete a saved conversation for good. If it is the current one, start another.

        Args:
            id: Its id, or the beginning of it.

        Raises:
            UsageError: Nothing is saved, or a turn of the conversation is running.
            UnknownNameError: There is no conversation of that id.
        """
        store = self._runner.saver.required
        is_current = store.get(id).id == self.id
        if is_current:
            self._runner.check_free()
        deleted = store.delete(id)
        if is_current:
            self._turns.new_conversation()
        return self._changed(deleted)

    def _changed(self, stored: StoredConversation) -> StoredConversation:
        # Panels of this session list it.
        self._observers.changes.notify()
        return stored
