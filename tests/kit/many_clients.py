"""Many clients of an HTTP API at the same time, each turn with numbers that only it has; and a
model that obeys them.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import httpx
from kit.obedient import body_of


@dataclass
class Mixed:
    """The errors in the answers.

    Args:
        failed: How many requests were not answered.
        wrong: How many answers had the text or the stats of another turn.
        kinds: How the requests failed.
    """

    failed: int = 0
    wrong: int = 0
    kinds: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: Self) -> Mixed:
        return Mixed(self.failed + other.failed, self.wrong + other.wrong, self.kinds + other.kinds)


async def ask_many(
    url: str, *, clients: int, turns: int, calls: int | None = None, checked: bool = True
) -> Mixed:
    """Ask for so many turns, of so many clients at a time.

    Args:
        url: The service.
        clients: How many requests are open at a time.
        turns: How many turns in all.
        calls: How many tool calls a turn makes; None for 0 to 2.
        checked: Whether the answers are compared with what was asked.
    """
    mixed, numbers = Mixed(), iter(range(turns))

    async def work() -> None:
        # Each has a connection of its own: a pool of 50 asks all idle ones at each request, at the
        # cost of the service.
        async with httpx.AsyncClient(
            base_url=url, timeout=120, trust_env=False, verify=False
        ) as client:
            for number in numbers:
                await _turn(client, number, number % 3 if calls is None else calls, checked, mixed)

    await asyncio.gather(*(work() for _ in range(clients)))
    return mixed


async def _turn(
    client: httpx.AsyncClient, number: int, calls: int, checked: bool, mixed: Mixed
) -> None:
    text, usage = f"turn {number}", (100 + number, 1 + number % 7)
    order = {
        "text": text,
        "echoes": [f"{text} call {index}" for index in range(calls)],
        "usage": usage,
    }
    body = {
        "model": "small",
        "messages": [{"role": "user", "content": json.dumps(order)}],
        "include_stats": True,
    }
    streamed = checked and number % 5 == 0
    try:
        response = await client.post(
            "/chat", json=body, headers={"Accept": "text/event-stream" if streamed else "*/*"}
        )
        answer = _answer(response.text) if streamed else response.json()
    except httpx.TransportError as error:
        mixed.failed += 1
        mixed.kinds[type(error).__name__] += 1
        return
    if "response" not in answer:
        mixed.failed += 1
        mixed.kinds[str(answer.get("kind", answer))[:200]] += 1
    elif checked:
        requests = 2 if calls else 1
        tokens, made = answer["stats"]["tokens"], answer["stats"]["tool_calls"]["total"]
        expected = (
            " ".join([text, *order["echoes"]]),
            usage[0] * requests,
            usage[1] * requests,
            calls,
            requests,
        )
        got = (
            answer["response"],
            tokens["prompt_tokens"],
            tokens["completion_tokens"],
            made,
            answer["stats"]["llm_calls"],
        )
        mixed.wrong += got != expected


def _answer(text: str) -> Mapping[str, Any]:
    """The data of the last event, or the problem of a turn that did not begin."""
    data = text if text.startswith("{") else text.strip().split("\n\n")[-1].partition("data: ")[2]
    answer: Mapping[str, Any] = json.loads(data)
    return answer


async def model_app(scope: Any, receive: Any, send: Any) -> None:
    """Be the model, as an ASGI application that costs as little as possible."""
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    content, kind = body_of(json.loads(body))
    headers = [(b"content-type", kind.encode()), (b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})
