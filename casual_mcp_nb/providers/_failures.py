"""Errors of providers: what went wrong, what helps, and whether a retry can succeed."""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from json import JSONDecodeError
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, Protocol

from casual_mcp_nb.base.proxies import connection_advice, odd_variable
from casual_mcp_nb.base.secret import Mask, MaskedError, mask_of, redacted
from casual_mcp_nb.base.tokens import request_tokens
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
    ProviderTimeoutError,
    RateLimitError,
    shown,
)
from casual_mcp_nb.providers import _reading as reading
from casual_mcp_nb.providers._clients import (
    ContentFiltered,
    InvalidResponse,
    Reported,
    StreamTruncated,
    refuses_deferral,
)
from casual_mcp_nb.providers.registry import raw_address_of

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.providers._bound_model import BoundModel
    from casual_mcp_nb.providers.registry import Definition, Definitions


class FailedRequest(Protocol):
    """What an error says of the request that failed."""

    model: BoundModel
    messages: list[ChatMessage]
    found_tools: Definitions | None
    streamed: list[str]
    attempts: int

    @property
    def lacked(self) -> tuple[str, ...]:
        """The options that were left out because the server may lack them."""

    @property
    def definitions(self) -> list[Definition]:
        """The offered definitions, with those that searches have found."""


@dataclass(frozen=True)
class Finding:
    """What an error means.

    Args:
        kind: The class of our error.
        reason: What went wrong.
        hint: What to do next.
        retryable: Whether the same request may succeed later.
        fields: Further arguments for the class.
        in_client: Whether code of the user's own failed, whose traceback is needed.
    """

    kind: type[ProviderError]
    reason: str
    hint: str
    retryable: bool = False
    fields: Mapping[str, Any] = field(default_factory=dict)
    in_client: bool = False


def explained(error: Exception, request: FailedRequest) -> tuple[ProviderError, Exception | None]:
    """Convert a provider's error to one of ours.

    Returns:
        Our error, and its cause: the SDK's error without secrets, or None if it tells no more.
    """
    model, secrets = request.model, reading.secrets_of(request.model)
    finding = _finding_of(error, request, secrets)
    if issubclass(finding.kind, IncompleteStreamError):
        finding = replace(finding, fields={"partial": "".join(request.streamed)})
    failure = _failure_by(error, finding, model, secrets, request.attempts)
    return failure, _cause(error, secrets, keep_traceback=finding.in_client)


def _failure_by(
    error: Exception, finding: Finding, model: BoundModel, secrets: list[str], attempts: int
) -> ProviderError:
    wait = reading.requested_wait(error)
    headers = reading.kept_headers(reading.headers_of(error), secrets)
    request_id = reading.request_id_of(error, secrets)
    about = f"Client {shown(model.client_name)}, model {shown(model.model)}: {finding.reason}"
    if not about.endswith((".", "!", "?", "…")):
        about += "."
    if wait is not None:
        about += f" Retry after {_duration(wait)}."
    if attempts > 1:
        about += f" Gave up after {attempts} attempts."
    if request_id is not None:
        about += f" Request id: {request_id}."
    return finding.kind(
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
        **finding.fields,
    )


def embedding_failure(error: Exception, model: BoundModel) -> ProviderError:
    """Convert an embedding request's error to one of ours, with the same remedies as in a chat."""
    secrets = reading.secrets_of(model)
    status = reading.status_of(error)
    body = reading.text_of(error, secrets) or type(error).__name__
    if status is None:
        finding = _without_status(error, model, secrets, body)
    else:
        finding = _of_status(status, model.key_places, (), reading.start_of_body(error), body)
    return _failure_by(error, finding, model, secrets, 1)


def _finding_of(error: Exception, request: FailedRequest, secrets: list[str]) -> Finding:
    finding = _finding_apart_from_stream(error, request, secrets)
    if not request.streamed or finding.kind is ContentRefusedError:
        return finding
    why = finding.reason
    if isinstance(error, StreamTruncated):
        why = reading.text_of(error, secrets)
    reason = f"the answer stopped in the middle: {why}"
    hint = "Its text so far is kept. Ask the model to continue."
    return Finding(IncompleteStreamError, reason, hint, retryable=True)


