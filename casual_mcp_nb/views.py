"""The table of views: value → view → text, Markdown and HTML.

Drawing never fails and never runs anything, and gives the same result each time for the same value.
All text from a server or a model is shown as text.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial, singledispatch
from typing import Any, Literal

from casual_mcp_nb.base.displayable import Detail, Namespace
from casual_mcp_nb.base.status import HostAudit
from casual_mcp_nb.conversation import (
    view_calls,
    view_foreign,
    view_planned,
    view_requests,
    view_stats,
    view_steps,
    view_usage,
)
from casual_mcp_nb.conversation import views as conversation_views
from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.conversation.event import Request
from casual_mcp_nb.conversation.stats import ChatStats, StepStats
from casual_mcp_nb.conversation.step import ComingRequest
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.conversation.written_program import WrittenProgram
from casual_mcp_nb.discovery import views as discovery_views
from casual_mcp_nb.display.figures import figure_of_size
from casual_mcp_nb.display.render import TextLayout, to_html, to_markdown, to_page, to_text
from casual_mcp_nb.display.view import (
    SIZE_TIERS,
    DisplayLimits,
    Section,
    TextBlock,
    View,
    complete,
    fit,
)
from casual_mcp_nb.display.words import cut
from casual_mcp_nb.doors import pip_install
from casual_mcp_nb.errors import MissingDependencyError
from casual_mcp_nb.experiments import views as experiments_views
from casual_mcp_nb.experiments import workshop_views
from casual_mcp_nb.experiments.plots import arms_plot
from casual_mcp_nb.experiments.results import RunResults
from casual_mcp_nb.notebook import views as notebook_views
from casual_mcp_nb.notebook.caller import terminal_width
from casual_mcp_nb.serve import views as serve_views
from casual_mcp_nb.servers import offer_views, wire_views
from casual_mcp_nb.servers import views as servers_views


def frame_of(value: ChatStats | HostAudit) -> Any:
    """Build a pandas DataFrame with a row for each model call, or for each tool in a config."""
    if isinstance(value, HostAudit):
        rows = _tool_records(value)
    else:
        rows = list(map(_model_call, value.steps))
    return _library("pandas").DataFrame(rows)


def _tool_records(audit: HostAudit) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for server in audit:
        for each in server.tools:
            row = {
                "server": server.server,
                "tool": each.tool.tool,
                "tokens": each.tokens,
                "share": each.tokens / max(audit.tokens, 1),
            }
            rows.append(row)
    return rows


def _model_call(step: StepStats) -> dict[str, Any]:
    return {
        "turn": step.turn + 1,
        "step": step.step + 1,
        **step.parts.as_dict(),
        "request": step.parts.total,
        "request_origin": step.parts.origin,
        "with_nothing_deferred": step.undeferred_tokens,
        "reused": step.reused,
        "cached": step.cached_tokens,
        "cache_written": step.cache_write_tokens,
        "answer": step.completion_tokens,
        "cost": step.cost.amount if step.cost else None,
        "seconds": step.seconds,
        "tool_calls": step.tool_calls,
    }


def figure_of(stats: ChatStats | RunResults) -> Any:
    """Draw a matplotlib figure.

    It has a stacked bar for each model call, or each arm's share of right runs.
    """
    if isinstance(stats, RunResults):
        shares: list[tuple[str, Any]] = []
        for name, arm in stats.items():
            right = arm.right
            if right is not None:
                shares.append((name, right))
        return arms_plot(shares)
    _library("matplotlib")
    figure = figure_of_size(max(4.0, 1.2 + 0.6 * len(stats.steps)), 3.2)
    axes = figure.subplots()
    places = [f"{step.turn + 1}.{step.step + 1}" for step in stats.steps]
    below = [0] * len(places)
    for name, title in view_requests.PARTS.items():
        sizes = [step.parts.as_dict()[name] for step in stats.steps]
        axes.bar(places, sizes, bottom=below, label=title)
        below = [low + size for low, size in zip(below, sizes, strict=True)]
    axes.set(xlabel="turn.step", ylabel=f"tokens ({stats.parts.origin})", title="Requests by part")
    axes.legend(fontsize="small")
    return figure


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingDependencyError(
            f"This needs {name}, which is not installed.", hint=f"Run: {pip_install(name)}"
        ) from None


MAX_BYTES = 64 * 1024

Renderers = Mapping[str, Callable[[View], str]]

_FORMS: Renderers = {"text/plain": to_text, "text/markdown": to_markdown, "text/html": to_html}
_LIVE_FORMS: Renderers = {
    "text/plain": lambda view: to_text(conversation_views.line_only(view)),
    "text/html": to_html,
}
_BARE_HTML: Renderers = {"text/html": partial(to_html, styled=False)}

WHOLE = DisplayLimits(10_000, 1_000, 200_000, 1_000_000, 32_000_000)
"""For files, which need not be small."""

_BARE_TEXT = 2_000
_IN_FULL = "In full: %mcp step NUMBER, or print(session.turns[-1])."
_log = logging.getLogger(__name__)
_reported: set[str] = set()


@singledispatch
def view_of(value: Any, limits: DisplayLimits) -> View:
    """Make the view of a value. Its texts are not cleaned yet: `fit` does that."""
    raise TypeError(f"There is no display for {type(value).__name__}.")


_VIEWS: tuple[Callable[..., View], ...] = (
    servers_views.server_view,
    servers_views.servers_view,
    servers_views.hosts_view,
    servers_views.tools_view,
    servers_views.tool_view,
    servers_views.manifest_view,
    servers_views.tool_sets_view,
    servers_views.log_view,
    servers_views.messages_view,
    offer_views.account_view,
    offer_views.accounts_view,
    wire_views.wire_view,
    wire_views.wire_record_view,
    wire_views.tasks_view,
    wire_views.task_view,
    servers_views.direct_call_view,
    servers_views.direct_calls_view,
    servers_views.audit_view,
    servers_views.audit_record_view,
    servers_views.budget_view,
    offer_views.resource_view,
    offer_views.resources_view,
    offer_views.contents_view,
    offer_views.skill_view,
    offer_views.skills_view,
    offer_views.skill_contents_view,
    offer_views.prompt_view,
    offer_views.prompts_view,
    offer_views.prompt_messages_view,
    offer_views.completions_view,
    offer_views.subscription_view,
    offer_views.subscriptions_view,
    notebook_views.session_view,
    view_planned.written_program_view,
    notebook_views.models_view,
    notebook_views.exploration_view,
    view_planned.calls_view,
    view_planned.planned_call_view,
    view_planned.plan_view,
    notebook_views.clients_view,
    notebook_views.consent_view,
    notebook_views.spend_view,
    notebook_views.selection_view,
    notebook_views.system_prompt_view,
    notebook_views.diagnosis_view,
    notebook_views.tool_diagnosis_view,
    notebook_views.server_diagnosis_view,
    notebook_views.help_view,
    notebook_views.done_view,
    notebook_views.cassette_view,
    notebook_views.host_audit_view,
    notebook_views.found_server_view,
    notebook_views.found_servers_view,
    notebook_views.trust_view,
    notebook_views.trust_entry_view,
    notebook_views.app_view,
    notebook_views.usage_change_view,
    notebook_views.apps_view,
    notebook_views.app_messages_view,
    notebook_views.app_message_view,
    discovery_views.search_view,
    discovery_views.explanation_view,
    discovery_views.conversation_audit_view,
    conversation_views.turn_view,
    conversation_views.conversation_view,
    view_stats.stats_view,
    view_usage.tool_usage_view,
    view_usage.tool_use_view,
    view_usage.past_questions_view,
    view_foreign.foreign_sessions_view,
    conversation_views.stored_view,
    conversation_views.stored_conversation_view,
    view_calls.call_view,
    view_steps.step_view,
    view_steps.searches_view,
    view_requests.diff_view,
    view_requests.request_view,
    experiments_views.evaluation_view,
    experiments_views.lint_view,
    experiments_views.results_view,
    experiments_views.comparisons_view,
    experiments_views.comparison_view,
    experiments_views.run_record_view,
    experiments_views.tool_uses_view,
    experiments_views.worth_view,
    workshop_views.workshop_view,
    workshop_views.verdict_view,
    workshop_views.proposals_view,
    workshop_views.proposal_view,
    workshop_views.patch_view,
    experiments_views.experiments_view,
    serve_views.service_view,
    serve_views.served_tools_view,
    serve_views.served_addresses_view,
)
"""The views, by room. The type of a view's first parameter is the type that it shows."""

