"""Run scripts in processes of their own, without importing everything for each: `run_script(code)`.

A process that has imported what a session needs forks for each script: the imports would take most
of a script's time. Where it matters how a process starts, `subprocess` is right.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from kit.lean import lean

TESTS = str(Path(__file__).resolve().parents[1])
LIMIT_SECONDS = 300
"""How long a script may take; then it is killed."""

IMPORTS = """
import gc
gc.disable()
import asyncio, casual_llm, fastmcp.client, fastmcp.server.server, rank_bm25
import IPython.core.interactiveshell
import casual_mcp_nb
from casual_mcp_nb.servers import transport as _transport, _sdk_session as _session
from casual_mcp_nb.providers.scripted import scripted_model
for name in casual_mcp_nb.__all__:
    getattr(casual_mcp_nb, name)
gc.freeze()
gc.enable()
"""


def run_script(
    code: str,
    *,
    stdin: str = "",
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    sdks: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a script to its end.

    Args:
        code: The script.
        stdin: Its input.
        cwd: Its folder.
        env: Its environment; None for that of the tests. Folders of `PYTHONPATH` are added where it
            looks for modules.
        sdks: Whether it finds the SDKs of providers.
    """
    template = _template(sdks)
    assert template.stdin is not None
    assert template.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "stdin").write_text(stdin)
        request = {
            "code": textwrap.dedent(code),
            "cwd": str(cwd or Path.cwd()),
            "env": dict(env or os.environ),
            "files": folder,
        }
        try:
            template.stdin.write(json.dumps(request) + "\n")
            template.stdin.flush()
            status = int(template.stdout.readline())
        except BaseException:
            # Such as the time limit of a test: the next script must not get this one's reply.
            template.kill()
            template.communicate()
            _template.cache_clear()
            raise
        out, err = (Path(folder, name).read_text("utf-8") for name in ("stdout", "stderr"))
    return subprocess.CompletedProcess(code, status, out, err)


@functools.cache
def _template(sdks: bool) -> subprocess.Popen[str]:
    # It ends with its input, which ends with this process.
    return subprocess.Popen(
        [sys.executable, "-P", __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": TESTS} if sdks else {**os.environ, **lean(TESTS)},
    )


def serve(requests: IO[str], replies: IO[str]) -> dict[str, Any]:
    """Fork for each request, and reply with the exit status of the child; the child returns the
    request.
    """
    for line in requests:
        pid = os.fork()
        if pid == 0:
            return dict(json.loads(line))
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), file=replies, flush=True)
    sys.exit()


def prepare(request: dict[str, Any]) -> dict[str, Any]:
    """Make this process look like a new one that was started for a script."""
    import signal
    import types

    signal.alarm(LIMIT_SECONDS)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.path[:0] = ["", *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    sys.argv = ["-c"]
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        with open(Path(request["files"], name), "r" if number == 0 else "w") as file:
            os.dup2(file.fileno(), number)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    return vars(main)


if __name__ == "__main__":
    exec(IMPORTS)
    asked = serve(sys.stdin, sys.stdout)
    exec(compile(asked["code"], "<string>", "exec"), prepare(asked))
