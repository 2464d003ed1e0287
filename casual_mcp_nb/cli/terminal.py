"""Shared by all commands: the config and session that they use, and their output.

Output is tables on a terminal, plain lines to a file or a program, or JSON. Text from servers and
models is cleaned of control sequences, and never read as markup.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from casual_mcp_nb.errors import ConfigError, TrustRequiredError, UsageError, shown

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.text import Text as Line

    from casual_mcp_nb.base.config import Config, Policies
    from casual_mcp_nb.base.tool import ToolSpec
    from casual_mcp_nb.config.trust import Trust as TrustReport
    from casual_mcp_nb.display.view import Block, Cell, Section, Table, View
    from casual_mcp_nb.session import Session


Flag = Annotated[bool, Parameter(negative=())]
"""An option that is given or not."""

AsJson = Annotated[bool, Parameter(name="--json", negative=(), help="Write JSON.")]
Trust = Annotated[
    bool,
    Parameter(
        negative=(), help="Start the config's servers although you have not accepted it yet."
    ),
]
Allow = Annotated[
    tuple[str, ...],
    Parameter(
        negative=(), help="Run this server's tools without asking; can be given several times."
    ),
]

_TONES = {"good": "green", "bad": "red", "busy": "cyan", "quiet": "dim"}


def tell(text: str) -> None:
    """Write a message for the person to stderr."""
    from casual_mcp_nb.display.words import clean

    sys.stdout.flush()
    sys.stderr.write(f"{encodable(clean(text), sys.stderr)}\n")
    sys.stderr.flush()


def tell_quietly(text: str) -> None:
    """Write a message to stderr that matters less, dimmed on a terminal."""
    if not sys.stderr.isatty():
        return tell(text)
    from rich.console import Console
    from rich.text import Text

    from casual_mcp_nb.display.words import clean

    Console(stderr=True, markup=False, highlight=False).print(Text(clean(text), style="dim"))
    return None


def write_json(value: Any) -> None:
    """Write a value as JSON to stdout: one document, indented on a terminal, on one line
    elsewhere.
    """
    # ASCII only: it cannot act on a terminal, and can be encoded anywhere.
    sys.stdout.write(f"{json.dumps(value, indent=2 if sys.stdout.isatty() else None)}\n")


def ask(question: str) -> str:
    """Prompt the person on stderr, which leaves a redirected stdout alone, and read the line that
    they type.
    """
    from casual_mcp_nb.display.words import clean

    sys.stderr.write(encodable(clean(question), sys.stderr))
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise UsageError("The input ended, so nothing was done.")
    return line.strip()


def can_ask() -> bool:
    """Check whether somebody sees a question on stderr and can type an answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Show progress on a terminal while the body runs."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.text import Text

    from casual_mcp_nb.display.words import one_line

    with Console(stderr=True).status(Text(one_line(text))):
        yield


def show(value: Any, *, whole: bool = False) -> None:
    """Write a value or a view to stdout; `whole` adds the parts that other text forms only name."""
    from casual_mcp_nb.display.render import to_text
    from casual_mcp_nb.display.view import DisplayLimits, Section, View, complete, fit
    from casual_mcp_nb.views import view_of

    limits = DisplayLimits(rows=100_000, cell=300, text=8_000, document=200_000, images=0)
    view = fit(value if isinstance(value, View) else view_of(value, limits), limits)
    if whole:
        view = complete(view)
    else:
        # Nothing can be unfolded here, so folded parts are left out.
        blocks = [part for part in view.blocks if not (isinstance(part, Section) and part.brief)]
        view = replace(view, blocks=tuple(blocks))
    if sys.stdout.isatty():
        console().print(_drawn(view))
    else:
        sys.stdout.write(f"{encodable(to_text(view), sys.stdout)}\n")


def show_diff(lines: Iterable[str]) -> None:
    """Write a unified diff to stdout."""
    from casual_mcp_nb.display.words import clean

    for line in map(clean, lines):
        if sys.stdout.isatty():
            from rich.text import Text

            style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
            console().print(Text(line, style=style))
        else:
            sys.stdout.write(f"{encodable(line, sys.stdout)}\n")


def console() -> Console:
    """Create a console for stdout that prints all text unchanged."""
    from rich.console import Console

    return Console(markup=False, highlight=False, emoji=False)


