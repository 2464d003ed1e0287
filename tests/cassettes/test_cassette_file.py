"""The file of a cassette: its contents, and the files that are refused."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP
from kit.fuzz import broken, mutations
from kit.setups import OFFLINE

from casual_mcp_nb import Session
from casual_mcp_nb.cassettes.format import Cassette
from casual_mcp_nb.errors import CassetteError, CasualMcpError, RateLimitError, ServerError
from casual_mcp_nb.providers.scripted import call, calls, scripted_model


@pytest.fixture(scope="module")
def cassette() -> Iterator[Cassette]:
    server: FastMCP[Any] = FastMCP("harbour")
    server.tool(
        lambda ship: f"{ship}: berth 7 </script>",
        name="berth",
        description="Find the berth of a ship.",
    )
    with Session(OFFLINE, in_process={"harbour": server}, quiet=True) as session:
        model = scripted_model(call("harbour__berth", ship="Fram"), "Berth 7 </script><b>.", "Yes.")
        session.chat("Where is Fram?", model=model, echo="none")
        session.chat("Sure?", model=model, echo="none")
        yield Cassette.from_conversation(session.turns, session.tools)


def test_a_cassette_is_read_as_it_was_written(cassette: Cassette) -> None:
    text = cassette.to_json()
    again = Cassette.from_json(text)
    assert again.to_json() == text
    assert [each.kind for each in again.interactions] == [
        "turn",
        "model",
        "call",
        "model",
        "turn",
        "model",
    ]
    assert (
        again.interactions[1].answer().message.tool_calls[0].function.arguments
        == '{"ship": "Fram"}'
    )
    assert again.interactions[2].answer().content[0].text == "Fram: berth 7 </script>"
    assert again.servers["harbour"].tools == cassette.servers["harbour"].tools
    assert [turn["messages"][0]["content"] for turn in again.turns] == ["Where is Fram?", "Sure?"]


def test_what_requests_share_is_in_the_file_once(cassette: Cassette) -> None:
    requests = [
        row["request"]
        for row in json.loads(cassette.to_json())["interactions"]
        if row["kind"] == "model"
    ]
    assert [request["keep"] for request in requests] == [0, 3, 5]
    assert [len(request["messages"]) for request in requests] == [2, 1, 1]
    assert [
        len(each.request["messages"]) for each in cassette.interactions if each.kind == "model"
    ] == [2, 4, 6]


def test_an_html_file_can_have_a_cassette_in_it(cassette: Cassette, tmp_path: Path) -> None:
    page = tmp_path / "lesson.html"
    page.write_text(f"<!doctype html><script>var a = '<';</script>{cassette.to_element()}<p>After.")
    assert page.read_text().count("</script>") == 2
    assert Cassette.load(page).to_json() == cassette.to_json()
    page.write_text("<!doctype html><p>No cassette.")
    with pytest.raises(CassetteError, match="no cassette"):
        Cassette.load(page)


def test_secrets_are_masked_in_texts_keys_and_numbers(cassette: Cassette) -> None:
    text = cassette.to_json(["berth 7", "harbour__berth"])
    assert "berth 7" not in text
    assert "harbour__berth" not in text


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.pop("interactions"),
        lambda document: document.update(format="another"),
        lambda document: document.update(version=99),
        lambda document: document.update(version=True),
        lambda document: document.update(servers=[1]),
        lambda document: document.update(models={"a": "b"}),
        lambda document: document["servers"]["harbour"].update(way="import os"),
        lambda document: document["servers"]["harbour"]["tools"][0].pop("name"),
        lambda document: document["interactions"][1]["request"].update(keep=7),
        lambda document: document["interactions"][1]["request"].update(tools=["../../etc/passwd"]),
        lambda document: document["interactions"][1].pop("response"),
        lambda document: document["interactions"][1]["response"]["message"].update(calls=[{}]),
        lambda document: document["interactions"][2]["response"].update(
            content=[{"kind": "image", "data": "?"}]
        ),
        lambda document: document["interactions"][2].update(error={"message": "x"}),
        lambda document: document["interactions"][2].update(pace=["soon"]),
        lambda document: document["interactions"][2].update(pace=[float("inf")]),
        lambda document: document["interactions"][2].update(events=[None]),
        lambda document: document["interactions"][2].update(events=[{"progress": "half"}]),
        lambda document: document["interactions"][2].update(events=[{"tools": [{}]}]),
    ],
)
def test_a_damaged_file_is_refused(cassette: Cassette, change: Any, tmp_path: Path) -> None:
    document = json.loads(cassette.to_json())
    change(document)
    file = tmp_path / "lesson.json"
    file.write_text(json.dumps(document))
    with pytest.raises(CassetteError, match=r"lesson\.json"):
        Cassette.load(file)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[" * 100_000, b"null", b"\xff\xfe", b'{"format": "casual-mcp-nb conversation"}'],
)
def test_a_file_that_is_no_cassette_is_refused(data: bytes, tmp_path: Path) -> None:
    file = tmp_path / "lesson.json"
    file.write_bytes(data)
    with pytest.raises(CassetteError):
        Cassette.load(file)
    with pytest.raises(CassetteError):
        Cassette.load(tmp_path)
    with pytest.raises(CassetteError):
        Cassette.load(tmp_path / "not here.json")


def test_a_file_that_is_too_large_is_not_read(
    monkeypatch: pytest.MonkeyPatch, cassette: Cassette, tmp_path: Path
) -> None:
    file = tmp_path / "lesson.json"
    cassette.save(file)
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(CassetteError):
        Cassette.load(file)
    monkeypatch.setattr("casual_mcp_nb.cassettes.format.MAX_BYTES", 100)
    with pytest.raises(CassetteError, match="MB"):
        Cassette.load(file)
    monkeypatch.undo()
    cassette.save(file)
    monkeypatch.setattr("casual_mcp_nb.cassettes.format.MAX_MESSAGES", 5)
    with pytest.raises(CassetteError):
        Cassette.load(file)


def test_an_error_is_one_of_ours_whatever_the_file_names(cassette: Cassette) -> None:
    document = json.loads(cassette.to_json())
    document["interactions"][2]["error"] = {
        "kind": "PurePath",
        "message": "x",
        "server": "harbour",
        "args": [1],
    }
    with pytest.raises(ServerError) as raised:
        Cassette.from_json(json.dumps(document)).interactions[2].answer()
    assert (type(raised.value), raised.value.args, raised.value.server) == (
        ServerError,
        ("x",),
        "harbour",
    )


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A cassette with an interaction of each kind that a session makes."""
    server: FastMCP[Any] = FastMCP("harbour", instructions="Ships have no article.")
    server.tool(
        lambda ship: f"{ship}: berth 7", name="berth", description="Find the berth of a ship."
    )
    server.resource("harbour://rules", mime_type="text/plain")(lambda: "No swimming.")
    server.prompt(lambda ship: f"{ship} arrives.", name="arrival")
    path = tmp_path_factory.mktemp("fuzz") / "cassette.json"
    with (
        Session({}, in_process={"harbour": server}, quiet=True) as session,
        session.cassettes.use(path),
    ):
        berths = calls(call("harbour__berth", ship="Fram"), call("harbour__berth", ship="Maud"))
        session.chat("Where are they?", model=scripted_model(berths, "At berth 7."), echo="none")
        session.resources.read("harbour://rules")
        session.prompts.get("arrival", ship="Fram")
        session.chat(
            "And now?",
            model=scripted_model(call("harbour__nothing"), RateLimitError("Later.")),
            echo="none",
        )
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


@pytest.mark.defect("F16")
@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_cassette_is_refused_or_replayed(
    document: dict[str, Any], seed: int, tmp_path: Path
) -> None:
    path = tmp_path / "damaged.json"
    texts = [json.dumps(mutation).encode() for mutation in mutations(document, seed, 125)]
    for text in (*texts, *broken(json.dumps(document), seed, 25)):
        with contextlib.suppress(CasualMcpError):
            cassette = Cassette.from_json(text)
            again = Cassette.from_json(cassette.to_json())
            assert len(again.interactions) == len(cassette.interactions)
            path.write_bytes(text)
            with Session.quick(cassette=path, quiet=True, store=None) as session:
                session.cassettes.replay()
