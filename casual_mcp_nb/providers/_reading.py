"""Read an SDK's error: status, headers, text, requested delay, URL, and the secrets that must not
be in it.

Watch the HTTP responses under an SDK: note their headers, and limit error bodies. SDKs parse and
print error bodies completely, which takes seconds for huge ones.
"""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextvars import ContextVar
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from casual_mcp_nb.base.named_address import without_credentials
from casual_mcp_nb.base.secret import can_be_masked, mask_of, redacted
from casual_mcp_nb.providers._clients import part_at
from casual_mcp_nb.providers.registry import raw_address_of

if TYPE_CHECKING:
    from httpx import AsyncByteStream, AsyncClient, Response

    from casual_mcp_nb.providers._bound_model import BoundModel


MAX_BYTES = 65_536
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


last_headers: ContextVar[Mapping[str, str] | None] = ContextVar("last_headers", default=None)
"""Headers from the current task's last HTTP response.

SDKs do not give them with every answer and error.
"""


def watch_responses(client: object) -> None:
    """Note response headers, and make a client's SDK read only the beginning of error bodies."""
    http: AsyncClient | None = getattr(getattr(client, "client", None), "_client", None)
    if http is not None and hasattr(http, "event_hooks"):
        hooks = http.event_hooks
        http.event_hooks = {**hooks, "response": [*hooks.get("response", ()), _watch]}


async def _watch(response: Response) -> None:
    last_headers.set(response.headers)
    change: Callable[[AsyncByteStream], AsyncIterator[bytes]]
    if response.is_error:
        change = _beginning
    elif response.headers.get("content-type", "").startswith("text/event-stream"):
        change = _without_mark
    else:
        return
    package = type(response).__module__.partition(".")[0]
    response.stream = _changed_stream(package)(response.stream, change)


@cache
def _changed_stream(package: str) -> type[Any]:
    """Build the class for streams that are changed on the way, for httpx or for the package that an
    SDK uses instead.
    """
    base: type[Any] = sys.modules[package].AsyncByteStream

    class Changed(base):  # type: ignore[misc]
        """A stream that is read through a generator."""

        def __init__(
            self,
            stream: AsyncByteStream,
            change: Callable[[AsyncByteStream], AsyncIterator[bytes]],
        ) -> None:
            self._stream = stream
            self._change = change

        def __aiter__(self) -> AsyncIterator[bytes]:
            return self._change(self._stream)

        async def aclose(self) -> None:
            await self._stream.aclose()

    return Changed


async def _without_mark(stream: AsyncByteStream) -> AsyncIterator[bytes]:
    """Read a stream without its byte order mark, with which an SDK would not recognise the first
    event's field.
    """
    head: bytes | None = b""
    async for chunk in stream:
        if head is not None:
            head += chunk
            if len(head) < len(_BYTE_ORDER_MARK) and _BYTE_ORDER_MARK.startswith(head):
                continue
            chunk, head = head.removeprefix(_BYTE_ORDER_MARK), None
        yield chunk


async def _beginning(stream: AsyncByteStream) -> AsyncIterator[bytes]:
    """Read a stream's first bytes."""
    left = MAX_BYTES
    async for piece in stream:
        yield piece[:left]
        left -= len(piece)
        if left <= 0:
            return


