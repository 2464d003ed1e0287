"""Views for comparisons, evaluations, results and lints."""

from __future__ import annotations

import html
import importlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from casual_mcp_nb.base.prices import Cost
from casual_mcp_nb.base.tokens import Origin
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
from casual_mcp_nb.experiments.matching import FAILURE_GROUPS
from casual_mcp_nb.experiments.records import (
    ArmComparison,
    ArmResults,
    MeasureName,
    ResultsStatus,
    RunRecord,
    RunResults,
    ToolUses,
)
from casual_mcp_nb.experiments.results import (
    FIGURES,
    ComparedRun,
    Comparison,
    DiscoveryEffect,
    Evaluation,
    Experiments,
    Figure,
    FigureName,
    Lint,
    LintFinding,
    Miss,
    RunStatus,
    StrategyScore,
    WayResult,
    price_of,
)
from casual_mcp_nb.experiments.statistics import Interval
from casual_mcp_nb.experiments.worth import Worth

_TITLES: dict[FigureName, str] = {
    "steps": "Steps",
    "calls": "Calls",
    "searches": "Searches",
    "tokens_in_full": "Input in full",
    "tokens_reused": "Input reused",
    "output_tokens": "Output",
    "seconds": "Time",
    "cost": "Cost",
}
_BLUE = 2
_COLOURS: dict[FigureName, int] = {"tokens_in_full": _BLUE, "tokens_reused": 1, "cost": _BLUE}
"""The bar colours. All others are grey."""
_MARKS: dict[RunStatus, Status] = {
    "waiting": Status("… waiting", "quiet"),
    "running": Status("▸ running", "busy"),
    "done": Status("✓ done", "good"),
    "failed": Status("✗ failed", "bad"),
    "stopped": Status("■ stopped", "quiet"),
}
_MAX_TOOLS = 6


_NOTHING_COMPARED = (
    "Nothing was compared yet. session.experiments.compare(…) answers a prompt with several set-ups, "
    ".run(cases) measures whether a model calls the right tools, .evaluate(…) how well tools are found, "
    "and .lint() lists descriptions that need work."
)


def experiments_view(experiments: Experiments, limits: DisplayLimits) -> View:
    """Show the last comparison or results, or the possible ones."""
    if isinstance(experiments.results, RunResults):
        return results_view(experiments.results, limits)
    if experiments.comparison is not None:
        return comparison_view(experiments.comparison, limits)
    return View("experiments", "Experiments", (TextBlock(_NOTHING_COMPARED),))


