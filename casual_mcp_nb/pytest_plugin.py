"""A pytest plugin that plays cassettes, and turns tool-use cases into tests.

It has the marker `cassette`, the fixture `cassette_session` and the option `--cassette-mode`, and for cases the marker
`tool_use_cases` and the argument `tool_use_case`.

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

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from casual_mcp_nb.cassettes import CassetteMode
    from casual_mcp_nb.session import Session

FOLDER = "cassettes"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--cassette-mode`."""
    group = parser.getgroup("casual_mcp_nb")
    group.addoption(
        "--cassette-mode",
        choices=("none", "once", "all"),
        default="none",
        help="none: only replay cassettes (the default), once: record the missing ones, all: record all again",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker `cassette`."""
    config.addinivalue_line(
        "markers",
        "cassette(path=None, pace=0, match_on=...): the cassette for cassette_session, relative to the test file; "
        "the default is cassettes/MODULE/TEST.json beside it",
    )
    config.addinivalue_line(
        "markers",
        "tool_use_cases(path, functions=None, ...): run the test for each case in a file, relative to that of the test, which "
        "is its argument tool_use_case",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test from each case in the file that the marker `tool_use_cases` names."""
    if "tool_use_case" not in metafunc.fixturenames:
        return
    from casual_mcp_nb.experiments.importers import load_tool_cases

    marker = metafunc.definition.get_closest_marker("tool_use_cases")
    if marker is None or not marker.args:
        raise pytest.UsageError(f'{metafunc.definition.nodeid} needs a file: @pytest.mark.tool_use_cases("cases.yaml").')
    cases = load_tool_cases(Path(metafunc.definition.path).parent / marker.args[0], **marker.kwargs)
    metafunc.parametrize("tool_use_case", cases, ids=[case.id for case in cases])


@pytest.fixture
def cassette_config() -> Any:
    """The config with which `cassette_session` records: a path, a dict, or `Session` arguments in a dict with `config`.

    Override it in your conftest. It is not used in a replay.
    """
    return None


@pytest.fixture
def cassette_session(request: pytest.FixtureRequest) -> Iterator[Session]:
    """A session whose models and servers answer from the test's cassette. See `Session.quick`.

    A request that differs from the recorded ones is raised where the test made it, with the difference. If a function or a
    comparison caught the error, the test fails at its end.

    With `--cassette-mode=once` or `all` it records, with `cassette_config`.
    """
    from casual_mcp_nb.session import Session

    path, options = _cassette_of(request)
    mode = cast("CassetteMode", request.config.getoption("--cassette-mode"))
    if mode == "none" or (mode == "once" and path.exists()):
        with Session.quick(cassette=path, pace=options.pop("pace", 0), quiet=True, store=None, **options) as session:
            replayer = session.cassettes.source
            assert replayer is not None
            replayer.strict = True
            yield session
        unseen = [str(mismatch) for mismatch in replayer.mismatches if not mismatch.raised]
        if unseen:
            pytest.fail("\n".join(unseen), pytrace=False)
        return
    config = request.getfixturevalue("cassette_config")
    if config is None:
        pytest.fail("To record a cassette, override the fixture cassette_config: return a path or a dict.", pytrace=False)
    arguments = dict(config) if isinstance(config, Mapping) and "config" in config else {"config": config}
    path.parent.mkdir(parents=True, exist_ok=True)
    with Session(**{"quiet": True, "store": None, **arguments}) as session, session.cassettes.use(path, "all"):
        yield session


def _cassette_of(request: pytest.FixtureRequest) -> tuple[Path, dict[str, Any]]:
    """Find a test's cassette, and its marker's other arguments."""
    marker = request.node.get_closest_marker("cassette")
    options = dict(marker.kwargs) if marker else {}
    named = marker.args[0] if marker and marker.args else options.pop("path", None)
    folder = Path(request.node.path).parent
    if named is not None:
        return folder / named, options
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in request.node.name)
    return folder / FOLDER / Path(request.node.path).stem / f"{name}.json", options
