"""One error tree, sorted by who must act.

Every error of this package is a `CasualMcpError`. Its message says what failed, why, and what to do next; its fields let a
program decide. The branches say who can put it right:

- `ConfigError`: the person who wrote the config file or a template
- `UsageError`: the person who made the call (a name that does not exist, a session that is closed)
- `ServerError`: whoever runs the MCP server
- `ProviderError`: whoever runs the model
- `LimitError`: a limit of ours was reached; the person can raise it
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any


class CasualMcpError(Exception):
    """Base of all errors of this package.

    Args:
        message: What failed, where and why, in words for a person.
        hint: What to do next; appended to the message.
        server: The MCP server concerned, if one is.
        tool: The tool concerned (its name on the wire), if one is.
        retryable: Whether the same call can succeed when it is made again.
    """

    kind = "error"

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        server: str | None = None,
        tool: str | None = None,
        retryable: bool = False,
    ) -> None:
        between = "" if message.endswith("\n") else " "
        super().__init__(f"{message}{between}{hint}" if hint else message)
        self.hint = hint
        self.server = server
        self.tool = tool
        self.retryable = retryable

    def __reduce__(self) -> Any:
        # An error of a worker process comes back pickled, and a pool that cannot read it waits for ever.
        return _unpickled, (type(self), self.args), self.__dict__

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows for this error: the message, which says all, without a stack of our own frames."""
        return [f"{type(self).__name__}: {self}"]


def _unpickled(kind: type[CasualMcpError], args: tuple[Any, ...]) -> CasualMcpError:
    """Return the error without its `__init__`, whose arguments became the message."""
    return kind.__new__(kind, *args)


class ConfigError(CasualMcpError):
    """A config file or config value is wrong.

    Args:
        message: What is wrong.
        path: The file, where there is one.
        line: Line in that file, from 1.
        column: Column in that line, from 1.
        key: Dotted path of the key concerned, such as `servers.time.command`.
        hint: What to do next.
    """

    kind = "config"

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        line: int | None = None,
        column: int | None = None,
        key: str | None = None,
        hint: str = "",
    ) -> None:
        where = ":".join(str(part) for part in (path, line, column) if part is not None)
        super().__init__(f"{where}: {message}" if where else message, hint=hint)
        self.path = path
        self.line = line
        self.column = column
        self.key = key


class TemplateError(ConfigError):
    """A prompt template is missing, leaves its folder, or fails to render."""

    kind = "template"


class UsageError(CasualMcpError):
    """The call itself is wrong: an unknown name, a closed session, a call from the wrong thread."""

    kind = "usage"


class UnknownNameError(UsageError):
    """A name that does not exist; the message names the closest ones.

    Args:
        noun: What was looked for, such as `tool` or `server`.
        name: The name as it was given.
        valid: The names that exist.
        hint: Replaces the hint about close matches.
    """

    kind = "unknown_name"

    def __init__(self, noun: str, name: str, valid: Iterable[str], *, hint: str = "") -> None:
        self.noun = noun
        self.name = name
        # Read once: an iterator would be empty when the hint is made.
        valid = list(dict.fromkeys(valid))
        self.matches = closest(name, valid)
        super().__init__(f"Unknown {noun} {shown(name)}.", hint=hint or did_you_mean(self.matches, valid))


class ToolSetError(UsageError):
    """A toolset names servers or tools that do not exist."""

    kind = "toolset"


class ClosedError(UsageError):
    """Something was used after it was closed."""

    kind = "closed"


class ServerError(CasualMcpError):
    """An MCP server failed: it could not be started, listed, reached or called."""

    kind = "server"


class ConnectError(ServerError):
    """A server could not be connected; the message has its reason and the end of its stderr."""

    kind = "connect"


class ToolCallError(ServerError):
    """A call could not be brought to an end because the server failed in it."""

    kind = "tool_call"


class ToolTimeoutError(ToolCallError):
    """A call took longer than its limit; the server was told to stop."""

    kind = "tool_timeout"


class ProviderError(CasualMcpError):
    """The model provider failed or answered something that cannot be used.

    Args:
        message: What failed, where and why.
        hint: What to do next.
        client: Name of the client in the config, if one is concerned.
        model: The provider's name of the model, if one is concerned.
        status: The HTTP status of the answer, if there was one.
        reason: What went wrong in few words, without the names of client and model.
        retry_after: Seconds that the provider asks to wait before the next request; None where it did not say.
        retryable: Whether the same request can succeed when it is made again.
    """

    kind = "provider"

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        client: str | None = None,
        model: str | None = None,
        status: int | None = None,
        reason: str = "",
        retry_after: float | None = None,
        retryable: bool = False,
    ) -> None:
        super().__init__(message, hint=hint, retryable=retryable)
        self.client = client
        self.model = model
        self.status = status
        self.reason = reason or message
        self.retry_after = retry_after


