"""An error in the code of a client that somebody else wrote is shown as that, with its place."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
from casual_llm import LLMClient
from casual_llm.messages import AssistantMessage, UserMessage

from casual_mcp_nb.errors import MalformedAnswerError, ProviderError, UsageError
from casual_mcp_nb.providers.chat_model import ChatModel
from casual_mcp_nb.providers.scripted import call, scripted_model

ASKED = [UserMessage(content="Where is it?")]


class Protocol(LLMClient):
    """A client that follows casual-llm's protocol, and reads a field that is not there."""

    async def _chat(self, model: str, messages: Any, options: Any) -> Any:
        return AssistantMessage(content=messages[0].contents), None


class Own:
    """A client that makes its own requests, and looks up a key that is not there."""

    async def answer(self, model: str, messages: Any, options: Any) -> Any:
        return {"said": "hello"}["text"]


def models() -> list[tuple[ChatModel, type[Exception]]]:
    protocol: Any = Protocol.__new__(Protocol)
    own: Any = Own()

    def script(messages: Any, tools: Any) -> str:
        return str(tools[0]["name"])

    return [
        (ChatModel(protocol, "m"), AttributeError),
        (ChatModel(own, "m"), KeyError),
        (scripted_model(script), IndexError),
    ]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("number", range(3))
async def test_it_is_the_clients_and_says_where(number: int, stream: bool) -> None:
    model, kind = models()[number]
    with pytest.raises(ProviderError) as caught:
        await model.complete(ASKED, on_event=lambda _: None, stream=stream)
    error = caught.value
    assert not isinstance(error, MalformedAnswerError)
    assert not error.retryable
    assert "base_url" not in f"{error} {error.hint}"
    assert kind.__name__ in str(error)
    assert "test_clients_of_ones_own.py, line " in str(error)
    assert isinstance(error.__cause__, kind)
    frames = traceback.extract_tb(error.__cause__.__traceback__)
    assert __file__ in [frame.filename for frame in frames]


async def test_a_script_says_which_of_its_answers_is_none() -> None:
    model = scripted_model("Well.", [call("a__b"), "Then this."])
    await model.complete(ASKED, [])
    with pytest.raises(UsageError, match="Answer 2 "):
        await model.complete(ASKED, [])
