"""Tell a model how the tasks of its calls have ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from casual_mcp_nb.base.mcp import TaskReport
from casual_mcp_nb.cassettes.tape import Tape
from casual_mcp_nb.conversation.event import FINDING, Event
from casual_mcp_nb.servers.tasks import FollowedTask

if TYPE_CHECKING:
    from casual_llm.messages import AssistantToolCall


class TaskDesk(Protocol):
    """Keeps the tasks that a turn starts, and knows which ends of them the model has not read
    yet.
    """

    def keep(
        self,
        task: FollowedTask,
        step: int,
        call_id: str,
        emit: Callable[[Event], None],
        now: Callable[[], float],
    ) -> int:
        """Keep a task, with events about it in the turn, and give it a number."""

    def due(self) -> list[TaskReport]:
        """List the reports on ended tasks that the model has not read yet."""

    def replayed(self, reports: Iterable[TaskReport]) -> Sequence[TaskReport]:
        """Take over how the tasks of a cassette ended, and return the reports for this
        conversation.
        """

    async def settled(self) -> None:
        """Wait until the large results of all tasks that have ended can be read and passed on."""


def due_reports(desk: TaskDesk, tape: Tape, after: int) -> Sequence[TaskReport]:
    """List the reports on ended tasks that the model is to read now.

    In a replay they come from the cassette. Recording them is the caller's part, when it adds them
    to the conversation.

    Args:
        desk: Keeps the tasks.
        tape: The cassette, if there is one.
        after: How many messages come before the reports. A cassette finds them by this number.
    """
    recorded = tape.task_reports(after)
    if recorded is not None:
        return desk.replayed(recorded)
    return desk.due()


def handles_of(reports: Iterable[TaskReport]) -> dict[str, str]:
    """Map the handles of the large results that tasks had to the ids of the tasks' calls."""
    return {report.handle: report.call_id for report in reports if report.handle}


def report_with(
    calls: Sequence[AssistantToolCall], reports: Sequence[TaskReport]
) -> tuple[str, str]:
    """Choose the call to whose result the reports on tasks are added, and join the reports.

    They have no message of their own, since some providers accept only the model's answer behind a
    result. A search's result carries them only if there is no other, because it is rewritten when
    its tools are unloaded.

    Returns:
        The call's id, and the text of all reports.
    """
    text = "\n\n".join(report.text for report in reports)
    for call in reversed(calls):
        if call.function.name not in FINDING:
            return call.id, text
    return calls[-1].id, text
