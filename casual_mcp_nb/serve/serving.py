"""Serve a session to other programs: as an HTTP API, and as one MCP server."""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, get_args

from pydantic import SecretStr

from casual_mcp_nb.base.config import Policies, ToolSetConfig
from casual_mcp_nb.base.displayable import Namespace
from casual_mcp_nb.base.service import TOKEN_VARIABLE, ServedAddresses, ServeLimits, ServiceStatus
from casual_mcp_nb.config.environment import read_environment
from casual_mcp_nb.discovery.toolsets import resolve_tool_set
from casual_mcp_nb.engine.consent import checked_overrides
from casual_mcp_nb.engine.tool_client import tool_options
from casual_mcp_nb.errors import MissingDependencyError, UsageError, brief, install
from casual_mcp_nb.notebook.blocking import awaited, blocking, on_engine
from casual_mcp_nb.notebook.parts import SessionParts
from casual_mcp_nb.notebook.warming import warm_up, warmed_up
from casual_mcp_nb.serve.endpoint import Endpoint

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from casual_mcp_nb.serve.listener import Listener
    from casual_mcp_nb.serve.mcp_endpoint import McpEndpoint
    from casual_mcp_nb.serve.mcp_questions import HostApproval
    from casual_mcp_nb.serve.turns import ServedTurns


class Service(Endpoint):
    """A session's HTTP API at an address: a context manager, or call `close`.

    It ends with the session, too.
    """

    def __init__(
        self,
        parts: SessionParts,
        listener: Listener,
        turns: ServedTurns,
        host: str,
        port: int,
        token_variable: str | None,
    ) -> None:
        super().__init__(parts.engine, host, port)
        self._parts = parts
        self._listener = listener
        self._turns = turns
        self._token_variable = token_variable

    @property
    def status(self) -> ServiceStatus:
        """The service's current state."""
        return ServiceStatus(
            self.url,
            not self.closed,
            self._token_variable,
            tuple(self._parts.config.models),
            tuple(self._parts.chat.tool_sets),
            self._turns.running,
            () if self.closed else self._turns.denials(),
        )

    async def _begin(self) -> None:
        await self._listener.begin()

    async def _end(self) -> None:
        await self._turns.close()
        await self._listener.end()


def served_api(
    turns: ServedTurns,
    models: Callable[[], list[str]],
    *,
    host: str | None,
    token: SecretStr | None,
    hosts: Collection[str],
    origins: Collection[str],
) -> ASGIApp:
    """Build the API with the checks that fit its address.

    The host is None if another server listens. For the token, see `checked_token`.
    """
    with _installed():
        from casual_mcp_nb.serve.api import api
    from casual_mcp_nb.serve.guard import guarded

    return guarded(
        api(turns, models, needs_token=token is not None),
        host=host,
        token=token,
        hosts=hosts,
        origins=origins,
        max_bytes=turns.limits.max_bytes,
        max_values=turns.limits.max_values,
    )


@contextmanager
def settled_heap() -> Iterator[None]:
    """Exclude all current objects from garbage collection during the body, for a process that only
    serves.

    Modules and servers stay until its end: looking through them would hold every request up for 200
    ms now and then.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


async def _ready(parts: SessionParts) -> None:
    await parts.starter.view()
    await warmed_up()


@contextmanager
def _installed() -> Iterator[None]:
    """Add the missing extra to an error if an import in the body fails."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("casual_mcp_nb"):
            raise
        raise MissingDependencyError(
            f"Serving needs {error.name}, which is not installed.", hint=install("serve")
        ) from None


