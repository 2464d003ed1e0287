"""What a host is offered: the tools, resources, prompts and skills of the session's servers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from mimetypes import guess_type
from typing import Any, Literal
from urllib.parse import quote, unquote

import mcp_types as mcp
from fastmcp.skills.models import MCPSkill
from mcp.shared.exceptions import MCPError

from casual_mcp_nb.base.content import ContentPart, ToolResult
from casual_mcp_nb.base.iterables import present
from casual_mcp_nb.base.limits import encodable
from casual_mcp_nb.base.mcp import (
    SKILL_FILE,
    Completions,
    Resource,
    ResourceContents,
    ServerPrompt,
    Skill,
)
from casual_mcp_nb.base.tool import ToolAnnotations, ToolName, ToolSpec, of_server, wire_name
from casual_mcp_nb.conversation.event import SYNTHETIC
from casual_mcp_nb.conversation.step import is_program
from casual_mcp_nb.engine.outcomes import CallOutcome
from casual_mcp_nb.engine.results import STRUCTURED
from casual_mcp_nb.errors import CasualMcpError, ServerError, shown
from casual_mcp_nb.servers.resources import ServerResources
from casual_mcp_nb.servers.to_mcp import annotations_to_mcp, blocks, tool_to_mcp

logger = logging.getLogger(__name__)


def offered_tool(tool: ToolSpec, name: str, modern: bool) -> mcp.Tool:
    """Convert a tool to its form in a listing, as a model would see it.

    Args:
        tool: The tool.
        name: The name under which it is listed.
        modern: Whether the host speaks a version without a handshake.
    """
    definition = tool.definition
    hints = tool.annotations
    if is_program(tool.tool_name):
        # Its program can call any tool. If the host decides, this is what it decides on.
        hints = ToolAnnotations(destructive=True)
    elif hints is None and tool.server == SYNTHETIC:
        # A host that asks its person before calls that may write need not ask before a search.
        hints = ToolAnnotations(read_only=True, open_world=False)
    offered = {
        "name": name,
        "description": definition["description"],
        "input_schema": definition["parameters"],
        "output_schema": checked_schema(tool, modern),
        "annotations": annotations_to_mcp(hints),
        # A host has no pages of this session's servers.
        "meta": None,
    }
    return tool_to_mcp(tool).model_copy(update=offered)


def outcome_to_mcp(outcome: CallOutcome, modern: bool) -> mcp.CallToolResult:
    """Convert a call's outcome: the server's answer, or else the text that a model would read."""
    failed = outcome.status != "ok"
    if outcome.result is None or outcome.status not in ("ok", "error"):
        return text_result(outcome.text, failed)
    return _result(outcome.result, failed, modern)


def text_result(text: str, failed: bool = True) -> mcp.CallToolResult:
    """Build a result that is only a text."""
    return mcp.CallToolResult(content=[mcp.TextContent(text=text)], is_error=failed)


def _result(result: ToolResult, failed: bool, modern: bool) -> mcp.CallToolResult:
    content = blocks(result.content)
    structured = result.structured
    if structured is not None and not isinstance(structured, dict) and not modern:
        # The versions with a handshake allow only objects.
        if not content:
            text = json.dumps(structured, ensure_ascii=False, default=str)
            content.append(mcp.TextContent(text=f"{STRUCTURED}\n{encodable(text)}"))
        structured = None
    return mcp.CallToolResult(
        content=content, structured_content=structured, is_error=failed or result.is_error
    )


def checked_schema(tool: ToolSpec, modern: bool) -> dict[str, Any] | None:
    """Select the schema with which clients check a tool's results: before the modern version, only
    one for an object. None if they check nothing.
    """
    schema = tool.output_schema
    if schema is None:
        return None
    if modern or schema.get("type") == "object":
        return dict(schema)
    return None


def skill_to_mcp(skill: Skill) -> MCPSkill | None:
    """Convert a skill to its entry in a listing, or None if that would not be valid.

    Clients compare it with the files.
    """
    front = dict(skill.frontmatter) or {"name": skill.name, "description": skill.description}
    folder = skill.uri.rpartition("/")[0]
    files = [
        {"uri": f"{folder}/{quote(file.path)}", "digest": file.digest, "size": file.size}
        for file in skill.files
    ]
    entry = {"uri": skill.uri, "frontmatter": front, "resources": files or "dynamic"}
    try:
        json.dumps(entry, ensure_ascii=False).encode()
        return MCPSkill.model_validate(entry)
    except ValueError:
        logger.warning(
            "Skill %s of server %s is not valid, so not passed on.",
            shown(skill.name),
            shown(skill.server),
        )
        return None


LIST_SECONDS = 5.0
"""How long a listing waits for a server. A slower one's list is announced when it arrives."""
MAX_FOLLOWED = 1_000
"""How many resources hosts follow at a time."""

