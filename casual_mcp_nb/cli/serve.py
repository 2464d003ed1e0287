"""`casual-mcp-nb serve`: the session for other programs."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

from cyclopts import App, Parameter

from casual_mcp_nb.base.service import ServeLimits
from casual_mcp_nb.cli.terminal import Allow, Source, show, tell
from casual_mcp_nb.errors import UsageError, closest, did_you_mean, shown

if TYPE_CHECKING:
    from casual_mcp_nb.base.config import Policies
    from casual_mcp_nb.serve.endpoint import Endpoint
    from casual_mcp_nb.session import Session

ConfigFile = Annotated[Path | None, Parameter(help="The config file, as with --config.")]
Host = Annotated[str, Parameter(help="The address to listen at.")]
Port = Annotated[int, Parameter(help="The port, or 0 for a free one.")]
AllowHost = Annotated[
    tuple[str, ...],
    Parameter(
        negative=(),
        help="Another name by which clients address it, such as a proxy's; can be repeated.",
    ),
]
AllowOrigin = Annotated[
    tuple[str, ...],
    Parameter(
        negative=(),
        help="A site whose pages may use it, such as https://example.org; can be repeated.",
    ),
]
_SOURCE = Source()
_LIMITS = ServeLimits()

serve = App(name="serve", help="Serve a config's models and tools to other programs.")


@serve.default
def http(
    config: ConfigFile = None,
    /,
    *,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    allow_host: AllowHost = (),
    allow_origin: AllowOrigin = (),
    allow: Allow = (),
    max_turns: int = _LIMITS.max_turns,
    turn_seconds: float = _LIMITS.turn_seconds,
    source: Source = _SOURCE,
) -> int:
    """Serve chat as an HTTP API until Ctrl-C: POST /chat, GET /toolsets, GET /health, GET /docs.

    Addresses that other computers can reach need a token, which is read from MCP_SERVE_TOKEN in the
    environment. Nobody can be asked to approve calls, so calls to destructive tools are denied. To
    allow them, use --allow or `approval` in the config.

    Args:
        max_turns: How many turns run at the same time.
        turn_seconds: How long a turn may take.
    """
    if config is not None:
        _check_is_no_command(config)
        source = replace(source, config=config)
    limits = replace(_LIMITS, max_turns=max_turns, turn_seconds=turn_seconds)
    approval: dict[str, Policies] = dict.fromkeys(allow, "never")
    return _until_ctrl_c(
        source.connected(),
        lambda session: session.serve.http(
            host=host,
            port=port,
            approval=approval,
            limits=limits,
            hosts=allow_host,
            origins=allow_origin,
        ),
    )


@serve.command
def mcp(
    config: ConfigFile = None,
    /,
    *,
    transport: Literal["stdio", "http"] = "stdio",
    toolset: str | None = None,
    all_tools: Annotated[bool, Parameter(negative=())] = False,
    bridge: Annotated[bool, Parameter(negative=())] = False,
    plain_names: Annotated[bool, Parameter(negative=())] = False,
    cassette: Path | None = None,
    approval: Literal["ask", "host"] = "ask",
    host: Host = "127.0.0.1",
    port: Port = 8765,
    allow_host: AllowHost = (),
    allow_origin: AllowOrigin = (),
    source: Source = _SOURCE,
) -> int:
    """Serve the tools, resources and prompts as one MCP server, for MCP hosts such as editors and
    desktop apps.

    Over HTTP, addresses that other computers can reach need a token, which is read from
    MCP_SERVE_TOKEN in the environment.

    Args:
        transport: stdio for a host that starts this command, http for hosts that connect to it
            until Ctrl-C.
        toolset: The toolset to serve.
        all_tools: List every tool, for hosts that read the list only once.
        bridge: Let clients call found tools through call_tool, for hosts that read the list only
            once.
        plain_names: Keep servers' own names for tools and prompts, without the server's, if only
            one server has the name.
        cassette: Answer from this recorded session. No server is started, and no key is needed.
        approval: What to do with calls that need approval: ask through the host, and deny them if
            it cannot, or leave it to the host.
    """
    if config is not None:
        source = replace(source, config=config)
    if cassette is not None:
        if source != _SOURCE:
            raise UsageError(
                "--cassette cannot be combined with a config, --demo or --trust: only the recording"
                " answers."
            )
        # Nothing is run, so nobody has to be asked.
        approval = "host"
    if transport == "stdio":
        _show_log()
        # The host waits for an answer, not for the servers, which connect meanwhile.
        with _replayed(cassette) if cassette else source.open() as session:
            session.questions.unattended = True
            session.serve.stdio(
                tool_set=toolset,
                all_tools=all_tools,
                bridge=bridge,
                plain_names=plain_names,
                approval=approval,
            )
        return 0
    return _until_ctrl_c(
        _replayed(cassette) if cassette else source.connected(),
        lambda session: session.serve.mcp(
            host=host,
            port=port,
            tool_set=toolset,
            all_tools=all_tools,
            bridge=bridge,
            plain_names=plain_names,
            approval=approval,
            hosts=allow_host,
            origins=allow_origin,
        ),
    )


def _check_is_no_command(config: Path) -> None:
    """Refuse a word that is not a file and looks like a command, such as `serve mpc`."""
    word = str(config)
    if not config.exists() and word.replace("-", "").isalnum():
        valid = [name for name in serve if not name.startswith("-")]
        raise UsageError(
            f"serve has no command {shown(word)}, and there is no such file.",
            hint=did_you_mean(closest(word, valid), valid),
        )


def _show_log() -> None:
    """Write a service's log to stderr, at the level that `LOG_LEVEL` names."""
    from casual_mcp_nb.config.settings import Settings
    from casual_mcp_nb.notebook.log import show_log

    show_log(Settings.log_level, libraries="WARNING")


def _replayed(cassette: Path) -> Session:
    from casual_mcp_nb.session import Session

    return Session.quick(cassette=cassette, pace=0, quiet=True, store=None)


def _until_ctrl_c(
    opened: AbstractContextManager[Session], begin: Callable[[Session], Endpoint]
) -> int:
    from casual_mcp_nb.serve.serving import settled_heap

    _show_log()
    with opened as session:
        # Nobody is there to answer servers' questions.
        session.questions.unattended = True
        try:
            endpoint = begin(session)
            with settled_heap():
                show(endpoint.status)
                # Into a file or a pipe, it would be read when the service has ended.
                sys.stdout.flush()
                endpoint.wait()
        except KeyboardInterrupt:
            tell("Ending.")
    return 0


def end_process(code: int) -> NoReturn:
    """End a service's process once everything is closed, without the interpreter's own shutdown.

    Shutdown would wait for imports on other threads, and free module after module: seconds on a
    busy computer.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
