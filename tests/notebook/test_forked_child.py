"""A session and the processes around it: a forked child, workers of other start methods,
pickling.
"""

from __future__ import annotations

import concurrent.futures
import copy
import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable, Iterator
from multiprocessing.context import BaseContext
from typing import Any

import pytest
from kit.processes import new_mark, wait_gone
from kit.raw_server import raw_config
from kit.setups import MATH, OFFLINE

from casual_mcp_nb import Session
from casual_mcp_nb.errors import (
    ClosedError,
    ConfigError,
    ConnectError,
    ProviderError,
    UnknownNameError,
    UsageError,
)

CONFIG: dict[str, Any] = {
    **OFFLINE,
    "servers": {"math": MATH},
}
SECONDS = 50
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

pytestmark = [pytest.mark.defect("A10"), pytest.mark.timeout(120)]


@pytest.fixture
def session() -> Iterator[Session]:
    with Session.from_config(CONFIG) as session:
        yield session


def in_fork(work: Callable[[], Any]) -> Any:
    """Run `work` in a forked child, and report its result, or the error that it raises there."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def child() -> None:
        try:
            theirs.send(work())
        except BaseException as error:
            theirs.send(error)

    process = context.Process(target=child)
    process.start()
    assert ours.poll(SECONDS), "The child hangs."
    result = ours.recv()
    process.join(SECONDS)
    assert process.exitcode == 0
    return result


def own_session(_: object = None) -> str:
    with Session.from_config(CONFIG) as session:
        return (
            f"{session.tools.call('math:add', a=1, b=2).result}"
            f" {'5' in session.chat('What is 2 + 3?').answer}"
        )


@needs_fork
@pytest.mark.parametrize(
    "use",
    [
        lambda session: session.tools.call("math:add", a=1, b=2),
        lambda session: session.chat("What is 2 + 3?"),
        lambda session: session.submit("What is 2 + 3?"),
        lambda session: session.connect(),
        lambda session: session.resources.list(),
        lambda session: session.stop(),
        lambda session: session.questions.wait(),
    ],
)
def test_a_session_of_the_parent_is_closed_in_a_forked_child_and_says_so(
    session: Session, use: Any
) -> None:
    error = in_fork(lambda: use(session))
    assert isinstance(error, ClosedError)
    assert "\n" not in str(error)
    assert session.tools.call("math:add", a=1, b=2).result == "3"


@needs_fork
def test_what_was_said_can_be_read_in_a_forked_child_and_closing_there_does_nothing(
    session: Session,
) -> None:
    answer = session.chat("What is 2 + 3?").answer

    def look() -> tuple[str, bool, str]:
        session.close()
        return session.turns[-1].answer, session.status.closed, session.status.servers["math"].state

    assert in_fork(look) == (answer, True, "closed")
    assert session.servers["math"].state == "ready"


@needs_fork
def test_a_forked_child_makes_a_session_of_its_own(session: Session) -> None:
    assert in_fork(own_session) == "3 True"
    assert session.tools.call("math:add", a=1, b=2).result == "3"


@needs_fork
@pytest.mark.parametrize("end", ["exit", "collect"])
def test_a_child_that_ends_leaves_the_servers_of_the_parent_alone(end: str) -> None:
    config = raw_config(calls={"ping": {"result": {"content": [{"type": "text", "text": "pong"}]}}})
    sessions = [Session.from_config({"servers": {"raw": config}})]
    told: list[object] = []
    sessions[0].connect()
    sessions[0].observe(changes=lambda: told.append(None))
    pid = os.fork()
    if pid == 0:
        # As a program does that forks: no os._exit, so that finalizers, atexit and the end of
        # modules run.
        signal.alarm(SECONDS)
        if end == "collect":
            sessions.clear()
        own = Session.from_config(CONFIG)
        own.connect()
        code = "import atexit; atexit._run_exitfuncs()"
        exec(code)
        os._exit(0 if not told else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert sessions[0].tools.call("raw:ping").result == "pong"
    sessions[0].close()


@needs_fork
def test_a_worker_that_forgets_to_close_leaves_no_server() -> None:
    mark = new_mark()
    config = {"servers": {"raw": raw_config(mark, child=True)}}

    def forgetful() -> str:
        session = Session.from_config(config)
        session.connect()
        globals()["_kept"] = session
        return session.servers["raw"].state

    assert in_fork(forgetful) == "ready"
    wait_gone(mark)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_session_made_in_a_worker_works_with_each_start_method(
    method: str, session: Session
) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} here")
    context: BaseContext = multiprocessing.get_context(method)
    with context.Pool(1) as pool:
        assert pool.apply_async(_of_a_worker).get(SECONDS) == "3 True"
    assert session.tools.call("math:add", a=1, b=2).result == "3"


def _of_a_worker() -> str:
    return own_session()


def test_several_threads_share_a_session(session: Session) -> None:
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = pool.map(lambda n: session.tools.call("math:add", a=n, b=1).result, range(12))
        assert list(results) == [str(n + 1) for n in range(12)]
        turns = [pool.submit(lambda: session.chat("What is 2 + 3?")) for _ in range(3)]
        ends = [turn.exception(SECONDS) for turn in turns]
    assert any(end is None for end in ends)
    assert all(end is None or isinstance(end, UsageError) for end in ends)


@pytest.mark.parametrize("how", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_session_cannot_be_pickled_or_copied_and_says_so_in_one_line(
    session: Session, how: Callable[[Any], Any]
) -> None:
    with pytest.raises(UsageError, match=r"from_config") as caught:
        how(session)
    assert "\n" not in str(caught.value)


def test_what_a_session_gives_can_be_sent_to_another_process(session: Session) -> None:
    turn = session.chat("What is 2 + 3?")
    results = [
        turn,
        session.tools.call("math:add", a=1, b=2),
        session.servers,
        session.tools,
        session.status,
        session.stats,
    ]
    again = pickle.loads(pickle.dumps(results))
    assert again[0].answer == turn.answer
    assert again[1].result == "3"


@pytest.mark.parametrize(
    "error",
    [
        UnknownNameError("tool", "ad", ["add"]),
        ConnectError("It ended.", hint="Look.", server="math"),
        ConfigError("Wrong.", path="x.json", line=3, key="servers"),
        ProviderError("Down.", status=503, retry_after=2.0, retryable=True),
    ],
)
def test_an_error_comes_back_from_a_worker_whole(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
