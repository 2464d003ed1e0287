"""Record the cassettes of these notebooks: `python notebooks/in_practice/record.py [NAME …]`.

The servers are real and run here, with data that this file makes in /tmp/in_practice. Those for
git, files and pages are of the Model Context Protocol project (`python3 .ci/third_party.py`
installs them), and the others ship with the package. The model's part is written below: which calls
it makes, and what it answers. The results of the calls, and all token counts, come from the servers
and their definitions.
"""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from casual_mcp_nb import Session
from casual_mcp_nb.providers.scripted import call, calls, scripted_model

HERE = Path(__file__).resolve().parent
THIRD_PARTY = HERE.parents[1] / ".third-party"
DATA = Path("/tmp/in_practice")
FILES = {
    "command": "node",
    "args": [
        str(THIRD_PARTY / "node_modules/@modelcontextprotocol/server-filesystem/dist/index.js"),
        str(DATA),
    ],
    "defer_loading": True,
    "approval": "never",
}


def python_server(name: str, *args: str) -> dict[str, Any]:
    """A server of the Python packages, deferred."""
    command = str(THIRD_PARTY / "python" / "bin" / f"mcp-server-{name}")
    return {"command": command, "args": list(args), "defer_loading": True, "approval": "never"}


def record(name: str, servers: dict[str, Any], turns: dict[str, tuple[Any, ...]]) -> None:
    """Hold a conversation with real servers, and record it."""
    config = {"servers": servers, "tool_discovery": {"enabled": True}}
    session = Session.from_config(config, name=name, trust=True)
    session.connect(quiet=True)
    session.servers.raise_for_status()
    model = scripted_model(*(answer for answers in turns.values() for answer in answers))
    with session.cassettes.use(HERE / f"{name}.json", mode="all"):
        for question in turns:
            turn = session.chat(question, model=model, echo="none")
            turn.raise_for_status()
            print(
                f"{name}: {[f'{each.name}: {each.status}' for each in turn.tool_calls]}"
                f" {turn.answer[:60]!r}"
            )
            assert all(each.status == "ok" for each in turn.tool_calls), [
                each.result for each in turn.tool_calls
            ]
    session.close()


ISSUES = {
    "014": (
        "Crash when a ferry has no return trip",
        "bug",
        "timetable.py raises IndexError for one-way lines, such as line 7.",
    ),
    "015": ("Dark mode for the departure board", "wish", "White at night hurts."),
    "016": (
        "Wrong times after the clocks change",
        "bug",
        "All departures of 29 March are an hour late.",
    ),
    "017": (
        "Crash on an empty timetable",
        "bug",
        "timetable.py raises IndexError before the first line is added.",
    ),
    "018": ("Translate the board into Norwegian", "wish", "Avgang, ankomst, forsinket."),
    "019": ("Where is the licence?", "question", "Is it free to use in a school?"),
}
CODE = 'def last_return(trips):\n    """Return the last trip back."""\n    return trips[-1]\n'


def repository() -> None:
    """A repository with issues as files, and three commits."""
    folder = DATA / "ferries"
    (folder / "issues").mkdir(parents=True)

    def commit(message: str, day: int) -> None:
        who = [
            "-c",
            "user.name=Ada",
            "-c",
            "user.email=ada@example.org",
            "-c",
            "commit.gpgsign=false",
        ]
        when = f"2026-03-{day:02}T12:00:00+00:00"
        environment = {
            "PATH": "/usr/bin:/bin",
            "GIT_AUTHOR_DATE": when,
            "GIT_COMMITTER_DATE": when,
            "HOME": str(DATA),
        }
        subprocess.run(["git", "add", "."], cwd=folder, check=True, env=environment)
        subprocess.run(
            ["git", *who, "commit", "-qm", message], cwd=folder, check=True, env=environment
        )

    subprocess.run(["git", "init", "-qb", "main"], cwd=folder, check=True)
    (folder / "timetable.py").write_text(CODE.replace("trips[-1]", "trips[-1] if trips else None"))
    commit("The last trip back", 2)
    (folder / "timetable.py").write_text(CODE)
    commit("Simplify last_return", 9)
    for number, (title, kind, text) in ISSUES.items():
        (folder / "issues" / f"{number}.md").write_text(
            f"# {title}\n\nKind: {kind}\nState: open\n\n{text}\n"
        )
    commit("Export the issues", 30)
    path = str(folder)
    record(
        "triage",
        {"git": python_server("git", "--repository", path), "filesystem": FILES},
        {
            "Which open issues are bugs, and do some of them have the same cause?": (
                call("search_tools", query="list a directory and read several files"),
                call("filesystem__list_directory", path=f"{path}/issues"),
                call(
                    "filesystem__read_multiple_files",
                    paths=[f"{path}/issues/{number}.md" for number in ISSUES],
                ),
                (
                    "Three are bugs: 014, 016 and 017. **014 and 017 have the same cause**:"
                    " `timetable.py` raises an `IndexError` for an empty list of trips. 016 is"
                    " about the change of the clocks, and is separate."
                ),
            ),
            "Since when does that crash happen?": (
                call("search_tools", query="commit history and the difference of a commit"),
                call("git__git_log", repo_path=path, max_count=5),
                call("git__git_diff", repo_path=path, target="HEAD~2", context_lines=2),
                (
                    "Since 9 March: the commit *Simplify last_return* removed the check for an"
                    " empty list, `if trips else None`."
                ),
            ),
            "Write a short answer to issue 017 into a file beside it.": (
                call("search_tools", query="write text into a file"),
                call(
                    "filesystem__write_file",
                    path=f"{path}/issues/017-answer.md",
                    content=(
                        "Thank you. A commit of 9 March removed a check. 014 has the same cause. We"
                        " will restore it.\n"
                    ),
                ),
                "The answer is in `issues/017-answer.md`.",
            ),
        },
    )


