"""Find tools that a query mentions by name."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

from casual_mcp_nb.types.tool import ToolSpec

_MAX_WORDS = 6
_MAX_CHUNKS = 500


class ExactNames:
    """Finds tool names in queries: the bare name, the wire name and `server:tool`, ignoring case.

    A bare name that is an ordinary word (`search`, `time`) counts only if it is the whole query or is quoted: in a sentence it
    is usually just that word.

    Args:
        tools: The tools; results are indices into this list.

    Attributes:
        plain: The names that are ordinary words.
    """

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._places: dict[str, list[int]] = {}
        self.plain: set[str] = set()
        self._longest = 1
        self._starts: set[str] = set()
        for index, tool in enumerate(tools):
            name = tool.name.strip().casefold()
            if name.isalpha() and (tool.name.islower() or tool.name.istitle()):
                self.plain.add(name)
            elif " " in name:
                words = name.split()
                self._longest = max(self._longest, min(_MAX_WORDS, len(words)))
                self._starts.update((words[0], _bare(words[0])))
            for form in {name, tool.wire_name.casefold(), f"{tool.server}:{tool.name}".casefold()}:
                self._places.setdefault(form, []).append(index)

    def called(self, query: str) -> list[int]:
        """Find the indices of the tools that a query mentions by name, in order."""
        whole = query.strip().casefold()
        indices = set(self._places.get(whole, ())) | set(self._places.get(_bare(whole), ()))
        for text in self._pieces(whole):
            indices.update(self._places.get(text, ()))
        return sorted(indices)

    def _pieces(self, query: str) -> Iterator[str]:
        chunks = query.split(maxsplit=_MAX_CHUNKS)[:_MAX_CHUNKS]
        for start, chunk in enumerate(chunks):
            bare = _bare(chunk)
            yield from self._forms(chunk, bare)
            if chunk in self._starts or bare in self._starts:
                for end in range(start + 2, min(start + self._longest, len(chunks)) + 1):
                    phrase = " ".join(chunks[start:end])
                    yield from self._forms(phrase, _bare(phrase))

    def _forms(self, chunk: str, bare: str) -> Iterator[str]:
        if chunk not in self.plain:
            yield chunk
        if bare != chunk and (bare not in self.plain or _quoted(chunk, bare)):
            yield bare


def _bare(text: str) -> str:
    """Strip leading and trailing punctuation from `text`."""
    start, end = 0, len(text)
    while start < end and not (text[start].isalnum() or text[start] == "_"):
        start += 1
    while start < end and not (text[end - 1].isalnum() or text[end - 1] == "_"):
        end -= 1
    return text[start:end]


def _quoted(chunk: str, bare: str) -> bool:
    before, _, after = chunk.partition(bare)
    return _is_quote(before[-1:]) and _is_quote(after[:1])


def _is_quote(sign: str) -> bool:
    return sign != "" and (sign in "\"'`" or unicodedata.category(sign) in ("Pi", "Pf"))
