"""Which config a command uses, and the session that it opens from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from casual_mcp_nb.cli.terminal import ask, can_ask, tell, waiting
from casual_mcp_nb.errors import ConfigError, TrustRequiredError, UsageError, shown

if TYPE_CHECKING:
    from casual_mcp_nb.base.config import Config, Policies
    from casual_mcp_nb.base.tool import ToolSpec
    from casual_mcp_nb.config.trust import Trust
    from casual_mcp_nb.session import Session

DEFAULT_CONFIG = Path("casual_mcp_config.json")


@Parameter(name="*")
@dataclass(frozen=True)
class Source:
    """The options of all commands that use a config.

    Args:
        config: The config file.
        demo: Use the bundled demo servers and the offline planner instead of a config.
        trust: Start the servers of the config although you have not accepted it yet.
    """

    config: Annotated[Path, Parameter(alias="-c")] = DEFAULT_CONFIG
    demo: Annotated[bool, Parameter(negative=())] = False
    trust: Annotated[bool, Parameter(negative=())] = False

    def __post_init__(self) -> None:
        if self.demo and self.config != DEFAULT_CONFIG:
            raise UsageError("--demo and --config exclude each other.")

    def load(self) -> Config:
        """Load the config. Nothing is started.

        Raises:
            ConfigError: There is none, or it is wrong.
        """
        from casual_mcp_nb.config.loader import load_config

        if self.demo:
            return demo_config_of(None)
        if self.config == DEFAULT_CONFIG and not self.config.exists():
            raise ConfigError(
                f"There is no {shown(DEFAULT_CONFIG)} in this folder.",
                hint="Name a config with --config FILE, or use the bundled servers with --demo.",
            )
        return load_config(self.config)

    @contextmanager
    def open(
        self, config: Config | None = None, *, starts: bool = True, approval: Mapping[str, Policies] | None = None
    ) -> Iterator[Session]:
        """Open a session, and close it at the end, whatever ends it.

        It connects on first use. Before that, the person is asked about a config that they have not accepted.

        Args:
            config: The config if it is loaded already.
            starts: Whether anything will be started.
            approval: See `Session`.

        Raises:
            ConfigError: There is none, or it is wrong.
            TrustRequiredError: The person has not accepted it.
        """
        from casual_mcp_nb.session import Session

        session = Session(config or self.load(), trust=self.trust, quiet=True, approval=approval)
        session.questions.how_to_allow = _allowed_by_option
        try:
            report = session.consent.trust()
            if starts and report.required:
                _ask_for_trust(report)
            yield session
        finally:
            session.close()

    @contextmanager
    def connected(self, config: Config | None = None) -> Iterator[Session]:
        """Open a session, see `open`, and start its servers; failed ones are reported, and the others still start."""
        with self.open(config) as session:
            connect(session)
            tell_failures(session)
            yield session


def demo_config_of(model: str | None) -> Config:
    """Build the config of the demo.

    Args:
        model: See `Session.quick`; None for the offline planner.
    """
    from casual_mcp_nb.config.loader import load_config
    from casual_mcp_nb.config.quick import model_sections
    from casual_mcp_nb.notebook.starting import demo_config

    return load_config({**demo_config(), **model_sections(model)})


def connect(session: Session) -> None:
    """Start the servers of a session, and show that on a terminal."""
    from casual_mcp_nb.notebook.starting import announcement_of

    with waiting(announcement_of(session.servers)):
        session.connect(quiet=True)


def tell_failures(session: Session) -> None:
    """Report the failed servers, one line each."""
    from casual_mcp_nb.notebook.starting import line_of

    for status in session.servers.values():
        if status.state == "failed" or status.error is not None:
            tell(line_of(status))


def _allowed_by_option(tool: ToolSpec) -> str:
    """Format advice on how to allow a tool's calls from the command line."""
    option = f"--allow {tool.server}" if tool.server.replace("-", "").replace("_", "").isalnum() else f"--allow {tool.server!r}"
    return f'To allow it, use {option}, or with "approval" of this server in the config.'


def _ask_for_trust(report: Trust) -> None:
    from casual_mcp_nb.config.trust import exact

    if not can_ask():
        raise TrustRequiredError(
            f"Nothing was started: you have not accepted the servers and keys of {shown(Path(report.source).name)}.",
            hint="Run the command on a terminal to see them and be asked, or start them unseen with --trust or "
            "MCP_TRUST_CONFIGS=1 in the environment.",
        )
    tell(f"Start the servers of {exact(report.source)}? You have not accepted this yet:\n{report.text}")
    if ask("[y] yes, and remember it  [Enter] no: ").lower() not in ("y", "yes"):
        raise TrustRequiredError("Nothing was started.")
    try:
        report.accept()
    except UsageError as error:
        raise TrustRequiredError(f"Nothing was started: {error}", hint="To start it this once: --trust.") from None
