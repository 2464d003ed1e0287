"""The tools of real servers that others wrote, at providers that refuse schemas as the real ones
do.
"""

from __future__ import annotations

from typing import Any

import pytest
from kit.provider import PROVIDERS
from kit.schema_rules import RULES, SchemaStrict, definitions_in, openai

from casual_mcp_nb import Session
from casual_mcp_nb.base.dialects import DIALECTS
from casual_mcp_nb.base.tool_door import admit
from casual_mcp_nb.conversation.event import Notice
from casual_mcp_nb.providers.chat_model import ChatModel

pytestmark = [pytest.mark.integration, pytest.mark.defect("M3")]

BY_LINE = {**RULES, "openai": openai, "compatible": RULES["openai"]}


@pytest.mark.slow
@pytest.mark.parametrize("line", DIALECTS)
def test_every_tool_passes_the_door_for_every_provider(session: Session, line: str) -> None:
    for tool in session.tools:
        admission = admit(tool.definition, DIALECTS[line])
        assert admission.definition is not None, (tool.tool_name, admission.reason)
        assert BY_LINE[line](tool.name, admission.definition["parameters"]) is None


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_turn_with_all_of_their_tools_is_refused_by_no_provider(
    session: Session, provider: str, stream: bool
) -> None:
    with SchemaStrict(provider) as server:
        model = _model(server)
        turn = session.chat("Go", model=model, stream=stream, echo="none")
        assert turn.status == "done"
        assert turn.answer == "done"
        assert server.refused == []
        sent = {name for name, _, _ in definitions_in(provider, server.answered[0])}
        assert {tool.wire_name for tool in session.tools if tool.restriction is None} <= sent
    assert not [notice for notice in turn.trace.of(Notice) if "left out" in notice.text]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_turn_goes_on_without_the_tools_that_a_provider_refuses(
    session: Session, provider: str
) -> None:
    bad = {"memory__create_entities", "git__git_log"}
    with SchemaStrict(
        provider, lambda name, schema: "an unknown rule" if name in bad else None
    ) as server:
        turn = session.chat("Go", model=_model(server), echo="none")
        assert turn.status == "done"
        assert turn.answer == "done"
        sent = {name for name, _, _ in definitions_in(provider, server.answered[-1])}
        assert bad.isdisjoint(sent)
        assert len(sent) >= len(session.tools) - 3
    left_out = [notice.text for notice in turn.trace.of(Notice) if "left out" in notice.text]
    assert len(left_out) == 2
    assert all(any(name in text for text in left_out) for name in bad)


def _model(server: SchemaStrict) -> Any:
    from casual_mcp_nb.base.config import Config
    from casual_mcp_nb.providers.factory import ModelFactory

    model: ChatModel = ModelFactory(Config.model_validate(server.config)).chat_model()
    return model
