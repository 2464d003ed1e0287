"""Arms: the set-ups that an experiment compares, from the options that differ, other descriptions
and other servers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.config import Discovery, Strategy
from casual_mcp_nb.base.iterables import drop_none
from casual_mcp_nb.base.model_options import DeliverySetting
from casual_mcp_nb.errors import UsageError, cannot_be
from casual_mcp_nb.experiments.cases import ToolUseCase
from casual_mcp_nb.experiments.matchers import Matcher
from casual_mcp_nb.experiments.one_or_several import as_tuple

if TYPE_CHECKING:
    from casual_mcp_nb.base.config import ServerConfig
    from casual_mcp_nb.conversation.turn import Turn
    from casual_mcp_nb.engine.chat import McpToolChat
    from casual_mcp_nb.engine.options import TurnOptions
    from casual_mcp_nb.engine.tools import Described

Check = str | re.Pattern[str] | Matcher | Callable[["Turn"], Any]
"""A check: a text that the answer contains, a pattern found in it, a matcher, or a function that
gets the turn.
"""

Descriptions = Mapping[str, "Described"]
"""Other tool descriptions, by tool: a text, or a mapping with `description` and `parameters`."""

OtherServers = Mapping[str, Any]
"""Other servers, by name: an entry as in the config, an in-process server, or None to leave it out.
"""


_DISCOVERY_WORDS = {True: "discovery on", False: "discovery off", "auto": "discovery auto"}


@dataclass(frozen=True)
class Arm:
    """One set-up that an experiment compares with others. None means as the session is set.

    Args:
        name: Its name, from the differences between the arms.
        model: The model.
        tool_set: The toolset.
        discovery: Whether deferred tools are hidden.
        strategy: How the model finds them.
        delivery: How it receives search results.
        descriptions: The name of the tool descriptions that it reads instead of the servers' own.
        without: The servers and tools that it leaves out.
        servers: The name of the servers that it has instead of the session's own.
    """

    name: str
    model: str | None = None
    tool_set: str | None = None
    discovery: Discovery | None = None
    strategy: Strategy | None = None
    delivery: DeliverySetting | None = None
    descriptions: str | None = None
    without: tuple[str, ...] = ()
    servers: str | None = None


@dataclass(frozen=True)
class ArmSetup:
    """What makes an arm run.

    Args:
        arm: The arm.
        options: Options for its turns.
        descriptions: Tool descriptions that the model reads in place of the servers' own.
        servers: Servers that are started for it, in place of the session's or besides them.
    """

    arm: Arm
    options: TurnOptions
    descriptions: Descriptions = field(default_factory=dict)
    servers: Mapping[str, ServerConfig | Any | None] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The arm's name."""
        return self.arm.name


Factors = Mapping[str, Sequence[Any]]
"""The options that differ between arms: for a field of `Arm`, its values, the models by name in the
config or as objects. What is missing or empty is as the session is set.
"""


def factors_of(**values: Any) -> Factors:
    """Create factors from one value or several for each field."""
    return {name: as_tuple(value) for name, value in values.items()}


def options_of(chat: McpToolChat, factors: Factors, options: TurnOptions) -> dict[Arm, TurnOptions]:
    """Build a turn's options for each arm: all combinations, in order.

    Without discovery nothing is searched, so strategies and deliveries make no difference there.

    Raises:
        UsageError: A name does not exist, or the arms do not differ.
    """
    given_models = factors.get("model", ())
    for model in given_models:
        if isinstance(model, str):
            chat.models.check(model)
        elif not hasattr(model, "default_options"):
            raise cannot_be("A model", model, "Give model names from the config, or model objects.")
    # A model that is given twice is two arms.
    labels = _unique(model if isinstance(model, str) else model.name for model in given_models)
    models = dict(zip(labels, given_models, strict=True))
    values: dict[str, list[Any]] = {"model": labels}
    for name in ("tool_set", "discovery", "strategy", "delivery"):
        values[name] = list(dict.fromkeys(factors.get(name, ())))
    for tool_set in values["tool_set"]:
        if tool_set is not None:
            chat.names.check_tool_set(tool_set)
    selection = chat.selection
    is_searched = values["discovery"] or selection.discovery
    if (values["strategy"] or values["delivery"]) and not is_searched:
        raise UsageError(
            "Discovery is off, so strategies and deliveries make no difference.",
            hint="Add discovery=True, or [False, True].",
        )
    unnamed_set = None
    if values["tool_set"]:
        unnamed_set = "all tools" if selection.tool_set is None else "the session's toolset"
    result = {}
    for combination in product(*(each or [None] for each in values.values())):
        given: dict[str, Any] = dict(zip(values, combination, strict=True))
        if given["discovery"] is False:
            given |= {"strategy": None, "delivery": None}
        words = {
            **given,
            "tool_set": given["tool_set"] or unnamed_set,
            "discovery": _DISCOVERY_WORDS.get(given["discovery"]),
        }
        arm = Arm(_name_of(words, values), **given)
        changes = drop_none(given)
        if arm.model is not None:
            changes["model"] = models[arm.model]
        result[arm] = options.replaced(**changes)
    return result


