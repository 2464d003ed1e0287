"""The definitions that a request offers: those that pass the door for tools, without those that the
provider has refused.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.tool_door import NO_NAMES, Admission, admit, known_admission, real_arguments
from casual_mcp_nb.providers._calls import changed_arguments
from casual_mcp_nb.providers.registry import Definition, Definitions

if TYPE_CHECKING:
    from casual_llm.messages import AssistantMessage

    from casual_mcp_nb.base.dialects import Dialect


@dataclass(frozen=True)
class LastOffer:
    """An offer, with the definitions and the conditions that it was made of."""

    tools: Definitions
    conditions: tuple[Any, ...]
    offered: Offered


@dataclass
class RefusedTools:
    """The tools, and parts of them, that a provider has refused. Kept as long as its client is.

    Args:
        reasons: Why a tool is left out, by its name and its definition's digest: a changed
            definition is tried again.
        longest_description: How many characters a description may have, once the provider has said
            so.
        last: The last offer, which is used again while nothing has changed.
    """

    reasons: dict[tuple[str, str], str] = field(default_factory=dict)
    longest_description: int | None = None
    last: LastOffer | None = None

    def add(self, definition: Definition, reason: str) -> None:
        """Leave a tool out from now on."""
        self.reasons[str(definition["name"]), digest_of(definition)] = reason

    def reason_for(self, definition: Definition) -> str:
        """Look up why a tool is left out, or return an empty string."""
        if not self.reasons:
            return ""
        name = str(definition["name"])
        if not any(each == name for each, _ in self.reasons):
            return ""
        return self.reasons.get((name, digest_of(definition)), "")


def digest_of(definition: Definition) -> str:
    """Hash a definition."""
    written = json.dumps(definition, sort_keys=True, default=str)
    return hashlib.sha256(written.encode("utf-8", "replace")).hexdigest()[:16]


@dataclass(frozen=True)
class Offered:
    """The tools that a request offers.

    Args:
        definitions: The definitions to send.
        renamed: For each tool whose properties are sent under other names, the real names by those.
        left_out: The definitions that are not sent, each with the reason.
    """

    definitions: Definitions
    renamed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    left_out: tuple[tuple[Definition, str], ...] = ()

    @property
    def names(self) -> list[str]:
        """The names of the tools that are sent."""
        return [str(definition["name"]) for definition in self.definitions]


NOTHING = Offered(())


async def offered(tools: Definitions, dialect: Dialect | None, refused: RefusedTools) -> Offered:
    """Have definitions pass the door for tools (`base.tool_door`).

    New definitions are looked at on another thread. A tuple that is sent again is looked at once.
    """
    if dialect is None or not tools:
        return Offered(tools)
    last = refused.last
    conditions = (dialect.title, len(refused.reasons), refused.longest_description)
    if last is not None and tools is last.tools and conditions == last.conditions:
        return last.offered
    found = _offered(tools, dialect, refused, known_admission)
    if found is None:
        found = await asyncio.to_thread(_offered, tools, dialect, refused, admit)
        assert found is not None
    if isinstance(tools, tuple):
        refused.last = LastOffer(tools, conditions, found)
    return found


def _offered(
    tools: Definitions,
    dialect: Dialect,
    refused: RefusedTools,
    admission_of: Callable[[Definition, Dialect], Admission | None],
) -> Offered | None:
    """Put together what is offered, or return None at a definition about which nothing is known."""
    sent: list[Definition] = []
    renamed: dict[str, Mapping[str, str]] = {}
    left_out: list[tuple[Definition, str]] = []
    longest = refused.longest_description
    same = True
    for tool in tools:
        admission = admission_of(tool, dialect)
        if admission is None:
            return None
        definition = admission.definition
        reason = admission.reason or refused.reason_for(tool)
        if definition is None or reason:
            left_out.append((tool, reason))
            continue
        description = definition["description"]
        if longest is not None and len(description) > longest:
            definition = {**definition, "description": f"{description[: longest - 6]} [...]"}
        if admission.renamed is not NO_NAMES:
            renamed[str(tool["name"])] = admission.renamed
        same = same and definition is tool
        sent.append(definition)
    if same and not left_out:
        # The same sequence: its converted form is found by its identity.
        return Offered(tools)
    return Offered(tuple(sent), renamed, tuple(left_out))


def with_real_names(
    message: AssistantMessage, renamed: Mapping[str, Mapping[str, str]]
) -> AssistantMessage:
    """Give the arguments of an answer's calls the real names of the tools' parameters."""
    made = message.tool_calls or ()
    if not any(call.function.name in renamed for call in made):
        return message
    calls = []
    for call in made:
        names = renamed.get(call.function.name)
        if names:
            arguments = changed_arguments(
                call.function.arguments, partial(real_arguments, renamed=names)
            )
            call = call.model_copy(
                update={"function": call.function.model_copy(update={"arguments": arguments})}
            )
        calls.append(call)
    return message.model_copy(update={"tool_calls": calls})
