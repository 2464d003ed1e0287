"""A config file's HTTP API for any ASGI server: `uvicorn casual_mcp_nb.main:app`.

It can have as many workers as you like. Importing it starts nothing. The server's lifespan reads `casual_mcp_config.json` (or
`MCP_SERVE_CONFIG`), starts the MCP servers on the server's own event loop, and ends them. In place
of options for `casual-mcp-nb serve`, it reads the environment (or a `.env`): `MCP_SERVE_TOKEN`,
`MCP_SERVE_ALLOW`, `MCP_SERVE_HOSTS`, `MCP_SERVE_ORIGINS`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from casual_mcp_nb.base.service import (
    ALLOW_VARIABLE,
    CONFIG_VARIABLE,
    HOSTS_VARIABLE,
    ORIGINS_VARIABLE,
    TOKEN_VARIABLE,
    ServeLimits,
)
from casual_mcp_nb.errors import CasualMcpError, TrustRequiredError, UsageError, shown

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from casual_mcp_nb.base.config import Config
    from casual_mcp_nb.base.tool import ToolSpec

logger = logging.getLogger(__name__)

DEFAULT_CONFIG = "casual_mcp_config.json"


class Application:
    """The API for the config that the environment names, throughout the server's lifespan."""

    def __init__(self) -> None:
        self._api: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or follow the server's lifespan."""
        if scope["type"] == "lifespan":
            await self._follow(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close"})
        elif self._api is not None:
            root, path = scope.get("root_path", ""), scope["path"]
            # The ASGI specification has the path begin with the prefix. Hypercorn leaves it out.
            if not path.startswith(f"{root}/"):
                scope = {**scope, "path": f"{root}{path}"}
            await self._api(scope, receive, send)
        else:
            from casual_mcp_nb.serve.turns import ProblemError

            text = "This service has not been started. Run the ASGI server with its lifespan on."
            await ProblemError(503, "closed", text).response()(scope, receive, send)

    async def _follow(self, receive: Receive, send: Send) -> None:
        await receive()
        async with AsyncExitStack() as stack:
            try:
                self._api = await stack.enter_async_context(served())
            except Exception as error:
                if not isinstance(error, CasualMcpError):
                    logger.error("The service could not be started.", exc_info=error)
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return
            await send({"type": "lifespan.startup.complete"})
            await receive()
            self._api = None
        await send({"type": "lifespan.shutdown.complete"})


@asynccontextmanager
async def served() -> AsyncIterator[ASGIApp]:
    """Start the config's servers on this event loop, yield the application, then end them.

    Raises:
        ConfigError: The config cannot be read, or is wrong.
        TrustRequiredError: Nobody has accepted its servers and keys.
        UsageError: Another process counts its limits already.
    """
    from casual_mcp_nb.config.environment import read_environment
    from casual_mcp_nb.config.loader import load_accepted
    from casual_mcp_nb.config.settings import Settings
    from casual_mcp_nb.engine.chat import McpToolChat
    from casual_mcp_nb.engine.consent import checked_overrides
    from casual_mcp_nb.notebook.log import show_log
    from casual_mcp_nb.notebook.start_display import line_of
    from casual_mcp_nb.notebook.warming import warm_up, warmed_up
    from casual_mcp_nb.serve.guard import checked_token
    from casual_mcp_nb.serve.serving import served_api, settled_heap
    from casual_mcp_nb.serve.turns import ServedTurns

    warm_up()
    config = load_accepted(Path(os.environ.get(CONFIG_VARIABLE) or DEFAULT_CONFIG), _check_accepted)
    _check_accepted(config)
    variables = read_environment(config.folder)
    settings = Settings.from_environ(variables)
    level = "INFO"
    if variables.get("LOG_LEVEL", "").strip():
        level = settings.log_level
    show_log(level, libraries="WARNING")
    counting = _counted_here(config)
    try:
        # As under casual-mcp's `main:app`, a request brings its own system prompt. Here an empty one
        # means none, where None would mean the default template.
        chat = McpToolChat.from_config(
            config, system="", settings=settings, how_to_allow=_allowed_by_variable
        )
        overrides = checked_overrides(
            dict.fromkeys(_listed(variables, ALLOW_VARIABLE), "never"), chat.server_manager.names
        )
        turns = ServedTurns(chat, ServeLimits(), overrides, config.secrets())
        api = served_api(
            turns,
            lambda: list(config.models),
            host=None,
            token=checked_token(variables.get(TOKEN_VARIABLE) or None, None),
            hosts=_listed(variables, HOSTS_VARIABLE),
            origins=_listed(variables, ORIGINS_VARIABLE),
        )
        async with chat:
            await chat.view()
            await warmed_up()
            for status in chat.server_manager.statuses.values():
                if status.state == "failed" or status.error is not None:
                    logger.warning("%s", line_of(status))
            _tell(turns, bool(variables.get(TOKEN_VARIABLE)))
            try:
                with settled_heap():
                    yield api
            finally:
                await turns.close()
    finally:
        if counting is not None:
            counting.close()


def _tell(turns: Any, has_token: bool) -> None:
    """Tell the person who starts the service who can use it, and which tools are denied."""
    if not has_token:
        logger.info(
            "Only this computer can use it: other addresses, such as 0.0.0.0, need a token in %s.",
            TOKEN_VARIABLE,
        )
    for denial in turns.denials():
        logger.info(
            "Calls of %s are denied, because no one can be asked. %s %s",
            denial.tool,
            denial.reason,
            denial.option,
        )


def _check_accepted(config: Config) -> None:
    from casual_mcp_nb.notebook.consent import TRUST_VARIABLE, TrustGate

    if config.path is not None and TrustGate(config, strict=config.strict).report().required:
        raise TrustRequiredError(
            "Nothing was started: you have not accepted the servers and keys of"
            f" {shown(config.path.name)}.",
            hint=(
                "Run casual-mcp-nb serve with it on a terminal, where you are asked, or set"
                f" {TRUST_VARIABLE}=1."
            ),
        )


def _counted_here(config: Config) -> IO[bytes] | None:
    """Reserve the clients' limits for this process. Two processes together would exceed them.

    Returns the file that keeps them reserved until it is closed, or None if there are no limits.
    """
    limited: list[str] = []
    for name, client in config.clients.items():
        for field in ("requests_per_minute", "tokens_per_minute"):
            if getattr(client, field) is not None:
                limited.append(f"{name}.{field}")
    if not limited or config.path is None:
        return None
    try:
        import fcntl
    except ImportError:
        # Windows has none.
        return None
    file = config.path.open("rb")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise UsageError(
            f"Another process serves {shown(config.path.name)}, whose limits count in one process"
            f" only: {', '.join(limited)}.",
            hint="Run one worker (--workers 1), or leave the limits to the provider.",
        ) from None
    return file


def _listed(variables: Mapping[str, str], name: str) -> list[str]:
    """Split a variable with a list, such as `a, b`."""
    parts = [part.strip() for part in variables.get(name, "").split(",")]
    return list(filter(None, parts))


def _allowed_by_variable(tool: ToolSpec) -> str:
    """Format a hint on how to allow a tool's calls when an ASGI server runs this."""
    return (
        f'To allow it, set {ALLOW_VARIABLE}={tool.server}, or "approval" of this server in the'
        " config."
    )


app = Application()
