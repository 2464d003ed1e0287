"""The search methods that `discovery.py` measures, behind one interface."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.discovery.search_tools import ToolSearchIndex
from casual_mcp_nb.discovery.text import embedded_text
from common.figures import installed

PEERS = Path(__file__).parents[2] / ".third-party" / "minilm" / "packages"
Name = tuple[str, str]
Embed = Callable[[list[str]], Any]
MakeRanker = Callable[[Sequence[ToolSpec]], "Ranker"]


class Ranker(Protocol):
    """A search method. It is created with the tools, so that `build` only builds the index."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None: ...
    def build(self) -> None:
        """Build the index."""

    def search(self, query: str, count: int) -> Any:
        """Find the best tools."""

    def names(self, found: Any) -> list[Name]:
        """Return server and name of each tool that a search found."""


class Ours:
    """This package."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._tools = tools

    def build(self) -> None:
        self._index = ToolSearchIndex(self._tools)

    def search(self, query: str, count: int) -> Any:
        return self._index.search(query, count)

    def names(self, found: Any) -> list[Name]:
        return [(hit.tool.server, hit.tool.name) for hit in found]


class Fused(Ours):
    """This package with an embedding. Texts are embedded once, however often they occur."""

    def __init__(self, tools: Sequence[ToolSpec], embed: Embed) -> None:
        super().__init__(tools)
        self._embed = embed

    def build(self) -> None:
        self._index = ToolSearchIndex(self._tools, embed=self._embed)


class Meaning:
    """The embedding alone: the closest tools by cosine."""

    def __init__(self, tools: Sequence[ToolSpec], embed: Embed) -> None:
        self._tools = tools
        self._embed = embed

    def build(self) -> None:
        self._vectors = self._embed([embedded_text(tool) for tool in self._tools])

    def search(self, query: str, count: int) -> Any:
        near = self._vectors @ self._embed([query])[0]
        return [self._tools[place] for place in (-near).argsort(kind="stable")[:count]]

    def names(self, found: Any) -> list[Name]:
        return [(tool.server, tool.name) for tool in found]


class CasualMcp:
    """casual-mcp; its tools are called `server_tool`."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        import mcp.types

        self._by_name = {f"{tool.server}_{tool.name}": tool for tool in tools}
        self._tools = [
            mcp.types.Tool(
                name=name, description=tool.description, input_schema=dict(tool.input_schema)
            )
            for name, tool in self._by_name.items()
        ]
        self._owners = {name: tool.server for name, tool in self._by_name.items()}

    def build(self) -> None:
        from casual_mcp.tool_search_index import ToolSearchIndex as Theirs

        self._index = Theirs(self._tools, self._owners)

    def search(self, query: str, count: int) -> Any:
        return self._index.search(query, count)

    def names(self, found: Any) -> list[Name]:
        return [(server, self._by_name[tool.name].name) for server, tool in found]


class FastMcp:
    """FastMCP's transform as it searches: it builds the index at the first search, and hashes the
    catalog at every search.
    """

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        from fastmcp.tools.base import Tool

        self._by_name = {tool.wire_name: tool for tool in tools}
        self._tools = [
            Tool(name=name, description=tool.description, parameters=dict(tool.input_schema))
            for name, tool in self._by_name.items()
        ]
        self._loop = asyncio.new_event_loop()

    def build(self) -> None:
        from fastmcp.server.transforms.search import BM25SearchTransform

        self._transform = BM25SearchTransform(max_results=5)
        self.search("", 5)

    def search(self, query: str, count: int) -> Any:
        self._transform._max_results = count
        return self._loop.run_until_complete(self._transform._search(self._tools, query))

    def names(self, found: Any) -> list[Name]:
        owners = (self._by_name[tool.name] for tool in found)
        return [(tool.server, tool.name) for tool in owners]


class Bm25s:
    """bm25s over name and description, with its stop words.

    Without a stemmer, which is another package.
    """

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._tools = tools
        self._texts = [
            f"{tool.name.replace('_', ' ').replace('-', ' ')} {tool.description}" for tool in tools
        ]

    def build(self) -> None:
        import bm25s

        self._split = partial(bm25s.tokenize, stopwords="en", show_progress=False)
        self._index = bm25s.BM25()
        self._index.index(self._split(self._texts), show_progress=False)

    def search(self, query: str, count: int) -> Any:
        places, _ = self._index.retrieve(
            self._split([query]), k=min(count, len(self._tools)), show_progress=False
        )
        return [self._tools[place] for place in places[0]]

    def names(self, found: Any) -> list[Name]:
        return [(tool.server, tool.name) for tool in found]


def rankers(embed: Embed | None = None) -> dict[str, MakeRanker]:
    """Return the rankers that can be measured here, ours first."""
    found: dict[str, MakeRanker] = {"ours": Ours}
    if embed is not None:
        found |= {
            "ours + embedding": partial(Fused, embed=embed),
            "embedding": partial(Meaning, embed=embed),
        }
    if installed("casual_mcp"):
        found["casual-mcp"] = CasualMcp
    found["FastMCP BM25"] = FastMcp
    # A peer of the group `minilm` of .ci/third_party.py.
    if PEERS.is_dir() and str(PEERS) not in sys.path:
        sys.path.append(str(PEERS))
    return found | ({"bm25s": Bm25s} if installed("bm25s") else {})


def embedding(name: str) -> Embed:
    """Return the function that `MODULE:FUNCTION` names, with a cache: most texts occur several
    times here.
    """
    module, _, function = name.partition(":")
    embed = getattr(importlib.import_module(module), function)
    known: dict[str, Any] = {}

    def remembered(texts: list[str]) -> Any:
        import numpy as np

        new = [text for text in dict.fromkeys(texts) if text not in known]
        vectors = np.asarray(embed(new), dtype=np.float64) if new else ()
        known.update(
            (text, row / (np.linalg.norm(row) or 1.0))
            for text, row in zip(new, vectors, strict=True)
        )
        return np.array([known[text] for text in texts])

    return remembered
