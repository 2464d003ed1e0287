"""Calls as gateways write them: what can only mean one call is that call, on every wire, streamed
and whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest
from casual_llm.messages import UserMessage
from fastmcp import FastMCP
from kit.provider import Provider, answer, response, response_call
from kit.scripted_http import Reply
from kit.streams import reply, streamed

from casual_mcp_nb.base.arguments import parse_arguments, problem_of
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.errors import IncompleteStreamError
from casual_mcp_nb.providers._calls import whole_name
from casual_mcp_nb.providers.builtin.litellm import quiet_litellm
from casual_mcp_nb.providers.chat_model import ChatModel

HAS_LITELLM = find_spec("litellm") is not None
OF_LITELLM = [
    pytest.mark.skipif(not HAS_LITELLM, reason="litellm is not installed"),
    pytest.mark.holds_the_loop("LiteLLM imports what a request needs while it makes the first one"),
    *(
        pytest.mark.filterwarnings(f"ignore::{kind}Warning")
        for kind in ("User", "Deprecation", "Resource")
    ),
]
if HAS_LITELLM:
    # Before a loop runs, which its import would hold.
    quiet_litellm()

ASKED = [UserMessage(content="Add.")]
MEANT = {"a": 1, "text": "one\ntwo"}
TEXT = json.dumps(MEANT)
ARGUMENTS = {
    "as they should be": TEXT,
    "after an empty object": "{}" + TEXT,
    "before an empty object": TEXT + " {}",
    "the same object twice": TEXT + TEXT,
    "in another spelling": TEXT + json.dumps(MEANT, indent=2),
    "encoded twice": json.dumps(TEXT),
    "encoded three times": json.dumps(json.dumps(TEXT)),
    "encoded, after an empty object": "{}" + json.dumps(TEXT),
    "a raw line break": '{"a": 1, "text": "one\ntwo"}',
    "empty objects only": "{}{}",
    "nothing": "",
}
AMBIGUOUS = {
    "two objects": '{"a": 1}{"a": 2}',
    "true and 1": '{"a": 1}{"a": true}',
    "an object and a list": '{"a": 1}[2]',
    "a number": "7",
    "cut": '{"a": 1, "text": "on',
    "an object and half of one": '{"a": 1}{"a": 1',
}
WIRES = ("openai", "openai-responses", "anthropic", "ollama")
"""Google's own API alone speaks Gemini's format, and its arguments are objects."""


def openai_message(arguments: Any, **fields: Any) -> dict[str, Any]:
    call = {"id": "c1", "type": "function", "function": {"name": "s__add", "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call], **fields}


def openai_whole(
    message: dict[str, Any], reason: str | None = "tool_calls", *more: dict[str, Any]
) -> dict[str, Any]:
    return {
        **answer("openai", ""),
        "choices": [{"index": 0, "message": message, "finish_reason": reason}, *more],
    }


def whole(wire: str, arguments: Any) -> dict[str, Any]:
    """The body of an answer whose call has these arguments, as they are."""
    if wire == "openai":
        return openai_whole(openai_message(arguments))
    if wire == "openai-responses":
        return response(response_call("c1", "s__add", arguments))
    if wire == "anthropic":
        body = answer("anthropic", "", ("s__add", {}))
        body["content"][0]["input"] = arguments
        return body
    body = answer("ollama", "", ("s__add", {}))
    body["message"]["tool_calls"][0]["function"]["arguments"] = arguments
    return body


def reply_with(wire: str, arguments: str, streams: bool) -> Reply:
    if not streams:
        return Reply(200, whole(wire, arguments))
    if wire == "ollama":
        return reply("ollama", json.dumps(whole("ollama", arguments)).encode() + b"\n")
    return reply(wire, streamed(wire, (), ("c1", "s__add", arguments)))


@pytest.mark.defect("M6")
@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("wire", WIRES)
async def test_arguments_that_mean_one_object_are_that_object(
    wire: str, streams: bool, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    made = {}
    for how, text in {**ARGUMENTS, **AMBIGUOUS}.items():
        server = serving(reply_with(wire, text, streams))
        got = await model_of(server, wire).complete(
            ASKED, on_event=(lambda _: None) if streams else None
        )
        (call,) = got.message.tool_calls or ()
        made[how] = call.function.arguments
    empty = ("empty objects only", "nothing")
    assert {how: json.loads(made[how]) for how in ARGUMENTS} == {
        how: {} if how in empty else MEANT for how in ARGUMENTS
    }
    # The model is told of the others, with its own words.
    assert {how: made[how] for how in AMBIGUOUS} == AMBIGUOUS


@pytest.mark.defect("M6")
@pytest.mark.parametrize("text", AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_what_is_ambiguous_is_named(text: str) -> None:
    assert parse_arguments(text) == text
    several = text in (AMBIGUOUS["two objects"], AMBIGUOUS["true and 1"])
    assert ("several different" in problem_of(text)) is several


def chunk(*parts: dict[str, Any], reason: str | None = None, **delta: Any) -> dict[str, Any]:
    return {
        "index": 0,
        "delta": {**({"tool_calls": list(parts)} if parts else {}), **delta},
        "finish_reason": reason,
    }


def piece(name: str | None = None, arguments: Any = "", **more: Any) -> dict[str, Any]:
    return {
        "index": 0,
        "function": {**({"name": name} if name else {}), "arguments": arguments},
        **more,
    }


def streamed_chunks(*choices: Any, done: bool = True, **fields: Any) -> bytes:
    """A stream of chunks, each with one choice, or with the choices that are a list."""
    head = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m-1", **fields}
    lines = [{**head, "choices": each if isinstance(each, list) else [each]} for each in choices]
    return "".join(
        [*(f"data: {json.dumps(line)}\n\n" for line in lines), "data: [DONE]\n\n" if done else ""]
    ).encode()


END = chunk(reason="tool_calls")
ADD, SUB, NOW = "s__add", "s__sub", "s__now"
OFFERED = [
    {"name": name, "description": "", "parameters": {"type": "object"}} for name in (ADD, SUB, NOW)
]
ONE, TWO = [(ADD, {"a": 1})], [(ADD, {"a": 1}), (SUB, {"a": 2})]
PIECES: dict[str, tuple[list[Any], list[tuple[str, Any]]]] = {
    "the whole name in each chunk": ([piece(ADD, '{"a"'), piece(ADD, ":"), piece(ADD, " 1}")], ONE),
    "the name again at the end": ([piece(ADD, '{"a": 1}'), piece(ADD, "")], ONE),
    "the name so far in each chunk": (
        [piece("s__"), piece("s__add"), piece(None, '{"a": 1}')],
        ONE,
    ),
    "the name in pieces": ([piece("s__"), piece("add"), piece(None, '{"a": 1}')], ONE),
    "the whole call again": ([piece(ADD, '{"a": 1}'), piece(ADD, '{"a": 1}')], ONE),
    "the whole call again in pieces": (
        [piece(ADD, '{"a": 1}'), piece(ADD, '{"a"'), piece(None, ": 1}")],
        ONE,
    ),
    "the arguments again": ([piece(ADD, '{"a": 1}'), piece(None, '{"a": 1}')], ONE),
    "an empty object first": ([piece(ADD, "{}"), piece(None, '{"a": 1}')], ONE),
    "an empty object first, named again": ([piece(ADD, "{}"), piece(ADD, '{"a": 1}')], ONE),
    "a first call without arguments": ([piece(NOW), piece(ADD, '{"a": 1}')], [(NOW, {}), *ONE]),
    "two calls without ids": ([piece(ADD, '{"a": 1}'), piece(SUB, '{"a": 2}')], TWO),
    "one tool twice without ids": (
        [piece(ADD, '{"a": 1}'), piece(ADD, '{"a": 2}')],
        [*ONE, (ADD, {"a": 2})],
    ),
    "an id in each chunk": (
        [piece(ADD, '{"a"', id="x1"), piece(None, ":", id="x2"), piece(None, " 1}", id="x3")],
        ONE,
    ),
    "name and an id in each chunk": (
        [piece(ADD, '{"a"', id="x1"), piece(ADD, ": 1}", id="x2")],
        ONE,
    ),
    "an id that comes late": ([piece(ADD), piece(None, '{"a": 1}', id="x")], ONE),
    "equal calls with ids": (
        [piece(ADD, '{"a": 1}', id="x"), piece(ADD, '{"a": 1}', id="y")],
        [*ONE, *ONE],
    ),
    "a last piece with the name and no id": ([piece(ADD, '{"a": 1', id="x"), piece(ADD, "}")], ONE),
    "pieces of two calls in turn": (
        [
            piece(ADD, '{"a"', id="x"),
            piece(SUB, '{"a"', id="y"),
            piece(None, ": 1}", id="x"),
            piece(None, ": 2}", id="y"),
        ],
        TWO,
    ),
    "an id that is a number": ([piece(ADD, '{"a"', id=7), piece(None, ": 1}", id=7)], ONE),
    "an entry with nothing in it": (
        [piece(ADD, '{"a": 1}', id="x"), {"index": 1, "id": "", "type": "function"}],
        ONE,
    ),
    "no index": (
        [{"function": {"name": ADD, "arguments": '{"a"'}}, {"function": {"arguments": ": 1}"}}],
        ONE,
    ),
    "an index of null": ([piece(ADD, '{"a"', index=None), piece(None, ": 1}", index=None)], ONE),
    "numbers from 1": ([piece(ADD, '{"a": 1}', index=1), piece(SUB, '{"a": 2}', index=2)], TWO),
    "numbers as text": ([piece(ADD, '{"a"', index="0"), piece(None, ": 1}", index="0")], ONE),
    "an index that is a list": (
        [piece(ADD, '{"a"', index=[0]), piece(None, ": 1}", index=[0])],
        ONE,
    ),
    "arguments as an object": ([piece(ADD, {"a": 1})], ONE),
    "arguments of null": ([piece(NOW, None)], [(NOW, {})]),
    "an empty id": ([piece(ADD, '{"a"', id=""), piece(None, ": 1}", id="")], ONE),
}


DROPPED_BY_LITELLM = ("an id that is a number", "an index that is a list")


async def calls_in(
    body: bytes, serving: Any, model_of: Any, wire: str = "openai"
) -> list[tuple[str, Any]]:
    server = serving(reply("openai", body), "asked again")
    got = await model_of(server, wire).complete(ASKED, OFFERED, on_event=lambda _: None)
    assert len(server.seen) == 1
    return [
        (call.function.name, json.loads(call.function.arguments))
        for call in got.message.tool_calls or ()
    ]


@pytest.mark.defect("M6")
@pytest.mark.parametrize("how", PIECES)
@pytest.mark.parametrize("wire", ["openai", pytest.param("litellm", marks=OF_LITELLM)])
async def test_a_call_in_odd_pieces_is_the_call_that_it_must_be(
    how: str, wire: str, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    if wire == "litellm" and how in DROPPED_BY_LITELLM:
        pytest.skip("LiteLLM's own types refuse it, and it drops the call")
    pieces, meant = PIECES[how]
    assert (
        await calls_in(streamed_chunks(*map(chunk, pieces), END), serving, model_of, wire) == meant
    )


TEXT_LIST = [{"type": "text", "text": "It is "}, {"type": "text", "text": "1."}]
HELLO = chunk(content="It is 1.")
CALL = chunk(piece(ADD, '{"a": 1}', id="x"))
LEGACY = {
    "role": "assistant",
    "content": None,
    "function_call": {"name": ADD, "arguments": '{"a": 1}'},
}
ANSWERS: dict[str, tuple[Any, list[tuple[str, Any]], str]] = {
    "two calls in each chunk, without numbers": (
        streamed_chunks(
            chunk({"function": {"name": ADD}}, {"function": {"name": SUB}}),
            chunk({"function": {"arguments": '{"a": 1}'}}, {"function": {"arguments": '{"a": 2}'}}),
            END,
        ),
        TWO,
        "",
    ),
    "an id that is a number, whole": (
        openai_whole(
            {
                "role": "assistant",
                "tool_calls": [{"id": 7, "function": {"name": ADD, "arguments": '{"a": 1}'}}],
            }
        ),
        ONE,
        "",
    ),
    "an entry without a function, whole": (
        openai_whole(
            {
                "role": "assistant",
                "content": "It is 1.",
                "tool_calls": [{"id": "", "type": "function"}],
            },
            "stop",
        ),
        [],
        "It is 1.",
    ),
    "an empty list of calls, usage of null": (
        {
            **openai_whole({"role": "assistant", "content": "It is 1.", "tool_calls": []}, "stop"),
            "usage": None,
        },
        [],
        "It is 1.",
    ),
    "usage in words": (
        {
            **openai_whole({"content": "It is 1."}, "stop"),
            "usage": {"prompt_tokens": "many", "completion_tokens": None},
        },
        [],
        "It is 1.",
    ),
    "calls and the reason tool_call": (
        streamed_chunks(CALL, chunk(reason="tool_call")),
        ONE,
        "",
    ),
    "calls and the reason stop": (
        streamed_chunks(chunk(piece(ADD, '{"a": 1}', id="x"), reason="stop")),
        ONE,
        "",
    ),
    "a function_call": (
        streamed_chunks(
            chunk(function_call={"name": ADD, "arguments": '{"a"'}),
            chunk(function_call={"arguments": ": 1}"}),
            chunk(reason="function_call"),
        ),
        ONE,
        "",
    ),
    "a function_call, whole": (
        openai_whole(
            {
                "role": "assistant",
                "content": None,
                "function_call": {"name": ADD, "arguments": '{"a": 1}'},
            },
            "function_call",
        ),
        ONE,
        "",
    ),
    "arguments as an object, whole": (openai_whole(openai_message({"a": 1})), ONE, ""),
    "text and calls in two choices": (
        openai_whole(
            {"role": "assistant", "content": "It is 1."},
            "tool_calls",
            {"index": 1, "message": openai_message('{"a": 1}'), "finish_reason": "tool_calls"},
        ),
        ONE,
        "It is 1.",
    ),
    "a null among the calls": (openai_whole(openai_message('{"a": 1}', content="")), ONE, ""),
    "content in parts, whole": (
        openai_whole({"role": "assistant", "content": TEXT_LIST}, "stop"),
        [],
        "It is 1.",
    ),
    "content in parts": (
        streamed_chunks(chunk(content=TEXT_LIST), chunk(reason="stop")),
        [],
        "It is 1.",
    ),
    "content as one part": (
        streamed_chunks(chunk(content=TEXT_LIST[0]), chunk(content="1.", reason="stop")),
        [],
        "It is 1.",
    ),
    "content as a list of texts": (
        streamed_chunks(chunk(content=["It is ", "1."]), chunk(reason="stop")),
        [],
        "It is 1.",
    ),
    "no role, usage of null": (
        streamed_chunks(HELLO, chunk(reason="stop"), usage=None),
        [],
        "It is 1.",
    ),
    "several choices": (
        streamed_chunks([HELLO, {**chunk(content="It is 2."), "index": 1}], chunk(reason="stop")),
        [],
        "It is 1.",
    ),
    "choices of null in between": (
        streamed_chunks(HELLO, [], chunk(reason="stop")),
        [],
        "It is 1.",
    ),
    "a delta of null at the end": (
        streamed_chunks(HELLO, {"index": 0, "delta": None, "finish_reason": "stop"}),
        [],
        "It is 1.",
    ),
    "a message instead of a delta": (
        streamed_chunks(
            {
                "index": 0,
                "message": {"role": "assistant", "content": "It is 1."},
                "finish_reason": "stop",
            }
        ),
        [],
        "It is 1.",
    ),
    "the final chunk twice": (
        streamed_chunks(HELLO, chunk(reason="stop"), chunk(reason="stop")),
        [],
        "It is 1.",
    ),
    "no reason, and the end mark": (streamed_chunks(HELLO), [], "It is 1."),
    "an empty reason, and the end mark": (streamed_chunks(HELLO, chunk(reason="")), [], "It is 1."),
    "a call, no reason, and the end mark": (
        streamed_chunks(chunk(piece(ADD, '{"a": 1}', id="x"))),
        ONE,
        "",
    ),
    "a call, an empty reason, and no end mark": (
        streamed_chunks(
            chunk(piece(ADD, '{"a": 1}', id="x"), reason=""), chunk(reason=""), done=False
        ),
        ONE,
        "",
    ),
}


@pytest.mark.defect("M12")
@pytest.mark.parametrize("how", ANSWERS)
async def test_an_answer_in_an_odd_form_is_understood(
    how: str, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    body, calls, text = ANSWERS[how]
    streams = isinstance(body, bytes)
    server = serving(reply("openai", body) if streams else Reply(200, body), "asked again")
    got = await model_of(server, "openai").complete(
        ASKED, OFFERED, on_event=(lambda _: None) if streams else None
    )
    assert [
        (call.function.name, json.loads(call.function.arguments))
        for call in got.message.tool_calls or ()
    ] == calls
    assert got.message.content == text
    assert len(server.seen) == 1


FAILED = {
    "openai": [
        openai_whole({"role": "assistant", "content": "It is"}, "error"),
        openai_whole(LEGACY, "error"),
    ],
    "ollama": [{**answer("ollama", "It is"), "done_reason": "error"}],
    "anthropic": [{**answer("anthropic", "It is"), "stop_reason": "error"}],
}


@pytest.mark.defect("M12")
@pytest.mark.parametrize(
    ("wire", "body"), [(wire, body) for wire, bodies in FAILED.items() for body in bodies]
)
async def test_an_answer_that_ended_with_an_error_is_not_done(
    wire: str, body: dict[str, Any]
) -> None:
    with Provider(body) as server:
        async with McpToolChat.from_config(server.config(wire, max_retries=0)) as chat:
            turn = await chat.run(ASKED, TurnOptions(stream=False))
    assert turn.status == "failed"
    assert "'error'" in (turn.error or "")


@pytest.mark.defect("M12")
@pytest.mark.parametrize("done", [True, False])
async def test_a_stream_that_ended_with_an_error_keeps_its_text(done: bool) -> None:
    body = streamed_chunks(HELLO, chunk(reason="error"), done=done)
    with Provider(reply("openai", body)) as server:
        async with McpToolChat.from_config(server.config("openai", max_retries=0)) as chat:
            turn = await chat.run(ASKED)
    assert turn.status == "failed"
    assert len(server.seen) == 1
    assert "It is 1." in str(turn.exception.partial)  # type: ignore[union-attr]


@pytest.mark.defect("M12")
@pytest.mark.parametrize(
    "choices",
    [[HELLO], [chunk(piece(ADD, '{"a": 1')), chunk(reason="")]],
    ids=["text", "half a call"],
)
async def test_a_stream_without_reason_or_end_mark_is_incomplete(choices: list[Any]) -> None:
    with Provider(reply("openai", streamed_chunks(*choices, done=False))) as server:
        async with McpToolChat.from_config(server.config("openai", max_retries=0)) as chat:
            turn = await chat.run(ASKED)
    assert isinstance(turn.exception, IncompleteStreamError)


@pytest.mark.defect("M6")
async def test_a_call_that_is_ambiguous_is_told_to_the_model_and_others_run() -> None:
    server: FastMCP[Any] = FastMCP("s")
    ran: list[int] = []

    @server.tool
    def add(a: int) -> str:
        """Add."""
        ran.append(a)
        return str(a)

    first = openai_message('{"a": 1}{"a": 2}')
    second = openai_message('{}{"a": 3}')
    replies = [openai_whole(first), openai_whole(second), answer("openai", "Done.")]
    with Provider(*replies) as provider:
        async with McpToolChat.from_config(
            provider.config("openai"), in_process={"s": server}
        ) as chat:
            turn = await chat.run(ASKED, TurnOptions(stream=False))
    assert [call.status for call in turn.tool_calls] == ["error", "ok"]
    assert "several different JSON objects" in turn.tool_calls[0].result
    assert ran == [3]


def test_names_that_repeat_themselves_are_told_from_repeated_ones() -> None:
    assert whole_name(["da", "da"], {"dada"}) == "dada"
    assert whole_name(["da", "da"], {"da"}) == "da"
    assert whole_name(["da", "da"], ()) == "da"
    assert whole_name(["get", "_a"], ()) == "get_a"
    assert whole_name(["get", "get_a", "get_a"], {"get_a"}) == "get_a"
