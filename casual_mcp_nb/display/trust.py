"""View of the servers and clients that a config would start."""

from __future__ import annotations

from casual_mcp_nb.display.view import DisplayLimits, Section, Status, TextBlock, View
from casual_mcp_nb.doors import in_words_of
from casual_mcp_nb.types.trust import Trust, TrustEntry, TrustState, exact, lines_of

_STATES: dict[TrustState, Status] = {
    "harmless": Status("✓ nothing to accept", "quiet"),
    "trusted": Status("✓ accepted", "good"),
    "new": Status("● new", "busy"),
    "changed": Status("● changed", "bad"),
}
_MAX_WHOLE = 15_000
"""How many characters are always shown whole."""


def trust_view(trust: Trust, limits: DisplayLimits) -> View:
    """Show the servers and clients of a config with all that they would start."""
    if trust.required:
        text = f"Nothing starts until you accept it. {in_words_of('To accept it: %mcp trust --accept')}".rstrip()
    else:
        text = f"It may start. {trust.why}"
    if len(trust.text) > _MAX_WHOLE:
        text += in_words_of(" It is long, and may be cut here; whole: print(session.trust().text)")
    sections = tuple(_section(entry, limits) for entry in trust.entries)
    title = f"What {exact(trust.source)} would start" if trust.source else "What this config starts"
    return View("trust", title, (TextBlock(text), *sections))


def trust_entry_view(entry: TrustEntry, limits: DisplayLimits) -> View:
    """Show one of them."""
    section = _section(entry, limits)
    return View("trust", exact(entry.name), section.blocks, mark=section.mark, note=section.note)


def _section(entry: TrustEntry, limits: DisplayLimits) -> Section:
    note = ", ".join(entry.changed)
    text = TextBlock(lines_of(entry), code=True, limit=limits.document)
    return Section(f"{entry.kind} {exact(entry.name)}", (text,), mark=_STATES[entry.state], note=note)
