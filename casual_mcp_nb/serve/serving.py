"""Serve a session to other programs: as an HTTP API, and as one MCP server."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from casual_mcp_nb.base.config import Policies, ToolSetConfig
from casual_mcp_nb.base.displayable import Namespace
from casual_mcp_nb.base.service import TOKEN_VARIABLE, ServedAddresses, ServeLimits
from casual_mcp_nb.config.environment import read_environment
from casual_mcp_nb.discovery.toolsets import resolve_tool_set
from casual_mcp_nb.engine.tool_client import tool_options
from casual_mcp_nb.notebook.sync_and_async import awaited, blocking, on_engine

if TYPE_CHECKING:
    from pydantic import SecretStr

    from casual_mcp_nb.serve.endpoint import Endpoint
    from casual_mcp_nb.serve.mcp_endpoint import McpEndpoint
    from casual_mcp_nb.serve.mcp_questions import HostApproval
    from casual_mcp_nb.serve.service import Served, Service


class SessionServe(Namespace):
    """The services of a session for other programs: `session.serve`.

    Args:
        served: The session.
        endpoints: The addresses at which it is served; further ones are added.
    """

    def __init__(self, served: Served, endpoints: set[Endpoint]) -> None:
        self.engine = served.engine
        self._served = served
        self._endpoints = endpoints

    @blocking
    async def http(
        self,
        host: str = "127.0.0.1",
        port: int = 8000,
        *,
        token: str | SecretStr | None = None,
        approval: Mapping[str, Policies] | None = None,
        limits: ServeLimits | None = None,
        hosts: Collection[str] = (),
        origins: Collection[str] = (),
    ) -> Service:
        """Serve this session to other programs as an HTTP API, until it is closed; see the guide on serving.

        Each request has its own conversation, which it brings along. Models, servers, toolsets, selection and system prompt are
        the session's, as they are when a request arrives. Nobody can approve a call, so one that would ask is denied, and the
        model reads why. `%mcp`, `chat` and panels work meanwhile, with their own conversation.

        Args:
            host: The address to listen at; with the default, only this computer reaches it.
            port: The port; 0 for a free one. A service of this session at the same address is closed first.
            token: The token that clients send as `Authorization: Bearer`, at least 16 characters; None for `MCP_SERVE_TOKEN`
                of the environment. Without one, only an address of this computer can be served.
            approval: When a call would ask, by server, in place of the session's: `never` allows it to clients, see `Session`.
            limits: How many turns at the same time, how long, how large; None for the usual ones.
            hosts: Further names by which clients may address it, such as that of a proxy.
            origins: Sites whose pages may use it, such as `https://example.org`.

        Returns:
            The service, running: `url`, `close`; it is a context manager.

        Raises:
            UsageError: The address cannot be served, or needs a token.
            UnknownNameError: `approval` names a server that does not exist.
            MissingDependencyError: The extra `serve` is not installed.
        """
        from casual_mcp_nb.serve.service import open_service

        token = await self._before_serving(host, port, token)
        with self._served.starter.shown():
            return await open_service(
                self._served,
                host,
                port,
                token=token,
                approval=approval,
                limits=limits or ServeLimits(),
                hosts=hosts,
                origins=origins,
                begin=self._endpoints.add,
            )

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
        """Offer the tools, resources and prompts to other programs, as one MCP server over HTTP. Connects if needed.

        Their view follows the selection, even when it changes later. Where tools are deferred, they search as the model
        does. One client's results are listed for that client only, and its MCP host is told that the list has changed. Nothing
        of the conversation, and no context for functions but `context`, is theirs.

        Args:
            host: The address to listen at; another one than that of this computer needs a token.
            port: The port; 0 for any free one. A service of this session at the same address is closed first.
            tool_set: Another toolset than that of the selection.
            all_tools: List every tool of the selection, for hosts that read the list only once.
            bridge: Have found tools called through `call_tool`, for hosts that read the list only once.
            plain_names: Leave the names of tools and prompts as their servers have them, where only one server has it.
            approval: The action for a call whose policy asks a person: `ask` asks that of the client, where its host can,
                and denies it elsewhere; `host` leaves it to the host. Calls that only the default policy would ask about are
                always left to the host.
            token: The token that clients send as `Authorization: Bearer`; None for `MCP_SERVE_TOKEN` of the environment, if
                it is set.
            hosts: Further names under which clients may address it, such as that of a proxy.
            origins: Sites whose pages may use it, such as `https://example.org`.

        Returns:
            What serves; it has the `url`, and ends with its `close`, or with the session.

        Raises:
            UnknownNameError: There is no such toolset.
            UsageError: The address, the token or an option cannot be used.
            TrustRequiredError: You have not accepted the config.
        """
        from casual_mcp_nb.serve.mcp_endpoint import open_endpoint

        options = tool_options(tool_set, all_tools=all_tools, bridge=bridge)
        resolve_tool_set(tool_set, self._served.chat.tool_sets)
        token = await self._before_serving(host, port, token)
        with self._served.starter.shown():
            return await open_endpoint(
                self._served.starter,
                self._served.observers,
                self.engine,
                options,
                approval,
                host,
                port,
                plain_names=plain_names,
                token=token,
                hosts=hosts,
                origins=origins,
                owner=self._served.owner,
                begin=self._endpoints.add,
            )

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
        """Offer the tools, resources and prompts to the program that started this process, over its standard input and output.

        It returns when that program ends its side.

        Meanwhile the process's own standard output goes to its standard error.

        Args:
            tool_set: See `mcp`.
            all_tools: See `mcp`.
            bridge: See `mcp`.
            plain_names: See `mcp`.
            approval: See `mcp`.

        Raises:
            UnknownNameError: There is no such toolset.
            TrustRequiredError: You have not accepted the config.
        """
        from casual_mcp_nb.serve.mcp_endpoint import serve_stdio

        options = tool_options(tool_set, all_tools=all_tools, bridge=bridge)
        resolve_tool_set(tool_set, self._served.chat.tool_sets)
        self._served.starter.require_trust()
        parts = (self._served.starter, self._served.observers, self.engine, options, approval)
        await on_engine(lambda _: serve_stdio(*parts, plain_names=plain_names))

    stdio_async = awaited(stdio)

    @property
    def now(self) -> ServedAddresses:
        """The addresses at which the session is served now."""
        open_ones = sorted((each for each in self._endpoints if not each.closed), key=lambda each: each.url)
        return ServedAddresses(tuple(each.status for each in open_ones))

    async def _before_serving(self, host: str, port: int, token: str | SecretStr | None) -> str | SecretStr | None:
        """End the service at an address, forget ended ones, and return the token, from the environment if not given."""
        self._served.check_open()
        for endpoint in [each for each in self._endpoints if each.closed or (each.host, each.port) == (host, port)]:
            await on_engine(endpoint.end)
            self._endpoints.discard(endpoint)
        return read_environment(self._served.config.folder).get(TOKEN_VARIABLE) or None if token is None else token
