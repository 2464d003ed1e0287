"""Traces as JSON: what a saved conversation consists of, readable by people and by later versions."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, get_args

from casual_mcp_nb.errors import UsageError, shown
from casual_mcp_nb.types.event import Event, TurnStarted

if TYPE_CHECKING:
    from pydantic import TypeAdapter

FORMAT = "casual-mcp-nb conversation"
VERSION = 1

_KINDS: Mapping[str, type[Any]] = {kind.__name__: kind for kind in get_args(Event)}


def dump_turns(turns: Iterable[Iterable[Event]]) -> str:
    """The events of turns as JSON. Bytes become base64; numbers that JSON does not have become text such as `"NaN"`."""
    written = [{"events": [_dumped(event) for event in events]} for events in turns]
    return json.dumps(_plain({"format": FORMAT, "version": VERSION, "turns": written}), ensure_ascii=False, indent=1)


def load_turns(text: str | bytes) -> list[list[Event]]:
    """The events of the turns that `dump_turns` wrote.

    Raises:
        UsageError: It is something else, of a later version, or damaged.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError("This is not JSON.", hint=_HINT) from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise UsageError("This is no saved conversation.", hint=_HINT)
    if document.get("version") != VERSION:
        found = shown(str(document.get("version")))
        raise UsageError(f"This conversation has version {found}, and this package reads version {VERSION}.", hint=_NEWER)
    try:
        return [_loaded_turn(turn) for turn in document["turns"]]
    except (KeyError, TypeError, ValueError):
        raise UsageError("This saved conversation is damaged.", hint=_HINT) from None


_HINT = "Give a file that session.export wrote with the ending .json."
_NEWER = "A later version of casual_mcp_nb wrote it: update the package."


def _dumped(event: Event) -> dict[str, Any]:
    (fields,) = _adapter(type(event).__name__).dump_python((event,), mode="json")
    return {"event": type(event).__name__, **fields}


def _loaded_turn(turn: Mapping[str, Any]) -> list[Event]:
    events = [_loaded(event) for event in turn["events"]]
    if not any(isinstance(event, TurnStarted) for event in events):
        raise ValueError("A turn without a beginning.")
    return events


def _loaded(fields: dict[str, Any]) -> Event:
    event: Event
    (event,) = _adapter(fields["event"]).validate_python(({name: value for name, value in fields.items() if name != "event"},))
    return event


@cache
def _adapter(kind: str) -> TypeAdapter[Any]:
    from casual_llm.messages import AssistantMessage, ChatMessage
    from pydantic import ConfigDict, TypeAdapter

    from casual_mcp_nb.types.kept import KeptMessage

    # Only an adapter of something that is no dataclass itself takes a config, hence the tuple.
    config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", defer_build=True)
    adapter: TypeAdapter[Any] = TypeAdapter(tuple[_KINDS[kind]], config=config)  # type: ignore[valid-type]
    messages = {"AssistantMessage": KeptMessage | AssistantMessage, "ChatMessage": KeptMessage | ChatMessage}
    adapter.rebuild(_types_namespace=messages)
    return adapter


def _plain(value: Any) -> Any:
    """`value` with only such texts and numbers as JSON in UTF-8 can hold."""
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {str(_plain(key)): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return value
