"""A server's resources, prompts and skills: list, read, complete, and follow them.

See https://modelcontextprotocol.io/specification/2025-11-25/server/resources and `prompts` beside
it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from casual_mcp_nb.base.content import ContentPart, ToolResult
from casual_mcp_nb.base.mcp import SKILLS_EXTENSION as SKILLS
from casual_mcp_nb.base.mcp import (
    AppContents,
    Completions,
    PromptMessage,
    PromptMessages,
    Resource,
    ResourceContents,
    ServerPrompt,
    Skill,
    SkillContents,
    Subscription,
)
from casual_mcp_nb.base.secret import Secrets
from casual_mcp_nb.errors import ServerError, UsageError, shown
from casual_mcp_nb.servers._errors import error_text, request_error, root_cause
from casual_mcp_nb.servers.convert import (
    SMALL_CHARACTERS,
    CacheHint,
    contents_from_mcp,
    messages_from_mcp,
    prompt_from_mcp,
    resource_from_mcp,
    shortest,
    template_from_mcp,
    warn_left_out,
)
from casual_mcp_nb.servers.deadlines import CallDeadline, CallDeadlines, CallLimits, CallTimeout
from casual_mcp_nb.servers.listing import RETRY_SECONDS, Listing
from casual_mcp_nb.servers.logs import logger
from casual_mcp_nb.servers.pages import all_pages
from casual_mcp_nb.servers.redaction import Redactor
from casual_mcp_nb.servers.skills import ServerSkills

if TYPE_CHECKING:
    from mcp_types import ReadResourceResult

    from casual_mcp_nb.servers.lifecycle import Lifecycle
    from casual_mcp_nb.servers.mcp_session import McpSession


LOST = "the server ended its reports"


class ResourceSubscriptions:
    """One server's subscriptions, by URI.

    They end with the session; `restore` opens them in the next one.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._by_uri: dict[str, Subscription] = {}
        self._streams: dict[str, asyncio.Task[None]] = {}

    @property
    def all(self) -> tuple[Subscription, ...]:
        """All subscriptions, the oldest first."""
        return tuple(self._by_uri.values())

    async def add(self, session: McpSession, uri: str, name: str) -> None:
        """Subscribe. A second time it does nothing."""
        existing = self._by_uri.get(uri)
        if existing is not None and not existing.problem:
            return
        await self._open(session, uri)
        self._by_uri[uri] = Subscription(session.name, name)
        self._changed()

    async def remove(self, session: McpSession, uri: str) -> None:
        """Unsubscribe."""
        from mcp_types import EmptyResult, UnsubscribeRequest, UnsubscribeRequestParams

        if self._by_uri.pop(uri, None) is None:
            return
        self._changed()
        stream = self._streams.pop(uri, None)
        if stream is not None:
            stream.cancel()
            await asyncio.wait({stream})
        elif not session.modern:
            # The SDK's own method warns that it is deprecated.
            request = UnsubscribeRequest(params=UnsubscribeRequestParams(uri=uri))
            await session.sdk.send_request(request, EmptyResult)

    async def restore(self, session: McpSession) -> None:
        """Subscribe again in a new session. Errors are recorded on the subscriptions."""
        for uri in list(self._by_uri):
            problem = ""
            try:
                await self._open(session, uri)
            except Exception as error:
                problem = error_text(error, session.context.redact)
            self._set(uri, problem=problem)

    def updated(self, uri: str) -> None:
        """Count a change to a subscribed resource, or to a part in one."""
        for each in self._by_uri:
            if uri == each or uri.startswith(each.rstrip("/") + "/"):
                self._set(each, updates=self._by_uri[each].updates + 1, last=time.time())

    async def _open(self, session: McpSession, uri: str) -> None:
        from mcp_types import EmptyResult, SubscribeRequest, SubscribeRequestParams

        if not session.modern:
            await session.sdk.send_request(
                SubscribeRequest(params=SubscribeRequestParams(uri=uri)), EmptyResult
            )
            return
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._streams[uri] = asyncio.create_task(self._follow(session, uri, opened))
        await opened

    async def _follow(self, session: McpSession, uri: str, opened: asyncio.Future[None]) -> None:
        """Keep the stream open that reports on a resource.

        Reports arrive with the session's notifications.
        """
        from mcp.client.subscriptions import listen

        problem = LOST
        try:
            async with listen(session.sdk, resource_subscriptions=[uri]) as stream:
                if uri not in (stream.honored.resource_subscriptions or ()):
                    raise ConnectionError("it does not report changes of this resource")
                opened.set_result(None)
                async for _ in stream:
                    pass
        except Exception as error:
            problem = error_text(error, session.context.redact)
            if not opened.done():
                opened.set_exception(error)
                return
        finally:
            if not opened.done():
                opened.cancel()
        if uri in self._by_uri and self._streams.get(uri) is asyncio.current_task():
            self._set(uri, problem=problem)

    def _set(self, uri: str, **changes: Any) -> None:
        if uri in self._by_uri:
            self._by_uri[uri] = replace(self._by_uri[uri], **changes)
            self._changed()


