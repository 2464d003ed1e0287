"""A real JupyterLab, served on loopback, for tests in a browser."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kit.lean import lean

LIMIT = 90
SETTINGS = {
    # Cells out of sight are parts of the page all the same.
    "notebook-extension/tracker": {"windowingMode": "none", "autoStartDefaultKernel": True},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}
OPTIONS = [
    "--no-browser",
    "--allow-root",
    "--ServerApp.port=0",
    "--ServerApp.ip=127.0.0.1",
    "--IdentityProvider.token=test",
    "--LabApp.expose_app_in_browser=True",
    "--JupyterNotebookApp.expose_app_in_browser=True",
    "--LabApp.news_url=",
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
]


@dataclass
class Lab:
    """A server, the folder that it serves, and the environment that it runs in."""

    url: str
    folder: Path
    environment: dict[str, str]

    def address(self, notebook: str) -> str:
        """Build the address where a notebook is opened, in a separate workspace."""
        return f"{self.url}/lab/workspaces/{Path(notebook).stem}/tree/{notebook}?token=test&reset"

    def trust(self, notebook: str) -> None:
        """Trust a notebook, as its owner does."""
        command = [sys.executable, "-m", "jupyter", "trust", str(self.folder / notebook)]
        subprocess.run(
            command, env=self.environment, check=True, capture_output=True, timeout=LIMIT
        )


@contextmanager
def started_lab(home: Path) -> Iterator[Lab]:
    """Serve JupyterLab from a folder of its own, with settings of its own, and end it
    afterwards.
    """
    folder = home / "notebooks"
    folder.mkdir()
    places = {
        f"JUPYTER_{name}_DIR": str(home / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")
    }
    settings = home / "settings"
    environment = {
        **os.environ,
        **places,
        "JUPYTERLAB_SETTINGS_DIR": str(settings),
        "IPYTHONDIR": str(home / "ipython"),
    }
    environment |= {"MCP_STORE": "off", **lean()}
    environment["JUPYTERLAB_WORKSPACES_DIR"] = str(home / "workspaces")
    for name, values in SETTINGS.items():
        path = settings / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))
    command = [sys.executable, "-m", "jupyterlab", *OPTIONS, f"--ServerApp.root_dir={folder}"]
    pipes: dict[str, Any] = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(command, env=environment, cwd=home, **pipes) as server:
        reader: threading.Thread | None = None
        try:
            url, reader = _url_of(server)
            yield Lab(url, folder, environment)
        finally:
            _end(server)
            if reader is not None:
                reader.join(LIMIT)


def _end(server: subprocess.Popen[str]) -> None:
    server.terminate()
    try:
        server.wait(timeout=20)
    except subprocess.TimeoutExpired:
        server.kill()


def _url_of(server: subprocess.Popen[str]) -> tuple[str, threading.Thread]:
    """The address that the server tells in its log; the log is read to its end, so that the server
    never waits for a reader.
    """
    messages: list[str] = []
    told = threading.Event()

    def read() -> None:
        assert server.stderr is not None
        for line in server.stderr:
            match = re.search(r"http://127\.0\.0\.1:[0-9]+", line)
            if match and not messages:
                messages.append(match[0])
                told.set()
        told.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    assert told.wait(LIMIT), f"JupyterLab did not start within {LIMIT} s."
    assert messages, "JupyterLab ended at its start."
    return messages[0], reader
