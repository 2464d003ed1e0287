"""Search by meaning in a session: an embedding server on loopback, a model in a folder, a
function.
"""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP
from kit.scripted_http import Reply, Request, ScriptedHttp
from kit.waiting import wait_until

from casual_mcp_nb import Session
from casual_mcp_nb.base.config import EmbeddingConfig
from casual_mcp_nb.base.tool import ToolName, ToolSpec
from casual_mcp_nb.discovery.meaning import EmbeddingModel, Meaning
from casual_mcp_nb.discovery.search_tools import ToolSearchIndex
from casual_mcp_nb.discovery.vector_file import VectorFile, cache_path
from casual_mcp_nb.errors import ConfigError, UnknownNameError, UsageError
from casual_mcp_nb.experiments.cases import Case
from casual_mcp_nb.views import mimebundle
from casual_mcp_nb.widgets.explorer import SearchState

KEY = "sk-not-a-real-key"
CONCEPTS = (
    ("car", "vehicle", "automobile"),
    ("forecast", "weather", "umbrella"),
    ("invoice", "bill", "payment"),
)
QUERY = "is an umbrella needed"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def vector(text: str, turned: bool = False) -> list[float]:
    """How often a text has a word of each concept, and a little of everything."""
    words = re.findall("[a-z]+", text.lower())
    counts = [0.05 + sum(word in concept for word in words) for concept in CONCEPTS]
    return counts[::-1] if turned else counts


class Embeddings(ScriptedHttp):
    """An embedding server as OpenAI's, which counts what it is asked."""

    def __init__(self) -> None:
        super().__init__(self._reply)
        self.embed: Callable[[str], list[float]] = vector
        self.reply: Callable[[Request], Reply | None] = lambda request: None

    @property
    def texts(self) -> list[str]:
        return [text for request in self.seen for text in request.body["input"]]

    def _reply(self, request: Request) -> Reply:
        rows = [
            {"object": "embedding", "index": n, "embedding": self.embed(text)}
            for n, text in enumerate(request.body["input"])
        ]
        return self.reply(request) or Reply(
            body={"object": "list", "data": rows, "model": "m", "usage": {}}
        )


@pytest.fixture
def service() -> Iterator[Embeddings]:
    with Embeddings() as server:
        yield server


def garage() -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("garage")
    for name, description in (
        ("sell", "Sell an automobile."),
        ("predict", "The weather of tomorrow."),
        ("charge", "Send a bill."),
    ):
        server.tool(name=name, description=description)(lambda number: number)
    return server


def config(url: str, **embedding: Any) -> dict[str, Any]:
    return {
        "clients": {
            "vectors": {
                "provider": "openai",
                "base_url": f"{url}/v1",
                "api_key": KEY,
                "timeout": 5,
            },
            "planner": {"provider": "offline"},
        },
        "models": {"planner": {"client": "planner", "model": "planner"}},
        "tool_discovery": {
            "enabled": True,
            "defer_all": True,
            "embedding": {"client": "vectors", "model": "small", **embedding},
        },
    }


def session_of(service: Embeddings, **embedding: Any) -> Session:
    return Session.from_config(
        config(service.url, **embedding), in_process={"garage": garage()}, quiet=True
    )


def ready(session: Session) -> None:
    """Wait until all tools are embedded: the SDK is imported first, which can take longer than a
    search waits.
    """
    session.connect()
    meaning = session.parts.chat.tools.meaning
    assert meaning is not None
    session.search("tools")
    wait_until(lambda: "and meaning" in meaning.state, meaning.state)


def first(session: Session, query: str = QUERY) -> str:
    ready(session)
    return next((hit.tool.name for hit in session.search(query)), "")