def encodable(text: str, stream: Any) -> str:
    """Replace each character that a stream cannot write with a mark."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)


def _drawn(part: View | Section) -> RenderableType:
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    from casual_mcp_nb.display.view import View, heading

    blocks = () if getattr(part, "brief", False) else part.blocks
    inside = Group(*map(_block, blocks))
    title, *others = heading(part) or ("",)
    if not title:
        return inside
    line = Text(title, style="bold")
    for text in others:
        line.append(f"  {text}", style="not bold dim")
    return Group(line, inside if isinstance(part, View) else Padding(inside, (0, 0, 0, 2)))


def _block(block: Block) -> RenderableType:
    from rich.table import Table as Grid
    from rich.text import Text as Line

    from casual_mcp_nb.display import view

    match block:
        case view.Table():
            return _Fitted(block)
        case view.KeyValues():
            grid = Grid.grid(padding=(0, 2))
            for label, cell in block.rows:
                grid.add_row(Line(label, style="dim"), _cell(cell))
            return grid
        case view.TextBlock():
            text = "\n".join(block.text.split("\n"))
            if block.label:
                text = f"{block.label}:\n{text}"
            return Line(text)
        case view.Line():
            if not block.mark:
                return Line(" · ".join(block.words))
            line = Line(block.mark.text, style=_TONES[block.mark.tone])
            return line.append(" · ".join(["", *block.words]))
        case view.ImageBlock():
            return Line(f"[{block.note}]")
        case view.Section():
            return _drawn(block)


@dataclass(frozen=True)
class _Fitted:
    """A table that breaks no name: on a terminal too narrow for its columns, each row is a
    paragraph.
    """

    table: Table

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Draw it for the width that there is."""
        from rich.box import SIMPLE_HEAD
        from rich.padding import Padding
        from rich.table import Table as Grid
        from rich.text import Text as Line

        table = self.table
        cells = [list(map(_cell, row)) for row in table.rows]
        filled = []
        for n in range(len(table.columns)):
            if not cells or any(row[n].plain for row in cells):
                filled.append(n)
        columns = []
        for n in filled:
            columns.append([Line(table.columns[n].title), *(row[n] for row in cells)])
        widths = _widths(
            columns,
            [table.columns[n].numeric for n in filled],
            options.max_width - _GAP * len(filled),
        )
        if widths:
            grid = Grid(
                box=SIMPLE_HEAD,
                show_edge=False,
                padding=(0, 1, 0, 0),
                caption=table.more or None,
                caption_justify="left",
            )
            for n, (title, *_), width in zip(filled, columns, widths, strict=True):
                grid.add_column(
                    title,
                    justify="right" if table.columns[n].numeric else "left",
                    overflow="fold",
                    width=width,
                )
            for row in cells:
                grid.add_row(*(row[n] for n in filled))
            yield grid
            return
        for first, *others in zip(*(column[1:] for column in columns), strict=True):
            yield first
            pairs = [
                (title, cell)
                for (title, *_), cell in zip(columns[1:], others, strict=True)
                if cell.plain
            ]
            values = [Line.assemble((f"{title} ", "dim"), cell) for title, cell in pairs]
            yield Padding(Line(" · ").join(values), (0, 0, 0, 2))
        if table.more:
            yield Line(table.more, style="dim")


_GAP = 2
_READABLE = 20
"""The narrowest column in which a sentence is readable."""


