"""Time and memory of search by meaning, with static vectors on this computer: `python
benchmarks/meaning.py [--data DIR]`.

The model is one of model2vec in a folder, loaded and asked as a session does, with random vectors
for the words of the tools: what a search costs does not depend on their values. The peer is the
same search by words alone. Times are of the processor, so the load of the machine does not count.
The last lines are about a second session, which has the vectors of 10,000 tools in the file of the
first, with 1,536 numbers each, as large models return: how long until it searches by meaning, and
the memory.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from common import DATA, parser_for
from common.figures import Figure, Unavailable, installed, milliseconds, print_figures
from discovery import Data, grown, load, sample

from casual_mcp_nb.base.config import EmbeddingConfig
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.discovery.meaning import Meaning, load_local
from casual_mcp_nb.discovery.search_tools import ToolSearchIndex
from casual_mcp_nb.discovery.text import embedded_text
from casual_mcp_nb.discovery.vector_file import VectorFile

LIMITS_MS = {5_000: 3.0, 50_000: 10.0}
WIDTH, LARGE_WIDTH = 256, 1_536
STORED = 10_000
STORED_SECONDS, STORED_MB = 0.3, 40.0
QUERIES = 50


def save_model(folder: Path, texts: Iterable[str], width: int) -> EmbeddingConfig:
    """Save a model with a random vector for each word."""
    from model2vec import StaticModel
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    words = sorted({word for text in texts for word in text.lower().split()})
    tokenizer = Tokenizer(
        models.WordLevel(
            {"[UNK]": 0, **{word: n for n, word in enumerate(words, 1)}}, unk_token="[UNK]"
        )
    )
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    rows = np.random.default_rng(1).normal(size=(len(words) + 1, width)).astype(np.float32)
    StaticModel(rows, tokenizer).save_pretrained(folder)
    return EmbeddingConfig(local=str(folder))


async def search_ms(
    config: EmbeddingConfig, tools: Sequence[ToolSpec], queries: Sequence[str]
) -> tuple[float, float]:
    """Milliseconds of the median search, by words and meaning, and by words."""
    meaning = Meaning(partial(load_local, config), "static")
    both, words = ToolSearchIndex(tools, embed=meaning), ToolSearchIndex(tools)
    await ready(meaning, tools)
    times: list[tuple[float, float]] = []
    for query in queries:
        started = time.process_time()
        await both.prepare(query)
        both.search(query)
        times.append(
            (
                (time.process_time() - started) * 1_000,
                milliseconds(partial(words.search, query), clock=time.process_time),
            )
        )
    if both.ranked_by(queries[-1]) != "words and meaning":
        raise RuntimeError(meaning.state)
    await meaning.close()
    return statistics.median(pair[0] for pair in times), statistics.median(
        pair[1] for pair in times
    )


async def ready(meaning: Meaning, tools: Sequence[ToolSpec]) -> None:
    """Wait until all tools have vectors."""
    meaning.timeout = 600
    meaning.start_with(tools)
    await meaning.settle()


async def stored(
    config: EmbeddingConfig, tools: Sequence[ToolSpec], file: Path
) -> tuple[float, float]:
    """Seconds until a second session has all vectors, and the most memory that it takes for that,
    in MB.
    """
    await ready(Meaning(partial(load_local, config), "static", file=VectorFile(file)), tools)
    measured = []
    for traced in (False, True):
        load_model = partial(load_local, config)
        model = load_model()
        if traced:
            tracemalloc.start()
        started = time.process_time()
        meaning = Meaning(lambda model=model: model, "static", file=VectorFile(file))  # type: ignore[misc]
        await ready(meaning, tools)
        measured.append(
            tracemalloc.get_traced_memory()[1] / 1e6 if traced else time.process_time() - started
        )
        tracemalloc.stop()
    return measured[0], measured[1]


def figures(quick: bool) -> list[Figure]:
    """What a search by meaning takes, and what a second session takes to have its vectors."""
    data = sample() if quick or not DATA.is_dir() else load(DATA)
    return measured(data, quick)


def measured(data: Data, quick: bool) -> list[Figure]:
    if not installed("model2vec"):
        raise Unavailable("model2vec is not installed: pip install casual-mcp-nb[meaning]")
    results = []
    texts = [embedded_text(tool) for tool in data.speed_tools] + data.speed_queries
    with tempfile.TemporaryDirectory() as folder:
        config = save_model(Path(folder, "small"), texts, WIDTH)
        for size, limit in {50: 3.0}.items() if quick else LIMITS_MS.items():
            both, words = asyncio.run(
                search_ms(config, grown(data.speed_tools, size), data.speed_queries[:QUERIES])
            )
            results.append(
                Figure(f"{size:,} tools, a search by words and meaning", both, "ms", words, limit)
            )
        large = save_model(Path(folder, "large"), texts, LARGE_WIDTH)
        count = 50 if quick else STORED
        # Copies have the same texts, and so would have the same vectors.
        tools = [
            ToolSpec(tool.server, f"{tool.name}_{n}", tool.description, {})
            for n, tool in enumerate(grown(data.speed_tools, count))
        ]
        seconds, memory = asyncio.run(stored(large, tools, Path(folder, "vectors.db")))
        results.append(
            Figure(
                f"{count:,} tools, vectors of a second session", seconds, "s", limit=STORED_SECONDS
            )
        )
        results.append(
            Figure(f"{count:,} tools, most memory for that", memory, "MB", limit=STORED_MB)
        )
    return results


def main(argv: Sequence[str]) -> None:
    """Print the figures."""
    parser = parser_for(__doc__)
    options = parser.parse_args(argv)
    print_figures(measured(load(options.data) if options.data else sample(), quick=False))


if __name__ == "__main__":
    main(sys.argv[1:])
