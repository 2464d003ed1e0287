"""Count habits of prose in the guides and docstrings, beside three other packages: `python benchmarks/words.py [--peers DIR]`.

DIR has checkouts of the peers (`httpx`, `fastmcp`, `pydantic-ai`). Without it, only the
docstrings of installed peers are counted. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from common.figures import Figure

ROOT = Path(__file__).resolve().parents[1]
LONG = 25

PATTERNS = {
    "what, as a noun": r"\bwhat\b",
    "of": r"(?<!\d )\bof\b",
    "of … of": r"\bof\b(?:[^\w.,;:]+[\w'\u2019-]+){1,4}[^\w.,;:]+of\b",
    "also, too in front": r"(?:^|[,;:(] )(?:also|too)\b",
    ";": r";",
    "say, says": r"\bsays?\b",
    "go on": r"\b(?:go|goes|going|went) on\b",
    "way": r"\bways?\b",
    "room": r"\brooms?\b",
    "passive": r"\b(?:is|are|was|were|be|been|being) (?:\w+ly )?(?:\w+e[dn]|made|sent|read|kept|found|told|shown|left|put)\b",
}
"""Regular expressions of the habits that are counted per 1,000 words."""
COMPILED = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in PATTERNS.items()}


@dataclass(frozen=True)
class Source:
    """Where a package's prose is: its pages below a checkout, and the folder of its modules."""

    name: str
    module: str
    pages: tuple[str, ...]
    without: tuple[str, ...] = ()


OURS = Source("ours", "casual_mcp_nb", ("README.md", "docs/*.md", "docs/guides/*.md"), ("rooms.md",))
PEERS = (
    Source("httpx", "httpx", ("README.md", "docs/**/*.md"), ("code_of_conduct",)),
    Source(
        "fastmcp", "fastmcp", ("README.md", "docs/**/*.mdx"), ("docs/python-sdk", "docs/v2", "changelog", "updates", "snippets")
    ),
    Source(
        "pydantic-ai", "pydantic_ai", ("README.md", "docs/**/*.md"), ("docs/api", "changelog", "AGENTS", "CLAUDE", "overrides")
    ),
)


@dataclass
class Counts:
    """The habits counted in a body of prose."""

    words: int
    sentences: list[int]
    hits: dict[str, int]
    docstrings: int = 0
    returns: int = 0

    def rows(self) -> dict[str, float]:
        """Each figure by its name: rates per 1,000 words, and shares in percent."""
        rates = {name: 1_000 * count / self.words for name, count in self.hits.items()} if self.words else {}
        if self.sentences:
            rates["words in a sentence"] = sum(self.sentences) / len(self.sentences)
            rates[f"% of sentences above {LONG} words"] = 100 * sum(n > LONG for n in self.sentences) / len(self.sentences)
        if self.docstrings:
            rates["% of docstrings that begin with Return"] = 100 * self.returns / self.docstrings
        return rates


def counted(passages: Iterable[str]) -> Counts:
    """Count the habits in paragraphs of plain text."""
    counts = Counts(0, [], dict.fromkeys(PATTERNS, 0))
    for passage in passages:
        for sentence in re.split(r"(?<=[.!?:])[\"”)*]*\s+(?=[\"“(*\[]?[A-Z`])", passage.strip()):
            words = len(re.findall(r"[^\W_][\w'\u2019.-]*", sentence))
            counts.words += words
            if sentence.endswith("?"):
                continue
            if sentence.endswith((".", "!")):
                counts.sentences.append(words)
            for name, pattern in COMPILED.items():
                counts.hits[name] += len(pattern.findall(sentence))
    return counts


def paragraphs(page: str) -> Iterator[str]:
    """Yield the paragraphs, list items and table cells of a Markdown page, without code, markup and addresses."""
    page = re.sub(r"\A---\n.*?\n---\n", "", page, flags=re.DOTALL)
    page = re.sub(r"^([ \t]*)(`{3,}|~{3,}).*?^[ \t]*\2", "", page, flags=re.DOTALL | re.MULTILINE)
    page = re.sub(r"<!--.*?-->|\{/\*.*?\*/\}|<[^>]*>", " ", page, flags=re.DOTALL)
    page = re.sub(r"!\[[^\]]*\]\([^)]*\)|^(?:import|export|:::).*$|^\[[^\]]+\]:.*$", "", page, flags=re.MULTILINE)
    page = re.sub(r"\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])", r"\1", page)
    page = re.sub(r"``?[^`\n]*``?", "X", page)
    block: list[str] = []
    for line in [*page.splitlines(), ""]:
        bare = line.strip()
        starts = re.match(r"(?:[-*+] |\d+[.)] |#|\||!!!|\?\?\?|>)", bare)
        if (not bare or starts) and block:
            yield re.sub(r"[*_]{2,}", "", " ".join(block))
            block = []
        if bare.startswith("|"):
            yield from (cell.strip() for cell in bare.strip("|").split("|") if re.search("[a-z]", cell))
        elif bare and not bare.startswith(("#", "!!!", "???")):
            block.append(re.sub(r"^(?:[-*+>] |\d+[.)] )", "", bare))


