"""Decides what to do next: search for tools, call them, ask for what is missing, or report.

It keeps nothing between requests: all that it knows stands in the messages and the tools that are offered.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.discovery.synthetic import BROWSE_TOOLKIT, LOAD_TOOLS, UNLOAD_TOOLS
from casual_mcp_nb.providers._planner.browsing import BROWSING, Browsing, categories_in
from casual_mcp_nb.providers._planner.fit import CERTAIN, SURE, Offer, ToolFit, best_fits
from casual_mcp_nb.providers._planner.history import History, Made, read_history
from casual_mcp_nb.providers._planner.needs import Need, needs_of
from casual_mcp_nb.providers._planner.report import ask_for, asked_for, cannot, report_error, report_result
from casual_mcp_nb.providers._planner.values import given
from casual_mcp_nb.types.event import READ_RESULT

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.discovery.index import ToolSearchIndex

_MANIFEST = re.compile(r"<manifest>(.*?)</manifest>", re.S)
_CLEARLY_BETTER = 0.25
_SERVER = re.compile(r"^- (.+?) \((\d+) tools?\):", re.M)


@dataclass(frozen=True)
class Wanted:
    """A call that the planner wants: the tool's name on the wire and its arguments."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Plan:
    """What to do next: calls to make, or, where there are none, the reply."""

    calls: tuple[Wanted, ...] = ()
    reply: str = ""


@dataclass
class _Progress:
    """What was done for one need in this turn."""

    need: Need
    fits: list[ToolFit] = field(default_factory=list)
    made: list[Made] = field(default_factory=list)
    searches: list[Made] = field(default_factory=list)


def plan(messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]]) -> Plan:
    """Decide the next step.

    Args:
        messages: The whole conversation.
        tools: Definitions with `name`, `description` and `parameters`, or the same under `function`.

    Returns:
        Calls that can be made at the same time, or the reply.
    """
    return _Planner(read_history(messages), [_offer(tool) for tool in tools]).next_step()


def _offer(tool: Mapping[str, Any]) -> Offer:
    definition = tool.get("function", tool)
    return Offer(str(definition["name"]), str(definition.get("description") or ""), definition.get("parameters") or {})


