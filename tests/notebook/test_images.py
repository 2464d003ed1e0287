"""Images beside a text: their sources, the request to each provider, the display and the record."""

from __future__ import annotations

import base64
import io
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from casual_llm.messages import ImageContent, TextContent, UserMessage
from kit.provider import PROVIDERS, Provider, answer
from kit.scripted_http import Reply

from casual_mcp_nb import Session
from casual_mcp_nb.base.content import Picture, media_type_of, pictures_of
from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.errors import ContextOverflowError, UsageError
from casual_mcp_nb.notebook.images import MAX_BYTES as MAX_IMAGE_BYTES
from casual_mcp_nb.notebook.images import with_images
from casual_mcp_nb.providers.scripted import scripted_model
from casual_mcp_nb.views import MAX_BYTES, mimebundle

# The smallest image of each kind that a reader takes.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
GIF = base64.b64decode("R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw==")
JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00"
WEBP = b"RIFF\x24\x00\x00\x00WEBPVP8 "


@pytest.fixture
def session() -> Iterator[Session]:
    with Session({}, in_process={}) as session:
        yield session


@pytest.fixture
def asking() -> Iterator[Callable[..., tuple[Session, Provider]]]:
    """Sessions over a loopback provider."""
    with ExitStack() as stack:

        def make(provider: str, reply: Any = None) -> tuple[Session, Provider]:
            server = stack.enter_context(
                Provider(answer(provider, "A dot.") if reply is None else reply)
            )
            return stack.enter_context(Session(server.config(provider), in_process={})), server

        yield make


def pictures(prompt: Any) -> list[Picture]:
    return pictures_of(prompt)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (PNG, "image/png"),
        (GIF, "image/gif"),
        (JPEG, "image/jpeg"),
        (WEBP, "image/webp"),
        (b"<svg/>", None),
        (b"", None),
    ],
)
def test_what_an_image_is_stands_in_its_bytes(data: bytes, kind: str | None) -> None:
    assert media_type_of(data) == kind


def test_images_come_from_bytes_and_files_one_or_several(tmp_path: Path) -> None:
    path = tmp_path / "a picture with a wrong ending.jpg"
    path.write_bytes(GIF)
    for images in (PNG, [PNG], bytearray(PNG), (PNG,)):
        assert pictures(with_images("What?", images)) == [Picture("image/png", PNG)]
    found = pictures(with_images("What?", [path, str(path), PNG]))
    assert [picture.media_type for picture in found] == ["image/gif", "image/gif", "image/png"]
    assert with_images("What?", None) == with_images("What?", []) == "What?"