for _view in _VIEWS:
    view_of.register(_view)
view_of.register(Namespace, lambda namespace, limits: view_of(namespace.now, limits))
for _event in view_steps.EVENTS:
    view_of.register(_event, view_steps.event_view)


def mimebundle(
    value: Any, include: Container[str] | None = None, exclude: Container[str] | None = None
) -> dict[str, str]:
    """Format a value for Jupyter as `text/plain`, `text/markdown` and `text/html`, each at most
    `MAX_BYTES`.

    Never raises: a value that cannot be drawn is shown as its `repr`, and logged once.
    """
    forms: dict[str, Callable[[View], str]] = {}
    for kind, render in _FORMS.items():
        if include and kind not in include:
            continue
        if exclude and kind in exclude:
            continue
        forms[kind] = render
    width = terminal_width()
    # `str` asks for a form by name, and gets the whole text.
    if width is not None and include is None and "text/plain" in forms:
        forms["text/plain"] = _for_terminal(value, width)
    return _drawn(value, forms)


def _for_terminal(value: Any, width: int) -> Callable[[View], str]:
    """Choose how a value is written in a terminal.

    No word and no number breaks. The steps of a turn are only named.
    """
    layout = TextLayout(width, folded=isinstance(value, Turn))
    if not layout.folded:
        return partial(to_text, layout=layout)

    def turn_text(view: View) -> str:
        return "\n".join([to_text(view, layout), *layout.wrapped(_IN_FULL)])

    return turn_text


