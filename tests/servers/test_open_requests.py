"""How many questions of servers are open at a time, and when the person is told of refused ones."""

from __future__ import annotations

from casual_mcp_nb.base.limits import AnswerLimits
from casual_mcp_nb.servers.handlers import OpenRequests

LIMITS = AnswerLimits(per_server=1, in_all=2)


def test_a_server_refused_because_of_others_is_told_of_again_after_its_own_question() -> None:
    requests = OpenRequests()
    with requests.counted("a"):
        with requests.counted("b"):
            assert not requests.room_for("c", LIMITS)
            assert requests.first_refused("c")
            assert not requests.first_refused("c")
        assert requests.room_for("c", LIMITS)
        with requests.counted("c"):
            assert not requests.room_for("c", LIMITS)
            assert requests.first_refused("c")
            assert not requests.first_refused("c")
        assert requests.first_refused("c")
    assert requests.first_refused("c")
