"""A stdio server without an MCP library that breaks the rules as a plan in JSON tells it.

Run by path; see `raw_config`.

The plan, all keys optional:

    record         file that takes every message which arrives, a line each
    fails_until    it exits with "not repaired yet" until this file exists
    child          true or "stubborn": it starts a child that holds its stdout and stderr
    ignore_sigterm, ignore_eof
    meets          [folder, count]: before the handshake it notes itself in the folder, and waits
                   until so many are noted there
    parts          the same when its input has ended; then it leaves a file `left-...` there
    stderr, stderr_flood (bytes), banner (a line on stdout), slow (seconds), exit (code): before the
        handshake
    handshake      "silent" or "error"
    discover       what `server/discover` gets: "silent", "garbage" or "end" (the process exits);
                   else it is an unknown method
    version        the protocol version that it offers; capabilities: what it declares; greeting:
                   more of the handshake's answer
    listing        "silent", "error" or "endless"; tools: the listing, else one tool for each of
                   `calls`
    answers        method -> the result of a request of this method, the same each time; "silent":
                   no answer
    tool_count     that many plain tools `tool_0`, `tool_1` ... in the listing
    calls          tool name -> what a call of it does, in this order:
        stderr, stderr_flood    text and bytes on stderr
        stdout                  lines on stdout that are no messages
        ask, ask_params         a request to the client; with `answer: "asked"` the call's result is
                                the client's answer
        ask_count               so many more of these requests, whose answers are only recorded
        notify, notify_count    a notice, so many times; plan: changes of this plan that go with it
        progress                seconds between notices of progress, for ever
        endless                 writes a message without an end, for ever
        raw                     bytes (latin-1), `ID` stands for the id of the call
        die                     ends the process at once
        error, result           the answer; size: a text of so many characters instead
        together                answers are held until so many calls run at once
        delay                   seconds before that answer; with `answer: "running"` the result is
                                how many ran at once
        answer                  "asked", "running" or "environment" (the variables of the process,
                                as JSON)
        die_after               ends the process so many seconds after the answer

A call without any answer never returns. A tool that is not in `calls` answers "ok".
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

MAX_ARGUMENT = 100_000


def raw_config(
    mark: str = "", folder: Any = None, config: dict[str, Any] | None = None, **plan: Any
) -> dict[str, Any]:
    """The fields of a server's config that start this server.

    Args:
        mark: A text in its environment by which `kit.processes` finds it.
        folder: Where a plan is written that is too long for a command line.
        config: More fields of the config. Calls are not asked about unless it has another
            `approval`; None: the default.
        plan: What it does; see above.
    """
    fields: dict[str, Any] = {"init_timeout": 5.0, "approval": "never", **(config or {})}
    if mark:
        fields["env"] = {"CASUAL_TEST_MARK": mark, **fields.get("env", {})}
    text = json.dumps(plan)
    if len(text) > MAX_ARGUMENT:
        path = folder / f"plan-{abs(hash(text))}.json"
        path.write_text(text)
        text = f"@{path}"
    return {
        "command": sys.executable,
        "args": ["-I", "-S", os.path.abspath(__file__), text],
        **fields,
    }


def received(record: Path, method: str) -> list[dict[str, Any]]:
    """List the messages of a method that a server noted in its record so far."""
    messages = map(json.loads, record.read_text().splitlines() if record.exists() else ())
    return [message for message in messages if message.get("method") == method]


def text_result(text: str) -> dict[str, Any]:
    """The result of a call that is one text."""
    return {"content": [{"type": "text", "text": text}]}


OK = {"result": text_result("ok")}
"""What a call does that answers at once."""


class RawServer:
    """The server: one thread reads, answers that wait are sent by threads of their own."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.lock = threading.Lock()
        self.asked: dict[str, Any] = {}
        self.held: list[tuple[object, dict[str, Any]]] = []
        self.running = 0
        self.most_running = 0

    def serve(self) -> None:
        """Answer until the input ends."""
        self.prepare()
        answers = {
            "initialize": self.initialize,
            "tools/list": self.list_tools,
            "tools/call": self.call,
        }
        for line in sys.stdin:
            message = json.loads(line)
            self.record(message)
            method = message.get("method")
            if method == "server/discover" and self.discover():
                continue
            if method in answers:
                answers[method](message)
            elif method in self.plan.get("answers", {}):
                if (answer := self.plan["answers"][method]) != "silent":
                    self.send({"id": message["id"], "result": answer})
            elif method is None and message.get("id") in self.asked:
                answer = message.get("result", message.get("error"))
                self.send(
                    {"id": self.asked.pop(message["id"]), "result": text_result(json.dumps(answer))}
                )
            elif method and "id" in message and self.plan.get("handshake") != "silent":
                self.send(
                    {"id": message["id"], "error": {"code": -32601, "message": "Method not found"}}
                )
        if "parts" in self.plan:
            note = meet(*self.plan["parts"])
            open(os.path.join(self.plan["parts"][0], f"left-{note}"), "w").close()
        while self.plan.get("ignore_eof"):
            signal.pause()

    def discover(self) -> bool:
        """Follow the plan for the question for the protocol versions, and check whether it says
        anything.
        """
        how = self.plan.get("discover")
        if how == "end":
            sys.exit("expected initialize, found server/discover")
        if how == "garbage":
            self.write(b"what?\n")
        return how is not None

    def send(self, message: dict[str, Any]) -> None:
        """Write a message."""
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def write(self, data: bytes) -> None:
        """Write bytes, one writer at a time."""
        with self.lock:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    def record(self, message: object) -> None:
        """Record a message that arrived."""
        if "record" in self.plan:
            with open(self.plan["record"], "a") as file:
                file.write(json.dumps(message) + "\n")

    def prepare(self) -> None:
        """Follow the plan before the handshake."""
        plan = self.plan
        if plan.get("fails_until") and not os.path.exists(plan["fails_until"]):
            sys.exit("not repaired yet")
        if plan.get("child"):
            start_child(stubborn=plan["child"] == "stubborn")
        if plan.get("ignore_sigterm"):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        complain(plan)
        if "exit" in plan:
            sys.exit(plan["exit"])
        if "banner" in plan:
            self.write(plan["banner"].encode() + b"\n")
        if "meets" in plan:
            meet(*plan["meets"])
        threading.Event().wait(plan.get("slow", 0))

    def initialize(self, message: dict[str, Any]) -> None:
        """Answer the handshake."""
        plan = self.plan
        if plan.get("handshake") == "error":
            return self.send(
                {
                    "id": message["id"],
                    "error": {"code": -32603, "message": "the licence has run out"},
                }
            )
        if plan.get("handshake") == "silent":
            return None
        result = {
            "protocolVersion": plan.get("version", "2025-06-18"),
            "capabilities": plan.get("capabilities", {"tools": {"listChanged": True}}),
            "serverInfo": {"name": "raw", "version": "1.0"},
            **plan.get("greeting", {}),
        }
        return self.send({"id": message["id"], "result": result})

    def list_tools(self, message: dict[str, Any]) -> None:
        """Answer a listing."""
        plan = self.plan
        listing = plan.get("listing")
        if listing == "silent":
            return None
        if listing == "error":
            return self.send(
                {"id": message["id"], "error": {"code": -32603, "message": "the index is broken"}}
            )
        names = [
            *plan.get("calls", {}),
            *(f"tool_{number}" for number in range(plan.get("tool_count", 0))),
        ]
        plain = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
        result = {"tools": plan.get("tools", plain)}
        if listing == "endless":
            result["nextCursor"] = str(message["id"])
        return self.send({"id": message["id"], "result": result})

    def call(self, message: dict[str, Any]) -> None:
        """Follow the plan for this tool."""
        name = message["params"]["name"]
        plan = self.plan.get("calls", {}).get(name, {"result": text_result("ok")})
        complain(plan)
        if "stdout" in plan:
            self.write(plan["stdout"].encode())
        if "ask" in plan:
            if plan.get("answer") == "asked":
                self.asked[f"ask-{name}"] = message["id"]
            for mark in ("", *(f"-{number}" for number in range(plan.get("ask_count", 0)))):
                self.send(
                    {
                        "id": f"ask-{name}{mark}",
                        "method": plan["ask"],
                        "params": plan.get("ask_params", {}),
                    }
                )
        if "notify" in plan:
            self.plan.update(plan.get("plan", {}))
            for _ in range(plan.get("notify_count", 1)):
                self.send(plan["notify"])
        if "progress" in plan:
            token = message["params"]["_meta"]["progressToken"]
            threading.Thread(
                target=self.progress, args=(token, plan["progress"]), daemon=True
            ).start()
        while plan.get("endless"):
            self.write(b"x" * 1_000_000)
        if "raw" in plan:
            self.write(plan["raw"].replace("ID", str(message["id"])).encode("latin-1"))
        if plan.get("die"):
            os._exit(3)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        self.held.append((message["id"], plan))
        if len(self.held) < plan.get("together", 1):
            return
        held, self.held = self.held, []
        if "delay" in plan:
            threading.Timer(plan["delay"], self.finish_all, (held,)).start()
        else:
            self.finish_all(held)

    def finish_all(self, held: list[tuple[object, dict[str, Any]]]) -> None:
        """Send the answers of calls."""
        for call_id, plan in held:
            self.finish(call_id, plan)

    def finish(self, call_id: object, plan: dict[str, Any]) -> None:
        """Send the answer of a call, if it has one."""
        self.running -= 1
        if "error" in plan:
            self.send({"id": call_id, "error": plan["error"]})
        elif "size" in plan:
            self.send({"id": call_id, "result": text_result("x" * plan["size"])})
        elif plan.get("answer") == "running":
            self.send({"id": call_id, "result": text_result(str(self.most_running))})
        elif plan.get("answer") == "environment":
            self.send({"id": call_id, "result": text_result(json.dumps(dict(os.environ)))})
        elif "result" in plan:
            self.send({"id": call_id, "result": plan["result"]})
        if "die_after" in plan:
            threading.Timer(plan["die_after"], os._exit, (3,)).start()

    def progress(self, token: object, pause: float) -> None:
        """Report progress for ever."""
        step = 0
        while True:
            step += 1
            params = {"progressToken": token, "progress": step, "message": "on it"}
            self.send({"method": "notifications/progress", "params": params})
            threading.Event().wait(pause)


def meet(folder: str, count: int) -> str:
    """Leave a note in a folder and wait until there are so many; gives its name."""
    note = str(os.getpid())
    open(os.path.join(folder, note), "w").close()
    while len(os.listdir(folder)) < count:
        threading.Event().wait(0.01)
    return note


def complain(plan: dict[str, Any]) -> None:
    """Write a plan's text to stderr."""
    sys.stderr.write(plan.get("stderr", "") + "x" * plan.get("stderr_flood", 0))
    sys.stderr.flush()


def start_child(stubborn: bool) -> None:
    """A child that holds our stdout and stderr, as those of wrappers do."""
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN)" if stubborn else ""
    read, write = os.pipe()
    code = f"import os, signal; {ignore}\nos.write({write}, b'up'); signal.pause()"
    subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code], stdin=subprocess.DEVNULL, pass_fds=(write,)
    )
    os.read(read, 2)


def main() -> None:
    """Serve the plan that is the argument, or the file after an @ in it."""
    text = sys.argv[1]
    if text.startswith("@"):
        with open(text[1:]) as file:
            text = file.read()
    RawServer(json.loads(text)).serve()


if __name__ == "__main__":
    main()
