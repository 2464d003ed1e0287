"""A pytest plugin that plays cassettes, and turns tool-use cases into tests.

It has the marker `cassette`, the fixture `cassette_session` and the option `--cassette-mode`, and
for cases the marker `tool_use_cases` and the argument `tool_use_case`.

```python
@pytest.mark.cassette("lesson.json")
def test_the_lesson(cassette_session):
    turn = cassette_session.chat("Where is Fram?")
    assert turn.tool_calls[0].tool.tool == "berth"


@pytest.mark.tool_use_cases("cases.yaml")
def test_the_right_tools_are_called(cassette_session, tool_use_case):
    assert cassette_session.experiments.run([tool_use_case], repeats=3).problems(min_right=1) == []
```
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from casual_mcp_nb.cassettes import CassetteMode
    from casual_mcp_nb.notebook.cassettes import CassetteInUse
    from casual_mcp_nb.session import Session

FOLDER = "cassettes"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--cassette-mode`."""
    group = parser.getgroup("casual_mcp_nb")
    group.addoption(
        "--cassette-mode",
        choices=("none", "once", "all"),
        default="none",
        help=(
            "none: only replay cassettes (the default), once: record the missing ones, all: record"
            " all again"
        ),
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers `cassette` and `tool_use_cases`."""
    config.addinivalue_line(
        "markers",
        "cassette(path=None, pace=0, match_on=...): the cassette for cassette_session, relative to"
        " the test file; the default is cassettes/MODULE/TEST.json beside it",
    )
    config.addinivalue_line(
        "markers",
        "tool_use_cases(path, functions=None, ...): run the test for each case in a file, relative"
        " to that of the test, which is its argument tool_use_case",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test from each case in the file that the marker `tool_use_cases` names."""
    if "tool_use_case" not in metafunc.fixturenames:
        return
    from casual_mcp_nb.experiments.case_files import load_tool_cases

    marker = metafunc.definition.get_closest_marker("tool_use_cases")
    if marker is None or not marker.args:
        raise pytest.UsageError(
            f'{metafunc.definition.nodeid} needs a file: @pytest.mark.tool_use_cases("cases.yaml").'
        )
    cases = load_tool_cases(Path(metafunc.definition.path).parent / marker.args[0], **marker.kwargs)
    metafunc.parametrize("tool_use_case", cases, ids=[case.id for case in cases])


@pytest.fixture
def cassette_config() -> Any:
    """The config with which `cassette_session` records: a path, a dict, or `Session` arguments in a
    dict with `config`.

    Override it in your conftest. It is not used in a replay.
    """
    return None


@pytest.fixture
def cassette_session(request: pytest.FixtureRequest) -> Iterator[Session]:
    """A session whose models and servers answer from the test's cassette. See `Session.quick`.

    A request that differs from the recorded ones is raised where the test made it, with the
    difference. If a function or a comparison caught the error, the test fails at its end.

    With `--cassette-mode=once` or `all` it records, with `cassette_config`.
    """
    from casual_mcp_nb.errors import CasualMcpError
    from casual_mcp_nb.session import Session

    path, options = _cassette_of(request)
    mode = cast("CassetteMode", request.config.getoption("--cassette-mode"))
    recorded = request.config.stash.setdefault(_RECORDED, set())
    is_enough = mode == "once" or path in recorded
    if mode == "none" or (is_enough and path.exists()):
        yield from _replayed(request, path, options)
        return
    config = request.getfixturevalue("cassette_config")
    if config is None:
        pytest.fail(
            "To record a cassette, override the fixture cassette_config: return a path or a dict.",
            pytrace=False,
        )
    arguments = {"config": config}
    if isinstance(config, Mapping) and "config" in config:
        arguments = dict(config)
    path.parent.mkdir(parents=True, exist_ok=True)
    with Session(**{"quiet": True, "store": None, **arguments}) as session:
        recording = session.cassettes.use(path, "all")
        request.node.stash[_IN_USE] = recording
        yield session
        # A passed test shows that the recording is good. If there was none before, one without
        # failures is kept even if the test fails.
        is_first = not recording.replaces and not recording.failures
        keep = request.node.stash.get(_PASSED, False) or is_first
        try:
            recording.close(keep=keep)
        except CasualMcpError as error:
            pytest.fail(str(error), pytrace=False)
        if keep:
            recorded.add(path)


def _replayed(
    request: pytest.FixtureRequest, path: Path, options: dict[str, Any]
) -> Iterator[Session]:
    from casual_mcp_nb.errors import CassetteError
    from casual_mcp_nb.session import Session

    problem = ""
    try:
        quick = Session.quick(
            cassette=path, pace=options.pop("pace", 0), quiet=True, store=None, **options
        )
    except CassetteError as error:
        mode = "once"
        if path.exists():
            mode = "all"
        reason = str(error).removesuffix(error.hint).rstrip()
        problem = (
            f"{type(error).__name__}: {reason}\nRecord it: pytest --cassette-mode={mode}"
            f" {request.node.nodeid}"
        )
    # After the `except`, so that the error is not part of what pytest shows.
    if problem:
        pytest.fail(problem, pytrace=False)
    with quick as session:
        replayer = session.cassettes.source
        assert replayer is not None
        replayer.strict = True
        replayer.how_to_record = "pytest --cassette-mode=all"
        request.node.stash[_IN_USE] = session.cassettes.current
        yield session
    unseen = [str(mismatch) for mismatch in replayer.mismatches if not mismatch.raised]
    if unseen:
        pytest.fail("\n".join(unseen), pytrace=False)


_RECORDED = pytest.StashKey["set[Path]"]()
"""The cassettes that this run has recorded. Other tests with the same one replay it."""
_IN_USE = pytest.StashKey["CassetteInUse | None"]()
_PASSED = pytest.StashKey[bool]()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, Any, None]:
    """Remember whether a test with a cassette passed, and explain a failure.

    A failure gets what failed in its turns and servers. If a request was not recorded, the
    traceback ends at the test's own line, unless `--full-trace` asks for all of it.
    """
    cassette = item.stash.get(_IN_USE, None)
    if cassette is not None and call.excinfo is not None and not item.config.option.fulltrace:
        _leave_out_package(call.excinfo.value)
    outcome = yield
    report: pytest.TestReport = outcome.get_result()
    if cassette is None or report.when != "call":
        return
    item.stash[_PASSED] = report.passed
    if report.failed:
        report.sections.append(("cassette", _explained(cassette)))