def comparison_view(comparison: Comparison, limits: DisplayLimits) -> View:
    """Show the progress, the conclusions in sentences, a table of the variants, and the answers."""
    blocks: list[Block] = [_progress(comparison)]
    if comparison.status != "running" and (sentences := list(_sentences(comparison))):
        blocks.append(TextBlock("\n".join(sentences)))
    blocks.append(_table(comparison, limits))
    if len(comparison.prompts) > 1:
        tables = [
            Section(prompt, (_table(comparison.of_prompt(prompt), limits),))
            for prompt in comparison.prompts[: max(2, limits.rows // 3)]
        ]
        blocks.append(Section("By prompt", tuple(tables), fold="closed", note=words.count(len(comparison.prompts), "prompt")))
    if any(len(result.done) > 1 for result in comparison.values()):
        blocks.append(Section("Spread", (_spread(comparison, limits),), fold="closed", note="lowest and highest of a run"))
    blocks.append(_answers(comparison, limits))
    counts = {"prompt": len(comparison.prompts), "variant": len(comparison), "repeat": comparison.repeats}
    note = " · ".join(words.count(number, unit) for unit, number in counts.items() if number > 1 or unit == "variant")
    return View("comparison", "Comparison", tuple(blocks), note=note)


def _progress(comparison: Comparison) -> Line:
    ended, runs = comparison.ended, len(comparison.runs)
    figures = [f"{ended:,} of {words.count(runs, 'run')}" if ended < runs else words.count(runs, "run")]
    if run := comparison.running:
        repeat = f", repeat {run.repeat + 1:,} of {comparison.repeats:,}" if comparison.repeats > 1 else ""
        prompt = f", prompt {comparison.prompts.index(run.prompt) + 1:,}" if len(comparison.prompts) > 1 else ""
        figures.append(f"{run.way.name}{prompt}{repeat}")
    models = {(run.model, run.provider) for run in comparison.runs if run.model}
    if len(models) == 1:
        figures.append(model_words(*models.pop()))
    rankings = {result.ranked_by for result in comparison.values() if result.ranked_by}
    figures.append(f"searches by {rankings.pop()}" if len(rankings) == 1 else "")
    failed = sum(run.status == "failed" for run in comparison.runs)
    figures += [f"{failed:,} failed" if failed else "", words.seconds(comparison.seconds)]
    return Line(_MARKS[comparison.status], tuple(filter(None, figures)), data=(("part", "figures"),))


def _sentences(comparison: Comparison) -> Iterator[str]:
    """Write which variant costs least, where discovery loses, and these figures' limits."""
    if best := comparison.cheapest:
        yield _cheapest(comparison, best)
    for effect in comparison.discovery_effects:
        if sentence := _effect(effect):
            yield sentence
    with_discovery = [run for result in comparison.comparable for run in result.done if run.discovery]
    if with_discovery and not any(run.deferred for run in with_discovery):
        yield "No tool is deferred here, so discovery makes no difference: defer a server, or set defer_all."
    if comparison.cheapest and not any(result.checked for result in comparison.values()):
        yield "Whether the answers are right was not checked: read them below, or give check=…."


def _cheapest(comparison: Comparison, best: WayResult) -> str:
    results = comparison.comparable
    prices = {result.way.name: price_of(result, results) for result in results}
    price, currency = prices[best.way.name]
    cheaper = [name for name, (other, _) in prices.items() if other < price]
    others = {name: other for name, (other, _) in prices.items() if name != best.way.name and name not in cheaper}
    wrong = f" {words.listed(cheaper, 3)} cost{'s' if len(cheaper) == 1 else ''} less, but {_less_right(best)}."
    more = wrong if cheaper else ""
    most = max(others.values(), default=price)
    if others and not cheaper and most == price:
        return f"All variants cost the same, per run {_price(price, currency, best)}."
    than = words.difference(round(price * 10_000), round(most * 10_000)) if others else ""
    other = next(iter(others), "") if len(others) == 1 else "the most expensive variant"
    compared = f", {than} than {other}" if than else ""
    least = "Of the variants that are right most often, " if cheaper else ""
    name = best.way.name
    return f"{least}{name if least else _capital(name)} costs least: per run {_price(price, currency, best)}{compared}.{more}"


def _less_right(best: WayResult) -> str:
    return "less often right" if best.checked else "fail more often"


def _effect(effect: DiscoveryEffect) -> str:
    """Write a sentence where discovery loses, or empty where it does not."""
    if not effect.loses:
        return ""
    parts = []
    if effect.costs_more:
        more = words.difference(round(effect.price * 10_000), round(effect.every_tool_loaded * 10_000))
        loaded = "every tool loaded" if effect.off is None else effect.off.name
        estimated = " (estimated)" if effect.off is None else ""
        parts.append(f"{effect.on.name} costs {more} than {loaded}{estimated}" if more else "")
    if effect.fewer_right:
        parts.append(f"{effect.on.name} is right {words.percent(effect.fewer_right)} less often")
    return f"Discovery loses here: {' and '.join(filter(None, parts))}."


def _price(price: float, currency: str | None, result: WayResult) -> str:
    if currency is not None:
        return str(Cost(price, currency))
    return f"{words.about(round(price), result.origin)} input tokens, reused ones counted as a tenth"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:] if text.startswith("discovery") else text


def _table(comparison: Comparison, limits: DisplayLimits) -> Table:
    results = list(comparison.values())[: limits.rows]
    figures = {name: [result.figure(name) for result in results] for name in FIGURES}
    names = [name for name in FIGURES if name != "cost" or any(figures["cost"])]
    checked = any(result.checked for result in results)
    ranked = len({result.ranked_by for result in results if result.ranked_by}) > 1
    extra = (*(("Right",) if checked else ()), *(("Searches by",) if ranked else ()))
    titles = columns("Variant", "Runs", *extra, *(_TITLES[name] for name in names))
    rows = tuple(
        (
            result.way.name,
            _runs(result),
            *((_right(result),) if checked else ()),
            *((result.ranked_by or "",) if ranked else ()),
            *(_bar(name, figures[name][number], figures[name], result) for name in names),
        )
        for number, result in enumerate(results)
    )
    return Table(titles, rows, len(comparison) - len(results))


def _runs(result: WayResult) -> Cell:
    done, runs = len(result.done), len(result.runs)
    text = f"{done:,} of {runs:,}" if done < runs else f"{runs:,}"
    return Status(f"{text}, {result.failed:,} failed", "bad") if result.failed else text


def _right(result: WayResult) -> Cell:
    if result.right is None:
        return words.UNKNOWN
    return Status(f"{result.right:,} of {result.checked:,}", "good" if result.right == result.checked else "bad")


def _bar(name: FigureName, figure: Figure | None, column: list[Figure | None], result: WayResult) -> Cell:
    means = {each.mean for each in column if each}
    mean = figure.mean if figure else None
    number = _number(name, mean, result)
    # Bars with the same length say nothing.
    return Bar(number, fraction(mean, max(means)), _COLOURS.get(name, 0), narrow=True) if len(means) > 1 else number


def _number(name: FigureName, value: float | None, result: WayResult) -> str:
    match name:
        case "seconds":
            return words.seconds(value)
        case "cost":
            return words.UNKNOWN if value is None else str(Cost(value, result.currency or "")).partition(" (")[0]
        case "tokens_in_full" | "tokens_reused" | "output_tokens":
            origins: dict[str, Origin] = {"tokens_in_full": result.origin, "tokens_reused": result.reused_origin}
            return words.about(None if value is None else round(value), origins.get(name, "reported"))
        case _:
            return words.UNKNOWN if value is None else f"{value:.1f}".removesuffix(".0")


def _spread(comparison: Comparison, limits: DisplayLimits) -> Table:
    results = list(comparison.values())[: limits.rows]
    names = [name for name in FIGURES if any(result.figure(name) for result in results)]

    def row(result: WayResult) -> Iterator[Cell]:
        yield result.way.name
        for name in names:
            figure = result.figure(name)
            low, high = (_number(name, value, result) for value in ((figure.low, figure.high) if figure else (None, None)))
            yield low if low == high else f"{low} to {high}"

    rows = tuple(tuple(row(result)) for result in results)
    return Table(columns("Variant", *(_TITLES[name] for name in names)), rows, len(comparison) - len(results))


def _answers(comparison: Comparison, limits: DisplayLimits) -> Section:
    begun = [run for prompt in comparison.prompts for run in comparison.of_prompt(prompt).runs if run.status != "waiting"]
    sections = tuple(_answer(run, comparison, limits) for run in begun[: limits.rows])
    more = (TextBlock(f"{len(begun) - limits.rows:,} more"),) if len(begun) > limits.rows else ()
    prompt = (TextBlock(comparison.prompts[0], label="Prompt"),) if len(comparison.prompts) == 1 else ()
    return Section("Answers", (*prompt, *sections, *more))


def _answer(run: ComparedRun, comparison: Comparison, limits: DisplayLimits) -> Section:
    notes = [
        run.prompt if len(comparison.prompts) > 1 else "",
        f"repeat {run.repeat + 1:,}" if comparison.repeats > 1 else "",
        words.listed(run.tools, _MAX_TOOLS),
    ]
    blocks: list[Block] = []
    if run.error:
        blocks.append(Line(Status(run.error, _MARKS[run.status].tone)))
    if run.problem:
        blocks.append(Line(Status(run.problem, "bad")))
    if run.answer or not run.error:
        blocks.append(TextBlock(run.answer or "No text.", limit=limits.text, prose=bool(run.answer)))
    note = " · ".join(filter(None, notes))
    return Section(run.way.name, tuple(blocks), mark=_mark(run), note=note, fold="closed")


def _mark(run: ComparedRun) -> Status:
    if run.status == "done" and run.right is not None:
        return Status("✓ right", "good") if run.right else Status("✗ wrong", "bad")
    return _MARKS[run.status]


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
    table = Table(columns(*_SCORES), tuple(map(_score_row, scores)), len(evaluation.scores) - len(scores))
    each = max(2, limits.rows // max(1, len(scores)))
    misses = [_misses(score, each) for score in scores if score.misses]
    return View("evaluation", "Discovery evaluation", (KeyValues(facts), table, *misses))


def _score_row(score: StrategyScore) -> tuple[Cell, ...]:
    shares = (score.recall_any, score.recall, score.recall_all, score.mrr, score.server)
    bars = tuple(Bar(f"{share:.2f}", share, narrow=True) for share in shares)
    return (Name(score.name), *bars, words.about(round(score.loaded_tokens), "estimated"), words.number(len(score.misses)))


def _misses(score: StrategyScore, limit: int) -> Section:
    rows = tuple(_miss_row(miss) for miss in score.misses[:limit])
    table = Table(columns("Query", "Wanted", "Found", "Why"), rows, len(score.misses) - len(rows))
    return Section(f"Misses of {score.name}", (table,), note=words.count(len(score.misses), "case"), fold="closed")


def _miss_row(miss: Miss) -> tuple[Cell, ...]:
    wanted = "; ".join(" or ".join(map(str, sorted(need))) for need in miss.unmet)
    return (miss.case.query, wanted, ", ".join(map(str, miss.found)) or "nothing", miss.reason)


def lint_view(lint: Lint, limits: DisplayLimits) -> View:
    """Show the findings by kind, folded."""
    note = f"{words.count(len(lint), 'finding')} in {words.count(lint.tools, 'tool')}"
    kinds = lint.by_kind()
    if not kinds:
        return View("lint", "Catalog lint", (TextBlock("No findings."),), note=note)
    each = max(2, limits.rows // len(kinds))
    blocks: list[Block] = [_findings(kind, findings, each) for kind, findings in kinds.items()]
    return View("lint", "Catalog lint", tuple(blocks), note=note)


def _findings(kind: str, findings: tuple[LintFinding, ...], limit: int) -> Section:
    rows = tuple((Name(str(finding.tool)), finding.text) for finding in findings[:limit])
    table = Table(columns("Tool", "Finding"), rows, len(findings) - len(rows))
    return Section(kind.capitalize(), (table,), note=words.count(len(findings), "finding"), fold="closed")


_ENDED: dict[ResultsStatus, Status] = {
    "running": Status("▸ running", "busy"),
    "done": Status("✓ done", "good"),
    "stopped": Status("■ stopped", "quiet"),
    "over budget": Status("■ stopped at the budget", "bad"),
    "failing": Status("✗ failed", "bad"),
}
_MEANS: tuple[tuple[MeasureName, str], ...] = (
    ("input_tokens", "Input"),
    ("output_tokens", "Output"),
    ("steps", "Steps"),
    ("searches", "Searches"),
    ("seconds", "Time"),
    ("cost", "Cost"),
)
_SIGNIFICANT = 0.05


def results_view(results: RunResults, limits: DisplayLimits) -> View:
    """Show the progress, the conclusions in sentences, a table of the arms, their failures and the wrong runs."""
    ended, planned = len(results.records), max(results.planned, len(results.records))
    figures = [f"{ended:,} of {words.count(planned, 'run')}" if ended < planned else words.count(planned, "run")]
    figures += [f"{results.reused:,} made before" if results.reused else "", words.seconds(results.seconds)]
    blocks: list[Block] = [Line(_ENDED[results.status], tuple(filter(None, figures)), data=(("part", "figures"),))]
    if results.problem:
        blocks.append(Line(Status(results.problem, "bad")))
    blocks.append(TextBlock("\n".join(conclusions(results))))
    blocks.append(arms_table(results, limits))
    if results.status != "running":
        blocks += failure_sections(results, limits)
        blocks += _by_case(results, limits)
        blocks += _uses(results.tool_uses(), limits)
        if results.not_made:
            rows = tuple((record.label, record.arm, record.detail) for record in results.not_made[: limits.rows])
            table = Table(columns("Case", "Arm", "Why"), rows, len(results.not_made) - len(rows))
            note = f"{words.count(len(results.not_made), 'run')}, neither right nor wrong"
            blocks.append(Section("Not made", (table,), note=note, fold="closed"))
    counts = {"arm": len(results), "case": len(results.cases), "repeat": results.repeats}
    return View(
        "runs", "Tool use", tuple(blocks), note=" · ".join(words.count(number, unit) for unit, number in counts.items())
    )


def conclusions(results: RunResults) -> Iterator[str]:
    """Write which arms call the right tools more often than the first, and the smallest difference that can be found."""
    if results.status != "running":
        for each in results.comparisons():
            yield conclusion(each)
    if len(results) > 1:
        smallest = results.smallest_difference
        size = f"{words.count(len(results.cases), 'case')} with {words.count(results.repeats, 'repeat')}"
        if smallest is None:
            yield f"{size} is too small a sample to find any difference between the arms."
        else:
            yield f"{size} find a difference of {_points(smallest)} in four of five experiments, a smaller one less often."


def conclusion(each: ArmComparison) -> str:
    """Write whether an arm calls the right tools more often than another."""
    right = each.right
    p = right.p if right.adjusted_p is None else right.adjusted_p
    if right.clusters < 2:
        return f"{each.second}: one case is not enough for a comparison with {each.first}."
    if not right.better and not right.worse:
        return f"{each.second} is right as often as {each.first} in each case."
    interval = f"{_points(right.low)} to {_points(right.high)}"
    counts = f"{right.better:,} better, {right.worse:,} worse, {right.same:,} the same"
    corrected = ", corrected" if right.adjusted_p is not None else ""
    verdict = "more" if right.mean > 0 else "less"
    if p > _SIGNIFICANT:
        return f"{each.second}: no clear difference from {each.first} ({interval}, p = {p:.2g}{corrected}; {counts})."
    difference = _points(abs(right.mean))
    return (
        f"{each.second} is right {difference} {verdict} often than {each.first} ({interval}, p = {p:.2g}{corrected}; {counts})."
    )


def _points(share: float) -> str:
    value = f"{share * 100:.1f}".removesuffix(".0")
    return f"{'0' if value == '-0' else value} points"


def arms_table(results: RunResults, limits: DisplayLimits) -> Table:
    """Show the arms with right runs and mean figures."""
    arms = list(results.values())[: limits.rows]
    means = {name: [arm.mean(name) for arm in arms] for name, _ in _MEANS}
    shown = [(name, title) for name, title in _MEANS if any(means[name]) and (name != "searches" or any(_values(means[name])))]
    last = results.repeats if results.repeats > 1 else None
    titles = columns(
        "Arm", "Runs #", "Right", "95% interval", *([f"Right {last} of {last}"] if last else []), *(t for _, t in shown)
    )
    rows = []
    for number, arm in enumerate(arms):
        right, passed = arm.right, arm.pass_hat(last) if last else None
        row: list[Cell] = [arm.way.name, words.number(len(arm.done))]
        row.append(Bar(words.percent(right.value), right.value, _BLUE, narrow=True) if right else words.UNKNOWN)
        row.append(f"{words.percent(right.low)} to {words.percent(right.high)}" if right else words.UNKNOWN)
        row += [words.UNKNOWN if passed is None else words.percent(passed)] if last else []
        for name, _ in shown:
            interval = means[name][number]
            most = max(_values(means[name]), default=0.0)
            value = interval.value if interval else None
            row.append(
                Bar(
                    _mean(name, value, arm),
                    fraction(value, most),
                    _COLOURS.get("cost" if name == "cost" else "steps", 0),
                    narrow=True,
                )
            )
        rows.append(tuple(row))
    return Table(titles, tuple(rows), len(results) - len(rows))


def _values(intervals: Iterable[Interval | None]) -> list[float]:
    return [interval.value for interval in intervals if interval]


def _mean(name: MeasureName, value: float | None, arm: ArmResults) -> str:
    if value is None:
        return words.UNKNOWN
    if name == "input_tokens":
        return words.about(
            round(value), "estimated" if any(record.origin == "estimated" for record in arm.done) else "reported"
        )
    if name == "output_tokens":
        return words.about(round(value), "reported")
    if name == "seconds":
        return words.seconds(value)
    if name == "cost":
        return str(Cost(value, arm.done[0].currency or "")).partition(" (")[0]
    return f"{value:.1f}".removesuffix(".0")


def failure_sections(results: RunResults, limits: DisplayLimits) -> Iterator[Block]:
    """Show the wrong runs, counted by reason."""
    counts = {name: arm.failures for name, arm in results.items()}
    groups = [group for group in FAILURE_GROUPS if any(group in each for each in counts.values())]
    if not groups:
        return
    names = list(results)[: limits.rows]
    rows = tuple((group.capitalize(), *(words.number(counts[name].get(group, 0)) for name in names)) for group in groups)
    wrong = results.failures()
    sections = tuple(_wrong_run(record, limits) for record in wrong[: limits.rows])
    more = (TextBlock(f"{len(wrong) - limits.rows:,} more"),) if len(wrong) > limits.rows else ()
    yield Section("Failures", (Table(columns("Group", *(f"{name} #" for name in names)), rows), *sections, *more))


def _wrong_run(record: RunRecord, limits: DisplayLimits) -> Section:
    message = record.message if record.message != record.label else ""
    note = " · ".join(filter(None, (record.arm, message, record.detail)))
    blocks: list[Block] = [TextBlock(record.answer or "No text.", label="Answer", limit=limits.text, prose=bool(record.answer))]
    if record.called:
        blocks.insert(0, TextBlock(", ".join(record.called), label="Called"))
    return Section(record.label, tuple(blocks), mark=Status(record.failure or "wrong", "bad"), note=note, fold="closed")


def _by_case(results: RunResults, limits: DisplayLimits) -> Iterator[Block]:
    if len(results) < 2 or not results.records:
        return
    names = list(results)[: limits.rows]
    shares = [results[name].means("right") for name in names]
    # Those that differ most first.
    cases = sorted(results.cases, key=lambda case: -abs((shares[-1].get(case) or 0) - (shares[0].get(case) or 0)))[
        : limits.rows
    ]
    rows = tuple(
        (case, *(words.UNKNOWN if (share := each.get(case)) is None else words.percent(share) for each in shares))
        for case in cases
    )
    table = Table(columns("Case", *(f"{name} #" for name in names)), rows, len(results.cases) - len(rows))
    yield Section("By case", (table,), note="share of right runs", fold="closed")


def _uses(uses: ToolUses, limits: DisplayLimits) -> Iterator[Block]:
    if uses:
        yield Section(
            "Deferred tools",
            (_uses_table(uses, limits),),
            note="runs in which each was needed, and how it fared",
            fold="closed",
        )


def tool_uses_view(uses: ToolUses, limits: DisplayLimits) -> View:
    """Show for each deferred tool how often it was needed, searched for, found and called."""
    block: Block = _uses_table(uses, limits) if uses else TextBlock("No tool was deferred.")
    return View("tool-uses", "Use of deferred tools", (block,), note=words.count(len(uses), "tool"))


def _uses_table(uses: ToolUses, limits: DisplayLimits) -> Table:
    ordered = sorted(uses, key=lambda use: (-use.needed, use.called - use.needed, -use.unneeded_found))
    rows: list[tuple[Cell, ...]] = []
    for use in ordered[: limits.rows]:
        counts = (use.runs, use.needed, use.searched, use.found, use.called, use.unneeded_found)
        rows.append((Name(use.tool), use.arm, *map(words.number, counts)))
    titles = columns("Tool", "Arm", "Runs #", "Needed #", "Searched #", "Found #", "Called #", "Found, not needed #")
    return Table(titles, tuple(rows), len(uses) - len(rows))


def worth_view(worth: Worth, limits: DisplayLimits) -> View:
    """Show each server's and tool's gain and cost, with the advice."""
    tones: dict[str, Literal["good", "quiet", "bad"]] = {"load": "good", "defer": "quiet", "off": "bad"}
    most = max((each.tokens for each in worth), default=0)
    rows: list[tuple[Cell, ...]] = []
    for each in worth[: limits.rows]:
        right, added, (low, high) = each.right, each.input_tokens, each.deferred_range
        interval = f"{_points(right.low)} to {_points(right.high)}" if right.clusters > 1 else words.UNKNOWN
        rows.append(
            (
                Name(each.name),
                Status(each.advice if each.certain else f"{each.advice} (not certain)", tones[each.advice]),
                _points(right.mean),
                interval,
                Bar(words.about(each.tokens, "estimated"), fraction(each.tokens, most), _BLUE, narrow=True),
                words.change(round(added.mean)) if added else words.UNKNOWN,
                words.percent(each.used.value),
                words.number(each.needed),
                words.about(round(each.loaded_price), "estimated"),
                f"{words.about(round(each.deferred_price), 'estimated')} ({low:,.0f} to {high:,.0f})",
            )
        )
    titles = columns(
        *("Server or tool", "Advice", "Brings #", "95% interval", "Definitions", "Added to a run #", "Called #", "Needed #"),
        *("If loaded #", "If deferred #"),
    )
    text = (
        "Brings: how many more runs are right with it than without. If loaded, if deferred: estimated tokens per run, "
        "which no run measures. worth.apply() applies the advice, apply(NAME) also saves it."
    )
    note = f"{words.count(len(worth.results.cases), 'case')} · {words.count(len(worth.results.records), 'run')}"
    return View(
        "worth", "What tools are worth", (TextBlock(text), Table(titles, tuple(rows), len(worth) - len(rows))), note=note
    )


def run_record_view(record: RunRecord, limits: DisplayLimits) -> View:
    """Show one run: its outcome, and the expected and actual calls."""
    mark = Status("✓ right", "good") if record.right else Status(record.failure or "not made", "bad")
    facts = (
        ("Case", record.case),
        ("Arm", record.arm),
        ("Needed", ", ".join(record.needed) or "nothing"),
        ("Called", ", ".join(record.called) or "nothing"),
        ("Answer", record.answer or "none"),
    )
    return View(
        "run",
        "Run",
        (Line(mark, (record.detail,) if record.detail else ()), KeyValues(facts)),
        note=f"repeat {record.repeat + 1}",
    )


@dataclass(frozen=True)
class Svg:
    """A drawing that Jupyter shows."""

    text: str

    def _repr_svg_(self) -> str:
        return self.text


def results_plot(results: RunResults) -> Any:
    """Draw each arm's right runs with their interval: a matplotlib figure, or an SVG without matplotlib."""
    arms = [(name, right) for name, arm in results.items() if (right := arm.right) is not None]
    try:
        figures = importlib.import_module("matplotlib.figure")
    except ImportError:
        return Svg(_svg(arms))
    figure = figures.Figure(figsize=(6.4, 1.2 + 0.5 * len(arms)), layout="constrained")
    axes = figure.subplots()
    for row, (_, right) in enumerate(arms):
        errors = [[right.value - right.low], [right.high - right.value]]
        axes.errorbar([right.value], [row], xerr=errors, fmt="o", capsize=4, color="tab:blue")
    axes.set_yticks(range(len(arms)), [name for name, _ in arms])
    axes.set(xlim=(0, 1), ylim=(len(arms) - 0.5, -0.5), xlabel="share of right runs, 95% interval")
    return figure


def _svg(arms: Sequence[tuple[str, Interval]]) -> str:
    left, width, row = 200, 400, 32
    height = row * len(arms) + 36
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 40} {height}" '
        'font-family="sans-serif" font-size="13">'
    ]
    for share in (0, 0.25, 0.5, 0.75, 1):
        x = left + share * width
        parts.append(f'<path d="M{x} 4V{height - 28}" stroke="#ccc"/>')
        parts.append(f'<text x="{x}" y="{height - 10}" text-anchor="middle">{share:.0%}</text>')
    for number, (name, right) in enumerate(arms):
        y = row * number + 20
        low, middle, high = (left + value * width for value in (right.low, right.value, right.high))
        parts.append(f'<text x="{left - 12}" y="{y + 4}" text-anchor="end">{html.escape(words.clean(name)[:28])}</text>')
        parts.append(f'<path d="M{low:.1f} {y}H{high:.1f}" stroke="#1f77b4" stroke-width="2"/>')
        parts.append(f'<circle cx="{middle:.1f}" cy="{y}" r="5" fill="#1f77b4"/>')
    return "\n".join([*parts, "</svg>"])
