"""A stdio server without an MCP library that breaks the rules as a JSON argument tells it. Run by path."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from typing import Any

PLAN = json.loads(sys.argv[1])


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def record(message: object) -> None:
    if "record" in PLAN:
        with open(PLAN["record"], "a") as file:
            file.write(json.dumps(message) + "\n")


def start_child(stubborn: bool) -> None:
    """A child that holds our stdout and stderr, as those of wrappers do."""
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN)" if stubborn else ""
    read, write = os.pipe()
    code = f"import os, signal; {ignore}\nos.write({write}, b'up'); signal.pause()"
    subprocess.Popen([sys.executable, "-I", "-S", "-c", code], stdin=subprocess.DEVNULL, pass_fds=(write,))
    os.read(read, 2)


def prepare() -> None:
    if PLAN.get("fails_until") and not os.path.exists(PLAN["fails_until"]):
        sys.exit("not repaired yet")
    if PLAN.get("child"):
        start_child(stubborn=PLAN["child"] == "stubborn")
    if PLAN.get("ignore_sigterm"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stderr.write(PLAN.get("stderr", "") + "x" * PLAN.get("stderr_flood", 0))
    sys.stderr.flush()
    if "exit" in PLAN:
        sys.exit(PLAN["exit"])
    if "banner" in PLAN:
        print(PLAN["banner"], flush=True)
    threading.Event().wait(PLAN.get("slow", 0))


def initialize(message: dict[str, Any]) -> None:
    if PLAN.get("handshake") == "error":
        return send({"id": message["id"], "error": {"code": -32603, "message": "the licence has run out"}})
    if PLAN.get("handshake") == "silent":
        return None
    version = PLAN.get("version", "2025-06-18")
    info = {"name": "raw", "version": "1.0"}
    result = {"protocolVersion": version, "capabilities": {"tools": {"listChanged": True}}, "serverInfo": info}
    return send({"id": message["id"], "result": result})


def list_tools(message: dict[str, Any]) -> None:
    listing = PLAN.get("listing")
    if listing == "silent":
        return None
    if listing == "error":
        return send({"id": message["id"], "error": {"code": -32603, "message": "the index is broken"}})
    plain = [{"name": name, "inputSchema": {"type": "object"}} for name in PLAN.get("calls", {})]
    result = {"tools": PLAN.get("tools", plain)}
    if listing == "endless":
        result["nextCursor"] = str(message["id"])
    return send({"id": message["id"], "result": result})


def call(message: dict[str, Any]) -> None:
    name = message["params"]["name"]
    plan = PLAN.get("calls", {}).get(name, {"result": {"content": [{"type": "text", "text": "ok"}]}})
    sys.stderr.write(plan.get("stderr", ""))
    sys.stderr.flush()
    if "ask" in plan:
        send({"id": f"ask-{name}", "method": plan["ask"], "params": plan.get("ask_params", {})})
    if "notify" in plan:
        PLAN.update(plan.get("plan", {}))
        send(plan["notify"])
    if "progress" in plan:
        token = message["params"]["_meta"]["progressToken"]
        threading.Thread(target=progress, args=(token, plan["progress"]), daemon=True).start()
    if "raw" in plan:
        os.write(1, plan["raw"].replace("ID", str(message["id"])).encode("latin-1"))
    if plan.get("die"):
        os._exit(3)
    if "error" in plan:
        send({"id": message["id"], "error": plan["error"]})
    if "result" in plan:
        send({"id": message["id"], "result": plan["result"]})
    if "die_after" in plan:
        threading.Timer(plan["die_after"], os._exit, (3,)).start()


def progress(token: object, pause: float) -> None:
    step = 0
    while True:
        step += 1
        send({"method": "notifications/progress", "params": {"progressToken": token, "progress": step, "message": "on it"}})
        threading.Event().wait(pause)


def main() -> None:
    prepare()
    answers = {"initialize": initialize, "tools/list": list_tools, "tools/call": call}
    for line in sys.stdin:
        message = json.loads(line)
        record(message)
        if message.get("method") in answers:
            answers[message["method"]](message)
        elif "method" in message and "id" in message and PLAN.get("handshake") != "silent":
            send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
    if PLAN.get("ignore_eof"):
        while True:
            signal.pause()


main()
