"""What a host is offered, and questions for its person: whether a call may run, and servers' own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from mimetypes import guess_type
from typing import Any, Literal, TypeVar
from urllib.parse import quote, unquote

import mcp_types as mcp
from fastmcp.skills.models import MCPSkill
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.content import ContentPart, ToolResult
from casual_mcp_nb.base.limits import encodable
from casual_mcp_nb.base.mcp import (
    SKILL_FILE,
    Completions,
    NobodyToAsk,
    QuestionAnswer,
    Resource,
    ResourceContents,
    ServerPrompt,
    ServerQuestion,
    Skill,
)
from casual_mcp_nb.base.tool import ToolAnnotations, ToolName, ToolSpec, wire_name
from casual_mcp_nb.conversation.event import SYNTHETIC
from casual_mcp_nb.conversation.step import is_program
from casual_mcp_nb.engine.consent import ApprovalRequest, Decision
from casual_mcp_nb.engine.outcomes import CallOutcome
from casual_mcp_nb.engine.results import STRUCTURED
from casual_mcp_nb.errors import CasualMcpError, ServerError, shown
from casual_mcp_nb.servers.askers import ASKER, ForwardedRequest, asked_by
from casual_mcp_nb.servers.resources import ServerResources
from casual_mcp_nb.servers.to_mcp import annotations_to_mcp, blocks, tool_to_mcp

T = TypeVar("T")


HostApproval = Literal["ask", "host"]
"""Calls for which a policy requires approval: `ask` asks through the host, and denies them where it
cannot; `host` leaves it to the host, which asks before each call as it sees fit.
"""

MAX_SHOWN = 20_000
"""How long arguments may be that somebody is asked to approve. Longer ones could hide something."""
MAX_ROOTS = 100
MAX_WAITING = 64
"""How many requests without a connection wait for an answer at a time.

Beyond that the oldest is cancelled.
"""
ANSWER_SECONDS = 600.0
"""How long such a request waits until the host makes it again with the answers."""
ONCE, ALWAYS, DENY = "allow this call", "allow this tool from now on", "deny"
_STATE = "casual-mcp-nb:"
"""Prefix for the state of requests that wait here. A server's state is passed on as it is."""


def _form(*answers: str) -> dict[str, Any]:
    field = {"type": "string", "title": "May it run?", "enum": [*answers, DENY], "default": DENY}
    return {"type": "object", "properties": {"answer": field}, "required": ["answer"]}


