"""Cost of a provider beyond its SDK: `python benchmarks/providers.py [--tokens 500] [--rounds 9]
[--tools 30]`.

Servers on 127.0.0.1, in a separate process, speak each wire format and answer immediately: a
streamed answer of a given number of tokens, written in one go, and an answer in one piece. The same
question, with the same tools, goes through `ChatModel.complete` and through the bare SDK, read
token by token as its documentation shows; for Ollama, and for LiteLLM if it is installed, that is
`AsyncClient.chat` and `litellm.acompletion`. Both reuse their connections, both alternate in the
same process, and the best round of each counts. The measure is that process's processor time, which
largely excludes the servers and other load.

- per token: the time of a streamed answer minus that of one with a single token, divided by the
  difference in tokens: reading it off the wire, the SDK's own types, and ours on top.
- per call: the time of an answer in one piece, from the question to the answer.

The peer is the SDK alone: x 1.00 means no overhead. Less is possible where we read a format more
directly than its SDK does (Ollama's lines).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from casual_llm.messages import UserMessage
from common.figures import Figure, installed, print_figures
from kit.provider import answer
from kit.streams import KINDS, streamed

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.providers.chat_model import ChatModel
from casual_mcp_nb.providers.factory import ModelFactory

QUESTION = "What is the weather like in Tromsø?"
WARM_UP = 3
PROVIDERS = ("openai", "openai-responses", "anthropic", "ollama")
QUICK = ("ollama",)
Ask = Callable[[bool], Awaitable[str]]


@dataclass
class Pair:
    """The best times of one variant in seconds: a streamed answer, and an answer in one piece."""

    stream: float = float("inf")
    whole: float = float("inf")


def words(count: int) -> tuple[str, ...]:
    """Return the pieces of an answer."""
    return tuple(f" word{number}" for number in range(count))


def serve(wire: str, tokens: int, port: Any) -> None:
    """Print the port, then answer every request of a wire format forever."""
    stream = streamed(wire, words(tokens))
    replies = {
        True: _reply(stream, KINDS[wire]),
        False: _reply(
            json.dumps(answer(wire, "".join(words(tokens)))).encode(), "application/json"
        ),
    }

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                return writer.close()
            length = int(head.lower().partition(b"content-length:")[2].partition(b"\r")[0])
            body = json.loads(await reader.readexactly(length))
            writer.write(replies[body.get("stream", False)])

    async def run() -> None:
        server = await asyncio.start_server(talk, "127.0.0.1", 0, limit=2**24)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


def _reply(body: bytes, kind: str) -> bytes:
    return (
        f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        + body
    )


def through_us(model: ChatModel, tools: Sequence[dict[str, Any]]) -> Ask:
    """Send a request through this package."""

    async def ask(stream: bool) -> str:
        said: list[Any] = []
        got = await model.complete(
            [UserMessage(content=QUESTION)], tools, on_event=said.append, stream=stream
        )
        return "".join(said) if stream else got.message.content or ""

    return ask


def through_openai(sdk: Any, tools: Sequence[dict[str, Any]]) -> Ask:
    """Ask chat completions, or LiteLLM, which has the same shape."""
    given: dict[str, Any] = {
        "model": "m-1",
        "tools": [{"type": "function", "function": tool} for tool in tools],
    }
    given |= {"messages": [{"role": "user", "content": QUESTION}], "tool_choice": "auto"}

    async def ask(stream: bool) -> str:
        if not stream:
            return str((await sdk(**given)).choices[0].message.content)
        chunks = await sdk(**given, stream=True, stream_options={"include_usage": True})
        return "".join(
            [chunk.choices[0].delta.content or "" async for chunk in chunks if chunk.choices]
        )

    return ask


def through_responses(sdk: Any, tools: Sequence[dict[str, Any]]) -> Ask:
    """Ask the Responses API."""
    from casual_mcp_nb.providers._strict_schema import strict_schema

    offered = [
        {
            "type": "function",
            **tool,
            "parameters": strict_schema(tool["parameters"]),
            "strict": True,
        }
        for tool in tools
    ]
    given: dict[str, Any] = {
        "model": "m-1",
        "tools": offered,
        "store": False,
        "input": [{"role": "user", "content": QUESTION}],
    }

    async def ask(stream: bool) -> str:
        if not stream:
            return str((await sdk(**given)).output_text)
        events = await sdk(**given, stream=True)
        return "".join(
            [event.delta async for event in events if event.type == "response.output_text.delta"]
        )

    return ask


def through_anthropic(sdk: Any, tools: Sequence[dict[str, Any]]) -> Ask:
    """Ask Anthropic's messages."""
    offered = [
        {"name": t["name"], "description": t["description"], "input_schema": t["parameters"]}
        for t in tools
    ]
    given: dict[str, Any] = {"model": "m-1", "max_tokens": 4096, "tools": offered}
    given["messages"] = [{"role": "user", "content": QUESTION}]

    async def ask(stream: bool) -> str:
        if not stream:
            return str((await sdk(**given)).content[0].text)
        events = await sdk(**given, stream=True)
        return "".join(
            [
                e.delta.text
                async for e in events
                if e.type == "content_block_delta" and e.delta.type == "text_delta"
            ]
        )

    return ask