def docstrings(source: str) -> Iterator[str]:
    """Yield the docstrings of public modules, classes and functions, and of attributes."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if not getattr(node, "name", "").startswith("_") and (text := ast.get_docstring(node)):
                yield text
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for before, each in zip(node.body, node.body[1:], strict=False):
                if (
                    isinstance(before, ast.Assign | ast.AnnAssign)
                    and isinstance(each, ast.Expr)
                    and isinstance(each.value, ast.Constant)
                    and isinstance(each.value.value, str)
                ):
                    yield each.value.value


def docstring_paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs and arguments that a docstring describes, without examples."""
    text = re.sub(r"^[ \t]*(?:>>>|\.\.\.).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^[ \t]*(?:Args|Returns|Raises|Yields|Attributes|Examples?|Notes?):[ \t]*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^[ \t]+\*{0,2}\w+(?: \([^)]*\))?:[ \t]", "\n", text, flags=re.MULTILINE)
    return paragraphs(text)


def docs_of(source: Source, checkout: Path) -> Counts | None:
    """The counts of a package's documentation, or None where there is none."""
    pages = sorted({page for pattern in source.pages for page in checkout.glob(pattern)})
    pages = [page for page in pages if not any(part in page.relative_to(checkout).as_posix() for part in source.without)]
    texts = [page.read_text(encoding="utf-8", errors="replace") for page in pages]
    return counted(passage for text in texts for passage in paragraphs(text)) if len(pages) > 1 else None


def docstrings_of(source: Source, checkout: Path | None) -> Counts | None:
    """The counts of a package's docstrings, in its checkout or else as installed, or None where it is absent."""
    folder = (
        next((each for each in sorted(checkout.rglob(source.module)) if (each / "__init__.py").exists()), None)
        if checkout
        else None
    )
    if folder is None:
        spec = importlib.util.find_spec(source.module)
        if spec is None or spec.origin is None:
            return None
        folder = Path(spec.origin).parent
    texts = [text for path in sorted(folder.rglob("*.py")) for text in docstrings(path.read_text(encoding="utf-8"))]
    counts = counted(passage for text in texts for passage in docstring_paragraphs(text))
    counts.docstrings = len(texts)
    counts.returns = sum(text.lstrip().startswith("Return") for text in texts)
    return counts


def measured(peers: Path | None) -> dict[str, dict[str, Counts | None]]:
    """The counts by kind of prose and by package."""
    folders = {source.name: peers / source.name if peers else None for source in PEERS}
    return {
        "docs": {"ours": docs_of(OURS, ROOT)}
        | {each.name: docs_of(each, folder) if (folder := folders[each.name]) else None for each in PEERS},
        "docstrings": {"ours": docstrings_of(OURS, ROOT)}
        | {each.name: docstrings_of(each, folders[each.name]) for each in PEERS},
    }


def print_table(kinds: dict[str, dict[str, Counts | None]]) -> None:
    """Print the counts per 1,000 words, one column for each package."""
    for kind, counts in kinds.items():
        present = {name: each for name, each in counts.items() if each is not None}
        absent = [name for name in counts if name not in present]
        print(f"{kind + (', absent: ' + ', '.join(absent) if absent else ''):<44}" + "".join(f"{name:>13}" for name in present))
        print(f"{'  words':<44}" + "".join(f"{each.words:>13,}" for each in present.values()))
        for row in next(iter(present.values())).rows():
            print(f"  {row:<42}" + "".join(f"{each.rows().get(row, 0):>13.1f}" for each in present.values()))


def figures(quick: bool) -> list[Figure]:
    """The habits of our prose, beside the mean of the peers that are there."""
    result = []
    for kind, counts in measured(None).items():
        ours, *others = (each.rows() for each in counts.values() if each)
        for row in ours:
            peer = sum(other[row] for other in others) / len(others) if others else None
            result.append(Figure(f"{kind}: {row}", ours[row], "" if "word" in row or "%" in row else "of 1,000", peer))
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, help="a folder with checkouts of the peers")
    print_table(measured(parser.parse_args().peers))