def _name_of(words: Mapping[str, str | None], values: Mapping[str, Sequence[Any]]) -> str:
    """Name an arm by what differs between arms, or by all that is set if nothing does."""
    known = [name for name, word in words.items() if word is not None]
    differing = [name for name in known if len(values[name]) > 1]
    named = [str(words[name]) for name in differing or known]
    return " · ".join(named) or "as the session is set"


def _unique(names: Iterable[str]) -> list[str]:
    """Number the names that occur more than once."""
    counts: dict[str, int] = {}
    result = []
    for name in names:
        counts[name] = counts.get(name, 0) + 1
        if counts[name] > 1:
            name = f"{name} ({counts[name]})"
        result.append(name)
    return result


def arms_of(
    options: Mapping[Arm, TurnOptions],
    descriptions: Mapping[str, Descriptions],
    without: Sequence[str | Sequence[str]],
    servers: Mapping[str, OtherServers] | None = None,
) -> list[ArmSetup]:
    """Combine options with other tool descriptions, other servers, and servers and tools left out.

    Args:
        options: Each arm's options.
        descriptions: Other descriptions by name.
        without: Servers and tools, each left out in an arm. Several in a list are left out
            together.
        servers: Other servers by name.
    """
    left_out: list[tuple[str, ...]] = [as_tuple(each) for each in without]
    servers = servers or {}
    named_texts: list[tuple[str | None, Descriptions]] = [(None, {}), *descriptions.items()]
    named_servers: list[tuple[str | None, OtherServers]] = [(None, {}), *servers.items()]
    differs = len(options) > 1 or not (descriptions or without or servers)
    setups = []
    for arm, given in options.items():
        for (described, texts), (served, others), missing in product(
            named_texts, named_servers, ((), *left_out)
        ):
            words = [arm.name] if differs else []
            if descriptions:
                words.append(described or "as listed")
            if servers:
                words.append(served or "as configured")
            if left_out:
                words.append(f"without {' and '.join(missing)}" if missing else "with all")
            named = replace(
                arm, name=" · ".join(words), descriptions=described, without=missing, servers=served
            )
            setups.append(ArmSetup(named, given, texts, others))
    return setups


def cases_of_prompts(
    prompt: str | Iterable[str], check: Check | Sequence[Check | None] | None
) -> tuple[ToolUseCase, ...]:
    """Build a case of each prompt, judged by its check. Without one it is only compared.

    Args:
        prompt: A text, or several. One that occurs twice counts once.
        check: A check for all, or one for each.

    Raises:
        UsageError: A prompt is not a text, or a check is not one.
    """
    prompts: tuple[Any, ...] = as_tuple(prompt)
    for each in prompts:
        if not isinstance(each, str) or not each.strip():
            raise cannot_be("A prompt", each, "Give a text, or a list of texts.")
    if not prompts:
        raise UsageError("There is no prompt to compare.")
    prompts = tuple(dict.fromkeys(prompts))
    checks: Sequence[Any] = check if isinstance(check, list | tuple) else [check] * len(prompts)
    if len(checks) != len(prompts):
        raise UsageError(
            f"There are {len(checks):,} checks for {len(prompts):,} prompts.",
            hint="Give one for each, or one.",
        )
    return tuple(
        ToolUseCase(text, answer=each, judged=each is not None)
        for text, each in zip(prompts, checks, strict=True)
    )
