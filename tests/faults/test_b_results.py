"""What comes back: hostile characters, errors, structured content, images, content that nobody
knows.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from kit.history import assert_valid
from kit.turns import ask

from casual_mcp_nb.providers.scripted import call, scripted_model

Raw = Callable[..., dict[str, Any]]
Opened = Callable[..., Any]

HOSTILE = (
    "\x00\x07\x1b[2J\x1b]8;;http://evil.test\x07link\x1b]8;;\x07\u202egnp.exe\u200b\u2066\ufeff end"
)


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


@pytest.mark.fault(24)
async def test_hostile_characters_reach_the_model_unharmed_and_are_marks_in_the_display(
    opened: Opened, raw: Raw
) -> None:
    chat = await opened({"odd": raw(calls={"a": {"result": {"content": [text(HOSTILE)]}}})})
    model = scripted_model(call("odd__a"), HOSTILE)
    turn = await ask(chat, model=model)
    assert model.client.requests[1].messages[-1].content == HOSTILE
    assert turn.tool_calls[0].content[0].text == HOSTILE
    shown = turn._repr_mimebundle_()
    for kind in ("text/plain", "text/html", "text/markdown"):
        assert "end" in shown[kind]
        assert not set(shown[kind]) & set("\x00\x07\x1b\u202e\u200b\u2066\ufeff"), kind
    assert "�" in shown["text/plain"] or "\\x" in shown["text/plain"] or "␛" in shown["text/plain"]


@pytest.mark.fault(25)
async def test_a_result_that_is_marked_as_an_error_reaches_the_model_as_one_and_is_counted(
    opened: Opened, raw: Raw
) -> None:
    failed = {"result": {"content": [text("the disk is full")], "isError": True}}
    chat = await opened(
        {"disk": raw(calls={"write": failed, "read": {"result": {"content": [text("ok")]}}})}
    )
    turn = await ask(chat, call("disk__write"), call("disk__read"), "done")
    assert [(c.status, c.result) for c in turn.tool_calls] == [
        ("error", "Error: the disk is full"),
        ("ok", "ok"),
    ]
    assert turn.stats.tool_calls.total == 2
    assert turn.stats.tool_calls.failed == 1


@pytest.mark.fault(26)
async def test_an_error_without_content_and_a_json_rpc_error_are_said_in_words(
    opened: Opened, raw: Raw
) -> None:
    plan = {
        "mute": {"result": {"content": [], "isError": True}},
        "refused": {"error": {"code": -32000, "message": "no disk left"}},
    }
    chat = await opened({"strict": raw(calls=plan)})
    turn = await ask(chat, call("strict__mute"), call("strict__refused"), "done")
    assert [c.status for c in turn.tool_calls] == ["error", "error"]
    mute, refused = (each.result for each in turn.tool_calls)
    assert re.fullmatch("Error: .+ without text", mute)
    assert re.fullmatch("Error: .*'refused' .*'strict' .*: no disk left", refused)
    assert_valid(turn.messages)


@pytest.mark.fault(27)
async def test_structured_content_is_given_as_json_alone_and_after_a_text_that_lacks_it(
    opened: Opened, raw: Raw
) -> None:
    plan = {
        "alone": {"result": {"content": [], "structuredContent": {"answer": 42}}},
        "both": {"result": {"content": [text("forty-two")], "structuredContent": {"answer": 42}}},
        "same": {
            "result": {"content": [text('{"answer": 42}')], "structuredContent": {"answer": 42}}
        },
    }
    chat = await opened({"lab": raw(calls=plan)})
    turn = await ask(chat, call("lab__alone"), call("lab__both"), call("lab__same"), "done")
    alone, both, same = turn.tool_calls
    assert json.loads(alone.result) == alone.structured == {"answer": 42}
    said, _, structured = both.result.split("\n", 2)
    assert (said, json.loads(structured), both.structured) == (
        "forty-two",
        {"answer": 42},
        {"answer": 42},
    )
    assert json.loads(same.result) == same.structured == {"answer": 42}
    assert "42" in turn._repr_html_()


@pytest.mark.fault(28)
async def test_structured_content_that_breaks_its_schema_names_the_field_and_keeps_text(
    opened: Opened, raw: Raw
) -> None:
    schema = {"type": "object", "properties": {"answer": {"type": "integer"}}}
    tools = [{"name": "ask", "inputSchema": {"type": "object"}, "outputSchema": schema}]
    result = {"content": [text("forty-two")], "structuredContent": {"answer": "forty-two"}}
    chat = await opened({"loose": raw(tools=tools, calls={"ask": {"result": result}})})
    turn = await ask(chat, call("loose__ask"), "done")
    assert turn.tool_calls[0].status == "error"
    assert turn.tool_calls[0].result.startswith("Error: forty-two\n")
    assert re.search(r"\$\.answer: 'forty-two' .*'integer'", turn.tool_calls[0].result)


# The smallest PNG: one transparent pixel.
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="


LINK = "https://host.test/report.pdf"


@pytest.mark.fault(29)
async def test_images_audio_resources_and_links_are_shown_with_type_size_and_address(
    opened: Opened, raw: Raw
) -> None:
    blob = base64.b64encode(b"0123456789").decode()
    content = [
        {"type": "image", "data": PNG, "mimeType": "image/png"},
        {"type": "audio", "data": blob, "mimeType": "audio/wav"},
        {
            "type": "resource",
            "resource": {
                "uri": "file:///notes.txt",
                "mimeType": "text/plain",
                "text": "some notes",
            },
        },
        {
            "type": "resource",
            "resource": {"uri": "file:///data.bin", "mimeType": "application/zip", "blob": blob},
        },
        {
            "type": "resource_link",
            "name": "report",
            "mimeType": "application/pdf",
            "size": 2048,
            "uri": LINK,
        },
    ]
    chat = await opened({"media": raw(calls={"all": {"result": {"content": content}}})})
    turn = await ask(chat, call("media__all"), "done")
    (made,) = turn.tool_calls
    assert made.status == "ok"
    assert [part.kind for part in made.content] == [
        "image",
        "audio",
        "resource",
        "resource",
        "link",
    ]
    assert made.content[0].data == base64.b64decode(PNG)
    size = len(base64.b64decode(PNG))
    for said in (
        f"image/png, {size} bytes",
        "audio/wav, 10 bytes",
        "some notes",
        "file:///notes.txt",
        "application/zip, 10 bytes",
    ):
        assert said in made.result
    for said in ("file:///data.bin", "report", "application/pdf", "2,048 bytes", LINK):
        assert said in made.result
    html = turn._repr_html_()
    assert f"data:image/png;base64,{PNG}" in html
    for said in ("audio/wav", "file:///notes.txt", "application/zip", LINK):
        assert said in html
    for shown in (made.result, html, repr(turn), str(turn)):
        assert "ContentPart(" not in shown
        assert "b'" not in shown


@pytest.mark.fault(30)
async def test_unknown_content_or_a_malformed_result_fails_that_call_and_keeps_the_rest(
    opened: Opened, raw: Raw
) -> None:
    plan = {
        "future": {"result": {"content": [text("seen"), {"type": "hologram", "cube": 1}]}},
        "broken": {"result": {"content": "text"}},
        "list": {"result": ["not", "an", "object"]},
        "fine": {"result": {"content": [text("ok")]}},
    }
    chat = await opened({"future": raw({"call_timeout": 3.0}, calls=plan)})
    turn = await ask(chat, *(call(f"future__{name}") for name in plan), "done")
    assert [c.status for c in turn.tool_calls] == ["error", "ok", "ok", "ok"]
    assert turn.tool_calls[0].result.startswith("Error: seen\n")
    assert "'hologram'" in turn.tool_calls[0].result
    assert turn.tool_calls[1].result == "text"
    assert all(word in turn.tool_calls[2].result for word in ("not", "an", "object"))
    assert_valid(turn.messages)
