"""The one form of every HTTP error: problem details (RFC 9457) with the `kind` of this package's errors."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Collection, Coroutine, Mapping
from http import HTTPStatus
from typing import Any, TypeVar

from pydantic import BaseModel, Field
from starlette.responses import Response
from starlette.types import Receive

from casual_mcp_nb.base.secret import Failure, failure_of, masked_error
from casual_mcp_nb.errors import (
    CasualMcpError,
    ClosedError,
    ContextOverflowError,
    ProviderError,
    ProviderTimeout,
    ServerError,
    TrustRequiredError,
    UsageError,
)

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
MAX_DETAIL = 2_000
"""How many characters of an error's message a client reads."""
INTERNAL = 500, "internal", "The request failed. The log of the service has the reason."
MAX_FIELDS = 20
"""How many wrong fields of a request are named."""


class WrongField(BaseModel):
    """A field of a request that is not valid."""

    field: str = Field(description="Its location, such as `messages.0.content`.")
    message: str = Field(description="The problem.")


class Problem(BaseModel):
    """An error as problem details (RFC 9457)."""

    type: str = "about:blank"
    title: str = Field(description="The name of the status.")
    status: int
    detail: str = Field(description="The failure, its cause, and the next step.")
    kind: str = Field(description="The kind of the error, for programs, such as `unknown_name`.")
    errors: list[WrongField] = Field(default_factory=list, description="With status 422: the fields that are not valid.")
    failure: Failure | None = Field(default=None, description="Details of an error of a server or a provider.")

    @classmethod
    def of(cls, status: int, kind: str, detail: str, errors: Collection[WrongField] = ()) -> Problem:
        """Build the problem of a status, its text cut."""
        # A client reads it as UTF-8, which has no lone surrogates.
        text = detail.encode("utf-8", "replace").decode()
        text = f"{text[:MAX_DETAIL]}…" if len(text) > MAX_DETAIL else text
        return cls(title=HTTPStatus(status).phrase, status=status, detail=text, kind=kind, errors=list(errors)[:MAX_FIELDS])


class ProblemError(Exception):
    """A request that cannot be answered."""

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        errors: Collection[WrongField] = (),
        failure: Failure | None = None,
    ) -> None:
        super().__init__(detail)
        self.problem = Problem.of(status, kind, detail, errors)
        self.problem.failure = failure
        self.headers = dict(headers or {})

    def response(self) -> Response:
        """Build the response, which is an ASGI application."""
        content = self.problem.model_dump_json()
        return Response(content, self.problem.status, {**self.headers, "Cache-Control": "no-store"}, MEDIA_TYPE)


def problem_of(error: BaseException, secrets: Collection[str] = ()) -> ProblemError:
    """Convert an error to the problem a client reads. For one that is not of this package, only that it happened."""
    if isinstance(error, ProblemError):
        return error
    if not isinstance(error, CasualMcpError):
        logger.error("A request failed.", exc_info=error)
        return ProblemError(*INTERNAL)
    status, headers = _status_of(error)
    error = masked_error(error, secrets)
    failure = failure_of(error) if isinstance(error, ProviderError | ServerError) else None
    return ProblemError(status, error.kind, error.text_at("http"), headers=headers, failure=failure)


def _status_of(error: CasualMcpError) -> tuple[int, Mapping[str, str]]:
    match error:
        case ClosedError() | TrustRequiredError():
            return 503, {}
        case UsageError() | ContextOverflowError():
            return 400, {}
        case ProviderTimeout():
            return 504, {}
        case ProviderError(retryable=True):
            return 503, retry_after(error.retry_after or 1)
        case ProviderError() | ServerError():
            return 502, {}
    return 500, {}


def retry_after(seconds: float) -> dict[str, str]:
    """Build the header that tells when to try again."""
    return {"Retry-After": str(max(1, math.ceil(min(seconds, 3_600))))}


T = TypeVar("T")


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Do some work as long as the client is connected. Then it is cancelled, with a problem that nobody will read."""
    task = asyncio.current_task()
    assert task is not None
    has_gone = False

    async def watch() -> None:
        nonlocal has_gone
        await disconnected(receive)
        has_gone = True
        task.cancel()

    # The work itself needs no task: each change of task is one more turn of the loop, in which others come in between.
    watching = asyncio.create_task(watch())
    try:
        return await work
    except asyncio.CancelledError:
        if has_gone and not task.uncancel():
            raise ProblemError(408, "disconnected", "The client has gone.") from None
        raise
    finally:
        watching.cancel()


async def disconnected(receive: Receive) -> None:
    """Wait until the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
