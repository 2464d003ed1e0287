"""A session's servers as one MCP server, whatever carries its messages.

In versions with a handshake, a client's found tools belong to its connection, and questions to its
person go back over it. In the version without one, no request knows about another: found tools are
called through `call_tool`, and questions are part of the answer to a request, see `Rounds`. Over
stdio there is one client, which has both.
"""

from __future__ import annotations

import asyncio
import logging
import operator
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextvars import Token
from functools import partial
from importlib.metadata import version
from typing import Any, get_args

import mcp_types as mcp
from fastmcp.skills.models import (
    GetSkillParams,
    GetSkillResult,
    ListSkillsParams,
    ListSkillsResult,
    MCPSkill,
)
from mcp.server.connection import Connection, allowed_log_levels
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from casual_mcp_nb.base.limits import encodable
from casual_mcp_nb.base.mcp import SKILLS_EXTENSION as SKILLS
from casual_mcp_nb.base.tool import ToolName, ToolSpec
from casual_mcp_nb.conversation.event import (
    BROWSE_TOOLKIT,
    CALL_TOOL,
    LOAD_TOOLS,
    RUN_CODE,
    SEARCH_TOOLS,
    Notice,
)
from casual_mcp_nb.discovery.toolsets import resolve_tool_set
from casual_mcp_nb.engine.events import Observers
from casual_mcp_nb.engine.instructions import with_instructions
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.engine.outcomes import CallOutcome
from casual_mcp_nb.engine.tool_client import ToolClient, tool_options
from casual_mcp_nb.engine.tool_view import ToolView
from casual_mcp_nb.errors import CasualMcpError, ResourceError, shown
from casual_mcp_nb.notebook.loop import EngineThread
from casual_mcp_nb.notebook.starting import ServerStarter
from casual_mcp_nb.serve.mcp_offers import (
    Kind,
    Offers,
    checked_schema,
    offered_tool,
    outcome_to_mcp,
    text_result,
    unique_names,
)
from casual_mcp_nb.serve.mcp_questions import (
    HostApproval,
    HostCall,
    Rounds,
    allowed_by_host,
    approve,
)
from casual_mcp_nb.servers.askers import ASKER, Asker, ForwardedRequest, SeveralClients
from casual_mcp_nb.servers.calls import CHECK_SECONDS, NO_STRUCTURED, OutputCheck, OutputNote
from casual_mcp_nb.servers.convert import with_note
from casual_mcp_nb.servers.resources import ServerResources
from casual_mcp_nb.servers.sdk_privates import connection_of
from casual_mcp_nb.servers.to_mcp import (
    completions_to_mcp,
    contents_to_mcp,
    messages_to_mcp,
    prompt_to_mcp,
    resource_to_mcp,
    template_to_mcp,
)

logger = logging.getLogger(__name__)

NAME = "casual-mcp-nb"
PAGE = 1_000
"""How many items a listing has before it continues on the next page."""
MAX_CALLS = 64
"""How many requests run at a time for one client, and for all clients without a connection
together.
"""
MAX_LISTENERS = 100
"""How many clients without a connection listen to changes at a time."""
SENT_LEVEL: mcp.LoggingLevel = "info"
"""The least severe log messages that a client gets by default."""
_LEVELS: tuple[mcp.LoggingLevel, ...] = get_args(mcp.LoggingLevel)
_HOST = "casual_mcp_nb"

_PASSED_CODES = (mcp.INVALID_PARAMS, -32002)
"""Codes for errors about a name in a request that does not exist."""

Context = ServerRequestContext[Any, Any]


