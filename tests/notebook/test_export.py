"""A conversation as one file: whole or not at all, in the form that its ending says."""

from __future__ import annotations

import os
import resource
from html.parser import HTMLParser
from pathlib import Path

import pytest

from casual_mcp_nb import Session
from casual_mcp_nb.base.files import write_text
from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.providers.scripted import call, scripted_model

CONFIG = {"servers": {"math": {"bundled": "math", "transport": "in-process"}}}
HOSTILE = "<script>alert(1)</script> [x](https://evil.example) **b**"


@pytest.fixture(scope="module")
def session() -> Session:
    with Session.from_config(CONFIG) as session:
        session.chat("Add 1 and 2.", model=scripted_model(call("math__add", a=1, b=2), HOSTILE))
        session.chat("And again.", model=scripted_model("Three."))
        return session


class Tags(HTMLParser):
    """Collects the tags and the addresses of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.addresses += [
            value or ""
            for name, value in attrs
            if name in ("src", "href", "action", "data", "srcset")
        ]


@pytest.mark.fault(86)
def test_a_page_is_whole_and_needs_no_script_and_no_network(
    session: Session, tmp_path: Path
) -> None:
    text = session.export(tmp_path / "talk.html").read_text(encoding="utf-8")
    page = Tags()
    page.feed(text)
    assert not page.tags & {"script", "link", "iframe", "a", "img", "form", "object"}
    assert page.addresses == []
    assert text.startswith("<!DOCTYPE html>")
    for words in ("Add 1 and 2.", "math__add", "And again.", "Three.", "Request"):
        assert words in text


def test_markdown_holds_the_same_turns(session: Session, tmp_path: Path) -> None:
    text = session.export(tmp_path / "talk.md").read_text(encoding="utf-8")
    assert text.count("**Prompt**") == 2
    assert "math\\_\\_add" in text


def test_json_loads_again_as_the_same_conversation(session: Session, tmp_path: Path) -> None:
    back = Conversation.load(session.export(str(tmp_path / "talk.json")))
    assert [list(turn.trace) for turn in back] == [list(turn.trace) for turn in session.turns]
    assert back.messages == session.messages
    assert back._repr_mimebundle_() == session.conversations.current._repr_mimebundle_()


def test_a_file_that_is_there_is_kept_unless_it_may_be_replaced(
    session: Session, tmp_path: Path
) -> None:
    path = tmp_path / "talk.md"
    path.write_text("mine")
    with pytest.raises(UsageError, match=r"already exists.*overwrite=True"):
        session.export(path)
    assert path.read_text() == "mine"
    session.export(path, overwrite=True)
    assert "And again." in path.read_text(encoding="utf-8")
    assert os.listdir(tmp_path) == ["talk.md"]


@pytest.mark.parametrize("name", ["talk.htm", "talk", "talk.pdf"])
def test_another_ending_is_refused_with_those_that_work(
    session: Session, tmp_path: Path, name: str
) -> None:
    with pytest.raises(UsageError, match=r"'\.html', '\.ipynb', '\.json', '\.md'"):
        session.export(tmp_path / name)
    assert os.listdir(tmp_path) == []


def test_a_folder_that_is_missing_is_told(session: Session, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        session.export(tmp_path / "gone" / "talk.md")


@pytest.mark.fault(95)
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "talk.md"
    path.write_text("old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, hard))
    try:
        with pytest.raises(UsageError, match="cannot be written"):
            write_text(path, "new " * 1_000, overwrite=True, hint="")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["talk.md"]


def test_a_file_has_the_rights_that_new_files_have(session: Session, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.touch()
    assert session.export(tmp_path / "talk.md").stat().st_mode == other.stat().st_mode


def test_an_empty_conversation_can_be_written(tmp_path: Path) -> None:
    with Session.from_config({}) as session:
        assert "No turns yet." in session.export(tmp_path / "talk.html").read_text(encoding="utf-8")
        assert len(Conversation.load(session.export(tmp_path / "talk.json"))) == 0


@pytest.mark.defect("B7")
def test_a_file_grows_with_the_conversation_and_not_with_its_square(tmp_path: Path) -> None:
    text = "lorem ipsum " * 70
    sizes: dict[tuple[str, int], int] = {}
    with Session.from_config(CONFIG) as session:
        for number in range(40):
            session.chat(
                f"{number} {text}",
                model=scripted_model(call("math__add", a=number, b=2), f"{number} {text}"),
            )
            if number in (19, 39):
                for ending in ("html", "md", "json"):
                    sizes[ending, number] = (
                        session.export(tmp_path / f"{number}.{ending}").stat().st_size
                    )
        last = session.export(tmp_path / "all.html").read_text(encoding="utf-8")
    for ending in ("html", "md", "json"):
        assert sizes[ending, 39] < 2.1 * sizes[ending, 19]
    assert sizes["html", 39] < 40 * 17_000
    assert last.count("math__subtract") > 0
    assert last.count("Definitions") == 1


def test_a_cell_shows_the_file_with_a_link_and_its_size(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = session.export('a "b" & <c>.html')
    assert file == Path('a "b" & <c>.html')
    shown = file._repr_mimebundle_()  # type: ignore[attr-defined]
    assert shown["text/plain"].startswith(f"{file}, ")
    page = Tags()
    page.feed(shown["text/html"])
    assert (page.tags, page.addresses) == ({"a"}, ["a%20%22b%22%20%26%20%3Cc%3E.html"])
    # What is outside of the notebook's folder cannot be opened from its page.
    monkeypatch.chdir("/")
    outside = session.export(tmp_path.parent / "outside.json", overwrite=True)
    monkeypatch.chdir(tmp_path)
    assert "<a" not in outside._repr_mimebundle_()["text/html"]  # type: ignore[attr-defined]
