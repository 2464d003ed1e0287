"""The resources, prompts and skills of a session's servers: list, read and follow them, and attach
them to messages.
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
    Subscription,
    Subscriptions,
)
from casual_mcp_nb.base.tool import full_names
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
    """Lists and reads what servers offer besides tools, and keeps the next message's attachments.

    Its coroutines run on the engine's loop and connect the servers. The rest is thread-safe.

    Attributes:
        calls: The person's own calls of tools, whose results can have links to resources.
        turns: Returns the turns, whose results can have links too.
        pending: The attachments for the next message that is sent in a panel, by id.
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
        """List the skills of the servers that are connected, without waiting for the others."""
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
        resources: list[Resource] = []
        prompts: list[ServerPrompt] = []
        for server in self.chat.server_manager.resources.values():
            listed_resources, listed_prompts = server.last_listed
            resources.extend(listed_resources)
            prompts.extend(listed_prompts)
        last_resources, last_prompts = self._last_resources, self._last_prompts
        return (
            Resources(tuple(resources), last_resources.problems, listed=last_resources.listed),
            Prompts(tuple(prompts), last_prompts.problems, listed=last_prompts.listed),
        )

    def known_soon(self, seconds: float) -> tuple[Resources, Prompts]:
        """List resources and prompts as far as they are known soon.

        Args:
            seconds: How long to wait for the connected servers to list theirs.
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
        """Drop an attachment that was kept for the next message. Harmless if it is gone."""
        self.pending = {key: attachment for key, attachment in self.pending.items() if key != id}
        self.observers.changes.notify()

    def take_pending(self) -> dict[str, ResourceContents | PromptMessages]:
        """Remove and return the attachments for the next message."""
        pending, self.pending = self.pending, {}
        return pending

    def restore_pending(self, pending: Mapping[str, ResourceContents | PromptMessages]) -> None:
        """Keep attachments again, because their message could not be sent."""
        self.pending = {**pending, **self.pending}
        self.observers.changes.notify()

    @property
    def subscriptions(self) -> Subscriptions:
        """The resources whose changes servers report."""
        subscriptions: list[Subscription] = []
        for server in self.chat.server_manager.resources.values():
            subscriptions.extend(server.subscriptions.all)
        return Subscriptions(tuple(subscriptions))

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
        reader = self.chat.server_manager.resources_of(prompt.server)
        async with self.questions.prompt_on():
            return await reader.prompt(prompt.name, _texts(arguments))

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
        reader = self.chat.server_manager.resources_of(offer.server)
        return await reader.complete(offer, argument, text, _texts(others))

    async def follow(self, what: Readable, server: str | None, *, on: bool) -> Subscriptions:
        """Begin or end to follow a resource's changes, see `SessionResources.subscribe`."""
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
        """Insert a message with the attached resources and prompts before the others.

        Args:
            messages: The messages.
            attachments: The option `attach`: one attachment, several, or None.

        Raises:
            UsageError: Something cannot be attached.
            ResourceError: A server did not give it.
        """
        given = several(attachments)
        if not given:
            return messages
        contents = await asyncio.gather(*map(self._read_attachment, given))
        # A limit of 0 means that there is none.
        limit = self.chat.limits.result_tokens or sys.maxsize
        message = await asyncio.to_thread(attached, contents, limit)
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
        """Find a prompt or a template."""
        prompts, resources = await self.prompts(), await self.resources()
        templates = Resources(tuple(resource for resource in resources if resource.is_template))
        with suppress(UnknownNameError):
            return prompts.named(name)
        with suppress(UnknownNameError):
            return templates.named(name)
        names = full_names(prompts)
        names += [template.uri for template in templates]
        raise UnknownNameError("prompt or template", name, names[:1_000])

    async def _locate(
        self, what: Readable, server: str | None, arguments: Mapping[str, Any]
    ) -> tuple[str, str]:
        """Find the server and the URI of a resource."""
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
        """Fill in a template's parameters. Returns the server and the URI."""
        if not resource.is_template:
            if arguments:
                name = next(iter(arguments))
                raise UsageError(
                    f"{shown(resource.uri)} has no parameter {shown(name)}: it is not a template."
                )
            return resource.server, resource.uri
        parameters = resource.parameters or ()
        for name in arguments:
            if name not in parameters:
                raise UnknownNameError("parameter", name, parameters)
        reader = self.chat.server_manager.resources_of(resource.server)
        return resource.server, reader.expanded(resource, arguments)

    def _server_for(self, uri: str, resources: Resources) -> str | None:
        """Find the server for a URI that none has listed.

        It is the one with a template for it, or else the only one with resources of its scheme.
        None if that is not clear.
        """
        scheme = _URI.match(uri)
        readers = self.chat.server_manager.resources
        if scheme is None:
            return None
        if scheme[1] in readers and not uri.startswith(f"{scheme[0]}//"):
            # It is no URI, but a server with a resource's name: `server:name`.
            return None
        matching: set[str] = set()
        same_scheme: set[str] = set()
        for each in resources:
            if each.is_template and readers[each.server].matches(each, uri):
                matching.add(each.server)
            if each.uri.startswith(scheme[0]):
                same_scheme.add(each.server)
        if len(matching) > 1:
            servers = ", ".join(map(shown, sorted(matching)))
            raise UsageError(
                f"Several servers have a template for {shown(uri)}: {servers}.",
                hint="Pass server=.",
            )
        return _only(matching or same_scheme)

    def _server_of(self, link: ContentPart) -> str | None:
        """Find the server in whose results a link is. None if that is not clear."""
        calls: list[ToolCall] = []
        for turn in self.turns():
            for step in turn.steps:
                calls.extend(step.tool_calls)
        for direct in self.calls.list():
            calls.append(direct.call)
        servers: set[str] = set()
        for call in calls:
            if link in call.content:
                servers.add(call.tool.server)
        return _only(servers)


def _only(names: set[str]) -> str | None:
    """Return the only name in a set. None if there are none or several."""
    if len(names) != 1:
        return None
    return next(iter(names))


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Write values as texts, without those that are None."""
    texts: dict[str, str] = {}
    for name, value in values.items():
        if value is not None:
            texts[name] = str(value)
    return texts


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
    if isinstance(attachments, str | ResourceContents | PromptMessages):
        return [attachments]
    if not isinstance(attachments, Iterable):
        return [attachments]
    return list(attachments)
