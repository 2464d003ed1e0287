"""Server processes of notebooks: how many there are, and that none outlives its kernel."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.kernel import KERNELS, Kernel, started_kernel
from kit.processes import marked, new_mark, wait_gone
from kit.raw_server import raw_config, text_result
from kit.waiting import wait_until

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(90)]


@pytest.fixture(params=KERNELS)
def kernel(request: pytest.FixtureRequest) -> Iterator[Kernel]:
    with started_kernel(**request.param) as kernel:
        yield kernel


@pytest.fixture(scope="module")
def shared_kernel() -> Iterator[Kernel]:
    with started_kernel() as kernel:
        yield kernel


@pytest.fixture
def plain_kernel() -> Iterator[Kernel]:
    with started_kernel() as kernel:
        yield kernel


def config_file(folder: Path, *plans: dict[str, Any]) -> tuple[Path, str]:
    """A config file with a raw server for each plan, and the mark that they carry."""
    mark = new_mark()
    servers = {f"server_{number}": raw_config(mark, **plan) for number, plan in enumerate(plans)}
    path = folder / f"{mark}.json"
    path.write_text(json.dumps({"servers": servers}))
    return path, mark


@pytest.mark.fault(15)
def test_a_set_up_cell_run_ten_times_leaves_one_set_of_servers(
    kernel: Kernel, tmp_path: Path
) -> None:
    path, mark = config_file(tmp_path, {}, {})
    kernel.printed("from casual_mcp_nb import Session")
    cell = f"session = Session.from_config({str(path)!r}); session.connect()\nsession"
    for _ in range(10):
        assert kernel.run(cell).status == "ok"
        assert len(marked(mark)) == 2
    kernel.printed("kept = [each for each in Out.values() if isinstance(each, Session)]")
    assert kernel.printed("print(len(kept))") == "10"
    why = kernel.run("kept[0].search('x')").text()
    assert why.startswith("ClosedError")
    kernel.restart()
    wait_gone(mark)
    assert kernel.run(f"from casual_mcp_nb import Session\n{cell}").status == "ok"
    assert len(marked(mark)) == 2


@pytest.mark.fault(15)
def test_a_config_written_in_the_cell_counts_by_what_it_says(shared_kernel: Kernel) -> None:
    mark = new_mark()
    config = {"servers": {"raw": raw_config(mark)}}
    shared_kernel.printed("from casual_mcp_nb import Session")
    for _ in range(3):
        assert (
            shared_kernel.run(
                f"made = Session.from_config({config!r})\nmade.connect()\nmade"
            ).status
            == "ok"
        )
        assert len(marked(mark)) == 1
    assert (
        shared_kernel.printed("print(sum(isinstance(each, Session) for each in Out.values()))")
        == "3"
    )


@pytest.mark.fault(15)
def test_two_sessions_of_one_config_live_side_by_side_under_different_names(
    shared_kernel: Kernel, tmp_path: Path
) -> None:
    path, mark = config_file(tmp_path, {})
    shared_kernel.printed(
        f"from casual_mcp_nb import Session\na = Session.from_config({str(path)!r})\n"
        f"b = Session.from_config({str(path)!r}, name='second')\na.connect(); b.connect();"
    )
    assert len(marked(mark)) == 2
    assert (
        shared_kernel.printed("print(a.servers['server_0'].state, b.servers['server_0'].state)")
        == "ready ready"
    )


STUBBORN: list[dict[str, Any]] = [
    {},
    {"ignore_eof": True},
    {"ignore_eof": True, "ignore_sigterm": True},
    {
        "handshake": "silent",
        "ignore_eof": True,
        "ignore_sigterm": True,
        "config": {"init_timeout": 600},
    },
]


@pytest.mark.fault(73)
@pytest.mark.parametrize("end", ["restart", "shut_down", "kill", "sigkill"])
def test_no_server_outlives_its_kernel(plain_kernel: Kernel, tmp_path: Path, end: str) -> None:
    path, mark = config_file(tmp_path, *STUBBORN)
    plain_kernel.printed(
        "import threading\nfrom casual_mcp_nb import Session\nsession ="
        f" Session.from_config({str(path)!r})\nthreading.Thread(target=session.connect,"
        " daemon=True).start()"
    )
    wait_until(lambda: len(marked(mark)) == len(STUBBORN), "all servers started")
    if end == "sigkill":
        pid = int(plain_kernel.printed("import os; print(os.getpid())"))
        os.kill(pid, signal.SIGKILL)
    else:
        getattr(plain_kernel, end)()
    wait_gone(mark)


@pytest.mark.fault(74)
def test_a_session_ends_stubborn_servers_and_their_children_within_its_limit(
    tmp_path: Path,
) -> None:
    from casual_mcp_nb import Session

    path, mark = config_file(
        tmp_path,
        {"ignore_eof": True, "ignore_sigterm": True},
        {"child": "stubborn"},
        {"child": "stubborn", "ignore_eof": True},
    )
    with Session.from_config(path) as session:
        assert {status.state for status in session.servers.values()} == {"ready"}
        assert len(marked(mark)) == 5
    wait_gone(mark)


@pytest.mark.fault(18)
def test_a_server_that_died_is_back_at_its_next_use_from_a_cell(
    shared_kernel: Kernel, tmp_path: Path
) -> None:
    path, mark = config_file(tmp_path, {"calls": {"say": {"result": text_result("here")}}})
    shared_kernel.printed(
        f"from casual_mcp_nb import Session\nsession = Session.from_config({str(path)!r})"
    )
    assert "here" in shared_kernel.printed("print(session.tools.call('say').result)")
    (process,) = marked(mark)
    os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: not marked(mark), "the end of the server")
    again = "print((await session.tools.call_async('say')).result)"
    ran = shared_kernel.run(again)
    if "the connection was closed" in ran.text():
        # The call was made before the session had noticed the end. The next one is the next use.
        ran = shared_kernel.run(again)
    assert (ran.status, "here" in ran.text()) == ("ok", True)
    assert len(marked(mark)) == 1