Kind = Literal["resources", "prompts", "skills"]


class Offers:
    """Lists and finds resources, prompts and skills. Runs on the engine's loop.

    A URI stays as its server wrote it. If several servers list the same one, it belongs to the
    first. Prompts are named like tools, `server__prompt`. `late` is called when a listing arrives
    after its waiting time.
    """

    def __init__(
        self,
        servers: Callable[[], Mapping[str, ServerResources]],
        plain_names: bool,
        late: Callable[[], None],
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

    async def skills(self) -> list[MCPSkill]:
        """List the skills, each URI once. Those that clients would not accept are left out."""
        entries: dict[str, MCPSkill | None] = {}
        for skill in await self._listed("skills"):
            if skill.uri not in entries:
                entries[skill.uri] = skill_to_mcp(skill)
        return present(entries.values())

    def _skill_file(self, uri: str) -> tuple[Skill, str] | None:
        """Find the listed skill, and the path in it, of a file's URI."""
        wanted = unquote(uri)
        for skill in self.listed("skills"):
            folder = unquote(skill.uri).rpartition("/")[0] + "/"
            path = wanted.removeprefix(folder)
            if path != wanted and path in ({file.path for file in skill.files} or {SKILL_FILE}):
                return skill, path
        return None

    async def read(self, server: ServerResources, uri: str) -> ResourceContents:
        """Read a resource from its server. The digest of a skill's file is checked."""
        file = self._skill_file(uri)
        if file is None or self._servers().get(file[0].server) is not server:
            return await server.read(uri)
        contents = await server.read_skill(*file)
        mime_type, _ = guess_type(contents.path)
        if mime_type is None:
            mime_type = "text/plain" if contents.data is None else "application/octet-stream"
        part = ContentPart("resource", contents.text, mime_type, contents.data, uri)
        return ResourceContents(contents.server, uri, (part,))

    async def prompts(self) -> dict[str, ServerPrompt]:
        """List the prompts by name."""
        return self._named(await self._listed("prompts"))

    def _named(self, prompts: Sequence[ServerPrompt]) -> dict[str, ServerPrompt]:
        names = unique_names(
            [ToolName(each.server, each.name) for each in prompts], self._plain_names
        )
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

    async def owner(self, uri: str) -> tuple[str, ServerResources]:
        """Find a URI's server, with its name: the one that lists it or a template that it fits,
        else the only one with its scheme.
        """
        # Known lists are searched first, so that a read does not wait for a slow server.
        if uri.startswith("skill:") and self._skill_file(uri) is None:
            await self._listed("skills")
        skill = self._skill_file(uri)
        name = skill[0].server if skill else self._listing_server(uri, self.listed("resources"))
        if name is None:
            resources = await self.resources()
            name = self._listing_server(uri, resources) or self._only_server(uri, resources)
        if name is None or name not in self._servers():
            raise MCPError(
                mcp.INVALID_PARAMS, f"No server has the resource {shown(uri)}.", {"uri": uri}
            )
        return name, self._servers()[name]

    def _only_server(self, uri: str, resources: Iterable[Resource]) -> str | None:
        """Find the only server with a URI's scheme, or the only one that there is."""
        scheme = uri.partition(":")[0]
        servers = {each.server for each in resources if each.uri.partition(":")[0] == scheme}
        if len(servers) != 1:
            servers = set(self._servers())
        if len(servers) != 1:
            return None
        return servers.pop()

    async def prompt(self, name: str) -> tuple[ServerPrompt, ServerResources]:
        """Find a prompt and its server by name, or by its own name if only one server has it."""
        prompt = self._named(self.listed("prompts")).get(name)
        if prompt is None:
            prompts = await self.prompts()
            prompt = prompts.get(name)
            own = [each for each in prompts.values() if each.name == name]
            if prompt is None and len(own) == 1:
                prompt = own[0]
        servers = self._servers()
        if prompt is None or prompt.server not in servers:
            raise MCPError(
                mcp.INVALID_PARAMS, f"There is no prompt {shown(name)}. List the prompts again."
            )
        return prompt, servers[prompt.server]

    async def complete(self, params: mcp.CompleteRequestParams) -> Completions:
        """Ask a server to suggest values for a prompt or template argument."""
        offer: Resource | ServerPrompt
        if isinstance(params.ref, mcp.PromptReference):
            offer, server = await self.prompt(params.ref.name)
        else:
            offer = await self._template(params.ref.uri)
            server = self._servers()[offer.server]
        others = (params.context.arguments if params.context else None) or {}
        return await server.complete(offer, params.argument.name, params.argument.value, others)

    async def _template(self, uri: str) -> Resource:
        for resource in await self.resources():
            if resource.uri == uri:
                return resource
        raise MCPError(
            mcp.INVALID_PARAMS, f"There is no resource template {shown(uri)}.", {"uri": uri}
        )

    def listed(self, kind: Kind) -> tuple[Any, ...]:
        """Collect the servers' last lists. Asks no server."""
        listed: list[Any] = []
        for server in self._servers().values():
            resources, prompts = server.last_listed
            if kind == "resources":
                listed += resources
            elif kind == "prompts":
                listed += prompts
            else:
                listed += server.known_skills
        return tuple(listed)

    async def follow(self, uri: str, follower: object) -> None:
        """Have a resource's owner report its changes, for as long as somebody follows it."""
        followers = self._followers.get(uri)
        if followers is None:
            if len(self._followers) >= MAX_FOLLOWED:
                raise MCPError(
                    mcp.INVALID_PARAMS, f"At most {MAX_FOLLOWED} resources are followed at a time."
                )
            _, server = await self.owner(uri)
            if any(each.uri == uri for each in server.subscriptions.all):
                # This session's person follows it too, and continues when hosts have gone.
                self._not_ours.add(uri)
            await server.subscribe(uri)
            followers = self._followers.setdefault(uri, set())
            self._updates[uri] = self._counted().get(uri, 0)
        followers.add(follower)

    async def unfollow(self, uri: str, follower: object) -> None:
        """End `follow`. Harmless if it was not followed."""
        followers = self._followers.get(uri, set())
        followers.discard(follower)
        if uri in self._followers and not followers:
            del self._followers[uri], self._updates[uri]
            if uri in self._not_ours:
                self._not_ours.discard(uri)
                return
            with contextlib.suppress(CasualMcpError, MCPError):
                _, server = await self.owner(uri)
                await server.unsubscribe(uri)

    async def unfollow_all(self, follower: object) -> None:
        """End all that a host follows."""
        for uri, followers in tuple(self._followers.items()):
            if follower in followers:
                await self.unfollow(uri, follower)

    def updated(self) -> list[tuple[str, Iterable[object]]]:
        """Report, once, the followed resources that have changed, with their followers."""
        changed: list[tuple[str, Iterable[object]]] = []
        counted = self._counted()
        for uri, before in self._updates.items():
            now = counted.get(uri, before)
            if now != before:
                self._updates[uri] = now
                changed.append((uri, tuple(self._followers[uri])))
        return changed

    def close(self) -> None:
        """Stop waiting for listings."""
        for task in self._listing.values():
            task.cancel()

    def _counted(self) -> dict[str, int]:
        counted = {}
        for server in self._servers().values():
            for subscription in server.subscriptions.all:
                counted[subscription.uri] = subscription.updates
        return counted

    async def _listed(self, kind: Kind) -> list[Any]:
        """Collect all servers' lists. One that fails or is slow does not affect the others."""
        servers = self._servers()
        tasks = {name: self._begun(kind, name, server) for name, server in servers.items()}
        if tasks:
            await asyncio.wait(tasks.values(), timeout=LIST_SECONDS)
        listed: list[Any] = []
        for name, task in tasks.items():
            if task.done() and not task.cancelled() and task.exception() is None:
                listed += task.result()
            else:
                listed += of_server(self.listed(kind), name)
        return listed

    def _begun(self, kind: Kind, name: str, server: ServerResources) -> asyncio.Task[Any]:
        running = self._listing.get((kind, name))
        if running is not None and not running.done():
            return running
        began = asyncio.get_running_loop().time()

        def ended(task: asyncio.Task[Any]) -> None:
            if task.cancelled():
                return
            if (error := task.exception()) is not None:
                level = logging.INFO if isinstance(error, ServerError) else logging.ERROR
                reason = shown(str(error))
                logger.log(level, "Server %s did not list its %s: %s", shown(name), kind, reason)
            elif task.get_loop().time() - began > LIST_SECONDS:
                self._late()

        task = self._listing[kind, name] = asyncio.create_task(getattr(server, kind)())
        task.add_done_callback(ended)
        return task


def unique_names(names: list[ToolName], plain: bool) -> list[str]:
    """Choose a unique name for each tool or prompt.

    If `plain`, names that only one server has stay as they are.
    """
    counts = Counter(name.tool for name in names)
    wired = list(map(wire_name, names))
    collisions = Counter(wired)
    offered = []
    for name, wire in zip(names, wired, strict=True):
        if plain and counts[name.tool] == 1:
            offered.append(name.tool)
        else:
            offered.append(wire_name(name, suffixed=collisions[wire] > 1))
    return offered
