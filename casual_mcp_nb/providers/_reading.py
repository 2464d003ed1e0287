"""What stands in an SDK's error: status, text, the wait that is asked for, the address; and the secrets that must not."""

from __future__ import annotations

import json
import math
import re
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from casual_mcp_nb.types.secret import can_be_masked, masked

if TYPE_CHECKING:
    from casual_mcp_nb.providers.base import ChatModel

_BODY = 300
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
_OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size"
    r"|maximum (?:context|prompt|input) length|context (?:length|window|size|limit).{0,80}exceed"
    r"|exceed\w*.{0,60}context (?:length|window|size|limit)"
    r"|(?:prompt|input|request|conversation) is too long|exceeds? the maximum number of tokens"
    r"|loaded with context length of only|too large for model with",
    re.IGNORECASE | re.DOTALL,
)
_REFUSED = re.compile(r"content_filter|content_policy|content management policy|safety_violation", re.IGNORECASE)


def status_of(error: Exception) -> int | None:
    """The HTTP status of an error; for one in the middle of a stream, the status that its type stands for elsewhere."""
    for source in (error, getattr(error, "response", None)):
        status = getattr(source, "status_code", None)
        if isinstance(status, int) and status >= 400:
            return status
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else {}
    words = [inner.get("code"), inner.get("type")] if isinstance(inner, dict) else []
    return next((_STATUS_OF_TYPE[word] for word in words if isinstance(word, str) and word in _STATUS_OF_TYPE), None)


def text_of(error: Exception, secrets: list[str]) -> str:
    """What the provider said, as far as it can be had, with the secrets masked."""
    response: Any = getattr(error, "response", None)
    # In the middle of a stream the body is not there to be read.
    said = response.text if getattr(response, "is_error", False) else None
    # Ollama's error has the text itself; a body that is no JSON stands in the parser's error.
    said = said or getattr(error, "error", None) or getattr(error, "doc", None)
    return masked(str(said or error), secrets)


def start_of(text: str) -> str:
    """One line of it, cut. Mask before: half a secret would not be found any more."""
    line = " ".join(text.split())
    return f"{line[:_BODY]}…" if len(line) > _BODY else line


def speaks_of_overflow(error: Exception, text: str) -> bool:
    """Whether it says, in one of the providers' wordings, that the request is more than the model can read."""
    return not hasattr(error, "doc") and _OVERFLOW.search(text) is not None


def speaks_of_refused_content(text: str) -> bool:
    """Whether it says that a filter of content stopped the request."""
    return _REFUSED.search(text) is not None


def is_half_an_answer(error: Exception) -> bool:
    """Whether a body began as a JSON object and did not come to its end."""
    return isinstance(error, json.JSONDecodeError) and error.doc.lstrip().startswith("{")


def asked_wait(error: Exception) -> float | None:
    """The seconds that the provider asks to wait, from `retry-after-ms` or `Retry-After`; None where it does not say."""
    # Ollama's SDK drops the response; it stands in the error that its own took the place of.
    response = getattr(error, "response", None) or getattr(error.__context__, "response", None)
    headers: Any = getattr(response, "headers", None) or {}
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    asked = headers.get("retry-after")
    return _until(asked) if _number(asked) is None else _number(asked)


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


def secrets_of(model: ChatModel) -> list[str]:
    """Every secret that is known where this model is asked."""
    sdk = getattr(model.client, "client", None)
    headers = getattr(getattr(sdk, "_client", None), "headers", None) or {}
    password = urlsplit(_raw_address(model.client)).password
    bearer = headers.get("authorization", "").removeprefix("Bearer ")
    found = [getattr(sdk, "api_key", None), getattr(sdk, "auth_token", None), bearer, password, *model.secrets()]
    return [secret for secret in found if isinstance(secret, str) and can_be_masked(secret)]


def address_of(client: Any) -> str:
    """Where a client asks, without credentials."""
    parts = urlsplit(_raw_address(client))
    if not parts.hostname:
        return "the provider"
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"


def _raw_address(client: Any) -> str:
    return str(getattr(getattr(client, "client", None), "base_url", "") or getattr(client, "host", ""))
