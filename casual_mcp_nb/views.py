"""The one table of views: value → view → text, Markdown and HTML.

A display never fails, never runs anything, and is the same each time for the same value. Whatever a server or a model says is
shown as text.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Container, Mapping
from functools import cache, partial, singledispatch
from typing import Any, Literal

from casual_mcp_nb.base.diagnosis import Diagnosis, Help, HostAudit, ServerDiagnosis, ToolDiagnosis
from casual_mcp_nb.base.displayable import Detail, Namespace
from casual_mcp_nb.base.mcp import (
    Completions,
    Messages,
    PromptMessages,
    Prompts,
    Resource,
    ResourceContents,
    Resources,
    ServerLog,
    ServerPrompt,
    Subscription,
    Subscriptions,
)
from casual_mcp_nb.base.search import Explanation, SearchResults
from casual_mcp_nb.base.selection import Selection
from casual_mcp_nb.base.service import ServedAddresses, ServedTools, ServiceStatus
from casual_mcp_nb.base.status import (
    Clients,
    ConsentStatus,
    ExplorerSnapshot,
    Manifest,
    Models,
    Servers,
    ServerStatus,
    SessionStatus,
    SystemPrompt,
    Tools,
    ToolSets,
)
from casual_mcp_nb.base.tokens import Budget
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.cassettes.state import CassetteOverview
from casual_mcp_nb.config.trust import Trust, TrustEntry
from casual_mcp_nb.conversation.audit import Audit, AuditRecord, DirectCall, DirectCalls
from casual_mcp_nb.conversation.conversation import Conversation, StoredConversation, StoredConversations
from casual_mcp_nb.conversation.event import Request
from casual_mcp_nb.conversation.plan import PlannedCall, PlannedCalls, ToolCalls
from casual_mcp_nb.conversation.stats import ChatStats
from casual_mcp_nb.conversation.step import Step, StepDiff, ToolCall
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.conversation.view_calls import call_view
from casual_mcp_nb.conversation.view_request import PARTS, diff_view, folded_request_view, request_view, step_view
from casual_mcp_nb.conversation.view_steps import EVENTS, event_view
from casual_mcp_nb.conversation.views import (
    answer_view,
    conversation_view,
    document_view,
    line_only,
    stats_view,
    stored_conversation_view,
    stored_view,
    transcript_view,
    turn_view,
    whole_turn_view,
)
from casual_mcp_nb.discovery.views import explanation_view, search_view
from casual_mcp_nb.display.render import to_html, to_markdown, to_page, to_text
from casual_mcp_nb.display.view import SIZE_TIERS, DisplayLimits, TextBlock, View, complete, fit
from casual_mcp_nb.display.words import cut
from casual_mcp_nb.errors import MissingDependencyError
from casual_mcp_nb.experiments.results import Comparison, Evaluation, Experiments, Lint
from casual_mcp_nb.experiments.views import comparison_view, evaluation_view, experiments_view, lint_view
from casual_mcp_nb.notebook.views import (
    calls_view,
    cassette_view,
    clients_view,
    consent_view,
    diagnosis_view,
    exploration_view,
    help_view,
    host_audit_view,
    models_view,
    plan_view,
    planned_call_view,
    selection_view,
    server_diagnosis_view,
    session_view,
    system_prompt_view,
    tool_diagnosis_view,
    trust_entry_view,
    trust_view,
)
from casual_mcp_nb.serve.views import served_addresses_view, served_tools_view, service_view
from casual_mcp_nb.servers.views import (
    audit_record_view,
    audit_view,
    budget_view,
    completions_view,
    contents_view,
    direct_call_view,
    direct_calls_view,
    log_view,
    manifest_view,
    messages_view,
    prompt_messages_view,
    prompt_view,
    prompts_view,
    resource_view,
    resources_view,
    server_view,
    servers_view,
    subscription_view,
    subscriptions_view,
    tool_sets_view,
    tool_view,
    tools_view,
)


def frame_of(value: ChatStats | HostAudit) -> Any:
    """Build a pandas DataFrame with a row for each model call, or for each tool of a config."""
    return _library("pandas").DataFrame(_tool_records(value) if isinstance(value, HostAudit) else _model_calls(value))


def _tool_records(audit: HostAudit) -> list[dict[str, Any]]:
    return [
        {"server": server.server, "tool": each.tool.tool, "tokens": each.tokens, "share": each.tokens / max(audit.tokens, 1)}
        for server in audit
        for each in server.tools
    ]


def _model_calls(stats: ChatStats) -> list[dict[str, Any]]:
    return [
        {
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
        for step in stats.steps
    ]


def figure_of(stats: ChatStats) -> Any:
    """Draw a matplotlib figure with a stacked bar for each model call."""
    _library("matplotlib")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(4.0, 1.2 + 0.6 * len(stats.steps)), 3.2), layout="constrained")
    axes = figure.subplots()
    places = [f"{step.turn + 1}.{step.step + 1}" for step in stats.steps]
    below = [0] * len(places)
    for name, title in PARTS.items():
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
        raise MissingDependencyError(f"This needs {name}, which is not installed.", hint=f"Run: pip install {name}") from None


MAX_BYTES = 64 * 1024
"""The most that one form of an output takes, in bytes of UTF-8."""

Renderers = Mapping[str, Callable[[View], str]]
"""What draws a view, by media type."""

_FORMS: Renderers = {"text/plain": to_text, "text/markdown": to_markdown, "text/html": to_html}
_LIVE_FORMS: Renderers = {"text/plain": lambda view: to_text(line_only(view)), "text/html": to_html}
_BARE_HTML: Renderers = {"text/html": partial(to_html, styled=False)}

WHOLE = DisplayLimits(10_000, 1_000, 200_000, 1_000_000, 32_000_000)
"""For files, which need not be small."""

_BARE_TEXT = 2_000
_log = logging.getLogger(__name__)
_reported: set[str] = set()


@singledispatch
def view_of(value: Any, limits: DisplayLimits) -> View:
    """Show a value within `limits`. Its texts are not cleaned yet, which `fit` does."""
    raise TypeError(f"There is no display for {type(value).__name__}.")


view_of.register(ServerStatus, server_view)
view_of.register(Servers, servers_view)
view_of.register(SessionStatus, session_view)
view_of.register(Models, models_view)
view_of.register(Tools, tools_view)
view_of.register(ToolSpec, tool_view)
view_of.register(Manifest, manifest_view)
view_of.register(ExplorerSnapshot, exploration_view)
view_of.register(ToolSets, tool_sets_view)
view_of.register(SearchResults, search_view)
view_of.register(Explanation, explanation_view)
view_of.register(Turn, turn_view)
view_of.register(Step, step_view)
view_of.register(StepDiff, diff_view)
view_of.register(Request, request_view)
view_of.register(ToolCall, call_view)
view_of.register(ToolCalls, calls_view)
view_of.register(PlannedCall, planned_call_view)
view_of.register(PlannedCalls, plan_view)
view_of.register(Conversation, conversation_view)
view_of.register(Clients, clients_view)
view_of.register(ConsentStatus, consent_view)
view_of.register(Namespace, lambda namespace, limits: view_of(namespace.now, limits))
view_of.register(Selection, selection_view)
view_of.register(SystemPrompt, system_prompt_view)
view_of.register(Diagnosis, diagnosis_view)
view_of.register(ToolDiagnosis, tool_diagnosis_view)
view_of.register(ServerDiagnosis, server_diagnosis_view)
view_of.register(ServiceStatus, service_view)
view_of.register(Help, help_view)
view_of.register(ChatStats, stats_view)
view_of.register(Evaluation, evaluation_view)
view_of.register(Lint, lint_view)
view_of.register(Comparison, comparison_view)
view_of.register(Experiments, experiments_view)
view_of.register(CassetteOverview, cassette_view)
view_of.register(ServerLog, log_view)
view_of.register(Messages, messages_view)
view_of.register(DirectCall, direct_call_view)
view_of.register(DirectCalls, direct_calls_view)
view_of.register(Audit, audit_view)
view_of.register(HostAudit, host_audit_view)
view_of.register(StoredConversations, stored_view)
view_of.register(StoredConversation, stored_conversation_view)
view_of.register(AuditRecord, audit_record_view)
view_of.register(Budget, budget_view)
view_of.register(ServedTools, served_tools_view)
view_of.register(ServedAddresses, served_addresses_view)
view_of.register(Trust, trust_view)
view_of.register(TrustEntry, trust_entry_view)
view_of.register(Resource, resource_view)
view_of.register(Resources, resources_view)
view_of.register(ResourceContents, contents_view)
view_of.register(ServerPrompt, prompt_view)
view_of.register(Prompts, prompts_view)
view_of.register(PromptMessages, prompt_messages_view)
view_of.register(Completions, completions_view)
view_of.register(Subscription, subscription_view)
view_of.register(Subscriptions, subscriptions_view)
for _event in EVENTS:
    view_of.register(_event, event_view)


def mimebundle(value: Any, include: Container[str] | None = None, exclude: Container[str] | None = None) -> dict[str, str]:
    """Format a value for Jupyter as `text/plain`, `text/markdown` and `text/html`, each at most `MAX_BYTES`.

    Never raises: what cannot be drawn is shown as its `repr`, and the log says so once.
    """
    forms = {
        kind: render
        for kind, render in _FORMS.items()
        if (not include or kind in include) and (not exclude or kind not in exclude)
    }
    return _drawn(value, forms)


def turn_bundle(turn: Turn, detail: Detail, now: float | None = None) -> dict[str, str]:
    """Format a turn in all formats. `now` is how many seconds ago it began, for the time that a running call has taken."""
    return _drawn(turn, _FORMS, _detailed(detail, now))


def live_bundle(turn: Turn, detail: Detail, now: float | None = None) -> dict[str, str]:
    """Format a running turn, which is drawn often: its HTML, and one line as `text/plain`."""
    return _drawn(turn, _LIVE_FORMS, _detailed(detail, now))


def transcript_html(turn: Turn, now: float | None = None) -> str:
    """Format everything below the prompt of a turn, as HTML for a page that has the style sheet, see `style`."""
    forms = _drawn(turn, _BARE_HTML, lambda value, limits: transcript_view(value, limits, now))
    return forms["text/html"]


def request_html(request: Request) -> str:
    """Format a request to a model, its parts folded, as HTML for a page that has the style sheet, see `style`."""
    return _drawn(request, _BARE_HTML, folded_request_view)["text/html"]


def page(value: Any, title: str) -> str:
    """Format a value as a whole HTML document, in one file, without scripts or network access."""
    return _drawn(value, {"text/html": lambda view: to_page(view, title)})["text/html"]


def document(conversation: Conversation, form: Literal["html", "markdown"], title: str) -> str:
    """Format a whole conversation as one text. Everything can be unfolded, and only huge parts are cut."""
    view = fit(document_view(conversation.as_in_a_file(), WHOLE), WHOLE)
    return to_page(view, title) if form == "html" else f"{to_markdown(complete(view))}\n"


def _detailed(detail: Detail, now: float | None) -> Callable[[Any, DisplayLimits], View]:
    match detail:
        case "text":
            return lambda turn, limits: answer_view(turn, limits)
        case "all":
            return lambda turn, limits: whole_turn_view(turn, limits, now)
        case _:
            return lambda turn, limits: turn_view(turn, limits, now)


def _drawn(value: Any, forms: Renderers, view_for: Callable[[Any, DisplayLimits], View] | None = None) -> dict[str, str]:
    try:
        # The forms differ in size, so each is drawn with as much as fits it; those of one tier share the view.
        view = cache(lambda tier: fit((view_for or view_of)(value, SIZE_TIERS[tier]), SIZE_TIERS[tier]))
        return {kind: _within_limit(view, render) for kind, render in forms.items()}
    except Exception as error:
        _report(value, error)
        bare = _bare(type(value).__name__, _repr(value))
        return {kind: render(bare) for kind, render in forms.items()}


def _within_limit(view: Callable[[int], View], render: Callable[[View], str]) -> str:
    tier = 0
    while tier < len(SIZE_TIERS):
        form = render(view(tier))
        size = len(form.encode())
        if size <= MAX_BYTES:
            return form
        # Drawing is what takes time, and one tier saves about a third; the first only leaves the requests out.
        tier += 2 if tier and size > 1.4 * MAX_BYTES else 1
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
        _log.warning("A %s could not be drawn (%s) and is shown as its repr.", kind, type(error).__name__)