def test_embeddings_count_and_at_a_limit_search_ranks_by_words(service: Embeddings) -> None:
    with session_of(service) as session:
        ready(session)
        assert session.limits[2].tokens > 0
        session.limits.set("day", max_total_tokens=session.limits[2].tokens + 1)
        seen = len(service.seen)
        session.search("Some other words")
        meaning = session.parts.chat.tools.meaning
        assert meaning is not None
        wait_until(lambda: "spend limit" in meaning.problem, meaning.problem)
        assert len(service.seen) == seen


def test_a_search_finds_what_has_no_word_of_it_and_says_by_what(service: Embeddings) -> None:
    with session_of(service) as session:
        ready(session)
        results = session.search(QUERY)
        assert (results.ranked_by, results.note) == ("words and meaning", "")
        assert results[0].tool.name == "predict"
        explanation = results[0].explain()
        assert [share.term for share in explanation.shares] == ["meaning"]
        assert explanation.score == pytest.approx(sum(share.share for share in explanation.shares))
        turn = session.chat(QUERY)
        assert (
            [search.ranked_by for search in turn.searches]
            == ["words and meaning"] * len(turn.searches)
            != []
        )
    names = [request.path for request in service.seen]
    assert set(names) == {"/v1/embeddings"}
    assert service.seen[0].headers["authorization"] == f"Bearer {KEY}"


def test_an_evaluation_measures_words_alone_and_with_meaning(service: Embeddings) -> None:
    gold = frozenset({ToolName("garage", "predict")})
    with session_of(service) as session:
        ready(session)
        scores = {
            score.name: score
            for score in session.experiments.evaluate([Case(QUERY, [gold])], progress=False).scores
        }
        assert (scores["words"].recall, scores["words and meaning"].recall) == (0.0, 1.0)
        service.reply = FAILURES["refused"]
        failed = session.experiments.evaluate([Case("another umbrella", [gold])], progress=False)
        assert [score.name for score in failed.scores] == ["words"]


def test_displays_say_what_ranked_and_why_only_words_did(
    service: Embeddings, tmp_path: Path
) -> None:
    with session_of(service) as session:
        ready(session)
        explorer = session.parts.engine.run(SearchState(session).call("search", {"query": QUERY}))
        assert (explorer["ranked_by"], explorer.get("note")) == ("words and meaning", None)
        turn = session.chat(QUERY)
        for shown in (session.search(QUERY), turn, session.status):
            assert "words and meaning" in mimebundle(shown)["text/plain"]
        assert (
            "by words and meaning"
            in session.export(tmp_path / "turns.html", player=True).read_text()
        )
        service.reply = FAILURES["refused"]
        results = session.search("weather in another car")
        assert results.ranked_by == "words"
        assert results.note in mimebundle(results)["text/plain"]
        explorer = session.parts.engine.run(
            SearchState(session).call("search", {"query": "weather in another car"})
        )
        assert (explorer["ranked_by"], explorer["note"]) == ("words", results.note)


def test_a_comparison_says_what_its_searches_ranked_by(service: Embeddings, tmp_path: Path) -> None:
    with session_of(service) as session:
        ready(session)
        comparison = session.experiments.compare(QUERY, discovery=[True, False], progress=False)
        on, off = comparison.values()
        assert (on.ranked_by, off.ranked_by) == ("words and meaning", None)
        assert "by words and meaning" in mimebundle(comparison)["text/plain"]
        runs = json.loads(comparison.export(tmp_path / "runs.json").read_text())["runs"]
        assert [run["ranked_by"] for run in runs] == ["words and meaning", None]


def checked(session: Session) -> tuple[str, str]:
    (check,) = (
        each for each in session.servers.doctor() if each.name.startswith("search by meaning")
    )
    return check.verdict, f"{check.found} {check.advice}"


