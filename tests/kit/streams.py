"""Streamed answers in the wire formats of OpenAI (both of them), Anthropic, Google and Ollama, as
lines on the wire.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from kit.provider import gemini_answer, gemini_call, response, response_call, response_text
from kit.scripted_http import Reply

KINDS = {
    "openai": "text/event-stream",
    "openai-responses": "text/event-stream",
    "anthropic": "text/event-stream",
    "gemini": "text/event-stream",
    "ollama": "application/x-ndjson",
}

Call = tuple[str, str, str]
"""Id, name on the wire, arguments as text."""


def streamed(
    provider: str, text: Sequence[str] = (), *calls: Call, usage: bool = True, end: bool = True
) -> bytes:
    """The body of a streamed answer: usage is 30 tokens of which 12 were cached, 7 for the answer,
    3 of them reasoning.

    Args:
        provider: One of `kit.provider.PROVIDERS`.
        text: The pieces of the text.
        calls: Calls of tools; their arguments are sent letter by letter, side by side where the
            format allows it.
        usage: Whether usage is reported.
        end: Whether the end is marked.
    """
    makers = {
        "openai": _openai,
        "openai-responses": _responses,
        "anthropic": _anthropic,
        "gemini": _gemini,
        "ollama": _ollama,
    }
    return "".join(makers[provider](text, calls, usage, end)).encode()


def reply(provider: str, body: bytes, *, bytewise: bool = False, **more: Any) -> Reply:
    """The reply that streams a body, in one piece or byte by byte."""
    sent = iter([bytes([byte]) for byte in body]) if bytewise else body
    return Reply(200, sent, {"content-type": KINDS[provider]}, **more)


def _openai(text: Sequence[str], calls: Sequence[Call], usage: bool, end: bool) -> Iterator[str]:
    for piece in text:
        yield _openai_chunk({"content": piece})
    for index, (call_id, name, _) in enumerate(calls):
        function = {"name": name, "arguments": ""}
        yield _openai_chunk(
            {
                "tool_calls": [
                    {"index": index, "id": call_id, "type": "function", "function": function}
                ]
            }
        )
    for letters in zip_longest(*(arguments for _, _, arguments in calls)):
        parts = [
            {"index": i, "function": {"arguments": letter}}
            for i, letter in enumerate(letters)
            if letter is not None
        ]
        yield _openai_chunk({"tool_calls": parts})
    if end:
        yield _openai_chunk({}, "tool_calls" if calls else "stop")
    if usage:
        details = {
            "prompt_tokens_details": {"cached_tokens": 12},
            "completion_tokens_details": {"reasoning_tokens": 3},
        }
        counted = {"prompt_tokens": 30, "completion_tokens": 7, "total_tokens": 37, **details}
        yield _data({**_CHUNK, "choices": [], "usage": counted})
    if end:
        yield "data: [DONE]\n\n"


_CHUNK = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m-1"}


def _openai_chunk(delta: dict[str, Any], reason: str | None = None) -> str:
    return _data({**_CHUNK, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})


def _responses(text: Sequence[str], calls: Sequence[Call], usage: bool, end: bool) -> Iterator[str]:
    items = [response_text("".join(text))] if text else []
    yield _event("response.created", response=response(status="in_progress"), sequence_number=0)
    yield _event("response.in_progress", response=response(status="in_progress"), sequence_number=0)
    if text:
        at = {"item_id": "msg_1", "output_index": 0, "content_index": 0, "sequence_number": 0}
        begun = {**items[0], "status": "in_progress", "content": []}
        yield _event("response.output_item.added", output_index=0, item=begun, sequence_number=0)
        yield _event(
            "response.content_part.added",
            part={"type": "output_text", "text": "", "annotations": []},
            **at,
        )
        for piece in text:
            yield _event("response.output_text.delta", delta=piece, logprobs=[], **at)
        yield _event("response.output_text.done", text="".join(text), logprobs=[], **at)
        yield _event("response.content_part.done", part=items[0]["content"][0], **at)
        yield _event("response.output_item.done", output_index=0, item=items[0], sequence_number=0)
    tool_calls = [response_call(*call) for call in calls]
    first = len(items)
    for index, call in enumerate(tool_calls, start=first):
        begun = {**call, "arguments": "", "status": "in_progress"}
        yield _event(
            "response.output_item.added", output_index=index, item=begun, sequence_number=0
        )
    for letters in zip_longest(*(arguments for _, _, arguments in calls)):
        for index, letter in enumerate(letters, start=first):
            if letter is not None:
                at = {
                    "item_id": tool_calls[index - first]["id"],
                    "output_index": index,
                    "sequence_number": 0,
                }
                yield _event("response.function_call_arguments.delta", delta=letter, **at)
    # Only what has ended is there for good; where the stream is broken off nothing has.
    for index, call in enumerate(tool_calls if end else [], start=first):
        yield _event("response.output_item.done", output_index=index, item=call, sequence_number=0)
    if end:
        counted = {
            "input_tokens": 30,
            "input_tokens_details": {"cached_tokens": 12, "cache_write_tokens": 0},
            "output_tokens": 7,
            "output_tokens_details": {"reasoning_tokens": 3},
            "total_tokens": 37,
        }
        whole = response(*items, *tool_calls, usage=counted if usage else None)
        yield _event("response.completed", response=whole, sequence_number=0)


def _data(value: Any) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"


def _anthropic(text: Sequence[str], calls: Sequence[Call], usage: bool, end: bool) -> Iterator[str]:
    counts = (
        {"input_tokens": 18, "cache_read_input_tokens": 12, "output_tokens": 1} if usage else None
    )
    message = {
        "id": "1",
        "type": "message",
        "role": "assistant",
        "model": "m-1",
        "content": [],
        "usage": counts,
    }
    yield _event("message_start", message=message)
    yield _event("ping")
    yield from _block(
        0, {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in text]
    )
    for index, (call_id, name, arguments) in enumerate(calls, start=1):
        deltas = [{"type": "input_json_delta", "partial_json": letter} for letter in arguments]
        yield from _block(
            index, {"type": "tool_use", "id": call_id, "name": name, "input": {}}, deltas
        )
    if end:
        reason = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
        details = {"output_tokens": 7, "output_tokens_details": {"thinking_tokens": 3}}
        yield _event("message_delta", delta=reason, **({"usage": details} if usage else {}))
        yield _event("message_stop")


def anthropic_blocks(blocks: Sequence[Mapping[str, Any]], reason: str) -> bytes:
    """The body of a streamed answer of Anthropic's that has these blocks, text and thinking letter
    by letter.
    """
    usage = {"input_tokens": 30, "output_tokens": 1}
    message = {
        "id": "1",
        "type": "message",
        "role": "assistant",
        "model": "m-1",
        "content": [],
        "usage": usage,
    }
    lines = [_event("message_start", message=message)]
    for index, block in enumerate(blocks):
        kind = block["type"]
        deltas = [{"type": f"{kind}_delta", kind: letter} for letter in block.get(kind, "")]
        if kind == "tool_use":
            deltas = [
                {"type": "input_json_delta", "partial_json": letter}
                for letter in json.dumps(block["input"])
            ]
        if block.get("signature"):
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        empty = {"text": "", "thinking": "", "signature": "", "input": {}}
        lines += _block(
            index, {name: empty.get(name, value) for name, value in block.items()}, deltas
        )
    lines.append(
        _event(
            "message_delta",
            delta={"stop_reason": reason, "stop_sequence": None},
            usage={"output_tokens": 7},
        )
    )
    return "".join([*lines, _event("message_stop")]).encode()


def _block(index: int, block: dict[str, Any], deltas: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield _event("content_block_start", index=index, content_block=block)
    for delta in deltas:
        yield _event("content_block_delta", index=index, delta=delta)
    yield _event("content_block_stop", index=index)


def _event(kind: str, **fields: Any) -> str:
    return f"event: {kind}\n" + _data({"type": kind, **fields})


def _gemini(text: Sequence[str], calls: Sequence[Call], usage: bool, end: bool) -> Iterator[str]:
    counts = {"cachedContentTokenCount": 12, "thoughtsTokenCount": 3}
    for piece in text:
        yield _data(gemini_answer([{"text": piece}], None, (30, 1) if usage else None))
    for call_id, name, arguments in calls:
        yield _data(gemini_answer([gemini_call(call_id, name, json.loads(arguments))], None, None))
    if end:
        # The answer's own tokens, beside those of its thoughts.
        yield _data(
            gemini_answer([{"text": ""}], "STOP", (30, 4), **counts)
            if usage
            else gemini_answer([{"text": ""}], usage=None)
        )


def _ollama(text: Sequence[str], calls: Sequence[Call], usage: bool, end: bool) -> Iterator[str]:
    for piece in text:
        yield _ollama_line({"content": piece})
    for _, name, arguments in calls:
        yield _ollama_line(
            {
                "content": "",
                "tool_calls": [{"function": {"name": name, "arguments": json.loads(arguments)}}],
            }
        )
    if end:
        counts = {"prompt_eval_count": 30, "eval_count": 7} if usage else {}
        yield _ollama_line({"content": ""}, done=True, done_reason="stop", **counts)


def _ollama_line(message: dict[str, Any], **more: Any) -> str:
    line = {
        "model": "m-1",
        "created_at": "2026-01-01T00:00:00Z",
        "message": {"role": "assistant", **message},
        "done": False,
    }
    return json.dumps({**line, **more}, ensure_ascii=False) + "\n"
