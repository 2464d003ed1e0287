"""Planted secrets in notebooks: cells that fail, the files that are saved, and tracebacks in the
finest mode.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest
from kit.provider import Provider
from kit.raw_server import raw_config
from kit.scripted_http import Reply
from kit.secrets import assert_nowhere, planted
from nbclient import NotebookClient

from casual_mcp_nb.base.secret import MASK

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(120)]

CELLS = [
    "%load_ext casual_mcp_nb",
    "%mcp connect config.json",
    "session",
    "session.config",
    "%mcp servers",
    "%mcp models",
    "%%mcp\nhello",
    "turn = session.chat('hello')",
    "turn",
    "turn.trace, turn.error, turn.exception",
    "turn.raise_for_status()",
    "raise turn.exception",
    "raise RuntimeError('mine') from turn.exception",
    "import traceback; traceback.print_exception(turn.exception)",
    "session.tools.call('raw__fail')",
    "await session.tools.call_async('raw__die')",
    "session.servers.reconnect('broken')",
    "def mine(session, config):\n    return session.servers['none'], config, turn",
    "mine(session, session.config)",
    "session.tools.call('raw__fail', session=session, turn=turn, bad=object())",
    "%tb Verbose",
    "from casual_mcp_nb import Session\nSession.from_config('broken.json')",
    "session.config.clients['desk'], dict(session.config.servers['raw'])",
    "%mcp close",
    "session.connect()",
]


def server(folder: Path, mark: str, plan: dict[str, Any]) -> dict[str, Any]:
    """A raw server whose plan stands in a file, since what it says holds the secrets."""
    fields = raw_config(mark, **plan)
    file = folder / f"{planted('plan')}.json"
    file.write_text(fields["args"][3])
    fields["args"][3:] = [f"@{file}", "--mode=${ARGUMENT}"]
    fields["env"]["TOKEN"] = "${TOKEN}"
    return fields


@pytest.mark.fault(81)
@pytest.mark.fault(82)
@pytest.mark.fault(83)
@pytest.mark.parametrize("mode", ["Context", "Verbose"])
def test_a_saved_notebook_of_failing_cells_holds_no_secret(
    tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    key, token, argument = secrets = [planted(name) for name in ("key", "token", "argument")]
    for name, value in zip(("DESK_API_KEY", "TOKEN", "ARGUMENT"), secrets, strict=True):
        monkeypatch.setenv(name, value)
    calls = {
        "fail": {"error": {"code": -1, "message": f"refused {token}"}},
        "die": {"stderr": f"panic {token} {argument}", "die": True},
    }
    raw = server(tmp_path, mark, {"calls": calls})
    broken = server(tmp_path, mark, {"exit": 1, "stderr": f"cannot use {token}"})
    folder = tmp_path / "notebook"
    folder.mkdir()
    said = {
        "error": {"message": f"Incorrect API key provided: {key}.", "type": "invalid_request_error"}
    }
    with Provider(Reply(401, said)) as model:
        config = model.config("openai", max_retries=0)
        del config["clients"]["desk"]["api_key"]
        (folder / "config.json").write_text(
            json.dumps({**config, "servers": {"raw": raw, "broken": broken}})
        )
        (folder / "broken.json").write_text(
            json.dumps({"clients": {"desk": {"provider": "openai", "api_key": [key]}}})
        )
        notebook = executed([f"%xmode {mode}", *CELLS], folder)
    saved = tmp_path / "saved.ipynb"
    nbformat.write(notebook, saved)
    assert_nowhere(secrets, saved)
    assert "credentials were not accepted" in saved.read_text()
    assert f"refused {MASK}" in saved.read_text()
    failed = {
        cell.source
        for cell in notebook.cells
        if any(output.output_type == "error" for output in cell.outputs)
    }
    assert {
        "%%mcp\nhello",
        "turn.raise_for_status()",
        "session.connect()",
        "session.tools.call('raw__fail')",
    } <= failed
    assert not failed & {"%mcp connect config.json", "session", "turn", "%mcp close"}


def executed(cells: list[str], folder: Path) -> nbformat.NotebookNode:
    """A notebook with these cells, run to its end in a real kernel."""
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in cells]
    )
    NotebookClient(
        notebook, timeout=60, allow_errors=True, resources={"metadata": {"path": str(folder)}}
    ).execute()
    return notebook
