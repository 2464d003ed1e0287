"""Resources and prompts on a session's servers: find, read, fill in, follow, attach to a
message.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from casual_mcp_nb.base.content import ContentPart
from casual_mcp_nb.base.displayable import NamespaceList
from casual_mcp_nb.base.mcp import (
    SKILL_FILE,
    Completions,
    PromptMessages,
    Prompts,
    Resource,
    ResourceContents,
    Resources,
    ServerPrompt,
    Skill,
    SkillContents,
    Skills,
    Subscriptions,
)
from casual_mcp_nb.conversation.direct_calls import RecordedCalls
from casual_mcp_nb.conversation.step import ToolCall
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.engine.attachments import attached
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.events import Observers
from casual_mcp_nb.errors import UnknownNameError, UsageError, brief, shown
from casual_mcp_nb.notebook.blocking import awaited, blocking
from casual_mcp_nb.notebook.loop import EngineThread
from casual_mcp_nb.notebook.open_questions import Questions
from casual_mcp_nb.notebook.starting import ServerStarter

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

T = TypeVar("T")
Readable = str | Resource | ContentPart

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


@dataclass(eq=False, repr=False)
class ResourceService:
    """Resources and prompts, and the next message's attachments.

    Its coroutines run on the engine's loop and connect the servers. The rest is thread-safe.
    """

    chat: McpToolChat
    starter: ServerStarter
    calls: RecordedCalls
    engine: EngineThread
    questions: Questions
    observers: Observers
    turns: Callable[[], Sequence[Turn]]

    def __post_init__(self) -> None:
        self.pending: dict[str, ResourceContents | PromptMessages] = {}
        self._numbers = count(1)
        self._last_resources, self._last_prompts = Resources(listed=False), Prompts(listed=False)
        self._last_skills = Skills(listed=False)

    async def resources(self) -> Resources:
        """List all server resources, see `SessionResources.list`."""
        await self.starter.view()
        return await self._list_resources()

    async def prompts(self) -> Prompts:
        """List all server prompts, see `SessionPrompts.list`."""
        await self.starter.view()
        return await self._list_prompts()

    async def skills(self) -> Skills:
        """List all skills of servers, see `SessionSkills.list`."""
        await self.starter.view()
        return await self.list_connected_skills()

    async def list_connected_skills(self) -> Skills:
        """List the skills of the servers that are connected. The others are not waited for."""
        self._last_skills = await self.chat.server_manager.list_skills()
        return self._last_skills

    @property
    def known_skills(self) -> Skills:
        """The skills as last listed. Does not connect and does not wait."""
        before, skills = self._last_skills, self.chat.server_manager.known_skills
        return Skills(skills, before.problems, listed=before.listed or bool(skills))

    async def read_skill(self, name: str, path: str) -> SkillContents:
        """Read a file of a skill, see `SessionSkills.read`."""
        skill = (await self.skills()).named(name)
        return await self.chat.server_manager.resources_of(skill.server).read_skill(skill, path)

    async def _list_resources(self) -> Resources:
        self._last_resources = await self.chat.server_manager.list_resources()
        return self._last_resources

    async def _list_prompts(self) -> Prompts:
        self._last_prompts = await self.chat.server_manager.list_prompts()
        return self._last_prompts

    @property
    def last_listed(self) -> tuple[Resources, Prompts]:
        """The resources and prompts as last listed. Does not connect and does not wait."""
        listings = [server.last_listed for server in self.chat.server_manager.resources.values()]
        resources = tuple(resource for listed, _ in listings for resource in listed)
        prompts = tuple(prompt for _, listed in listings for prompt in listed)
        before, last_prompts = self._last_resources, self._last_prompts
        return (
            Resources(resources, before.problems, listed=before.listed),
            Prompts(prompts, last_prompts.problems, listed=last_prompts.listed),
        )

    def known_soon(self, seconds: float) -> tuple[Resources, Prompts]:
        """List known resources and prompts, after giving the connected servers a moment to list
        them.
        """
        if seconds:
            with suppress(UsageError, FutureTimeoutError):
                self.engine.submit(self.list_connected())[0].result(seconds)
        return self.last_listed

    async def list_connected(self) -> tuple[Resources, Prompts]:
        """List the connected servers' resources and prompts, without waiting for the others."""
        return await asyncio.gather(self._list_resources(), self._list_prompts())

    def add_pending(self, attachment: ResourceContents | PromptMessages) -> None:
        """Keep an attachment for the next message sent in a panel."""
        self.pending = {**self.pending, str(next(self._numbers)): attachment}
        self.observers.changes.notify()

    def remove_pending(self, id: str) -> None:
        """Drop an attachment that was kept for the next message.

        Harmless if it was sent already.
        """
        self.pending = {key: attachment for key, attachment in self.pending.items() if key != id}
        self.observers.changes.notify()

    def take_pending(self) -> dict[str, ResourceContents | PromptMessages]:
        """Remove and return the attachments for the next message; `restore_pending` keeps them
        again.
        """
        pending, self.pending = self.pending, {}
        return pending

    def restore_pending(self, pending: Mapping[str, ResourceContents | PromptMessages]) -> None:
        """Keep attachments again whose message could not be sent."""
        self.pending = {**pending, **self.pending}
        self.observers.changes.notify()

    @property
    def subscriptions(self) -> Subscriptions:
        """The resources whose changes servers report."""
        servers = self.chat.server_manager.resources.values()
        return Subscriptions(tuple(each for server in servers for each in server.subscriptions.all))

    async def read(
        self, what: Readable, server: str | None, arguments: Mapping[str, Any]
    ) -> ResourceContents:
        """Read a resource, see `SessionResources.read`."""
        name, uri = await self._locate(what, server, arguments)
        async with self.questions.prompt_on():
            return await self.chat.server_manager.resources_of(name).read(uri)

    async def prompt(self, name: str, arguments: Mapping[str, Any]) -> PromptMessages:
        """Fetch a prompt's messages, see `SessionPrompts.get`."""
        prompt = (await self.prompts()).named(name)
        prompt.check(arguments)
        texts = {key: str(value) for key, value in arguments.items() if value is not None}
        async with self.questions.prompt_on():
            return await self.chat.server_manager.resources_of(prompt.server).prompt(
                prompt.name, texts
            )

    async def complete(
        self, name: str, argument: str, text: str, others: Mapping[str, Any]
    ) -> Completions:
        """Ask a server to suggest values for an argument, see `SessionResources.complete`."""
        offer = await self._offer(name)
        if isinstance(offer, ServerPrompt):
            names: Sequence[str] = [each.name for each in offer.arguments]
        else:
            names = offer.parameters or ()
        if argument not in names:
            raise UnknownNameError("argument", argument, names)
        texts = {key: str(value) for key, value in others.items() if value is not None}
        return await self.chat.server_manager.resources_of(offer.server).complete(
            offer, argument, text, texts
        )

    async def follow(self, what: Readable, server: str | None, *, on: bool) -> Subscriptions:
        """Have a server report a resource's changes, or no longer, see
        `SessionResources.subscribe`.
        """
        name, uri = await self._locate(what, server, {})
        reader = self.chat.server_manager.resources_of(name)
        if on:
            await reader.subscribe(uri)
        else:
            await reader.unsubscribe(uri)
        return self.subscriptions

    async def with_attachments(
        self, messages: list[ChatMessage], attachments: Any
    ) -> list[ChatMessage]:
        """Insert a message with the attached resources and prompts before the others."""
        read_first = several(attachments)
        if not read_first:
            return messages
        read = await asyncio.gather(*map(self._read_attachment, read_first))
        # A limit of 0 is none.
        message = await asyncio.to_thread(
            attached, read, self.chat.limits.result_tokens or sys.maxsize
        )
        return [message, *messages]

    async def _read_attachment(self, attachment: Any) -> ResourceContents | PromptMessages:
        if isinstance(attachment, ResourceContents | PromptMessages):
            return attachment
        if isinstance(attachment, str | Resource | ContentPart):
            return await self.read(attachment, None, {})
        if isinstance(attachment, ServerPrompt):
            return await self.prompt(f"{attachment.server}:{attachment.name}", {})
        hint = "Attach a URI, or a result of session.resources.read(…) or session.prompts.get(…)."
        raise UsageError(f"{brief(attachment)} cannot be attached.", hint=hint)

    async def _offer(self, name: str) -> Resource | ServerPrompt:
        prompts, resources = await self.prompts(), await self.resources()
        try:
            return prompts.named(name)
        except UnknownNameError:
            templates = Resources(tuple(resource for resource in resources if resource.is_template))
            try:
                return templates.named(name)
            except UnknownNameError:
                names = [f"{prompt.server}:{prompt.name}" for prompt in prompts] + [
                    each.uri for each in templates
                ]
                raise UnknownNameError("prompt or template", name, names[:1_000]) from None

    async def _locate(
        self, what: Readable, server: str | None, arguments: Mapping[str, Any]
    ) -> tuple[str, str]:
        resources = await self.resources()
        if isinstance(what, Resource):
            return self._expanded(what, arguments)
        if isinstance(what, ContentPart):
            if not what.uri:
                raise UsageError("This part of a result is not a link.", hint="Links have a uri.")
            server = server or self._server_of(what)
            what = what.uri
        if not isinstance(what, str):
            raise UsageError(
                f"{brief(what)} cannot be read.", hint="Give a resource's URI or name."
            )
        if server is not None and server not in self.chat.server_manager.resources:
            raise UnknownNameError("server", server, self.chat.server_manager.resources)
        try:
            return self._expanded(resources.named(what, server), arguments)
        except UnknownNameError:
            if server is None:
                server = self._server_for(what, resources)
            if server is None or not _URI.match(what):
                raise
            return server, what

    def _expanded(self, resource: Resource, arguments: Mapping[str, Any]) -> tuple[str, str]:
        if not resource.is_template:
            if arguments:
                name = next(iter(arguments))
                raise UsageError(
                    f"{shown(resource.uri)} has no parameter {shown(name)}: it is not a template."
                )
            return resource.server, resource.uri
        for name in arguments:
            if name not in (resource.parameters or ()):
                raise UnknownNameError("parameter", name, resource.parameters or ())
        return resource.server, self.chat.server_manager.resources_of(resource.server).expanded(
            resource, arguments
        )

    def _server_for(self, uri: str, resources: Resources) -> str | None:
        """Find the server for a URI that none has listed: by its template, else by its scheme, or
        None if that is not clear.
        """
        scheme = _URI.match(uri)
        readers = self.chat.server_manager.resources
        if scheme is None or (scheme[1] in readers and not uri.startswith(f"{scheme[0]}//")):
            return None
        matching = {
            each.server
            for each in resources
            if each.is_template and readers[each.server].matches(each, uri)
        }
        if len(matching) > 1:
            servers = ", ".join(map(shown, sorted(matching)))
            raise UsageError(
                f"Several servers have a template for {shown(uri)}: {servers}.",
                hint="Pass server=.",
            )
        same_scheme = matching or {
            each.server for each in resources if each.uri.startswith(scheme[0])
        }
        return same_scheme.pop() if len(same_scheme) == 1 else None

    def _server_of(self, link: ContentPart) -> str | None:
        calls: Iterable[ToolCall] = (
            *(call for turn in self.turns() for step in turn.steps for call in step.tool_calls),
            *(direct.call for direct in self.calls.list()),
        )
        servers = {
            call.tool.server
            for call in calls
            if any(part is link or part == link for part in call.content)
        }
        return servers.pop() if len(servers) == 1 else None


