"""Start kernels without importing everything for each: a process that has imported what a kernel
and a session need forks for each kernel. The imports take most of the time of a short kernel.
"""

from __future__ import annotations

import functools
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.connect import write_connection_file
from kit.lean import lean
from kit.scripts import IMPORTS

AVAILABLE = hasattr(os, "pidfd_open")
"""Whether this system has what is used here."""


class ForkedKernel:
    """A kernel that was forked, with those methods of a `KernelManager` that tests use.

    Args:
        environment: All its variables.
    """

    def __init__(self, environment: Mapping[str, str], *, timeout: float) -> None:
        self._environment = dict(environment)
        self._timeout = timeout
        self._file, connection = write_connection_file()
        self._start()
        self.client = BlockingKernelClient()
        self.client.load_connection_info(connection)
        self.client.start_channels()
        try:
            self.client.wait_for_ready(timeout=timeout)
        except BaseException:
            self.client.stop_channels()
            self.shutdown_kernel(now=True)
            raise

    @property
    def has_kernel(self) -> bool:
        return bool(self._pid)

    def interrupt_kernel(self) -> None:
        os.kill(self._pid, signal.SIGINT)

    def shutdown_kernel(self, *, now: bool) -> None:
        """Ask it to end, or kill it with all that it started in its process group."""
        self._end(now=now)
        Path(self._file).unlink(missing_ok=True)

    def restart_kernel(self, *, now: bool) -> None:
        self._end(now=now)
        self._start()

    def _end(self, *, now: bool) -> None:
        if now:
            # A test may have killed it.
            with suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)
        else:
            self.client.shutdown()
        ended, _, _ = select.select([self._process], [], [], self._timeout)
        assert ended, f"The kernel has not ended within {self._timeout} s."
        os.close(self._process)
        self._pid = 0

    def _start(self) -> None:
        template = _template()
        assert template.stdin is not None
        assert template.stdout is not None
        request = {"file": self._file, "cwd": str(Path.cwd()), "env": self._environment}
        template.stdin.write(json.dumps(request) + "\n")
        template.stdin.flush()
        self._pid = int(template.stdout.readline())
        self._process = os.pidfd_open(self._pid)


@functools.cache
def _template() -> subprocess.Popen[str]:
    # It ends with its input, which ends with this process.
    return subprocess.Popen(
        [sys.executable, "-P", __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **lean(Path(__file__).parents[1])},
    )


def serve() -> dict[str, Any]:
    """Fork for each request and reply with the child's process id; the child returns the request.
    All end with the input.
    """
    # Nobody waits for them.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    children = []
    for line in sys.stdin:
        pid = os.fork()
        # In both processes, so that the group is there whichever goes on first.
        with suppress(ProcessLookupError, PermissionError):
            os.setpgid(pid, pid)
        if pid == 0:
            return dict(json.loads(line))
        children.append(pid)
        print(pid, flush=True)
    for pid in children:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    sys.exit()


def become_kernel(request: dict[str, Any]) -> None:
    """Make this process look like a new one that was started for a kernel, and be it."""
    from ipykernel.kernelapp import IPKernelApp

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    tests = str(Path(__file__).parents[1])
    sys.path[:] = [folder for folder in sys.path if folder != tests]
    # What a kernel reads comes as messages, and what it prints at the end of the tests' own output.
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    # It ends with the template.
    parent = f"--IPKernelApp.parent_handle={os.getppid()}"
    sys.argv = ["ipykernel_launcher", "-f", request["file"], parent]
    IPKernelApp.launch_instance(sys.argv[1:])


if __name__ == "__main__":
    exec(IMPORTS)
    import ipykernel.kernelapp  # noqa: F401

    import casual_mcp_nb.widgets  # noqa: F401

    become_kernel(serve())
