"""The resources and prompts of a session's servers, as one MCP server offers them: under names that are unique."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import mcp_types as mcp
from mcp.shared.exceptions import MCPError

from casual_mcp_nb.connections import ServerResources
from casual_mcp_nb.errors import CasualMcpError, ServerError, shown
from casual_mcp_nb.types.resource import Completions, Resource, ServerPrompt
from casual_mcp_nb.types.tool import ToolName, wire_name

logger = logging.getLogger(__name__)

LIST_SECONDS = 5.0
"""How long a listing waits for a server; what a slower one lists is announced when it has come."""
MAX_FOLLOWED = 1_000
"""How many resources hosts follow at a time."""

Kind = Literal["resources", "prompts"]


class Offers:
    """Lists and finds resources and prompts; belongs to the engine's loop.

    A URI stays as its server wrote it; where several servers list the same one, it is that of the first. A prompt is named as a
    tool is, `server__prompt`.

    Args:
        servers: Returns the servers that are offered, in the order of the config.
        plain_names: Whether a prompt that only one server has keeps its name.
        late: Called when a listing came after nobody waited for it any more.
    """

    def __init__(
        self, servers: Callable[[], Mapping[str, ServerResources]], plain_names: bool, late: Callable[[], None]
    ) -> None:
        self._servers = servers
        self._plain_names = plain_names
        self._late = late
        self._listing: dict[tuple[Kind, str], asyncio.Task[Any]] = {}
        self._followers: dict[str, set[object]] = {}
        self._updates: dict[str, int] = {}
        self._not_ours: set[str] = set()

    async def resources(self) -> tuple[Resource, ...]:
        """List the resources and templates, each URI once."""
        by_uri: dict[str, Resource] = {}
        for resource in await self._listed("resources"):
            by_uri.setdefault(resource.uri, resource)
        return tuple(by_uri.values())

    async def prompts(self) -> dict[str, ServerPrompt]:
        """List the prompts by name."""
        return self._named(await self._listed("prompts"))

    def _named(self, prompts: Sequence[ServerPrompt]) -> dict[str, ServerPrompt]:
        names = unique_names([ToolName(each.server, each.name) for each in prompts], self._plain_names)
        return dict(zip(names, prompts, strict=True))

    def _listing_server(self, uri: str, resources: Iterable[Resource]) -> str | None:
        servers, fitting = self._servers(), None
        for each in resources:
            if each.server not in servers:
                continue
            if each.uri == uri and not each.is_template:
                return each.server
            if fitting is None and each.is_template and servers[each.server].matches(each, uri):
                fitting = each.server
        return fitting

    async def owner(self, uri: str) -> ServerResources:
        """Find the server of a URI: the one that lists it or a template that it fits, else the only one with its scheme.

        Raises:
            MCPError: There is none.
        """
        # What is known is looked at first, so that a read does not wait for the listing of a slow server.
        name = self._listing_server(uri, self.listed("resources"))
        if name is None:
            resources = await self.resources()
            scheme = uri.partition(":")[0]
            same_scheme = {each.server for each in resources if each.uri.partition(":")[0] == scheme}
            others = same_scheme if len(same_scheme) == 1 else self._servers() if len(self._servers()) == 1 else ()
            name = self._listing_server(uri, resources) or next(iter(others), None)
        server = self._servers().get(name or "")
        if server is None:
            raise MCPError(mcp.INVALID_PARAMS, f"No server has the resource {shown(uri)}.", {"uri": uri})
        return server

    async def prompt(self, name: str) -> tuple[ServerPrompt, ServerResources]:
        """Find the prompt of a name, also of the name at its server where only one has it, and that server.

        Raises:
            MCPError: There is none.
        """
        prompt = self._named(self.listed("prompts")).get(name)
        if prompt is None:
            prompts = await self.prompts()
            own = [prompt for prompt in prompts.values() if prompt.name == name]
            prompt = prompts.get(name) or (own[0] if len(own) == 1 else None)
        servers = self._servers()
        if prompt is None or prompt.server not in servers:
            raise MCPError(mcp.INVALID_PARAMS, f"There is no prompt {shown(name)}. List the prompts again.")
        return prompt, servers[prompt.server]

    async def complete(self, params: mcp.CompleteRequestParams) -> Completions:
        """Ask a server to suggest values for an argument of a prompt or a template.

        Raises:
            MCPError: There is no such prompt or template.
            CasualMcpError: The server did not answer.
        """
        offer: Resource | ServerPrompt | None
        if isinstance(params.ref, mcp.PromptReference):
            offer, server = await self.prompt(params.ref.name)
        else:
            uri = params.ref.uri
            offer = next((each for each in await self.resources() if each.uri == uri), None)
            if offer is None:
                raise MCPError(mcp.INVALID_PARAMS, f"There is no resource template {shown(uri)}.", {"uri": uri})
            server = self._servers()[offer.server]
        others = (params.context.arguments if params.context else None) or {}
        return await server.complete(offer, params.argument.name, params.argument.value, others)

    def listed(self, kind: Kind) -> tuple[Any, ...]:
        """Collect the last lists of the servers. Asks no server."""
        return tuple(item for server in self._servers().values() for item in server.known[kind == "prompts"])

    async def follow(self, uri: str, follower: object) -> None:
        """Have the owner of a resource report its changes, for as long as somebody follows it.

        Raises:
            MCPError: No server has it, or too many are followed.
            CasualMcpError: The server does not report its changes.
        """
        followers = self._followers.get(uri)
        if followers is None:
            if len(self._followers) >= MAX_FOLLOWED:
                raise MCPError(mcp.INVALID_PARAMS, f"At most {MAX_FOLLOWED} resources are followed at a time.")
            server = await self.owner(uri)
            if any(each.uri == uri for each in server.subscriptions.all):
                # The person of this session follows it too, and goes on when hosts have gone.
                self._not_ours.add(uri)
            await server.subscribe(uri)
            followers = self._followers.setdefault(uri, set())
            self._updates[uri] = self._counted().get(uri, 0)
        followers.add(follower)

    async def unfollow(self, uri: str, follower: object) -> None:
        """End `follow`; harmless if it was not followed."""
        followers = self._followers.get(uri, set())
        followers.discard(follower)
        if uri in self._followers and not followers:
            del self._followers[uri], self._updates[uri]
            if uri in self._not_ours:
                self._not_ours.discard(uri)
                return
            with contextlib.suppress(CasualMcpError, MCPError):
                await (await self.owner(uri)).unsubscribe(uri)

    async def unfollow_all(self, follower: object) -> None:
        """End all that a host follows."""
        for uri in [uri for uri, followers in self._followers.items() if follower in followers]:
            await self.unfollow(uri, follower)

    def updated(self) -> list[tuple[str, Iterable[object]]]:
        """Report, once, the followed resources that have changed, with their followers."""
        counted = self._counted()
        changed = [uri for uri, before in self._updates.items() if counted.get(uri, before) != before]
        self._updates.update((uri, counted[uri]) for uri in changed)
        return [(uri, tuple(self._followers[uri])) for uri in changed]

    def close(self) -> None:
        """Wait for no listing any more."""
        for task in self._listing.values():
            task.cancel()

    def _counted(self) -> dict[str, int]:
        return {each.uri: each.updates for server in self._servers().values() for each in server.subscriptions.all}

    async def _listed(self, kind: Kind) -> list[Any]:
        """Collect the lists of all servers; one that fails or is slow costs the others nothing."""
        servers = self._servers()
        tasks = {name: self._begun(kind, name, server) for name, server in servers.items()}
        if tasks:
            await asyncio.wait(tasks.values(), timeout=LIST_SECONDS)
        listed: list[Any] = []
        for name, task in tasks.items():
            done = task.done() and not task.cancelled() and task.exception() is None
            listed += task.result() if done else servers[name].known[kind == "prompts"]
        return listed

    def _begun(self, kind: Kind, name: str, server: ServerResources) -> asyncio.Task[Any]:
        task = self._listing.get((kind, name))
        if task is None or task.done():
            began = asyncio.get_running_loop().time()

            def ended(task: asyncio.Task[Any]) -> None:
                if not task.cancelled() and (error := task.exception()) is not None:
                    level = logging.INFO if isinstance(error, ServerError) else logging.ERROR
                    logger.log(level, "Server %s did not list its %s: %s", shown(name), kind, shown(str(error)))
                elif not task.cancelled() and task.get_loop().time() - began > LIST_SECONDS:
                    self._late()

            task = self._listing[kind, name] = asyncio.create_task(getattr(server, kind)())
            task.add_done_callback(ended)
        return task


def unique_names(names: list[ToolName], plain: bool) -> list[str]:
    """Choose a unique name for each tool or prompt.

    Args:
        names: Server and name of each.
        plain: Whether what only one server has keeps its name.
    """
    counts = Counter(name.tool for name in names)
    wired = [wire_name(name) for name in names]
    collisions = Counter(wired)
    return [
        name.tool if plain and counts[name.tool] == 1 else wire_name(name, suffixed=collisions[wire] > 1)
        for name, wire in zip(names, wired, strict=True)
    ]