T = TypeVar("T")

MAX_LISTED = 10_000
SKILLS_SECONDS = 3.0
MAX_COMPLETIONS = 100
"""The protocol's maximum."""


class ServerResources:
    """The resources and prompts of one server.

    Its coroutines start the server if necessary. They raise ConnectError if it cannot be connected,
    and ResourceError if it does not answer, or answers with an error.
    """

    def __init__(
        self,
        server: str,
        lifecycle: Lifecycle,
        limits: CallLimits,
        deadlines: CallDeadlines,
        redact: Redactor,
        secrets: Secrets,
        ttl: float | None,
        changed: Callable[[], None],
    ) -> None:
        self.subscriptions = ResourceSubscriptions(changed)
        self._server = server
        self._lifecycle = lifecycle
        self._limits = limits
        self._deadlines = deadlines
        self._redact = redact
        self._secrets = secrets
        self._changed = changed
        self._hints: dict[str, CacheHint] = {}

        self._resources = Listing(self._list_resources, ttl, self._lifetime_of_resources)
        self._prompts = Listing(self._list_prompts, ttl, self._lifetime_of_prompts)
        self._server_skills = ServerSkills(server, self._request, self._pages, redact)
        self._skills = Listing(self._list_skills, ttl, self._lifetime_of_skills)
        self._retry_skills_at = -math.inf
        self._real_uris: dict[str, str] = {}
        self._app_meta: dict[str, Mapping[str, Any]] = {}

    def _lifetime_of_resources(self, own: float | None) -> float | None:
        return self._lifetime(own, "resources", ("resources", "resource_templates"))

    def _lifetime_of_prompts(self, own: float | None) -> float | None:
        return self._lifetime(own, "prompts", ("prompts",))

    def _lifetime_of_skills(self, own: float | None) -> float | None:
        # A server reports changes of skills as changes of resources.
        return self._lifetime(own, "resources", ("skills",))

    def _lifetime(
        self, own: float | None, kind: Literal["resources", "prompts"], fields: Sequence[str]
    ) -> float | None:
        session = self._lifecycle.session
        hint = shortest(self._hints.get(field, CacheHint()) for field in fields)
        changes = session is not None and session.reports_changes(kind)
        return hint.lifetime(own, reports_changes=changes)

    @property
    def last_listed(self) -> tuple[tuple[Resource, ...], tuple[ServerPrompt, ...]]:
        """The resources and the prompts as last listed."""
        return self._resources.items, self._prompts.items

    @property
    def known_skills(self) -> tuple[Skill, ...]:
        """The skills as last listed, while the server is connected."""
        if self.has_skills:
            return self._skills.items
        return ()

    @property
    def skills_fresh(self) -> bool:
        """Whether `skills` lists nothing: the list is fresh, or the server is not connected or has
        none.
        """
        return self._skills.fresh or time.monotonic() < self._retry_skills_at or not self.has_skills

    async def refresh_skills(self) -> None:
        """List the skills for a turn, which waits only a few seconds.

        After a failure, turns list them again after a while.
        """
        try:
            async with asyncio.timeout(SKILLS_SECONDS):
                await self._skills.get()
        except (TimeoutError, ServerError) as error:
            self._retry_skills_at = time.monotonic() + RETRY_SECONDS
            reason = str(error) or f"no answer in {SKILLS_SECONDS:g} s"
            logger.warning(
                "Server %s did not list its skills, so the model does not see them: %s",
                shown(self._server),
                reason,
            )

    @property
    def has_skills(self) -> bool:
        """Whether the server is connected and has skills."""
        session = self._lifecycle.session
        return session is not None and session.alive and session.has_extension(SKILLS)

    def invalidate(self) -> None:
        """Make the next use list everything again: the server reported a change, or was
        restarted.
        """
        self._resources.invalidate()
        self._prompts.invalidate()
        self._skills.invalidate()

    def changed(self) -> None:
        """Note that the server reported changed lists."""
        self.invalidate()
        self._changed()

    async def resources(self) -> tuple[Resource, ...]:
        """List its resources, then its templates."""
        return await self._resources.get()

    async def prompts(self) -> tuple[ServerPrompt, ...]:
        """List its prompts."""
        return await self._prompts.get()

    async def skills(self) -> tuple[Skill, ...]:
        """List its skills."""
        return await self._skills.get()

    @property
    def changed_skills(self) -> tuple[str, ...]:
        """The skills that the server has changed since they were first listed, unless somebody has
        accepted that.
        """
        return self._server_skills.changed

    def accept_skill(self, name: str) -> bool:
        """Accept a skill as it is now. Return whether it had changed."""
        return self._server_skills.accept(name)

    async def read_skill(self, skill: Skill, path: str) -> SkillContents:
        """Read a file of a skill, and check its digest."""
        return await self._server_skills.read(skill, path)

    async def read(self, uri: str) -> ResourceContents:
        """Read a resource."""
        real = self._real_uris.get(uri, uri)

        async def read(session: McpSession) -> Any:
            return await session.ask(session.sdk.read_resource, uri, uri=real)

        result = await self._request(f"read {shown(uri)}", read)
        if result is None:
            return ResourceContents(self._server, uri)
        parts = await self._off_loop(self._contents, result)
        return ResourceContents(self._server, uri, parts)

    async def read_app(self, uri: str) -> AppContents:
        """Read the page of an app, with the declarations of its server in the contents, or else in
        the listing.

        Raises:
            ResourceError: The server did not answer, or has no such resource.
        """

        async def read(session: McpSession) -> Any:
            return await session.ask(session.sdk.read_resource, "", uri=uri)

        result = await self._request(f"read {shown(uri)}", read)
        meta = (result.contents[0].meta or {}).get("ui") if result.contents else None
        if not isinstance(meta, Mapping):
            # An app need not be listed.
            if uri not in self._app_meta and await self._has("resources"):
                await self.resources()
            meta = self._app_meta.get(uri, {})
        parts = await self._off_loop(self._contents, result)
        declared = {name: meta[name] for name in ("csp", "prefersBorder") if name in meta}
        return AppContents(parts[0] if parts else ContentPart("resource"), declared)

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> PromptMessages:
        """Fetch a prompt's messages."""

        async def get(session: McpSession) -> Any:
            return await session.ask(
                session.sdk.get_prompt, name, name=name, arguments=dict(arguments)
            )

        result = await self._request(f"give prompt {shown(name)}", get)
        if result is None:
            return PromptMessages(self._server, name, dict(arguments))
        messages = await self._off_loop(messages_from_mcp, result)
        contents = self._redacted(message.content for message in messages)
        redacted = tuple(
            PromptMessage(message.role, part)
            for message, part in zip(messages, contents, strict=True)
        )
        return PromptMessages(
            self._server, name, dict(arguments), redacted, self._redact(result.description or "")
        )

    async def complete(
        self, offer: Resource | ServerPrompt, argument: str, text: str, others: Mapping[str, str]
    ) -> Completions:
        """Fetch the server's suggestions for an argument, if it has any."""
        from mcp_types import PromptReference, ResourceTemplateReference

        if not await self._has("completions"):
            return Completions()
        if isinstance(offer, ServerPrompt):
            reference: Any = PromptReference(type="ref/prompt", name=offer.name)
        else:
            reference = ResourceTemplateReference(
                type="ref/resource", uri=self._real_uris.get(offer.uri, offer.uri)
            )

        async def complete(session: McpSession) -> Any:
            argument_ = {"name": argument, "value": text}
            return await session.sdk.complete(reference, argument_, dict(others) or None)

        completion = (await self._request(f"complete {shown(argument)}", complete)).completion
        values = tuple(map(self._redact, completion.values[:MAX_COMPLETIONS]))
        return Completions(
            values,
            completion.total,
            bool(completion.has_more) or len(completion.values) > len(values),
        )

    async def subscribe(self, uri: str) -> None:
        """Have the server report changes to a resource."""
        real = self._real_uris.get(uri, uri)

        async def subscribe(session: McpSession) -> None:
            await self.subscriptions.add(session, real, uri)

        await self._request(f"report changes of {shown(uri)}", subscribe)

    async def unsubscribe(self, uri: str) -> None:
        """End `subscribe`."""
        real = self._real_uris.get(uri, uri)

        async def unsubscribe(session: McpSession) -> None:
            await self.subscriptions.remove(session, real)

        await self._request(f"end its reports on {shown(uri)}", unsubscribe)

    def expanded(self, template: Resource, values: Mapping[str, object]) -> str:
        """Expand a template's URI with its parameters' values."""
        from mcp.shared.uri_template import UriTemplate

        missing = [name for name in template.parameters or () if name not in values]
        if missing:
            names = ", ".join(map(shown, missing))
            raise UsageError(
                f"Template {shown(template.uri)} needs {names}.",
                hint="Pass them by name.",
                server=self._server,
            )
        parsed = UriTemplate.parse(self._real_uris.get(template.uri, template.uri))
        texts: dict[str, Any] = {}
        for name, value in values.items():
            if not isinstance(value, list | tuple):
                value = str(value)
            texts[name] = value
        return parsed.expand(texts)

    def matches(self, template: Resource, uri: str) -> bool:
        """Check whether a URI matches a template."""
        from mcp.shared.uri_template import UriTemplate

        return (
            UriTemplate.parse(self._real_uris.get(template.uri, template.uri)).match(uri)
            is not None
        )

    async def _has(self, capability: str) -> bool:
        session = await self._lifecycle.ensure()
        return capability in session.server_info.capabilities

    async def _list_resources(self) -> tuple[Resource, ...]:
        if not await self._has("resources"):
            return ()
        listed = await self._pages("list its resources", "resources")
        templates = await self._pages("list its templates", "resource_templates", optional=True)
        resources = [resource_from_mcp(each, self._server) for each in listed]
        for each in templates:
            try:
                resources.append(template_from_mcp(each, self._server))
            except ValueError as error:
                warn_left_out(
                    self._server, self._redact(each.name), self._redact(str(error)), "Template"
                )
        metas = {each.uri: (each.meta or {}).get("ui") for each in listed}
        self._app_meta = {uri: meta for uri, meta in metas.items() if isinstance(meta, Mapping)}
        redacted = list(map(self._redact.resource, resources))
        self._real_uris = {
            safe.uri: resource.uri
            for safe, resource in zip(redacted, resources, strict=True)
            if safe.uri != resource.uri
        }
        return tuple(redacted)

    async def _list_skills(self) -> tuple[Skill, ...]:
        session = await self._lifecycle.ensure()
        if session.has_extension(SKILLS):
            return await self._server_skills.list()
        return ()

    async def _list_prompts(self) -> tuple[ServerPrompt, ...]:
        if not await self._has("prompts"):
            return ()
        listed = await self._pages("list its prompts", "prompts")
        return tuple(self._redact.prompt(prompt_from_mcp(each, self._server)) for each in listed)

    async def _pages(self, request: str, field: str, *, optional: bool = False) -> list[Any]:
        async def list_page(cursor: str | None) -> Any:
            async def send(session: McpSession) -> Any:
                return await session.list_page(field, cursor)

            return await self._request(request, send, optional=optional)

        items, self._hints[field] = await all_pages(
            list_page, field, server=self._server, most=MAX_LISTED
        )
        return items

    async def _request(
        self,
        request: str,
        send: Callable[[McpSession], Coroutine[Any, Any, T]],
        *,
        optional: bool = False,
    ) -> T:
        """Send a request, again if the server has forgotten the session.

        If optional, an unknown method returns None.
        """
        for again in (False, True):
            session = await self._lifecycle.ensure()
            start = asyncio.get_running_loop().time()
            setting, code = "", None
            try:
                async with CallDeadline(self._limits, self._deadlines):
                    return await send(session)
            except CallTimeout as error:
                setting, reason = error.field, str(error)
            except Exception as error:
                if optional and _is_unknown_method(error):
                    return None  # type: ignore[return-value]
                if await session.fate(error, start) == "forgotten" and not again:
                    continue
                code = getattr(getattr(error, "error", None), "code", None)
                reason = session.broken_reason or session.context.explain(
                    root_cause(error, self._secrets), start
                )
            # Raised out here: as its context, the library's error would carry what the server sent,
            # with secrets in it.
            raise request_error(self._server, request, reason, setting=setting, code=code)
        raise AssertionError("unreachable")

    async def _off_loop(self, convert: Callable[[Any], T], result: Any) -> T:
        """Convert a result, on another thread where it is so large that it would hold the event
        loop.
        """
        if _characters(result) > SMALL_CHARACTERS:
            return await asyncio.to_thread(convert, result)
        return convert(result)

    def _contents(self, result: ReadResourceResult) -> tuple[ContentPart, ...]:
        return self._redacted(contents_from_mcp(result))

    def _redacted(self, parts: Iterable[ContentPart]) -> tuple[ContentPart, ...]:
        return self._redact.result(ToolResult(tuple(parts))).content


def _characters(result: Any) -> int:
    """Count the characters of a resource's contents, or of a prompt's messages."""
    holders = list(getattr(result, "contents", None) or ())
    if not holders:
        for message in getattr(result, "messages", ()):
            holders.append(getattr(message.content, "resource", message.content))
    size = 0
    for holder in holders:
        for name in ("text", "data", "blob"):
            size += len(getattr(holder, name, None) or "")
    return size


def _is_unknown_method(error: Exception) -> bool:
    from mcp import MCPError
    from mcp_types import METHOD_NOT_FOUND

    return isinstance(error, MCPError) and error.error.code == METHOD_NOT_FOUND