class ToolServer:
    """Serves a session's tools, resources, prompts and skills to MCP clients, on the engine's loop.

    Args:
        plain_names: Whether tools and prompts keep their names where only one server has the name.
        single: Whether there is only one client, so that it is recognized at each request.
    """

    def __init__(
        self,
        starter: ServerStarter,
        observers: Observers,
        engine: EngineThread,
        options: TurnOptions,
        approval: HostApproval = "ask",
        *,
        plain_names: bool = False,
        single: bool = False,
    ) -> None:
        self._starter = starter
        self._chat = starter.chat
        self._engine = engine
        self._options = options
        self._approval: HostApproval = approval
        self._plain_names = plain_names
        self._offers = Offers(self._offering, plain_names, self._changed)
        self._rounds = Rounds()
        self._outputs = OutputCheck(self._chat.server_manager.worker, encodable, CHECK_SECONDS)
        self._bus = InMemorySubscriptionBus()
        self._streams = ListenHandler(self._bus, max_subscriptions=MAX_LISTENERS)
        self._hosts: set[_Host] = set()
        self._single = self._new_host(None) if single else None
        self._stateless_calls = 0
        self._listeners = 0
        self._looking: asyncio.Task[None] | None = None
        self._changed_since = False
        self._announced: dict[str, Any] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._ends: list[Callable[[], None]] = [
            observers.changes.add(self._changed),
            starter.chat.selection.watch(self._changed),
            starter.chat.server_logs.add(self._logged),
        ]
        self.server: Server[Any] = _Server(
            NAME,
            version=version(NAME),
            on_list_tools=self._list,
            on_call_tool=self._call,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read,
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self._unsubscribe,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_completion=self._complete,
            on_subscriptions_listen=self._listen,
            get_tool_input_schema=self._schema,
        )
        self.server.add_request_handler(
            "logging/setLevel", mcp.SetLevelRequestParams, self._set_level
        )
        self.server.add_request_handler("skills/list", ListSkillsParams, self._list_skills)
        self.server.add_request_handler("skills/get", GetSkillParams, self._get_skill)
        self.server.extensions[SKILLS] = {}
        self.server.middleware.append(self._with_instructions)

    @property
    def clients(self) -> int:
        """How many clients have listed or called tools and are still connected."""
        return len(self._hosts)

    def view(self) -> ToolView:
        """Compile the view to offer from the tools known so far, before anybody has searched."""
        return self._chat.current_view(self._options.applied_to(self._chat.selection))

    def close(self) -> None:
        """Stop telling clients about changes. Harmless if called twice."""
        while self._ends:
            self._ends.pop()()
        if self._looking is not None:
            self._looking.cancel()
        self._rounds.close()
        self._offers.close()
        self._streams.close()

    def _offering(self) -> Mapping[str, ServerResources]:
        """List the servers whose resources and prompts are offered: those that the selection
        includes, even in part.
        """
        selection = self._options.applied_to(self._chat.selection)
        tool_set = resolve_tool_set(selection.tool_set, self._chat.tool_sets)
        offering = {}
        for name, server in self._chat.server_manager.resources.items():
            in_tool_set = tool_set is None or tool_set.servers.get(name)
            if in_tool_set and selection.servers.get(name) != "off":
                offering[name] = server
        return offering

    async def _with_instructions(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        if ctx.method in ("initialize", "server/discover"):
            # What is known by now: a host over stdio does not wait for the servers.
            self.server.instructions = self._instructions(ctx)
        return await call_next(ctx)

    def _instructions(self, context: Context) -> str:
        view = self._chat.current_view(self._options_for(context).applied_to(self._chat.selection))
        how = ["The tools, resources, prompts and skills of several MCP servers."]
        if not self._plain_names:
            how.append("Names of tools and prompts begin with their server's: server__tool.")
        if view.selection.discovery is not False:
            # The servers may not have listed their tools yet, so it is not known whether there is
            # anything to find.
            if view.selection.strategy == "browse":
                finder = BROWSE_TOOLKIT
                finding = f"shows more, by server, and {LOAD_TOOLS} loads some of them"
            else:
                finder = SEARCH_TOOLS
                finding = (
                    "finds more: by what they do, by server or by name. Its description names the"
                    " servers"
                )
            how.append(f"If {finder} is listed, not all tools are. {finder} {finding}.")
            if view.selection.delivery == "bridge":
                how.append(
                    f"Call what you find through {CALL_TOOL}, with its name and its arguments."
                )
            elif view.coded:
                how.append(f"Call what you find in programs of {RUN_CODE}.")
            else:
                how.append("What you find joins the list of tools, and is called as those are.")
        return with_instructions(" ".join(how), view, self._chat.server_manager)

    def _schema(self, name: str) -> Mapping[str, Any] | None:
        tool = self.view().catalog.get(name)
        if tool is None:
            return None
        return tool.input_schema

    async def _list(
        self, context: Context, params: mcp.PaginatedRequestParams | None
    ) -> mcp.ListToolsResult:
        host = self._host(context)
        try:
            tools = await host.client.offered()
        except CasualMcpError as error:
            raise MCPError(mcp.INTERNAL_ERROR, str(error)) from None
        page, more = _page(params, self._named(tools))
        if params is None or not params.cursor:
            host.listed = host.announced = _key(tools)
        modern = _is_modern(context)
        return mcp.ListToolsResult(
            tools=[offered_tool(tool, name, modern) for tool, name in page], next_cursor=more
        )

    def _named(self, tools: tuple[ToolSpec, ...]) -> list[tuple[ToolSpec, str]]:
        """Pair tools with the names under which they are listed."""
        if not self._plain_names:
            return [(tool, tool.wire_name) for tool in tools]
        named = []
        plain = unique_names([ToolName(tool.server, tool.name) for tool in tools], plain=True)
        for tool, name in zip(tools, plain, strict=True):
            named.append((tool, name if name == tool.name else tool.wire_name))
        return named

    async def _call(self, context: Context, params: mcp.CallToolRequestParams) -> Any:
        return await self._run(context, params, params.name, partial(self._called, params=params))

    async def _called(
        self, host: _Host, call: HostCall, reports: _Reports, *, params: mcp.CallToolRequestParams
    ) -> Any:
        called: list[ToolName] = []

        def on_resolved(tool: ToolName) -> None:
            called.append(tool)
            self._forward(call, tool.server, tool.tool, params)

        try:
            outcome = await host.client.call(
                params.name,
                dict(params.arguments or {}),
                asker=call,
                on_progress=reports.progress,
                on_resolved=on_resolved,
            )
            if (question := _forwarded_question(call)) is not None:
                return question
            outdated = host.outdated()
            await reports.sent()
            if outdated:
                # Before the answer, and where it will be read, so that the tools are there when the
                # model wants to call them.
                if _is_modern(call.context):
                    await self._bus.publish(ToolsListChanged())
                else:
                    await call.context.session.send_notification(
                        mcp.ToolListChangedNotification(), call.context.request_id
                    )
            modern = _is_modern(call.context)
            return outcome_to_mcp(await self._checked(outcome, called[0], modern), modern)
        except MCPError:
            raise
        except CasualMcpError as error:
            return text_result(f"Error: {error}")
        except Exception:
            logger.exception("A host's call failed.")
            return text_result("Error: the call failed. The log of this server has the reason.")

    async def _checked(self, outcome: CallOutcome, name: ToolName, modern: bool) -> CallOutcome:
        """Fail a result that its tool's output schema does not permit, which a client would refuse
        without showing it.

        The results of servers were compared with it when they came. A stub can answer anything.
        """
        result, tool = outcome.result, self.view().catalog.get(name)
        schema = checked_schema(tool, modern) if tool is not None else None
        if result is None or schema is None or result.is_error:
            return outcome
        note: OutputNote | None = NO_STRUCTURED
        if result.structured is not None:
            if not result.mocked:
                return outcome
            note = await self._outputs.note(schema, result.structured)
        if note is None:
            return outcome
        return outcome._replace(result=with_note(result, note.text, failed=note.failed))

    async def _list_resources(
        self, context: Context, params: mcp.PaginatedRequestParams | None
    ) -> mcp.ListResourcesResult:
        listed = await self._listed(context, "resources")
        page, more = _page(params, [each for each in listed if not each.is_template])
        return mcp.ListResourcesResult(resources=list(map(resource_to_mcp, page)), next_cursor=more)

    async def _list_templates(
        self, context: Context, params: mcp.PaginatedRequestParams | None
    ) -> mcp.ListResourceTemplatesResult:
        listed = await self._listed(context, "resources")
        page, more = _page(params, [each for each in listed if each.is_template])
        return mcp.ListResourceTemplatesResult(
            resource_templates=list(map(template_to_mcp, page)), next_cursor=more
        )

    async def _list_prompts(
        self, context: Context, params: mcp.PaginatedRequestParams | None
    ) -> mcp.ListPromptsResult:
        listed = await self._listed(context, "prompts")
        page, more = _page(params, list(listed.items()))
        return mcp.ListPromptsResult(
            prompts=[prompt_to_mcp(name, prompt) for name, prompt in page], next_cursor=more
        )

    async def _list_skills(self, context: Context, params: ListSkillsParams) -> ListSkillsResult:
        page, more = _page(params, await self._skills(context, "skills/list"))
        return ListSkillsResult(skills=page, next_cursor=more)

    async def _get_skill(self, context: Context, params: GetSkillParams) -> GetSkillResult:
        for skill in await self._skills(context, "skills/get"):
            if skill.uri == params.uri:
                return GetSkillResult(skill=skill)
        raise MCPError(
            mcp.INVALID_PARAMS, f"No server has the skill {shown(params.uri)}.", {"uri": params.uri}
        )

    async def _skills(self, context: Context, method: str) -> list[MCPSkill]:
        if not _is_modern(context):
            raise MCPError(mcp.METHOD_NOT_FOUND, "Method not found", method)
        skills: list[MCPSkill] = await self._listed(context, "skills")
        return skills

    async def _listed(self, context: Context, kind: Kind) -> Any:
        await self._admit()
        listed = await getattr(self._offers, kind)()
        self._announced.setdefault(kind, self._offers.listed(kind))
        self._host(context).lists.add(kind)
        return listed

    async def _read(self, context: Context, params: mcp.ReadResourceRequestParams) -> Any:
        uri = str(params.uri)

        async def find() -> _Source:
            name, server = await self._offers.owner(uri)
            return name, uri, partial(self._offers.read, server, uri)

        return await self._fetch(context, params, {"uri": uri}, find, contents_to_mcp)

    async def _get_prompt(self, context: Context, params: mcp.GetPromptRequestParams) -> Any:
        async def find() -> _Source:
            prompt, server = await self._offers.prompt(params.name)
            get = partial(server.prompt, prompt.name, dict(params.arguments or {}))
            return prompt.server, prompt.name, get

        return await self._fetch(context, params, {"name": params.name}, find, messages_to_mcp)

    async def _fetch(
        self,
        context: Context,
        params: Any,
        about: Mapping[str, str],
        find: Callable[[], Awaitable[_Source]],
        to_mcp: Callable[[Any], Any],
    ) -> Any:
        """Get something from the server that has it, and turn our errors into protocol errors."""

        async def fetch(_host: _Host, call: HostCall, reports: _Reports) -> Any:
            token: Token[Asker | None] = ASKER.set(call)
            try:
                server, name, get = await find()
                self._forward(call, server, name, params)
                with self._chat.server_manager.running_calls.noted(server):
                    value = await get()
                await reports.sent()
                return _forwarded_question(call) or to_mcp(value)
            except CasualMcpError as error:
                _forwarded_question(call)
                raise _refusal(error, about) from None
            finally:
                ASKER.reset(token)

        return await self._run(context, params, next(iter(about.values())), fetch)

    async def _complete(
        self, _context: Context, params: mcp.CompleteRequestParams
    ) -> mcp.CompleteResult:
        await self._admit()
        try:
            return completions_to_mcp(await self._offers.complete(params))
        except CasualMcpError as error:
            raise _refusal(error, {}) from None

    async def _subscribe(
        self, context: Context, params: mcp.SubscribeRequestParams
    ) -> mcp.EmptyResult:
        await self._admit()
        try:
            await self._offers.follow(str(params.uri), self._host(context))
        except CasualMcpError as error:
            raise _refusal(error, {"uri": str(params.uri)}) from None
        return mcp.EmptyResult()

    async def _unsubscribe(
        self, context: Context, params: mcp.UnsubscribeRequestParams
    ) -> mcp.EmptyResult:
        await self._offers.unfollow(str(params.uri), self._host(context))
        return mcp.EmptyResult()

    async def _set_level(
        self, context: Context, params: mcp.SetLevelRequestParams
    ) -> mcp.EmptyResult:
        self._host(context).level = params.level
        levels = [host.level for host in self._hosts]
        await self._chat.server_manager.set_log_level(min(levels, key=_LEVELS.index))
        return mcp.EmptyResult()

    async def _listen(
        self, context: Context, params: mcp.SubscriptionsListenRequestParams
    ) -> mcp.SubscriptionsListenResult:
        """Tell a client without a connection about changes, for as long as it reads the answer."""
        await self._admit()
        wanted, listener = params.notifications, object()
        kinds: list[Kind] = []
        if wanted.prompts_list_changed:
            kinds.append("prompts")
        if wanted.resources_list_changed:
            kinds += ("resources", "skills")
        followed: list[str] = []
        self._listeners += 1
        try:
            if wanted.tools_list_changed:
                self._announced.setdefault("tools", self._tools_key())
            await asyncio.gather(*(getattr(self._offers, kind)() for kind in kinds))
            for kind in kinds:
                self._announced.setdefault(kind, self._offers.listed(kind))
            for uri in (wanted.resource_subscriptions or [])[:MAX_LISTENERS]:
                try:
                    await self._offers.follow(uri, listener)
                    followed.append(uri)
                except (CasualMcpError, MCPError) as error:
                    logger.info("A resource is not followed: %s", error)
            honored = wanted.model_copy(update={"resource_subscriptions": followed or None})
            return await self._streams(
                context, params.model_copy(update={"notifications": honored})
            )
        finally:
            self._listeners -= 1
            if followed:
                self._later(self._offers.unfollow_all(listener))

    async def _admit(self) -> None:
        """Wait until the servers may be used, and until those that still start have done so.

        A host over stdio does not wait for that. Its first listings would lack a slow server.
        """
        try:
            await self._starter.admit()
            if self._chat.server_manager.waiting:
                await self._chat.view()
        except CasualMcpError as error:
            raise MCPError(mcp.INTERNAL_ERROR, str(error)) from None

    async def _run(self, context: Context, params: Any, name: str, work: _Work) -> Any:
        """Do a request's work.

        In the version without a handshake, until somebody is asked something.
        """
        await self._admit()
        modern, request = _is_modern(context), (context.method, name)
        host = self._host(context)
        stateless = host not in self._hosts
        running = self._stateless_calls if stateless else host.calls
        if running >= MAX_CALLS:
            text = (
                f"at most {MAX_CALLS} requests run at a time. Make it again when another one has"
                " ended"
            )
            if context.method == "tools/call":
                return text_result(f"Error: {text}.")
            raise MCPError(mcp.INTERNAL_ERROR, text)
        level: mcp.LoggingLevel | None = host.level
        if modern:
            allowed = allowed_log_levels(context.protocol_version, context.meta)
            level = min(allowed, key=_LEVELS.index, default=None)
        call = HostCall(host, context, self._approval, level, remembers=not stateless)
        reports = _Reports(call)
        call.log = reports.log

        async def run() -> Any:
            try:
                return await work(host, call, reports)
            finally:
                reports.close()

        host.calls += 1
        self._stateless_calls += stateless
        try:
            if not modern:
                return await run()
            if self._rounds.has(params.request_state):
                return await self._rounds.resume(context, request, params)
            return await self._rounds.run(call, request, run())
        finally:
            # A request that waits for an answer is counted again when that comes.
            host.calls -= 1
            self._stateless_calls -= stateless

    def _forward(self, call: HostCall, server: str, name: str, params: Any) -> None:
        """Pass a request unchanged to a server with the same version, unless this session has to
        ask something itself.
        """
        if call.modern:
            call.forwarded = ForwardedRequest(
                server, name, params.input_responses, params.request_state
            )

    def _options_for(self, context: Context) -> TurnOptions:
        """Build the options for a client.

        One that is not recognized later calls found tools through `call_tool`.
        """
        given = self._options.given
        if self._is_recognized(context) or given.get("discovery") is False:
            return self._options
        tool_set: Any = given.get("tool_set")
        return tool_options(tool_set, bridge=True)

    def _is_recognized(self, context: Context) -> bool:
        """Check whether later requests of a client are known to be its own."""
        if self._single is not None:
            return True
        return not _is_modern(context) and connection_of(context.session) is not None

    def _host(self, context: Context) -> _Host:
        """Find the client that makes a request. One that is not recognized is new each time."""
        connection = connection_of(context.session)
        if self._single is not None and (_is_modern(context) or connection is None):
            self._hosts.add(self._single)
            return self._single
        if connection is None:
            return self._new_host(None, self._options_for(context), remembers=False)
        host: _Host | None = connection.state.get(_HOST)
        if host is not None:
            return host
        if _is_modern(context):
            host = self._new_host(None, self._options_for(context), remembers=False)
        else:
            host = self._new_host(connection)
            self._hosts.add(host)
            connection.exit_stack.callback(self._gone, host)
        connection.state[_HOST] = host
        return host

    def _new_host(
        self,
        connection: Connection | None,
        options: TurnOptions | None = None,
        remembers: bool = True,
    ) -> _Host:
        client = ToolClient(
            self._chat,
            options or self._options,
            self._chat.consent.apart(approve, lambda: True, allowed_by_host),
            self._starter.admit,
            _log,
            remembers,
        )
        return _Host(client, connection)

    def _gone(self, host: _Host) -> None:
        self._hosts.discard(host)
        self._later(self._offers.unfollow_all(host))

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        # The loop itself holds no task.
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _logged(self, server: str, level: str, text: str) -> None:
        """Pass on a server's log message: to the client whose call it runs, or to all that are
        connected if it runs none.
        """
        running = self._chat.server_manager.running_calls
        try:
            asker = running.asker(server)
        except SeveralClients:
            return
        severity: mcp.LoggingLevel = level if level in _LEVELS else "info"
        message = mcp.LoggingMessageNotification(
            params=mcp.LoggingMessageNotificationParams(level=severity, logger=server, data=text)
        )
        if isinstance(asker, HostCall):
            if asker.level is not None and _LEVELS.index(severity) >= _LEVELS.index(asker.level):
                asker.log(message)
        elif not running.is_running(server) and server in self._offering():
            for host in self._hosts:
                if _LEVELS.index(severity) >= _LEVELS.index(host.level):
                    host.notify(message)

    def _changed(self) -> None:
        """Note a change. Called on any thread, often."""
        self._engine.call_later(0, self._start_telling)

    def _start_telling(self) -> None:
        self._changed_since = True
        wanted = self._hosts or self._listeners
        if wanted and self._ends and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._tell())

    async def _tell(self) -> None:
        """Tell clients about lists and resources that have changed."""
        while self._changed_since:
            self._changed_since = False
            for uri, followers in self._offers.updated():
                for follower in followers:
                    if isinstance(follower, _Host):
                        params = mcp.ResourceUpdatedNotificationParams(uri=uri)
                        follower.notify(mcp.ResourceUpdatedNotification(params=params))
                await self._bus.publish(ResourceUpdated(uri))
            for kind in get_args(Kind):
                if kind in self._announced:
                    await getattr(self._offers, kind)()
                    if (now := self._offers.listed(kind)) != self._announced[kind]:
                        self._announced[kind] = now
                        await self._announce(kind)
            try:
                await self._chat.tools.relist()
            except CasualMcpError:
                return
            for host in tuple(self._hosts):
                if host.news():
                    host.notify(mcp.ToolListChangedNotification())
            if "tools" not in self._announced:
                continue
            key = self._tools_key()
            if key != self._announced["tools"]:
                self._announced["tools"] = key
                await self._bus.publish(ToolsListChanged())

    async def _announce(self, kind: Kind) -> None:
        change: PromptsListChanged | ResourcesListChanged = ResourcesListChanged()
        notification: mcp.ServerNotification = mcp.ResourceListChangedNotification()
        if kind == "prompts":
            change, notification = PromptsListChanged(), mcp.PromptListChangedNotification()
        await self._bus.publish(change)
        for host in self._hosts:
            if kind in host.lists:
                host.notify(notification)

    def _tools_key(self) -> tuple[str, ...]:
        return _key(self.view().loaded) + _key(self.view().deferred)


