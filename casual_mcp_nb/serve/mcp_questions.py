"""Questions for a host's person: whether a call may run, and servers' own."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import mcp_types as mcp
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.mcp import (
    NobodyToAsk,
    QuestionAnswer,
    ServerQuestion,
)
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.engine.consent import ApprovalRequest, Decision
from casual_mcp_nb.errors import shown
from casual_mcp_nb.servers.askers import ASKER, ForwardedRequest, asked_by

logger = logging.getLogger(__name__)

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

    Args:
        client: The client, see `Asker`.
        context: The request, or the one with which the host answered the last question.
        level: The least severe log messages that the host wants, or None for none.
        remembers: Whether the host's person can allow a tool from now on.
        log: Sends a log message before the result.
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
        meta: dict[str, Any] = {mcp.CLIENT_CAPABILITIES_META_KEY: passed}
        if self.level:
            meta[mcp.LOG_LEVEL_META_KEY] = self.level
        return meta

    async def approve(self, request: ApprovalRequest) -> Decision:
        """Ask the host's person whether a call may run."""
        if self.approval == "host":
            return Decision(True, answered=False)
        tool = request.tool
        # A host asks its person before calls anyway: nobody is asked twice about tools that say
        # nothing.
        says_nothing = request.policy == "default" and request.reason == "unannotated"
        if says_nothing or not self._can("form"):
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
        given = None
        if answer.action == "accept" and answer.content is not None:
            given = answer.content.get("answer")
        if given == ALWAYS and self.remembers:
            return Decision(True, "tool")
        if given in (ONCE, ALWAYS):
            return Decision(True, "call")
        return Decision(False, answered=answer.action != "cancel")

    async def elicit(self, question: ServerQuestion) -> QuestionAnswer:
        """Pass a server's question on, or decline if the host cannot ask its person."""
        if not self._can("url" if question.form is None else "form"):
            return QuestionAnswer("decline")
        text = asked_by(question.server, question.message)
        params: mcp.ElicitRequestParams
        if question.form is None:
            params = mcp.ElicitRequestURLParams(
                message=text, url=question.url, elicitation_id=question.url_id
            )
        else:
            params = mcp.ElicitRequestFormParams(message=text, requested_schema=dict(question.form))
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
        answer = await self._ask(mcp.ListRootsRequest(), mcp.ListRootsResult)
        return answer.roots[:MAX_ROOTS]

    def missing(self, required: mcp.InputRequiredResult) -> list[str]:
        """List the capabilities that the host lacks for this question."""
        declared = self.context.session.client_capabilities or mcp.ClientCapabilities()
        missing = set()
        for request in (required.input_requests or {}).values():
            capability = request.method.partition("/")[0]
            if getattr(declared, capability, None) is None:
                missing.add(capability)
        return sorted(missing)

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
            if key in self._questions:
                _, answer = self._questions.pop(key)
                if not answer.done():
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
        ' with `--approval host` (`approval="host"` in Python), or set the approval of'
        f" {shown(tool.server)} in the config."
    )


async def approve(request: ApprovalRequest) -> Decision:
    """Ask the host's person whose call this task runs. An `Approver`."""
    asker = ASKER.get()
    if not isinstance(asker, HostCall):
        raise NobodyToAsk
    return await asker.approve(request)


def _visible(text: str) -> str:
    """Replace characters that change how the rest of a text reads."""
    visible = ""
    for character in text:
        if character.isprintable() or character == "\n":
            visible += character
        else:
            visible += character.encode("unicode_escape").decode()
    return visible