@dataclass(eq=False)
class HostCall:
    """A request that a host makes. An `Asker`.

    `context` is the request, or the one with which the host answered the last question, and `level`
    the least severe log message that it wants. If it `remembers`, "from now on" is a possible
    answer. `log` sends a message with the answer.
    """

    client: object
    context: ServerRequestContext[Any, Any]
    approval: HostApproval
    level: mcp.LoggingLevel | None = None
    remembers: bool = True
    forwarded: ForwardedRequest | None = None
    log: Callable[[mcp.LoggingMessageNotification], None] = ignore
    _questions: dict[str, tuple[Any, asyncio.Future[Any]]] = field(default_factory=dict)
    _asking: asyncio.Event = field(default_factory=asyncio.Event)
    _count: int = 0

    @property
    def modern(self) -> bool:
        """Whether the host speaks the version without a handshake: questions are part of the answer
        to its request.
        """
        return self.context.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def meta(self) -> Mapping[str, Any]:
        """The host's metadata for servers in the version without a handshake."""
        declared = self.context.session.client_capabilities or mcp.ClientCapabilities()
        passed = declared.model_dump(
            by_alias=True,
            mode="json",
            exclude_none=True,
            include={"elicitation", "sampling", "roots"},
        )
        level = {mcp.LOG_LEVEL_META_KEY: self.level} if self.level else {}
        return {mcp.CLIENT_CAPABILITIES_META_KEY: passed, **level}

    async def approve(self, request: ApprovalRequest) -> Decision:
        """Ask the host's person whether a call may run."""
        if self.approval == "host":
            return Decision(True, answered=False)
        tool = request.tool
        # A host asks its person before calls anyway: nobody is asked twice about tools that say
        # nothing.
        if not self._can("form") or (
            request.policy == "default" and request.reason == "unannotated"
        ):
            raise NobodyToAsk
        arguments = json.dumps(request.arguments, indent=2, ensure_ascii=False, default=str)
        if len(arguments) > MAX_SHOWN:
            return Decision(
                f"Its arguments are too long to be shown: {len(arguments):,} characters.",
                answered=False,
            )
        change = " Its definition has changed since it was last approved." if request.change else ""
        message = (
            f"May the tool {shown(tool.name)} of {shown(tool.server)} be"
            f" called?{change}\n{_visible(arguments)}"
        )
        form = _form(ONCE, ALWAYS) if self.remembers else _form(ONCE)
        answer = await self._elicit(
            mcp.ElicitRequestFormParams(message=message, requested_schema=form)
        )
        given = (answer.content or {}).get("answer") if answer.action == "accept" else DENY
        if given in (ONCE, ALWAYS):
            return Decision(True, "tool" if given == ALWAYS and self.remembers else "call")
        return Decision(False, answered=answer.action != "cancel")

    async def elicit(self, question: ServerQuestion) -> QuestionAnswer:
        """Pass a server's question on, or decline if the host cannot ask its person."""
        text = asked_by(question.server, question.message)
        params: mcp.ElicitRequestParams
        if question.form is not None:
            mode: Literal["form", "url"] = "form"
            params = mcp.ElicitRequestFormParams(message=text, requested_schema=dict(question.form))
        else:
            mode = "url"
            params = mcp.ElicitRequestURLParams(
                message=text, url=question.url, elicitation_id=question.url_id
            )
        if not self._can(mode):
            return QuestionAnswer("decline")
        answer = await self._elicit(params)
        return QuestionAnswer(answer.action, answer.content)

    async def sample(self, server: str, params: Any) -> mcp.CreateMessageResult | mcp.ErrorData:
        """Pass on a request for a model's answer, or refuse it if the host offers none."""
        declared = self.context.session.client_capabilities
        if declared is None or declared.sampling is None:
            return mcp.ErrorData(
                code=mcp.INVALID_REQUEST,
                message="the program that called the tool offers no sampling",
            )
        try:
            return await self._ask(mcp.CreateMessageRequest(params=params), mcp.CreateMessageResult)
        except (MCPError, ValueError) as error:
            logger.warning("A host did not answer server %s: %s", shown(server), shown(str(error)))
            return mcp.ErrorData(
                code=mcp.INVALID_REQUEST, message="the program that called the tool did not answer"
            )

    async def roots(self) -> list[mcp.Root]:
        """Ask the host for its roots."""
        declared = self.context.session.client_capabilities
        if declared is None or declared.roots is None:
            return []
        return list(
            (await self._ask(mcp.ListRootsRequest(), mcp.ListRootsResult)).roots[:MAX_ROOTS]
        )

    def missing(self, required: mcp.InputRequiredResult) -> list[str]:
        """List the capabilities that the host lacks for this question."""
        declared = self.context.session.client_capabilities or mcp.ClientCapabilities()
        wanted = {
            request.method.partition("/")[0] for request in (required.input_requests or {}).values()
        }
        return sorted(name for name in wanted if getattr(declared, name, None) is None)

    def questions(self) -> dict[str, Any]:
        """List the questions that the host has to answer before the call continues."""
        return {key: request for key, (request, _) in self._questions.items()}

    async def asks(self) -> None:
        """Wait until there is a question for the host."""
        await self._asking.wait()
        # What is asked together is asked in one round.
        for _ in range(3):
            await asyncio.sleep(0)

    def answer(self, context: ServerRequestContext[Any, Any], responses: Mapping[str, Any]) -> None:
        """Continue the call with the host's answers. Others are ignored."""
        self.context = context
        for key, response in responses.items():
            if key in self._questions and not (answer := self._questions.pop(key)[1]).done():
                answer.set_result(response)
        if not self._questions:
            self._asking.clear()

    def _can(self, mode: Literal["form", "url"]) -> bool:
        capabilities = self.context.session.client_capabilities
        declared = capabilities.elicitation if capabilities else None
        if declared is None:
            return False
        # Without a mode it is a form, from versions that had only forms.
        return getattr(declared, mode) is not None or (mode == "form" and declared.url is None)

    async def _elicit(self, params: mcp.ElicitRequestParams) -> mcp.ElicitResult:
        try:
            return await self._ask(mcp.ElicitRequest(params=params), mcp.ElicitResult)
        except (MCPError, ValueError) as error:
            logger.warning("A host did not answer a question: %s", shown(str(error)))
            return mcp.ElicitResult(action="cancel")

    async def _ask(self, request: Any, result_type: type[T]) -> T:
        if not self.modern:
            related = ServerMessageMetadata(related_request_id=self.context.request_id)
            answered: T = await self.context.session.send_request(
                request, result_type, metadata=related
            )  # type: ignore[type-var]
            return answered
        # This call waits here from now on, so the server's own rounds end here too.
        self.forwarded = None
        self._count += 1
        key = f"question-{self._count}"
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._questions[key] = (request, future)
        self._asking.set()
        try:
            answer = await future
        finally:
            self._questions.pop(key, None)
        if not isinstance(answer, result_type):
            raise ValueError("it answers something else")
        return answer


