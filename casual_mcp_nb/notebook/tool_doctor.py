"""Find out how far a tool gets: listed by its server, selected, searchable, sent to the model, and
called by it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.base.displayable import count
from casual_mcp_nb.base.elsewhere import elsewhere
from casual_mcp_nb.base.search import Explanation
from casual_mcp_nb.base.status import (
    ServerDiagnosis,
    ServerStatus,
    Stage,
    StageCheck,
    ToolDiagnosis,
)
from casual_mcp_nb.base.tool import ToolName, ToolSpec, by_tool_name, full_names, tool_names
from casual_mcp_nb.base.tool_door import admit
from casual_mcp_nb.base.wire_names import MAX_WIRE_NAME
from casual_mcp_nb.conversation.event import ToolFinished
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.consent import ONE_BY_ONE, Reason
from casual_mcp_nb.engine.tool_view import ToolView
from casual_mcp_nb.errors import UnknownNameError, closest, did_you_mean, shown
from casual_mcp_nb.notebook.doctor import server_check
from casual_mcp_nb.notebook.status import server_mode, tool_set_name, tool_sets_of
from casual_mcp_nb.providers.registry import dialect_for, max_tools_of

HERE = " For this session: "
"""Introduces advice for a running session. Where there is no session, the advice is left out."""
_MAX_TEXT = 200
_REASONS_TO_ASK: dict[Reason, str] = {
    "always": "its policy is `always`",
    "destructive": "it is destructive, or its server does not declare otherwise",
    "unannotated": "its server does not declare whether it is destructive",
    "changed": "its definition is not the one that was approved",
    "outgoing": "it sends something in your name",
}
_BY: dict[str, str] = {
    "nobody": "no one could be asked",
    "person": "you denied it",
    "policy": "its policy",
}


@dataclass(frozen=True)
class ToolDoctor:
    """Diagnoses tools from what is known, without connecting or changing anything.

    Attributes:
        view: The model's view.
        turns: The conversation's turns.
        discovered: The tools that searches in it have loaded.
        model: The name of the model in use, or None.
        query: Words that a model might search for, or None.
    """

    chat: McpToolChat
    config: Config
    view: ToolView
    turns: Sequence[Turn]
    discovered: Sequence[ToolSpec]
    model: str | None = None
    query: str | None = None

    def diagnose(self, name: str) -> ToolDiagnosis | ServerDiagnosis:
        """Diagnose how far a tool gets, or each tool on a server.

        Raises:
            UnknownNameError: There is no such server or tool.
        """
        servers = self.chat.server_manager.names
        if name in servers:
            return self._of_server(name)
        tools = self.view.catalog.matches(name)
        if len(tools) == 1:
            return self._of_tool(tools[0].tool_name)
        split = ToolName.split(name, servers)
        if ":" in name and (split.server in servers or self._note_on(split.server)):
            return self._of_tool(split)
        if ":" not in name and self._note_on(name):
            return ServerDiagnosis(name, self._listed(ToolName(name, "")))
        for owner, status in self.chat.server_manager.statuses.items():
            if name in status.left_out:
                return self._of_tool(ToolName(owner, name))
        if tools:
            # It raises an error that lists them.
            self.view.catalog.resolve(name)
        valid = [*servers, *full_names(self.view.catalog)]
        unknown = name
        if ":" in name:
            unknown = split.server
        raise UnknownNameError("server or tool", unknown, valid)

    def _of_server(self, name: str) -> ServerDiagnosis:
        status = self.chat.server_manager.status_of(name)
        check = self._server_listed(status)
        if check.state != "ok":
            return ServerDiagnosis(name, check, ())
        names = [tool.tool_name for tool in self.view.catalog.by_server.get(name, ())]
        for tool in status.left_out:
            if ToolName(name, tool) not in names:
                names.append(ToolName(name, tool))
        return ServerDiagnosis(name, check, tuple(map(self._of_tool, names)))

    def _of_tool(self, name: ToolName) -> ToolDiagnosis:
        spec = self._by_name.get(name)
        explanation = self._explain(spec)
        stages: list[StageCheck] = []
        for check in self._checks(name, spec, explanation):
            stages.append(check)
            if check.state == "stopped":
                break
        for stage in _STAGES[len(stages) :]:
            stages.append(StageCheck(stage, "not reached"))
        rank = None
        if explanation is not None:
            rank = explanation.rank
        if spec is None:
            return ToolDiagnosis(name, tuple(stages), calls=self._calls(name))
        return ToolDiagnosis(
            name,
            tuple(stages),
            spec.wire_name,
            spec.tokens,
            rank,
            self._calls(name),
            elsewhere(spec),
        )

    def _checks(
        self, name: ToolName, spec: ToolSpec | None, explanation: Explanation | None
    ) -> Iterator[StageCheck]:
        yield self._listed(name)
        if spec is not None:
            yield self._selected(spec)
            yield self._searchable(spec, explanation)
            yield self._sent(spec)
            yield self._called(spec)

    @cached_property
    def _by_name(self) -> dict[ToolName, ToolSpec]:
        return by_tool_name(self.view.catalog)

    @cached_property
    def _discovered_names(self) -> frozenset[ToolName]:
        return frozenset(tool_names(self.discovered))

    # Listed

    def _note_on(self, server: str) -> str:
        """Find the note on a configured server that is not used. Empty if there is none."""
        pattern = re.compile(rf"""(?:^|[.\["' ]){re.escape(server)}(?=$|[\s.,:;"'\]])""")
        for note in self.config.notes:
            if pattern.search(note):
                return note
        return ""

    def _listed(self, name: ToolName) -> StageCheck:
        manager = self.chat.server_manager
        if name.server not in manager.names:
            advice = "Change its entry in the config, or start it yourself and add its address."
            return StageCheck("listed", "stopped", self._note_on(name.server), advice)
        status = manager.status_of(name.server)
        reason = status.left_out.get(name.tool)
        if name not in self._by_name:
            return self._why_not_listed(name, status, reason)
        server = f"server {shown(name.server)}"
        finding = f"{server} lists it"
        fields = [place for place in status.ignored if place.startswith(f"{name.tool}.")]
        if fields:
            finding += (
                f", without {' and '.join(map(shown, fields[:12]))}, which it writes in a way that"
                " is not valid"
            )
        if reason is not None:
            finding += f", {reason}, and the first definition counts"
        if status.state != "ready":
            finding += (
                f". It is {status.state} now, and starts again when one of its tools is called"
            )
        return StageCheck("listed", "ok", finding)

    def _why_not_listed(
        self, name: ToolName, status: ServerStatus, reason: str | None
    ) -> StageCheck:
        check = self._server_listed(status)
        if check.state == "stopped":
            return check
        server = f"server {shown(name.server)}"
        if reason is not None:
            finding = f"{server} lists it, but it cannot be used: {reason}"
            return StageCheck(
                "listed", "stopped", finding, "Its author must correct the definition."
            )
        names = [tool.name for tool in self.view.catalog.by_server.get(name.server, ())]
        finding = (
            f"{server} is connected, but none of its {count(len(names), 'tool')} has this name"
        )
        return StageCheck(
            "listed", "stopped", finding, did_you_mean(closest(name.tool, names), names)
        )

    def _server_listed(self, status: ServerStatus) -> StageCheck:
        server, config = shown(status.name), self.config.servers.get(status.name)
        tools = len(self.view.catalog.by_server.get(status.name, ())) + len(status.left_out)
        if tools:
            return StageCheck("listed", "ok", f"server {server} lists {count(tools, 'tool')}")
        if config is not None and not config.enabled and status.state == "closed":
            advice = f"Remove the switch from its entry in the config.{HERE}%mcp load {status.name}"
            return StageCheck(
                "listed",
                "stopped",
                f"server {server} is disabled in the config, so it is not started",
                advice,
            )
        check = server_check(status)
        if check.verdict == "ok" and status.state == "ready":
            declared = ""
            if "tools" not in status.capabilities:
                declared = ", and does not declare that it has any"
            return StageCheck(
                "listed",
                "stopped",
                f"server {server} is connected, but lists no tools{declared}",
                _EMPTY_LIST,
            )
        finding = f"server {server} is {check.found}"
        if check.found.startswith("failed"):
            finding = f"server {server} {check.found}"
        return StageCheck("listed", "stopped", finding, check.advice)

    # Selected

    def _selected(self, tool: ToolSpec) -> StageCheck:
        problems = list(self._why_not_selected(tool))
        if problems:
            finding = "; ".join(why for why, _ in problems)
            advice = " ".join(what_to_do for _, what_to_do in problems)
            return StageCheck("selected", "stopped", finding, advice)
        name = tool_set_name(self.view.selection)
        included = "all tools are selected"
        if name is not None:
            included = f"toolset {shown(name)} includes it"
        return StageCheck("selected", "ok", included)

    def _why_not_selected(self, tool: ToolSpec) -> Iterator[tuple[str, str]]:
        selection, server, name = self.view.selection, tool.server, str(tool.tool_name)
        tool_set = tool_set_name(selection)
        refusal = tool_sets_of(self.chat, self.view).problem
        if refusal:
            yield (
                f"the toolset does not fit, so that every turn is refused: {refusal}",
                f"Correct it.{HERE}%mcp toolset all",
            )
        elif tool_set is not None and tool.tool_name not in self._in_tool_set:
            advice = (
                f"Add {shown(name)} to tool_sets.{tool_set}.servers in the config.{HERE}%mcp"
                " toolset all"
            )
            yield f"toolset {shown(tool_set)} leaves it out", advice
        if tool.restriction == "app only":
            yield (
                "its server reserves it for the user interface of its app",
                "Nothing to do: it is never offered to a model.",
            )
        elif tool.restriction is not None:
            yield (
                "it runs only as a protocol task, which this client does not start",
                "Ask its author for a plain tool.",
            )
        if tool.tool_name in self.view.excluded:
            yield (
                "include_tools or exclude_tools leaves it out",
                f"Change servers.{server}.include_tools or exclude_tools.",
            )
        if tool.tool_name in self.view.blocked:
            text = f'session.consent.accept("{name}")'
            yield (
                "its definition has changed, and pinned tools wait until you accept that",
                f"Read the change.{HERE}{text}",
            )
        if selection.servers.get(server) == "off":
            yield f"server {shown(server)} is switched off", f"Turn it on.{HERE}%mcp load {server}"
        for off in selection.tools_off:
            if self.view.catalog.get(off) is tool:
                yield (
                    "it is switched off individually",
                    f"Turn it on.{HERE}session.selection.tools_off.discard({off!r})",
                )

    @cached_property
    def _in_tool_set(self) -> frozenset[ToolName]:
        from casual_mcp_nb.discovery.toolsets import filter_tools, resolve_tool_set

        chosen = resolve_tool_set(self.view.selection.tool_set, self.chat.tool_sets)
        return frozenset(tool_names(filter_tools(self.view.catalog, chosen)))

    # Searchable

    def _explain(self, tool: ToolSpec | None) -> Explanation | None:
        if tool is None or self.query is None or tool.wire_name not in self.view.deferred_by_name:
            return None
        return self.view.index.explain(self.query, tool, self.view.selection.max_search_results)

    def _searchable(self, tool: ToolSpec, explanation: Explanation | None) -> StageCheck:
        view = self.view
        if tool.wire_name in view.loaded_by_name:
            why = "nothing defers it"
            if server_mode(view.selection, tool.server) == "deferred":
                why = "it is always loaded"
            return StageCheck("searchable", "not needed", f"{why}, so it needs no search")
        total = count(len(view.deferred), "deferred tool")
        pattern = rf"(?:: |, ){re.escape(tool.name)}(?:, |$)"
        unnamed = ""
        if not re.search(pattern, view.manifest, re.MULTILINE):
            unnamed = ", but the manifest does not name it"
        how = f"deferred: {view.loader} finds it among {total}{unnamed}"
        if explanation is None:
            return StageCheck("searchable", "ok", how)
        finding = f"{shown(explanation.query)}, among {total}: {explanation.verdict.rstrip('.')}"
        if explanation.rank is not None and explanation.rank <= explanation.cut:
            return StageCheck("searchable", "ok", finding)
        if tool.tool_name in self._discovered_names:
            return StageCheck(
                "searchable", "ok", f"{finding}, but another search has already found it"
            )
        load = (
            f"or keep it loaded: list it in servers.{tool.server}.always_load.{HERE}%mcp load"
            f" {tool.server}"
        )
        if explanation.rank is None:
            words = ", ".join(map(shown, map(explanation.word, explanation.missing[:8])))
            return StageCheck(
                "searchable", "stopped", finding, f"Describe it with words such as {words}, {load}"
            )
        advice = (
            f"Raise tool_discovery.max_search_results to {explanation.rank:,}, describe it with the"
            f" query's words, {load}"
        )
        return StageCheck("searchable", "stopped", finding, advice)

    # Sent

    def _sent(self, tool: ToolSpec) -> StageCheck:
        problems = list(self._why_not_sent(tool))
        if problems:
            return StageCheck("sent", "stopped", *problems[0])
        if not self.config.models and self.model is None:
            return StageCheck("sent", "not yet", "there is no model", "Add a model to the config.")
        loaded = tool.wire_name in self.view.loaded_by_name
        was_found = tool.tool_name in self._discovered_names
        if loaded or was_found:
            how = "a search has found it, so every further request has it"
            if loaded:
                how = "every request has it"
            cut = ""
            if tool.cuts:
                parts = ", ".join(tool.cuts)
                cut = f", but it is too long for a model, so these parts were cut: {parts}"
            return StageCheck(
                "sent",
                "ok",
                f"{how} as {tool.wire_name}{_why_renamed(tool)}{cut}{self._last_request(tool)}",
            )
        searches = sum(len(turn.searches) for turn in self.turns)
        so_far = ""
        if searches:
            so_far = f", and {count(searches, 'search')} of this conversation did not return it"
        advice = (
            f"To send it always, set servers.{tool.server}.defer_loading to false.{HERE}%mcp load"
            f" {tool.server}"
        )
        how = f"its definition is sent once {self.view.loader} has found it{so_far}"
        return StageCheck("sent", "not yet", how, advice)

    def _why_not_sent(self, tool: ToolSpec) -> Iterator[tuple[str, str]]:
        model = self.config.models.get(self.model or "")
        if model is None:
            return
        name = shown(self.model or "")
        if model.tool_choice == "none":
            advice = f"Remove models.{self.model}.tool_choice."
            yield f"model {name} has the tool_choice `none`, so it may call no tool", advice
        client = self.config.clients[model.client]
        dialect, refused = dialect_for(client), self.chat.models.refused_tools(self.model or "")
        reason = ""
        if dialect is not None:
            reason = admit(tool.definition, dialect).reason
        if not reason and refused is not None:
            reason = refused.reason_for(tool.definition)
        if reason:
            advice = "Its author must correct the schema. Another provider may take it."
            yield f"it is left out for model {name}: {reason.rstrip('.')}", advice
        limit = max_tools_of(model, client)
        size = len(self.view.offered) + len(self._discovered_names)
        if limit is not None and size > limit:
            advice = (
                f"Choose a toolset, or defer servers until at most {limit} tools are"
                f" loaded.{HERE}%mcp defer SERVER"
            )
            yield (
                (
                    f"a request has {size:,} tools, and the provider of {name} refuses more than"
                    f" {limit}"
                ),
                advice,
            )

    def _last_request(self, tool: ToolSpec) -> str:
        for turn in reversed(self.turns):
            request = turn.last_request
            if request is None:
                continue
            for definition in (*request.tools, *request.found):
                if definition["name"] == tool.wire_name:
                    return ""
            return ", but the last request did not have it yet"
        return ""

    # Called

    @cached_property
    def _ends(self) -> dict[ToolName, list[ToolFinished]]:
        ends: dict[ToolName, list[ToolFinished]] = {}
        for turn in self.turns:
            for event in turn.trace.of(ToolFinished):
                ends.setdefault(event.tool, []).append(event)
        return ends

    def _calls(self, name: ToolName) -> dict[str, int]:
        return dict(Counter[str](end.status for end in self._ends.get(name, ())))

    def _called(self, tool: ToolSpec) -> StageCheck:
        calls, ends = self._calls(tool.tool_name), self._ends.get(tool.tool_name, [])
        if not ends:
            return StageCheck(
                "called", "not yet", f"no call in this conversation: {self._outlook(tool)}"
            )
        outcomes = ", ".join(f"{number:,} {status}" for status, number in calls.items())
        finding, last = f"{count(len(ends), 'call')}: {outcomes}", ends[-1]
        if last.status != "ok":
            finding += f"; the last one: {' '.join(last.text.split())[:_MAX_TEXT]}"
        if set(calls) != {"denied"}:
            return StageCheck("called", "ok", finding)
        permission = last.permission
        by = "unknown"
        if permission:
            by = f"{_BY.get(permission.by, permission.by)}, policy: {permission.policy}"
        consent, advice = self.chat.consent, "Each call needs your own approval."
        if consent.foreseen(tool) not in ONE_BY_ONE:
            advice = consent.how_to_allow(tool)
        return StageCheck("called", "stopped", f"{finding} (denied: {by})", advice)

    def _outlook(self, tool: ToolSpec) -> str:
        """Predict whether a call would need approval, and by which rule."""
        reason, policy = self.chat.consent.foreseen(tool), self.chat.consent.policy(tool)
        if reason is None:
            return f"it would run without asking (policy: {policy})"
        return f"you would be asked first (policy: {policy}): {_REASONS_TO_ASK.get(reason, reason)}"


_STAGES: tuple[Stage, ...] = ("listed", "selected", "searchable", "sent", "called")
_EMPTY_LIST = "Check its log, its options, and its account's rights."


def _why_renamed(tool: ToolSpec) -> str:
    """Explain why the wire name is not simply `server__tool`. Empty if it is."""
    plain = tool.tool_name.joined
    if tool.wire_name == plain:
        return ""
    if len(plain) > MAX_WIRE_NAME:
        return f" (shortened: providers take {MAX_WIRE_NAME} characters)"
    is_suffixed = re.fullmatch(r".*_[0-9a-f]{8}", tool.wire_name)
    if is_suffixed and not tool.wire_name.endswith(plain[-9:]):
        return " (with a suffix: another tool would have the same name)"
    return " (with characters that providers accept)"
