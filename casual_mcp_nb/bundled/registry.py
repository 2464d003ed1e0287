"""The servers that ship with the package. Importing this module imports no server and no SDK."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from casual_mcp_nb.base.iterables import by_name, labelled
from casual_mcp_nb.doors import in_words_of, pip_install

if TYPE_CHECKING:
    from casual_mcp_nb.bundled._server import FunctionServer


@dataclass(frozen=True)
class Missing:
    """Why a bundled server is not available: the missing part, and the line that installs it."""

    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.reason}; {self.remedy}"


@dataclass(frozen=True)
class BundledServer:
    """A bundled server: its purpose and how a client should treat it.

    Args:
        default: Whether the demo includes it.
        approval: The default policy for its tools.
        example: A first question that the offline planner can answer with it, or empty for none.
        libraries: Modules from other packages that it cannot start without.
        extra: This package's extra that installs them, or empty if the package itself does.
        credentials: Lists the missing credentials, without importing a library, or None if it needs
            none. Such a server runs only in its own process, the only one that reads them.
        asks_each_time: Tools that act in the user's name towards other people: each call needs
            approval, whatever the policy.
        finished: Returns the arguments as they would be sent by such a tool, for the approval
            question. Raises ValueError, with a reason for the model, if nothing can be sent. None
            if they are sent unchanged.
    """

    name: str
    summary: str
    default: bool = True
    approval: Literal["never", "destructive", "always"] = "never"
    example: str = ""
    libraries: tuple[str, ...] = ()
    extra: str = ""
    credentials: Callable[[], Missing | None] | None = None
    asks_each_time: frozenset[str] = frozenset()
    finished: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None

    def missing(self) -> Missing | None:
        """Explain why the server cannot run here, or None if it can."""
        missing = self.missing_libraries()
        if missing is None and self.credentials is not None:
            missing = self.credentials()
        return missing

    def missing_libraries(self) -> Missing | None:
        """List its libraries that are not installed, or return None if all are."""
        absent = [name for name in self.libraries if not _installed(name)]
        if not absent:
            return None
        package = f'"casual-mcp-nb[{self.extra}]"' if self.extra else "casual-mcp-nb"
        return Missing(
            f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not installed",
            pip_install(package),
        )


def _google(*one_of: str) -> Missing | None:
    from casual_mcp_nb.bundled.google_account import missing

    reason = missing(*one_of)
    if not reason:
        return None
    return Missing(reason, f"run casual-mcp-nb sign-in google {' '.join(one_of)}")


def _finished_mail(arguments: Mapping[str, Any]) -> dict[str, Any]:
    from casual_mcp_nb.bundled._outgoing_mail import finished_call

    return finished_call(arguments)


def _anthropic() -> Missing | None:
    from casual_mcp_nb.bundled.anthropic_usage_server import VARIABLE, key_problem

    if (reason := key_problem()) is None:
        return None
    return Missing(
        reason, f"run casual-mcp-nb sign-in anthropic, or set {VARIABLE} in the server's env"
    )


_GOOGLE = ("googleapiclient", "google_auth_oauthlib", "google_auth_httplib2", "inscriptis", "lxml")

_SERVERS = (
    BundledServer(
        "system-info",
        "Facts about this computer: system, processor, memory, disks, network addresses,"
        " processes.",
        libraries=("psutil",),
    ),
    BundledServer(
        "files",
        "Read, write, list, search, copy, move and delete files inside one folder.",
        approval="destructive",
    ),
    BundledServer(
        "math",
        "Arithmetic, a safe expression evaluator, statistics, equations and number theory.",
        example="What is 17 * 23?",
    ),
    BundledServer(
        "time",
        "Current time, time zones, dates, durations and calendars.",
        example="What time is it in Tokyo when it is 14:30 in Oslo?",
        libraries=("dateutil",),
    ),
    BundledServer(
        "units",
        "Convert length, mass, temperature, volume, speed, area, data, energy, pressure, time and"
        " other units.",
        example="How many kilometres are 26.2 miles?",
        libraries=("pint",),
        extra="bundled",
    ),
    BundledServer(
        "text",
        "Work on text: HTML to text, counting, extracting, replacing, comparing, encoding, JSON and"
        " CSV.",
    ),
    BundledServer(
        "sqlite",
        "Inspect and change an SQLite database, or a sample shop if no file is given.",
        approval="destructive",
    ),
    BundledServer(
        "web",
        "Fetch pages of the public web as text, with the job postings on them.",
        default=False,
        approval="always",
        libraries=("inscriptis", "lxml"),
        extra="bundled",
    ),
    BundledServer(
        "shell",
        "Run shell commands on this computer, with a limit on time and output.",
        default=False,
        approval="always",
    ),
    BundledServer(
        "gmail",
        "Search, read and send mail with your Google account.",
        default=False,
        libraries=_GOOGLE,
        extra="google",
        credentials=partial(_google, "gmail-read", "gmail-send"),
        asks_each_time=frozenset({"gmail_send"}),
        finished=_finished_mail,
    ),
    BundledServer(
        "calendar",
        "List, read and create events in your Google calendars.",
        default=False,
        libraries=_GOOGLE,
        extra="google",
        credentials=partial(_google, "calendar", "calendar-read"),
        asks_each_time=frozenset({"calendar_create_event"}),
    ),
    BundledServer(
        "anthropic-usage",
        "What your organization used and paid at Anthropic, from its Admin API. Read only.",
        default=False,
        credentials=_anthropic,
    ),
    BundledServer(
        "linkedin",
        "Search and read public job postings on LinkedIn.",
        default=False,
        libraries=("inscriptis", "lxml"),
        extra="bundled",
    ),
)

BUNDLED: Mapping[str, BundledServer] = MappingProxyType(by_name(_SERVERS))


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def bundled_server(name: str) -> BundledServer:
    """Look up a bundled server by name."""
    if name in BUNDLED:
        return BUNDLED[name]
    from difflib import get_close_matches

    close = get_close_matches(name, BUNDLED, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise ValueError(f"unknown bundled server {name!r}; {hint}valid names: {', '.join(BUNDLED)}")


def build_server(
    server: BundledServer, args: Sequence[str], *, add_help: bool = False
) -> FunctionServer:
    """Import the server's module, parse its options and build it.

    With `add_help`, `--help` is answered on stdout.
    """
    import argparse

    class CommandParser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise ValueError(f"{self.prog}: {message}; valid: {self.format_usage().strip()}")

        def format_usage(self) -> str:
            return " ".join(super().format_usage().split())

    missing = server.missing()
    if missing is not None:
        raise ValueError(f"the bundled server {server.name} cannot start: {missing}")
    module = import_module(f"casual_mcp_nb.bundled.{server.name.replace('-', '_')}_server")
    parser = CommandParser(
        prog=server.name, description=server.summary, add_help=add_help, allow_abbrev=False
    )
    if hasattr(module, "add_options"):
        module.add_options(parser)
    built: FunctionServer = module.build(**vars(parser.parse_args(list(args))))
    return built


@dataclass(frozen=True)
class Available:
    """The bundled servers that can run here, and why the others are left out."""

    servers: Mapping[str, dict[str, str]]
    missing: Mapping[str, Missing]

    def __str__(self) -> str:
        lines = [f"{name}: ready" for name in self.servers]
        return "\n".join([*lines, *labelled(self.missing.items())])


def available(*names: str) -> Available:
    """List the bundled servers that can run here, with the reasons why the others cannot.

    Without names, those that are off by default are left out. Nothing is started, and no server
    library is imported.
    """
    servers: dict[str, dict[str, str]] = {}
    missing: dict[str, Missing] = {}
    for server in list(map(bundled_server, names)) or BUNDLED.values():
        why = server.missing()
        if why is None and not server.default and not names:
            why = Missing("off by default", in_words_of(f"%mcp add {server.name}"))
        if why is None:
            servers[server.name] = {"bundled": server.name}
        else:
            missing[server.name] = why
    return Available(servers, missing)