@dataclass(eq=False)
class _Waiting:
    call: HostCall
    request: tuple[str, str]
    task: asyncio.Task[Any]
    end: asyncio.TimerHandle


class Rounds:
    """Requests, in the version without a handshake, that wait for their host's answer.

    A host answers by repeating the request with a state that only it knows. See
    https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting] = {}
        self._running: set[asyncio.Task[Any]] = set()

    async def run(
        self, call: HostCall, request: tuple[str, str], work: Coroutine[Any, Any, T]
    ) -> T | mcp.InputRequiredResult:
        """Run a request until it has ended or asks something."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await self._run_until_question(call, request, task)

    def has(self, state: str | None) -> bool:
        """Check whether a state belongs to a request that waits here, or waited."""
        return state is not None and state.startswith(_STATE)

    async def resume(
        self, context: ServerRequestContext[Any, Any], request: tuple[str, str], params: Any
    ) -> Any:
        """Continue a request that waits."""
        waiting = self._waiting.get(params.request_state)
        if waiting is None or waiting.request != request:
            text = (
                "This request state is not known, or no longer. Make the request again without it."
            )
            raise MCPError(mcp.INVALID_PARAMS, text)
        del self._waiting[params.request_state]
        waiting.end.cancel()
        waiting.call.answer(context, params.input_responses or {})
        return await self._run_until_question(waiting.call, request, waiting.task)

    def close(self) -> None:
        """Cancel all that run or wait."""
        for state in tuple(self._waiting):
            self._drop(state)
        for task in self._running:
            task.cancel()

    async def _run_until_question(
        self, call: HostCall, request: tuple[str, str], task: asyncio.Task[T]
    ) -> T | mcp.InputRequiredResult:
        question = asyncio.create_task(call.asks())
        try:
            await asyncio.wait({task, question}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            question.cancel()
        if task.cancelled():
            raise MCPError(mcp.INTERNAL_ERROR, "The request was cancelled: this server has ended.")
        if task.done():
            return task.result()
        state = _STATE + secrets.token_urlsafe(24)
        if len(self._waiting) >= MAX_WAITING:
            self._drop(next(iter(self._waiting)))
        end = asyncio.get_running_loop().call_later(ANSWER_SECONDS, self._drop, state)
        self._waiting[state] = _Waiting(call, request, task, end)
        return mcp.InputRequiredResult(input_requests=call.questions(), request_state=state)

    def _drop(self, state: str) -> None:
        waiting = self._waiting.pop(state, None)
        if waiting is not None:
            waiting.end.cancel()
            waiting.task.cancel()


def allowed_by_host(tool: ToolSpec) -> str:
    """Format a hint on how to allow a tool's calls if a host cannot ask its person."""
    return (
        "This program cannot pass on the question. To leave the question to it, set up this server"
        " with `--approval host` "
        f'(`approval="host"` in Python), or set the approval of {shown(tool.server)} in the config.'
    )


async def approve(request: ApprovalRequest) -> Decision:
    """Ask whoever makes this task's call. An `Approver`."""
    asker = ASKER.get()
    if not isinstance(asker, HostCall):
        raise NobodyToAsk
    return await asker.approve(request)


def _visible(text: str) -> str:
    """Replace characters that change how the rest of a text reads."""
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text
    )


