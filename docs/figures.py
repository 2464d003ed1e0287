"""The figures that the pages say, and the command that measures each: `python docs/figures.py
[SOURCE …] [--data DIR]`.

It runs the commands of these sources, or of all, and writes what they measure to `figures.json`
beside this file, with the date, the machine and the versions. Then it lists what the pages say
otherwise, which `tests/house/test_figures.py` refuses. The data folder has the catalogs of the
search benchmarks, which are not in the repository.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FILE = Path(__file__).with_name("figures.json")
DATA = ROOT.parent / "shared" / "data"
Figures = dict[str, tuple[Any, str]]
"""Values with their units, by name."""


class Source(NamedTuple):
    """Where figures come from.

    Args:
        command: The command that measures them. DATA in it is the data folder.
        read: Reads them in what the command prints.
        file: The file that the command writes, if what it prints does not have them. It is read as
            it is, and the command is not run.
        packages: Others on whose versions the figures depend.
    """

    command: str
    read: Callable[[str], Figures]
    file: str = ""
    packages: tuple[str, ...] = ()


def _cells(output: str) -> Iterator[list[str]]:
    """The rows of Markdown tables."""
    for line in output.splitlines():
        if line.startswith("| ") and "---" not in line:
            yield [cell.strip() for cell in line.strip().strip("|").split("|")]


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    if match is None:
        raise ValueError(f"There is no {pattern!r} in what the command wrote.")
    return match[1]


def read_drawing(text: str) -> Figures:
    """The tokens of tool definitions in the demo."""
    every, deferred = re.findall(r"≈ ([\d,]+) tokens", text)
    return {
        "demo_tools": (_number(_found(r"\(([\d,]+) tools\)", text)), "tools"),
        "demo_deferred": (_number(_found(r"([\d,]+) of them deferred", text)), "tools"),
        "demo_every_tokens": (_number(every), "tokens"),
        "demo_deferred_tokens": (_number(deferred), "tokens"),
    }


def read_lesson(text: str) -> Figures:
    """What the first turn of the first lesson saves."""
    return {"lesson_saved": (int(_found(r"tokens in, (\d+)% less than", text)), "%")}


def read_environment(text: str) -> Figures:
    """What the lessons take on the disk."""
    lessons = _found(r"(?m)^LESSONS = (Content\(.+\))$", text)
    return {
        "lessons_disk": (_number(_found(r"megabytes=([\d_]+)", lessons)), "MB"),
        "lessons_downloads": (_number(_found(r"downloaded=([\d_]+)", lessons)), "MB"),
    }


def read_shell(output: str) -> Figures:
    """What a turn in a shell sends, and saves."""
    return {
        "shell_tokens": (_number(_found(r"≈ ([\d,]+) tokens in", output)), "tokens"),
        "shell_saved": (int(_found(r"(\d+)% less than", output)), "%"),
    }


COLUMNS = {"ours": "ours", "casual-mcp": "casual", "FastMCP BM25": "fastmcp"}


def read_search(output: str) -> Figures:
    """How often a needed tool is among the first five."""
    rows = [row for row in _cells(output) if len(row) > 4]
    head = next(row for row in rows if row[0] == "set")
    figures: Figures = {}
    for row in rows:
        if row[0] not in ("livemcp", "livemcp_steps", "livemcp_llm", "bfcl_live"):
            continue
        figures[f"{row[0]}_tools"] = (_number(row[2]), "tools")
        for title, name in COLUMNS.items():
            any_need = row[head.index(title)].split(" / ")[0]
            figures[f"{row[0]}_{name}"] = (float(any_need), "share")
    return figures


def read_second_search(output: str) -> Figures:
    """The share of needs that one search meets, and two."""
    row = next(row for row in _cells(output) if row[0] == "mean")
    return {
        "second_tools": (_number(row[1]), "tools"),
        "second_one": (float(row[2]), "share"),
        "second_two": (float(row[3]), "share"),
    }


def read_cost(output: str) -> Figures:
    """Rows of the table of deliveries."""
    figures: Figures = {}
    for row in _cells(output):
        if row[0] == "anthropic":
            name = f"cost_{_number(row[1])}_tools_{row[2]}_turns"
            figures[name] = (f"| {' | '.join(row)} |", "tokens, shares")
    return figures


def read_loops(output: str) -> Figures:
    """Rows of the table of many calls in a turn."""
    figures: Figures = {}
    for row in _cells(output):
        if row[0] == "anthropic":
            ways = [", ".join(row[start : start + 3]) for start in range(3, len(row), 3)]
            figures[f"loops_{row[2]}"] = (
                f"| {' | '.join([row[2], *ways])} |",
                "requests, tokens, cost",
            )
    return figures


def read_meaning(output: str) -> Figures:
    """How long a search by meaning takes."""
    figures: Figures = {}
    for tools in ("5,000", "50,000"):
        line = rf"(?m)^{tools} tools, a search by words and meaning +ms +([\d.]+)"
        figures[f"meaning_{_number(tools)}"] = (round(float(_found(line, output))), "ms")
    return figures


SOURCES: Mapping[str, Source] = {
    "demo": Source("python docs/images/make.py drawings", read_drawing, "docs/images/tokens.svg"),
    "lesson": Source(
        "python notebooks/execute.py notebooks/01_quickstart.ipynb --write",
        read_lesson,
        "notebooks/01_quickstart.ipynb",
    ),
    "environment": Source(
        "python3 .ci/environment.py --lessons", read_environment, ".ci/environment.py"
    ),
    "shell": Source('python -m casual_mcp_nb demo "What is 17 * 24?"', read_shell),
    "search": Source(
        "python benchmarks/discovery.py --data DATA --quality",
        read_search,
        packages=("fastmcp", "casual-mcp"),
    ),
    "second": Source(
        "python benchmarks/second_search.py --data DATA --sizes 50", read_second_search
    ),
    "cost": Source(
        "python benchmarks/cost.py --data DATA --sizes 30,100,300,3000 --turns 1,20"
        " --providers anthropic",
        read_cost,
    ),
    "loops": Source(
        "python benchmarks/cost.py --data DATA --sizes 100 --loops 1,10,40", read_loops
    ),
    "meaning": Source(
        "python benchmarks/meaning.py --data DATA", read_meaning, packages=("model2vec", "numpy")
    ),
}

_SEARCH = "{{{0}_tools:,}} | **{{{0}_ours:.2f}}** | {{{0}_casual:.2f}} | {{{0}_fastmcp:.2f}} |"
PAGES: Mapping[str, tuple[str, ...]] = {
    "README.md": (
        "with the demo's {demo_tools} tools: all of them loaded, and {demo_deferred} of them"
        " deferred",
        "{lesson_saved}% in the first lesson",
        "It takes {lessons_disk} MB of disk, {lessons_downloads} MB of them downloads",
    ),
    "docs/comparison.md": (
        f"| LiveMCPBench, as people ask | {_SEARCH.format('livemcp')}",
        f"| LiveMCPBench, single steps | {_SEARCH.format('livemcp_steps')}",
        f"| LiveMCPBench, as models search | {_SEARCH.format('livemcp_llm')}",
        f"| BFCL live | {_SEARCH.format('bfcl_live')}",
        "With {second_tools} tools and the same words again, the share of met needs rises from"
        " {second_one:.2f} to {second_two:.2f}",
    ),
    "docs/guides/command-line.md": (
        "≈ {shell_tokens:,} tokens in, {shell_saved}% less than with every tool loaded",
    ),
    "docs/guides/discovery.md": (
        "a search over 5,000 tools takes about {meaning_5000} ms, over 50,000 about"
        " {meaning_50000} ms",
        *(
            f"{{cost_{tools}_tools_{turns}_turns}}"
            for tools in (30, 100, 300, 3000)
            for turns in (1, 20)
        ),
    ),
    "docs/guides/tool-functions.md": ("{loops_1}", "{loops_10}", "{loops_40}"),
    "docs/images/tokens.svg": (
        "≈ {demo_every_tokens:,} tokens",
        "≈ {demo_deferred_tokens:,} tokens",
    ),
}
"""What pages say, with the names of figures in it."""
OTHERS: Mapping[str, tuple[str, ...]] = {
    # What rivals document of themselves, and versions.
    "docs/comparison.md": ("10,000 tokens or 3% of the context", "chatlas) 0.23"),
    # Rounded from rows above it, and from other options of the same command, which are named there.
    "docs/guides/discovery.md": ("0.03 of these", "0.35 to 0.4", "model2vec 0.7 and 0.10"),
    # A limit.
    "docs/guides/tool-functions.md": ("256 MB",),
}
"""What looks like a figure of ours and is none, or only words about others."""
LOOKS_MEASURED = re.compile(r"\d%|\b0\.\d\d\b|\d (MB|ms)\b|≈ \d")


CODE = re.compile(r"(?ms)^```.*?^```$")


def problems(record: Mapping[str, Any], root: Path = ROOT) -> list[str]:
    """Explain what is wrong with a record of figures, or with the pages that say them."""
    wrong = [f"{name}: nobody measures it." for name in record if name not in SOURCES]
    for name, source in SOURCES.items():
        wrong += _problems_of_source(name, source, record.get(name), root)
    values = values_of(record)
    said = set()
    for page, templates in PAGES.items():
        written = (root / page).read_text(encoding="utf-8")
        text, prose = _normal(written), _normal(CODE.sub("", written))
        for template in templates:
            names = re.findall(r"{(\w+)", template)
            said.update(names)
            if unknown := [name for name in names if name not in values]:
                wrong.append(f"{page}: there is no figure {unknown[0]}.")
                continue
            phrase = _normal(template.format(**values))
            if phrase not in text:
                wrong.append(f"{page} does not say: {phrase}")
            prose = prose.replace(phrase, "")
        for phrase in OTHERS.get(page, ()):
            prose = prose.replace(phrase, "")
        if page.endswith(".md") and (match := LOOKS_MEASURED.search(prose)):
            around = prose[max(0, match.start() - 40) : match.end() + 20]
            wrong.append(f"{page} says a figure that is not in PAGES: …{around}…")
    wrong += [f"{name}: no page says it." for name in values if name not in said]
    return wrong


def _problems_of_source(name: str, source: Source, entry: Any, root: Path) -> Iterator[str]:
    if entry is None:
        yield f"{name}: it was never measured. Run: python docs/figures.py {name}"
        return
    for field in ("date", "machine", "versions"):
        if not entry.get(field):
            yield f"{name}: its {field} is missing."
    if entry["command"] != source.command:
        yield f"{name}: it was measured by another command, {entry['command']}."
    script = next((word for word in source.command.split() if word.endswith(".py")), "")
    if script and not (root / script).is_file():
        yield f"{name}: its command is gone, {script}."
    elif script:
        code = (root / script).read_text(encoding="utf-8")
        for option in re.findall(r"(?<=\s)--[\w-]+", source.command):
            if option not in code:
                yield f"{name}: {script} has no option {option}."
    if source.file:
        now = source.read((root / source.file).read_text(encoding="utf-8"))
        if {key: list(value) for key, value in now.items()} != entry["figures"]:
            yield f"{name}: {source.file} has other figures. Run: python docs/figures.py {name}"


def values_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a record by name."""
    values: dict[str, Any] = {}
    for entry in record.values():
        values |= {name: value for name, (value, _unit) in entry["figures"].items()}
    return values


