"""Waiting for the questions of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from kit.waiting import wait_until

if TYPE_CHECKING:
    from casual_mcp_nb import Session

Q = TypeVar("Q")


def asked(session: Session, kind: type[Q], place: int = 0) -> Q:
    """The open question at a place, waited for; it must be of this kind."""
    wait_until(lambda: len(session.questions) > place, "the session asks")
    question = session.questions[place]
    assert isinstance(question, kind), question
    return question
