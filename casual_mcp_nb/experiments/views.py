"""Views for comparisons, evaluations, results and lints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from casual_mcp_nb.base.prices import Cost
from casual_mcp_nb.conversation.views import model_words
from casual_mcp_nb.display import words
from casual_mcp_nb.display.view import (
    Bar,
    Block,
    Cell,
    DisplayLimits,
    KeyValues,
    Line,
    Name,
    Section,
    Status,
    Table,
    TextBlock,
    View,
    columns,
    fraction,
)
from casual_mcp_nb.experiments import conclusions as sentences
from casual_mcp_nb.experiments.arm_results import (
    ArmComparison,
    ArmComparisons,
    ArmResults,
    MeasureName,
    Spread,
)
from casual_mcp_nb.experiments.findings import Lint, LintFinding
from casual_mcp_nb.experiments.graded import Verdict
from casual_mcp_nb.experiments.matching import FAILURE_GROUPS, FailureGroup
from casual_mcp_nb.experiments.percentage_points import points, span
from casual_mcp_nb.experiments.price_conclusions import price_conclusions
from casual_mcp_nb.experiments.results import Experiments, ResultsStatus, RunResults
from casual_mcp_nb.experiments.run_record import RunRecord, judge_cost_of
from casual_mcp_nb.experiments.search_scores import Evaluation, Miss, StrategyScore
from casual_mcp_nb.experiments.tool_uses import ToolUse, ToolUses
from casual_mcp_nb.experiments.worth import Advice, ToolWorth, Worth

Cells = tuple[Cell, ...]
"""A row of a table."""

_BLUE = 2
_COLOURS: dict[MeasureName, int] = {"tokens_in_full": _BLUE, "tokens_reused": 1, "cost": _BLUE}
"""The bar colours. All others are grey."""
_MAX_TOOLS = 6


_NOTHING_COMPARED = (
    "Nothing was compared yet. session.experiments.compare(…) answers a prompt with several"
    " set-ups, .run(cases) measures whether a model calls the right tools, .evaluate(…) how well"
    " tools are found, and .lint() lists descriptions that need work."
)


def experiments_view(experiments: Experiments, limits: DisplayLimits) -> View:
    """Show the last results, or the possible ones."""
    if experiments.results is not None:
        return results_view(experiments.results, limits)
    return View("experiments", "Experiments", (TextBlock(_NOTHING_COMPARED),))


_SCORES = (
    "Strategy",
    "Any need met",
    "Needs met",
    "All needs met",
    "MRR",
    "Right server",
    "Tokens loaded #",
    "Misses #",
)


def evaluation_view(evaluation: Evaluation, limits: DisplayLimits) -> View:
    """Show each strategy's figures in a row, and its misses, with reasons."""
    scores = evaluation.scores[: limits.rows]
    facts = (
        ("Cases", words.count(evaluation.cases, "case")),
        ("Searched", words.count(evaluation.tools, "tool")),
        ("Results counted", f"top {evaluation.k:,} of each search"),
        ("All definitions", words.tokens(evaluation.definition_tokens, "estimated")),
        ("Manifest", words.tokens(evaluation.manifest_tokens, "estimated")),
    )
    table = Table(
        columns(*_SCORES), tuple(map(_score_row, scores)), len(evaluation.scores) - len(scores)
    )
    each = max(2, limits.rows // max(1, len(scores)))
    misses = [_misses(score, each) for score in scores if score.misses]
    return View("evaluation", "Discovery evaluation", (KeyValues(facts), table, *misses))


def _folded(title: str, note: str, *blocks: Block, mark: Status | None = None) -> Section:
    return Section(title, blocks, note=note, mark=mark, fold="closed")


def _score_row(score: StrategyScore) -> Cells:
    shares = (score.recall_any, score.recall, score.recall_all, score.mrr, score.server)
    bars = tuple(Bar(f"{share:.2f}", share, narrow=True) for share in shares)
    return (
        Name(score.name),
        *bars,
        words.about(round(score.loaded_tokens), "estimated"),
        words.number(len(score.misses)),
    )


def _misses(score: StrategyScore, limit: int) -> Section:
    table = Table.of(columns("Query", "Wanted", "Found", "Why"), score.misses, _miss_row, limit)
    return _folded(f"Misses of {score.name}", words.count(len(score.misses), "case"), table)


def _miss_row(miss: Miss) -> Cells:
    wanted = "; ".join(" or ".join(map(str, sorted(need))) for need in miss.unmet)
    return (miss.case.query, wanted, ", ".join(map(str, miss.found)) or "nothing", miss.reason)


def lint_view(lint: Lint, limits: DisplayLimits) -> View:
    """Show the findings by kind, folded."""
    note = f"{words.count(len(lint), 'finding')} in {words.count(lint.tools, 'tool')}"
    kinds = lint.by_kind()
    if not kinds:
        return View("lint", "Catalog lint", (TextBlock("No findings."),), note=note)
    each = max(2, limits.rows // len(kinds))
    blocks = [_findings(kind, findings, each) for kind, findings in kinds.items()]
    return View("lint", "Catalog lint", tuple(blocks), note=note)


def _findings(kind: str, findings: tuple[LintFinding, ...], limit: int) -> Section:
    table = Table.of(columns("Tool", "Finding"), findings, _finding_row, limit)
    return _folded(kind.capitalize(), words.count(len(findings), "finding"), table)


def _finding_row(finding: LintFinding) -> Cells:
    return (Name(str(finding.tool)), finding.text)


_ENDED: dict[ResultsStatus, Status] = {
    "running": Status("▸ running", "busy"),
    "done": Status("✓ done", "good"),
    "stopped": Status("■ stopped", "quiet"),
    "over budget": Status("■ stopped at the budget", "bad"),
    "failing": Status("✗ failed", "bad"),
}
_MEANS: dict[MeasureName, str] = {
    "tokens_in_full": "Input in full",
    "tokens_reused": "Input reused",
    "output_tokens": "Output",
    "steps": "Steps",
    "calls": "Calls",
    "searches": "Searches",
    "seconds": "Time",
    "cost": "Cost",
}
_OPTIONAL: tuple[MeasureName, ...] = ("searches", "cost")
"""Columns that are left out where they say nothing."""


def results_view(results: RunResults, limits: DisplayLimits) -> View:
    """Show the progress, the conclusions in sentences, a table of the arms, their failures, and the
    answers.
    """
    blocks: list[Block] = [_progress(results)]
    if results.problem:
        blocks.append(Line(Status(results.problem, "bad")))
    blocks.append(_sentences(_told(results)))
    blocks.append(arms_table(results, limits))
    if results.status != "running":
        blocks += failure_sections(results, limits)
        blocks += _by_case(results, limits)
        blocks += _spread(results, limits)
        if uses := results.tool_uses():
            note = "runs in which each was needed, and how it fared"
            blocks.append(_folded("Deferred tools", note, _uses_table(uses, limits)))
        blocks += _not_made(results, limits)
    blocks += _answers(results, limits)
    note = (
        f"{words.count(len(results), 'arm')} · {words.count(len(results.cases), 'case')} ·"
        f" {words.count(results.repeats, 'repeat')}"
    )
    return View("runs", "Tool use", tuple(blocks), note=note)


def _told(results: RunResults) -> Iterator[str]:
    """Write what the runs show, and which of them count for nothing."""
    if results.status != "running":
        yield from price_conclusions(results)
        yield from sentences.conclusions(results)
    if results.left_out:
        runs = words.count(results.left_out, "run")
        yield f"{runs} of an earlier set-up or of other messages are in the file, and left out."
    if results.retried:
        runs = words.count(len(results.retried), "run")
        yield f"{runs} had been broken off before, and were asked again."
    yield from _without_verdict(results)
    yield from _grading(results)


def _sentences(text: Iterable[str]) -> TextBlock:
    """Show a sentence per line, also where a name in it has a line end."""
    return TextBlock("\n".join(map(words.one_line, text)))


def _not_made(results: RunResults, limits: DisplayLimits) -> Iterator[Block]:
    """Show why runs could not be made, each reason once in an arm."""
    cases: dict[tuple[str, str], list[str]] = {}
    for record in results.not_made:
        cases.setdefault((record.arm, record.detail), []).append(record.label)
    if not cases:
        return
    titles = columns("Case", "Arm", "Runs #", "Why")
    table = Table.of(titles, cases.items(), _not_made_row, limits.rows)
    note = f"{words.count(len(results.not_made), 'run')}, neither right nor wrong"
    yield _folded("Not made", note, table)


def _not_made_row(group: tuple[tuple[str, str], list[str]]) -> Cells:
    (arm, why), labels = group
    named = words.listed(dict.fromkeys(labels), _MAX_TOOLS)
    return (named, arm, words.number(len(labels)), why)


def _without_verdict(results: RunResults) -> Iterator[str]:
    """Write how many runs are in no share of right runs, since they were not made or not graded."""
    failed = len(results.not_made)
    if failed and results.judged:
        was, is_ = ("was", "is") if failed == 1 else ("were", "are")
        yield f"{words.count(failed, 'run')} {was} not made, and {is_} neither right nor wrong."
    ungraded = sum(arm.not_graded for arm in results.values())
    if ungraded:
        verb = "is" if ungraded == 1 else "are"
        yield f"{words.count(ungraded, 'answer')} {verb} not graded, and neither right nor wrong."


def _grading(results: RunResults) -> Iterator[str]:
    """Write who graded, what that took, and how far a person agrees."""
    runs = results.graded
    asked = sum(any(each.asked for each in record.grades) for record in runs)
    if not asked:
        return
    graded = sum(record.grade is not None for record in runs)
    answers = words.count(asked, "answer")
    if graded != asked:
        answers = f"{graded:,} of {answers}"
    verdicts: list[Verdict] = []
    for record in runs:
        verdicts += record.grades
    took = words.tokens(sum(record.judge_tokens for record in runs), "reported")
    cost = judge_cost_of(runs)
    currencies = {each.currency for each in verdicts}
    if cost is not None and len(currencies) == 1:
        took = f"{took} and {Cost(cost, currencies.pop() or '')}"
    judges = words.listed(dict.fromkeys(each.model for each in verdicts), _MAX_TOOLS)
    yield f"{judges} graded {answers}. That took {took}, apart from the runs' own."
    if any(record.reference for record in runs):
        yield str(results.agreement())


def _progress(results: RunResults) -> Line:
    ended, planned = len(results.records), max(results.planned, len(results.records))
    figures = [words.count(planned, "run")]
    if ended < planned:
        figures = [f"{ended:,} of {figures[0]}"]
    if results.status == "running":
        figures += [f"{arm}: {case}" for case, arm in sorted(results.active)[:1]]
    if results.reused:
        figures.append(f"{results.reused:,} made before")
    models = {(record.model, record.provider) for record in results.records if record.model}
    if len(models) == 1:
        figures.append(model_words(*models.pop()))
    rankings = {arm.ranked_by for arm in results.values() if arm.ranked_by}
    if len(rankings) == 1:
        figures.append(f"searches by {rankings.pop()}")
    if results.not_made:
        figures.append(f"{len(results.not_made):,} failed")
    figures.append(words.seconds(results.seconds))
    mark = _ENDED[results.status]
    if results.status == "done" and results.records and len(results.not_made) == ended:
        mark = Status("✗ no run could be made", "bad")
    return Line(mark, tuple(filter(None, figures)), data=(("part", "figures"),))


_DIFFERENCES = columns(
    "Arm",
    "Compared with",
    "Right more often by",
    "Interval",
    "p",
    "Cases better #",
    "Worse #",
    "The same #",
)


def comparisons_view(comparisons: ArmComparisons, limits: DisplayLimits) -> View:
    """Show how much more often each arm is right than the first one."""
    block: Block = TextBlock("No two arms have a judged case in common.")
    if comparisons:
        block = Table.of(_DIFFERENCES, comparisons, _difference_row, limits.rows)
    return View("comparisons", "Arms compared", (block,))


def comparison_view(comparison: ArmComparison, limits: DisplayLimits) -> View:
    """Show how much more often one arm is right than another."""
    table = Table(_DIFFERENCES, (_difference_row(comparison),))
    return View("comparison", "Arms compared", (table,))


def _difference_row(comparison: ArmComparison) -> Cells:
    right = comparison.right
    interval = span(right.low, right.high)
    return (
        comparison.second,
        comparison.first,
        f"{right.mean * 100:+.0f} points",
        f"{interval} ({sentences.level_words(right.level)})",
        f"{right.corrected_p:.2g}",
        *map(words.number, (right.better, right.worse, right.same)),
    )


def arms_table(results: RunResults, limits: DisplayLimits) -> Table:
    """Show the arms with right runs and mean figures."""
    arms = list(results.values())[: limits.rows]
    planned, last = results.repeats * len(results.cases), results.repeats
    cells: dict[str, Sequence[Cell]] = {
        "Arm": list(results)[: limits.rows],
        "Runs #": [_runs(arm, planned) for arm in arms],
    }
    if results.judged:
        cells["Right"] = list(map(_right, arms))
        if planned > 1:
            # Of one run, an interval says nothing.
            cells["95% interval"] = list(map(_interval, arms))
        if last > 1:
            cells[f"Right {last} of {last}"] = [_passed(arm, last) for arm in arms]
    rankings = [arm.ranked_by or "" for arm in arms]
    if len(set(filter(None, rankings))) > 1:
        cells["Searches by"] = rankings
    for name, title in _MEANS.items():
        spreads = [arm.spread(name) for arm in arms]
        if name not in _OPTIONAL or any(each and each.high for each in spreads):
            cells[title] = _bars(name, spreads, arms)
    return _by_column(cells, len(results) - len(arms))


def _by_column(cells: Mapping[str, Sequence[Cell]], hidden: int) -> Table:
    """Make a table of columns, each with its title and its cells."""
    return Table(columns(*cells), tuple(zip(*cells.values(), strict=True)), hidden)


def _runs(arm: ArmResults, planned: int) -> Cell:
    text = words.number(len(arm.done))
    if len(arm.done) < planned:
        text = f"{text} of {planned:,}"
    if arm.not_graded:
        text = f"{text}, {arm.not_graded:,} not graded"
    if arm.not_made:
        text = f"{text}, {arm.not_made:,} failed"
    return Status(text, "bad") if arm.not_made or arm.not_graded else text


def _right(arm: ArmResults) -> Cell:
    right = arm.right
    if right is None:
        return words.UNKNOWN
    return Bar(words.percent(right.value), right.value, _BLUE, narrow=True)


def _interval(arm: ArmResults) -> str:
    right = arm.right
    if right is None:
        return words.UNKNOWN
    return f"{words.percent(right.low)} to {words.percent(right.high)}"


def _passed(arm: ArmResults, last: int) -> str:
    passed, short = arm.pass_hat(last), arm.cases_short_of(last)
    text = _share(passed)
    if passed is not None and short:
        text += f" (without {words.count(short, 'case')} with fewer runs)"
    return text


def _bars(
    name: MeasureName, spreads: Sequence[Spread | None], arms: Sequence[ArmResults]
) -> list[Cell]:
    """Show an arm's mean in each cell, with a bar unless all are the same."""
    lengths = {spread.mean for spread in spreads if spread}
    cells: list[Cell] = []
    for spread, arm in zip(spreads, arms, strict=True):
        mean = spread.mean if spread else None
        number = _number(name, mean, arm)
        if len(lengths) < 2:
            cells.append(number)
        else:
            share = fraction(mean, max(lengths))
            cells.append(Bar(number, share, _COLOURS.get(name, 0), narrow=True))
    return cells


def _number(name: MeasureName, value: float | None, arm: ArmResults) -> str:
    if value is None:
        return words.UNKNOWN
    match name:
        case "seconds":
            return words.seconds(value)
        case "cost":
            return str(Cost(value, arm.currency or "")).partition(" (")[0]
        case "tokens_in_full" | "input_tokens":
            return words.about(round(value), arm.origin)
        case "tokens_reused":
            return words.about(round(value), arm.reused_origin)
        case "output_tokens":
            return words.about(round(value), "reported")
    return f"{value:.1f}".removesuffix(".0")


def _spread(results: RunResults, limits: DisplayLimits) -> Iterator[Block]:
    """Show each figure's lowest and highest value in a run."""
    if not any(len(arm.done) > 1 for arm in results.values()):
        return
    arms = list(results.values())[: limits.rows]
    cells = {"Arm": list(results)[: limits.rows]}
    for name, title in _MEANS.items():
        ranges = [_range(name, arm) for arm in arms]
        if any(each != words.UNKNOWN for each in ranges):
            cells[title] = ranges
    table = _by_column(cells, len(results) - len(arms))
    yield _folded("Spread", "lowest and highest of a run", table)


def _range(name: MeasureName, arm: ArmResults) -> str:
    spread = arm.spread(name)
    if spread is None:
        return words.UNKNOWN
    low, high = _number(name, spread.low, arm), _number(name, spread.high, arm)
    return low if low == high else f"{low} to {high}"


def _rest(values: Sequence[object], limits: DisplayLimits) -> tuple[TextBlock, ...]:
    """Count those that are not shown, if there are any."""
    if len(values) <= limits.rows:
        return ()
    return (TextBlock(f"{len(values) - limits.rows:,} more"),)


def _answers(results: RunResults, limits: DisplayLimits) -> Iterator[Block]:
    """Show the answers, if there are few, or if none was judged, so that they must be read."""
    # Why the others have none is said once, under "Not made".
    answered = [record for record in results.records if record.made or record.answer]
    if not answered or (results.judged and len(results.records) > limits.rows):
        return
    sections = tuple(_answer(record, results, limits) for record in answered[: limits.rows])
    prompt: tuple[Block, ...] = ()
    if len(results.cases) == 1 and answered[0].message:
        prompt = (TextBlock(answered[0].message, label="Prompt"),)
    yield Section("Answers", (*prompt, *sections, *_rest(answered, limits)))


def _answer(record: RunRecord, results: RunResults, limits: DisplayLimits) -> Section:
    notes = []
    if len(results.cases) > 1:
        notes += [record.label, _message(record)]
    if results.repeats > 1:
        notes.append(f"repeat {record.repeat + 1:,}")
    notes.append(words.listed(record.called, _MAX_TOOLS))
    if record.refused:
        notes.append(f"refused: {words.listed(record.refused, _MAX_TOOLS)}")
    blocks: list[Block] = [Line(Status(record.detail, "bad"))] if record.detail else []
    if record.answer or record.made:
        blocks.append(_text(record, limits))
    note = words.joined(*notes, by=" · ")
    return _folded(record.arm, note, *blocks, mark=_mark(record))


def _message(record: RunRecord) -> str:
    """Return the message, or an empty text if the case's label is the same."""
    return record.message if record.message != record.label else ""


def _text(record: RunRecord, limits: DisplayLimits, label: str = "") -> TextBlock:
    answer = record.answer
    return TextBlock(answer or "No text.", label=label, limit=limits.text, prose=bool(answer))


def _mark(record: RunRecord) -> Status:
    if record.right:
        return Status("✓ right", "good")
    if record.right is False:
        return Status(f"✗ {record.outcome}", "bad")
    if record.ungraded:
        return Status("? not graded", "quiet")
    return Status("✓ done", "good") if record.made else Status("✗ failed", "bad")


def failure_sections(results: RunResults, limits: DisplayLimits) -> Iterator[Block]:
    """Show the wrong runs, counted by reason."""
    arms = list(results.values())
    present_groups = set[FailureGroup]().union(*(arm.failures for arm in arms))
    groups = [group for group in FAILURE_GROUPS if group in present_groups]
    if not groups:
        return
    cells = {"Group": list(map(str.capitalize, groups))}
    for arm in arms[: limits.rows]:
        failures = arm.failures
        cells[f"{arm.name} #"] = [words.number(failures.get(group, 0)) for group in groups]
    # Few runs are all shown, with their answers.
    wrong = results.failures() if len(results.records) > limits.rows else ()
    sections = tuple(_wrong_run(record, limits) for record in wrong[: limits.rows])
    yield Section("Failures", (_by_column(cells, 0), *sections, *_rest(wrong, limits)))


def _wrong_run(record: RunRecord, limits: DisplayLimits) -> Section:
    blocks = [_text(record, limits, "Answer")]
    if record.called:
        blocks.insert(0, TextBlock(", ".join(record.called), label="Called"))
    note = words.joined(record.arm, _message(record), record.detail, by=" · ")
    mark = Status(record.failure or "wrong", "bad")
    return _folded(record.label, note, *blocks, mark=mark)


def _by_case(results: RunResults, limits: DisplayLimits) -> Iterator[Block]:
    if not any(record.made for record in results.records) or len(results.cases) < 2:
        return
    labels = {record.case: record.label for record in results.records}
    if not results.judged:
        sections = []
        for case in results.cases[: max(2, limits.rows // 3)]:
            table = arms_table(results.of_cases([case]), limits)
            sections.append(Section(labels.get(case, case), (table,)))
        note = words.count(len(results.cases), "case")
        yield _folded("By case", note, *sections)
    elif len(results) > 1:
        table = _shares_by_case(results, labels, limits)
        yield _folded("By case", "share of right runs", table)


def _shares_by_case(results: RunResults, labels: Mapping[str, str], limits: DisplayLimits) -> Table:
    shares = {name: results[name].means("right") for name in list(results)[: limits.rows]}
    first, *_, last = shares.values()

    def difference(case: str) -> float:
        return -abs(last.get(case, 0) - first.get(case, 0))

    cases = sorted(results.cases, key=difference)[: limits.rows]
    cells = {"Case": [labels.get(case, case) for case in cases]}
    for name, means in shares.items():
        cells[f"{name} #"] = [_share(means.get(case)) for case in cases]
    return _by_column(cells, len(results.cases) - len(cases))


def _share(mean: float | None) -> str:
    return words.UNKNOWN if mean is None else words.percent(mean)


def tool_uses_view(uses: ToolUses, limits: DisplayLimits) -> View:
    """Show for each deferred tool how often it was needed, searched for, found and called."""
    block = _uses_table(uses, limits) if uses else TextBlock("No tool was deferred.")
    return View("tool-uses", "Use of deferred tools", (block,), note=words.count(len(uses), "tool"))


def _uses_table(uses: ToolUses, limits: DisplayLimits) -> Table:
    ordered = sorted(
        uses, key=lambda use: (-use.needed, use.called - use.needed, -use.unneeded_found)
    )
    titles = columns(
        "Tool",
        "Arm",
        "Runs #",
        "Needed #",
        "Searched #",
        "Found #",
        "Called #",
        "Found, not needed #",
    )
    return Table.of(titles, ordered, _use_row, limits.rows)


def _use_row(use: ToolUse) -> Cells:
    counts = (use.runs, use.needed, use.searched, use.found, use.called, use.unneeded_found)
    return (Name(use.tool), use.arm, *map(words.number, counts))


_TONES: dict[Advice, Literal["good", "quiet", "bad"]] = {
    "load": "good",
    "defer": "quiet",
    "off": "bad",
}


def worth_view(worth: Worth, limits: DisplayLimits) -> View:
    """Show each server's and tool's gain and cost, with the advice."""
    most = max((each.tokens for each in worth), default=0)
    rows = tuple(_worth_row(each, most) for each in worth[: limits.rows])
    titles = columns(
        "Server or tool",
        "Advice",
        "Brings #",
        "95% interval",
        "Definitions",
        "Added to a run #",
        "Called #",
        "Needed #",
        "If loaded #",
        "If deferred #",
    )
    text = (
        "Brings: how many more runs are right with it than without. If loaded, if deferred:"
        " estimated tokens per run, which no run measures. worth.apply() applies the advice,"
        " apply(NAME) also saves it."
    )
    note = (
        f"{words.count(len(worth.results.cases), 'case')} ·"
        f" {words.count(len(worth.results.records), 'run')}"
    )
    together = [
        *sentences.of_redundant(worth.plan.redundant),
        sentences.of_joint(worth.plan.off, worth.plan.joint),
    ]
    blocks = _incomplete(worth.results)
    blocks.append(_sentences(filter(None, [*together, text])))
    blocks.append(Table(titles, rows, len(worth) - len(rows)))
    return View("worth", "What tools are worth", tuple(blocks), note=note)


def _worth_row(worth: ToolWorth, most: int) -> Cells:
    right, added, (low, high) = worth.right, worth.input_tokens, worth.deferred_range
    advice: str = worth.advice
    if not worth.certain:
        advice = f"{advice} (not certain)"
    interval = span(right.low, right.high) if right.clusters > 1 else words.UNKNOWN
    definitions = words.about(worth.tokens, "estimated")
    deferred = words.about(round(worth.deferred_price), "estimated")
    return (
        Name(worth.name),
        Status(advice, _TONES[worth.advice]),
        points(right.mean),
        interval,
        Bar(definitions, fraction(worth.tokens, most), _BLUE, narrow=True),
        words.change(round(added.mean)) if added else words.UNKNOWN,
        words.percent(worth.used.value),
        words.number(worth.needed),
        words.about(round(worth.loaded_price), "estimated"),
        f"{deferred} ({low:,.0f} to {high:,.0f})",
    )


def _incomplete(results: RunResults) -> list[Block]:
    """Show that runs are missing, and why, or nothing."""
    if results.status == "done" and not results.not_made:
        return []
    lines: list[Block] = [_progress(results)]
    reasons = [results.problem] if results.problem else []
    reasons += [f"{name} could not be run: {why}" for name, why in results.failed_arms.items()]
    if results.not_made and not results.problem:
        runs = words.count(len(results.not_made), "run")
        reasons.append(f"{runs} could not be made: {results.not_made[0].detail}")
    return lines + [Line(Status(reason, "bad")) for reason in reasons]


def run_record_view(record: RunRecord, limits: DisplayLimits) -> View:
    """Show one run: its outcome, and the expected and actual calls."""
    mark = _mark(record)
    facts = [
        ("Case", record.case),
        ("Arm", record.arm),
        ("Needed", ", ".join(record.needed) or "nothing"),
        ("Called", ", ".join(record.called) or "nothing"),
        ("Answer", record.answer or "none"),
    ]
    if record.refused:
        facts.insert(4, ("Refused", ", ".join(record.refused)))
    if record.attempts > 1:
        facts.append(("Attempts", f"{record.attempts:,}"))
    blocks: list[Block] = [
        Line(mark, (record.detail,) if record.detail else ()),
        KeyValues(tuple(facts)),
    ]
    for each in record.grades:
        texts = {
            "Rubric": each.rubric,
            "Reason": each.reason,
            "What the judge read first": each.instructions,
        }
        said = [TextBlock(text, label=name, limit=limits.text) for name, text in texts.items()]
        blocks.append(_folded(f"Graded by {each.model}", each.label or "no label", *said))
    return View("run", "Run", tuple(blocks), note=f"repeat {record.repeat + 1}")