def test_a_figure_and_an_image_save_themselves() -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure(figsize=(1, 1))
    image = pytest.importorskip("PIL.Image").new("RGB", (2, 2))
    found = pictures(with_images("What?", [figure, image]))
    assert [media_type_of(picture.data) for picture in found] == ["image/png", "image/png"]
    assert (
        len(pictures(with_images("What?", figure)))
        == len(pictures(with_images("What?", image)))
        == 1
    )


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "PNG, JPEG, GIF or WebP"),
        (PNG + b"\0" * MAX_IMAGE_BYTES, r"3,750,\d+ bytes.* 3,750,000"),
        (Path("/no/such/file.png"), "cannot be read"),
        (3.5, "A float "),
        ([None], "A NoneType "),
    ],
)
def test_what_cannot_be_sent_is_refused_before_anything_is_sent(
    session: Session, image: Any, reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        session.chat("What?", images=image, model=scripted_model("x"))
    assert session.turns == []


def test_a_large_file_is_refused_by_its_name(tmp_path: Path, session: Session) -> None:
    path = tmp_path / "large.png"
    path.write_bytes(PNG + b"\0" * MAX_IMAGE_BYTES)
    with pytest.raises(UsageError, match=r"large\.png' has"):
        session.chat("What?", images=path, model=scripted_model("x"))


def test_messages_of_ones_own_hold_their_images_themselves(session: Session) -> None:
    with pytest.raises(UsageError, match="ImageContent"):
        session.chat([UserMessage(content="What?")], images=PNG, model=scripted_model("x"))


def sent_image(provider: str, body: dict[str, Any]) -> Any:
    """The user's message as it went over the wire."""
    if provider == "gemini":
        return {"content": body["contents"][-1]["parts"]}
    return body["input" if provider == "openai-responses" else "messages"][-1]


ENCODED = base64.b64encode(PNG).decode()
ON_THE_WIRE = {
    "openai": [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{ENCODED}"}},
    ],
    "openai-responses": [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{ENCODED}", "detail": "auto"},
    ],
    "anthropic": [
        {"type": "text", "text": "What is this?"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ENCODED}},
    ],
    "gemini": [
        {"text": "What is this?"},
        {"inlineData": {"mimeType": "image/png", "data": ENCODED}},
    ],
    "ollama": "What is this?",
}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_each_provider_is_sent_the_image_in_its_own_form(
    asking: Callable[..., Any], provider: str
) -> None:
    session, server = asking(provider)
    turn = session.chat("What is this?", images=PNG, stream=False)
    turn.raise_for_status()
    message = sent_image(provider, server.seen[-1].body)
    sent = message["content"]
    if provider == "anthropic":
        assert sent[-1].pop("cache_control") == {"type": "ephemeral"}
    assert sent == ON_THE_WIRE[provider]
    assert message.get("images") == ([ENCODED] if provider == "ollama" else None)
    session.chat("And its colour?", stream=False)
    assert ENCODED in str(server.seen[-1].body)


async def test_the_awaited_twin_takes_images_too(asking: Callable[..., Any]) -> None:
    session, server = asking("openai")
    await session.chat_async("What is this?", images=[PNG, GIF], stream=False)
    assert [part["type"] for part in sent_image("openai", server.seen[-1].body)["content"]] == [
        "text",
        "image_url",
        "image_url",
    ]


def test_an_address_of_an_image_is_never_fetched(asking: Callable[..., Any]) -> None:
    elsewhere = Provider(Reply(200, "x"))
    with elsewhere:
        session, server = asking("ollama")
        image = ImageContent(source=f"{elsewhere.url}/secret.png")
        turn = session.chat([UserMessage(content=[TextContent(text="What?"), image])])
        assert turn.status == "failed"
        assert "image URLs" in str(turn.error)
        assert elsewhere.seen == server.seen == []
        assert elsewhere.url not in mimebundle(turn)["text/html"]


def test_the_size_of_a_conversation_with_an_image_is_said_in_tokens_of_an_image(
    asking: Callable[..., Any],
) -> None:
    too_long = Reply(
        400, {"error": {"message": "context_length_exceeded", "code": "context_length_exceeded"}}
    )
    session, _ = asking("openai", too_long)
    turn = session.chat("What is this?", images=PNG + b"\0" * 1_000_000)
    assert isinstance(turn.exception, ContextOverflowError)
    assert "are about 1,0" in str(turn.error)


def test_a_small_image_is_shown_and_a_large_one_is_said(session: Session) -> None:
    small = session.chat("What is this?", images=PNG, model=scripted_model("A dot."))
    html = mimebundle(small)["text/html"]
    assert (
        f'alt="image/png, {len(PNG)} bytes, from the prompt" src="data:image/png;base64,{ENCODED}"'
        in html
    )
    assert "image/png" not in mimebundle(small)["text/plain"], "the prompt is not repeated"
    large = session.chat(
        "And this?", images=[PNG + b"\0" * 60_000, PNG], model=scripted_model("A square.")
    )
    bundle = mimebundle(large)
    assert "60,0" in bundle["text/html"]
    assert bundle["text/html"].count("<img") == 1
    assert max(len(form.encode()) for form in bundle.values()) <= MAX_BYTES
    assert "image/png, 70 bytes, from this" in mimebundle(small.steps[0].request)["text/plain"]


