"""Four rules for all tests: nobody holds an event loop for longer than 250 ms, config files are the
tests' own, no conversation is saved, and in each turn that is run, every call that starts also ends
(`kit.turn_rules`).

A test that holds a loop on purpose is marked `@pytest.mark.holds_the_loop("why")`; one about asking
before a config is started uses the fixture `asks_first`.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from kit.loop_guard import LIMIT_SECONDS, LoopGuard
from kit.marks import one_case
from kit.parsing import parse_without_collecting
from kit.turn_rules import RULES

parse_without_collecting()
GUARD = LoopGuard(LIMIT_SECONDS)

# jsonschema would import it for a check of formats that nobody makes; it takes seconds in each
# process.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

# Also for the processes that tests start.
os.environ["MCP_TRUST_CONFIGS"] = "1"
os.environ["MCP_STORE"] = "off"


def pytest_collection_finish() -> None:
    """Have less looked through for garbage: modules and tests stay to the end, and each test makes
    many objects.
    """
    # The first value that is drawn, the first connection and the first session import these: in a
    # test's loop, that would count as holding it.
    import casual_mcp_nb.notebook.parts
    import casual_mcp_nb.servers.transport
    import casual_mcp_nb.views  # noqa: F401
    from casual_mcp_nb.providers.registry import specs

    specs()
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


@pytest.fixture(autouse=True)
def words_of_python() -> Generator[None]:
    """Have hints in the words of Python, whatever a test before has loaded into this process."""
    from casual_mcp_nb import doors

    with doors.at("python"):
        yield


@pytest.fixture
def asks_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A user who has accepted no config yet; returns the folder of what is remembered."""
    monkeypatch.delenv("MCP_TRUST_CONFIGS")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    return tmp_path / "user" / "casual_mcp_nb" / "trust"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each file to one process, and all files with a browser to the same one: they share it
    and its JupyterLab.
    """
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return (
                "browser"
                if nodeid.startswith("tests/browser/")
                else str(super()._split_scope(nodeid))
            )

    return Files(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--live", action="store_true", help="ask the real providers whose keys are set; costs cents"
    )
    parser.addoption(
        "--one-case",
        action="store_true",
        help="run one case of each test for each provider and transport",
    )
    parser.addoption(
        "--slow",
        action="store_true",
        help="run also those that take seconds of processor time each",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--one-case"):
        chosen = one_case(items)
        config.hook.pytest_deselected(items=list(set(items).difference(chosen)))
        items[:] = chosen
    if not config.getoption("--slow"):
        slow = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]
    if config.getoption("--live") or os.environ.get("MCP_LIVE_TESTS") == "1":
        return
    for item in items:
        if item.get_closest_marker("live"):
            item.add_marker(pytest.mark.skip(reason="asks a real provider; run with --live"))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what live tests saw."""
    reports = [
        report for each in ("passed", "failed") for report in terminalreporter.stats.get(each, ())
    ]
    lines = [line for report in reports for name, line in report.user_properties if name == "live"]
    if lines:
        terminalreporter.section("what the providers did")
        for line in lines:
            terminalreporter.write_line(line)


def pytest_sessionstart() -> None:
    GUARD.start()


def pytest_sessionfinish() -> None:
    GUARD.stop()


def _checked(item: pytest.Item) -> Generator[None, object, object]:
    RULES.watch()
    result = yield
    if broken := RULES.take():
        pytest.fail("A turn broke its rules.\n" + "\n".join(broken[:5]), pytrace=False)
    held = GUARD.take()
    if held and item.get_closest_marker("holds_the_loop") is None:
        pytest.fail("The event loop was held.\n" + "\n".join(map(str, held[:5])), pytrace=False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from _checked(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from _checked(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from _checked(item))
