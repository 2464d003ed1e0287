"""The logs of libraries never reach stderr by themselves: they are server text, without a limit and
with secrets in it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kit.lean import lean
from kit.raw_server import raw_config, text_result
from kit.scripts import run_script
from kit.secrets import assert_nowhere, planted

MANY = 300
LIMIT = 250
"""How long a line of a library may be in our log."""


def config_with(secret: str) -> dict[str, Any]:
    """A config with a server that knows a secret and sends notices that the SDK cannot read."""
    bad = {
        "method": "notifications/resources/updated",
        "params": {"uri": [f"the secret is {secret} " * 20]},
    }
    server = raw_config(
        calls={"go": {"notify": bad, "notify_count": MANY, "result": text_result("done")}}
    )
    return {"servers": {"raw": {**server, "env": {**server.get("env", {}), "RAW_TOKEN": secret}}}}


SESSION = """
import json, sys
{before}
from casual_mcp_nb import Session
with Session.from_config(json.load(sys.stdin)) as session:
    assert session.tools.call("raw__go").result == "done"
"""
TOOL_CHAT = """
import asyncio, json, sys
{before}
from casual_mcp_nb import McpToolChat
from casual_mcp_nb.providers.scripted import call, scripted_model
from casual_mcp_nb import UserMessage
async def main():
    async with McpToolChat.from_config(json.load(sys.stdin)) as chat:
        await chat.chat([UserMessage(content="go")], model=scripted_model(call("raw__go"), "Done."))
asyncio.run(main())
"""


@pytest.mark.defect("F8")
@pytest.mark.parametrize("script", [SESSION, TOOL_CHAT], ids=["Session", "McpToolChat"])
def test_notices_that_cannot_be_read_leave_nothing_on_a_scripts_stderr(script: str) -> None:
    secret = planted("token")
    done = run_script(script.format(before=""), stdin=json.dumps(config_with(secret)))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.defect("F8")
def test_whoever_sets_up_logging_gets_short_lines_without_secrets() -> None:
    secret = planted("token")
    before = "import logging; logging.basicConfig(level=logging.INFO)"
    done = run_script(SESSION.format(before=before), stdin=json.dumps(config_with(secret)))
    assert done.returncode == 0
    lines = done.stderr.splitlines()
    assert [line for line in lines if "validate notification" in line]
    assert max(map(len, lines)) < LIMIT + len("WARNING:casual_mcp_nb.servers:client: ")
    assert "Traceback" not in done.stderr
    assert_nowhere([secret], done.stderr)


@pytest.mark.slow
@pytest.mark.defect("F8")
def test_the_command_line_shows_nothing_of_it_either(tmp_path: Path) -> None:
    secret = planted("token")
    (tmp_path / "config.json").write_text(json.dumps(config_with(secret)))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "casual_mcp_nb",
            "call",
            "raw__go",
            "--config",
            str(tmp_path / "config.json"),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **lean(), "MCP_TRUST_CONFIGS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "notification" not in done.stderr
    assert_nowhere([secret], done.stderr, done.stdout)


LOGGERS = """
import contextlib, io, json, logging, sys
import anthropic, ollama, openai
try:
    import google.genai
except ImportError:
    pass
from casual_mcp_nb import Session
secret = sys.stdin.read()
config = {"servers": {"math": {"bundled": "math", "transport": "in-process", "env": {"A_TOKEN": secret}}}}
with Session.from_config(config) as session:
    session.tools.call("math__add", a=1, b=2)
    for name in ["google.auth", *logging.root.manager.loggerDict]:
        root = name.partition(".")[0]
        if (root not in OTHERS or name == "google.auth") and root not in sys.stdlib_module_names:
            with contextlib.redirect_stderr(io.StringIO()) as written:
                try:
                    raise ValueError(secret * 50)
                except ValueError:
                    logging.getLogger(name).exception("a server said %s", secret)
            print(name, len(written.getvalue()))
"""
OTHERS = {
    "IPython": "draws the person's own cells",
    "dotenv": "names lines of the person's own .env, never their content",
    "google": "the rest of it runs only in the processes of bundled servers, whose stderr is kept",
    "griffe": "reads docstrings of the person's own functions",
    "markdown_it": "draws the person's own terminal",
    "opentelemetry": "sends to where the person said, and names types, never values",
    "pydantic_settings": "reads the settings of fastmcp",
    "sse_starlette": "of a service that the person starts, which sets up its own log",
    "tornado": "of Jupyter",
    "uvicorn": "of a service that the person starts, which sets up its own log",
    "watchfiles": "of uvicorn",
    "client": "shared with other programs: what the MCP SDK logs there is in the tests above",
    "matplotlib": "draws the person's own figures",
    "parso": "of IPython",
    "prompt_toolkit": "reads what the person types",
    "rich": "draws the person's own terminal",
    "stack_data": "of IPython",
}
"""Loggers that no server's text reaches, each with what they are for."""


@pytest.mark.defect("F8")
def test_no_logger_of_a_library_writes_to_stderr() -> None:
    secret = planted("token")
    done = run_script(f"OTHERS = {set(OTHERS)!r}\n{LOGGERS}", stdin=secret, sdks=True)
    assert done.returncode == 0, done.stderr
    written = {line.split()[0]: int(line.split()[1]) for line in done.stdout.splitlines()}
    assert {"mcp", "fastmcp", "httpx2", "openai", "anthropic"} <= written.keys()
    assert {name: length for name, length in written.items() if length} == {}


TASKS = """
import asyncio, gc, json, logging, sys
from casual_mcp_nb import Session
secret = sys.stdin.read()
namespace = {"__name__": "mcp.client.made_up", "secret": secret}
exec("async def library(): raise ValueError(secret * 50)", namespace)
async def own(): raise ValueError("my own mistake")
config = {"servers": {"math": {"bundled": "math", "transport": "in-process", "env": {"A_TOKEN": secret}}}}
with Session.from_config(config) as session:
    async def forget(function):
        task = asyncio.ensure_future(function())
        await asyncio.sleep(0)
        del task
        gc.collect()
    for function in (namespace["library"], own):
        asyncio.run(forget(function))
"""


@pytest.mark.defect("F8")
def test_a_task_that_a_library_forgot_is_not_printed_and_ones_own_is() -> None:
    secret = planted("token")
    done = run_script(TASKS, stdin=secret)
    assert done.returncode == 0, done.stderr
    assert "my own mistake" in done.stderr
    assert_nowhere([secret], done.stderr)