def test_what_is_no_image_of_the_web_is_never_drawn(session: Session) -> None:
    picture = ImageContent(source={"type": "base64", "data": ENCODED}, media_type="image/svg+xml")
    broken = ImageContent(
        source={"type": "base64", "data": "%%%"}, media_type='image/png" onerror="alert(1)'
    )
    turn = session.chat(
        [UserMessage(content=[TextContent(text="x"), picture, broken])], model=scripted_model("y")
    )
    html = mimebundle(turn)["text/html"]
    assert "<img" not in html
    assert 'onerror="' not in html


def test_an_image_is_counted_and_kept_with_the_conversation(
    session: Session, tmp_path: Path
) -> None:
    turn = session.chat("What is this?", images=PNG, model=scripted_model("A dot."))
    assert 1_000 < turn.steps[0].request.tokens.history < 1_100
    back = Conversation.load(session.export(tmp_path / "talk.json"))
    assert pictures_of(back.messages) == [Picture("image/png", PNG)]
    assert back[0].prompt == "What is this?"
    assert ENCODED in session.export(tmp_path / "talk.html").read_text()


def test_the_offline_planner_answers_the_text() -> None:
    with Session.demo() as demo:
        assert "5" in demo.chat("What is 2 + 3?", images=PNG).answer


def test_a_figure_is_saved_on_the_thread_of_the_caller(session: Session) -> None:
    threads: list[str] = []

    class Figure:
        def savefig(self, file: io.BytesIO, format: str) -> None:
            threads.append(threading.current_thread().name)
            file.write(PNG)

    session.chat("What is this?", images=Figure(), model=scripted_model("A dot."))
    assert threads == [threading.current_thread().name]


AN_ADDRESS = "https://example.org/a%20dot.png?size=2"
AS_ADDRESS = {
    "openai": {"type": "image_url", "image_url": {"url": AN_ADDRESS}},
    "openai-responses": {"type": "input_image", "image_url": AN_ADDRESS, "detail": "auto"},
    "anthropic": {"type": "image", "source": {"type": "url", "url": AN_ADDRESS}},
}


@pytest.mark.defect("D2")
@pytest.mark.parametrize("provider", AS_ADDRESS)
def test_an_address_goes_to_the_provider_as_it_is_and_is_shown_as_one(
    asking: Callable[..., Any], provider: str
) -> None:
    session, server = asking(provider)
    turn = session.chat("What is this?", images=[AN_ADDRESS, PNG], stream=False)
    turn.raise_for_status()
    content = sent_image(provider, server.seen[-1].body)["content"]
    assert content[1] == AS_ADDRESS[provider]
    assert ENCODED in str(content[2])
    assert "example.org" in mimebundle(turn)["text/html"]
    assert ", 0 bytes" not in mimebundle(turn)["text/html"]
    assert Conversation.from_json(Conversation([turn]).to_json()).messages == turn.messages


@pytest.mark.defect("D2")
@pytest.mark.parametrize(
    "address",
    [
        "file:///etc/hostname",
        "ftp://example.org/a.png",
        "data:image/png;base64,xx",
        "https://",
        "http://[::1",
        "https://a b/c",
    ],
)
def test_an_address_that_no_provider_could_fetch_is_refused(address: str, session: Session) -> None:
    with pytest.raises(UsageError):
        session.chat("What?", images=address, model=scripted_model("x"))


@pytest.mark.defect("D2")
def test_an_address_with_a_password_is_refused_without_showing_it(session: Session) -> None:
    with pytest.raises(UsageError) as caught:
        session.chat(
            "What?", images="https://me:hunter22@example.org/a.png", model=scripted_model("x")
        )
    assert "hunter22" not in str(caught.value)


@pytest.mark.defect("D2")
def test_a_file_with_a_colon_in_its_name_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plot:1.png").write_bytes(PNG)
    assert [picture.data for picture in pictures(with_images("What?", "plot:1.png"))] == [PNG]
