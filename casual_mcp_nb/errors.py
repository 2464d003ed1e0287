"""The errors, by who has to act.

Every error from this package is a `CasualMcpError`. Its message explains the failure and the next
step. Its fields let a program decide. The branches tell who can fix it:

- `ConfigError`: the person who wrote the config file or a template
- `UsageError`: the person who made the call (a name that does not exist, a session that is closed)
- `ServerError`: whoever runs the MCP server
- `ProviderError`: whoever runs the model
- `LimitError`: a limit was reached, which the user can raise
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

from casual_mcp_nb.doors import Door, in_words_of, pip_install


class CasualMcpError(Exception):
    """Base class of this package's errors.

    Args:
        message: What failed, where and why, in plain words.
        hint: The next step. Appended to the message in the words of this process's door, see
            `doors`.
        server: The MCP server concerned, if any.
        tool: The tool's wire name, if any.
        retryable: Whether the same call can succeed if repeated.
    """

    kind = "error"
    """The error's kind, for programs: its class name without `Error`, as in `tool_timeout`."""

    def __init_subclass__(cls) -> None:
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__.removesuffix("Error"))
        cls.kind = cls.__dict__.get("kind", words.lower())

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        server: str | None = None,
        tool: str | None = None,
        retryable: bool = False,
    ) -> None:
        hint = in_words_of(hint)
        if hint and not message.endswith("\n"):
            message = f"{message} "
        super().__init__(f"{message}{hint}")
        self.hint = hint
        self.server = server
        self.tool = tool
        self.retryable = retryable

    def text_at(self, door: Door) -> str:
        """Write the message with its hint in a door's words.

        Sentences of the hint that cannot be followed there are left out.
        """
        text = str(self)
        if not self.hint or not text.endswith(self.hint):
            return text
        return f"{text.removesuffix(self.hint)}{in_words_of(self.hint, door)}".rstrip()

    def __reduce__(self) -> Any:
        # Worker processes send errors back pickled, and a pool that cannot unpickle one waits
        # forever.
        return uninitialized, (type(self), self.args), self.__dict__

    def _render_traceback_(self) -> list[str]:
        """Format this error for IPython: the message, without a stack of our own frames."""
        return [f"{type(self).__name__}: {self}"]


def uninitialized(kind: type[CasualMcpError], args: tuple[Any, ...]) -> CasualMcpError:
    """Create an error without its `__init__`, which would need the arguments of the first time."""
    # With two built-in bases, Python would find the wrong `__new__`.
    base: type[Exception] = Exception
    if issubclass(kind, OSError):
        base = OSError
    error: CasualMcpError = base.__new__(kind, *args)
    # Kinds that are also an OSError do not keep the arguments to `__new__`.
    error.args = args
    return error


class ConfigError(CasualMcpError, ValueError):
    """A config file or config value is wrong.

    Args:
        message: The mistake.
        path: The file, if there is one.
        line: Line in that file, from 1.
        column: Column in that line, from 1.
        key: The key's dotted path, such as `servers.time.command`.
        hint: The next step.
    """

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
        where = [str(part) for part in (path, line, column) if part is not None]
        if where:
            message = f"{':'.join(where)}: {message}"
        super().__init__(message, hint=hint)
        self.path = path
        self.line = line
        self.column = column
        self.key = key


class MissingFileError(ConfigError, FileNotFoundError):
    """There is no such file."""


class TemplateError(ConfigError):
    """A prompt template is missing, leaves its folder, or fails to render."""


class UsageError(CasualMcpError):
    """The call itself is invalid: an unknown name, a closed session, the wrong thread."""


class UnknownNameError(UsageError):
    """A name does not exist. The message suggests the closest ones.

    Args:
        category: The category, such as `tool` or `server`.
        name: The name as given.
        valid: The names that exist.
        hint: Replaces the hint about close matches.
    """

    def __init__(self, category: str, name: str, valid: Iterable[str], *, hint: str = "") -> None:
        self.category = category
        self.name = name
        # An iterator would be exhausted by the time the hint is made.
        valid = list(dict.fromkeys(valid))
        self.matches = closest(name, valid)
        super().__init__(
            f"Unknown {category} {shown(name)}.", hint=hint or did_you_mean(self.matches, valid)
        )


