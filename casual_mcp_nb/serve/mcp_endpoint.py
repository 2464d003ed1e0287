"""A session's tools as one MCP server, over streamable HTTP or standard input and output."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from pydantic import SecretStr
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from casual_mcp_nb.base.callbacks import ignore_outcome
from casual_mcp_nb.base.service import ServedTools
from casual_mcp_nb.engine.events import Observers
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.notebook.loop import EngineThread
from casual_mcp_nb.notebook.starting import ServerStarter
from casual_mcp_nb.serve.endpoint import Endpoint
from casual_mcp_nb.serve.guard import guarded
from casual_mcp_nb.serve.listener import Listener, bound_socket
from casual_mcp_nb.serve.mcp_questions import HostApproval
from casual_mcp_nb.serve.mcp_server import ToolServer

PATH = "/mcp"

MAX_CLIENTS = 100
"""How many clients can be connected at a time."""

IDLE_SECONDS = 30 * 60.0
"""How long a client may send nothing before it is forgotten, with its found tools."""

MAX_BYTES = 4 * 1024 * 1024


async def serve_stdio(
    starter: ServerStarter,
    observers: Observers,
    engine: EngineThread,
    options: TurnOptions,
    approval: HostApproval,
    *,
    plain_names: bool = False,
) -> None:
    """Serve one client over standard input and output, until it ends its side.

    Nothing else is written to the output.
    """
    from mcp.server.runner import serve_dual_era_loop
    from mcp.server.stdio import stdio_server

    served = ToolServer(
        starter, observers, engine, options, approval, plain_names=plain_names, single=True
    )
    # The host continues while the servers connect; the first tool list waits for them.
    starting = asyncio.create_task(starter.view())
    starting.add_done_callback(ignore_outcome)
    try:
        async with stdio_server() as (received, sent):
            await serve_dual_era_loop(served.server, received, sent, lifespan_state={})
    finally:
        starting.cancel()
        served.close()


class McpEndpoint(Endpoint):
    """A session's tools over streamable HTTP: a context manager, or call `close`.

    It ends with the session, too.

    `session.serve.mcp` opens one. `has_token` is whether clients must send a token.
    """

    def __init__(
        self,
        served: ToolServer,
        engine: EngineThread,
        host: str,
        port: int,
        *,
        token: SecretStr | None = None,
        hosts: Collection[str] = (),
        origins: Collection[str] = (),
        owner: object = None,
    ) -> None:
        checked = guarded(
            self._answer, host=host, token=token, hosts=hosts, origins=origins, max_bytes=MAX_BYTES
        )
        bound = bound_socket(host, port)
        super().__init__(engine, host, bound.getsockname()[1], PATH)
        self.has_token = token is not None
        self._served = served
        self._manager = StreamableHTTPSessionManager(
            served.server,
            session_idle_timeout=IDLE_SECONDS,
            max_sessions=MAX_CLIENTS,
            max_request_body_size=MAX_BYTES,
        )
        self._listener = Listener(checked, bound, owner)
        self._running: asyncio.Task[None] | None = None

    @property
    def status(self) -> ServedTools:
        """The endpoint's current state."""
        view = self._served.view()
        return ServedTools(
            self.url,
            len(view.offered),
            len(view.deferred),
            self.has_token,
            self._served.clients,
            self.closed,
        )

    async def _begin(self) -> None:
        ready = asyncio.Event()
        self._running = asyncio.create_task(self._run(ready))
        await ready.wait()
        await self._listener.begin()

    async def _end(self) -> None:
        # The manager is ending by now: responses that stay open would hold the listener up.
        self._served.close()
        await self._listener.end()
        if self._running is not None:
            await asyncio.wait({self._running})

    async def _run(self, ready: asyncio.Event) -> None:
        async with self._manager.run():
            ready.set()
            await self._ending.wait()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].rstrip("/")
        if self._ending.is_set():
            await Response(status_code=503)(scope, receive, send)
        elif path == PATH:
            await self._manager.handle_request(scope, receive, send)
        elif path == "/health":
            await JSONResponse({"status": "ok"})(scope, receive, send)
        else:
            await Response(status_code=404)(scope, receive, send)
