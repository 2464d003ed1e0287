"""Compare tools and queries by meaning: embedding models, their vectors in a file, and the work in
the background.

Each text's vector is computed once per model. One file in the user's cache folder has the vectors
for all sessions, by text hash. The texts are names and tool descriptions, and search queries. Never
arguments or call results.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import sqlite3
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.config import EmbeddingConfig
from casual_mcp_nb.base.limits import LONGEST_WAIT
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.discovery.text import embedded_text
from casual_mcp_nb.doors import pip_install
from casual_mcp_nb.errors import (
    CasualMcpError,
    MissingDependencyError,
    ProviderError,
    UsageError,
    install,
    shown,
)

logger = logging.getLogger(__name__)

Rows = NDArray[np.int8]
Embed = Callable[[list[str], bool], Awaitable[Any]]
"""Texts, and whether the first one is a query, to an array with one row for each.

A service does not need to know that.
"""

_MAX_VALUES = 120_000
"""How many numbers to request at a time."""
_FIRST_BATCH, _MAX_BATCH = 32, 256
_MAX_TEXT = 2_000
_PARALLEL = 4
_RETRY_SECONDS = 30.0
"""How many seconds to wait before trying a failed model again."""
_PAUSES = (0.5, 2.0)
_LOAD_SECONDS = 5.0
"""How many seconds the first search waits for loading the model and reading the file, besides the
config's `timeout`.
"""
_MAX_QUERIES = 500
_SAME = 0.98
"""Minimum cosine between a text's two vectors for them to count as the same model's."""
MAX_FILE_BYTES = 256_000_000
_DAY_MS = 86_400_000
_BUSY_SECONDS = 2.0
_AT_A_TIME = 500
_CHUNK = 262_144
"""How many of the table's numbers to convert at a time: they stay in the processor's cache."""


def quantized(vectors: Any, count: int) -> Rows:
    """Convert vectors to one byte for each number, which changes a cosine by less than 0.01.

    Raises:
        ValueError: There is not one row with finite numbers for each text.
    """
    values = np.asarray(vectors, dtype=np.float32)
    if values.ndim != 2 or len(values) != count or not values.size or not np.isfinite(values).all():
        raise ValueError("an embedding must return one row of finite numbers for each text")
    largest = np.abs(values).max(axis=1, keepdims=True)
    rows: Rows = np.rint(values * (127 / np.where(largest > 0, largest, 1.0))).astype(np.int8)
    return rows


class VectorTable:
    """Text vectors by key, all with the same length.

    Changes replace the whole table, so that another thread can read it.
    """

    def __init__(self, places: Mapping[bytes, int] | None = None, rows: Rows | None = None) -> None:
        self.places = places or {}
        self.rows = np.zeros((0, 0), np.int8) if rows is None else rows
        norms = [self._norms(part) for part in self._parts()]
        self._lengths = np.concatenate([np.zeros(0, np.float32), *norms])

    def __len__(self) -> int:
        return len(self.places)

    def with_rows(self, new: Mapping[bytes, Rows]) -> VectorTable:
        """Copy the table with more rows. Raises ValueError if they have another length."""
        new = {key: row for key, row in new.items() if key not in self.places}
        if not new:
            return self
        added = np.array(list(new.values()))
        rows = np.concatenate([self.rows, added]) if len(self) else added
        places = {key: number for number, key in enumerate(new, len(self))}
        return VectorTable({**self.places, **places}, rows)

    def cosines(self, row: Rows) -> NDArray[np.float32]:
        """Compute a vector's cosine with each row."""
        query = row.astype(np.float32)
        parts = [part.astype(np.float32) @ query for part in self._parts()]
        dots = np.concatenate([np.zeros(0, np.float32), *parts])
        cosines: Any = dots / (self._lengths * (float(np.linalg.norm(query)) or 1.0))
        return np.asarray(cosines, dtype=np.float32)

    def _parts(self) -> list[Rows]:
        step = max(1, _CHUNK // max(1, self.rows.shape[1]))
        return [self.rows[start : start + step] for start in range(0, len(self.rows), step)]

    @staticmethod
    def _norms(rows: Rows) -> NDArray[np.float32]:
        return np.asarray(
            np.maximum(np.linalg.norm(rows.astype(np.float32), axis=1), 1.0), dtype=np.float32
        )


def cache_path() -> Path:
    """Find the file for vectors, in the user's cache folder."""
    from platformdirs import user_cache_path

    return user_cache_path("casual_mcp_nb", appauthor=False) / "embeddings.db"


_SCHEMA = """
CREATE TABLE IF NOT EXISTS vectors (
    key BLOB PRIMARY KEY, space BLOB NOT NULL, used INTEGER NOT NULL, vector BLOB NOT NULL
) WITHOUT ROWID
"""


class VectorFile:
    """Vectors in an SQLite file that programs can share.

    The least recently used ones make room for others.

    Replaces a damaged file. Works without one that it cannot read or write.
    """

    def __init__(self, path: Path, max_bytes: int = MAX_FILE_BYTES) -> None:
        self.path = path
        self._max_bytes = max_bytes

    def read(self, keys: Mapping[bytes, bytes]) -> dict[bytes, Rows]:
        """Read the stored vectors for some keys, each to be called by another key."""

        def select(connection: sqlite3.Connection) -> dict[bytes, Rows]:
            rows: dict[bytes, Rows] = {}
            old: list[bytes] = []
            damaged: list[bytes] = []
            # Neighbours are on the same page.
            ordered = sorted(keys)
            for start in range(0, len(ordered), _AT_A_TIME):
                some = ordered[start : start + _AT_A_TIME]
                marks = ",".join("?" * len(some))
                for key, used, vector in connection.execute(
                    f"SELECT key, used, vector FROM vectors WHERE key IN ({marks})", some
                ):
                    if not isinstance(used, int) or not isinstance(vector, bytes) or not vector:
                        damaged.append(key)
                        continue
                    rows[keys[key]] = np.frombuffer(vector, np.int8)
                    if used < now - _DAY_MS:
                        old.append(key)
            connection.executemany(
                "UPDATE vectors SET used = ? WHERE key = ?", [(now, key) for key in old]
            )
            # They are computed again.
            connection.executemany("DELETE FROM vectors WHERE key = ?", [(key,) for key in damaged])
            return rows

        now = int(time.time() * 1_000)
        if not keys or not self.path.exists():
            return {}
        return self._run(select) or {}

    def write(self, space: bytes, rows: Mapping[bytes, Rows]) -> None:
        """Add vectors."""

        def add(connection: sqlite3.Connection) -> None:
            now = int(time.time() * 1_000)
            values = [(key, space, now, row.tobytes()) for key, row in rows.items()]
            connection.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)", values)
            pages, free, size = (
                connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_count", "freelist_count", "page_size")
            )
            if (pages - free) * size > self._max_bytes:
                count = connection.execute("SELECT count(*) FROM vectors").fetchone()[0]
                oldest = (
                    "DELETE FROM vectors WHERE key IN (SELECT key FROM vectors ORDER BY used"
                    " LIMIT ?)"
                )
                connection.execute(oldest, (count // 4 + 1,))

        self._run(add)

    def forget(self, space: bytes) -> None:
        """Delete a model's vectors."""

        def delete(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM vectors WHERE space = ?", (space,))

        self._run(delete)

    def _run(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        for attempt in range(2):
            try:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                # Created first, because SQLite would let others read it.
                os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
                with (
                    closing(sqlite3.connect(self.path, timeout=_BUSY_SECONDS)) as connection,
                    connection,
                ):
                    # Text that is not UTF-8 would make a whole query fail.
                    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
                    connection.execute(_SCHEMA)
                    return work(connection)
            except sqlite3.DatabaseError as error:
                if (
                    isinstance(error, sqlite3.OperationalError)
                    and error.sqlite_errorcode != sqlite3.SQLITE_ERROR
                ):
                    # Locked for long, or on a disk that is full. Otherwise, its table is another
                    # one.
                    logger.info("Embeddings cannot be cached in %s: %s", self.path, error)
                    return None
                if attempt:
                    return None
                logger.warning("%s is damaged, so it is created again.", self.path)
                with suppress(OSError):
                    self.path.unlink()
            except OSError as error:
                logger.info("Embeddings cannot be cached: %s", error)
                return None
        return None


@dataclass(frozen=True)
class EmbeddingModel:
    """A model that converts texts to vectors.

    Args:
        label: Its name in displays.
        embed: Converts texts.
        space: Identifies everything that its vectors depend on. Vectors with the same space are
            comparable, and are kept in a file. Empty: they are neither.
        remote: Whether a service runs it.
        encode: Converts texts immediately, which only static vectors can, or None.
    """

    label: str
    embed: Embed = field(repr=False)
    space: str = ""
    remote: bool = False
    encode: Callable[[list[str]], Any] | None = field(default=None, repr=False)


def of_function(function: Callable[[list[str]], Any]) -> EmbeddingModel:
    """Make a model from a person's function, which takes a list of texts.

    Calls it on another thread, or awaits it.
    """
    name = getattr(function, "__name__", type(function).__name__)

    async def embed(texts: list[str], query: bool) -> Any:
        vectors = await asyncio.to_thread(function, texts)
        return await vectors if isinstance(vectors, Awaitable) else vectors

    return EmbeddingModel(f"the function {name}", embed)


def local_folder(config: EmbeddingConfig, folder: Path | None = None) -> Path | None:
    """Find a local model's folder, or None to download it.

    Raises:
        UsageError: It is not on this computer, and may not be downloaded.
    """
    name = config.local or ""
    path = Path(name).expanduser()
    places = [path]
    if folder and not path.is_absolute():
        places.append(folder / path)
    for each in places:
        if each.is_dir():
            return each.resolve()
    if not path.is_absolute() and 0 < len(path.parts) <= 2 and not name.startswith((".", "~")):
        with suppress(ImportError, OSError, ValueError):
            from huggingface_hub import snapshot_download

            return Path(snapshot_download(name, local_files_only=True))
        if config.download:
            return None
    raise UsageError(
        f"The embedding model {shown(name)} is not on this computer.",
        hint=(
            f'Give a folder; or get it with: hf download {name}; or permit it: {{"local": "{name}",'
            ' "download": true}.'
        ),
    )


def load_local(config: EmbeddingConfig, folder: Path | None = None) -> EmbeddingModel:
    """Load a local model with model2vec, sentence-transformers or fastembed, whichever it fits.

    This takes a while.

    Raises:
        UsageError: It is not on this computer, and may not be downloaded, or loading it failed.
        MissingDependencyError: The package that it needs is not installed.
    """
    path = local_folder(config, folder)
    name = config.local or ""
    if path is None:
        from huggingface_hub import snapshot_download

        path = Path(snapshot_download(name))
    try:
        encode, static = _encoder(path)
    except ImportError as error:
        package = error.name or "model2vec"
        how = f"Run: {pip_install(package)}"
        if package in ("model2vec", "tokenizers", "safetensors"):
            how = install("meaning")
        raise MissingDependencyError(
            f"The embedding model {shown(name)} needs the package {package}.", hint=how
        ) from None
    except Exception as error:
        raise UsageError(
            f"The embedding model {shown(name)} cannot be loaded ({type(error).__name__})."
        ) from error

    async def embed(texts: list[str], query: bool) -> Any:
        return await asyncio.to_thread(encode, texts, query)

    files = sorted(each for each in path.rglob("*") if each.is_file())
    facts = [(each.name, each.stat().st_size, each.stat().st_mtime_ns) for each in files[:1_000]]
    return EmbeddingModel(
        name,
        embed,
        f"local {path} {facts}",
        encode=partial(encode, query=False) if static else None,
    )


def _encoder(path: Path) -> tuple[Callable[..., Any], bool]:
    """Load a model.

    Return a function of texts and whether they are a query, and whether the vectors are static.
    """
    modules = path / "modules.json"
    # A static model has this file too.
    if modules.is_file() and "StaticEmbedding" not in modules.read_text(
        encoding="utf-8", errors="replace"
    ):
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(
            str(path), local_files_only=True, model_kwargs={"use_safetensors": True}
        )

        def transform(texts: list[str], query: bool) -> Any:
            encode = model.encode_query if query else model.encode_document
            return encode(texts, show_progress_bar=False)

        return transform, False
    if any(path.rglob("*.onnx")):
        from fastembed import TextEmbedding

        # It is told the model's name, which its folder has.
        folder = str(path).replace("--", "/").casefold()
        names = [str(each["model"]) for each in TextEmbedding.list_supported_models()]
        name = next(
            (name for name in names if name.rsplit("/", 1)[-1].casefold() in folder), path.name
        )
        onnx = TextEmbedding(name, specific_model_path=str(path))

        def embed(texts: list[str], query: bool) -> Any:
            run = onnx.query_embed if query else onnx.passage_embed
            return list(run(texts))

        return embed, False
    from model2vec import StaticModel

    static = StaticModel.from_pretrained(path)

    def encode(texts: list[str], query: bool) -> Any:
        return static.encode(texts, show_progress_bar=False)

    return encode, True


class Meaning:
    """A session's embedding model, with the vectors for its tools and queries.

    It belongs to one event loop.

    A search by meaning needs the vectors for all its tools. The model computes them in the
    background. Until then, and whenever it fails, searches rank by words.

    Args:
        load: Makes the model, on another thread.
        label: The model's name in displays.
        file: The file for vectors, or None.
        timeout: How long a search waits for the model, in seconds.
        changed: Called when the state changes.
    """

    def __init__(
        self,
        load: Callable[[], EmbeddingModel],
        label: str,
        *,
        file: VectorFile | None = None,
        timeout: float = 2.0,
        changed: Callable[[], object] = ignore,
    ) -> None:
        self.label = label
        self.timeout = timeout
        self.problem = ""
        self.changed = changed
        self._load = load
        self._model: EmbeddingModel | None = None
        self._file = file
        self._table = VectorTable()
        self._queries: dict[str, Rows] = {}
        self._wanted: dict[bytes, str] = {}
        self._texts: dict[bytes, str] = {}
        self._task: asyncio.Task[None] | None = None
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._starting: set[asyncio.Task[None]] = set()
        self._waited = False
        self._read = asyncio.Event()
        self._retry_at = 0.0
        self._changes = 0
        self._told = ""
        self._batch = _FIRST_BATCH

    def over(self, texts: list[str]) -> TextVectors:
        """Get the vectors for some texts, as far as they are computed."""
        return TextVectors(self, texts)

    @property
    def table(self) -> VectorTable:
        """The vectors computed so far."""
        return self._table

    @property
    def state(self) -> str:
        """How search ranks, in a sentence."""
        if self.problem:
            return self.problem
        if self._wanted or not len(self._table):
            done = len(self._texts) - len(self._wanted)
            return (
                f"Search ranks by words until {self.label} has embedded all tools ({done:,} of"
                f" {len(self._texts):,})."
            )
        return f"Search ranks by words and meaning ({self.label})."

    def new_problem(self) -> str:
        """Get the problem to report to the person, or empty if there is none or it was reported
        before.
        """
        new = self.problem if self.problem != self._told else ""
        self._told = self.problem or self._told
        return new

    def start(self, texts: Mapping[bytes, str]) -> None:
        """Compute the missing vectors for these texts in the background."""
        places = self._table.places
        new = {key: text for key, text in texts.items() if key not in places}
        self._texts.update(texts)
        if new:
            self._wanted.update(new)
            if not _unfinished(self._task) and time.monotonic() >= self._retry_at:
                self._waited = False
                self._task = asyncio.create_task(self._embed_wanted())

    def start_with(self, tools: Sequence[ToolSpec]) -> None:
        """Compute the missing vectors for these tools in the background."""

        async def number() -> None:
            self.start((await self._over(tools)).keys)

        task = asyncio.create_task(number())
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def prepare(self, query: str, texts: TextVectors) -> None:
        """Get ready to compare a query with some texts, unless that takes too long."""
        query = query[:_MAX_TEXT]
        if not query.strip():
            return
        if texts.places() is None:
            self.start(texts.keys)
        # Only the first searches wait: with many tools, it takes long.
        first = not self._waited and bool(_unfinished(self._task))
        with suppress(TimeoutError):
            # What another session has computed is there as soon as the model is loaded.
            async with asyncio.timeout(_LOAD_SECONDS if first else 0):
                await self._read.wait()
        try:
            async with asyncio.timeout(self.timeout):
                if first and (tasks := _unfinished(self._task)):
                    try:
                        await asyncio.wait(tasks)
                    finally:
                        self._waited = True
                if (
                    texts.places() is None
                    or query in self._queries
                    or time.monotonic() < self._retry_at
                ):
                    return
                if query not in self._asking:
                    self._asking[query] = asyncio.create_task(self._embed_query(query))
                await asyncio.wait({self._asking[query]})
        except TimeoutError:
            if query in self._asking:
                self._fail(f"{self.label} did not answer within {self.timeout:g} s")

    async def settle(self) -> tuple[int, int]:
        """Wait for the background work, `timeout` seconds at most.

        Count the tools with vectors, and all tools to embed.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(self.timeout):
                while tasks := _unfinished(*self._starting, self._task):
                    await asyncio.wait(tasks)
        return len(self._texts) - len(self._wanted), len(self._texts)

    async def known_vectors(
        self, tools: Sequence[ToolSpec], queries: Iterable[str]
    ) -> KnownVectors | None:
        """Compute the vectors for these tools and queries, however long that takes, or None if the
        model fails.

        An index takes them as its `embed`, for many searches or in another process.
        """
        texts = await self._over(tools)
        self.start(texts.keys)
        while tasks := _unfinished(self._task):
            await asyncio.wait(tasks)
        model, places, wanted = self._model, texts.places(), list(dict.fromkeys(queries))
        if model is None or places is None:
            return None
        rows = dict(zip(texts.texts, self._table.rows[places], strict=True))
        try:
            for start in range(0, len(wanted), self._batch):
                some = wanted[start : start + self._batch]
                vectors = await model.embed([text[:_MAX_TEXT] for text in some], True)
                rows |= zip(some, quantized(vectors, len(some)), strict=True)
        except Exception as error:
            self._fail(_short(error), _asked_until(error))
            return None
        return KnownVectors(rows)

    def vector(self, query: str) -> Rows | None:
        """Look up a prepared query's vector, or None."""
        return self._queries.get(query[:_MAX_TEXT])

    def word_vectors(self, words: list[str]) -> Rows | None:
        """Compute the vectors for some words, or None if the model cannot do that immediately."""
        encode = self._model.encode if self._model else None
        if encode is None or not words:
            return None
        return quantized(encode(words), len(words))

    def retry(self) -> None:
        """Try a failed model again at the next search."""
        self._retry_at = 0.0

    async def close(self) -> None:
        """End the background work."""
        tasks = _unfinished(*self._starting, self._task, *self._asking.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)

    async def _over(self, tools: Sequence[ToolSpec]) -> TextVectors:
        def over() -> TextVectors:
            return self.over([embedded_text(tool) for tool in tools])

        return await asyncio.to_thread(over)

    async def _embed_wanted(self) -> None:
        try:
            if self._model is None:
                self._model = await asyncio.to_thread(self._load)
            model = self._model
            space = _digest(model.space)
            if self._file and model.space:
                keys = {_key(space, text): key for key, text in self._wanted.items()}
                await self._add(await asyncio.to_thread(self._file.read, keys))
            self._read.set()
            batches = _Batches(self._wanted)
            rows: dict[bytes, Rows] = {}
            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(_PARALLEL if model.remote else 1):
                        group.create_task(self._embed_batches(model, space, batches, rows))
            finally:
                await self._add(rows)
            if self.problem and time.monotonic() >= self._retry_at:
                self.problem = self._told = ""
        except Exception as error:
            self._fail(_short(error), _asked_until(error))
        finally:
            self._read.set()
        self.changed()
        if self._wanted and time.monotonic() >= self._retry_at:
            # More were added meanwhile.
            self._task = asyncio.create_task(self._embed_wanted())

    async def _embed_batches(
        self, model: EmbeddingModel, space: bytes, batches: _Batches, rows: dict[bytes, Rows]
    ) -> None:
        while batch := batches.next(self._batch):
            vectors = await self._request(model, [text[:_MAX_TEXT] for text in batch.values()])
            if rows and vectors.shape[1] != len(next(iter(rows.values()))):
                raise ValueError("the vectors differ in length")
            if model.remote:
                self._batch = max(1, min(_MAX_BATCH, _MAX_VALUES // vectors.shape[1]))
            new = dict(zip(batch, vectors, strict=True))
            rows.update(new)
            for key in new:
                self._wanted.pop(key, None)
            if self._file and model.space:
                stored = {_key(space, batch[key]): row for key, row in new.items()}
                await asyncio.to_thread(self._file.write, space, stored)
            self.changed()

    async def _request(self, model: EmbeddingModel, texts: list[str]) -> Rows:
        for pause in (*_PAUSES, None):
            try:
                vectors = await model.embed(texts, False)
                return await asyncio.to_thread(quantized, vectors, len(texts))
            except ProviderError as error:
                # One that cannot be reached, or asks for a long wait, is asked again by a later
                # search.
                wait = error.retry_after or 0.0
                if (
                    not error.retryable
                    or error.status is None
                    or pause is None
                    or wait > LONGEST_WAIT
                ):
                    raise
                await asyncio.sleep(max(pause, wait))
        raise AssertionError

    async def _add(self, rows: Mapping[bytes, Rows]) -> None:
        """Add computed vectors to the table."""
        lengths = {len(row) for row in rows.values()}
        if len(self._table):
            lengths.add(self._table.rows.shape[1])
        if len(lengths) > 1:
            # Those in the file are of another model by the same name, or cut: everything is
            # computed again.
            await self._begin_again()
            return
        if rows:
            self._table = await asyncio.to_thread(self._table.with_rows, rows)
        for key in rows:
            self._wanted.pop(key, None)

    async def _embed_query(self, query: str) -> None:
        """Compute a query's vector.

        A service computes a tool's vector with it, to notice a model change.
        """
        try:
            model, table = self._model, self._table
            if model is None or not len(table):
                return
            space = _digest(model.space)
            key = _key(space, f"query {query}")
            stored: Mapping[bytes, Rows] = {}
            if self._file and model.space:
                stored = await asyncio.to_thread(self._file.read, {key: key})
            if len(stored.get(key, ())) == table.rows.shape[1]:
                self._keep(query, stored[key])
                return
            sent, probe = [query], b""
            if model.remote:
                probe = min(self._texts, key=lambda text: len(self._texts[text]))
                sent.append(self._texts[probe][:_MAX_TEXT])
            rows = quantized(await model.embed(sent, True), len(sent))
            if table is not self._table:
                return
            if rows.shape[1] != table.rows.shape[1] or (probe and _differs(table, probe, rows[1])):
                await self._begin_again()
                return
            self._keep(query, rows[0])
            if self.problem:
                self.problem = self._told = ""
                self._retry_at = 0.0
                self.changed()
            if self._file and model.space:
                await asyncio.to_thread(self._file.write, space, {key: rows[0]})
        except Exception as error:
            self._fail(_short(error), _asked_until(error))
        finally:
            self._asking.pop(query, None)

    def _keep(self, query: str, row: Rows) -> None:
        while len(self._queries) >= _MAX_QUERIES:
            self._queries.pop(next(iter(self._queries)))
        self._queries[query] = row

    async def _begin_again(self) -> None:
        """Compute everything again: the model has changed.

        Once only: the vectors of some models vary.
        """
        self._changes += 1
        self._table, self._wanted = VectorTable(), dict(self._texts)
        self._queries.clear()
        if self._file and self._model and self._model.space:
            await asyncio.to_thread(self._file.forget, _digest(self._model.space))
        if self._changes > 1:
            self._retry_at = float("inf")
            self._fail(f"{self.label} returns different vectors for the same texts", self._retry_at)
            return
        self.problem = (
            f"{self.label} has changed, so all tools are embedded again. Until then, search ranks"
            " by words."
        )
        self.changed()
        if not _unfinished(self._task):
            self.start(self._texts)

    def _fail(self, reason: str, until: float | None = None) -> None:
        self._retry_at = until or time.monotonic() + _RETRY_SECONDS
        self.problem = f"Search ranks by words only: {reason}."
        logger.warning("%s", self.problem)
        self.changed()


def _asked_until(error: Exception) -> float | None:
    """When the provider wants to be asked again, by `time.monotonic()`, or None if it does not
    say.
    """
    wait = error.retry_after if isinstance(error, ProviderError) else None
    return time.monotonic() + wait if wait else None


class TextVectors:
    """An index's text vectors."""

    def __init__(self, meaning: Meaning, texts: list[str]) -> None:
        self._meaning = meaning
        self.texts = texts
        self._order = [_digest(text) for text in texts]
        self.keys = dict(zip(self._order, texts, strict=True))
        self._table = VectorTable()
        self._places: NDArray[np.intp] | None = None

    async def prepare(self, query: str) -> None:
        """Get ready for a query, see `Meaning.prepare`."""
        await self._meaning.prepare(query, self)

    def places(self) -> NDArray[np.intp] | None:
        """Find the texts' rows in the table, or None unless all are there."""
        if self._table is not self._meaning.table:
            self._table = table = self._meaning.table
            rows = [table.places[key] for key in self._order if key in table.places]
            self._places = None
            if rows and len(rows) == len(self._order):
                self._places = np.array(rows, dtype=np.intp)
        return self._places

    def word_vectors(self, words: list[str]) -> Rows | None:
        """Compute the vectors for some words, see `Meaning.word_vectors`."""
        return self._meaning.word_vectors(words)

    def cosines(self, query: str) -> NDArray[np.float32] | None:
        """Compute how close each text is to a query, or None if the query was not prepared."""
        row = self._meaning.vector(query)
        if (
            (places := self.places()) is None
            or row is None
            or len(row) != self._table.rows.shape[1]
        ):
            return None
        return self._table.cosines(row)[places]


@dataclass(frozen=True)
class KnownVectors:
    """An embedding for texts with ready vectors."""

    rows: Mapping[str, Rows] = field(repr=False)

    def __call__(self, texts: list[str]) -> NDArray[np.float32]:
        """Look up the text vectors."""
        return np.array([self.rows[text] for text in texts], dtype=np.float32)


class _Batches:
    """The texts to embed, in batches of similar length."""

    def __init__(self, texts: Mapping[bytes, str]) -> None:
        self._left = deque(sorted(texts.items(), key=lambda item: len(item[1])))

    def next(self, size: int) -> dict[bytes, str]:
        return dict(self._left.popleft() for _ in range(min(size, len(self._left))))


def _unfinished(*tasks: asyncio.Task[None] | None) -> set[asyncio.Task[None]]:
    """Choose the tasks that still run."""
    return {task for task in tasks if task is not None and not task.done()}


def _differs(table: VectorTable, key: bytes, row: Rows) -> bool:
    at = table.places.get(key)
    if at is None:
        return False
    stored = VectorTable({b"": 0}, table.rows[at : at + 1])
    return float(stored.cosines(row)[0]) < _SAME


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _key(space: bytes, text: str) -> bytes:
    return hashlib.blake2b(space + text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _short(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, CasualMcpError):
        return str(error).rstrip(".")
    what = error if isinstance(error, ValueError) else type(error).__name__
    return f"the embedding failed ({what})"
