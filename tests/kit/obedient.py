"""A model on a loopback server that obeys the last message of the person: calls, text and token
counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from kit.provider import answer
from kit.scripted_http import Reply, Request, ScriptedHttp


class Obedient(ScriptedHttp):
    """Answers in the wire format of OpenAI, with streams; as many clients at a time as there
    are.
    """

    def __init__(self) -> None:
        super().__init__(self._obey)

    @property
    def config(self) -> dict[str, Any]:
        """The sections `clients` and `models` of a config whose model is `small`."""
        desk = {
            "provider": "openai",
            "base_url": f"{self.url}/v1",
            "api_key": "sk-not-a-real-key",
            "timeout": 30,
        }
        return {"clients": {"desk": desk}, "models": {"small": {"client": "desk", "model": "m-1"}}}

    def _obey(self, request: Request) -> Reply:
        if json.loads(_order(request.body)[1]).get("fail"):
            return Reply(400, {"error": {"message": "no"}})
        body, kind = body_of(request.body)
        return Reply(200, body, {"content-type": kind})


def body_of(request: Mapping[str, Any]) -> tuple[bytes, str]:
    """Build the body of the answer to a request, and its type.

    Args:
        request: The request, as OpenAI's SDK sends it. The last message of the person is an
            `order`; its `echoes` are calls of the first tool whose name ends in `echo`.
    """
    start, text = _order(request)
    results = [
        message["content"]
        for message in request["messages"][start + 1 :]
        if message["role"] == "tool"
    ]
    wanted = json.loads(text)
    calls = [] if results else [(name, arguments) for name, arguments in wanted.get("calls", ())]
    if not results and (echoes := wanted.get("echoes")):
        names = (tool["function"]["name"] for tool in request["tools"])
        name = next(name for name in names if name.endswith("echo"))
        calls += [(name, {"text": echo}) for echo in echoes]
    said = "" if calls else " ".join([wanted.get("text", ""), *results]).strip()
    body = answer("openai", said, *calls, usage=tuple(wanted.get("usage", (30, 7))))
    if request.get("stream"):
        return b"".join(_chunks(body)), "text/event-stream"
    return json.dumps(body).encode(), "application/json"


def _order(request: Mapping[str, Any]) -> tuple[int, str]:
    messages = [*enumerate(request["messages"])]
    return next(
        (index, message["content"])
        for index, message in reversed(messages)
        if message["role"] == "user"
    )


def order(
    text: str = "",
    *calls: tuple[str, Mapping[str, Any]],
    usage: tuple[int, int] = (30, 7),
    **more: Any,
) -> str:
    """The message that this model obeys.

    Args:
        text: The beginning of the answer; the results of the calls follow it.
        calls: The calls to make first: names on the wire, and arguments.
        usage: Tokens of the prompt and of the answer, of each request.
        more: `fail` has the request refused.
    """
    return json.dumps({"text": text, "calls": calls, "usage": usage, **more})


def _chunks(body: Mapping[str, Any]) -> Iterator[bytes]:
    (choice,) = body["choices"]
    message = choice["message"]
    calls = [{"index": index, **call} for index, call in enumerate(message.get("tool_calls", ()))]
    delta = {
        "role": "assistant",
        "content": message["content"],
        **({"tool_calls": calls} if calls else {}),
    }
    base = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m-1"}
    for chunk in (
        {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]},
        {**base, "choices": [], "usage": body["usage"]},
    ):
        yield f"data: {json.dumps(chunk)}\n\n".encode()
    yield b"data: [DONE]\n\n"
