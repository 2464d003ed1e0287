"""A pytest plugin that prints which part of each room's lines the tests reach: `python tests/run.py
--covered`.

Slipcover marks the lines of a module as it is imported, which takes a tenth longer; tracing each
line takes two fifths. What other processes run is not measured.
"""

import json
import os
import shutil
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import slipcover

PACKAGE = Path(__file__).resolve().parents[2] / "casual_mcp_nb"
FOLDER = Path(os.environ.setdefault("COVERED", tempfile.mkdtemp(prefix="covered-")))
"""Where each process of the run writes which lines it has reached."""
LEAST = {"base": 90, "conversation": 90, "discovery": 90}
"""The percentage that the pure rooms need when all tests run."""

if "PYTEST_XDIST_WORKER" in os.environ:
    # The processes that tests start see nothing of this.
    del os.environ["PYTHONPATH"]
# Never does it look for marks to remove: it would walk through all modules, and hold an event loop
# meanwhile.
measured = slipcover.Slipcover(d_miss_threshold=10**9, source=[str(PACKAGE)])
# pytest rewrites the assertions of a package that has a plugin of pytest, so it imports all of
# ours.
slipcover.wrap_pytest(measured, slipcover.FileMatcher(sources=[str(PACKAGE)]))


def pytest_sessionfinish(session: pytest.Session) -> None:
    files = measured.get_coverage()["files"]
    (FOLDER / f"{os.getpid()}.json").write_text(json.dumps(files))
    if not hasattr(session.config, "workerinput"):
        # The workers have ended: all lines are known.
        found = by_room()
        session.config.stash["covered"] = found
        whole = session.config.args_source is not pytest.Config.ArgsSource.ARGS
        if whole and any(
            found[room][0] * 100 < least * found[room][1] for room, least in LEAST.items()
        ):
            session.exitstatus = 1


def by_room() -> dict[str, tuple[int, int]]:
    """Each room's number of lines that were reached, and of all."""
    reached, lines = defaultdict(set), defaultdict(set)
    for path in FOLDER.glob("*.json"):
        for name, file in json.loads(path.read_text()).items():
            parts = (Path.cwd() / name).relative_to(PACKAGE).parts
            room = parts[0] if len(parts) > 1 else "the modules beside the rooms"
            reached[room] |= {(name, line) for line in file["executed_lines"]}
            lines[room] |= {
                (name, line) for line in [*file["executed_lines"], *file["missing_lines"]]
            }
    shutil.rmtree(FOLDER)
    return {room: (len(reached[room]), len(lines[room])) for room in sorted(lines)}


def pytest_terminal_summary(terminalreporter: Any, config: Any) -> None:
    found: dict[str, tuple[int, int]] = config.stash["covered"]
    terminalreporter.section("lines reached, without other processes")
    for room, (reached, lines) in [
        *found.items(),
        ("all", tuple(map(sum, zip(*found.values(), strict=True)))),
    ]:
        least = f", at least {LEAST[room]} are needed" if room in LEAST else ""
        terminalreporter.write_line(f"{reached / lines:7.1%} of {lines:6,}  {room}{least}")
