"""What a session's searches learn from its saved conversations."""

from __future__ import annotations

import asyncio

from casual_mcp_nb.base.displayable import NamespaceList
from casual_mcp_nb.base.tool import ToolName, ToolSpec
from casual_mcp_nb.cassettes.tape import NO_TAPE
from casual_mcp_nb.conversation.past_questions import (
    PastQuestion,
    PastQuestionReader,
    PastQuestions,
)
from casual_mcp_nb.doors import in_words_of
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.errors import UnknownNameError, UsageError, brief
from casual_mcp_nb.notebook.saving import ConversationSaver


class SessionSearchMemory(NamespaceList[PastQuestion]):
    """The questions and searches after which a tool was called with success, the latest first:
    `session.tools.memory`.

    If it is on, the same tools rank higher for questions like these. It is read from the saved
    conversations, which also means that one that is private or deleted teaches nothing.
    """

    def __init__(self, chat: McpToolChat, saver: ConversationSaver, *, on: bool) -> None:
        self._chat = chat
        self._saver = saver
        self._on = on
        self._reader = PastQuestionReader()
        chat.state.past_questions = self._questions
        self._complete = True

    @property
    def now(self) -> PastQuestions:
        """The questions as the file has them now."""
        store = self._saver.store
        if store is None:
            note = "This session saves no conversations, so there is nothing to learn from."
            return PastQuestions(note=note)
        note = ""
        if not self._on:
            note = in_words_of("Searches do not use this. To turn it on: %mcp memory on")
        return PastQuestions(store.past_questions(self._reader), note)

    @property
    def on(self) -> bool:
        """Whether searches learn, as `tool_discovery.learn` in the config says until you assign
        another value.
        """
        return self._on

    @on.setter
    def on(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise UsageError(f"on cannot be {brief(value)}.", hint="Assign True or False.")
        self._on = value

    async def _questions(self) -> tuple[PastQuestion, ...]:
        """Read the questions for a search. None while it is off, or while a cassette is used, in
        which searches must find the same tools each time.
        """
        store = self._saver.store
        if not self._on or store is None or self._chat.tape is not NO_TAPE:
            return ()
        try:
            return await asyncio.to_thread(store.past_questions, self._reader, self._tool)
        except UsageError:
            # The file cannot be read. The status tells the person, and words are enough to search.
            return ()

    def _tool(self, name: ToolName) -> ToolSpec | None:
        tool = self._chat.catalog.get(name)
        return tool if tool is not None and tool.tool_name == name else None

    def forget(self, question: PastQuestion | str) -> None:
        """Learn nothing more from a question, for any tool. Its conversation stays saved.

        If you ask it again, that counts.

        Args:
            question: One of these, or its text.

        Raises:
            UnknownNameError: There is no such question.
            UsageError: This session saves no conversations.
        """
        text = question if isinstance(question, str) else question.text
        known = dict.fromkeys(each.text for each in self)
        if text not in known:
            raise UnknownNameError("past question", text, known)
        self._saver.required.forget_question(text)

    def clear(self) -> None:
        """Learn nothing more from any question that was asked until now. The conversations stay
        saved.

        Raises:
            UsageError: This session saves no conversations.
        """
        self._saver.required.forget_question()