class _Host:
    """A client. Without a connection, it gets no notifications: it listens to changes, see
    `ToolServer._listen`.

    Attributes:
        listed: The tools that it has listed, or None if it has not.
        announced: The tools that it has listed, or was told of by the last notification.
        lists: The other lists that it has read.
        calls: How many of its requests run.
    """

    def __init__(self, client: ToolClient, connection: Connection | None) -> None:
        self.client = client
        self.listed: tuple[str, ...] | None = None
        self.announced: tuple[str, ...] | None = None
        self.lists: set[Kind] = set()
        self.calls = 0
        self.level: mcp.LoggingLevel = SENT_LEVEL
        self._connection = connection
        self._notifications = _Outbox(self._send)
        if connection is not None:
            connection.exit_stack.callback(self._notifications.close)

    def outdated(self) -> bool:
        """Check whether the client's list is outdated.

        A notification on its own stream may not arrive.
        """
        now = _key(self.client.known_tools())
        if self.listed is None or self.listed == now:
            return False
        self.announced = now
        return True

    def news(self) -> bool:
        """Check, once, whether the list has changed since the client read it."""
        return self.announced != _key(self.client.known_tools()) and self.outdated()

    def notify(self, notification: Any) -> None:
        """Send a notification. A client that does not read gets only the last ones, each once."""
        if self._connection is not None and notification not in self._notifications.unsent:
            self._notifications.add(notification)

    async def _send(self, notification: Any) -> None:
        if self._connection is not None:
            data = notification.model_dump(by_alias=True, mode="json", exclude_none=True)
            await self._connection.notify(data["method"], data.get("params"))