def _widths(columns: Sequence[Sequence[Line]], numeric: Sequence[bool], room: int) -> list[int]:
    """Share the terminal's width among a table's columns, so that no word breaks.

    Empty if it is too narrow.
    """
    wanted = []
    for column in columns:
        wanted.append(max(line.cell_len for line in column))
    widths = []
    for want, (title, *cells), number in zip(wanted, columns, numeric, strict=True):
        parts = title.plain.split()
        for cell in cells:
            parts += [cell.plain] if number else cell.plain.split()
        least = _READABLE if want > 2 * _READABLE else 1
        widths.append(min(want, max(*map(len, parts), least)))
    left = room - sum(widths)
    if left < 0:
        return []
    lacking = sorted(range(len(columns)), key=lambda n: wanted[n] - widths[n])
    for index, n in enumerate(lacking):
        more = min(wanted[n] - widths[n], left // (len(lacking) - index))
        widths[n] += more
        left -= more
    return widths


def _cell(cell: Cell) -> Line:
    from rich.text import Text

    from casual_mcp_nb.display.view import Name, Status, cell_text

    style = ""
    if isinstance(cell, Status):
        style = _TONES[cell.tone]
    elif isinstance(cell, Name):
        style = "bold"
    return Text(cell_text(cell), style=style)


DEFAULT_CONFIG = Path("casual_mcp_config.json")
NAME_ONE = "Name a config with --config FILE, or use the bundled servers with --demo."


@Parameter(name="*")
@dataclass(frozen=True)
class Source:
    """Options for all commands that use a config.

    Args:
        config: The config file, or the file of one server, such as server.py.
        demo: Use the bundled demo servers and the offline planner instead of a config.
    """

    config: Annotated[Path, Parameter(alias="-c")] = DEFAULT_CONFIG
    demo: Annotated[bool, Parameter(negative=())] = False
    trust: Trust = False

    def __post_init__(self) -> None:
        if self.demo and self.config != DEFAULT_CONFIG:
            raise UsageError("--demo and --config cannot be combined.")

    @property
    def is_missing(self) -> bool:
        """Whether nobody named a config, and this folder has none."""
        return not self.demo and self.config == DEFAULT_CONFIG and not self.config.exists()

    def load(self, *, starts: bool = False) -> Config:
        """Load the config. Nothing is started.

        Args:
            starts: Whether its servers will start. Then the person is asked about a config that they
                have not accepted, before they are asked for values in it.
        """
        from casual_mcp_nb.config.loader import load_accepted, load_config
        from casual_mcp_nb.config.quick import SCRIPTS, quick_config
        from casual_mcp_nb.notebook.demo import demo_config

        if self.demo:
            return demo_config()
        if self.is_missing:
            raise ConfigError(f"There is no {shown(DEFAULT_CONFIG)} in this folder.", hint=NAME_ONE)
        if self.config.suffix in SCRIPTS and self.config.is_file():
            config, _ = quick_config(servers=[shlex.quote(str(self.config))])
            return config
        if starts:
            return load_accepted(self.config, self.accept)
        return load_config(self.config)

    def accept(self, config: Config) -> None:
        """Ask the person about a config that they have not accepted."""
        from casual_mcp_nb.notebook.consent import TrustGate

        report = TrustGate(config, trusted=self.trust, strict=config.strict).report()
        if report.required:
            _ask_for_trust(report)

    @contextmanager
    def open(
        self,
        config: Config | None = None,
        *,
        starts: bool = True,
        approval: Mapping[str, Policies] | None = None,
    ) -> Iterator[Session]:
        """Open a session, and close it at the end, however it ends.

        It connects on first use. Before that, the person is asked about a config that they have not
        accepted.
        """
        from casual_mcp_nb.session import Session

        config = config or self.load(starts=starts)
        if self.demo:
            for note in config.notes:
                tell(note)
        session = Session(config, trust=self.trust, quiet=True, approval=approval)
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
        """Open a session, see `open`, and start its servers.

        Failed ones are reported, and the others still start.
        """
        with self.open(config) as session:
            connect(session)
            tell_failures(session)
            yield session


def connect(session: Session) -> None:
    """Start a session's servers, and show that on a terminal."""
    from casual_mcp_nb.notebook.start_display import announcement_of

    with waiting(announcement_of(session.servers)):
        session.connect(quiet=True)


def tell_failures(session: Session) -> None:
    """Report the failed servers, one line each."""
    from casual_mcp_nb.notebook.start_display import line_of

    for status in session.servers.values():
        if status.state == "failed" or status.error is not None:
            tell(line_of(status))


def _allowed_by_option(tool: ToolSpec) -> str:
    option = f"--allow {tool.server!r}"
    if tool.server.replace("-", "").replace("_", "").isalnum():
        option = f"--allow {tool.server}"
    return f'To allow it, use {option}, or with "approval" of this server in the config.'


def _ask_for_trust(report: TrustReport) -> None:
    from casual_mcp_nb.config.trust import exact

    if not can_ask():
        raise TrustRequiredError(
            "Nothing was started: you have not accepted the servers and keys of"
            f" {shown(Path(report.source).name)}.",
            hint=(
                "Run the command on a terminal to see them and be asked, or start them unseen with"
                " --trust or MCP_TRUST_CONFIGS=1 in the environment."
            ),
        )
    tell(
        f"Start the servers of {exact(report.source)}? You have not accepted this"
        f" yet:\n{report.text}"
    )
    if ask("[y] yes, and remember it  [Enter] no: ").lower() not in ("y", "yes"):
        raise TrustRequiredError("Nothing was started.")
    try:
        report.accept()
    except UsageError as error:
        raise TrustRequiredError(
            f"Nothing was started: {error}", hint="To start it this once: --trust."
        ) from None
