"""Convert provider errors to ours, with helpful messages and without keys."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.errors import (
    AuthenticationError,
    BadRequestError,
    ContentRefusedError,
    ContextOverflowError,
    IncompleteStreamError,
    MalformedAnswerError,
    NativeDeferralError,
    OverloadedError,
    PermissionDeniedError,
    ProviderError,
    ProviderTimeout,
    RateLimitError,
    shown,
)
from casual_mcp_nb.providers import _reading as reading
from casual_mcp_nb.providers._answers import ContentFiltered, InvalidResponse, Reported, StreamTruncated
from casual_mcp_nb.providers._deferral import refuses_deferral
from casual_mcp_nb.types.failure import MaskedError
from casual_mcp_nb.types.secret import Mask, mask_of, redacted
from casual_mcp_nb.types.tokens import request_tokens

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.providers._bound_model import BoundModel


@dataclass(frozen=True)
class RequestContext:
    """A request to a model, and its progress.

    Args:
        messages: The conversation.
        tools: The offered definitions.
        attempts: Number of attempts.
        streamed: The text shown so far.
        native: Whether the provider was to load deferred tools itself.
        lacked: The options of the request that small servers lack, if it went to a server other than the provider's own.
    """

    messages: Sequence[ChatMessage]
    tools: Sequence[Mapping[str, Any]]
    attempts: int = 1
    streamed: str = ""
    native: bool = False
    lacked: Sequence[str] = ()


@dataclass(frozen=True)
class _Finding:
    kind: type[ProviderError]
    reason: str
    hint: str
    retryable: bool = False
    fields: Mapping[str, Any] = field(default_factory=dict)


def explained(error: Exception, model: BoundModel, request: RequestContext) -> tuple[ProviderError, Exception | None]:
    """Convert a provider's error to one of ours.

    Args:
        error: What the SDK raised.
        model: The model.
        request: The request.

    Returns:
        The error to raise, and its cause: the SDK's error, with a masked substitute for one that would leak a key or fill a
        page; None if it says no more than ours.
    """
    secrets = reading.secrets_of(model)
    finding = _finding(error, model, request, secrets)
    wait = reading.requested_wait(error)
    headers, request_id = reading.kept_headers(reading.headers_of(error), secrets), reading.request_id_of(error, secrets)
    about = f"Client {shown(model.client_name)}, model {shown(model.model)}: {finding.reason}"
    about += "" if about.endswith((".", "!", "?", "…")) else "."
    if wait is not None:
        about += f" Retry after {_duration(wait)}."
    if request.attempts > 1:
        about += f" Gave up after {request.attempts} attempts."
    if request_id is not None:
        about += f" Request id: {request_id}."
    more = {"partial": request.streamed} if issubclass(finding.kind, IncompleteStreamError) else finding.fields
    failure = finding.kind(
        about,
        hint=finding.hint,
        client=model.client_name,
        model=model.model,
        status=reading.status_of(error),
        reason=finding.reason,
        retry_after=wait,
        request_id=request_id,
        headers=headers,
        retryable=finding.retryable,
        **more,
    )
    return failure, _cause(error, secrets)


def _finding(error: Exception, model: BoundModel, request: RequestContext, secrets: list[str]) -> _Finding:
    finding = _unstreamed(error, model, request, secrets)
    if not request.streamed or finding.kind is ContentRefusedError:
        return finding
    why = reading.text_of(error, secrets) if isinstance(error, StreamTruncated) else finding.reason
    reason = f"the answer stopped in the middle: {why}"
    return _Finding(IncompleteStreamError, reason, "Its text so far is kept; ask the model to go on.", True)


def _unstreamed(error: Exception, model: BoundModel, request: RequestContext, secrets: list[str]) -> _Finding:
    text = reading.start_of_body(error)
    body = reading.text_of(error, secrets) or type(error).__name__
    status = reading.status_of(error)
    if isinstance(error, ContentFiltered) or (status in (400, 403, 422, 451) and reading.speaks_of_refused_content(text)):
        return _Finding(ContentRefusedError, f"the provider refused the content: {body}", "Rephrase the request.")
    if request.native and refuses_deferral(status, text):
        refused = f"deferred tools were refused (status {status}): {body}"
        return _Finding(NativeDeferralError, refused, "Choose another delivery of what searches find.")
    if isinstance(error, StreamTruncated):
        return _Finding(IncompleteStreamError, f"the answer is incomplete: {body}", "Try again.", True)
    if status == 413 or (status not in (401, 403, 429) and reading.speaks_of_overflow(error, text)):
        return _overflow(text, body, model, request)
    if isinstance(error, Reported) and status is None:
        return _reported(body, passing=_PASSING.search(body) is not None)
    if status is not None:
        return _of_status(status, model, request, text, body)
    return _without_status(error, model, secrets, body)


# Ollama's messages while its runner is loading, busy or restarting.
_PASSING = re.compile(
    r"busy|overload|unavailable|try again|temporar|loading|time(?:d )?-?out|\bEOF\b|terminated|no longer running"
    r"|connection (?:reset|refused|closed)",
    re.IGNORECASE,
)


def _reported(body: str, *, passing: bool) -> _Finding:
    if passing:
        return _Finding(OverloadedError, f"the provider broke off with an error: {body}", "Try again later.", True)
    return _Finding(ProviderError, f"the provider broke off with an error: {body}", "See what the provider says.")


def _overflow(text: str, body: str, model: BoundModel, request: RequestContext) -> _Finding:
    stated, counted = reading.stated_window(text)
    readable = stated or model.window
    window = f", and the model can read {readable:,}" if readable else ""
    tokens = request_tokens(request.messages, request.tools)
    size = f"The {len(request.messages):,} messages and {len(request.tools):,} tools are about {tokens:,} tokens{window}."
    hint = "Start a new conversation, defer tools, or use a model with a larger context window."
    fields = {"window": stated, "tokens": counted}
    return _Finding(ContextOverflowError, f"this is more than the model can read: {body} {size}", hint, fields=fields)


def _of_status(status: int, model: BoundModel, request: RequestContext, text: str, body: str) -> _Finding:
    failed = f"the request failed (status {status}): {body}"
    if status == 400 and "API_KEY_INVALID" in text:
        # Google's wording.
        status = 401
    match status:
        case 401:
            places = f"The key is looked for in {model.key_places}." if model.key_places else "Check the key of the client."
            return _Finding(AuthenticationError, f"the credentials were not accepted (status 401): {body}", places)
        case 403:
            places = f"it is looked for in {model.key_places}" if model.key_places else "check the key of the client"
            hint = f"If this is about the key: {places}."
            return _Finding(PermissionDeniedError, f"access was refused (status 403): {body}", hint)
        case 404:
            hint = "Check the model's name and the client's base_url."
            return _Finding(BadRequestError, f"not found (status 404): {body}", hint)
        case 408 | 504:
            return _Finding(ProviderTimeout, failed, "Try again later.", True)
        case 409:
            return _Finding(ProviderError, failed, "Try again later.", True)
        case 429 if "insufficient_quota" in text:
            return _Finding(RateLimitError, failed, "The account has no credit left: see its plan and billing.")
        case 429:
            return _Finding(RateLimitError, failed, "Try again later, or ask for less at a time.", True)
    if status >= 500:
        names = " and ".join(request.lacked)
        lacks = f"Small servers answer like this to an option that they lack: leave out {names}, or try again later."
        return _Finding(OverloadedError, failed, lacks if names else "Try again later.", True)
    return _Finding(BadRequestError, failed, "The request itself was refused; see what the provider says.")


def _without_status(error: Exception, model: BoundModel, secrets: list[str], body: str) -> _Finding:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    address = reading.address_of(model.client)
    if kinds & {"APITimeoutError", "TimeoutException", "TimeoutError"}:
        limit = f" (limit {_duration(model.timeout)})" if model.timeout else ""
        hint = "Raise the client's timeout in the config, or try again."
        return _Finding(ProviderTimeout, f"no answer in time from {address}{limit}.", hint, True)
    if kinds & {"APIConnectionError", "TransportError", "ConnectionError"}:
        message = reading.start_of(redacted(str(error.__cause__ or error or "the connection failed"), secrets))
        return _Finding(
            ProviderError, f"{address} cannot be reached ({message}).", "Is the server running, and is base_url right?", True
        )
    if reading.is_half_an_answer(error):
        return _Finding(MalformedAnswerError, f"the answer broke off: {body}", "Try again.", True)
    return _Finding(
        MalformedAnswerError, f"the answer cannot be used: {body}", "Is base_url the address of this provider's API?"
    )


def _duration(seconds: float) -> str:
    return f"{seconds:,.3g} s" if seconds < 120 else f"{seconds / 60:,.0f} minutes"


def _cause(error: Exception, secrets: list[str]) -> Exception | None:
    """Choose the error to show as the cause of ours."""
    if isinstance(error, StreamTruncated | ContentFiltered | InvalidResponse):
        return None
    mask = mask_of(secrets)
    if reading.has_long_body(error) or any(mask.is_in(f"{each} {each!r}") for each in _chain(error)):
        return MaskedError.of(error, reading.text_of(error, secrets))
    for each in _chain(error):
        # The SDK's frames hold headers and bodies, which IPython may print.
        each.__traceback__ = None
        for holder in (each, getattr(each, "response", None)):
            _drop_credentials(holder, mask)
    return error


def _drop_credentials(holder: object, mask: Mask) -> None:
    try:
        headers = getattr(getattr(holder, "request", None), "headers", None)
    except RuntimeError:
        # A response that was made by hand has no request.
        return
    headers = headers if headers is not None else {}
    for name in [name for name, value in headers.items() if name.lower() in _CREDENTIALS or mask.is_in(value)]:
        del headers[name]


_CREDENTIALS = frozenset({"authorization", "proxy-authorization", "cookie", "x-api-key", "api-key", "x-goog-api-key"})


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