_BODY = 300
_WINDOW = 16_384
"""How many characters to read from a provider's message."""
_PLACES = ("error", "message", "detail", "msg", "errors", "error_message", "title", "reason")
_MESSAGE = re.compile(r'"(?:message|detail|msg|error)"\s*:\s*"((?:[^"\\]|\\.)+)("?)')
_DEEPEST = 6
_MAX_SENTENCES = 5
_STATUS_OF_TYPE = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size"
    r"|maximum (?:context|prompt|input) length|context (?:length|window|size|limit).{0,80}exceed"
    r"|exceed\w*.{0,60}context (?:length|window|size|limit)"
    r"|(?:prompt|input|request|conversation) is too long|exceeds? the maximum number of tokens"
    r"|loaded with context length of only|too large for model with|configured limit of [\d,]+"
    r" tokens|maximum model length",
    re.IGNORECASE | re.DOTALL,
)
_COUNT, _LIMIT = r"(?P<tokens>\d[\d,]{0,11})", r"(?P<window>\d[\d,]{0,11})"
_STATED = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        # OpenAI, DeepSeek, vLLM and OpenRouter, with the answer counted apart; the same without.
        rf"maximum context length is {_LIMIT} tokens.{{0,160}}?{_COUNT} "
        r"(?:(?:tokens )?in the messages|of text input|input tokens)",
        (
            rf"maximum context length is {_LIMIT} tokens.{{0,120}}?(?:resulted in|requested(?:"
            rf" about)?) {_COUNT} tokens"
        ),
        rf"maximum context length is {_LIMIT}",
        rf"configured limit of {_LIMIT} tokens.{{0,80}}?resulted in {_COUNT}",
        rf"configured limit of {_LIMIT} tokens",
        # Anthropic.
        rf"prompt is too long: {_COUNT} tokens > {_LIMIT}",
        rf"exceed context limit: {_COUNT} \+ [\d,]+ > {_LIMIT}",
        # Gemini.
        (
            rf"input token count \({_COUNT}\) exceeds the maximum number of tokens allowed"
            rf" \({_LIMIT}\)"
        ),
        rf"exceeds the maximum number of tokens allowed \(?{_LIMIT}",
        # llama.cpp, in words and in its fields; llama-cpp-python.
        rf"\({_COUNT} tokens\) exceeds the available context size \({_LIMIT} tokens\)",
        rf'"n_prompt_tokens"\s*:\s*{_COUNT}.{{0,80}}?"n_ctx"\s*:\s*{_LIMIT}',
        rf'"n_ctx"\s*:\s*{_LIMIT}.{{0,80}}?"n_prompt_tokens"\s*:\s*{_COUNT}',
        rf"tokens \({_COUNT}\) exceed context window of {_LIMIT}",
        # LM Studio.
        rf"first {_COUNT} tokens.{{0,120}}?loaded with context length of only {_LIMIT}",
        rf"loaded with context length of only {_LIMIT}",
        # Mistral; xAI; vLLM's older engine.
        rf"contains {_COUNT} tokens.{{0,80}}?too large for model with {_LIMIT}",
        rf"maximum prompt length is {_LIMIT} but the request contains {_COUNT}",
        rf"\(length {_COUNT}\) is longer than the maximum model length of {_LIMIT}",
        # Ollama says neither; servers that pass on the words of another one.
        rf"maximum context length of {_LIMIT}",
    )
)
_MIN_WINDOW = 256
_RETRY_INFO = re.compile(r'"retryDelay"\s*:\s*"(\d+(?:\.\d+)?)s"')
REFUSED = re.compile(
    r"content_filter|content_policy|content management policy|safety_violation", re.IGNORECASE
)


def response_of(error: Exception) -> object:
    """Find an error's HTTP response, or None.

    Ollama's SDK drops it, or fails on its body: it is in the context of the SDK's error.
    """
    each: BaseException | None = error
    while each is not None:
        if each is error or type(each).__name__ == "HTTPStatusError":
            response = getattr(each, "response", None)
            if response is not None:
                return response
        each = each.__context__
    return None


def status_of(error: Exception) -> int | None:
    """Find an error's HTTP status. An error within a stream has the usual status of its type."""
    for source in (error, response_of(error)):
        status = getattr(source, "status_code", None)
        if isinstance(status, int) and status >= 400:
            return status
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else None
    if isinstance(inner, dict):
        for word in (inner.get("code"), inner.get("type")):
            if isinstance(word, str) and word in _STATUS_OF_TYPE:
                return _STATUS_OF_TYPE[word]
    return None