def database() -> None:
    """The loans of a small library: books in the public domain, and invented readers."""
    path = DATA / "library.db"
    books = [
        (1, "Moby-Dick", "Herman Melville", 1851),
        (2, "Pride and Prejudice", "Jane Austen", 1813),
        (3, "Emma", "Jane Austen", 1815),
        (4, "Frankenstein", "Mary Shelley", 1818),
        (5, "Middlemarch", "George Eliot", 1871),
        (6, "The Time Machine", "H. G. Wells", 1895),
    ]
    loans = [
        (n, 1 + n * 7 % 6, f"2026-0{1 + n % 6}-{1 + n * 5 % 27:02}", 7 + n * 11 % 30)
        for n in range(40)
    ]
    with sqlite3.connect(path) as made:
        made.execute(
            "CREATE TABLE books (id INTEGER PRIMARY KEY, title TEXT, author TEXT, year INTEGER)"
        )
        made.execute(
            "CREATE TABLE loans (id INTEGER PRIMARY KEY, book INTEGER REFERENCES books, day TEXT,"
            " days INTEGER)"
        )
        made.executemany("INSERT INTO books VALUES (?, ?, ?, ?)", books)
        made.executemany("INSERT INTO loans VALUES (?, ?, ?, ?)", loans)
        most = made.execute(MOST).fetchall()
        late = made.execute(LATE).fetchone()
    made.close()
    record(
        "database",
        {
            "sqlite": {
                "bundled": "sqlite",
                "args": ["--database", str(path)],
                "defer_loading": True,
                "approval": "never",
            },
            "math": {"bundled": "math", "defer_loading": True},
            "text": {"bundled": "text", "defer_loading": True},
            "filesystem": FILES,
        },
        {
            "Which author is borrowed most, and how often?": (
                call("search_tools", query="tables of a database and SQL query"),
                call("sqlite__list_tables"),
                call("sqlite__query", sql=MOST),
                (
                    f"**{most[0][0]}**, with {most[0][1]} of 40 loans, followed by {most[1][0]}"
                    f" ({most[1][1]})."
                ),
            ),
            "How many loans took longer than four weeks? What share is that?": (
                calls(
                    call("sqlite__query", sql=LATE),
                    call("search_tools", query="what percentage one value is of another"),
                ),
                call("math__percentage_change", old=40, new=late[0]),
                f"{late[0]} of 40 loans, or {late[0] / 40:.1%}.",
            ),
        },
    )


MOST = (
    "SELECT author, count(*) AS loans FROM loans JOIN books ON books.id = loans.book "
    "GROUP BY author ORDER BY loans DESC, author LIMIT 3"
)
LATE = "SELECT count(*) AS late FROM loans WHERE days > 28"
PAPERS = {
    "tides": (
        "Tides in narrow fjords",
        "We measured 40 fjords. Tides are delayed by 12 minutes for each 10 km of a narrow fjord.",
    ),
    "ice": (
        "Ice in northern harbours",
        (
            "Of 18 harbours, 5 had no ice in any winter since 2010. Salt water freezes at -1.9"
            " degrees."
        ),
    ),
    "wind": (
        "Wind and late ferries",
        "Ferries are late on 4% of calm days, and on 31% of days with more than 15 m/s of wind.",
    ),
}


class Site(BaseHTTPRequestHandler):
    """The papers, each on a page."""

    def do_GET(self) -> None:
        paper = PAPERS.get(self.path.strip("/"))
        self.send_response(200 if paper else 404)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        if paper:
            self.wfile.write(
                f"<html><body><article><h1>{paper[0]}</h1><p>{paper[1]}</p></article></body></html>".encode()
            )

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


def papers() -> None:
    """Three papers on a page each, and a folder for notes."""
    notes = DATA / "notes"
    notes.mkdir()
    site = ThreadingHTTPServer(("127.0.0.1", 8931), Site)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    text = "\n".join(f"- {title}: {abstract}" for title, abstract in PAPERS.values())
    record(
        "papers",
        {
            "fetch": python_server("fetch", "--ignore-robots-txt", "--allow-private-ips"),
            "filesystem": FILES,
            "time": {"bundled": "time", "defer_loading": True},
        },
        {
            "Read the three papers at http://127.0.0.1:8931/tides, /ice and /wind. What do they measure?": (
                call("search_tools", query="fetch a web page"),
                calls(
                    *(call("fetch__fetch", url=f"http://127.0.0.1:8931/{name}") for name in PAPERS)
                ),
                (
                    "They measure the delay of tides in fjords, ice in 18 harbours, and how wind"
                    " makes ferries late."
                ),
            ),
            "Write a line about each into a file of notes.": (
                call("search_tools", query="write a file"),
                call("filesystem__write_file", path=f"{notes}/papers.md", content=f"{text}\n"),
                "The notes are in `notes/papers.md`.",
            ),
            "How much more often are ferries late in strong wind?": (
                call("filesystem__read_text_file", path=f"{notes}/papers.md"),
                (
                    "Almost eight times as often: on 31% of the days with strong wind, against 4%"
                    " of calm days."
                ),
            ),
        },
    )
    site.shutdown()
    site.server_close()


RECORDINGS: dict[str, Callable[[], None]] = {
    "triage": repository,
    "database": database,
    "papers": papers,
}


def main() -> None:
    """Record those that are named, or all."""
    for name in sys.argv[1:] or RECORDINGS:
        shutil.rmtree(DATA, ignore_errors=True)
        DATA.mkdir()
        RECORDINGS[name]()
    shutil.rmtree(DATA)


if __name__ == "__main__":
    main()
