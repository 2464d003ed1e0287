"""Outside a notebook: a plain script, `asyncio.run`, pytest-asyncio, IPython in a terminal; and the
end of each.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from typing import Any

import pytest
from kit.lean import lean
from kit.processes import new_mark, wait_gone
from kit.raw_server import raw_config
from kit.scripts import run_script
from kit.setups import OFFLINE

from casual_mcp_nb import Session

CONFIG: dict[str, Any] = {
    **OFFLINE,
    "servers": {"math": {"bundled": "math"}},
}
ASK = "What is 17 * 23 + 4?"


def started(
    code: str, *options: str, stdin: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a script, or Python with options, in a process that is really started."""
    command = [sys.executable, *(options or ("-c", textwrap.dedent(code)))]
    env = {**os.environ, **lean(), "TERM": "dumb", **variables}
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=60, check=False, env=env
    )


def test_a_plain_script_blocks_and_says_nothing_of_its_own() -> None:
    done = started(f"""
        from casual_mcp_nb import Session
        with Session.from_config({CONFIG!r}) as session:
            print(session.chat({ASK!r}).answer)
    """)
    assert "395" in done.stdout
    assert (done.returncode, done.stderr) == (0, "")


def test_asyncio_run_awaits_and_says_nothing_of_its_own() -> None:
    done = run_script(f"""
        import asyncio
        from casual_mcp_nb import Session
        async def main():
            async with Session.from_config({CONFIG!r}) as session:
                turns = [await session.chat_async({ASK!r}), await session.chat_async("And what is 2 + 3?")]
                print(*(turn.answer for turn in turns))
        asyncio.run(main())
    """)
    assert "395" in done.stdout
    assert "5" in done.stdout
    assert (done.returncode, done.stderr) == (0, "")


async def test_pytest_asyncio_awaits() -> None:
    async with Session.from_config(CONFIG) as session:
        assert "395" in (await session.chat_async(ASK)).answer


@pytest.mark.slow
def test_ipython_in_a_terminal_shows_text_and_no_live_display() -> None:
    lines = [
        "%load_ext casual_mcp_nb",
        "from casual_mcp_nb import Session",
        f"session = Session.from_config({CONFIG!r})",
        f"session.chat({ASK!r})",
        "await session.chat_async('What is 2 + 3?')",
        "%mcp servers",
        "%mcp nonsense",
        "session",
    ]
    done = started(
        "",
        "-m",
        "IPython",
        "--simple-prompt",
        "--no-banner",
        "--colors=NoColor",
        "--quick",
        stdin="\n".join(lines),
    )
    assert done.returncode == 0, done.stderr
    assert "395" in done.stdout
    assert "math" in done.stdout
    assert "Did you mean" in done.stdout or "nonsense" in done.stdout
    assert not re.search(r"[\x1b\r\x08]|<div|Starting", done.stdout), done.stdout
    assert done.stdout.count("Traceback") == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "plan", [{}, {"ignore_eof": True, "ignore_sigterm": True}, {"child": True}]
)
def test_a_script_that_forgets_to_close_ends_quickly_and_leaves_no_server(
    plan: dict[str, Any],
) -> None:
    mark = new_mark()
    done = started(f"""
        from casual_mcp_nb import Session
        session = Session.from_config({{"servers": {{"raw": {raw_config(mark, **plan)!r}}}}})
        session.connect()
        print(session.servers["raw"].state)
    """)
    wait_gone(mark)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "ready\n"


def test_a_script_that_fails_leaves_no_server() -> None:
    mark = new_mark()
    done = started(f"""
        from casual_mcp_nb import Session
        session = Session.from_config({{"servers": {{"raw": {raw_config(mark)!r}}}}})
        session.connect()
        raise SystemExit(3)
    """)
    wait_gone(mark)
    assert done.returncode == 3


def test_an_interrupted_script_ends_with_keyboard_interrupt_and_no_server() -> None:
    mark = new_mark()
    config = raw_config(mark, calls={"hang": {}})
    done = started(f"""
        import os, signal, threading
        from casual_mcp_nb import Session
        from casual_mcp_nb.providers.scripted import call, scripted_model
        session = Session.from_config({{"servers": {{"raw": {config!r}}}}})
        session.connect()
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        session.chat("go", model=scripted_model(call("raw__hang"), "never"))
    """)
    assert "KeyboardInterrupt" in done.stderr
    wait_gone(mark)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a terminal of its own")
def test_an_interrupt_at_the_question_for_an_approval_ends_a_script_in_a_terminal() -> None:
    import pty

    code = """if True:
        from casual_mcp_nb import Session
        from casual_mcp_nb.providers.scripted import call, scripted_model
        session = Session.from_config({"servers": {"math": {"bundled": "math", "approval": "always"}}})
        session.chat("go", model=scripted_model(call("math__add", a=1, b=2), "never"))
    """
    ours, theirs = pty.openpty()
    streams: dict[str, Any] = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        **streams,
        start_new_session=True,
        env={**os.environ, **lean()},
    )
    os.close(theirs)
    said = b""
    while not re.search(rb"type\s+why: ", said):
        said += os.read(ours, 1000)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) != 0
    assert b"KeyboardInterrupt" in os.read(ours, 20_000)
    os.close(ours)


def test_in_a_script_sessions_of_one_config_live_side_by_side() -> None:
    with Session.from_config(CONFIG) as one, Session.from_config(CONFIG) as other:
        assert (
            one.tools.call("math__add", a=1, b=2).result
            == other.tools.call("math__add", a=1, b=2).result
            == "3"
        )


LOGGING = """
import logging
{before}
from casual_mcp_nb import Session
for _ in range(2):
    Session.from_config({{}}).close()
logging.getLogger("casual_mcp_nb.test").info("a line")
logging.getLogger("casual_mcp_nb.test").error("a fault")
logging.getLogger("mcp.server").info("by a library")
"""


@pytest.mark.slow
@pytest.mark.defect("H13")
@pytest.mark.parametrize(
    ("level", "before", "lines"),
    [
        ("", "", []),
        ("ERROR", "", ["a fault"]),
        ("info", "", ["a line", "a fault", "by a library"]),
        ("WARN", "", ["a fault"]),
        (
            "INFO",
            "logging.basicConfig(level='INFO', format='set up before: %(message)s')",
            ["a line", "a fault", "by a library"],
        ),
    ],
)
def test_the_log_is_shown_to_those_who_ask_and_each_line_once(
    level: str, before: str, lines: list[str]
) -> None:
    done = started(LOGGING.format(before=before), LOG_LEVEL=level)
    assert done.returncode == 0, done.stderr
    assert [line.rpartition(": ")[2] for line in done.stderr.splitlines()] == lines
