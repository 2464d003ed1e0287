"""Tools, results, resources and prompts in the form in which MCP sends them. The way back from `servers/convert.py`."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import mcp_types as mcp
from mcp.shared.exceptions import MCPError

from casual_mcp_nb.base.content import ContentPart, ToolResult
from casual_mcp_nb.base.mcp import Completions, PromptMessages, Resource, ResourceContents, ServerPrompt
from casual_mcp_nb.base.tool import ToolAnnotations, ToolName, ToolSpec, wire_name
from casual_mcp_nb.conversation.event import SYNTHETIC
from casual_mcp_nb.engine.dispatch import CallOutcome
from casual_mcp_nb.engine.results import STRUCTURED
from casual_mcp_nb.errors import CasualMcpError, ServerError, shown
from casual_mcp_nb.servers.resources import ServerResources

MAX_TEXT = 4_000
"""Maximum length of a name or a description of a resource or a prompt."""
_NOWHERE = "casual-mcp-nb:resource"
"""The URI of a resource that came without one."""


def tool_to_mcp(tool: ToolSpec, name: str, modern: bool) -> mcp.Tool:
    """Convert a tool to its form in a listing, with the whole definition of its server."""
    definition = tool.definition
    hints = tool.annotations
    if hints is None and tool.server == SYNTHETIC:
        # A host that asks its person before calls that may write need not ask before a search.
        hints = ToolAnnotations(read_only=True, open_world=False)
    return mcp.Tool(
        name=name,
        title=tool.title,
        description=definition["description"],
        input_schema=definition["parameters"],
        output_schema=_listed(tool.output_schema, modern),
        annotations=_annotations(hints) if hints else None,
    )


def result_to_mcp(outcome: CallOutcome, modern: bool) -> mcp.CallToolResult:
    """Convert the outcome of a call: the server's answer, or the text that a model would read; `modern` as in `tool_to_mcp`."""
    failed = outcome.status != "ok"
    if outcome.result is None or outcome.status not in ("ok", "error"):
        return text_result(outcome.text, failed)
    return _result(outcome.result, failed, modern)


def text_result(text: str, failed: bool = True) -> mcp.CallToolResult:
    """Build a result that is only a text."""
    return mcp.CallToolResult(content=[mcp.TextContent(text=text)], is_error=failed)


def _result(result: ToolResult, failed: bool, modern: bool) -> mcp.CallToolResult:
    content = list(map(_block, result.content))
    structured = result.structured
    if structured is not None and not isinstance(structured, dict) and not modern:
        # The versions with a handshake allow only objects.
        if not content:
            text = json.dumps(structured, ensure_ascii=False, default=str)
            content.append(mcp.TextContent(text=f"{STRUCTURED}\n{_encodable(text)}"))
        structured = None
    return mcp.CallToolResult(content=content, structured_content=structured, is_error=failed or result.is_error)


def _annotations(hints: ToolAnnotations) -> mcp.ToolAnnotations:
    return mcp.ToolAnnotations(
        title=hints.title,
        read_only_hint=hints.read_only,
        destructive_hint=hints.destructive,
        idempotent_hint=hints.idempotent,
        open_world_hint=hints.open_world,
    )


def _listed(schema: Mapping[str, Any] | None, modern: bool) -> dict[str, Any] | None:
    """Select a schema of results if clients can check them: before the modern version, if it is that of an object."""
    return dict(schema) if schema is not None and (modern or schema.get("type") == "object") else None


def resource_to_mcp(resource: Resource) -> mcp.Resource:
    """Convert a resource to its form in a listing."""
    return mcp.Resource(uri=resource.uri, size=resource.size, **_described(resource))


def template_to_mcp(template: Resource) -> mcp.ResourceTemplate:
    """Convert a resource template to its form in a listing."""
    return mcp.ResourceTemplate(uri_template=template.uri, **_described(template))


def _described(resource: Resource) -> dict[str, Any]:
    return {
        "name": _cut(resource.name or resource.uri),
        "title": _cut(resource.title) or None,
        "description": _cut(resource.description) or None,
        "mime_type": resource.mime_type,
    }


