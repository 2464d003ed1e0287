"""`casual-mcp-nb chat`, `demo` and `evaluate`: one message, a conversation on the terminal, or
measured test cases.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from casual_mcp_nb.base.iterables import attributes, field_names
from casual_mcp_nb.base.model_options import DeliverySetting, ReasoningEffort
from casual_mcp_nb.cli import FAILED, INTERRUPTED, exit_code
from casual_mcp_nb.cli.terminal import (
    Allow,
    AsJson,
    Source,
    connect,
    show,
    tell,
    tell_failures,
    write_json,
)
from casual_mcp_nb.errors import CasualMcpError, UnknownNameError, UsageError

if TYPE_CHECKING:
    from casual_mcp_nb.base.config import Config
    from casual_mcp_nb.cli.transcript import TurnWriter
    from casual_mcp_nb.experiments.results import RunResults
    from casual_mcp_nb.session import Session

Names = Annotated[tuple[str, ...], Parameter(negative=())]
EventsAsJson = Annotated[
    bool,
    Parameter(
        name="--json",
        negative=(),
        help=(
            "Write the events as JSON lines. Nobody can be asked then, so calls to destructive"
            " tools are denied."
        ),
    ),
]
_SOURCE = Source()
_HELP = """\
/model [NAME]    choose a model, or list them
/toolset [NAME]  choose a toolset or all, or list them
/undo            remove the last turn
/new             start a new conversation
/quit            end, like Ctrl-D
Ctrl-C stops a running turn. Its completed steps stay in the conversation."""


@Parameter(name="*")
@dataclass(frozen=True)
class TurnSettings:
    """How a chat runs its turns.

    Args:
        model: One of the config's models, or PROVIDER:MODEL, such as openai:gpt-5.4. By default the
            config's first one.
        toolset: Only this toolset's tools.
        system: The system prompt, instead of the model's template.
        image: An image for the message: a file, or an address that the provider fetches. Can be
            given several times.
        attach: A resource to add to the message, by its URI. Can be given several times.
        template: The system prompt's template.
        temperature: How freely the model chooses its words.
        max_tokens: An answer's maximum tokens.
        top_p: Sample from the likeliest tokens up to this total probability.
        seed: Make answers repeatable, if the provider can.
        stop: End the answer at this text. Can be given several times.
        tool_choice: auto, none, required, or the tool that the first step calls.
        parallel_tool_calls: Whether one answer may call several tools.
        reasoning_effort: How much the model thinks before it answers.
        discovery: Whether deferred tools are hidden behind the search tool.
        strategy: How the model finds deferred tools.
        delivery: How the model receives search results.
        max_steps: How many model calls a turn may make.
        stream: Whether to show text as it arrives.
        repair_calls: Run calls that the model writes as text.
    """

    model: Annotated[str | None, Parameter(alias="-m")] = None
    toolset: Annotated[str | None, Parameter(alias="-t")] = None
    system: str | None = None
    allow: Allow = ()
    json: EventsAsJson = False
    image: Names = ()
    attach: Names = ()
    template: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: Names = ()
    tool_choice: str | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: ReasoningEffort | None = None
    discovery: bool | None = None
    strategy: Literal["search", "browse"] | None = None
    delivery: DeliverySetting | None = None
    max_steps: int | None = None
    stream: bool | None = None
    repair_calls: bool | None = None

    def of_a_turn(self) -> dict[str, Any]:
        """Collect the options that each turn of the chat gets."""
        apart = ("model", "toolset", "allow", "json", "image", "attach")
        named = attributes(self, (name for name in field_names(self) if name not in apart))
        return {name: value for name, value in named.items() if value not in (None, ())}

    def of_the_message(self) -> dict[str, Any]:
        """Collect the options for the message alone."""
        given = {"images": self.image, "attach": self.attach}
        return {name: list(value) for name, value in given.items() if value}


_SETTINGS = TurnSettings()


def chat(*message: str, source: Source = _SOURCE, settings: TurnSettings = _SETTINGS) -> int:
    """Send a message to a model, which can call the tools. Without one, begin a conversation.

    The message can also come from stdin. The answer goes to stdout, the model's activity meanwhile
    to stderr.

    Args:
        message: The message.
    """
    return _chat(source, source.load(starts=True), " ".join(message), settings)


def demo(
    *message: str, model: str | None = None, allow: Allow = (), json: EventsAsJson = False
) -> int:
    """Chat with the bundled demo servers: with an offline planner, which needs no key, or a model.

    Args:
        message: The message. Without one, begin a conversation.
        model: A model instead of the planner, such as openai:gpt-5.4 or ollama:qwen3.
    """
    if not message and sys.stdin.isatty():
        tell(
            "The bundled servers with "
            + (model or "an offline planner, which is not a language model")
            + "."
        )
        tell("For example: What is 17 * 24?  ·  What time is it in Tokyo when it is 14:30 in Oslo?")
    from casual_mcp_nb.notebook.demo import demo_config

    return _chat(
        Source(demo=True),
        demo_config(model),
        " ".join(message),
        TurnSettings(allow=allow, json=json),
    )


def evaluate(
    cases: Path,
    /,
    *,
    source: Source = _SOURCE,
    model: Names = (),
    delivery: Names = (),
    toolset: Names = (),
    repeats: int = 1,
    results: Path | None = None,
    judge: str | None = None,
    judge_only: Annotated[bool, Parameter(negative=())] = False,
    cassette: Path | None = None,
    record: Annotated[bool, Parameter(negative=())] = False,
    min_right: float | None = None,
    min_pass: float | None = None,
    max_cost_per_run: float | None = None,
    baseline: Path | None = None,
    max_drop: float = 0.0,
    max_total_tokens: int | None = None,
    max_cost: float | None = None,
    max_runs: int = 1_000,
    concurrency: int = 4,
    allow: Allow = (),
    json: AsJson = False,
) -> int:
    """Measure whether models call the right tools. Exits with 1 if a threshold is missed.

    Args:
        cases: The case file: JSON lines, YAML or CSV.
        model: A model. Can be given several times. By default the config's first one.
        delivery: How the model receives search results. Can be given several times.
        toolset: A toolset. Can be given several times.
        repeats: How often each case is run.
        results: The file to which runs are appended. What it has already is not asked again.
        judge: The model that grades answers of cases with a rubric.
        judge_only: Judge the runs in `--results` by the cases as they are now. No other model is
            asked and no server started.
        cassette: Let this cassette answer in place of models and servers.
        record: Record that cassette.
        min_right: The lowest accepted share of right runs, from 0 to 1.
        min_pass: The lowest accepted share of cases whose repeats are all right.
        max_cost_per_run: The highest accepted mean cost per run.
        baseline: Earlier runs, which the new ones must not be worse than.
        max_drop: How much worse they may be, from 0 to 1.
        max_total_tokens: Limit on tokens over all runs, with those that the results file records.
        max_cost: The same limit in money.
        max_runs: How many runs are allowed.
        concurrency: How many runs may overlap.
    """
    from casual_mcp_nb.experiments.results_file import load_runs

    if record and cassette is None:
        raise UsageError("--record needs --cassette FILE.")
    if judge_only and results is None:
        raise UsageError("--judge-only needs --results FILE.")
    earlier = None
    if baseline is not None:
        earlier = load_runs(baseline)
    if judge_only and results is not None:
        if judge is None:
            measured = load_runs(results).judge(cases)
        else:
            measured = _graded(source, results, cases, judge)
    else:
        options: dict[str, Any] = {
            "models": model,
            "deliveries": delivery,
            "tool_sets": toolset,
            "repeats": repeats,
            "results": results,
            "max_total_tokens": max_total_tokens,
            "max_cost": max_cost,
            "max_runs": max_runs,
            "judge": judge,
            "concurrency": concurrency,
        }
        measured = _measured(source, cases, cassette, record, allow, options)
    problems = measured.problems(
        min_right=min_right,
        min_pass=min_pass,
        max_cost=max_cost_per_run,
        baseline=earlier,
        max_drop=max_drop,
    )
    if json:
        rows = []
        for name, arm in measured.items():
            right = asdict(arm.right) if arm.right else None
            rows.append({"arm": name, "right": right, "failures": arm.failures})
        comparisons = [each.row() for each in measured.comparisons()]
        write_json(
            {
                "status": measured.status,
                "arms": rows,
                "comparisons": comparisons,
                "runs": measured.rows(),
                "problems": problems,
            }
        )
    else:
        show(measured)
    for problem in problems:
        tell(problem)
    return exit_code(not problems)


def _measured(
    source: Source,
    cases: Path,
    cassette: Path | None,
    record: bool,
    allow: Allow,
    options: dict[str, Any],
) -> RunResults:
    """Run cases in a separate session, where nobody is asked."""
    from casual_mcp_nb.session import Session

    with ExitStack() as stack:
        if cassette is not None and not record:
            session = stack.enter_context(
                Session.quick(cassette=cassette, pace=0, quiet=True, store=None)
            )
        else:
            session = stack.enter_context(source.open(approval=dict.fromkeys(allow, "never")))
            connect(session)
            tell_failures(session)
        # With so many calls, nobody can be asked about each.
        session.questions.unattended = True
        if cassette is not None and record:
            stack.enter_context(session.cassettes.use(cassette, "all"))
        return session.experiments.run(cases, **options)


def _graded(source: Source, results: Path, cases: Path, judge: str) -> RunResults:
    """Have a judge model grade the answers in a results file."""
    with source.open() as session:
        return session.experiments.judge(results, cases, judge)


def _chat(source: Source, config: Config, message: str, settings: TurnSettings) -> int:
    interactive = not message and sys.stdin.isatty() and sys.stdout.isatty()
    if interactive and settings.of_the_message():
        raise UsageError(
            "--image and --attach need a message.",
            hint='For example: casual-mcp-nb chat --image a.png "What is this?"',
        )
    if interactive and settings.json:
        raise UsageError(
            "--json takes one message.",
            hint='Give it as an argument or on stdin: casual-mcp-nb chat --json "…"',
        )
    if not message and not interactive:
        message = sys.stdin.read().strip()
        if not message:
            raise UsageError(
                "The message is empty.", hint='For example: casual-mcp-nb chat "What is 17 * 24?"'
            )
    from casual_mcp_nb.config.quick import OFFLINE, with_model

    config = config or source.load(starts=True)
    if settings.model is not None:
        config = with_model(config, settings.model)
    elif not config.models:
        tell(
            "The config has no model, so an offline planner answers, which is not a language model."
            " Choose one: --model openai:gpt-4.1."
        )
        config = with_model(config, OFFLINE)
    with source.open(config, approval=dict.fromkeys(settings.allow, "never")) as session:
        connect(session)
        tell_failures(session)
        if settings.toolset is not None:
            session.selection.tool_set = settings.toolset
        if interactive:
            return _converse(session, settings.of_a_turn())

        # A question would be written between the JSON lines, and a pipe is not a person.
        session.questions.unattended = settings.json or not sys.stdin.isatty()
        from casual_mcp_nb.cli.transcript import JsonLines, TerminalTranscript

        writer = JsonLines(session) if settings.json else TerminalTranscript(session)
        return _run(session, message, writer, {**settings.of_a_turn(), **settings.of_the_message()})


def _run(session: Session, message: str, writer: TurnWriter, options: dict[str, Any]) -> int:
    """Run a turn, write it as it runs, and return the exit code."""
    forget = session.observe(writer.on_event)
    try:
        turn = session.chat(message, echo="none", **options)
    except (KeyboardInterrupt, SystemExit) as end:
        if not writer.ends_stopped_turns or writer.turn is None:
            raise
        writer.finish(writer.turn)
        if isinstance(end, KeyboardInterrupt):
            return INTERRUPTED
        if isinstance(end.code, int):
            return end.code
        return FAILED
    finally:
        forget()
        writer.interrupted()
    writer.finish(turn)
    return exit_code(turn.status == "done")


def _converse(session: Session, options: dict[str, Any]) -> int:
    from casual_mcp_nb.cli.transcript import TerminalTranscript

    with suppress(ImportError):
        # It gives `input` a history and keys to edit a line.
        import readline  # noqa: F401
    tell(f"Model: {session.model or 'none'}. /help lists the commands. Ctrl-D ends the chat.")
    while True:
        try:
            line = input("> ").strip()
        except EOFError:
            tell("")
            return 0
        except KeyboardInterrupt:
            tell("")
            continue
        try:
            if line in ("/quit", "/exit"):
                return 0
            if line.startswith("/"):
                _command(session, *line[1:].split(maxsplit=1))
            elif line:
                _run(session, line, TerminalTranscript(session), options)
        except KeyboardInterrupt:
            tell("Stopped. Completed steps are kept.")
        except CasualMcpError as error:
            tell(str(error))


def _command(session: Session, command: str = "", value: str = "") -> None:
    value = value.strip()
    match command:
        case "help":
            tell(_HELP)
        case "new":
            session.conversations.new()
        case "undo":
            if session.undo() is None:
                raise UsageError("There is no turn to undo.")
        case "model" if value:
            session.model = value
        case "model":
            show(session.models)
        case "toolset" if value:
            session.selection.tool_set = None if value == "all" else value
        case "toolset":
            show(session.tools.sets)
        case _:
            raise UnknownNameError(
                "command", f"/{command}", ["/help", "/model", "/new", "/quit", "/toolset", "/undo"]
            )