class AuthenticationError(ProviderError):
    """The provider does not accept the key, or there is none."""

    kind = "authentication"


class PermissionDeniedError(ProviderError):
    """The provider knows the key, and it may not do this."""

    kind = "permission_denied"


class RateLimitError(ProviderError):
    """The provider's limit of requests or tokens was reached; `retry_after` has what it asks to wait."""

    kind = "rate_limit"


class ContextOverflowError(ProviderError):
    """The conversation and the tools are more than the model can read."""

    kind = "context_overflow"


class ProviderTimeout(ProviderError):
    """The provider did not answer within the client's timeout, or said that it took too long itself."""

    kind = "provider_timeout"


class OverloadedError(ProviderError):
    """The provider is overloaded or broken at the moment."""

    kind = "overloaded"


class BadRequestError(ProviderError):
    """The provider refuses the request as it is."""

    kind = "bad_request"


class ContentRefusedError(ProviderError):
    """The provider's rules on content kept the model from answering."""

    kind = "content_refused"


class MalformedAnswerError(ProviderError):
    """The provider sent something that is no answer."""

    kind = "malformed_answer"


class IncompleteStreamError(ProviderError):
    """An answer stopped before its end.

    Args:
        message: What failed, where and why.
        partial: The answer's text up to there.
        more: What `ProviderError` takes.
    """

    kind = "incomplete_stream"

    def __init__(self, message: str, *, partial: str = "", **more: Any) -> None:
        super().__init__(message, **more)
        self.partial = partial


class ExtractionError(ProviderError):
    """Nothing that the model said fits what was to be extracted.

    Args:
        message: What failed, where and why.
        text: What the model said last.
        more: What `ProviderError` takes.
    """

    kind = "extraction"

    def __init__(self, message: str, *, text: str = "", **more: Any) -> None:
        super().__init__(message, **more)
        self.text = text


class MissingDependencyError(ProviderError):
    """An optional package is not installed; the message says what to install."""

    kind = "missing_dependency"


class LimitError(CasualMcpError):
    """A limit of ours was reached."""

    kind = "limit"


class AnswerCutError(LimitError):
    """The model's answers were cut at the limit of tokens again and again, in the middle of a call of a tool."""

    kind = "answer_cut"


class MaxIterationsError(LimitError):
    """The model went on calling tools until the round limit."""

    kind = "max_iterations"


class RepeatedCallError(LimitError):
    """The model made one call again and again, and it failed each time in the same way."""

    kind = "repeated_call"


class AnswerLimitError(LimitError):
    """An answer of the model took longer, or became longer, than one may."""

    kind = "answer_limit"


def closest(name: str, valid: Iterable[str], n: int = 3, cutoff: float = 0.5) -> list[str]:
    """Return the names in `valid` most like `name`, best first: at most `n`, none less alike than `cutoff` (0 to 1)."""
    folded = {candidate.casefold(): candidate for candidate in valid}
    return [folded[match] for match in difflib.get_close_matches(name.casefold()[:200], folded, n=n, cutoff=cutoff)]


def did_you_mean(matches: list[str], valid: Iterable[str]) -> str:
    """Return a sentence with the closest names, or with the valid ones where none is close."""
    if matches:
        return f"Did you mean {' or '.join(shown(match) for match in matches)}?"
    names = sorted(set(valid))
    if not names:
        return "There are none."
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return f"There are: {', '.join(shown(name) for name in names[:12])}{more}."


def brief(value: object, limit: int = 80) -> str:
    """Return the repr of a value for a message, cut at `limit` characters."""
    text = ascii(value) if not repr(value).isprintable() else repr(value)
    return f"{text[:limit]}…" if len(text) > limit else text


def shown(value: str | PurePath, limit: int = 80) -> str:
    """Quote a text for a message: control characters escaped, cut at `limit` characters. Of a path the end is kept."""
    text = str(value)
    escaped = text.encode("unicode_escape").decode() if not text.isprintable() else text
    if len(escaped) <= limit:
        return f"'{escaped}'"
    return f"'…{escaped[-limit:]}'" if isinstance(value, PurePath) else f"'{escaped[:limit]}…'"
