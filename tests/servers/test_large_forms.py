"""A form that is too large to be shown is refused before anything is made of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fastmcp.client.elicitation import ElicitResult
from kit.loop_guard import LoopGuard

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.servers.connection import Connection
from casual_mcp_nb.servers.handlers import Handlers


@pytest.mark.defect("A2")
@pytest.mark.parametrize(("fields", "forms_shown"), [(3, 1), (20_000, 0)])
async def test_a_form_of_too_many_fields_is_refused(
    opened: Callable[..., Any], raw: Callable[..., ServerConfig], tmp_path: Any, fields: int, forms_shown: int
) -> None:
    forms: list[str] = []

    async def elicitation(server: str, message: str, *more: Any) -> Any:
        forms.append(message)
        return ElicitResult(action="decline", content=None)

    schema = {"type": "object", "properties": {f"f{n}": {"type": "string", "pattern": "^(a+)+$"} for n in range(fields)}}
    params = {"message": "fill in", "requestedSchema": schema}
    calls = {"form": {"ask": "elicitation/create", "ask_params": params, "answer": "asked"}}
    connection = opened(
        Connection("asker", raw(folder=tmp_path, calls=calls, version="2025-11-25"), handlers=Handlers(elicitation=elicitation))
    )
    guard = LoopGuard()
    guard.start()
    await connection.connect()
    result = await connection.call("form", {})
    guard.stop()
    assert len(forms) == forms_shown
    assert result.content
    assert not guard.take()