def prompt_to_mcp(name: str, prompt: ServerPrompt) -> mcp.Prompt:
    """Convert a prompt to its form in a listing, under a name."""
    arguments = [
        mcp.PromptArgument(name=each.name, description=_cut(each.description) or None, required=each.required)
        for each in prompt.arguments
    ]
    title, description = _cut(prompt.title) or None, _cut(prompt.description) or None
    return mcp.Prompt(name=name, title=title, description=description, arguments=arguments)


def contents_to_mcp(contents: ResourceContents) -> mcp.ReadResourceResult:
    """Convert the contents of a resource."""
    return mcp.ReadResourceResult(contents=[_contents(part, contents.uri) for part in contents.parts])


def messages_to_mcp(messages: PromptMessages) -> mcp.GetPromptResult:
    """Convert the messages of a prompt."""
    return mcp.GetPromptResult(
        description=messages.description or None,
        messages=[
            mcp.PromptMessage(role="assistant" if each.role == "assistant" else "user", content=_block(each.content))
            for each in messages.messages
        ],
    )


def completions_to_mcp(completions: Completions) -> mcp.CompleteResult:
    """Convert suggestions."""
    return mcp.CompleteResult(
        completion=mcp.Completion(values=list(completions.values), total=completions.total, has_more=completions.more)
    )


def _block(part: ContentPart) -> mcp.ContentBlock:
    text = _encodable(part.text)
    data = None if part.data is None else base64.b64encode(part.data).decode()
    match part.kind:
        case "image" if data is not None:
            return mcp.ImageContent(data=data, mime_type=part.mime_type or "application/octet-stream")
        case "audio" if data is not None:
            return mcp.AudioContent(data=data, mime_type=part.mime_type or "application/octet-stream")
        case "link" if part.uri:
            return mcp.ResourceLink(name=text or part.uri, uri=part.uri, mime_type=part.mime_type)
        case "resource":
            return mcp.EmbeddedResource(resource=_contents(part, _NOWHERE))
    return mcp.TextContent(text=text)


def _cut(text: str) -> str:
    return _encodable(text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]} [...]")


def _contents(part: ContentPart, uri: str) -> mcp.TextResourceContents | mcp.BlobResourceContents:
    uri = part.uri or uri
    if part.data is not None:
        blob = base64.b64encode(part.data).decode()
        return mcp.BlobResourceContents(uri=uri, mime_type=part.mime_type, blob=blob)
    return mcp.TextResourceContents(uri=uri, mime_type=part.mime_type, text=_encodable(part.text))


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


logger = logging.getLogger(__name__)

LIST_SECONDS = 5.0
"""How long a listing waits for a server; what a slower one lists is announced when it has come."""
MAX_FOLLOWED = 1_000
"""How many resources hosts follow at a time."""

Kind = Literal["resources", "prompts"]


class Offers:
    """Lists and finds resources and prompts; belongs to the engine's loop.

    A URI stays as its server wrote it. Where several servers list the same one, it is that of the first. A prompt is named as a
    tool is, `server__prompt`. `late` is called when a listing came after nobody waited for it any more.
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
        """Find the server of a URI: the one that lists it or a template that it fits, else the only one with its scheme."""
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
        """Find a prompt and its server by its name, or by its name at the server if only one has it."""
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
        """Ask a server to suggest values for an argument of a prompt or a template."""
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
        return tuple(item for server in self._servers().values() for item in server.last_listed[kind == "prompts"])

    async def follow(self, uri: str, follower: object) -> None:
        """Have the owner of a resource report its changes, for as long as somebody follows it."""
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
        """Collect the lists of all servers. One that fails or is slow costs the others nothing."""
        servers = self._servers()
        tasks = {name: self._begun(kind, name, server) for name, server in servers.items()}
        if tasks:
            await asyncio.wait(tasks.values(), timeout=LIST_SECONDS)
        listed: list[Any] = []
        for name, task in tasks.items():
            done = task.done() and not task.cancelled() and task.exception() is None
            listed += task.result() if done else servers[name].last_listed[kind == "prompts"]
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
    """Choose a unique name for each tool or prompt; if `plain`, what only one server has keeps its name."""
    counts = Counter(name.tool for name in names)
    wired = [wire_name(name) for name in names]
    collisions = Counter(wired)
    return [
        name.tool if plain and counts[name.tool] == 1 else wire_name(name, suffixed=collisions[wire] > 1)
        for name, wire in zip(names, wired, strict=True)
    ]
