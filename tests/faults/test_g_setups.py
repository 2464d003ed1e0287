"""A set-up that fails in every way that a config can, in a kernel whose environment is full of
secrets.

Tracebacks are as talkative as they get: IPython's own in the finest mode, and rich's with the
values of all local variables. What is searched is all that a saved notebook would hold.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.kernel import Kernel, started_kernel
from kit.raw_server import raw_config
from kit.scripted_http import Reply, ScriptedHttp
from kit.secrets import assert_nowhere, planted

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(600), pytest.mark.defect("A8", "A9")]

NAMES = (
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "DATABASE_URL",
    "DESK_API_KEY",
    "GITHUB_TOKEN",
    "MCP_KEY",
    "MCP_PASSWORD",
    "NOTES",
    "Z_LAST",
)
LITERAL = planted("literal")
FROM_FILE = planted("env-file")

AT_LENGTH = "show_locals=True, locals_max_length=10_000, locals_max_string=10_000, width=200"
MODES = {
    "plain": "%xmode Context",
    "verbose": "%xmode Verbose",
    "rich": f"import rich.traceback\nrich.traceback.install({AT_LENGTH})",
}

SERVER: dict[str, Any] = {
    "command": "x",
    "env": {"A": "${MCP_KEY}", "B": LITERAL},
    "args": ["--key", "${GITHUB_TOKEN}"],
}
DESK: dict[str, Any] = {
    "provider": "openai",
    "base_url": "http://me:${MCP_PASSWORD}@127.0.0.1:9/v1",
    "api_key": "${MCP_KEY}",
}
MODEL = {"client": "desk", "model": "m"}

CONFIGS: dict[str, Any] = {
    "a missing variable": {
        "servers": {"a": SERVER | {"cwd": "${NOT_THERE}"}},
        "clients": {"desk": DESK},
    },
    "a wrong field": {"servers": {"a": SERVER | {"call_timeout": "${MCP_KEY}"}}},
    "a wrong type": {"servers": {"a": SERVER | {"args": {"x": "${MCP_KEY}"}}}},
    "a secret as a name": {"servers": {LITERAL[:20]: SERVER | {"url": "https://${MCP_KEY}"}}},
    "two ways": {"servers": {"a": SERVER | {"url": "https://${MCP_KEY}"}}},
    "an unknown section": {"servers": {"a": SERVER}, "clientz": {"desk": DESK}},
    "an unknown client": {
        "clients": {"desk": DESK},
        "models": {"m": {"client": "dsk", "model": "x"}},
        "servers": {"a": SERVER},
    },
    "an unknown server in a toolset": {
        "servers": {"a": SERVER},
        "tool_sets": {"t": {"servers": {"b": True}}},
    },
    "a header with a line break": {
        "servers": {"a": {"url": "https://a", "headers": {"X-Key": "${MCP_KEY}\n"}}}
    },
    "a key that is not ASCII": {"clients": {"desk": DESK | {"api_key": "${MCP_KEY}é"}}},
    "a variable with NUL": {"servers": {"a": SERVER | {"env": {"A": "${MCP_KEY}\0"}}}},
    "an input that nobody can answer": {
        "servers": {"a": SERVER | {"env": {"A": "${input:thing}", "B": "${MCP_KEY}"}}}
    },
    "a missing env file": {"servers": {"a": SERVER | {"envFile": "none.env"}}},
    "a text without end": {"servers": {"a": SERVER | {"args": ["${DATABASE_URL}" * 40_000]}}},
    "nested without end": {
        "servers": {"a": SERVER | {"metadata": json.loads("[" * 90 + "]" * 90)}}
    },
    "prices that are not there": {
        "servers": {"a": SERVER},
        "clients": {"desk": DESK},
        "prices": "none.json",
    },
    "a section of the wrong kind": {"servers": SERVER["args"], "clients": {"desk": DESK}},
    "a registry's entry that cannot be used": {
        "name": "a/b",
        "packages": [{"registryType": "mcpb", "identifier": "${MCP_KEY}"}],
    },
}

TEXTS = {
    "no JSON": '{"clients": {"desk": {"api_key": "' + LITERAL + '",, }}}',
    "cut off": '{"clients": {"desk": {"api_key": "' + LITERAL,
    "the same key twice": '{"servers": {"a": {"command": "'
    + LITERAL
    + '"}, "a": {"command": "x"}}}',
    "a list": '["' + LITERAL + '"]',
}

CALLS = [
    "Session(GOOD, in_process=['a'])",
    "Session.from_config(GOOD, in_process=['a'])",
    "McpToolChat.from_config(GOOD, in_process=['a'])",
    "Session(GOOD, prices='none.json')",
    "Session(GOOD, prices=17)",
    "Session(GOOD, nmae='x')",
    "Session(17)",
    "load_config(GOOD, environ=17)",
    "load_config(object())",
    "session = Session(GOOD); session.connect()",
    "session.servers",
    "session.servers.reconnect('gone')",
    "session.servers.reconnect('locked')",
    "session.servers.reconnect('dies')",
    "session.tools.call('gone:x')",
    "session.chat('hello')",
    "session.chat('hello').raise_for_status()",
    "raise session.chat('hello').exception",
    "session.chat('hello', model='other').raise_for_status()",
    "session.search(17)",
    "session.servers['none']",
    "session.config.servers['none']",
    "import pickle; pickle.dumps(session.config)",
    "session.selection.tool_set = 'none'",
    "session.close(); session.chat('x')",
]


@pytest.fixture(scope="module")
def secrets() -> dict[str, str]:
    return {name: planted(name.lower().replace("_", "-")) for name in NAMES}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, secrets: dict[str, str]) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("setups")
    (folder / ".env").write_text(f"FROM_FILE={FROM_FILE}\n")
    for number, config in enumerate(CONFIGS.values()):
        (folder / f"config-{number}.json").write_text(json.dumps(config))
    for number, text in enumerate(TEXTS.values()):
        (folder / f"text-{number}.json").write_text(text)
    refused = {"error": {"message": f"Incorrect API key provided: {secrets['MCP_KEY']}."}}
    dies = raw_config(exit=1, stderr=f"no entry with {secrets['MCP_KEY']}")
    with ScriptedHttp(lambda _: Reply(401, refused)) as http:
        good = {
            "clients": {
                "desk": DESK | {"base_url": f"{http.url}/v1", "max_retries": 0},
                "away": DESK | {"max_retries": 0, "timeout": 2},
            },
            "models": {"m": MODEL, "other": MODEL | {"client": "away"}},
            "servers": {
                "gone": SERVER,
                "locked": {
                    "url": f"{http.url}/mcp",
                    "headers": {"Authorization": "Bearer ${GITHUB_TOKEN}"},
                    "auth": "${MCP_KEY}",
                },
                "dies": dies | {"env": {"A": "${MCP_KEY}", "B": LITERAL}},
            },
        }
        (folder / "good.json").write_text(json.dumps(good))
        yield folder


@pytest.mark.slow
@pytest.mark.fault(81)
@pytest.mark.parametrize("mode", MODES)
def test_no_secret_of_the_environment_is_in_a_notebook_whose_set_up_fails(
    mode: str, folder: Path, secrets: dict[str, str]
) -> None:
    with started_kernel(**secrets, PYTHONPATH="") as kernel:
        assert kernel.run(f"%cd -q {folder}\n%load_ext casual_mcp_nb").status == "ok"
        assert (
            kernel.run(
                "from casual_mcp_nb import McpToolChat, Session, load_config\nGOOD = 'good.json'"
            ).status
            == "ok"
        )
        assert kernel.run(MODES[mode]).status == "ok"
        saved = [*_files(kernel), *_objects(kernel), *_calls(kernel)]
    assert sum(status == "error" for status, _ in saved) >= len(CONFIGS) * 2 + len(TEXTS) + 15
    hidden = [*secrets.values(), LITERAL, FROM_FILE]
    for _, text in saved:
        assert_nowhere(hidden, text)


def _files(kernel: Kernel) -> Iterator[tuple[str, str]]:
    for number in range(len(CONFIGS)):
        yield _saved(kernel, f"%mcp connect config-{number}.json")
    for number in range(len(TEXTS)):
        yield _saved(kernel, f"Session('text-{number}.json')")


def _objects(kernel: Kernel) -> Iterator[tuple[str, str]]:
    """The same from Python: the person's own variables would show their own texts, so they are not
    kept in one.
    """
    for number in range(len(CONFIGS)):
        yield _saved(kernel, f"import json\nSession(json.load(open('config-{number}.json')))")


def _calls(kernel: Kernel) -> Iterator[tuple[str, str]]:
    for code in CALLS:
        yield _saved(kernel, code)


def _saved(kernel: Kernel, code: str) -> tuple[str, str]:
    """How a cell ended, and all that it leaves in a notebook file."""
    ran = kernel.run(code)
    return ran.status, json.dumps(ran.outputs, ensure_ascii=False)
