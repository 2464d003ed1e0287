"""What one server asks and tells during its calls: who answers it, how often, and for how long.

See https://modelcontextprotocol.io/specification/2025-11-25/client for elicitation, sampling and
roots.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.mcp import MAX_SAMPLES, QuestionAnswer, SamplingRefused, ServerQuestion
from casual_mcp_nb.errors import shown
from casual_mcp_nb.servers.askers import Asker, RunningCalls, SeveralClients
from casual_mcp_nb.servers.deadlines import CallDeadlines
from casual_mcp_nb.servers.elicitation import FormTooLarge, elicit_result, question_of
from casual_mcp_nb.servers.handlers import AskQuestion, Handlers
from casual_mcp_nb.servers.logs import LogBuffer, logger
from casual_mcp_nb.servers.redaction import Redactor
from casual_mcp_nb.servers.sampling import request_of, result_of

if TYPE_CHECKING:
    from mcp_types import (
        CreateMessageResult,
        ElicitRequestParams,
        ElicitResult,
        ErrorData,
        ListRootsResult,
    )


T = TypeVar("T")

MAX_LOG = 10_000
REFUSED = -1
"""The code for the person's refusal, see
https://modelcontextprotocol.io/specification/2025-11-25/client/sampling.
"""


CANCELLED = QuestionAnswer("cancel")


class _CallsEnded(Exception):
    """The server's calls ended before its request was answered."""


class _Unanswered(Exception):
    """A request was not answered in time."""