class SessionServe(Namespace):
    """A session's services for other programs: `session.serve`."""

    def __init__(self, parts: SessionParts) -> None:
        self._engine = parts.engine
        self._parts = parts
        self._endpoints = parts.endpoints

    @blocking
    async def http(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
        token: str | SecretStr | None = None,
        approval: Mapping[str, Policies] | None = None,
        limits: ServeLimits | None = None,
        hosts: Collection[str] = (),
        origins: Collection[str] = (),
    ) -> Service:
        """Serve this session to other programs as an HTTP API, until it is closed.

        See the guide on serving.

        Each request has its own conversation, which it brings along. Models, servers, toolsets,
        selection and system prompt are the session's, as they are when a request arrives. Nobody
        can approve a call, so calls that need approval are denied, and the model reads why. `%mcp`,
        `chat` and panels work meanwhile, with their own conversation.

        Args:
            host: The address to listen at. With the default, only this computer reaches it.
            port: The port, or 0 for a free one. A service of this session at the same address is
                closed first.
            token: The token that clients send as `Authorization: Bearer`, at least 16 characters,
                or None for the environment's `MCP_SERVE_TOKEN`. Without one, only an address on
                this computer can be served.
            approval: Approval policies by server, in place of the session's: `never` allows calls
                to clients, see `Session`.
            limits: Limits on turns, time and size, or None for the default.
            hosts: Further names by which clients may address it, such as a proxy's.
            origins: Sites whose pages may use it, such as `https://example.org`.

        Returns:
            The service, running: `url`, `close`. It is a context manager.

        Raises:
            UsageError: The address cannot be served, or needs a token.
            UnknownNameError: `approval` names a server that does not exist.
            MissingDependencyError: The extra `serve` is not installed.
        """
        with _installed():
            from casual_mcp_nb.serve.listener import Listener, bound_socket
        from casual_mcp_nb.serve.turns import ServedTurns

        parts = self._parts
        secret = await self._before_serving(host, port, token)
        del token
        warm_up()
        with parts.starter.shown():
            overrides = checked_overrides(approval, parts.chat.server_manager.names)
            await on_engine(_ready(parts))
            turns = ServedTurns(
                parts.chat,
                limits or ServeLimits(),
                overrides,
                parts.config.secrets(),
                admit=parts.starter.admit,
                notify=parts.observers.served.notify,
            )

            def models() -> list[str]:
                return list(parts.config.models)

            checked = served_api(
                turns, models, host=host, token=secret, hosts=hosts, origins=origins
            )
            bound = bound_socket(host, port)
            service = Service(
                parts,
                Listener(checked, bound, parts),
                turns,
                host,
                bound.getsockname()[1],
                TOKEN_VARIABLE if secret else None,
            )
            self._endpoints.add(service)
            await on_engine(service.begin())
            return service

    http_async = awaited(http)

    @blocking
    async def mcp(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tool_set: str | ToolSetConfig | None = None,
        all_tools: bool = False,
        bridge: bool = False,
        plain_names: bool = False,
        approval: HostApproval = "ask",
        token: str | SecretStr | None = None,
        hosts: Collection[str] = (),
        origins: Collection[str] = (),
    ) -> McpEndpoint:
        """Offer the tools, resources and prompts to other programs, as one MCP server over HTTP.

        Connects if needed.

        Clients see what the selection includes, even when it changes later. If tools are deferred,
        they search as the model does. Tools that a client found are listed for that client only,
        and its host is told that the list has changed. Clients see nothing of the conversation.

        Args:
            host: The address to listen at. Other addresses than this computer's need a token.
            port: The port, or 0 for any free one. A service of this session at the same address is
                closed first.
            tool_set: A toolset in place of the selection's.
            all_tools: List every tool in the selection, for hosts that read the list only once.
            bridge: Let clients call found tools through `call_tool`, for hosts that read the list
                only once.
            plain_names: Keep servers' own names for tools and prompts if only one server has the
                name.
            approval: What to do with calls that need approval: `ask` asks the client's person if
                its host can, and otherwise denies the call; `host` leaves it to the host. Calls
                that need approval only by default are always left to the host.
            token: The token that clients send as `Authorization: Bearer`, or None for the
                environment's `MCP_SERVE_TOKEN`, if set.
            hosts: Further names by which clients may address it, such as a proxy's.
            origins: Sites whose pages may use it, such as `https://example.org`.

        Returns:
            The endpoint, with its `url`. It ends with its `close`, or with the session.

        Raises:
            UnknownNameError: There is no such toolset.
            UsageError: The address, the token or an option cannot be used.
            TrustRequiredError: You have not accepted the config.
        """
        from casual_mcp_nb.serve.mcp_endpoint import McpEndpoint
        from casual_mcp_nb.serve.mcp_questions import HostApproval
        from casual_mcp_nb.serve.mcp_server import ToolServer

        parts = self._parts
        options = tool_options(tool_set, all_tools=all_tools, bridge=bridge)
        resolve_tool_set(tool_set, parts.chat.tool_sets)
        if approval not in get_args(HostApproval):
            raise UsageError(
                f"approval cannot be {brief(approval)}.", hint="It must be 'ask' or 'host'."
            )
        secret = await self._before_serving(host, port, token)
        del token
        with parts.starter.shown():
            await on_engine(parts.starter.view())
            served = ToolServer(
                parts.starter,
                parts.observers,
                self._engine,
                options,
                approval,
                plain_names=plain_names,
            )
            try:
                endpoint = McpEndpoint(
                    served,
                    self._engine,
                    host,
                    port,
                    token=secret,
                    hosts=hosts,
                    origins=origins,
                    owner=parts,
                )
                self._endpoints.add(endpoint)
                await on_engine(endpoint.begin())
            except BaseException:
                served.close()
                raise
            return endpoint

    mcp_async = awaited(mcp)

    @blocking
    async def stdio(
        self,
        *,
        tool_set: str | ToolSetConfig | None = None,
        all_tools: bool = False,
        bridge: bool = False,
        plain_names: bool = False,
        approval: HostApproval = "ask",
    ) -> None:
        """Offer the tools, resources and prompts to the program that started this process, over
        stdio.

        It returns when that program ends its side. Meanwhile the process's own standard output goes
        to standard error. For arguments and errors, see `mcp`.
        """
        from casual_mcp_nb.serve.mcp_endpoint import serve_stdio

        options = tool_options(tool_set, all_tools=all_tools, bridge=bridge)
        resolve_tool_set(tool_set, self._parts.chat.tool_sets)
        self._parts.starter.require_trust()
        parts = (self._parts.starter, self._parts.observers, self._engine, options, approval)
        await on_engine(serve_stdio(*parts, plain_names=plain_names))

    stdio_async = awaited(stdio)

    @property
    def now(self) -> ServedAddresses:
        """Where the session is served now."""
        open_ones = [each for each in self._endpoints if not each.closed]
        open_ones.sort(key=attrgetter("url"))
        return ServedAddresses(tuple(each.status for each in open_ones))

    async def _before_serving(
        self, host: str, port: int, token: str | SecretStr | None
    ) -> SecretStr | None:
        """End the service at an address, forget ended ones, and check the token, which is from the
        environment if not given.
        """
        from casual_mcp_nb.serve.guard import checked_token

        self._parts.turn_service.check_open()
        for endpoint in tuple(self._endpoints):
            if not endpoint.closed and (endpoint.host, endpoint.port) != (host, port):
                continue
            await on_engine(endpoint.end())
            self._endpoints.discard(endpoint)
        if token is None:
            token = read_environment(self._parts.config.folder).get(TOKEN_VARIABLE) or None
        return checked_token(token, host)
