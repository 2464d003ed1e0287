"""IPython's most verbose traceback of a provider's error: never a key, also not out of an SDK's
frames.
"""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kit.provider import PROVIDERS, Provider, answer
from kit.scripted_http import Reply
from kit.scripts import run_script
from kit.secrets import assert_nowhere, planted

SHELL = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
# Colors would take a third of the time.
shell = InteractiveShell.instance(colors="nocolor")
for cell in json.load(sys.stdin):
    shell.run_cell(cell)
"""

SETUP = """
import asyncio, traceback
from casual_mcp_nb import Session

def wrapped(session, config, turn, model):
    client = model.client
    sdk = getattr(client, "client", client)
    try:
        turn.raise_for_status()
    except Exception as error:
        raise KeyError("mine") from (config and client and sdk and error)

def asked(model, messages, on_event=None):
    asyncio.run(model.complete(messages, on_event=on_event))

def with_locals(model, messages):
    try:
        asked(model, messages, lambda event: None)
    except Exception as error:
        print(*traceback.TracebackException.from_exception(error, capture_locals=True).format())
"""

CELLS = (
    (
        "turn = session.chat('hello', model={name!r}); model ="
        " session.parts.chat.models.chat_model({name!r})"
    ),
    "turn.raise_for_status()",
    "raise RuntimeError('mine') from turn.exception",
    "wrapped(session, session.config, turn, model)",
    "asked(model, turn.started.messages)",
    "raise turn.exception.__cause__ or ValueError('no cause')",
    "with_locals(model, turn.started.messages)",
)


def failures(key: str, provider: str) -> dict[str, Reply]:
    """Build the failures of a provider, with the key in the message where there is one."""
    said = {
        "error": {"message": f"Incorrect API key provided: {key}.", "type": "invalid_request_error"}
    }
    return {
        "refuses_the_key": Reply(401, said),
        "refuses_the_request": Reply(400, said),
        "is_broken": Reply(500, f"<html>{key}</html>"),
        "sends_a_page": Reply(200, f"<html>{key}</html>"),
        "sends_something_else": Reply(200, {"key": key}),
        "breaks_off": Reply(200, answer(provider, "Hello"), cut=30),
        "resets": Reply(reset=True),
        "is_silent": Reply(silent=True),
    }


def printed(folder: Path, key: str, cells: list[str]) -> str:
    """Run these cells in a shell with the key in its environment, and capture its output."""
    env = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder),
        "DESK_API_KEY": key,
        "MCP_TRUST_CONFIGS": "1",
    }
    done = run_script(SHELL, stdin=json.dumps(cells), cwd=folder, env=env, sdks=True)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.fault(82)
@pytest.mark.fault(83)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_no_traceback_of_ipython_shows_a_key(tmp_path: Path, provider: str) -> None:
    key = planted("key")
    config: dict[str, Any] = {"clients": {}, "models": {}}
    cells = ["%xmode Verbose", SETUP, "session = Session('config.json', in_process={})"]
    with ExitStack() as stack:
        for name, reply in failures(key, provider).items():
            made = stack.enter_context(Provider(reply)).config(provider, max_retries=0, timeout=0.5)
            config["clients"][name] = {**made["clients"]["desk"], "api_key": "${DESK_API_KEY}"}
            config["models"][name] = {"client": name, "model": "m-1"}
            cells += [cell.format(name=name) for cell in CELLS]
        (tmp_path / "config.json").write_text(json.dumps(config))
        text = printed(tmp_path, key, cells)
    assert (
        text.count("RuntimeError: mine") == text.count("KeyError: 'mine'") == len(config["models"])
    )
    assert re.search(r"^ +sdk = <", text, re.MULTILINE)
    assert_nowhere([key], text)