class UnknownModelError(UnknownNameError, ValueError):
    """A model, or its client, does not exist. A `ValueError` too, as in casual-mcp."""

    kind = UnknownNameError.kind


class ToolArgumentsError(UsageError, TypeError):
    """A tool's function was called with wrong arguments: unknown ones, or too few."""


class ToolSetError(UsageError):
    """A toolset names servers or tools that do not exist."""

    kind = "toolset"


class ClosedError(UsageError):
    """Something was used after it was closed."""


class CassetteError(UsageError):
    """A cassette cannot be read or used: it is missing, damaged, or from a later version."""


class CassetteMismatchError(CassetteError):
    """A request is not in the replayed cassette.

    The message shows how it differs from the recorded ones.

    Args:
        message: The missing recording.
        difference: A diff from the expected request, by line, or empty if there was none.
        hint: The next step.
        server: The MCP server that was asked, if any.
        tool: The tool that was called, if any.

    Attributes:
        raised: Whether it was raised outside a turn.
    """

    raised = False

    def __init__(
        self,
        message: str,
        *,
        difference: str = "",
        hint: str = "",
        server: str | None = None,
        tool: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint, server=server, tool=tool)
        self.difference = difference


class TrustRequiredError(UsageError):
    """A config file would start something, or send a key somewhere, that nobody has accepted yet.

    Nothing was started.
    """


class ServerError(CasualMcpError):
    """An MCP server could not be started, listed, reached or called."""


class ConnectError(ServerError):
    """A server could not be connected. The message has the reason and its last lines on stderr."""


class ToolCallError(ServerError):
    """A call could not be completed because the server failed."""


class ToolTimeoutError(ToolCallError):
    """A call took longer than its limit. The server was told to stop."""


class ResourceError(ServerError):
    """A server failed to list, read, complete or follow a resource or a prompt.

    Attributes:
        code: The JSON-RPC code with which the server answered, or None if it gave none.
    """

    code: int | None = None


class ProviderError(CasualMcpError):
    """The model provider failed or returned an unusable response.

    Args:
        message: The error message.
        hint: The next step.
        client: Name of the client in the config, if any.
        model: The provider's name for the model, if any.
        status: The response's HTTP status, if there was one.
        reason: A short reason, without client and model.
        retry_after: Seconds to wait before the next request, as the provider reported, or None if
            it did not.
        request_id: The provider's request id, for its support, or None.
        headers: Response headers about limits, delays and ids, with names in lower case.
        retryable: Whether the same request can succeed if repeated.
    """

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
        request_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        retryable: bool = False,
    ) -> None:
        super().__init__(message, hint=hint, retryable=retryable)
        self.client = client
        self.model = model
        self.status = status
        self.reason = reason or message
        self.retry_after = retry_after
        self.request_id = request_id
        self.headers = dict(headers or {})


class AuthenticationError(ProviderError):
    """The API key is missing, or the provider rejects it."""


class PermissionDeniedError(ProviderError):
    """The API key is valid but not allowed to do this."""


class RateLimitError(ProviderError):
    """The provider's rate limit was reached. See `retry_after` for how long to wait."""


class ContextOverflowError(ProviderError):
    """The conversation and the tools do not fit in the model's context window.

    Args:
        message: The error message.
        window: The context window in tokens, if the provider reports it.
        tokens: The tokens that the provider counted in the request, if it reports them.
        more: Other arguments for `ProviderError`.
    """

    def __init__(
        self, message: str, *, window: int | None = None, tokens: int | None = None, **more: Any
    ) -> None:
        super().__init__(message, **more)
        self.window = window
        self.tokens = tokens


class ProviderTimeoutError(ProviderError):
    """The provider did not answer within the client's timeout, or reported a timeout itself."""


