"""Each test of this folder runs in a process of its own with a hard time limit, and leaves no
server behind.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from kit.forked import Forked, leave_to_template
from kit.processes import new_mark, wait_gone
from kit.raw_server import raw_config

from casual_mcp_nb.config.loader import load_config
from casual_mcp_nb.display.render import to_html
from casual_mcp_nb.display.view import View
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.providers.registry import specs

ROOMS = (
    "base",
    "cassettes",
    "config",
    "conversation",
    "discovery",
    "display",
    "engine",
    "experiments",
    "notebook",
    "offline",
    "own_tools",
    "providers",
    "serve",
    "servers",
)
MODULES = (
    "casual_mcp_nb.isolation._render",
    "casual_mcp_nb.views",
    "httpcore2",
    "jsonschema",
    "numpy",
    "tenacity",
    "truststore",
)
"""What is imported once instead of in each test."""

FORKED = pytest.StashKey[Forked]()
FOLDER = Path(__file__).parent


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fork the template while nothing runs yet."""
    items = [item for item in session.items if _is_here(item)]
    if items and not session.config.option.collectonly:
        for item in items:
            leave_to_template(item)
        _warm()
        session.config.stash[FORKED] = Forked(items, session.config)


def _warm() -> None:
    for name in MODULES:
        importlib.import_module(name)
    for room in ROOMS:
        package = importlib.import_module(f"casual_mcp_nb.{room}")
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    specs()
    # The first use builds the models of the fields, and compiles the template.
    load_config({"servers": {"one": {"command": "true"}}})
    to_html(View("warm", "", ()))


def _is_here(item: pytest.Item) -> bool:
    return FOLDER in item.path.parents


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the template."""
    if FORKED in config.stash:
        config.stash[FORKED].close()


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test of this folder in its own process. pytest asks every conftest about every test,
    wherever it lies.
    """
    if not _is_here(item):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in item.config.stash[FORKED].run(item):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.fixture(autouse=True)
def mark() -> Iterator[str]:
    """A text in the environment of every server of one test; at the end no process has it any
    more.
    """
    text = new_mark()
    yield text
    wait_gone(text)


@pytest.fixture
def raw(mark: str) -> Callable[..., dict[str, Any]]:
    """Makes the config of a raw server: its plan as keywords, fields of the config in `config`."""
    return lambda config=None, **plan: raw_config(mark, config=config, **plan)


@pytest.fixture
async def opened() -> AsyncIterator[Callable[..., Any]]:
    """Opens chats with the servers that are given; they are closed when the test ends."""
    async with AsyncExitStack() as stack:

        async def open_chat(servers: dict[str, Any], **options: Any) -> McpToolChat:
            return await stack.enter_async_context(
                McpToolChat.from_config({"servers": servers}, **options)
            )

        yield open_chat
