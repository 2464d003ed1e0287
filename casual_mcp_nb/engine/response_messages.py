"""Turn a model's response into the conversation's next message: calls that it wrote as text become
calls, and calls that nothing will run are left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from casual_mcp_nb.conversation.step import text_of
from casual_mcp_nb.engine.answers import CallNames
from casual_mcp_nb.engine.offered_tools import OfferedTools
from casual_mcp_nb.engine.small_models import SmallModelAid
from casual_mcp_nb.engine.written_calls import WrittenCall, written_calls
from casual_mcp_nb.errors import shown

if TYPE_CHECKING:
    from casual_llm.messages import AssistantMessage, ChatMessage

    from casual_mcp_nb.conversation.step import ModelResponse
    from casual_mcp_nb.providers.chat_model import ChatModel


class ResponseMessages:
    """Makes the messages of one turn's responses.

    Args:
        model: The model.
        offered: The tools that calls can mean.
        aid: Whether the model has to answer without tools.
        messages: The conversation so far, whose calls have ids.
        repair_calls: Whether calls that are written as text are run.

    Attributes:
        written: The ids of the calls that were written as text. They are whole even if the answer
            was cut.
    """

    def __init__(
        self,
        model: ChatModel,
        offered: OfferedTools,
        aid: SmallModelAid,
        messages: Sequence[ChatMessage],
        repair_calls: bool,
    ) -> None:
        self._model = model
        self._offered = offered
        self._aid = aid
        self._repair_calls = repair_calls
        ids = []
        for message in messages:
            if message.role == "assistant":
                for call in message.tool_calls or ():
                    ids.append(call.id)
        self._names = CallNames(ids, offered.wire_name)
        self.written: set[str] = set()

    def read(self, response: ModelResponse, notify: Callable[[str], None]) -> AssistantMessage:
        """Make the message of a response, with names and ids that every provider accepts.

        Args:
            response: The response.
            notify: Tells the person about calls that were written as text, or that are not run.
        """
        message = response.message
        as_text = not message.tool_calls
        if as_text:
            message = self._with_written_calls(message, response.truncated, notify)
        elif self._aid.must_answer:
            message = self._without_calls(message, notify)
        if message.tool_calls is not None:
            message = self._names.clean(message)
        if as_text:
            self.written.update(call.id for call in message.tool_calls or ())
        return message

    def _with_written_calls(
        self, message: AssistantMessage, truncated: bool, notify: Callable[[str], None]
    ) -> AssistantMessage:
        """Turn calls that the model wrote as text into calls, if they are to run.

        A notice reports it.
        """
        offered = self._offered
        any_name = bool(offered.view.offered or offered.discovered)
        text = text_of(message.content)
        written, before = written_calls(
            text, offered.is_known, schemas=offered.schema_of, cut=truncated, any_name=any_name
        )
        if not written:
            return message
        names = ", ".join(dict.fromkeys(shown(each.name) for each in written))
        known = all(offered.is_known(each.name) for each in written)
        said = f"The model wrote a call of {names} as text"
        if not self._repair_calls or self._aid.must_answer:
            reason = "" if known else " and it was offered no such tool,"
            advice = "" if self._repair_calls else " The option repair_calls runs such calls."
            notify(f"{said},{reason} so nothing was run.{advice}")
            return message
        if known:
            notify(f"{said}: it is run like any other call (repair_calls).")
        else:
            notify(f"{said}: the model is told which tools there are.")
        self._aid.read_written(written)
        return self._model.with_real_names(_as_calls(before, written))

    def _without_calls(
        self, message: AssistantMessage, notify: Callable[[str], None]
    ) -> AssistantMessage:
        """Leave out the calls of a model that has to answer, since nothing would run them."""
        names = ", ".join(
            dict.fromkeys(shown(call.function.name) for call in message.tool_calls or ())
        )
        notify(
            f"The model was asked to answer without tools, and called {names}: that was not run."
        )
        return message.model_copy(update={"tool_calls": None})


def _as_calls(before: str, written: Sequence[WrittenCall]) -> AssistantMessage:
    """Make a message of calls, and of the text before them."""
    from casual_llm.messages import AssistantMessage, AssistantToolCall, AssistantToolCallFunction

    # Some models write the same call until they are cut.
    arguments = dict.fromkeys((each.name, json.dumps(each.arguments)) for each in written)
    calls = []
    for number, (name, text) in enumerate(arguments):
        function = AssistantToolCallFunction(name=name, arguments=text)
        calls.append(AssistantToolCall(id=f"written_{number}", function=function))
    return AssistantMessage(content=before, tool_calls=calls)