class _Offered(NamespaceList[T]):
    """All servers' resources or prompts, as last listed."""

    def __init__(self, service: ResourceService, starter: ServerStarter) -> None:
        self._engine = starter.engine
        self._service = service
        self._starter = starter
        self._complete = True

    @blocking
    async def complete(
        self, name: str, argument: str, text: str = "", /, **others: Any
    ) -> Completions:
        """Return a server's suggestions for a template parameter or a prompt argument.

        Args:
            name: The template, as for `read`, or the prompt, as for `get`.
            argument: The parameter.
            text: The value's beginning.
            others: Values for other parameters, on which the suggestions may depend.

        Returns:
            The suggestions. None if the server makes none.

        Raises:
            UnknownNameError: There is no such template, prompt or parameter.
            ResourceError: The server did not answer.
        """
        return await self._starter.run_shown(self._service.complete(name, argument, text, others))

    complete_async = awaited(complete)


class SessionSkills(NamespaceList[Skill]):
    """The skills of all servers, as last listed: `session.resources.skills`."""

    def __init__(self, service: ResourceService, starter: ServerStarter) -> None:
        self._engine = starter.engine
        self._service = service
        self._starter = starter

    @property
    def now(self) -> Skills:
        """The skills as last listed, as a value."""
        return self._service.known_skills

    @blocking
    async def list(self) -> Skills:
        """List the skills of all servers. Connect those that are not connected yet.

        Returns:
            All of them, each with its price in tokens. A server that could not list its own is in
            `problems`.
        """
        return await self._starter.run_shown(self._service.skills())

    list_async = awaited(list)

    @blocking
    async def read(self, name: str, /, file: str = SKILL_FILE) -> SkillContents:
        """Read a skill, or another file of it, and check its digest. The model is not involved.

        Args:
            name: `server:skill`, or only the skill's name if it is unique.
            file: The file's path in the skill.

        Raises:
            UnknownNameError: There is no such skill or file.
            ResourceError: The server did not give it, or its contents differ from the listing.
        """
        return await self._starter.run_shown(self._service.read_skill(name, file))

    read_async = awaited(read)


