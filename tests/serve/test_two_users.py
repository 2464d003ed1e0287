"""Two users of one computer share an MCP server over HTTP: nothing of one reaches the other."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kit.lean import lean
from kit.mcp_http import McpHttp

PROGRAM = """
import json, sys
from casual_mcp_nb import Session
from casual_mcp_nb.errors import TrustRequiredError
from casual_mcp_nb.providers.scripted import scripted_model
from casual_mcp_nb.conversation.store import store_path

config, user = sys.argv[1:]
session = Session.from_config(config, store=store_path(), quiet=True)
try:
    session.connect()
    before = "accepted"
except TrustRequiredError:
    before = "asked"
session.consent.trust().accept()
session.connect(strict=True)
session.chat(f"This is the private question of {user}.", model=scripted_model("Hello."), echo="none")
session.conversations.store.flush()
print(json.dumps({
    "before": before,
    "conversations": len(session.conversations),
    "store": str(store_path()),
}))
session.close()
"""


@pytest.mark.slow
def test_nothing_of_one_user_reaches_the_other(tmp_path: Path) -> None:
    users = ("ada", "bob")
    with McpHttp({"a": {"content": [{"type": "text", "text": "ok"}]}}) as shared:
        config = tmp_path / "casual_mcp_config.json"
        server = shared.config(headers={"Authorization": "Bearer ${TOOLS_KEY}"})
        config.write_text(json.dumps({"servers": {"shared": server}}))
        told = {user: _run(tmp_path, config, user) for user in users}
        sent = [str(request.headers) for request in shared.seen]

    for user, other in (users, users[::-1]):
        said, home = told[user], tmp_path / user
        # Each has to accept the config, whatever the other has accepted.
        assert said["before"] == "asked"
        assert said["conversations"] == 1
        assert Path(said["store"]).is_relative_to(home)
        assert any(_key(user) in headers for headers in sent)
        assert not any(_key(user) in headers and _key(other) in headers for headers in sent)
        files = [path for path in home.rglob("*") if path.is_file()]
        assert files
        for path in files:
            content = path.read_bytes()
            assert f"question of {other}".encode() not in content
            for key in map(_key, users):
                assert key.encode() not in content
            if os.name == "posix":
                assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
        assert any(f"question of {user}".encode() in path.read_bytes() for path in files)


def _key(user: str) -> str:
    return f"not-a-real-key-of-{user}-0123456789"


def _run(folder: Path, config: Path, user: str) -> dict[str, Any]:
    home = folder / user
    home.mkdir()
    names = ("MCP_TRUST_CONFIGS", "MCP_STORE", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
    environ = {name: value for name, value in os.environ.items() if name not in names}
    environ |= {
        "HOME": str(home),
        "USERPROFILE": str(home),
        "LOCALAPPDATA": str(home),
        "APPDATA": str(home),
    }
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(config), user],
        env={**environ, **lean(), "TOOLS_KEY": _key(user)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert not ended.returncode, ended.stderr
    result: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return result
