"""A prompt of megabytes holds nobody, whichever way it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import httpx
import pytest
from kit.obedient import Obedient, order
from kit.waiting import wait_until

from casual_mcp_nb import Session
from casual_mcp_nb.base.tokens import estimate_tokens, message_tokens, sampled
from casual_mcp_nb.widgets.conversation import ConversationState

MEGABYTES = 6
KINDS = {
    "prose": "Lorem ipsum dolor sit amet, consectetur adipiscing elit. ",
    "signs": "a1!",
    "base64": "QmFzZTY0IGRhdGEgd2l0aG91dCBzcGFjZXMg",
    "code": "def f(x):\n    return {'a': [1, 2.5], 'b': x ** 2}\n",
    "Cyrillic": "Съешь же ещё этих мягких французских булок. ",
}


def long_text(kind: str, size: int = MEGABYTES * 1_000_000) -> str:
    return (KINDS[kind] * (size // len(KINDS[kind]) + 1))[:size]


@pytest.mark.defect("G2")
@pytest.mark.parametrize("size", [200_001, 6_000_000])
def test_of_a_long_text_only_a_sample_is_counted(size: int) -> None:
    counted: list[int] = []

    def count(part: str) -> int:
        counted.append(len(part))
        return len(part)

    assert sampled("x" * size, count) == size
    assert sum(counted) <= 200_000
    counted.clear()
    assert sampled("x" * 200_000, count) == 200_000
    assert counted == [200_000]


@pytest.mark.defect("G2")
@pytest.mark.parametrize("kind", [*KINDS, "all of them"])
def test_the_sample_stands_for_the_whole(kind: str) -> None:
    size = 1_000_000
    text = (
        "".join(long_text(each, size // len(KINDS)) for each in KINDS)
        if kind not in KINDS
        else long_text(kind, size)
    )
    piecewise = sum(
        estimate_tokens(text[start : start + 200_000]) for start in range(0, len(text), 200_000)
    )
    assert estimate_tokens(text) == pytest.approx(piecewise, rel=0.05)
    assert estimate_tokens(text) == estimate_tokens(text)


@pytest.mark.defect("G2")
def test_many_short_texts_are_counted_as_one() -> None:
    from casual_llm.messages import TextContent, UserMessage

    calls: list[int] = []

    def count(text: str) -> int:
        calls.append(len(text))
        return estimate_tokens(text)

    message = UserMessage(content=[TextContent(text="word")] * 10_000)
    assert message_tokens(message, count) == pytest.approx(10_000, rel=0.1)
    assert len(calls) == 1


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Obedient() as model, Session(model.config, quiet=True) as session:
        yield session


def by_chat(session: Session, text: str) -> str:
    return session.chat(text, echo="none").answer


def by_stream(session: Session, text: str) -> str:
    async def read() -> None:
        _ = [event async for event in session.stream(text)]

    asyncio.run(read())
    return session.turns[-1].answer


def by_panel(session: Session, text: str) -> str:
    panel = ConversationState(session)
    try:
        session.parts.engine.run(panel.call("send", {"prompt": text}))
        wait_until(lambda: not session.parts.runner.busy, "the turn ends")
        assert panel.snapshot()["turns"]
    finally:
        panel.close()
    return session.turns[-1].answer


def by_http(session: Session, text: str) -> str:
    with session.serve.http(port=0) as service:
        body = {"model": "small", "messages": [{"role": "user", "content": text}]}
        answer: str = httpx.post(f"{service.url}/chat", json=body, timeout=60).json()["response"]
    return answer


@pytest.mark.defect("G2")
@pytest.mark.parametrize("ask", [by_chat, by_stream, by_panel, by_http])
@pytest.mark.parametrize("kind", ["prose", "signs"])
def test_a_prompt_of_megabytes_holds_no_loop(
    session: Session, ask: Callable[[Session, str], str], kind: str
) -> None:
    # The watch over all loops, see `kit.loop_guard`, fails the test if one is held.
    assert ask(session, order("Hi", padding=long_text(kind))) == "Hi"
    session.conversations.new()