def _finding_apart_from_stream(
    error: Exception, request: FailedRequest, secrets: list[str]
) -> Finding:
    """Find out what an error means, whatever was streamed before it.

    Here and below, `text` is the start of the provider's message as it came, which is only
    searched, and `body` is the same for display: one line, with secrets masked.
    """
    text = reading.start_of_body(error)
    body = reading.text_of(error, secrets) or type(error).__name__
    status = reading.status_of(error)
    if isinstance(error, ContentFiltered) or (
        status in (400, 403, 422, 451) and reading.REFUSED.search(text)
    ):
        return Finding(
            ContentRefusedError,
            f"the provider refused the content: {body}",
            "Rephrase the request.",
        )
    if request.found_tools is not None and refuses_deferral(status, text):
        refused = f"deferred tools were refused (status {status}): {body}"
        return Finding(NativeDeferralError, refused, "Choose another delivery of search results.")
    if isinstance(error, StreamTruncated):
        return Finding(
            IncompleteStreamError,
            f"the answer is incomplete: {body}",
            "Try again.",
            retryable=True,
        )
    may_overflow = status not in (401, 403, 429) and not hasattr(error, "doc")
    if status == 413 or (may_overflow and reading.OVERFLOW.search(text)):
        return _overflow(text, body, request)
    if isinstance(error, Reported) and status is None:
        return _reported(body, passing=_PASSING.search(body) is not None)
    if status is not None:
        return _of_status(status, request.model.key_places, request.lacked, text, body)
    finding = _without_status(error, request.model, secrets, body)
    unexpected = finding.kind is MalformedAnswerError and not finding.retryable
    if unexpected and request.model.wire.is_own:
        return _fault_in(request.model.client, error, body)
    return finding


# Ollama's messages while its runner is loading, busy or restarting.
_PASSING = re.compile(
    r"busy|overload|unavailable|try again|temporar|loading|time(?:d )?-?out|\bEOF\b|terminated|no"
    r" longer running"
    r"|connection (?:reset|refused|closed)",
    re.IGNORECASE,
)


def _reported(body: str, *, passing: bool) -> Finding:
    reason = f"the provider broke off with an error: {body}"
    if passing:
        return Finding(OverloadedError, reason, "Try again later.", retryable=True)
    return Finding(ProviderError, reason, "Read the provider's message.")


def _overflow(text: str, body: str, request: FailedRequest) -> Finding:
    from casual_mcp_nb.discovery.synthetic import ways_to_shorten

    stated, counted = reading.stated_window(text)
    readable = stated or request.model.window
    window = f", and the model can read {readable:,}" if readable else ""
    tokens = request_tokens(request.messages, request.definitions)
    size = (
        f"The {len(request.messages):,} messages and {len(request.definitions):,} tools are about"
        f" {tokens:,} tokens{window}."
    )
    hint = f"{ways_to_shorten(request.definitions)}, or use a model with a larger context window."
    fields = {"window": stated, "tokens": counted}
    return Finding(
        ContextOverflowError,
        f"this is more than the model can read: {body} {size}",
        hint,
        fields=fields,
    )


def _of_status(
    status: int, key_places: str, lacked: Sequence[str], text: str, body: str
) -> Finding:
    failed = f"the request failed (status {status}): {body}"
    if status == 400 and "API_KEY_INVALID" in text:
        # Google's wording.
        status = 401
    where = f"looked for in {key_places}"
    match status:
        case 401:
            hint = f"The key is {where}." if key_places else "Check the key of the client."
            reason = f"the credentials were not accepted (status 401): {body}"
            return Finding(AuthenticationError, reason, hint)
        case 403:
            places = f"it is {where}" if key_places else "check the key of the client"
            hint = f"If this is about the key: {places}."
            return Finding(PermissionDeniedError, f"access was refused (status 403): {body}", hint)
        case 404:
            hint = "Check the model's name and the client's base_url."
            return Finding(BadRequestError, f"not found (status 404): {body}", hint)
        case 408 | 504:
            return Finding(ProviderTimeoutError, failed, "Try again later.", retryable=True)
        case 409:
            return Finding(ProviderError, failed, "Try again later.", retryable=True)
        case 429 if "insufficient_quota" in text:
            hint = "The account has no credit left: see its plan and billing."
            return Finding(RateLimitError, failed, hint)
        case 429:
            hint = "Try again later, or ask for less at a time."
            return Finding(RateLimitError, failed, hint, retryable=True)
    if status >= 500:
        hint = "Try again later."
        if lacked:
            hint = (
                "Small servers answer like this to an option that they lack: leave out"
                f" {' and '.join(lacked)}, or try again later."
            )
        return Finding(OverloadedError, failed, hint, retryable=True)
    hint = "The request itself was refused. Read the provider's message."
    return Finding(BadRequestError, failed, hint)


