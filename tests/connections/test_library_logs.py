from __future__ import annotations

import asyncio
import sys

CHAT = """
import asyncio, logging, sys
records = []

class Keep(logging.Handler):
    def emit(self, record):
        records.append((record.name, record.getMessage()))

if sys.argv[1] == "capture":
    logging.getLogger().addHandler(Keep())
    logging.getLogger().setLevel(logging.DEBUG)

from fastmcp import FastMCP
from casual_mcp_nb.connections import Connection
from casual_mcp_nb.types.config import ServerConfig

server = FastMCP("inside")

@server.tool
def double(number: int) -> int:
    return 2 * number

@server.tool
def fail() -> str:
    raise RuntimeError("it broke")

async def main():
    inside = Connection("inside", server=server)
    await inside.connect()
    await inside.call("double", {"number": "not a number"})
    await inside.call("fail", {})
    await inside.close()
    remote = Connection("remote", ServerConfig.model_validate(
        {"url": "http://127.0.0.1:9/?key=s3cret-query", "headers": {"X-Key": "s3cret-header"}, "init_timeout": 2}))
    try:
        await remote.connect()
    except Exception:
        pass

records.clear()
asyncio.run(main())
assert not [name for name, _ in records if name.split(".")[0] in ("fastmcp", "mcp", "httpx2", "httpcore2")], records
assert not [text for _, text in records if "s3cret" in text], records
if sys.argv[1] == "capture":
    assert [text for name, text in records if name == "casual_mcp_nb.connections"]
"""


async def _run(argument: str) -> tuple[int | None, bytes]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHAT, argument, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(60):
        output, _ = await process.communicate()
    return process.returncode, output


async def test_the_libraries_print_nothing_and_what_they_log_comes_to_our_logger_without_secrets() -> None:
    quiet, captured = await asyncio.gather(_run("quiet"), _run("capture"))
    assert quiet == (0, b"")
    assert captured[0] == 0, captured[1].decode()
