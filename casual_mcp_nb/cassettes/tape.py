"""What a session's requests pass: nothing, a recording, or a replay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from casual_mcp_nb.base.mcp import TaskReport
from casual_mcp_nb.cassettes import Plain

if TYPE_CHECKING:
    from casual_mcp_nb.base.content import ToolResult
    from casual_mcp_nb.conversation.event import TurnStarted


class TurnSettings(NamedTuple):
    """How a turn is set up, for a recording.

    Args:
        system: The system prompt.
        after: How many messages come before it.
        selection: Its selection of tools.
        options: Its options, as far as they were given.
        servers: The names of the servers.
    """

    system: str
    after: int
    selection: Mapping[str, Plain]
    options: Mapping[str, Plain]
    servers: Iterable[str]


Model = TypeVar("Model", covariant=True)


class Models(Protocol[Model]):
    """The models of a session, which a tape gets for its turns."""

    async def ready(self, name: Any = None) -> Model:
        """Get a model that is asked itself."""

    async def taped(self, name: Any, tape: Any) -> Model:
        """Get a model whose answers a cassette records, or gives in its place."""


class Tape:
    """The tape of a session without a cassette: it has no answers, and records nothing.

    `Recorder` and `Replayer` override what they do. The engine asks a tape, and never which of the
    three it is. A question that a tape cannot answer returns None, or nothing. The engine then does
    the work itself, and gives the tape the answer, which only a recorder keeps.

    **A replay takes from the cassette** the answers of models, the results of tools, resources,
    prompts, skills and apps, and what the person approved. It also takes what would be another
    thing today: the tools nearest in meaning to a query, the clock and the seed of a program, how
    tasks ended, and the texts of results.

    **A replay does again** everything else, with the code of today: it compiles the view of the
    tools, searches by words, checks arguments, decides by policies, runs programs, notebook
    functions, stubs and the person's own synthetic tools, and shortens results. The texts of these
    calls are those of today.

    **A new feature** has to leave the cassettes of earlier releases playable
    (`tests/cassettes/earlier`). What to think of:

    - Other words in the result of a tool need nothing: the recorded text is sent (`texts_after`).
      Other words in the system prompt, in a message of the user's role or in the definition of a
      server's tool are a mismatch, unless `match_on` leaves that part out. Definitions of this
      package's own tools are never compared.
    - A call that is now made with other arguments than before asks first whether the cassette has
      it as it was (`was_called`).
    - What a turn asks from outside, or what depends on chance or the time, becomes a question here
      and a `Kind`, with how it is read (`interaction.py`). Where an earlier cassette has no answer,
      the replay goes on as that release did. An earlier release skips a kind that it does not know.
    - A request that a session makes without the person, or may leave out, is none that a replay
      must make again (`_NOT_COUNTED` of `replayer.py`).
    """

    replays: bool = False
    """Whether models and servers are the cassette's."""
    strict = False
    """Whether a turn with a request that was not recorded raises its error."""

    async def model(self, models: Models[Model], name: Any) -> Model:
        """Get a model that is ready for calls, or the default one for the name None."""
        return await models.ready(name)

    def begin_turn(self, started: TurnStarted, settings: Callable[[], TurnSettings]) -> None:
        """Record the person's request. The settings are read only for that."""

    def turn_stopped(self, started: TurnStarted) -> None:
        """Record that a turn was stopped: what it would have asked for is unknown."""

    def log(self, server: str, event: Mapping[str, Plain]) -> None:
        """Record a server's message while it runs a call."""

    def texts_after(
        self, messages: Iterable[Mapping[str, Plain]], tools: Iterable[Mapping[str, Plain]]
    ) -> Sequence[str]:
        """List the texts of the results that followed a model's calls, in the calls' order.

        A later release may word results differently, or rank tools in another order. Then the
        model's recorded answers would not fit.

        Args:
            messages: A request's messages and the answer with the calls, as plain values. They are
                read only if there may be such results.
            tools: The request's tools. Results for the same way to call tools are preferred.

        Returns:
            Nothing where that was not recorded, or where a result is more than a text.
        """
        return ()

    def was_called(self, server: str, tool: str, arguments: Mapping[str, Plain]) -> bool:
        """Check whether a tool was called with these arguments: an earlier release may not have put
        them right.
        """
        return False

    def stub_answered(
        self, server: str, tool: str, arguments: Mapping[str, Plain], result: ToolResult
    ) -> None:
        """Record the answer of a stub, or count it as played: a replay may not have the stub."""

    def nearest(self, query: str) -> Mapping[str, float] | None:
        """Find the recorded tools that are nearest in meaning to a query, by wire name.

        Returns:
            None if they are to be computed. A replay embeds nothing.
        """
        return None

    def record_nearest(self, query: str, nearest: Mapping[str, float]) -> None:
        """Record the tools nearest in meaning, unless there are none."""

    def program_start(self, code: str) -> Mapping[str, Plain] | None:
        """Find a program's recorded clock and seed, or None if it takes those of now."""
        return None

    def record_program_start(self, code: str, start: Mapping[str, Plain]) -> None:
        """Record a program's clock and seed, as plain values."""

    def task_reports(self, after: int) -> Sequence[TaskReport] | None:
        """List how tasks had ended of which the model was told after so many messages.

        Returns:
            None if the tasks themselves tell. A replay has no tasks that run.
        """
        return None

    def record_task_reports(self, after: int, reports: Sequence[TaskReport]) -> None:
        """Record how tasks have ended, unless there are none to tell of."""


NO_TAPE = Tape()