class ServerRequests:
    """Answers one server by a session's handlers. Its texts are redacted before anybody sees them.

    Args:
        running_calls: Whose calls servers run. The caller gets the server's questions.
        log: The server's log.
        deadlines: Those of the server's running calls. A question pauses them, and ends with the
            last call.
    """

    def __init__(
        self,
        server: str,
        config: ServerConfig | None,
        handlers: Handlers,
        running_calls: RunningCalls,
        log: LogBuffer,
        redact: Redactor,
        deadlines: CallDeadlines,
    ) -> None:
        self._server = server
        self._allows_sampling = config is not None and config.sampling
        self._roots: Sequence[str] = config.roots if config is not None else ()
        self._handlers = handlers
        self._running_calls = running_calls
        self._log = log
        self._redact = redact
        self._deadlines = deadlines

    @property
    def callbacks(self) -> dict[str, Any]:
        """The callbacks for the SDK's session.

        What nobody answers has none. Sampling and roots have theirs even if the config does not
        allow the one and does not name the others, because another program's client may have them:
        what is declared to the server, `TolerantSession` decides.
        """
        callbacks: dict[str, Any] = {
            "logging_callback": self.log,
            "list_roots_callback": self.list_roots,
        }
        if self._handlers.elicitation is not None:
            callbacks["elicitation_callback"] = self.elicit
        if self._handlers.sampling is not None:
            callbacks["sampling_callback"] = self.sample
        return callbacks

    async def elicit(
        self, _context: object, params: ElicitRequestParams
    ) -> ElicitResult | ErrorData:
        """Ask the person a question of a running call.

        The answer is not validated against the server's schema, which could take as long as the
        server likes. The server checks what it gets.
        """
        from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, ErrorData

        try:
            question = question_of(params, self._server, self._redact)
            return elicit_result(await self._answer(question))
        except FormTooLarge as error:
            return ErrorData(code=INVALID_PARAMS, message=str(error))
        except Exception as error:
            return ErrorData(code=INTERNAL_ERROR, message=str(error))

    async def _answer(self, question: ServerQuestion) -> QuestionAnswer:
        ask, limits = self._handlers.elicitation, self._handlers.answer_limits
        if ask is None or not self._has_room():
            return CANCELLED
        try:
            return await self._during_calls(ask(question), limits.seconds)
        except _Unanswered:
            self.notify(f"{limits.nobody_answered} The server's question was cancelled.")
        except _CallsEnded:
            pass
        return CANCELLED

    async def elicit_for_task(self, params: ElicitRequestParams) -> ElicitResult:
        """Ask the person a question of a task, until it is answered, cancelled or takes too long."""
        ask = self._handlers.elicitation
        if ask is None or not self._has_room():
            return elicit_result(CANCELLED)
        try:
            question = question_of(params, self._server, self._redact, of_task=True)
        except FormTooLarge:
            self.notify(
                "The form of a task is too large to be shown, so its question was cancelled."
            )
            return elicit_result(CANCELLED)
        return elicit_result(await self._answer_for_task(ask, question))

    async def _answer_for_task(self, ask: AskQuestion, question: ServerQuestion) -> QuestionAnswer:
        limits = self._handlers.answer_limits
        try:
            with self._handlers.open_requests.counted(self._server):
                async with asyncio.timeout(limits.seconds):
                    return await ask(question)
        except TimeoutError:
            self.notify(f"{limits.nobody_answered} The question of a task was cancelled.")
        return CANCELLED

    def _has_room(self) -> bool:
        """Check whether the server may ask one more question. If not, notify the person once."""
        requests = self._handlers.open_requests
        if requests.room_for(self._server, self._handlers.answer_limits):
            return True
        if requests.first_refused(self._server):
            self.notify(
                "The server asked too many questions at a time, so its further requests to the"
                " person were cancelled."
            )
        return False

    async def sample(self, _context: Any, params: Any) -> CreateMessageResult | ErrorData:
        """Answer a request for a model's answer: only during calls, and only so often in each."""
        from mcp_types import INTERNAL_ERROR, INVALID_REQUEST, ErrorData

        try:
            asker = self._running_calls.asker(self._server)
        except SeveralClients:
            self.notify(
                "The server requested a model's answer while it ran calls for several clients, and"
                " was refused."
            )
            return ErrorData(code=REFUSED, message="calls for several clients are running")
        if asker is None and not self._allows_sampling:
            return ErrorData(code=INVALID_REQUEST, message="sampling is not supported")
        if not self._takes_sample():
            return ErrorData(
                code=REFUSED, message=f"at most {MAX_SAMPLES} requests during a call are answered"
            )
        try:
            if asker is not None:
                passed: CreateMessageResult | ErrorData = await self._passed_on(asker, params)
                return passed
            return await self._sampled(params)
        except _CallsEnded:
            return self._refused(SamplingRefused("the call has ended"))
        except SamplingRefused as refused:
            return self._refused(refused)
        except Exception as error:
            logger.exception("A request for the model's answer failed.")
            self.notify(
                f"The server requested the model's answer, which failed ({type(error).__name__})."
            )
            return ErrorData(code=INTERNAL_ERROR, message="the model could not answer")

    def _refused(self, refused: SamplingRefused) -> ErrorData:
        """Tell the person, and build the server's answer."""
        from mcp_types import ErrorData

        reason = self._redact(shown(refused.details))
        self.notify(f"The server requested the model's answer and was refused: {reason}")
        return ErrorData(code=REFUSED, message=str(refused))

    def _takes_sample(self) -> bool:
        """Count a request for a model's answer, or notify the person once that there are too
        many.
        """
        requests = self._handlers.open_requests
        if self._deadlines.take_sample() and requests.room_for(
            self._server, self._handlers.answer_limits
        ):
            return True
        if requests.first_refused(self._server):
            self.notify(
                "The server requested too many answers from the model, or some outside a call, and"
                " was refused."
            )
        return False

    async def _passed_on(self, asker: Asker, params: Any) -> Any:
        """Have the client of another program answer, whose call it is."""
        plain = params.model_dump(by_alias=True, mode="json", exclude_none=True)
        passed = type(params).model_validate(self._redact.value(plain))
        # What is too long for a person here is too long for one there.
        request_of(passed, self._redact)
        return await self._during_calls(asker.sample(self._server, passed))

    async def _sampled(self, params: Any) -> CreateMessageResult:
        """Have this session answer."""
        assert self._handlers.sampling is not None
        request = request_of(params, self._redact)
        answer = await self._during_calls(self._handlers.sampling(self._server, request))
        self.notify(answer.note)
        self._add_to_log("notice", answer.note)
        return result_of(answer)

    async def _during_calls(self, answering: Awaitable[T], seconds: float | None = None) -> T:
        """Wait for a person's answer while calls run, and pause their deadlines.

        Raises:
            _Unanswered: There was no answer within these seconds.
            _CallsEnded: The last call has ended.
        """
        answer = asyncio.ensure_future(answering)
        calls_ended = self._deadlines.until_empty()
        either: set[asyncio.Future[Any]] = {answer, calls_ended}
        requests = self._handlers.open_requests
        with requests.counted(self._server), self._deadlines.waiting_for_a_person():
            try:
                # Not `wait_for`: a handler that ignores its cancellation must not pause the
                # deadlines for longer.
                await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            finally:
                answered = answer.done()
                answer.cancel()
        if answered:
            return answer.result()
        if calls_ended.done():
            raise _CallsEnded
        raise _Unanswered

    async def list_roots(self, _context: Any) -> ListRootsResult | ErrorData:
        """List the roots that are existing folders, as URIs. If the config names none, the
        caller's.
        """
        from mcp_types import INTERNAL_ERROR, ErrorData, ListRootsResult, Root

        try:
            if self._roots:
                addresses = await asyncio.to_thread(_addresses, self._roots)
                self._warn_of_missing(len(self._roots) - len(addresses))
                listed = [Root.model_validate({"uri": address}) for address in addresses]
            else:
                asker = self._running_calls.asker(self._server)
                if asker is None:
                    raise ValueError("roots are not supported")
                listed = await asker.roots()
        except Exception as error:
            return ErrorData(code=INTERNAL_ERROR, message=str(error))
        return ListRootsResult(roots=listed)

    def _warn_of_missing(self, number: int) -> None:
        if number:
            self.warn(f"{number} of its roots are not existing folders, so it was not told them.")

    async def log(self, message: Any) -> None:
        """Add a log message of the server to its log."""
        data = message.data
        if isinstance(data, dict) and isinstance(data.get("msg"), str) and not data.get("extra"):
            data = data["msg"]
        if not isinstance(data, str):
            data = json.dumps(data, ensure_ascii=False, default=str)
        text = self._redact(data)[:MAX_LOG]
        self._add_to_log(str(message.level), text)
        logger.debug("Server %s: %s: %s", shown(self._server), message.level, shown(text))

    @property
    def can_ask(self) -> bool:
        """Whether somebody answers questions of the server."""
        return self._handlers.elicitation is not None

    def warn(self, text: str) -> None:
        """Add a warning about the server to its log."""
        self._add_to_log("warning", text)
        logger.warning("Server %s: %s", shown(self._server), text)

    def notify(self, text: str) -> None:
        """Tell the person how a request of the server ended."""
        self._handlers.notice(self._server, text)
        logger.warning("Server %s: %s", shown(self._server), text)

    def _add_to_log(self, level: str, text: str) -> None:
        self._log.add(level, text)
        self._handlers.log(self._server, level, text)


def _addresses(folders: Sequence[str]) -> list[str]:
    return [Path(os.path.abspath(folder)).as_uri() for folder in folders if os.path.isdir(folder)]
