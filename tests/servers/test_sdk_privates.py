"""A release of the MCP SDK that has renamed its private parts costs little, and says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]

RENAMED = """
import asyncio, importlib.machinery, logging, os, sys

class Renaming(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname):
        source = self.get_source(fullname).replace(os.environ["NAME"], "_has_another_name")
        return compile(source, self.path, "exec")

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["MODULE"]:
            spec = importlib.machinery.PathFinder.find_spec(name, path, target)
            spec.loader = Renaming(name, spec.origin)
            return spec

sys.meta_path.insert(0, Finder())
"""

OAUTH = ("mcp.client.auth.oauth2", "_perform_authorization")
CONNECTION = ("mcp.server.session", "_connection")

SIGN_IN = """
from casual_mcp_nb import Session
from kit.sites import OAuthSite

CLIENT = {"client_id": "c", "client_secret": "not-a-real-secret"}
with OAuthSite() as site:
    servers = {
        "program": site.config(sign_in={"grant": "client_credentials", **CLIENT}),
        "person": site.config(sign_in={"browser": "here"}),
    }
    with Session({"servers": servers}, quiet=True) as session:
        session.connect()
        print(session.servers["person"].state, session.servers["program"].state)
        print(session.servers["program"].error)
"""
BROWSER = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=20).read()"

SERVED = """
from casual_mcp_nb import Session
from kit.desk import Desk
from mcp import Client

async def use(url):
    async with Client(url, mode="legacy") as client:
        print(sorted(tool.name for tool in (await client.list_tools()).tools))
        await client.call_tool("search_tools", {"query": "add two numbers"})
        named = {"name": "desk__add", "arguments": {"a": 1, "b": 2}}
        print((await client.call_tool("call_tool", named)).structured_content)

logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stdout)
config = {"tool_discovery": {"enabled": True, "defer_all": True}}
with Session(config, in_process={"desk": Desk().server}, quiet=True) as session:
    with session.serve.mcp() as endpoint:
        asyncio.run(use(endpoint.url))
"""


def printed(renamed: tuple[str, str], script: str, tmp_path: Path) -> list[str]:
    """Run a script with an SDK in which a name is another one. Return the lines that it prints."""
    module, name = renamed
    browser = tmp_path / "browser.py"
    browser.write_text(BROWSER)
    environ = {
        **os.environ,
        "MODULE": module,
        "NAME": name,
        "PYTHONPATH": str(TESTS),
        "XDG_CONFIG_HOME": str(tmp_path),
        "BROWSER": f"{sys.executable} {browser} %s",
    }
    done = subprocess.run(
        [sys.executable, "-c", RENAMED + script],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.defect("D15")
def test_a_person_still_signs_in_and_a_program_learns_why_it_cannot(tmp_path: Path) -> None:
    states, error = printed(OAUTH, SIGN_IN, tmp_path)
    assert states == "ready failed"
    assert "version of mcp" in error


@pytest.mark.slow
@pytest.mark.defect("D15")
def test_clients_that_are_not_recognized_call_found_tools_through_another(tmp_path: Path) -> None:
    warning, listed, result = printed(CONNECTION, SERVED, tmp_path)
    assert listed == "['call_tool', 'search_tools']"
    assert result == "{'sum': 3}"
    assert "version of mcp" in warning