def start_of_body(error: Exception) -> str:
    """Read the raw beginning of the provider's message: for matching, never for display."""
    content = _content_of(error)
    if content:
        return content[:_WINDOW].decode("utf-8", "replace")
    # Ollama's error contains the text or the JSON's message; a body that is not JSON is in the
    # parser's error.
    own = getattr(error, "error", None) or getattr(error, "doc", None) or error
    if isinstance(own, dict | list):
        own = json.dumps(own, default=str)
    return str(own)[:_WINDOW]


def text_of(error: Exception, secrets: list[str]) -> str:
    """Format the provider's message in one line, with secrets masked.

    It is the sentence in the response if there is one, else the response's beginning.
    """
    sent = start_of_body(error)
    text, whole = _sentence_in(sent) or (sent, len(sent) < _WINDOW)
    text = redacted(text, secrets)
    # A cut may leave part of a secret, which would not be recognised.
    if not whole:
        text = text[: -(mask_of(secrets).longest or 1)]
    return start_of(text)


def has_long_body(error: Exception) -> bool:
    """Check whether an error contains more text than is read."""
    if len(_content_of(error)) > _WINDOW:
        return True
    for name in ("doc", "error", "message"):
        text = getattr(error, name, None)
        if isinstance(text, str) and len(text) > _WINDOW:
            return True
    return False


def _content_of(error: Exception) -> bytes:
    response = response_of(error)
    if not getattr(response, "is_error", False):
        return b""
    try:
        content = getattr(response, "content", None)
    except Exception:
        # Within a stream, it cannot be read.
        return b""
    return content if isinstance(content, bytes) else b""


def start_of(text: str) -> str:
    """Cut a text to one line. Mask secrets first: half a secret would not be recognised."""
    line = " ".join(text.split())
    return f"{line[:_BODY]}…" if len(line) > _BODY else line


def _sentence_in(sent: str) -> tuple[str, bool] | None:
    """Find the provider's message in a JSON body, even if that is cut, and whether it is
    complete.
    """
    if sent.lstrip()[:1] not in ("{", "["):
        return None
    try:
        sentence = _sentence(json.loads(sent))
        return (sentence, True) if sentence else None
    except (ValueError, RecursionError):
        match = _MESSAGE.search(sent)
    if match is None:
        return None
    text = _unescaped(match[1])
    return (text, bool(match[2])) if text else None


def _unescaped(text: str) -> str | None:
    """Decode part of a JSON string, which may be cut within an escape."""
    for end in range(len(text), max(0, len(text) - 6), -1):
        try:
            return str(json.loads(f'"{text[:end]}"', strict=False))
        except ValueError:
            continue
    return None


def _sentence(body: object, depth: int = 0) -> str | None:
    """Find the first string in one of the fields that providers use for messages."""
    if depth > _DEEPEST:
        return None
    if isinstance(body, str):
        inner = _sentence_in(body)
        if inner is not None:
            return inner[0]
        return body.strip() or None
    if isinstance(body, list):
        texts = [_sentence(part, depth + 1) for part in body[:_MAX_SENTENCES]]
        return "; ".join(dict.fromkeys(filter(None, texts))) or None
    if not isinstance(body, dict):
        return None
    own: str | None = None
    for name in _PLACES:
        if name in body and not own:
            own = _sentence(body[name], depth + 1)
    # OpenRouter reports that a provider failed, with that provider's message.
    raw = part_at(body, "metadata.raw")
    upstream = _sentence(raw, depth + 1) if isinstance(raw, str) else None
    if own and upstream:
        return f"{own}: {upstream}"
    return own or upstream


def is_lost_connection(error: Exception) -> bool:
    """Check whether a connection was closed while waiting. A timeout is none of these errors, nor
    is a connection that could not be made.
    """
    names: set[str] = set()
    for each in (error, error.__cause__):
        names.update(kind.__name__ for kind in type(each).__mro__)
    return bool(names & {"ReadError", "RemoteProtocolError", "WriteError", "ConnectionResetError"})


def broke_off(error: Exception) -> bool:
    """Check whether a stream was closed early, as by a server that fails while streaming."""
    return any("incomplete chunked read" in str(each) for each in (error, error.__cause__))