def test_the_doctor_checks_the_embedding_model_and_downloads_nothing(
    service: Embeddings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with session_of(service) as session:
        assert checked(session)[0] == "ok"
        ready(session)
        verdict, text = checked(session)
        assert (verdict, "3 of 3" in text) == ("ok", True)
    with session_of(service, client="planner") as session:
        verdict, text = checked(session)
        assert (verdict, "openai" in text) == ("fail", True)
    settings = config(service.url)
    settings["tool_discovery"]["embedding"] = {"local": "somebody/some-model"}
    with Session.from_config(settings, in_process={"garage": garage()}, quiet=True) as session:
        verdict, text = checked(session)
        assert (verdict, "download" in text) == ("fail", True)
    service.reply = FAILURES["refused"]
    cache_path().unlink()
    with session_of(service) as session:
        session.search("weather")
        verdict, text = checked(session)
        assert (verdict, "status 401" in text, KEY in text) == ("warn", True, False)


def test_only_names_descriptions_and_queries_are_embedded(service: Embeddings) -> None:
    with session_of(service) as session:
        ready(session)
        session.tools.call("garage:sell", number=123_456)
        session.search(QUERY)
    tools = {
        "sell: Sell an automobile. Sell",
        "predict: The weather of tomorrow. Predict",
        "charge: Send a bill. Charge",
    }
    assert set(service.texts) == {QUERY, "tools", *tools}


def test_a_second_session_asks_nothing_again_and_the_file_has_no_text_and_no_key(
    service: Embeddings,
) -> None:
    for _ in range(2):
        with session_of(service) as session:
            assert first(session) == "predict"
    # The shortest text comes with each new query, to notice another model.
    once = ("sell: Sell an automobile. Sell", "predict: The weather of tomorrow. Predict", QUERY)
    assert [service.texts.count(text) for text in once] == [1, 1, 1]
    data = cache_path().read_bytes()
    assert not any(text.encode() in data for text in (KEY, "umbrella", "weather", "127.0.0.1"))
    assert cache_path().stat().st_mode & 0o077 == 0


async def test_the_first_searches_wait_for_vectors_that_are_in_the_file(tmp_path: Path) -> None:
    tools = [ToolSpec("garage", name, "", {}) for name in ("automobile", "weather")]
    asked, loading, go = [], threading.Event(), threading.Event()

    async def embed(texts: list[str], query: bool) -> list[list[float]]:
        asked.extend(texts)
        return [vector(text) for text in texts]

    def load() -> EmbeddingModel:
        loading.set()
        assert go.wait(10)
        return EmbeddingModel("small", embed, "small")

    async def ranked_by(*queries: str, seconds: float) -> list[str]:
        meaning = Meaning(load, "small", file=VectorFile(tmp_path / "vectors.db"), timeout=seconds)
        index = ToolSearchIndex(tools, embed=meaning)
        searches = [asyncio.create_task(index.prepare(query)) for query in queries]
        await asyncio.to_thread(loading.wait, 10)
        # A search that gave up by now would have done so before the model was loaded.
        meaning.timeout = 10
        go.set()
        await asyncio.gather(*searches)
        await meaning.close()
        return [index.ranked_by(query) for query in queries]

    go.set()
    assert await ranked_by("a vehicle", seconds=10) == ["words and meaning"]
    go.clear()
    loading.clear()
    asked.clear()
    assert await ranked_by("a vehicle", "an umbrella", seconds=0) == ["words and meaning"] * 2
    assert asked == ["an umbrella"]


def test_a_damaged_file_begins_again(service: Embeddings) -> None:
    for _ in range(2):
        with session_of(service) as session:
            assert first(session) == "predict"
        cache_path().write_bytes(b"not a database" * 500)
    assert len(service.texts) == 14


def test_a_folder_that_cannot_be_written_is_done_without(service: Embeddings) -> None:
    cache_path().parent.parent.mkdir(parents=True)
    cache_path().parent.write_text("a file in place of the folder")
    with session_of(service) as session:
        assert first(session) == "predict"


FAILURES: dict[str, Callable[[Request], Reply | None]] = {
    "refused": lambda request: Reply(401, {"error": {"message": f"wrong key {KEY}"}}),
    "reset": lambda request: Reply(reset=True),
    "silent": lambda request: Reply(silent=True),
    "nonsense": lambda request: Reply(body="<html>"),
    "too few": lambda request: Reply(
        body={"object": "list", "data": [], "model": "m", "usage": {}}
    ),
    "different lengths": lambda request: Reply(
        body={
            "data": [
                {"index": n, "embedding": [1.0] * (n + 1)}
                for n, _ in enumerate(request.body["input"])
            ],
            "model": "m",
        }
    ),
    "not numbers": lambda request: Reply(
        body={
            "data": [{"index": n, "embedding": ["x"]} for n, _ in enumerate(request.body["input"])],
            "model": "m",
        }
    ),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_service_that_fails_leaves_the_search_to_words_and_is_said_once(
    service: Embeddings, failure: str, caplog: pytest.LogCaptureFixture
) -> None:
    service.reply = FAILURES[failure]
    with session_of(service, timeout=0.3) as session:
        results = session.search("weather")
        assert (results.ranked_by, results[0].tool.name) == ("words", "predict")
        assert results.note
        turns = [session.chat("weather of tomorrow"), session.chat("weather of tomorrow")]
        problems = [
            notice.text
            for turn in turns
            for notice in turn.notices
            if "Search ranks by words" in notice.text
        ]
        assert len(problems) <= 1
        assert KEY not in f"{problems}{results.note}{session.status}{caplog.text}"


def test_a_service_that_is_slow_counts_as_soon_as_it_has_answered(service: Embeddings) -> None:
    answers = threading.Event()
    with session_of(service) as session:
        ready(session)
        meaning = session.parts.chat.tools.meaning
        assert meaning is not None
        meaning.timeout = 0.2
        service.reply = lambda request: None if answers.wait(20) else Reply(500)
        late = session.search(QUERY)
        assert (late.ranked_by, "0.2 s" in late.note) == ("words", True)
        answers.set()
        wait_until(
            lambda: session.search(QUERY).ranked_by == "words and meaning", "the late vector"
        )
        assert (session.search(QUERY)[0].tool.name, meaning.problem) == ("predict", "")


def test_a_service_that_fails_after_the_tools_were_embedded_loses_only_that_search(
    service: Embeddings,
) -> None:
    with session_of(service, timeout=0.3) as session:
        ready(session)
        meaning = session.parts.chat.tools.meaning
        assert meaning is not None
        for number, reply in enumerate([*FAILURES.values(), lambda request: None]):
            service.reply = reply
            meaning.retry()
            meaning.timeout = 10 if number == len(FAILURES) else 0.3
            results = session.search(f"weather {number}")
            assert results[0].tool.name == "predict"
            assert (results.ranked_by, results.note == "") == (
                ("words and meaning", True) if number == len(FAILURES) else ("words", False)
            )
        service.stop()
        assert session.search("another weather").ranked_by == "words"
        assert session.search("weather 7").ranked_by == "words and meaning"


@pytest.mark.defect("P10")
@pytest.mark.parametrize("seconds", [61, 3600])
def test_a_service_that_asks_for_a_long_wait_is_not_asked_again_meanwhile(
    service: Embeddings, seconds: int
) -> None:
    service.reply = lambda request: Reply(
        429, {"error": {"message": "slow down"}}, {"Retry-After": str(seconds)}
    )
    with session_of(service) as session:
        first = session.search(QUERY)
        assert (first.ranked_by, len(service.seen)) == ("words", 1)
        meaning = session.parts.chat.tools.meaning
        assert meaning is not None
        wait_until(lambda: "slow down" in meaning.problem, "the reason")
        assert session.search("weather again").ranked_by == "words"
        assert len(service.seen) == 1


def test_when_the_service_is_back_meaning_counts_again(service: Embeddings) -> None:
    service.reply = FAILURES["reset"]
    with session_of(service) as session:
        assert session.search(QUERY).ranked_by == "words"
        service.reply = lambda request: None
        meaning = session.parts.chat.tools.meaning
        assert meaning is not None
        meaning.retry()
        ready(session)
        assert session.search(QUERY).ranked_by == "words and meaning"
        assert meaning.problem == ""


@pytest.mark.parametrize(
    "changed", [lambda text: vector(text, turned=True), lambda text: [*vector(text), 0.5]]
)
def test_a_model_that_changes_behind_its_name_embeds_everything_again(
    service: Embeddings, changed: Callable[[str], list[float]]
) -> None:
    with session_of(service) as session:
        assert first(session) == "predict"
    service.embed = changed
    with session_of(service) as session:
        assert first(session) == "predict"
        session.search("a vehicle")
        wait_until(
            lambda: session.search("a vehicle").ranked_by == "words and meaning", "embedded again"
        )
        assert first(session, "a vehicle") == "sell"
    assert service.texts.count("sell: Sell an automobile. Sell") >= 2


def test_a_model_whose_vectors_vary_is_not_asked_for_ever(service: Embeddings) -> None:
    numbers = iter(range(1_000_000))
    service.embed = lambda text: vector(text, turned=next(numbers) % 2 == 0)
    with session_of(service) as session:
        for number in range(12):
            session.search(f"a vehicle {number}")
        assert session.search("weather")[0].tool.name == "predict"
    assert len(service.texts) < 60


def test_a_recorded_search_is_replayed_without_the_service(
    service: Embeddings, tmp_path: Path
) -> None:
    path = tmp_path / "session.json"
    with session_of(service) as session:
        ready(session)
        with session.cassettes.use(path):
            live = session.chat(QUERY)
    service.stop()
    with Session.quick(cassette=path) as session:
        replayed = session.chat(QUERY)
    assert [search.rows for search in replayed.searches] == [
        search.rows for search in live.searches
    ]
    assert [search.ranked_by for search in replayed.searches] == ["words and meaning"] * len(
        live.searches
    )
    assert KEY not in path.read_text()


def test_a_function_embeds_too_and_nothing_is_kept() -> None:
    settings = config("http://127.0.0.1:9")
    del settings["tool_discovery"]["embedding"]
    with Session.from_config(settings, in_process={"garage": garage()}, quiet=True) as session:
        assert session.tools.embedding is None
        assert session.search(QUERY).ranked_by == "words"
        session.tools.embedding = lambda texts: [vector(text) for text in texts]
        ready(session)
        assert session.search(QUERY)[0].tool.name == "predict"
        session.tools.embedding = None
        assert session.search(QUERY).ranked_by == "words"
    assert not cache_path().exists()


def static_model(folder: Path) -> Path:
    """A model of model2vec whose tokens are the words of the concepts."""
    import numpy as np
    from model2vec import StaticModel
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    words = [word for concept in CONCEPTS for word in concept]
    tokenizer = Tokenizer(
        models.WordLevel(
            {"[UNK]": 0, **{word: n for n, word in enumerate(words, 1)}}, unk_token="[UNK]"
        )
    )
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    rows = np.array([[0.05] * 3, *(vector(word) for word in words)], dtype=np.float32)
    StaticModel(rows, tokenizer).save_pretrained(folder)
    return folder


def test_a_model_in_a_folder_beside_the_config(tmp_path: Path) -> None:
    pytest.importorskip("model2vec")
    static_model(tmp_path / "words")
    settings = config("http://127.0.0.1:9")
    settings["tool_discovery"]["embedding"] = {"local": "words"}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    for _ in range(2):
        with Session.from_config(
            tmp_path / "config.json", in_process={"garage": garage()}, quiet=True
        ) as session:
            assert first(session) == "predict"
            results = session.search(QUERY)
            assert results.ranked_by == "words and meaning"
            (part,) = results[0].explain().shares
            assert (part.term, part.field) == ("meaning", "umbrella ≈ weather")
            assert part.field in mimebundle(results[0].explain())["text/plain"]
            both = session.search("the weather, and an umbrella")[0].explain()
            assert [part.field for part in both.shares if part.term == "meaning"] == [
                "umbrella \u2248 weather"
            ]


def test_a_local_model_that_is_not_here_is_not_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    settings = config("http://127.0.0.1:9")
    settings["tool_discovery"]["embedding"] = {"local": "somebody/some-model"}
    with Session.from_config(settings, in_process={"garage": garage()}, quiet=True) as session:
        results = session.search("weather")
        assert (results.ranked_by, results[0].tool.name) == ("words", "predict")
        assert "some-model" in results.note
        with pytest.raises(UsageError, match="download"):
            session.tools.embedding = {"local": "somebody/some-model"}


def test_the_config_names_one_model_and_a_client_that_exists() -> None:
    for embedding in (
        {},
        {"client": "vectors"},
        {"model": "m"},
        {"local": "a", "model": "m"},
        {"client": "other", "model": "m"},
    ):
        settings = config("http://127.0.0.1:9")
        settings["tool_discovery"]["embedding"] = embedding
        with pytest.raises(ConfigError, match="embedding"):
            Session.from_config(settings)
    with Session.from_config({}) as session:
        for wrong in ({"client": "x"}, {"local": "a", "client": "x", "model": "m"}, 3, "text"):
            with pytest.raises(UsageError):
                session.tools.embedding = wrong  # type: ignore[assignment]
        with pytest.raises(UnknownNameError):
            session.tools.embedding = EmbeddingConfig(client="x", model="m")


def test_a_client_without_embeddings_says_so(service: Embeddings) -> None:
    with session_of(service, client="planner") as session:
        assert "offline" in session.search("weather").note


def test_the_file_is_bounded_and_keeps_what_was_used_last(tmp_path: Path) -> None:
    import numpy as np

    from casual_mcp_nb.discovery.vector_file import VectorFile

    file = VectorFile(tmp_path / "vectors.db", max_bytes=200_000)
    for number in range(40):
        file.write(
            b"space", {f"{number}-{n}".encode(): np.full(1_000, n, np.int8) for n in range(10)}
        )
        with sqlite3.connect(file.path) as connection:
            connection.execute("UPDATE vectors SET used = 0 WHERE key LIKE '0-%'")
        connection.close()
    assert 0 < file.path.stat().st_size < 400_000
    assert len(file.read({key: key for key in (b"39-0", b"39-9", b"0-1")})) == 2


@pytest.mark.defect("N9")
def test_rows_of_another_type_are_computed_again(tmp_path: Path) -> None:
    import numpy as np

    file = VectorFile(tmp_path / "vectors.db")
    keys = {f"{number}".encode(): f"{number}".encode() for number in range(7)}
    file.write(b"space", {key: np.ones(8, np.int8) for key in keys})
    wrong = {
        "0": "vector = 'text'",
        "1": "vector = 5",
        "2": "vector = CAST(X'ff' AS TEXT)",
        "3": "used = 'text'",
        "4": "used = X'ff'",
        "5": "vector = X''",
    }
    with sqlite3.connect(file.path) as connection:
        for key, change in wrong.items():
            connection.execute(f"UPDATE vectors SET {change} WHERE key = ?", (key.encode(),))
    connection.close()
    assert set(file.read(keys)) == {b"6"}
    file.write(b"space", {key: np.ones(8, np.int8) for key in keys})
    assert set(file.read(keys)) == set(keys)


@pytest.mark.defect("N9")
def test_a_file_with_another_table_is_created_again(tmp_path: Path) -> None:
    import numpy as np

    file = VectorFile(tmp_path / "vectors.db")
    with sqlite3.connect(file.path) as connection:
        connection.execute("CREATE TABLE vectors (other TEXT)")
    connection.close()
    file.write(b"space", {b"a": np.ones(8, np.int8)})
    assert set(file.read({b"a": b"a"})) == {b"a"}
