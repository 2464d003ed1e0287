"""Every kind of content that real servers send."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from casual_mcp_nb import Session
from casual_mcp_nb.errors import UsageError

pytestmark = pytest.mark.integration

THOUGHT = {"thought": "so", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}


def test_an_image_is_kept_and_named_to_the_model(session: Session) -> None:
    image = session.tools.call("everything:get-tiny-image")
    (picture,) = [part for part in image.content if part.kind == "image"]
    assert picture.mime_type == "image/png"
    assert picture.data is not None
    assert picture.data.startswith(b"\x89PNG")
    assert "image/png" in image.result


def test_audio_is_kept_and_named_to_the_model(session: Session, folder: Path) -> None:
    sound = session.tools.call("filesystem:read_media_file", path=str(folder / "beep.wav"))
    (part,) = sound.content
    assert (part.kind, part.mime_type) == ("audio", "audio/wav")
    assert part.data == (folder / "beep.wav").read_bytes()
    assert sound.result.startswith("audio/wav")


def test_links_keep_their_addresses_and_are_not_followed(session: Session) -> None:
    found = session.tools.call("everything:get-resource-links", count=4)
    links = [part for part in found.content if part.kind == "link"]
    assert [link.uri for link in links] == [
        "demo://resource/dynamic/blob/1",
        "demo://resource/dynamic/text/2",
        "demo://resource/dynamic/blob/3",
        "demo://resource/dynamic/text/4",
    ]
    assert all(link.data is None for link in links)
    assert "Text Resource 2" in found.result


def test_embedded_resources_of_text_and_of_bytes_are_told_apart(session: Session) -> None:
    text = session.tools.call(
        "everything:get-resource-reference", resourceType="Text", resourceId=1
    )
    blob = session.tools.call(
        "everything:get-resource-reference", resourceType="Blob", resourceId=1
    )
    assert [part.kind for part in text.content] == ["text", "resource", "text"]
    assert "plaintext resource" in text.content[1].text
    assert text.content[1].data is None
    assert b"base64 blob" in (blob.content[1].data or b"")
    assert blob.content[1].uri == "demo://resource/dynamic/blob/1"


def test_a_file_that_a_tool_makes_arrives_as_its_bytes(session: Session) -> None:
    packed = session.tools.call(
        "everything:gzip-file-as-resource",
        name="a.gz",
        data="data:text/plain,hello",
        outputType="resource",
    )
    (part,) = packed.content
    assert part.mime_type == "application/gzip"
    assert (part.data or b"").startswith(b"\x1f\x8b")


@pytest.mark.parametrize(
    ("tool", "arguments", "key"),
    [
        ("everything:get-structured-content", {"location": "Chicago"}, "temperature"),
        ("clock:get_current_time", {"timezone": "UTC"}, "is_dst"),
        ("thinking:sequentialthinking", THOUGHT, "branches"),
    ],
)
def test_structured_content_is_kept_beside_the_text(
    session: Session, tool: str, arguments: dict[str, Any], key: str
) -> None:
    done = session.tools.call(tool, **arguments)
    assert done.status == "ok"
    assert key in done.structured
    assert key in done.result


def test_a_tool_that_runs_only_as_a_task_says_so(session: Session) -> None:
    with pytest.raises(UsageError) as refused:
        session.tools.call("everything:simulate-research-query", topic="tides")
    assert (refused.value.server, refused.value.tool) == (
        "everything",
        "everything__simulate-research-query",
    )
