"""The form of one request: how it is sent, and what changes when the model does not take it so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from casual_mcp_nb.base.config_base import NO_OPTIONS, RequestOptions
from casual_mcp_nb.errors import shown
from casual_mcp_nb.providers import _reading as reading
from casual_mcp_nb.providers._clients import EmptyStream, refuses_deferral
from casual_mcp_nb.providers._options import (
    SMALL_SERVERS_LACK,
    Refusal,
    adapted,
    room_for_answer,
)
from casual_mcp_nb.providers.registry import is_at_home

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.providers._bound_model import BoundModel

_SERVER_ERRORS = (500, 501)

Change = Literal["in one piece", "on a new connection", "with fewer options", "with less room"]
"""A change that is tried at most once in a request."""


class RequestForm:
    """How one request is sent: streamed or not, and with which options.

    After an error, the first of these changes is made that fits it. The request is then repeated:

    | error | change | for how long |
    |---|---|---|
    | a stream that brings nothing | in one piece | from now on, if it helps twice in a row |
    | after that, a lost connection | on a new connection | this request |
    | status 500 or 501 | with fewer options | from now on, if it helps |
    | there is less room for the answer | with less room | this request |
    | a refusal that a rule knows | see `_options.adapted` | from now on |

    Args:
        stream: Whether the answer is to be streamed, if the provider can do that with tools.
        deferred: Whether the provider loads deferred tools itself.
        notify: Tells the person how the request was changed.

    Attributes:
        sent: The options that were sent last.
        lacked: The options of "with fewer options".
        tried: The changes that were made.
    """

    def __init__(
        self,
        model: BoundModel,
        messages: Sequence[ChatMessage],
        *,
        stream: bool,
        deferred: bool,
        notify: Callable[[str], None],
    ) -> None:
        self.streams = stream and model.wire.stream is not None
        self.sent = NO_OPTIONS
        self.lacked: tuple[str, ...] = ()
        self._empty_before = model.facts.empty_streams
        self._model = model
        self._messages = messages
        self._deferred = deferred
        self._notify = notify
        self.tried: set[Change] = set()
        self._without: tuple[str, ...] = ()
        self._room: int | None = None

    def choose_options(self, *, tools: bool) -> RequestOptions:
        """Choose the options of the next attempt, as `sent`."""
        sent = self._model.sendable(tools=tools).options
        if self._without:
            sent = sent.without(self._without)
        if self._room is not None and sent.max_tokens is not None:
            most = min(sent.max_tokens, self._room)
            sent = sent.model_copy(update={"max_tokens": most})
        self.sent = sent
        return sent

    def changes_after(self, error: Exception, *, heard: bool) -> bool:
        """Change the form so that the model may accept the next attempt.

        Args:
            error: Why the last attempt failed.
            heard: Whether its stream brought anything.

        Returns:
            Whether there is a change.
        """
        status, text = reading.status_of(error), reading.start_of_body(error)
        wire = self._model.wire.name
        if not wire or (self._deferred and refuses_deferral(status, text)):
            return False
        refusal = Refusal(
            status,
            text=text,
            wire=wire,
            model=self._model.model,
            messages=self._messages,
            options=self.sent,
        )
        return (
            self._in_one_piece(error, heard)
            or self._on_a_new_connection(error)
            or self._with_fewer_options(status)
            or self._with_less_room(refusal)
            or self._as_a_rule_says(refusal)
        )

    def _in_one_piece(self, error: Exception, heard: bool) -> bool:
        empty = isinstance(error, EmptyStream) or (not heard and reading.broke_off(error))
        if not self.streams or not empty:
            return False
        self.streams = False
        self.tried.add("in one piece")
        return True

    def _on_a_new_connection(self, error: Exception) -> bool:
        # A server that fails within a stream closes the connection that the next request was sent
        # on.
        if "in one piece" not in self.tried or "on a new connection" in self.tried:
            return False
        if not reading.is_lost_connection(error):
            return False
        self.tried.add("on a new connection")
        return True

    def _with_fewer_options(self, status: int | None) -> bool:
        """Leave out the options that a small server may have failed on.

        Not at the provider's own address.
        """
        model = self._model
        if status not in _SERVER_ERRORS or "with fewer options" in self.tried:
            return False
        if is_at_home(model.client, model.wire_spec.homes):
            return False
        given = self.sent.given()
        lacked = tuple(name for name in SMALL_SERVERS_LACK if name in given)
        if not lacked:
            return False
        self.lacked = self._without = lacked
        self.tried.add("with fewer options")
        return True

    def _with_less_room(self, refusal: Refusal) -> bool:
        room = room_for_answer(refusal)
        if room is None or "with less room" in self.tried:
            return False
        self._room = room
        self.tried.add("with less room")
        self._notify(
            f"The conversation leaves {room:,} tokens for an answer, so max_tokens is lowered to"
            " that for this request."
        )
        return True

    def _as_a_rule_says(self, refusal: Refusal) -> bool:
        notice = adapted(self._model.facts, refusal)
        if notice is None:
            return False
        self._notify(notice)
        return True

    def note_failure(self) -> None:
        """Send all options in the next attempt, because it did not help to leave some out."""
        self._without = ()

    def note_success(self) -> None:
        """Remember the changes that helped.

        A server can also have failed for another reason, so the first attempt proves nothing.
        """
        facts, model = self._model.facts, self._model.model
        if self.streams:
            facts.empty_streams = 0
        elif "in one piece" in self.tried and facts.streams:
            facts.empty_streams = self._empty_before + 1
            if not facts.streams:
                self._notify(
                    f"Model {shown(model)} streamed nothing again: its answers come in one piece from now"
                    " on."
                )
        for name in self._without:
            notice = f"Model {shown(model)} fails with {name}: it is left out from now on."
            facts.left_out[name] = notice
            self._notify(notice)
