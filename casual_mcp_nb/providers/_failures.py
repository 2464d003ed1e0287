"""What went wrong at a provider, in words that help, and without a key in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from casual_mcp_nb.errors import ProviderError, shown

if TYPE_CHECKING:
    from casual_mcp_nb.providers.base import ChatModel

_BODY = 300
_MASK = "[key]"


def explained(error: Exception, model: ChatModel) -> tuple[ProviderError, Exception | None]:
    """Make a provider's error ours.

    Args:
        error: What the SDK raised.
        model: The model that was asked.

    Returns:
        The error to raise, and its cause; the cause is None where it would carry a key into a traceback.
    """
    secrets = _secrets(model.client)
    said, hint, retryable = _in_words(error, model, secrets)
    about = f"Client {shown(model.client_name)}, model {shown(model.model)}: {said}"
    failure = ProviderError(about, hint=hint, retryable=retryable)
    carries = any(secret in text for text in _chain_texts(error) for secret in secrets)
    return failure, None if carries else error


def _in_words(error: Exception, model: ChatModel, secrets: list[str]) -> tuple[str, str, bool]:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    status = getattr(error, "status_code", None)
    body = _body(error, secrets)
    if isinstance(status, int) and status >= 400:
        return _status_in_words(status, model, body)
    address = _address(model.client)
    if kinds & {"APITimeoutError", "TimeoutException", "TimeoutError"}:
        return f"no answer in time from {address}.", "Raise the client's timeout in the config, or try again.", True
    if kinds & {"APIConnectionError", "TransportError", "ConnectionError"}:
        reason = _start_of(str(error.__cause__ or "the connection failed"), secrets)
        return f"{address} cannot be reached ({reason}).", "Is the server running, and is base_url right?", True
    return f"the answer cannot be used: {body}", "Is base_url the address of this provider's API?", False


def _status_in_words(status: int, model: ChatModel, body: str) -> tuple[str, str, bool]:
    if status in (401, 403):
        places = f"The key is looked for in {model.key_places}." if model.key_places else "Check the key of the client."
        return f"the credentials were not accepted (status {status}): {body}", places, False
    if status == 404:
        return f"not found (status 404): {body}", "Check the model's name and the client's base_url.", False
    retryable = status in (408, 409, 429) or status >= 500
    hint = "Try again later." if retryable else "The request itself was refused; see what the provider says."
    return f"the request failed (status {status}): {body}", hint, retryable


def _body(error: Exception, secrets: list[str]) -> str:
    response: Any = getattr(error, "response", None)
    # Ollama's error has the text itself; a body that is no JSON stands in the parser's error.
    said = getattr(response, "text", None) or getattr(error, "error", None) or getattr(error, "doc", None)
    return _start_of(str(said or error), secrets) or type(error).__name__


def _start_of(text: str, secrets: list[str]) -> str:
    # Masked before it is cut: half a key would not be found any more.
    for secret in secrets:
        text = text.replace(secret, _MASK)
    line = " ".join(text.split())
    return f"{line[:_BODY]}…" if len(line) > _BODY else line


def _secrets(client: Any) -> list[str]:
    sdk = getattr(client, "client", None)
    headers = getattr(getattr(sdk, "_client", None), "headers", None) or {}
    password = urlsplit(_raw_address(client)).password
    bearer = headers.get("authorization", "").removeprefix("Bearer ")
    found = [getattr(sdk, "api_key", None), getattr(sdk, "auth_token", None), bearer, password]
    return [secret for secret in found if isinstance(secret, str) and len(secret) > 3]


def _chain_texts(error: BaseException | None) -> Iterator[str]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield f"{error} {error!r}"
        error = error.__cause__ or error.__context__


def _raw_address(client: Any) -> str:
    return str(getattr(getattr(client, "client", None), "base_url", "") or getattr(client, "host", ""))


def _address(client: Any) -> str:
    parts = urlsplit(_raw_address(client))
    if not parts.hostname:
        return "the provider"
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"
