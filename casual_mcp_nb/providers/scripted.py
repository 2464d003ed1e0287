"""A model that plays answers from a list: for tests, docs and lessons without a key."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.iterables import all_are
from casual_mcp_nb.conversation.step import ModelResponse
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.providers._calls import call_of
from casual_mcp_nb.providers._clients import AnsweringClient
from casual_mcp_nb.providers.chat_model import ChatModel

if TYPE_CHECKING:
    from casual_llm import AssistantToolCall, ChatOptions
    from casual_llm.messages import ChatMessage

__all__ = ["call", "calls", "scripted_model"]


@dataclass(frozen=True)
class Call:
    """A tool call in a scripted answer: the tool's wire name and its arguments."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class ScriptedRequest:
    """A request to a scripted model: the messages and the tool definitions."""

    messages: tuple[ChatMessage, ...]
    tools: tuple[Mapping[str, Any], ...]


def call(name: str, /, **arguments: Any) -> Call:
    """Script an answer that calls a tool, such as `call("math__add", a=1, b=2)`."""
    return Call(name, arguments)


def calls(*scripted: Call) -> tuple[Call, ...]:
    """Script an answer that calls several tools, such as `calls(call("a__x"), call("b__y",
    n=1))`.
    """
    return scripted


class ScriptedClient(AnsweringClient):
    """A casual-llm client that plays answers from a list.

    Args:
        answers: One item per request. A string or a message is the answer; `call(...)` and
            `calls(...)` make tool calls. A `ModelResponse` also has usage. An exception is raised.
            A function, plain or async, takes the messages and tools and returns one of these.
    """

    def __init__(self, answers: Iterable[Any] = ()) -> None:
        self._answers = iter(answers)
        self._ids = itertools.count(1)
        self.requests: list[ScriptedRequest] = []

    async def answer(
        self, model: str, messages: list[ChatMessage], options: ChatOptions
    ) -> ModelResponse:
        """Play the next answer and record the request."""
        request = ScriptedRequest(tuple(messages), tuple(options.extra.get("tools", ())))
        self.requests.append(request)
        try:
            item = next(self._answers)
        except StopIteration:
            item = UsageError(
                f"The script has no answer for request {len(self.requests)}.",
                hint="Add another answer.",
            )
        if callable(item):
            item = item(request.messages, request.tools)
            item = await item if inspect.isawaitable(item) else item
        if isinstance(item, BaseException):
            raise item
        return self._as_answer(item)

    def _as_answer(self, item: Any) -> ModelResponse:
        from casual_llm import AssistantMessage

        if isinstance(item, ModelResponse):
            return item
        if isinstance(item, AssistantMessage):
            return ModelResponse(item, finish_reason="tool_calls" if item.tool_calls else "stop")
        if isinstance(item, str):
            return ModelResponse(AssistantMessage(content=item), finish_reason="stop")
        message = AssistantMessage(
            content="", tool_calls=list(map(self._tool_call, self._calls_in(item)))
        )
        return ModelResponse(message, finish_reason="tool_calls")

    def _calls_in(self, item: Any) -> Sequence[Call]:
        if isinstance(item, Call):
            return [item]
        if isinstance(item, list | tuple) and all_are(item, Call):
            return item
        raise UsageError(
            f"Answer {len(self.requests)} of the script cannot be used: it is of type"
            f" {type(item).__name__}.",
            hint="Pass each answer as a separate argument: a text, call(...) or calls(...), a"
            " message, an exception, or a function.",
        )

    def _tool_call(self, scripted: Call) -> AssistantToolCall:
        return call_of(f"call_{next(self._ids)}", scripted.name, scripted.arguments)


def scripted_model(
    *answers: Any, name: str = "scripted", context_window: int | None = None
) -> ChatModel:
    """Create a model that plays these answers; `model.client.requests` records its requests.

    Args:
        *answers: See `ScriptedClient`.
        name: The model's name.
        context_window: Its context window in tokens, or None if unknown.
    """
    client: Any = ScriptedClient(answers)
    return ChatModel(
        client, name, client_name="scripted", provider="scripted", context_window=context_window
    )
