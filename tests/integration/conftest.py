"""Real servers that others wrote, from PyPI and npm, where `.third-party` has them."""

from __future__ import annotations

import subprocess
import sys
import threading
import wave
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from casual_mcp_nb import Session

FOLDER = Path(__file__).resolve().parents[2] / ".third-party"
BIN = "Scripts" if sys.platform == "win32" else "bin"
PAGE = (
    b"<html><body><article><h1>Harbour</h1><p>The tide is high at noon.</p></article></body></html>"
)

Servers = dict[str, dict[str, Any]]


class Page(BaseHTTPRequestHandler):
    """One page, whatever is asked for."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="session")
def node_modules() -> Path:
    """The folder of the npm packages; what uses it is skipped where something of `.third-party` is
    missing.
    """
    for part in ("python", "sqlite", "older-sqlite", "node_modules"):
        if not (FOLDER / part / "installed").exists():
            pytest.skip(f".third-party/{part} is missing: `python3 .ci/third_party.py` installs it")
    return FOLDER / "node_modules" / "@modelcontextprotocol"


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text file and a sound."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "hello.txt").write_text("hello from a file")
    with wave.open(str(folder / "beep.wav"), "wb") as sound:
        sound.setparams((1, 1, 8000, 0, "NONE", "not compressed"))
        sound.writeframes(bytes(80))
    return folder


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git repository with one commit and one file that is not in it."""
    folder = tmp_path_factory.mktemp("repository")
    (folder / "notes.txt").write_text("first\n")
    author = [
        "-c",
        "user.name=Ada",
        "-c",
        "user.email=ada@example.org",
        "-c",
        "commit.gpgsign=false",
    ]
    for command in (
        ["init", "--quiet", "-b", "main"],
        ["add", "."],
        [*author, "commit", "--quiet", "-m", "The first notes"],
    ):
        subprocess.run(["git", *command], cwd=folder, check=True)
    (folder / "new.txt").write_text("not added yet\n")
    return folder


@pytest.fixture(scope="session")
def page() -> Iterator[str]:
    """The address of a page on the loopback interface."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/harbour"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="session")
def servers(node_modules: Path, folder: Path) -> Servers:
    """The config of every real server, by name."""

    def python(name: str, *args: str, environment: str = "python") -> dict[str, Any]:
        return {
            "command": str(FOLDER / environment / BIN / f"mcp-server-{name}"),
            "args": list(args),
        }

    def node(name: str, *args: str) -> dict[str, Any]:
        return {
            "command": "node",
            "args": [str(node_modules / f"server-{name}" / "dist" / "index.js"), *args],
        }

    return {
        "clock": python("time", "--local-timezone", "UTC"),
        "git": python("git"),
        # Where it finds Node.js, it installs packages from npm when it reads its first page.
        "fetch": python("fetch", "--ignore-robots-txt", "--allow-private-ips")
        | {"env": {"PATH": str(FOLDER / "python" / BIN)}},
        "everything": node("everything"),
        # It declares its writing tools destructive, and nobody is there to ask.
        "filesystem": node("filesystem", str(folder)) | {"approval": "never"},
        "memory": node("memory") | {"env": {"MEMORY_FILE_PATH": str(folder / "memory.jsonl")}},
        "thinking": node("sequential-thinking"),
        "database": python(
            "sqlite", "--db-path", str(folder / "older.db"), environment="older-sqlite"
        ),
        "sqlite": python("sqlite", "--db-path", str(folder / "data.db"), environment="sqlite"),
    }


@pytest.fixture(scope="session")
def shared_session(servers: Servers) -> Iterator[Session]:
    config = {
        "clients": {"offline": {"provider": "offline"}},
        "models": {"planner": {"client": "offline", "model": "planner"}},
        "mcpServers": servers,
        "tool_discovery": {"enabled": False},
    }
    with Session.from_config(config) as session:
        yield session


@pytest.fixture
def session(shared_session: Session) -> Session:
    """One session with all of them at the same time, at the start of a conversation."""
    shared_session.conversations.new()
    return shared_session
