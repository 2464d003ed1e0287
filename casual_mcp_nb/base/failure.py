"""Errors as values: their fields for programs and files, and copies without secrets."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from casual_mcp_nb.base.secret import Mask, mask_of
from casual_mcp_nb.errors import CasualMcpError, uninitialized

E = TypeVar("E", bound=CasualMcpError)
MAX_CAUSE = 300


@dataclass(frozen=True, slots=True)
class Failure:
    """The fields of an error, for programs, or None for those that do not concern it.

    Args:
        kind: The kind of the error, such as `rate_limit`: see `CasualMcpError.kind`.
        retryable: Whether the same request can succeed if repeated.
        server: The MCP server concerned.
        tool: The wire name of the tool concerned.
        client: Name of the client in the config.
        model: The provider's name of the model.
        status: The HTTP status of the provider's response.
        request_id: The provider's id of the request, which its support asks for.
        retry_after: Seconds to wait before the next request, as the provider reported.
        headers: The headers of the response about limits, delays and ids.
    """

    kind: str
    retryable: bool = False
    server: str | None = None
    tool: str | None = None
    client: str | None = None
    model: str | None = None
    status: int | None = None
    request_id: str | None = None
    retry_after: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def given(self) -> dict[str, Any]:
        """Collect the fields that have a value, for JSON."""
        named = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in named.items() if value is not None and value != {}}


def failure_of(error: BaseException | None) -> Failure | None:
    """Read the fields of an error, or None for one that is not of this package."""
    if not isinstance(error, CasualMcpError):
        return None
    names = [name for name in Failure.__slots__ if hasattr(error, name)]
    return Failure(**{name: getattr(error, name) for name in names})


class MaskedError(Exception):
    """A substitute for another library's error whose text has a secret in it or is very long.

    Its text is the class of that error and the masked beginning of its text.
    """

    @classmethod
    def of(cls, error: BaseException, masked: str) -> MaskedError:
        """Create the substitute for an error whose masked text this is."""
        line = " ".join(masked.split())
        return cls(f"{type(error).__name__}: {line[:MAX_CAUSE]}{'…' if len(line) > MAX_CAUSE else ''}")


def masked_error(error: E, secrets: Collection[str]) -> E:
    """Mask secrets in an error's message and fields, as an error of the same kind. The error itself if it has none."""
    mask = mask_of(secrets)
    message, fields = mask(str(error)), {name: _masked(value, mask) for name, value in vars(error).items()}
    if message == str(error) and fields == vars(error):
        return error
    copy = cast("E", uninitialized(type(error), (message,)))
    vars(copy).update(fields)
    copy.__cause__ = MaskedError.of(cause, mask(str(cause))) if (cause := error.__cause__) is not None else None
    return copy


def _masked(value: Any, mask: Mask) -> Any:
    match value:
        case str():
            return mask(value)
        case Mapping():
            return {name: _masked(each, mask) for name, each in value.items()}
        case list() | tuple():
            return type(value)(_masked(each, mask) for each in value)
    return value