class _Outbox:
    """Sends one item after the other.

    Where they come faster than they are read, the oldest are left out.
    """

    def __init__(self, send: Callable[[Any], Awaitable[None]]) -> None:
        self._send = send
        self.unsent: deque[Any] = deque(maxlen=100)
        self._sending: asyncio.Task[None] | None = None

    def add(self, item: Any) -> None:
        self.unsent.append(item)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_all())

    async def sent(self) -> None:
        if self._sending is not None:
            await self._sending

    def close(self) -> None:
        if self._sending is not None:
            self._sending.cancel()

    async def _send_all(self) -> None:
        while self.unsent:
            await self._send(self.unsent.popleft())


class _Reports(_Outbox):
    """Sends a call's progress and log messages, in order."""

    def __init__(self, call: HostCall) -> None:
        super().__init__(operator.call)
        self._call = call

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        session = self._call.context.session
        self.add(partial(session.report_progress, progress, total, message))

    def log(self, message: mcp.LoggingMessageNotification) -> None:
        context = self._call.context
        self.add(partial(context.session.send_notification, message, context.request_id))


_Source = tuple[str, str, Callable[[], Awaitable[Any]]]
"""A server, a name there, and the function that gets it."""
_Work = Callable[[_Host, HostCall, _Reports], Awaitable[Any]]


