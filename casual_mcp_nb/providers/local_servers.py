"""Model servers on this computer: where they listen, and which of them run now."""

from __future__ import annotations

import http.client
import json
import queue
import re
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

SECONDS = 0.2
"""How long all servers together are waited for: one that listens here answers in a few milliseconds."""
_MAX_BYTES = 1_000_000
_MAX_MODELS = 20
_NAME = re.compile(r"[\w.:/@+-]{1,120}", re.ASCII)
_NO_CHAT = re.compile(r"embed|rerank|whisper", re.IGNORECASE)


@dataclass(frozen=True)
class LocalServer:
    """A kind of model server, as it listens where nobody has changed that.

    Args:
        name: Its name before the colon of a model, such as `lmstudio:qwen3-4b`.
        title: Its name for people.
        port: The port on 127.0.0.1.
        provider: The provider by which it is talked to.
        listing: The path of its list of models.
        base: The path of its API.
    """

    name: str
    title: str
    port: int
    provider: str = "openai"
    listing: str = "/v1/models"
    base: str = "/v1"

    @property
    def base_url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}{self.base}"


LOCAL_SERVERS = (
    LocalServer("ollama", "Ollama", 11434, "ollama", "/api/tags", ""),
    LocalServer("lmstudio", "LM Studio", 1234),
    LocalServer("llamacpp", "llama.cpp", 8080),
    LocalServer("vllm", "vLLM", 8000),
)
"""Ollama's API lists models in `/api/tags` (https://docs.ollama.com/api); the others have OpenAI's `/v1/models`."""


@dataclass(frozen=True)
class RunningServer:
    """A model server that answered, with the names of its models; there is at least one."""

    server: LocalServer
    models: tuple[str, ...]


def running_servers(seconds: float | None = None, servers: Iterable[LocalServer] | None = None) -> tuple[RunningServer, ...]:
    """Find the model servers that answer on this computer, asked concurrently, only on 127.0.0.1 and without a key.

    Args:
        seconds: How long to wait for all of them; None for `SECONDS`.
        servers: Which ones; None for `LOCAL_SERVERS`.
    """
    servers = tuple(LOCAL_SERVERS if servers is None else servers)
    limit = SECONDS if seconds is None else seconds
    answers: queue.SimpleQueue[tuple[LocalServer, tuple[str, ...]]] = queue.SimpleQueue()
    for server in servers:
        # A thread for each: one that is slow neither holds the others up nor the end of the interpreter.
        threading.Thread(target=lambda each=server: answers.put((each, _models_of(each, limit))), daemon=True).start()
    models: dict[LocalServer, tuple[str, ...]] = {}
    deadline = time.monotonic() + limit
    while len(models) < len(servers):
        try:
            server, names = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        models[server] = names
    return tuple(RunningServer(server, models[server]) for server in servers if models.get(server))


def _models_of(server: LocalServer, seconds: float) -> tuple[str, ...]:
    """List the models of a server; none where nothing like it answers."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=seconds)
    try:
        connection.request("GET", server.listing, headers={"Accept": "application/json"})
        response = connection.getresponse()
        return _names_in(json.loads(response.read(_MAX_BYTES))) if response.status == 200 else ()
    except (OSError, http.client.HTTPException, ValueError, RecursionError):
        return ()
    finally:
        connection.close()


def _names_in(answer: Any) -> tuple[str, ...]:
    # Anything can listen on these ports: without a list of models, there are no names.
    if not isinstance(answer, dict):
        return ()
    entries = answer.get("models") if isinstance(answer.get("models"), list) else answer.get("data")
    listed = entries if isinstance(entries, list) else []
    names = [entry.get("name") or entry.get("id") for entry in listed[:1_000] if isinstance(entry, dict)]
    usable = [name for name in names if isinstance(name, str) and _NAME.fullmatch(name) and not _NO_CHAT.search(name)]
    return tuple(usable[:_MAX_MODELS])