def stated_window(text: str) -> tuple[int | None, int | None]:
    """Read a refusal of a conversation that is too long.

    Returns:
        The context window, and the tokens that the provider counted. Each is None if not stated.
    """
    for pattern in _STATED:
        match = pattern.search(text)
        if match is None:
            continue
        groups = {"tokens": "0", **match.groupdict()}
        window = int(groups["window"].replace(",", ""))
        tokens = int(groups["tokens"].replace(",", ""))
        if window >= _MIN_WINDOW:
            return window, tokens if tokens > 0 else None
    return None, None


def requested_wait(error: Exception) -> float | None:
    """Parse the delay in seconds that the provider requests, if any.

    It is in `retry-after-ms`, in `Retry-After`, or for Google in the body, as
    `google.rpc.RetryInfo`.
    """
    headers: Mapping[str, str] = getattr(response_of(error), "headers", None) or {}
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    header = headers.get("retry-after")
    if header is None:
        info = _RETRY_INFO.search(start_of_body(error))
        return _number(info[1]) if info else None
    seconds = _number(header)
    return _until(header) if seconds is None else seconds


_SAFE_HEADERS = re.compile(
    r"(?:[\w-]+-)?(?:retry-after(?:-ms)?|request-?id|ratelimit(?:-[\w-]+)?)|x-should-retry|cf-ray"
)
_MAX_HEADERS, _MAX_NAME, _MAX_VALUE = 32, 64, 200


def headers_of(error: Exception) -> Mapping[str, str]:
    """Find the response headers behind an error, even if the SDK's error does not have them."""
    return getattr(response_of(error), "headers", None) or last_headers.get() or {}


def kept_headers(headers: Mapping[str, str], secrets: list[str]) -> dict[str, str]:
    """Filter the headers to those about limits, delays and ids, cut and with secrets masked.

    Never keys or cookies.
    """
    mask = mask_of(secrets)
    kept: dict[str, str] = {}
    for given, value in headers.items():
        name = str(given).lower()
        if len(name) <= _MAX_NAME and _SAFE_HEADERS.fullmatch(name) and len(kept) < _MAX_HEADERS:
            kept[name] = _UNPRINTABLE.sub("", mask(str(value)))[:_MAX_VALUE]
    return kept


_UNPRINTABLE = re.compile(r"[^ -~]")


def request_id_in(headers: Mapping[str, str]) -> str | None:
    """Find the provider's request id in the headers."""
    others = [name for name in headers if name.endswith(("request-id", "requestid"))]
    for name in ("x-request-id", "request-id", *others):
        if headers.get(name):
            return headers[name]
    return None


def request_id_of(error: Exception, secrets: list[str]) -> str | None:
    """Find the failed request's id at the provider: in the headers, or in the body as Anthropic has
    it.
    """
    own = request_id_in(kept_headers(headers_of(error), secrets))
    own = own or getattr(error, "request_id", None)
    body = getattr(error, "body", None)
    if own is None and isinstance(body, dict):
        own = body.get("request_id")
    if not isinstance(own, str) or not own:
        return None
    return kept_headers({"request-id": own}, secrets)["request-id"]


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _until(date: str | None) -> float | None:
    try:
        return max(0.0, parsedate_to_datetime(date or "").timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def secrets_of(model: BoundModel) -> list[str]:
    """List every secret known to this model and its client."""
    sdk = getattr(model.client, "client", None)
    headers: Mapping[str, str] = getattr(getattr(sdk, "_client", None), "headers", None) or {}
    password = urlsplit(raw_address_of(model.client)).password
    bearer = headers.get("authorization", "").removeprefix("Bearer ")
    values = [
        getattr(sdk, "api_key", None),
        getattr(sdk, "auth_token", None),
        bearer,
        password,
        *model.secrets(),
        *model.options.secrets(),
    ]
    return [secret for secret in values if isinstance(secret, str) and can_be_masked(secret)]


def address_of(client: object) -> str:
    """Format a client's URL, without credentials."""
    return without_credentials(raw_address_of(client)) or "the provider"
