"""Config of an MCP server: how to reach it and which of its tools to use."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, model_validator

from casual_mcp_nb.errors import shown
from casual_mcp_nb.types.base_config import HeaderName, HeaderText, RemoteConfig, Seconds, VariableName, VariableText
from casual_mcp_nb.types.secret import certain, option_secrets, revealed, url_secrets, with_tokens

Transport = Literal["stdio", "http", "streamable-http", "sse", "in-process"]
Protocol = Literal["auto", "legacy", "2026-07-28"]
Approval = Literal["never", "destructive", "always"]
"""When a call needs approval: never, for tools that can destroy something, or always."""

OTHER_TOOLS = "*"
"""The key in a mapping of policies that applies to all other tools."""


def checked_approval(value: Any) -> Any:
    """Check a policy, or a mapping of tool names to policies.

    Raises:
        ValueError: It is neither; the message names the valid words and, in a mapping, the tool.
    """
    words = ", ".join(get_args(Approval))
    if value is None or (isinstance(value, str) and value in get_args(Approval)):
        return value
    if not isinstance(value, Mapping):
        raise ValueError(f"must be one of {words}, or an object of tool names with one of them each")
    for tool, policy in value.items():
        if not isinstance(tool, str) or not isinstance(policy, str) or policy not in get_args(Approval):
            raise ValueError(f"the policy of tool {shown(str(tool))} must be one of {words}")
    return dict(value)


MIN_RESULT_TOKENS = 100


def _enough_for_a_head(tokens: int) -> int:
    if 0 < tokens < MIN_RESULT_TOKENS:
        raise ValueError(f"must be {MIN_RESULT_TOKENS} or more; 0 for no limit")
    return tokens


ResultTokens = Annotated[int, Field(ge=0), AfterValidator(_enough_for_a_head)]
"""A limit on results in tokens; 0 for none."""

Policies = Annotated[Approval | dict[str, Approval], BeforeValidator(checked_approval)]
"""The policy of a server, or policies by tool name."""


class ServerConfig(RemoteConfig):
    """An MCP server: a command (stdio), a url (HTTP or SSE), or one that ships with the package (bundled).

    Args:
        command: Program to start.
        args: Its arguments; for a bundled server, the server's options.
        env: Environment variables in addition to the few that every server gets.
        cwd: Working directory.
        url: URL of a remote server.
        headers: HTTP headers for it.
        auth: A bearer token, or `oauth`.
        transport: `http` (the same as `streamable-http`) or `sse` for a url; `stdio` or `in-process` for a bundled server.
        protocol: How to negotiate the protocol version: `auto` asks the server and falls back to the older handshake, `legacy`
            starts with that handshake (2025-11-25 and before), `2026-07-28` accepts only that version.
        bundled: Name of a server that ships with the package.
        enabled: Whether it is used. A disabled server is not started unless the user turns it on.
        defer_loading: Whether its tools are found by search instead of being sent with each request.
        always_load: Whether it stays loaded with `defer_all`; or the names of tools that stay loaded even if it is deferred.
        include_tools: The only tools to use, by name or pattern (`read_*`); None for all.
        exclude_tools: Tools not to use, by name or pattern.
        instructions: Whether its instructions go into the system prompt.
        init_timeout: Time limit in seconds for starting it and listing its tools.
        call_timeout: Time limit of a call in seconds; restarts on every progress message, up to `total_timeout`.
        total_timeout: Time limit of a call in seconds, whatever progress it reports.
        approval: When a call needs approval: `never`, for `destructive` tools, `always`, or a mapping of tool names to these,
            with `*` for all other tools. None: see `casual_mcp_nb.engine.approval`.
        max_result_tokens: Maximum length of a result in estimated tokens, instead of `tool_results.max_tokens`; 0 for no limit,
            None for that one.
        pin_tools: Whether a tool whose definition changes during use is blocked until the user accepts the change.
        roots: Folders that it is told about on request, as its roots. Deprecated in MCP: only before version 2026-07-28.
        sampling: Whether it may ask for answers of the model, each of which the person allows. Deprecated in the same way.
    """

    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[VariableName, VariableText] = Field(default_factory=dict)
    cwd: str | None = None
    url: str | None = None
    headers: dict[HeaderName, HeaderText] = Field(default_factory=dict)
    auth: HeaderText | None = None
    transport: Transport | None = None
    protocol: Protocol = "auto"
    bundled: str | None = None
    enabled: StrictBool = True
    defer_loading: StrictBool = False
    always_load: StrictBool | tuple[str, ...] = False
    include_tools: tuple[str, ...] | None = None
    exclude_tools: tuple[str, ...] = ()
    instructions: StrictBool = True
    init_timeout: Seconds = 20.0
    call_timeout: Seconds = 60.0
    total_timeout: Seconds = 600.0
    approval: Policies | None = None
    max_result_tokens: ResultTokens | None = None
    pin_tools: StrictBool = False
    roots: tuple[str, ...] = ()
    sampling: StrictBool = False

    @model_validator(mode="after")
    def _one_way_to_reach_it(self) -> ServerConfig:
        problem = server_problem(self.__dict__)
        if problem:
            raise ValueError(problem)
        return self

    def offers(self, tool: str) -> bool:
        """Check whether `include_tools` and `exclude_tools` allow a tool of this server.

        Args:
            tool: Its own name.
        """
        named = self.include_tools if self.include_tools is not None else ("*",)
        return _named(tool, named) and not _named(tool, self.exclude_tools)

    def _secrets(self) -> set[str]:
        named = revealed([*self.env.values(), *self.headers.values(), self.auth])
        return super()._secrets() | with_tokens(named) | self._given_away()

    def _high_confidence_secrets(self) -> set[str]:
        settings = {**self.env, **self.headers}
        named = {value for name, secret in settings.items() if certain(name, value := secret.get_secret_value())}
        return super()._high_confidence_secrets() | with_tokens(named | revealed([self.auth])) | self._given_away()

    def _given_away(self) -> set[str]:
        return url_secrets(self.url) | set(option_secrets(self.args))


def _named(tool: str, patterns: tuple[str, ...]) -> bool:
    return any(tool == pattern or fnmatchcase(tool, pattern) for pattern in patterns)


_FIELDS_OF_ANOTHER_WAY = {
    "command": ("headers", "auth"),
    "url": ("args", "env", "cwd"),
    "bundled": ("headers", "auth"),
}
_TRANSPORTS: dict[str, tuple[Transport, ...]] = {
    "command": ("stdio",),
    "url": ("http", "streamable-http", "sse"),
    "bundled": ("stdio", "in-process"),
}


def server_problem(fields: Mapping[str, Any]) -> str | None:
    """Find the reason why a server's fields conflict, or None; it never contains values."""
    given = [way for way in _TRANSPORTS if fields.get(way)]
    if len(given) != 1:
        return f"needs exactly one of command, url and bundled, found {' and '.join(given) or 'none of them'}"
    way = given[0]
    stray = [name for name in _FIELDS_OF_ANOTHER_WAY[way] if fields.get(name)]
    if stray:
        return f"{' and '.join(stray)} cannot be used with {way}"
    if fields.get("transport") not in (None, *_TRANSPORTS[way]):
        return f"transport with {way} is one of {', '.join(_TRANSPORTS[way])}"
    if fields.get("include_tools") is not None and fields.get("exclude_tools"):
        return "include_tools and exclude_tools cannot be used together"
    if fields.get("always_load") is True and fields.get("defer_loading"):
        return "always_load and defer_loading cannot be used together: name the tools that stay loaded in always_load"
    if way == "url" and not str(fields["url"]).startswith(("http://", "https://")):
        return "url must start with http:// or https://"
    return None
