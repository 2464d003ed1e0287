"""The current conversation and the saved ones: find, continue, fork, save and delete them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Unpack, cast

from casual_mcp_nb.base.displayable import NamespaceList
from casual_mcp_nb.conversation.conversation import (
    Conversation,
    Prompt,
    StoredConversation,
    StoredConversations,
    StoredStatus,
)
from casual_mcp_nb.conversation.store import MAX_LISTED, ConversationStore
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.engine.events import Observers
from casual_mcp_nb.engine.turn_fields import NamedTurnFields, spelled_out
from casual_mcp_nb.notebook.blocking import awaited, blocking
from casual_mcp_nb.notebook.conversation_runner import ConversationRunner
from casual_mcp_nb.notebook.live import Echo
from casual_mcp_nb.notebook.loop import EngineThread
from casual_mcp_nb.notebook.resuming import resume_here
from casual_mcp_nb.notebook.turn_service import TurnService

if TYPE_CHECKING:
    from casual_mcp_nb.engine.turn_fields import ChatOptions


class SessionConversations(NamespaceList[StoredConversation]):
    """The saved conversations, the last changed one first, and the current one:
    `session.conversations`.
    """

    def __init__(
        self,
        engine: EngineThread,
        observers: Observers,
        runner: ConversationRunner,
        turns: TurnService,
    ) -> None:
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
        """The current conversation's id, or None until it is saved."""
        return self._runner.saver.id

    @property
    def store(self) -> ConversationStore | None:
        """The file with saved conversations, or None if they are not saved."""
        return self._runner.saver.store

    def find(
        self, words: str = "", *, status: StoredStatus | None = "active", limit: int = MAX_LISTED
    ) -> StoredConversations:
        """Find saved conversations by a text in their title or messages.

        Args:
            words: The text, or empty for all.
            status: Only `active` or `archived` ones, or None for both.
            limit: How many to return at most.

        Returns:
            The conversations, the last changed first. `total` includes those beyond the limit.

        Raises:
            UsageError: This session saves no conversations.
        """
        return self._runner.saver.required.find(words, status=status, limit=limit)

    def new(self, *, private: bool = False) -> None:
        """Start a new conversation: no turns, no discovered tools, no approvals, no
        `tools.context`.

        The selection stays.

        Args:
            private: Whether it is not saved.
        """
        self._turns.new_conversation(private=private)

    def resume(self, id: str | None = None) -> Conversation:
        """Continue a saved conversation in this session.

        The model, the system prompt and the selection become those that it had.

        The conversation so far stays saved. Anything that is no longer available, such as a model
        that was removed from the config, is left as it is, with a warning.

        Args:
            id: Its id, or the beginning of its id, or None for this notebook's last one.
                `Session.resume` opens a session for it, with the config that it had.

        Returns:
            The conversation. It is valid even if its process was killed: a call without a result
            gets one that explains this.

        Raises:
            UsageError: Nothing is saved, a turn is running, or the conversation is damaged.
            UnknownNameError: There is no conversation with that id.
        """
        conversation, problems = resume_here(self._turns, id)
        for problem in problems:
            warnings.warn(problem, stacklevel=2)
        return conversation

    def fork(self, turn: int = -1) -> Conversation:
        """Continue in a new conversation, which begins with a copy of this one's turns.

        This one stays as it is.

        Args:
            turn: Index of the last turn to copy. Negative ones count from the end.

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
        """Continue in a new conversation from one step in a turn, with something changed.

        This one stays as it is. Earlier steps are copied as they were recorded: no model is asked
        for them, and no tool is called. The model is asked from this step on. With `result` or
        `text`, it is asked from the next one on.

        Args:
            step: Its index in `turn.steps`. Negative ones count from the end.
            turn: Its index in `session.turns`.
            result: Replaces the result of the step's call. For several calls, a mapping from
                `server:tool` or call id.
            text: Replaces the model's text in this step. Its calls and their results stay. Without
                calls, this is the answer, and no model is asked.
            echo: See `session.chat`.
            options: See `session.chat`, such as another `model` or `tool_set`. The default is the
                session's current choice.

        Returns:
            The turn in the new conversation.

        Raises:
            UsageError: There is no such turn or step, an option or a name does not exist, the step
                has nothing that `result` or `text` could replace, or a turn is running. The
                conversation is unchanged.
        """
        return await self._turns.fork_at(
            step, turn, result, text, cast("ChatOptions", options), echo
        )

    fork_at_async = awaited(fork_at)

    def add(self, messages: Prompt) -> Conversation:
        """Add messages to the conversation without asking a model, such as a history from
        elsewhere.

        In the next turn, the model reads them as if they had been said here.

        Args:
            messages: A text, or the person's and the model's messages and results, as in
                `Session.chat`. A result follows each call. A user message after a model's or a
                tool's message begins another turn.

        Returns:
            The new turns. A call gets another id if the conversation uses its id already.

        Raises:
            UsageError: A message is not valid, or a turn is running. Nothing was added.
        """
        return Conversation(self._runner.add(messages))

    def save(self, conversation: Conversation) -> StoredConversation:
        """Save a conversation from elsewhere, such as one that `Conversation.load` read, under a
        new id.

        Args:
            conversation: The conversation.

        Raises:
            UsageError: It has no turns, or it cannot be saved.
        """
        return self._changed(self._runner.saver.required.add(conversation))

    def rename(self, id: str, title: str) -> StoredConversation:
        """Give a saved conversation another title.

        Args:
            id: Its id, or how it begins.
            title: The title.

        Raises:
            UsageError: Nothing is saved.
            UnknownNameError: There is no conversation with that id.
        """
        return self._changed(self._runner.saver.required.rename(id, title))

    def archive(self, id: str) -> StoredConversation:
        """Leave a saved conversation out of the list. For errors, see `rename`."""
        return self._changed(self._runner.saver.required.archive(id))

    def restore(self, id: str) -> StoredConversation:
        """List an archived conversation again. For errors, see `rename`."""
        return self._changed(self._runner.saver.required.restore(id))

    def delete(self, id: str) -> StoredConversation:
        """Delete a saved conversation for good. If it is the current one, start another.

        Args:
            id: Its id, or how it begins.

        Raises:
            UsageError: Nothing is saved, or a turn in the conversation is running.
            UnknownNameError: There is no conversation with that id.
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
