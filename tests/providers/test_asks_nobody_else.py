"""Nothing is asked at import, and afterwards only the address of the config: every name and address
is written down.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from kit.provider import PROVIDERS, answer
from kit.streams import reply, streamed

WATCH = """
import sys
asked = set()
def note(event, args):
    if event == "socket.connect":
        asked.add(str(args[1][0]) if isinstance(args[1], tuple) else str(args[1]))
    elif event == "socket.getaddrinfo":
        asked.add(str(args[0]))
sys.addaudithook(note)
"""

ASKING = """
import asyncio, importlib, json, pkgutil
import casual_mcp_nb.providers as room
from casual_mcp_nb.providers.factory import ModelFactory
from casual_mcp_nb.base.config import Config
for found in pkgutil.walk_packages(room.__path__, "casual_mcp_nb.providers."):
    importlib.import_module(found.name)
names, configs = json.loads(sys.argv[1])
config = Config.model_validate({
    "clients": {name: {"provider": name, "api_key": "k"} for name in names},
    "models": {name: {"client": name, "model": "m"} for name in names},
})
factory = ModelFactory(config)
for name in names:
    factory.chat_model(name)
at_import = sorted(asked)

from casual_llm.messages import UserMessage
async def main():
    for config in configs:
        factory = ModelFactory(Config.model_validate(config))
        model = factory.chat_model()
        for stream in (False, True):
            got = await model.complete([UserMessage(content="Hi")], on_event=lambda _: None, stream=stream)
            assert got.message.content == "Hello"
        await factory.close()
asyncio.run(main())
print(json.dumps([at_import, sorted(asked)]))
"""

NAMES = [*PROVIDERS, "offline", *(["litellm"] if importlib.util.find_spec("litellm") else [])]


@pytest.mark.slow
def test_imports_send_no_requests_and_clients_ask_only_their_configured_address(
    serving: Callable[..., Any],
) -> None:
    names = [name for name in NAMES if name != "offline"]
    wires = [name if name in PROVIDERS else "openai" for name in names]
    servers = [
        serving(answer(wire, "Hello"), reply(wire, streamed(wire, ("Hello",)))) for wire in wires
    ]
    configs = [server.config(name) for server, name in zip(servers, names, strict=True)]
    command = [sys.executable, "-W", "ignore", "-c", WATCH + ASKING, json.dumps([NAMES, configs])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [[], ["127.0.0.1"]]
    assert [len(server.seen) for server in servers] == [2] * len(names)
