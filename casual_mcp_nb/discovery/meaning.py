"""Compare tools and queries by meaning: embedding models, and the work in the background.

Each text's vector is computed once per model, and kept in a `VectorFile`. The texts are names and
tool descriptions, and search queries. Never arguments or call results.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
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
from casual_mcp_nb.discovery.vector_file import Rows, VectorFile
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
        norms = list(map(self._norms, self._parts()))
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
    may_be_a_hub_name = 0 < len(path.parts) <= 2 and not name.startswith((".", "~"))
    if may_be_a_hub_name and not path.is_absolute():
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
    listed = ""
    if modules.is_file():
        listed = modules.read_text(encoding="utf-8", errors="replace")
    # A static model has this file too.
    if listed and "StaticEmbedding" not in listed:
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
        name = path.name
        for supported in TextEmbedding.list_supported_models():
            if str(supported["model"]).rsplit("/", 1)[-1].casefold() in folder:
                name = str(supported["model"])
                break
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
        if self.problem in ("", self._told):
            return ""
        self._told = self.problem
        return self.problem

    def start(self, texts: Mapping[bytes, str]) -> None:
        """Compute the missing vectors for these texts in the background."""
        places = self._table.places
        new = {key: text for key, text in texts.items() if key not in places}
        self._texts.update(texts)
        if not new:
            return
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
                if texts.places() is None or query in self._queries:
                    return
                if time.monotonic() < self._retry_at:
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
            return self.over(list(map(embedded_text, tools)))

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
                is_brief = error.status is not None and wait <= LONGEST_WAIT
                if pause is None or not error.retryable or not is_brief:
                    raise
                await asyncio.sleep(max(pause, wait))
        raise AssertionError

    async def _add(self, rows: Mapping[bytes, Rows]) -> None:
        """Add computed vectors to the table."""
        lengths = set(map(len, rows.values()))
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
                probe = min(self._texts, key=lambda key: len(self._texts[key]))
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
    if isinstance(error, ProviderError) and error.retry_after:
        return time.monotonic() + error.retry_after
    return None


class TextVectors:
    """An index's text vectors."""

    def __init__(self, meaning: Meaning, texts: list[str]) -> None:
        self._meaning = meaning
        self.texts = texts
        self._order = list(map(_digest, texts))
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
        row, places = self._meaning.vector(query), self.places()
        if row is None or places is None or len(row) != self._table.rows.shape[1]:
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
        self._texts = texts
        self._left = deque(sorted(texts, key=self._length))

    def next(self, size: int) -> dict[bytes, str]:
        batch: dict[bytes, str] = {}
        while self._left and len(batch) < size:
            key = self._left.popleft()
            batch[key] = self._texts[key]
        return batch

    def _length(self, key: bytes) -> int:
        return len(self._texts[key])


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
