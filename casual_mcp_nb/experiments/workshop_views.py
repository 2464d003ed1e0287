"""Views for a workshop on one tool's texts, for proposals, and for the verdict on an edit."""

from __future__ import annotations

from casual_mcp_nb.base.tokens import estimate_tokens
from casual_mcp_nb.display import words
from casual_mcp_nb.display.view import (
    Block,
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
)
from casual_mcp_nb.experiments.conclusions import conclusions, of_difference
from casual_mcp_nb.experiments.results import RunResults
from casual_mcp_nb.experiments.views import Cells, arms_table, failure_sections
from casual_mcp_nb.experiments.workshop import (
    Patch,
    Proposal,
    Proposals,
    Ranks,
    Verdict,
    Workshop,
    confusion,
)


def workshop_view(workshop: Workshop, limits: DisplayLimits) -> View:
    """Show a tool's edits with their price, the ranks, and the results on the development cases."""
    before, after = workshop.before.tokens, workshop.after.tokens
    price = (
        f"≈ {before:,} tokens with each request, ≈ {after:,} as edited"
        f" ({words.change(after - before)})"
    )
    mark = Status("edited", "busy") if workshop.edits else Status("not edited", "quiet")
    blocks: list[Block] = [Line(mark, (price,))]
    if workshop.edits:
        blocks.append(TextBlock(workshop.patch().diff, label="Edits", code=True))
    if "name" in workshop.edits:
        blocks.append(
            TextBlock(
                "Runs leave the new name out, since the server knows the tool by the old one."
            )
        )
    ranks = workshop.ranks
    worse = sum(each.change < 0 for each in ranks)
    note = f"{sum(each.change > 0 for each in ranks):,} better, {worse:,} worse"
    titles = columns("Query", "Should find", "As listed #", "Edited #")
    table = Table.of(titles, ranks, _ranks_row, limits.rows)
    blocks.append(Section("Ranks in the search by words", (table,), note=note, fold="closed"))
    results = workshop.current
    if results is not None:
        blocks.append(
            Section(
                "Cases to work with",
                _runs_of_edits(results, limits),
                note=words.count(len(results.cases), "case"),
            )
        )
    elif workshop.development:
        blocks.append(TextBlock("These edits were not run yet: workshop.run()."))
    if workshop.held_out:
        cases = words.count(len(workshop.held_out), "case")
        looks = _looks(workshop.looks)
        blocks.append(TextBlock(f"{cases} held out for workshop.test(). {looks}"))
    return View("workshop", f"Workshop: {workshop.tool}", tuple(blocks))


def _looks(looks: int) -> str:
    if not looks:
        return "They were not looked at yet."
    return f"They were looked at {words.count(looks, 'time')}."


def _ranks_row(ranks: Ranks) -> Cells:
    return (ranks.query, Name(str(ranks.tool)), _rank(ranks.before), _rank(ranks.after))


def _rank(rank: int | None) -> str:
    return "not found" if rank is None else words.number(rank)


def _runs_of_edits(results: RunResults, limits: DisplayLimits) -> tuple[Block, ...]:
    return (
        TextBlock("\n".join(conclusions(results))),
        arms_table(results, limits),
        _confusions(results, limits),
        *failure_sections(results, limits),
    )


def _confusions(results: RunResults, limits: DisplayLimits) -> Section:
    """Show in both arms how often each tool was called in place of each."""
    counts = list(map(confusion, results.values()))
    pairs = set[tuple[str, str]]().union(*counts)
    expected = sorted({row for row, _ in pairs})
    names = {column for _, column in pairs}
    called = [*sorted(names.intersection(expected)), *sorted(names.difference(expected))]
    shown = called[:8]

    def row_of(row: str) -> Cells:
        cells = []
        for column in shown:
            numbers = [words.number(each.get((row, column), 0)) for each in counts]
            cells.append(" → ".join(numbers))
        return (Name(row), *cells)

    titles = columns("Expected", *(f"{name} #" for name in shown))
    note = f"runs {' → '.join(results)}"
    if len(called) > len(shown):
        note = f"{note}, {len(called) - len(shown):,} more tools called"
    table = Table.of(titles, expected, row_of, limits.rows)
    return Section("Expected and called", (table,), note=note)


def verdict_view(verdict: Verdict, limits: DisplayLimits) -> View:
    """Show how the edits did on the held-out cases, and how often these were looked at."""
    each = verdict.comparison
    text = []
    if each:
        text.append(of_difference(each, candidates=max(1, verdict.edits)))
    text.append(_looks(verdict.looks))
    if verdict.edits > 1:
        text.append(
            f"They have judged {verdict.edits:,} different edits, for which p and the interval are"
            " corrected. Fresh cases would be better."
        )
    blocks = (TextBlock("\n".join(text)), *_runs_of_edits(verdict.results, limits)[1:])
    return View(
        "verdict", "Held-out cases", blocks, note=words.count(len(verdict.results.cases), "case")
    )


def proposals_view(proposals: Proposals, limits: DisplayLimits) -> View:
    """Show the texts that a model proposes. A model wrote them, so everything is drawn as text."""
    sections = []
    for number, each in enumerate(proposals[: limits.rows]):
        note = f"≈ {estimate_tokens(each.description):,} tokens"
        sections.append(Section(f"{number}", proposal_view(each, limits).blocks, note=note))
    return View(
        "proposals",
        f"Proposals for {proposals.tool}",
        tuple(sections),
        note=words.count(len(proposals), "text"),
    )


def proposal_view(proposal: Proposal, limits: DisplayLimits) -> View:
    """Show the texts that a model proposes."""
    parameters = tuple(proposal.parameters.items())
    text = TextBlock(proposal.description, label="Description")
    return View("proposal", "Proposal", (text, KeyValues(parameters)) if parameters else (text,))


def patch_view(patch: Patch, limits: DisplayLimits) -> View:
    """Show the changes for the server's author."""
    blocks = (
        TextBlock(patch.diff or "Nothing was edited.", code=True),
        TextBlock(patch.docstring, label="Docstring", code=True),
    )
    return View("patch", f"Patch of {patch.tool}", blocks)
