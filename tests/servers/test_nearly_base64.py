"""Pictures and blobs whose base64 is written in the ways that programs write it."""

from __future__ import annotations

import base64
import textwrap
from collections.abc import Callable
from typing import Any

import pytest
from casual_llm.messages import ImageContent, UserMessage

from casual_mcp_nb.base.binary import bytes_of
from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.content import images_of, pictures_of
from casual_mcp_nb.servers.connection import Connection

pytestmark = pytest.mark.defect("M11")

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
# Its base64 has both letters that URLs write in another way, and padding.
DATA = PNG + b"\xfb\xef\xbe\xff\xff\xfe\xfb"
PLAIN = base64.b64encode(DATA).decode()
FORMS: dict[str, str] = {
    "plain": PLAIN,
    "a data URL": f"data:image/png;base64,{PLAIN}",
    "a data URL with a parameter": f"data:image/png;charset=utf-8;base64,{PLAIN}",
    "a data URL in capitals": f"DATA:image/png;BASE64,{PLAIN}",
    "a data URL without a type": f"data:;base64,{PLAIN}",
    "a percent-encoded data URL": (
        f"data:image/png;base64,{PLAIN.replace('+', '%2B').replace('/', '%2F').replace('=', '%3D')}"
    ),
    "a data URL without base64": "data:image/png," + "".join(f"%{byte:02x}" for byte in DATA),
    "letters of URLs": base64.urlsafe_b64encode(DATA).decode(),
    "lines": "\n".join(textwrap.wrap(PLAIN, 76)),
    "lines of MIME": "\r\n ".join(textwrap.wrap(PLAIN, 76)) + "\r\n",
    "no padding": PLAIN.rstrip("="),
    "all at once": (
        f"data:image/png;base64,\n{base64.urlsafe_b64encode(DATA).decode().rstrip('=')}\n"
    ),
}
WRONG = ["file not found", "x", "data:image/png;base64,???", "iVBO Rw0K", "é" * 4]


@pytest.mark.parametrize("form", FORMS)
def test_each_form_gives_the_same_bytes(form: str) -> None:
    data, media_type = bytes_of(FORMS[form])
    assert data == DATA
    assert media_type in ("", "image/png")


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_base64_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (any)
        bytes_of(text)


async def test_a_server_may_write_pictures_and_blobs_in_each_form(
    opened: Callable[..., Any], raw: Callable[..., ServerConfig]
) -> None:
    calls = {
        name: {
            "result": {
                "content": [
                    {"type": "image", "data": text},
                    {"type": "audio", "data": text, "mimeType": "audio/wav"},
                    {"type": "resource", "resource": {"uri": "file:///a", "blob": text}},
                ]
            }
        }
        for name, text in FORMS.items()
    }
    answers = {
        "resources/read": {"contents": [{"uri": "file:///a", "blob": FORMS["letters of URLs"]}]}
    }
    config = raw(calls=calls, answers=answers, capabilities={"tools": {}, "resources": {}})
    connection = opened(Connection("painter", config))
    await connection.connect()
    for name in FORMS:
        result = await connection.call(name, {})
        assert [part.data for part in result.content] == [DATA] * 3, name
        assert [part.mime_type for part in result.content] == [
            "image/png",
            "audio/wav",
            "image/png",
        ], name
        assert images_of(result) == [DATA] * 2
        assert not result.is_error
    assert (await connection.resources.read("file:///a")).data == DATA


@pytest.mark.parametrize("form", FORMS)
def test_a_picture_of_a_person_may_be_in_each_form(form: str) -> None:
    text = FORMS[form]
    source: Any = text if text.lower().startswith("data:") else {"type": "base64", "data": text}
    message = UserMessage(content=[ImageContent(source=source, media_type="image/png")])
    assert [picture.data for picture in pictures_of([message])] == [DATA]