def _normal(text: str) -> str:
    return " ".join(text.split())


def measured(source: Source, data: Path) -> dict[str, Any]:
    """Run a source's command, and describe what it measured, and where."""
    if source.file:
        output = (ROOT / source.file).read_text(encoding="utf-8")
    else:
        words = [str(data) if word == "DATA" else word for word in shlex.split(source.command)]
        done = subprocess.run(
            [sys.executable, *words[1:]],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode:
            sys.exit(f"It failed:\n{done.stdout}")
        output = done.stdout
    figures = source.read(output)
    versions = {"python": platform.python_version()}
    for package in ("casual-mcp-nb", *source.packages):
        versions[package] = _version(package)
    return {
        "command": source.command,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "versions": versions,
        "figures": figures,
    }


def _version(package: str) -> str:
    # A peer is beside the environment, see `benchmarks/common`.
    peers = [str(path) for path in (ROOT / ".third-party").glob("*/lib/*/site-packages")]
    found = metadata.distributions(name=package, path=[*sys.path, *peers])
    return next(iter(found)).version


def machine() -> str:
    """Describe this computer without its name."""
    processor = platform.processor() or platform.machine()
    cpus = Path("/proc/cpuinfo")
    if cpus.exists():
        processor = _found(r"model name\s*: (.+)", f"{cpus.read_text()}\nmodel name: {processor}")
    return f"{platform.system()}, {os.cpu_count()} processors, {processor}"


def main() -> int:
    """Measure, write, and list what the pages say otherwise."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("sources", nargs="*", metavar="SOURCE", help=f"of {', '.join(SOURCES)}")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with catalogs and cases")
    options = parser.parse_args()
    if unknown := [name for name in options.sources if name not in SOURCES]:
        parser.error(f"there is no source {unknown[0]}; there are {', '.join(SOURCES)}")
    record: dict[str, Any] = {}
    names = options.sources or list(SOURCES)
    if not options.data.is_dir() and any("DATA" in SOURCES[name].command for name in names):
        parser.error(f"there is no folder {options.data}; --data names it")
    for name in names:
        sys.stderr.write(f"{SOURCES[name].command}\n")
        entry = measured(SOURCES[name], options.data)
        # Read again, since another source may have been measured meanwhile.
        if FILE.exists():
            record = json.loads(FILE.read_text(encoding="utf-8"))
        record[name] = json.loads(json.dumps(entry))
        ordered = {each: record[each] for each in SOURCES if each in record}
        text = json.dumps(ordered, indent=1, ensure_ascii=False)
        FILE.write_text(f"{text}\n", encoding="utf-8")
    wrong = problems(record)
    sys.stdout.writelines(f"{each}\n" for each in wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