def _leave_out_package(error: BaseException) -> None:
    """End a traceback before this package's frames, if a cassette lacks what was asked."""
    from casual_mcp_nb.errors import CassetteError

    last = error.__traceback__
    if not isinstance(error, CassetteError) or last is None:
        return
    while last.tb_next is not None and not _is_of_package(last.tb_next):
        last = last.tb_next
    last.tb_next = None


def _is_of_package(frame: TracebackType) -> bool:
    return Path(frame.tb_frame.f_code.co_filename).is_relative_to(_PACKAGE)


_PACKAGE = Path(__file__).parent


def _explained(cassette: CassetteInUse) -> str:
    state = cassette.state
    lines = [f"{state}.", *cassette.failures]
    if state.doing == "replaying":
        lines.append("To record it again: pytest --cassette-mode=all")
    elif cassette.replaces:
        lines.append("The cassette stays as it was. To record it again: pytest --cassette-mode=all")
    elif cassette.failures:
        lines.append("It is not saved. To record it: pytest --cassette-mode=once")
    return "\n".join(lines)


def _cassette_of(request: pytest.FixtureRequest) -> tuple[Path, dict[str, Any]]:
    """Find a test's cassette, and its marker's other arguments."""
    options: dict[str, Any] = {}
    named = None
    marker = request.node.get_closest_marker("cassette")
    if marker is not None:
        options = dict(marker.kwargs)
        named = marker.args[0] if marker.args else options.pop("path", None)
    folder = Path(request.node.path).parent
    if named is not None:
        return folder / named, options
    folder = folder / FOLDER / Path(request.node.path).stem
    name = _file_name(request.node.nodeid.partition("::")[2])
    earlier = "".join(c if c.isalnum() or c in "-_." else "-" for c in request.node.name)
    if not (folder / f"{name}.json").exists() and (folder / f"{earlier}.json").exists():
        # Earlier versions gave this name, which several tests can have.
        name = earlier
    return folder / f"{name}.json", options


def _file_name(test: str) -> str:
    """Make a file name for a test.

    No two tests have the same one, even if the file system ignores the case of letters. So a name
    with other characters than small letters, digits and underscores gets a digest.
    """
    if _PLAIN.fullmatch(test):
        return test
    readable = re.sub(r"[^\w.-]+", "-", test)[:MAX_NAME].strip("-")
    return f"{readable}-{hashlib.sha256(test.encode('utf-8', 'replace')).hexdigest()[:8]}"


_PLAIN = re.compile(r"[a-z0-9_]{1,100}")
MAX_NAME = 100