def _without_status(error: Exception, model: BoundModel, secrets: list[str], body: str) -> Finding:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    address = reading.address_of(model.client)
    if kinds & {"APITimeoutError", "TimeoutException", "TimeoutError"}:
        limit = f" (limit {_duration(model.timeout)})" if model.timeout else ""
        hint = "Raise the client's timeout in the config, or try again."
        return Finding(
            ProviderTimeoutError,
            f"no answer in time from {address}{limit}.",
            hint,
            retryable=True,
        )
    if kinds & {"APIConnectionError", "TransportError", "ConnectionError"}:
        message = str(error.__cause__ or error or "the connection failed")
        message = reading.start_of(redacted(message, secrets))
        hint = "Is the server running, and is base_url right?"
        advice = connection_advice(raw_address_of(model.client), message)
        if advice:
            hint = f"{hint} {advice}."
        return Finding(
            ProviderError, f"{address} cannot be reached ({message}).", hint, retryable=True
        )
    odd = odd_variable() if isinstance(error, ImportError | ValueError) else None
    if odd is not None:
        return Finding(ProviderError, f"{odd.problem}.", odd.remedy)
    if isinstance(error, JSONDecodeError) and error.doc.lstrip().startswith("{"):
        return Finding(
            MalformedAnswerError, f"the answer broke off: {body}", "Try again.", retryable=True
        )
    return Finding(
        MalformedAnswerError,
        f"the answer cannot be used: {body}",
        "Is base_url the address of this provider's API?",
    )


def _fault_in(client: object, error: Exception, body: str) -> Finding:
    """Explain an error in the code of a client that somebody else wrote."""
    kind = type(error).__name__
    said = "" if body == kind else f": {body}"
    place = _place_of(error)
    where = f" ({place})" if place else ""
    return Finding(
        ProviderError,
        f"the client's own code raised {kind}{said}{where}",
        f"Correct the code of {shown(type(client).__name__)}. The traceback is in __cause__.",
        in_client=True,
    )


def _place_of(error: Exception) -> str:
    """Find the file and line where an error was raised, in the person's own code if it got there."""
    frames = extract_tb(error.__traceback__)
    if not frames:
        return ""
    own = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)]
    last = own[-1] if own else frames[-1]
    return f"{Path(last.filename).name}, line {last.lineno}"


_LIBRARIES = (
    str(Path(__file__).parents[1]),
    *map(sysconfig.get_path, ("stdlib", "purelib", "platlib")),
)


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:,.3g} s"
    return f"{seconds / 60:,.0f} minutes"


def _cause(error: Exception, secrets: list[str], *, keep_traceback: bool) -> Exception | None:
    """Make an SDK's error fit to be shown as the cause of ours, or return None if it tells no
    more.
    """
    if isinstance(error, StreamTruncated | ContentFiltered | InvalidResponse):
        return None
    mask = mask_of(secrets)
    leaks = any(mask.is_in(f"{each} {each!r}") for each in _chain(error))
    if leaks or reading.has_long_body(error):
        return MaskedError.of(error, reading.text_of(error, secrets))
    for each in _chain(error):
        if not keep_traceback:
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
    if headers is None:
        return
    for name, value in list(headers.items()):
        if name.lower() in _CREDENTIALS or mask.is_in(value):
            del headers[name]


_CREDENTIALS = frozenset(
    {"authorization", "proxy-authorization", "cookie", "x-api-key", "api-key", "x-goog-api-key"}
)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
