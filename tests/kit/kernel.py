"""Run cells in a real Jupyter kernel."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager, start_new_kernel

LIMIT = 60


@dataclass
class Ran:
    """What a cell came to: the status of its reply, its outputs as they stood at the end, and the messages as they came."""

    status: str
    outputs: list[dict[str, Any]]
    messages: list[dict[str, Any]]

    def text(self, kind: str = "text/plain") -> str:
        """All outputs of one kind, and what was printed."""
        return "\n".join(
            output.get("text") or output.get("data", {}).get(kind, "") or "\n".join(output.get("traceback", ()))
            for output in self.outputs
        )


@dataclass
class Kernel:
    """A kernel and its client."""

    manager: KernelManager
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

    def _messages(self, message_id: str, until: str) -> Iterator[dict[str, Any]]:
        while True:
            try:
                message = self.client.get_iopub_msg(timeout=LIMIT)
            except Empty:
                raise AssertionError(f"No {until} within {LIMIT} s.") from None
            if message["parent_header"].get("msg_id") != message_id:
                continue
            yield message
            idle = message["msg_type"] == "status" and message["content"]["execution_state"] == "idle"
            if idle or message["msg_type"] == until:
                return


def _outputs(messages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The outputs as a front end shows them: a display with an id holds what it was updated to last."""
    last = {
        message["content"]["transient"]["display_id"]: message["content"]["data"]
        for message in messages
        if message["msg_type"] == "update_display_data"
    }
    for message in messages:
        content = message["content"]
        if message["msg_type"] == "display_data":
            yield {"data": last.get(content.get("transient", {}).get("display_id"), content["data"])}
        elif message["msg_type"] in ("execute_result", "stream", "error"):
            yield content


@contextmanager
def started_kernel(**environment: str) -> Iterator[Kernel]:
    """A new kernel, shut down at the end."""
    import os

    manager, client = start_new_kernel(startup_timeout=LIMIT, env={**os.environ, **environment})
    try:
        yield Kernel(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=False)