def turn_bundle(turn: Turn, detail: Detail) -> dict[str, str]:
    """Format a turn in all formats."""
    return _drawn(turn, _FORMS, _detailed(detail))


def live_bundle(turn: Turn, detail: Detail, now: float | None = None) -> dict[str, str]:
    """Format a running turn, which is drawn often: its HTML, and one line as `text/plain`.

    Args:
        turn: The turn.
        detail: How much of it is shown.
        now: How many seconds ago it began, to time a running call.
    """
    return _drawn(turn, _LIVE_FORMS, _detailed(detail, now))


def transcript_html(turn: Turn, now: float | None = None) -> str:
    """Format everything below a turn's prompt, as HTML for a page that has the style sheet."""

    def view_for(value: Any, limits: DisplayLimits) -> View:
        return conversation_views.transcript_view(value, limits, now)

    return _drawn(turn, _BARE_HTML, view_for)["text/html"]


def request_html(request: Request | ComingRequest) -> str:
    """Format a model request, its parts folded, as HTML for a page that has the style sheet."""
    return _drawn(request, _BARE_HTML, view_requests.folded_request_view)["text/html"]


def page(value: Any, title: str) -> str:
    """Format a value as a whole HTML document, in one file, without scripts or network access."""
    return _drawn(value, {"text/html": lambda view: to_page(view, title)})["text/html"]


def document(
    conversation: Conversation,
    form: Literal["html", "markdown"],
    title: str,
    programs: Sequence[WrittenProgram] = (),
) -> str:
    """Format a whole conversation as one text.

    Everything can be unfolded, and only huge parts are cut.

    Args:
        conversation: The conversation.
        form: The format.
        title: The title of a page.
        programs: The programs that models wrote for notebook cells meanwhile.
    """
    view = conversation_views.document_view(conversation.as_in_a_file(), WHOLE)
    blocks = list(view.blocks)
    for number, program in enumerate(programs, 1):
        cell = view_planned.written_program_view(program, WHOLE)
        blocks.append(Section(f"Written cell {number}", cell.blocks, note=cell.note))
    view = fit(replace(view, blocks=tuple(blocks)), WHOLE)
    if form == "html":
        return to_page(view, title)
    return f"{to_markdown(complete(view))}\n"


def _detailed(detail: Detail, now: float | None = None) -> Callable[[Any, DisplayLimits], View]:
    match detail:
        case "text":
            return lambda turn, limits: conversation_views.answer_view(turn, limits)
        case "all":
            return lambda turn, limits: conversation_views.whole_turn_view(turn, limits, now)
        case _:
            return lambda turn, limits: conversation_views.turn_view(turn, limits, now)


def _drawn(
    value: Any, forms: Renderers, view_for: Callable[[Any, DisplayLimits], View] = view_of
) -> dict[str, str]:
    """Draw a value in several forms. One that cannot be drawn is shown as its `repr`."""

    # The forms differ in size, so each is drawn with as much as fits. Those in one tier share the
    # view.
    @cache
    def view(tier: int) -> View:
        return fit(view_for(value, SIZE_TIERS[tier]), SIZE_TIERS[tier])

    try:
        return {kind: _within_limit(view, render) for kind, render in forms.items()}
    except Exception as error:
        _report(value, error)
        bare = _bare(type(value).__name__, _repr(value))
        return {kind: render(bare) for kind, render in forms.items()}


def _within_limit(view: Callable[[int], View], render: Callable[[View], str]) -> str:
    """Draw a form with as much as fits into `MAX_BYTES`. Higher tiers have less in them."""
    tier = 0
    while tier < len(SIZE_TIERS):
        form = render(view(tier))
        size = len(form.encode())
        if size <= MAX_BYTES:
            return form
        # Drawing takes time. The first tier leaves only the requests out, and each further one
        # saves about a third: if that is not enough, one is skipped.
        if tier and size > 1.4 * MAX_BYTES:
            tier += 1
        tier += 1
    least = view(len(SIZE_TIERS) - 1)
    return render(_bare(least.title, to_text(least)))


def _bare(title: str, text: str) -> View:
    return fit(View("bare", title, (TextBlock(cut(text, _BARE_TEXT), code=True),)), SIZE_TIERS[0])


def _repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception:
        return "It cannot be shown."


def _report(value: Any, error: Exception) -> None:
    kind = type(value).__name__
    if kind not in _reported:
        _reported.add(kind)
        _log.warning(
            "A %s could not be drawn (%s) and is shown as its repr.", kind, type(error).__name__
        )
