"""One rule for the ids of calls: in a model's answer, a history and a saved conversation."""

from __future__ import annotations

import pytest
from casual_llm.messages import AssistantMessage, AssistantToolCall, AssistantToolCallFunction

from casual_mcp_nb.conversation.repair import repaired, with_unique_ids
from casual_mcp_nb.engine.answers import CallNames


def _message(ids: list[str]) -> AssistantMessage:
    function = AssistantToolCallFunction(name="math__add", arguments="{}")
    return AssistantMessage(
        content=None, tool_calls=[AssistantToolCall(id=each, function=function) for each in ids]
    )


def _ids(message: AssistantMessage) -> list[str]:
    return [call.id for call in message.tool_calls or ()]


CASES = [
    (["a", "b"], [], ["a", "b"]),
    (["", ""], [], ["call_1", "call_2"]),
    (["a", "a"], [], ["a", "a_2"]),
    (["a"], ["a", "b"], ["a_3"]),
    ([""], ["call_2"], ["call_2_"]),
    (["a"], ["a", "a_3", "b"], ["a_4"]),
    (["a"], ["a", "a_3"], ["a_3_"]),
]


@pytest.mark.parametrize(("given", "taken", "expected"), CASES)
def test_answers_and_histories_get_the_same_ids(
    given: list[str], taken: list[str], expected: list[str]
) -> None:
    message = _message(given)
    unique, ids = with_unique_ids(message, set(taken))
    assert ids == _ids(unique) == expected
    assert (unique is message) == (given == expected)
    assert _ids(CallNames(taken, lambda _: None).clean(message)) == expected
    history, notes = repaired([message], set(taken))
    answer, *results = history
    assert isinstance(answer, AssistantMessage)
    assert _ids(answer) == expected
    assert [each.tool_call_id for each in results if each.role == "tool"] == expected
    # Each call also gets a placeholder for its result.
    assert len(notes) == (1 if given == expected else 2)