def through_ollama(sdk: Any, tools: Sequence[dict[str, Any]]) -> Ask:
    """Ask Ollama's chat."""
    given: dict[str, Any] = {"model": "m-1", "messages": [{"role": "user", "content": QUESTION}]}
    given["tools"] = [{"type": "function", "function": tool} for tool in tools]

    async def ask(stream: bool) -> str:
        if not stream:
            return str((await sdk(**given)).message.content)
        return "".join(
            [chunk.message.content or "" async for chunk in await sdk(**given, stream=True)]
        )

    return ask


def bare(provider: str, url: str) -> Callable[[Sequence[dict[str, Any]]], Ask]:
    """Return the function that sends a request through a provider's bare SDK."""
    if provider == "ollama":
        from ollama import AsyncClient

        return lambda tools: through_ollama(AsyncClient(host=url).chat, tools)
    if provider == "anthropic":
        from anthropic import AsyncAnthropic

        return lambda tools: through_anthropic(
            AsyncAnthropic(api_key="k", base_url=url, max_retries=0).messages.create, tools
        )
    if provider == "litellm":
        from functools import partial

        import litellm

        more = {
            "api_key": "k",
            "base_url": f"{url}/v1",
            "custom_llm_provider": "openai",
            "max_retries": 0,
        }
        return lambda tools: through_openai(partial(litellm.acompletion, **more), tools)
    from openai import AsyncOpenAI

    sdk = AsyncOpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0)
    if provider == "openai":
        return lambda tools: through_openai(sdk.chat.completions.create, tools)
    return lambda tools: through_responses(sdk.responses.create, tools)


async def measure(asks: Sequence[Ask], rounds: int, expected: str) -> list[Pair]:
    """Return the best times of each variant, measured alternately."""
    best = [Pair() for _ in asks]
    for round_number in range(rounds + WARM_UP):
        for ask, pair in zip(asks, best, strict=True):
            for stream in (True, False):
                start = time.process_time()
                got = await ask(stream)
                seconds = time.process_time() - start
                assert got == expected, got[:100]
                if round_number >= WARM_UP:
                    name = "stream" if stream else "whole"
                    setattr(pair, name, min(getattr(pair, name), seconds))
    return best


async def compare(
    provider: str, tokens: int, rounds: int, tools: Sequence[dict[str, Any]]
) -> list[Pair]:
    """Return our times and the SDK's for an answer of a number of tokens."""
    wire = "openai" if provider == "litellm" else provider
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(
        target=serve, args=(wire, tokens, theirs), daemon=True
    )
    server.start()
    url = f"http://127.0.0.1:{await asyncio.to_thread(ours.recv)}"
    base = url if provider in ("anthropic", "ollama") else f"{url}/v1"
    client = {"provider": provider, "base_url": base, "api_key": "k"}
    factory = ModelFactory(
        Config.model_validate(
            {"clients": {"c": client}, "models": {"m": {"client": "c", "model": "m-1"}}}
        )
    )
    try:
        asks = [through_us(factory.chat_model(), tools), bare(provider, url)(tools)]
        return await measure(asks, rounds, "".join(words(tokens)))
    finally:
        await factory.close()
        server.terminate()
        server.join()


def some_tools(count: int) -> list[dict[str, Any]]:
    """Return definitions of typical size."""
    words = {"type": "string", "description": "The name of a place, such as 'Tromsø' or 'Bergen'."}
    properties = {
        "place": words,
        "days": {"type": "integer", "description": "How many days."},
        "exact": {"type": "boolean"},
    }
    parameters = {"type": "object", "properties": properties, "required": ["place"]}
    return [
        {"name": f"maps__find_{n}", "description": "Find a place.", "parameters": parameters}
        for n in range(count)
    ]


async def measured(
    providers: Sequence[str], tokens: int, rounds: int, tools: Sequence[dict[str, Any]]
) -> list[Figure]:
    """What a token and a call cost with each provider."""
    rows = []
    for provider in providers:
        one = await compare(provider, 1, rounds, tools)
        many = await compare(provider, tokens, rounds, tools)
        ours, sdk = [
            (m.stream - o.stream) / (tokens - 1) * 1e6 for m, o in zip(many, one, strict=True)
        ]
        ours_call, sdk_call = [pair.whole * 1e3 for pair in one]
        rows.append(Figure(f"{provider}, a token", ours, "µs", sdk))
        rows.append(Figure(f"{provider}, a call", ours_call, "ms", sdk_call))
    return rows


def figures(quick: bool) -> list[Figure]:
    """What each provider costs beyond its SDK."""
    available = [*PROVIDERS, *(["litellm"] if installed("litellm") else [])]
    return asyncio.run(
        measured(QUICK, 20, 1, some_tools(3))
        if quick
        else measured(available, 500, 9, some_tools(30))
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--tools", type=int, default=30)
    given = parser.parse_args()
    available = [*PROVIDERS, *(["litellm"] if installed("litellm") else [])]
    print_figures(
        asyncio.run(measured(available, given.tokens, given.rounds, some_tools(given.tools)))
    )