class _Server(Server[Any]):
    def create_initialization_options(self, *_args: Any, **_kwargs: Any) -> InitializationOptions:
        # The transport over HTTP gives no options. No version with a handshake has the extension
        # for skills.
        return super().create_initialization_options(
            NotificationOptions(True, True, True), extensions={}
        )


def _forwarded_question(call: HostCall) -> mcp.InputRequiredResult | None:
    """Find the question that a server with the same version asks first.

    Raise it, or an error if the host cannot answer.
    """
    forwarded = call.forwarded
    if forwarded is None:
        return None
    if forwarded.error is not None:
        raise forwarded.error
    if forwarded.asked is not None and (missing := call.missing(forwarded.asked)):
        text = (
            f"The server requires features that this client has not declared: {', '.join(missing)}."
        )
        needed: dict[str, Any] = {"requiredCapabilities": {name: {} for name in missing}}
        raise MCPError(mcp.MISSING_REQUIRED_CLIENT_CAPABILITY, text, needed)
    return forwarded.asked


def _refusal(error: CasualMcpError, about: Mapping[str, Any]) -> MCPError:
    code = mcp.INTERNAL_ERROR
    if isinstance(error, ResourceError) and error.code in _PASSED_CODES:
        code = error.code
    return MCPError(code, str(error), dict(about) or None)


def _page(
    params: mcp.PaginatedRequestParams | None, items: list[Any]
) -> tuple[list[Any], str | None]:
    """Cut a page out of a listing. The second value is the next page's cursor."""
    cursor = params.cursor if params else None
    if cursor is not None and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10):
        raise MCPError(mcp.INVALID_PARAMS, "this cursor is not from this server")
    start = int(cursor or 0)
    end = start + PAGE
    more = str(end) if end < len(items) else None
    return items[start:end], more


def _is_modern(context: Context) -> bool:
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


def _key(tools: tuple[ToolSpec, ...]) -> tuple[str, ...]:
    return tuple(tool.digest for tool in tools)


def _log(notice: Notice) -> None:
    logger.warning("%s", notice.text)