class SessionResources(_Offered[Resource]):
    """All servers' resources and templates, as last listed: `session.resources`."""

    def __init__(self, service: ResourceService, starter: ServerStarter) -> None:
        super().__init__(service, starter)
        self._skills = SessionSkills(service, starter)

    @property
    def skills(self) -> SessionSkills:
        """The skills of all servers, as last listed. See https://agentskills.io/specification."""
        return self._skills

    @property
    def now(self) -> Resources:
        """The resources and templates as last listed, as a value."""
        return self._service.last_listed[0]

    @blocking
    async def list(self) -> Resources:
        """List all servers' resources and templates. Connects servers first if needed.

        Returns:
            All of them. A server that could not list its own is named in `problems`.
        """
        return await self._starter.run_shown(self._service.resources())

    list_async = awaited(list)

    @blocking
    async def read(
        self, what: Readable, /, server: str | None = None, **parameters: Any
    ) -> ResourceContents:
        """Read a resource from a server. The model is not involved.

        Args:
            what: Its URI, its name (`server:name`, or only the name if it is unique), one of these,
                or a link in a tool's result.
            server: The server, for a URI that several servers list, or none.
            parameters: Values for a template's parameters.

        Returns:
            The contents: `text`, `data`, and `value`, which is JSON parsed.

        Raises:
            UnknownNameError: There is no such resource.
            UsageError: A parameter is missing, or it is not clear which server is meant.
            ResourceError: The server did not give it.
        """
        return await self._starter.run_shown(self._service.read(what, server, parameters))

    read_async = awaited(read)

    @blocking
    async def subscribe(self, what: Readable, /, server: str | None = None) -> Subscriptions:
        """Have a server report when a resource changes.

        `subscriptions` counts it, and `on_change` listeners are called.

        Args:
            what: The resource, as for `read`.
            server: As for `read`.

        Raises:
            UnknownNameError: There is no such resource.
            ResourceError: The server does not report its changes.
        """
        return await self._starter.run_shown(self._service.follow(what, server, on=True))

    subscribe_async = awaited(subscribe)

    @blocking
    async def unsubscribe(self, what: Readable, /, server: str | None = None) -> Subscriptions:
        """Stop following a resource.

        Args:
            what: The resource, as for `read`.
            server: As for `read`.

        Raises:
            UnknownNameError: There is no such resource.
            ResourceError: The server did not answer.
        """
        return await self._starter.run_shown(self._service.follow(what, server, on=False))

    unsubscribe_async = awaited(unsubscribe)

    @property
    def subscriptions(self) -> Subscriptions:
        """The resources whose changes servers report, and how often each has changed."""
        return self._service.subscriptions