def offered_tool(tool: ToolSpec, name: str, modern: bool) -> mcp.Tool:
    """Convert a tool to its form in a listing, under a name, as a model would see it."""
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
        "output_schema": _listed(tool.output_schema, modern),
        "annotations": annotations_to_mcp(hints),
        # A host has no pages of this session's servers.
        "meta": None,
    }
    return tool_to_mcp(tool).model_copy(update=offered)


def outcome_to_mcp(outcome: CallOutcome, modern: bool) -> mcp.CallToolResult:
    """Convert a call's outcome: the server's answer, or the text that a model would read; `modern`
    as in `offered_tool`.
    """
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


def _listed(schema: Mapping[str, Any] | None, modern: bool) -> dict[str, Any] | None:
    """Select a result schema if clients can check it: before the modern version, only for an
    object.
    """
    return (
        dict(schema) if schema is not None and (modern or schema.get("type") == "object") else None
    )


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


logger = logging.getLogger(__name__)

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
        return [entry for entry in entries.values() if entry is not None]

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
        """Read a resource of its owner: a skill's file with its digest checked."""
        file = self._skill_file(uri)
        if file is None or self._servers().get(file[0].server) is not server:
            return await server.read(uri)
        contents = await server.read_skill(*file)
        mime_type = guess_type(contents.path)[0] or (
            "text/plain" if contents.data is None else "application/octet-stream"
        )
        return ResourceContents(
            contents.server,
            uri,
            (ContentPart("resource", contents.text, mime_type, contents.data, uri),),
        )

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

    async def owner(self, uri: str) -> ServerResources:
        """Find a URI's server: the one that lists it or a template that it fits, else the only one
        with its scheme.
        """
        # Known lists are searched first, so that a read does not wait for a slow server.
        if uri.startswith("skill:") and self._skill_file(uri) is None:
            await self._listed("skills")
        skill = self._skill_file(uri)
        name = skill[0].server if skill else self._listing_server(uri, self.listed("resources"))
        if name is None:
            resources = await self.resources()
            scheme = uri.partition(":")[0]
            same_scheme = {
                each.server for each in resources if each.uri.partition(":")[0] == scheme
            }
            others: Collection[str] = ()
            if len(same_scheme) == 1:
                others = same_scheme
            elif len(self._servers()) == 1:
                others = self._servers()
            name = self._listing_server(uri, resources) or next(iter(others), None)
        server = self._servers().get(name or "")
        if server is None:
            raise MCPError(
                mcp.INVALID_PARAMS, f"No server has the resource {shown(uri)}.", {"uri": uri}
            )
        return server

    async def prompt(self, name: str) -> tuple[ServerPrompt, ServerResources]:
        """Find a prompt and its server by name, or by its own name if only one server has it."""
        prompt = self._named(self.listed("prompts")).get(name)
        if prompt is None:
            prompts = await self.prompts()
            own = [prompt for prompt in prompts.values() if prompt.name == name]
            prompt = prompts.get(name) or (own[0] if len(own) == 1 else None)
        servers = self._servers()
        if prompt is None or prompt.server not in servers:
            raise MCPError(
                mcp.INVALID_PARAMS, f"There is no prompt {shown(name)}. List the prompts again."
            )
        return prompt, servers[prompt.server]

    async def complete(self, params: mcp.CompleteRequestParams) -> Completions:
        """Ask a server to suggest values for a prompt or template argument."""
        offer: Resource | ServerPrompt | None
        if isinstance(params.ref, mcp.PromptReference):
            offer, server = await self.prompt(params.ref.name)
        else:
            uri = params.ref.uri
            offer = next((each for each in await self.resources() if each.uri == uri), None)
            if offer is None:
                raise MCPError(
                    mcp.INVALID_PARAMS, f"There is no resource template {shown(uri)}.", {"uri": uri}
                )
            server = self._servers()[offer.server]
        others = (params.context.arguments if params.context else None) or {}
        return await server.complete(offer, params.argument.name, params.argument.value, others)

    def listed(self, kind: Kind) -> tuple[Any, ...]:
        """Collect the servers' last lists. Asks no server."""
        servers = self._servers().values()
        lists = [
            each.known_skills if kind == "skills" else each.last_listed[kind == "prompts"]
            for each in servers
        ]
        return tuple(item for items in lists for item in items)

    async def follow(self, uri: str, follower: object) -> None:
        """Have a resource's owner report its changes, for as long as somebody follows it."""
        followers = self._followers.get(uri)
        if followers is None:
            if len(self._followers) >= MAX_FOLLOWED:
                raise MCPError(
                    mcp.INVALID_PARAMS, f"At most {MAX_FOLLOWED} resources are followed at a time."
                )
            server = await self.owner(uri)
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
                await (await self.owner(uri)).unsubscribe(uri)

    async def unfollow_all(self, follower: object) -> None:
        """End all that a host follows."""
        for uri in [uri for uri, followers in self._followers.items() if follower in followers]:
            await self.unfollow(uri, follower)

    def updated(self) -> list[tuple[str, Iterable[object]]]:
        """Report, once, the followed resources that have changed, with their followers."""
        counted = self._counted()
        changed = [
            uri for uri, before in self._updates.items() if counted.get(uri, before) != before
        ]
        self._updates.update((uri, counted[uri]) for uri in changed)
        return [(uri, tuple(self._followers[uri])) for uri in changed]

    def close(self) -> None:
        """Stop waiting for listings."""
        for task in self._listing.values():
            task.cancel()

    def _counted(self) -> dict[str, int]:
        return {
            each.uri: each.updates
            for server in self._servers().values()
            for each in server.subscriptions.all
        }

    async def _listed(self, kind: Kind) -> list[Any]:
        """Collect all servers' lists. One that fails or is slow does not affect the others."""
        servers = self._servers()
        tasks = {name: self._begun(kind, name, server) for name, server in servers.items()}
        if tasks:
            await asyncio.wait(tasks.values(), timeout=LIST_SECONDS)
        listed: list[Any] = []
        for name, task in tasks.items():
            done = task.done() and not task.cancelled() and task.exception() is None
            if done:
                listed += task.result()
            else:
                listed += [item for item in self.listed(kind) if item.server == name]
        return listed

    def _begun(self, kind: Kind, name: str, server: ServerResources) -> asyncio.Task[Any]:
        task = self._listing.get((kind, name))
        if task is None or task.done():
            began = asyncio.get_running_loop().time()

            def ended(task: asyncio.Task[Any]) -> None:
                if not task.cancelled() and (error := task.exception()) is not None:
                    level = logging.INFO if isinstance(error, ServerError) else logging.ERROR
                    logger.log(
                        level,
                        "Server %s did not list its %s: %s",
                        shown(name),
                        kind,
                        shown(str(error)),
                    )
                elif not task.cancelled() and task.get_loop().time() - began > LIST_SECONDS:
                    self._late()

            task = self._listing[kind, name] = asyncio.create_task(getattr(server, kind)())
            task.add_done_callback(ended)
        return task


def unique_names(names: list[ToolName], plain: bool) -> list[str]:
    """Choose a unique name for each tool or prompt.

    If `plain`, names that only one server has stay as they are.
    """
    counts = Counter(name.tool for name in names)
    wired = [wire_name(name) for name in names]
    collisions = Counter(wired)
    offered = []
    for name, wire in zip(names, wired, strict=True):
        if plain and counts[name.tool] == 1:
            offered.append(name.tool)
        else:
            offered.append(wire_name(name, suffixed=collisions[wire] > 1))
    return offered
