"""Phrases that a native speaker would not write stay out of strings, docstrings, comments, screens and pages."""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]

EXCEPTIONS: dict[tuple[str, str], str] = {
    ("casual_mcp_nb/discovery/_vocabulary.py", "standing"): "a word list of the search",
    ("casual_mcp_nb/bundled/files_server.py", "at once"): "a tool's definition, which models read",
    ("casual_mcp_nb/bundled/text_server.py", "stands"): "a tool's definition, which models read",
}
"""Phrases that may stay, by path and phrase, each with the reason."""

BANNED: dict[str, str] = {
    # Habits of sentences.
    r"stand(?:s|ing)?\b(?!-(?:in|alone|by))": "is, means, represents, or leave it out",
    r"stood": "was",
    r"anew": "again",
    r"at once": "immediately, or at the same time",
    r"lets? through": "includes, allows",
    r"(?:take|takes|taken|taking|took) (?:in|out|back)": "include, remove, undo",
    r"dearest|dearer": "most expensive, more expensive",
    r"of (?:its|their|your|his|her|my|our) own(?! \w)": "its own …, separate, custom",
    r"(?:come|comes|came) to(?! (?:an end|rest))": "is, returns, adds up to",
    r"made of": "consists of, or: breakdown",
    r"to be found": "searchable, deferred",
    r"asked for": "requested",
    r"your word": "your approval",
    r"(?:go|goes|went|going) on with": "continues",
    r"put by": "kept for later",
    r"(?<!\bthere) is no (?!longer|more|less|need|one\b)\w+": "is not a …",
    r"for ever": "forever",
    r"in few words": "in short",
    r"side by side": "concurrently, next to each other",
    # Phrases of earlier screens.
    r"answers? (?:unknown|not known)": "output tokens not reported",
    r"\d[\d,.]*(?: tokens?)? \(estimated\)": "≈ before the number",
    r"with nothing deferred": "if every tool were loaded",
    r"before anything is (?:said|asked)": "before the first message",
    r"what (?:finds them|it is made of)": "search_tools itself, breakdown",
    r"not in these sums": "… model calls reported no token count",
    r"finds at most": "Max results",
    r"newly loaded": "loaded, or: found and loaded",
    r"behind the cut|the cut is at": "not returned (limit …)",
    r"fold all": "Collapse all",
    r"in force": "in use",
    r"take what is ticked": "Use current ticks",
    r"ask this instead": "Send edited message",
    r"nothing has been said": "Ask a question below",
    r"(?:there is )?nobody to ask": "No one is available to …",
    r"there are tools of": "Available: …",
    r"up to there is kept": "Completed steps are kept",
    r"up to there": "so far",
}
"""Regular expressions of banned phrases, each with what to write instead."""

PATTERN = re.compile(
    r"\b(?:" + "|".join(f"(?P<p{number}>{phrase})" for number, phrase in enumerate(BANNED)).replace(" ", r"\s+") + r")(?!\w)",
    re.IGNORECASE,
)


class Passage(NamedTuple):
    """A piece of text with the line where it begins."""

    line: int
    text: str


def banned_in(passage: Passage) -> Iterator[tuple[int, str, str]]:
    """Yield line, phrase and suggestion for each banned phrase in a passage."""
    for match in PATTERN.finditer(passage.text):
        assert match.lastgroup is not None
        suggestion = list(BANNED.values())[int(match.lastgroup[1:])]
        yield passage.line + passage.text.count("\n", 0, match.start()), " ".join(match[0].split()), suggestion


def python_passages(source: str) -> Iterator[Passage]:
    """Yield the strings, docstrings and blocks of comments in Python source."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield Passage(node.lineno, node.value)
    block: list[str] = []
    last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if block and token.start[0] != last + 1:
                yield Passage(last - len(block) + 1, "\n".join(block))
                block = []
            block.append(token.string.lstrip("# "))
            last = token.start[0]
    if block:
        yield Passage(last - len(block) + 1, "\n".join(block))


def passages(path: Path) -> Iterator[Passage]:
    """Yield the texts in a file that people read."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield from python_passages(source)
    elif path.suffix == ".ipynb":
        for number, cell in enumerate(json.loads(source)["cells"], 1):
            if cell["cell_type"] == "markdown":
                yield Passage(number, "".join(cell["source"]).replace("\n", " "))
    else:
        yield Passage(1, source)


def files() -> Iterator[Path]:
    """Yield the files to check."""
    yield from (ROOT / "casual_mcp_nb").rglob("*.py")
    yield from (ROOT / "casual_mcp_nb" / "display" / "templates").glob("*.j2")
    for suffix in ("ts", "tsx", "css"):
        yield from (ROOT / "casual_mcp_nb" / "widgets" / "frontend" / "src").rglob(f"*.{suffix}")
    yield from (path for folder in (".ci", "benchmarks", "docs") for path in (ROOT / folder).rglob("*.py"))
    yield from ROOT.glob("*.md")
    yield from (path for path in (ROOT / "docs").rglob("*.md") if "decisions" not in path.parts)
    yield from (ROOT / "notebooks").glob("*.ipynb")


def test_no_text_has_a_banned_phrase() -> None:
    problems = []
    for path in sorted(files()):
        name = path.relative_to(ROOT).as_posix()
        for passage in passages(path):
            problems += [
                f"{name}:{line}: '{phrase}': {suggestion}"
                for line, phrase, suggestion in banned_in(passage)
                if (name, phrase.lower()) not in EXCEPTIONS
            ]
    assert not problems, "\n".join(problems)


def test_every_exception_is_needed() -> None:
    for name, phrase in EXCEPTIONS:
        found = {each.lower() for passage in passages(ROOT / name) for _, each, _ in banned_in(passage)}
        assert phrase in found, f"{name} no longer has '{phrase}': remove the exception"


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("What stands in the file\nis read\nanew.", [(1, "stands"), (3, "anew")]),
        ("A stand-in for the server. There is no server, it is no longer used, and there\nis no name.", []),
        ("That is\nno toolset.", [(1, "is no toolset")]),
        ("≈ 824 tokens in, not 824 tokens (estimated)", [(1, "824 tokens (estimated)")]),
        ("The standard way to understand it", []),
    ],
)
def test_banned_phrases_are_found_with_their_line(text: str, phrases: list[tuple[int, str]]) -> None:
    assert [(line, phrase) for line, phrase, _ in banned_in(Passage(1, text))] == phrases


def test_comments_over_several_lines_are_read_as_one_text() -> None:
    source = 'x = 1\n# The server takes\n# back what it sent.\ny = "plain text"\n'
    assert [phrase for passage in python_passages(source) for _, phrase, _ in banned_in(passage)] == ["takes back"]