class SessionPrompts(_Offered[ServerPrompt]):
    """All server prompts, as last listed: `session.prompts`."""

    @property
    def now(self) -> Prompts:
        """The prompts as last listed, as a value."""
        return self._service.last_listed[1]

    @blocking
    async def list(self) -> Prompts:
        """List all server prompts. Connects servers first if needed.

        Returns:
            All of them. A server that could not list its own is named in `problems`.
        """
        return await self._starter.run_shown(self._service.prompts())

    list_async = awaited(list)

    @blocking
    async def get(self, name: str, /, **arguments: Any) -> PromptMessages:
        """Return a server prompt's messages, filled in.

        The model is not involved: attach them to a message.

        Args:
            name: `server:name`, or only the name if it is unique.
            arguments: The prompt's arguments.

        Raises:
            UnknownNameError: There is no such prompt or argument.
            UsageError: A required argument is missing.
            ResourceError: The server did not give it.
        """
        return await self._starter.run_shown(self._service.prompt(name, arguments))

    get_async = awaited(get)


def several(attachments: Any) -> list[Any]:
    """Convert the option `attach`, which can be one attachment alone or None, to a list."""
    if attachments is None:
        return []
    alone = isinstance(attachments, str | ResourceContents | PromptMessages) or not isinstance(
        attachments, Iterable
    )
    return [attachments] if alone else list(attachments)
