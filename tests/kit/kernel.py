"""Run cells in a real Jupyter kernel: of the installed ipykernel, and of an older one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager, start_new_kernel
from kit.kernel_template import AVAILABLE, ForkedKernel
from kit.lean import lean

LIMIT = 60
OLDER = Path(__file__).resolve().parents[2] / ".third-party" / "ipykernel-6" / "packages"
"""Where an older ipykernel is; its folder goes before the installed one."""

_OLDER = (
    pytest.mark.slow,
    pytest.mark.skipif(not OLDER.exists(), reason="python3 .ci/third_party.py installs it"),
)
KERNELS = [
    pytest.param(lean(), id="installed"),
    pytest.param(lean(OLDER), id="older", marks=_OLDER),
]
"""Environments for `started_kernel`."""
KERNELS_WITH_OPENAI = [
    pytest.param(lean(openai=True), id="installed"),
    pytest.param(lean(OLDER, openai=True), id="older", marks=_OLDER),
]
"""The same, in which the SDK of OpenAI is found."""


@dataclass
class Ran:
    """The outcome of a cell: the status of its reply, its outputs as they were at the end, and the
    messages as they came.
    """

    status: str
    outputs: list[dict[str, Any]]
    messages: list[dict[str, Any]]

    def text(self, kind: str = "text/plain") -> str:
        """Join all outputs of one kind, and the printed text."""
        text, before = "", None
        for output in self.outputs:
            # What is printed can come in pieces, cut anywhere.
            goes_on = (
                before is not None
                and output.get("name") is not None
                and output.get("name") == before.get("name")
            )
            text += "" if before is None or goes_on else "\n"
            text += (
                output.get("text")
                or output.get("data", {}).get(kind, "")
                or "\n".join(output.get("traceback", ()))
            )
            before = output
        return text


@dataclass
class Kernel:
    """A kernel and its client."""

    manager: KernelManager | ForkedKernel
    client: BlockingKernelClient

    def run(self, code: str) -> Ran:
        """Run a cell to its end."""
        return self.wait(self.start(code))

    def start(self, code: str) -> str:
        """Start a cell and return its message id."""
        return str(self.client.execute(code, allow_stdin=False))

    def wait(self, message_id: str, until: str = "idle") -> Ran:
        """Take a cell's messages until it is idle, or until one of type `until` came."""
        messages = list(self._messages(message_id, until))
        status = "running"
        if until == "idle":
            reply = self.client.get_shell_msg(timeout=LIMIT)
            while reply["parent_header"].get("msg_id") != message_id:
                reply = self.client.get_shell_msg(timeout=LIMIT)
            status = reply["content"]["status"]
        return Ran(status, list(_outputs(messages)), messages)

    def interrupt(self, message_id: str, session: str = "session") -> Ran:
        """Interrupt a running cell, take its messages to its end, and wait for the end of the turn.

        The cell itself waits for it half a second at most, which is short on a busy machine.
        """
        self.manager.interrupt_kernel()
        ran = self.wait(message_id)
        assert self.run(f"await {session}.stop_async()").status == "ok"
        return ran

    def printed(self, code: str) -> str:
        """Run a cell that must succeed, and read its printed or displayed text."""
        ran = self.run(code)
        assert ran.status == "ok", ran.text()
        return ran.text().strip()

    def typed(self, code: str, *lines: str | None) -> tuple[Ran, list[str]]:
        """Run a cell whose front end takes input, and type a line at each prompt; None types
        nothing.

        Returns:
            What it came to, and the prompts.
        """
        prompts: list[str] = []
        replies = iter(lines)
        messages: list[dict[str, Any]] = []

        def answer(request: dict[str, Any]) -> None:
            prompts.append(request["content"]["prompt"])
            line = next(replies)
            if line is not None:
                self.client.input(line)

        reply = self.client.execute_interactive(
            code, allow_stdin=True, stdin_hook=answer, output_hook=messages.append, timeout=LIMIT
        )
        return Ran(reply["content"]["status"], list(_outputs(messages)), messages), prompts

    def restart(self) -> None:
        """Restart the kernel as a person does, and wait until it is ready."""
        self.manager.restart_kernel(now=False)
        self.client.wait_for_ready(timeout=LIMIT)

    def shut_down(self) -> None:
        """Shut the kernel down as a person does."""
        self.manager.shutdown_kernel(now=False)

    def kill(self) -> None:
        """Kill the kernel with SIGKILL, which it cannot notice."""
        self.manager.shutdown_kernel(now=True)

    def _messages(self, message_id: str, until: str) -> Iterator[dict[str, Any]]:
        while True:
            try:
                message = self.client.get_iopub_msg(timeout=LIMIT)
            except Empty:
                raise AssertionError(f"No {until} within {LIMIT} s.") from None
            if message["parent_header"].get("msg_id") != message_id:
                continue
            yield message
            idle = (
                message["msg_type"] == "status" and message["content"]["execution_state"] == "idle"
            )
            if idle or message["msg_type"] == until:
                return


def _outputs(messages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Collect the outputs as a front end shows them: a display with an id holds its last update."""
    last = {
        message["content"]["transient"]["display_id"]: message["content"]["data"]
        for message in messages
        if message["msg_type"] == "update_display_data"
    }
    for message in messages:
        content = message["content"]
        if message["msg_type"] == "display_data":
            yield {
                "data": last.get(content.get("transient", {}).get("display_id"), content["data"])
            }
        elif message["msg_type"] in ("execute_result", "stream", "error"):
            yield content


@contextmanager
def started_kernel(setup: str = "", *, fresh: bool = False, **environment: str) -> Iterator[Kernel]:
    """A new kernel with these variables in its environment, in which a first cell has run; killed at
    the end, as a shutdown takes seconds.

    It finds none of the SDKs of providers, unless `PYTHONPATH` is among the variables.

    Args:
        setup: The first cell.
        fresh: Whether it is about how a kernel starts, or what is imported when: the process is
            then a new one, and not one that has imported everything.
        environment: The variables.
    """
    variables = {**os.environ, "MCP_STORE": "off", **lean(), **environment}
    manager: KernelManager | ForkedKernel
    if AVAILABLE and not fresh and variables["PYTHONPATH"] == lean()["PYTHONPATH"]:
        manager = ForkedKernel(variables, timeout=LIMIT)
        client = manager.client
    else:
        manager, client = start_new_kernel(startup_timeout=LIMIT, env=variables)
    try:
        kernel = Kernel(manager, client)
        if setup:
            ran = kernel.run(setup)
            assert ran.status == "ok", ran.text()
        yield kernel
    finally:
        client.stop_channels()
        if manager.has_kernel:
            manager.shutdown_kernel(now=True)