class _Planner:
    def __init__(self, history: History, offers: list[Offer]) -> None:
        self.history = history
        # A tool of a server has the server in its name; one that only claims a manifest is no search tool.
        self.search = next((one for one in offers if not one.server and _MANIFEST.search(one.description)), None)
        ways = {offer.name: offer for offer in offers if not offer.server and offer.name in BROWSING}
        self.browser = ways.get(BROWSE_TOOLKIT) if LOAD_TOOLS in ways else None
        self.browsing = Browsing(history.now)
        own = [self.search, *ways.values()]
        # Nothing here reads on in a result: a report is made of its beginning.
        self.offers = [offer for offer in offers if offer not in own and (offer.server or offer.name != READ_RESULT)]

    def next_step(self) -> Plan:
        """The calls that the needs ask for, or the reply when none does."""
        progress = self._needs()
        for call in self.history.now if progress else ():
            self._attribute(call, progress)
        steps = [self._step(one) for one in progress]
        made = [Wanted(one.name, one.arguments) for one in self.history.now]
        calls: list[Wanted] = []
        for step in steps:
            # Only on the way to tools does a call come twice: to load what there was no room for.
            if isinstance(step, Wanted) and step not in calls and (step not in made or step.name in BROWSING):
                calls.append(step)
        if calls:
            return Plan(tuple(_in_order(calls)))
        replies = dict.fromkeys(step for step in steps if isinstance(step, str))
        return Plan(reply="\n\n".join(replies) or cannot("", self._servers()))

    def _needs(self) -> list[_Progress]:
        needs = [self._begin(need, {}) for need in needs_of(self.history.request)]
        asked = asked_for(self.history.before)
        if asked is None or not needs or _is_clear(needs[0]):
            return needs
        text, names = asked
        reply = self.history.request.strip()
        return [self._begin(Need(f"{text} {reply}"), dict.fromkeys(names, reply) if len(names) == 1 else {})]

    def _begin(self, need: Need, answers: Mapping[str, str]) -> _Progress:
        fits = [] if need.is_talk else best_fits(need, self.offers, self._index, self._known)
        return _Progress(need, [_answered(fit, answers) for fit in fits])

    @cached_property
    def _index(self) -> ToolSearchIndex:
        from casual_mcp_nb.discovery.index import ToolSearchIndex

        return ToolSearchIndex([offer.spec for offer in self.offers])

    @cached_property
    def _known(self) -> dict[str, dict[str, Any]]:
        """The last call of an earlier turn that went well, by the tool's name."""
        names = {offer.name for offer in self.offers}
        used = [made for made in self.history.earlier if made.name in names and not made.failed]
        return {used[-1].name: used[-1].arguments} if used else {}

    def _attribute(self, made: Made, progress: list[_Progress]) -> None:
        """Find the need that a call was made for: the planner would make the same call again."""
        if self.search is not None and made.name == self.search.name:
            for one in progress:
                if one.need.query == made.arguments.get("query"):
                    one.searches.append(made)
            return
        if made.name in BROWSING:
            for one in progress if made.name == LOAD_TOOLS else ():
                one.searches.append(made)
            return
        matching = [
            (fit.rank, -index, one)
            for index, one in enumerate(progress)
            for fit in one.fits
            if fit.offer.name == made.name and fit.filling.arguments == made.arguments
        ]
        free = [match for match in matching if not match[2].made] or matching
        owner = max(free, key=lambda match: match[:2])[2] if free else min(progress, key=lambda one: len(one.made))
        owner.made.append(made)

    def _step(self, one: _Progress) -> Wanted | str:
        done = [made for made in one.made if not made.failed]
        if done:
            asked = {word.stem for word in one.need.words}
            return "\n\n".join(report_result(made.name, made.result, asked) for made in done)
        if one.need.is_talk:
            return cannot("", self._servers())
        if one.made:
            return self._after_failure(one)
        fits = [fit for fit in one.fits if fit.fits]
        best = next((fit for fit in fits if fit.complete and fit.rank > fits[0].rank - _CLEARLY_BETTER), None)
        if best is not None and best.confidence >= SURE:
            return Wanted(best.offer.name, best.filling.arguments)
        finding = self._finding(one)
        if best is not None and finding is None:
            return Wanted(best.offer.name, best.filling.arguments)
        if finding is not None and not (fits and fits[0].confidence >= SURE):
            return finding
        if fits:
            return ask_for(one.need.text, fits[0].offer.name, fits[0].filling.missing)
        return cannot(one.need.text, self._servers())

    def _after_failure(self, one: _Progress) -> Wanted | str:
        """One search for a better tool, where none was made; a tool that it finds must be surely right."""
        failed = one.made[-1]
        sure = any(fit.offer.name == failed.name and fit.confidence >= CERTAIN for fit in one.fits)
        finding = None if sure else self._finding(one)
        if finding is not None:
            return finding
        order = self.history.now.index
        if one.searches and len(one.made) == 1 and order(one.searches[-1]) > order(failed):
            for fit in one.fits:
                found = fit.offer.name in one.searches[-1].result and fit.offer.name != failed.name
                if found and fit.complete and fit.confidence >= SURE:
                    return Wanted(fit.offer.name, fit.filling.arguments)
        return "\n\n".join(report_error(made.name, made.result) for made in one.made)

    def _finding(self, one: _Progress) -> Wanted | None:
        """The next call on the way to tools that are not loaded; None where there is none, or it was made."""
        if self.search is not None:
            return None if one.searches else Wanted(self.search.name, {"query": one.need.query})
        call = self.browsing.next_call(one.need) if self.browser is not None else None
        return Wanted(*call) if call else None

    def _servers(self) -> dict[str, int]:
        """The servers there are, with the number of tools: of those that are loaded and those in the manifest."""
        counts: dict[str, int] = {}
        for offer in self.offers:
            if offer.server:
                counts[offer.server] = counts.get(offer.server, 0) + 1
        manifest = _MANIFEST.search(self.search.description) if self.search else None
        listed = _SERVER.findall(manifest[1]) if manifest else categories_in(self.browser.description if self.browser else "")
        # What is deferred is counted whole, with the tools that were loaded since.
        return counts | {name: int(count) for name, count in listed}


def _in_order(calls: Sequence[Wanted]) -> list[Wanted]:
    """The calls of one step: one change at most of what is loaded, and nothing is unloaded beside a call that may use it."""
    changes = [call for call in calls if call.name in (LOAD_TOOLS, UNLOAD_TOOLS)][:1]
    others = [call for call in calls if call.name not in (LOAD_TOOLS, UNLOAD_TOOLS)]
    if others and changes and changes[0].name == UNLOAD_TOOLS:
        return others
    return others + changes


def _is_clear(one: _Progress) -> bool:
    """Whether a reply to a question of ours is a request of its own."""
    fits = bool(one.fits and one.fits[0].complete and one.fits[0].confidence >= SURE)
    return bool(one.need.words) and (len(one.need.words) > 2 or fits)


def _answered(fit: ToolFit, answers: Mapping[str, str]) -> ToolFit:
    """The fit with the one argument that was asked for, where the reply is nothing but its value."""
    if len(fit.filling.missing) != 1 or fit.filling.missing[0] not in answers:
        return fit
    name = fit.filling.missing[0]
    parameter = next(parameter for parameter in fit.offer.parameters if parameter.name == name)
    value = given(answers[name], parameter)
    if value is None:
        return fit
    filling = replace(fit.filling, arguments={**fit.filling.arguments, name: value}, missing=[])
    return replace(fit, filling=filling)
