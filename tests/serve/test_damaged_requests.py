"""500 damaged requests: each is answered, or refused with the one form of errors, and none is a
mistake of the service.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from kit.fuzz import broken, mutations
from kit.pictures import DOT
from kit.provider import Provider, answer

from casual_mcp_nb import Session
from casual_mcp_nb.serve.turns import MEDIA_TYPE, Problem

SEED = 20260101
BODY: dict[str, Any] = {
    "model": "small",
    "messages": [
        {"role": "system", "content": "You are terse."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is this?"},
                {
                    "type": "image",
                    "source": {"type": "base64", "data": base64.b64encode(DOT).decode()},
                    "media_type": "image/png",
                },
            ],
        },
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "math__add", "arguments": '{"a": 1}'},
                }
            ],
        },
        {"role": "tool", "name": "math__add", "tool_call_id": "c1", "content": "3"},
        {"role": "user", "content": "And now?"},
    ],
    "system_prompt": "You are terser.",
    "tool_set": "numbers",
    "include_stats": True,
}
CONFIG = {
    "servers": {"math": {"bundled": "math", "transport": "in-process"}},
    "tool_sets": {"numbers": {"description": "Numbers", "servers": {"math": ["add"]}}},
}


def bodies() -> Iterator[bytes]:
    """Yield the damaged bodies: those sent as JSON, and as bytes."""
    for value in mutations(BODY, SEED, 250):
        yield json.dumps(value).encode()
    yield from broken(json.dumps(BODY), SEED, 250)


@pytest.mark.defect("G1")
def test_a_damaged_request_is_answered_or_refused_in_the_one_form() -> None:
    statuses: Counter[int] = Counter()

    async def send(app: Any) -> None:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://localhost"
        ) as client:
            for number, body in enumerate(bodies()):
                accept = "text/event-stream" if number % 7 == 0 else "application/json"
                headers = {"content-type": "application/json", "accept": accept}
                response = await client.post("/chat", content=body, headers=headers)
                statuses[response.status_code] += 1
                if response.status_code == 200:
                    assert "Problem" not in response.text, body[:500]
                    continue
                assert 400 <= response.status_code < 500, (response.text[:500], body[:500])
                assert response.headers["content-type"] == MEDIA_TYPE
                problem = Problem.model_validate_json(response.content)
                assert (problem.status, bool(problem.kind), bool(problem.detail)) == (
                    response.status_code,
                    True,
                    True,
                )

    with (
        Provider(answer("openai", "Yes.")) as model,
        Session({**model.config("openai"), **CONFIG}, quiet=True) as session,
        session.serve.http(port=0) as service,
    ):
        session.parts.engine.run(send(service._listener.config.app))
    assert statuses.total() == 500
    assert min(statuses[200], statuses[422]) > 20, statuses