class OverloadedError(ProviderError):
    """The provider is overloaded or temporarily unavailable."""


class BadRequestError(ProviderError):
    """The provider rejects the request as invalid."""


class NativeDeferralError(ProviderError):
    """The provider does not load deferred tools itself, or rejects the fields for it.

    Send their definitions instead.
    """


class ContentRefusedError(ProviderError):
    """The provider's content policy blocked the answer."""


class MalformedAnswerError(ProviderError):
    """The provider's response cannot be parsed."""


class IncompleteStreamError(ProviderError):
    """A response ended early.

    Args:
        message: The error message.
        partial: The text received so far.
        more: Other arguments for `ProviderError`.
    """

    def __init__(self, message: str, *, partial: str = "", **more: Any) -> None:
        super().__init__(message, **more)
        self.partial = partial


class ExtractionError(ProviderError):
    """The model returned nothing that matches the type to extract.

    Args:
        message: The error message.
        text: The model's last answer.
        more: Other arguments for `ProviderError`.
    """

    def __init__(self, message: str, *, text: str = "", **more: Any) -> None:
        super().__init__(message, **more)
        self.text = text


def install(extra: str) -> str:
    """Write the hint that installs an extra of this package."""
    package = f"'casual-mcp-nb[{extra}]'"
    return f"Run: {pip_install(package)}"


class MissingDependencyError(ProviderError):
    """An optional package is not installed. The message explains how to install it."""


class LimitError(CasualMcpError):
    """A limit in this package was reached."""


class AnswerCutError(LimitError):
    """The model's answers were cut off at the token limit again and again, within a tool call."""


class MaxIterationsError(LimitError, RuntimeError):
    """The model kept calling tools until the step limit."""


class RepeatedCallError(LimitError):
    """The model repeated a call that failed the same way each time."""


class AnswerLimitError(LimitError):
    """A model response took too long, or became too long."""


class SpendLimitError(LimitError):
    """The next request to a model could pass a spend limit, or cannot be counted.

    It was not sent.
    """


def closest(name: str, valid: Iterable[str], n: int = 3, cutoff: float = 0.5) -> list[str]:
    """Find the names that are closest to a name, the best first.

    Args:
        name: The name.
        valid: The names to choose from.
        n: How many to find at most.
        cutoff: How similar they must be, from 0 to 1.
    """
    folded = {candidate.casefold(): candidate for candidate in valid}
    word = str(name).casefold()[:200]
    matches = difflib.get_close_matches(word, folded, n=n, cutoff=cutoff)
    return [folded[match] for match in matches]


def did_you_mean(matches: list[str], valid: Iterable[str]) -> str:
    """Suggest the closest names in a sentence, or list the valid ones if none is close."""
    if matches:
        return f"Did you mean {' or '.join(map(shown, matches))}?"
    names = sorted(set(valid))
    if not names:
        return "There are none."
    text = ", ".join(map(shown, names[:12]))
    if len(names) > 12:
        text = f"{text} and {len(names) - 12} more"
    return f"Available: {text}."


def brief(value: object, limit: int = 80) -> str:
    """Cut a value's repr for a message to `limit` characters."""
    text = repr(value)
    if not text.isprintable():
        text = ascii(value)
    if len(text) > limit:
        return f"{text[:limit]}…"
    return text


def cannot_be(what: str, value: object, hint: str) -> UsageError:
    """Build the error for a value that cannot be used: WHAT cannot be VALUE."""
    return UsageError(f"{what} cannot be {brief(value)}.", hint=hint)


def shown(value: str | PurePath, limit: int = 80) -> str:
    """Quote a string for a message: control characters escaped, cut to `limit` characters.

    Of a path, the end is kept.
    """
    text = str(value)
    if not text.isprintable():
        text = text.encode("unicode_escape").decode()
    if len(text) <= limit:
        return f"'{text}'"
    if isinstance(value, PurePath):
        return f"'…{text[-limit:]}'"
    return f"'{text[:limit]}…'"
