"""The state and commands of the chat panel, without a front end."""

from __future__ import annotations

import gc
import json
import sys
import threading
import weakref

import pytest
from kit.flipping import DESTRUCTIVE, READ_ONLY, flipping, tool
from kit.kernel import OLDER, started_kernel
from kit.lean import lean
from kit.told import CONFIG, Told
from kit.waiting import wait_until

from casual_mcp_nb import Session
from casual_mcp_nb.base.config import ToolSetConfig
from casual_mcp_nb.errors import UnknownNameError, UsageError
from casual_mcp_nb.notebook.limits import SessionLimits
from casual_mcp_nb.notebook.questions import ApprovalQuestion
from casual_mcp_nb.notebook.step_mode import StepQuestion
from casual_mcp_nb.providers.scripted import call, scripted_model
from casual_mcp_nb.widgets import limits as limits_module
from casual_mcp_nb.widgets.conversation import ConversationState
from casual_mcp_nb.widgets.limits import LimitsState
from casual_mcp_nb.widgets.tokens import TokenMeter, TokensState

EVIL = "<script>document.body.dataset.pwned=1</script><img src=x onerror=alert(1)>\u202e"
MUTE = ["-c", "import sys; sys.stdin.read()"]
ADD = call("math__add", a=1, b=2)


def test_it_begins_with_nothing_said_and_the_choices_of_the_config(told: Told) -> None:
    shown = ConversationState(told.session).snapshot()
    assert (shown["turns"], shown["questions"], shown["busy"], shown["earlier"]) == (
        {},
        {},
        False,
        0,
    )
    assert ([name for name, _ in shown["models"]], shown["model"]) == (["one", "two"], "one")
    assert all("not an LLM" in label for _, label in shown["models"])
    assert shown["examples"] == ["What is 17 * 23?"]
    assert (shown["tool_sets"], shown["tool_set"], shown["custom"]) == (["numbers"], None, False)


def test_what_is_sent_becomes_a_turn_with_its_html(told: Told) -> None:
    told.play("# Hello\n\n**there**")
    told.send("Say hello")
    (row,) = told.idle()["turns"].values()
    assert (row["number"], row["prompt"], row["status"]) == (1, "Say hello", "done")
    assert "<strong>there</strong>" in row["html"]
    assert "<style>" not in row["html"]
    assert told.shown()["said"] == "Turn 1 is done."


def test_a_turn_of_a_cell_shows_too_and_keeps_its_key_while_it_moves(told: Told) -> None:
    other = ConversationState(told.session)
    told.session.chat("from a cell", model=scripted_model("ok"))
    told.play("ok")
    told.send("from the panel")
    mine, theirs = told.idle()["turns"], other.snapshot()["turns"]
    assert [row["prompt"] for row in mine.values()] == [row["prompt"] for row in theirs.values()]
    assert told.shown()["turns"].keys() == mine.keys()


def test_progress_and_the_passing_time_show_while_a_call_runs_and_stop_ends_it(told: Told) -> None:
    changes = threading.Event()
    told.state.watch(changes.set)
    told.play(call("box__work"), "never")
    told.send("Work")
    wait_until(
        lambda: "3 of 10" in next(iter(told.shown()["turns"].values()))["html"], "progress shows"
    )
    assert told.shown()["doing"] == "Step 1: running box:work …"
    changes.clear()
    assert changes.wait(3), "it is drawn again although nothing happens"
    told.do("stop")
    (row,) = told.idle()["turns"].values()
    assert row["status"] == "stopped"
    assert told.shown()["said"] == "Turn 1 is stopped."


def test_what_keeps_a_turn_from_beginning_is_told_to_whoever_sent_it(told: Told) -> None:
    told.state = ConversationState(told.session, tool_set="letters")
    with pytest.raises(UnknownNameError, match="letters"):
        told.send("x")
    with pytest.raises(UsageError, match="nothing to send"):
        told.send("  \n")
    assert told.shown()["turns"] == {}
    assert told.shown()["pending"] is None


def test_a_second_message_is_refused_while_a_turn_runs_and_so_are_clear_and_undo(
    told: Told,
) -> None:
    told.play(ADD, "3")
    told.send("x")
    question = told.asks(ApprovalQuestion)
    for name, arguments in [("send", {"prompt": "y"}), ("clear", {}), ("undo", {})]:
        with pytest.raises(UsageError, match=r"running|waits for your answer"):
            told.do(name, **arguments)
    told.do("answer", question=question, answer="deny")
    assert len(told.idle()["turns"]) == 1


def test_an_approval_shows_server_tool_claims_and_the_complete_arguments(told: Told) -> None:
    told.play(call("math__add", a=1, b=[EVIL, "x" * 30_000]), "3")
    told.send("x")
    told.asks(ApprovalQuestion)
    (row,) = told.shown()["questions"].values()
    assert (row["kind"], row["server"], row["tool"], row["policy"]) == (
        "approval",
        "math",
        "add",
        "always",
    )
    assert json.loads(row["arguments"])["b"] == [EVIL, "x" * 30_000]
    assert "\u202e" not in row["arguments"]
    assert row["claims"] == ["read-only", "idempotent"]
    told.session.stop()


def test_a_call_that_waits_for_approval_says_so_in_the_transcript(told: Told) -> None:
    told.play(ADD, "3")
    told.send("x")
    question = told.asks(ApprovalQuestion)
    wait_until(
        lambda: "waiting for you" in next(iter(told.shown()["turns"].values()))["html"],
        "the transcript says so",
    )
    told.do("answer", question=question, answer="approve")
    (row,) = told.idle()["turns"].values()
    assert "waiting for you" not in row["html"]


@pytest.mark.parametrize(
    ("answer", "status"),
    [("approve", "ok"), ("approve_for_conversation", "ok"), ("deny", "denied")],
)
def test_each_answer_to_an_approval_does_what_it_says(told: Told, answer: str, status: str) -> None:
    told.play(ADD, "3")
    told.send("x")
    told.do("answer", question=told.asks(ApprovalQuestion), answer=answer, values={"reason": "no"})
    told.idle()
    assert told.session.turns[0].tool_calls[0].status == status
    if answer == "approve_for_conversation":
        told.play(ADD, "3")
        told.send("again")
        told.idle()
        assert told.session.turns[1].tool_calls[0].status == "ok"


@pytest.mark.defect("A3", "A4")
def test_a_panel_offers_the_whole_server_first_and_shows_what_has_changed() -> None:
    tools = [tool("pay"), tool("wipe", DESTRUCTIVE)]
    server = flipping(tools, [tool("pay"), tool("wipe", READ_ONLY)])
    with Session.from_config({"servers": {"shop": server}}) as session:
        session.questions.panel_opened()
        told = Told(session)
        told.play(call("shop__pay"), call("shop__turn_1"), "ok")
        told.send("x")
        question = told.asks(ApprovalQuestion)
        row = told.shown()["questions"][question]
        assert row["choices"][0][0] == "approve_for_server"
        assert row["difference"] == ""
        told.do("answer", question=question, answer="approve_for_server")
        told.idle()
        told.play(call("shop__pay"), call("shop__wipe"), "ok")
        told.send("y")
        question = told.asks(ApprovalQuestion)
        row = told.shown()["questions"][question]
        assert (row["tool"], row["choices"][0][0]) == ("wipe", "approve")
        assert "destructive" in row["difference"]
        with pytest.raises(UsageError, match="not an answer"):
            told.do("answer", question=question, answer="approve_for_server")
        told.do("answer", question=question, answer="deny")
        told.idle()
        assert [made.status for made in session.turns[1].tool_calls] == ["ok", "denied"]


def test_an_answer_that_does_not_fit_or_comes_too_late_is_refused(told: Told) -> None:
    told.play(ADD, "3")
    told.send("x")
    question = told.asks(ApprovalQuestion)
    with pytest.raises(UsageError, match="not an answer"):
        told.do("answer", question=question, answer="send")
    told.do("answer", question=question, answer="deny")
    told.idle()
    with pytest.raises(UsageError, match="no longer open"):
        told.do("answer", question=question, answer="approve")


def test_a_form_is_sent_with_its_values_and_a_mistake_leaves_it_open(told: Told) -> None:
    told.play(call("travel__book"), "done")
    told.send("x")
    wait_until(lambda: len(told.session.questions), "the server asks")
    ((question, row),) = told.shown()["questions"].items()
    assert (row["kind"], row["server"], row["message"]) == ("form", "travel", "Where to?")
    assert [field["name"] for field in row["fields"]] == [
        "city",
        "nights",
        "window",
        "class",
        "meals",
    ]
    with pytest.raises(UsageError, match="'City' must be"):
        told.do("answer", question=question, answer="send", values={"city": ""})
    told.do(
        "answer",
        question=question,
        answer="send",
        values={"city": "Oslo", "nights": "2", "window": False, "class": "second"},
    )
    told.idle()
    assert "accept {'city': 'Oslo', 'nights': 2" in told.session.turns[0].tool_calls[0].result


def test_the_step_mode_pauses_shows_what_can_be_edited_and_goes_on(told: Told) -> None:
    told.do("set_step_mode", on=True)
    assert told.session.consent.step_mode
    told.play("ok")
    told.send("x")
    question = told.asks(StepQuestion)
    row = told.shown()["questions"][question]
    assert row["texts"] == [{"key": "", "label": "your message", "text": "x"}]
    told.do("answer", question=question, answer="edit", values={"": "y"})
    assert [(row["prompt"], row["before"]) for row in told.idle()["turns"].values()] == [("y", "x")]


def test_what_a_step_sent_is_shown_when_it_is_asked_for(told: Told) -> None:
    told.play(call("no_tool"), "ok")
    told.send(EVIL)
    ((turn, row),) = told.idle()["turns"].items()
    assert row["steps"] == 2
    html = told.do("request", turn=turn, step=2)
    assert "no_tool" in html
    assert "<script>" not in html
    for wrong in ({"turn": turn, "step": 3}, {"turn": turn, "step": 0}, {"turn": "t99", "step": 1}):
        with pytest.raises(UsageError, match=r"no step|no longer part"):
            told.do("request", **wrong)


def test_what_was_edited_in_a_pause_holds_when_the_turn_runs_to_its_end(told: Told) -> None:
    told.do("set_step_mode", on=True)
    told.play(call("no_tool"), "ok")
    told.send("x")
    told.do("answer", question=told.asks(StepQuestion), answer="run", values={"": "y"})
    (row,) = told.idle()["turns"].values()
    assert (row["prompt"], row["status"]) == ("y", "done")


def test_a_running_turn_stops_before_the_panel_of_a_closed_session_freezes(told: Told) -> None:
    told.play(call("box__work"), "never")
    told.send("Work")
    wait_until(lambda: told.shown()["busy"], "the turn runs")
    seen: list[str] = []
    told.session.observe(closing=lambda: seen.append(told.session.turns[0].status))
    told.session.close()
    assert seen == ["stopped"]


def test_a_turn_is_asked_again_with_another_text_and_those_after_it_go(told: Told) -> None:
    for prompt in ("one", "two", "three"):
        told.play("ok")
        told.send(prompt)
        told.idle()
    first, second, _ = told.shown()["turns"]
    told.play("again")
    told.do("rerun", turn=second, prompt="another")
    assert [row["prompt"] for row in told.idle()["turns"].values()] == ["one", "another"]
    assert first in told.shown()["turns"]
    with pytest.raises(UsageError, match="no longer part"):
        told.do("rerun", turn=second)


def test_undo_gives_the_prompt_back_and_clear_begins_anew(told: Told) -> None:
    told.play("ok")
    told.send("one")
    told.idle()
    assert told.do("undo") == "one"
    with pytest.raises(UsageError, match="no turn to undo"):
        told.do("undo")
    told.play("ok")
    told.send("two")
    told.idle()
    told.do("clear")
    assert told.shown()["turns"] == {}


def test_a_panel_for_one_model_offers_no_other(told: Told) -> None:
    assert (told.shown()["models"], told.shown()["model"]) == (
        [["scripted", "scripted"]],
        "scripted",
    )
    with pytest.raises(UsageError, match="one model"):
        told.do("set_model", name="two")


def test_model_and_toolset_are_chosen_and_a_change_from_code_shows(told: Told) -> None:
    told.state = ConversationState(told.session)
    told.do("set_model", name="two")
    told.do("set_tool_set", name="numbers")
    assert (told.session.model, told.session.selection.tool_set) == ("two", "numbers")
    changed = threading.Event()
    told.state.watch(changed.set)
    told.session.selection.tool_set = ToolSetConfig(description="", servers={"math": True})
    assert changed.wait(1)
    assert (told.shown()["tool_set"], told.shown()["custom"]) == (None, True)
    for name, wrong in [("set_model", "three"), ("set_tool_set", "letters")]:
        with pytest.raises(UnknownNameError):
            told.do(name, name=wrong)
    told.do("set_tool_set")
    assert told.session.selection.tool_set is None


def test_what_servers_and_models_say_is_never_html(told: Told) -> None:
    told.play(call(f"no{EVIL}", text=EVIL), EVIL)
    told.send(EVIL)
    (row,) = told.idle()["turns"].values()
    assert "<script" not in row["html"]
    assert "<img" not in row["html"]
    assert row["prompt"] == EVIL, "it goes in as text"


def test_of_a_long_conversation_the_last_turns_are_shown(told: Told) -> None:
    for number in range(53):
        told.session.chat(f"turn {number}", model=scripted_model("ok"))
    shown = told.shown()
    assert shown["earlier"] == 3
    assert [row["number"] for row in shown["turns"].values()] == list(range(4, 54))


def test_a_closed_state_hears_nothing_more(told: Told) -> None:
    heard: list[None] = []
    told.state.watch(lambda: heard.append(None))
    told.state.close()
    told.session.chat("x", model=scripted_model("ok"))
    assert heard == []


def test_tokens_are_counted_by_step_and_turn_and_say_where_they_come_from(told: Told) -> None:
    tokens = TokensState(told.session)
    assert tokens.snapshot()["all"]["steps"] == 0
    told.session.chat("x", model=scripted_model(call("no_tool"), "done"))
    told.session.chat("y", model=scripted_model("done"))
    shown = tokens.snapshot()
    json.dumps(shown)
    assert list(shown["rows"]) == ["1.1", "1.2", "2.1"]
    row = shown["rows"]["1.2"]
    assert (row["turn"], row["step"], row["origin"]) == (1, 2, "estimated")
    assert sum(row["parts"]) == row["sent"] > 0
    assert shown["turns"]["1"]["steps"] == 2
    assert shown["all"]["sent"] == told.session.stats.sent_tokens
    assert shown["all"]["reused"] == told.session.stats.reused_tokens > 0
    assert len(shown["parts"]) == len(row["parts"])
    told.session.undo()
    assert list(tokens.snapshot()["turns"]) == ["1"]
    tokens.close()


def test_each_spend_limit_shows_with_what_is_used_of_it(told: Told) -> None:
    state, limits = LimitsState(told.session), told.session.limits
    assert state.snapshot() == {"used": []}
    limits.set("day", max_total_tokens=100_000)
    told.session.chat("x", model=scripted_model("done"))
    used = f"{limits[2].tokens:,} of 100,000 tokens today"
    wait_until(lambda: state.snapshot()["used"] == [used], "what the turn took is read")
    limits.set("conversation", max_cost=0.5)
    dollars = "$0.00 of $0.50 in this conversation"
    wait_until(lambda: state.snapshot()["used"] == [dollars, used], "both limits are read")
    limits.clear()
    wait_until(lambda: not state.snapshot()["used"], "no limit is shown")
    state.close()


def test_what_changes_during_a_slow_read_of_the_limits_is_read_after_it(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, release = threading.Event(), threading.Event()
    in_words = limits_module._in_words

    def slow_at_first(limits: SessionLimits) -> list[str]:
        used = in_words(limits)
        if not read.is_set():
            read.set()
            release.wait(30)
        return used

    monkeypatch.setattr(limits_module, "_in_words", slow_at_first)
    state, limits = LimitsState(told.session), told.session.limits
    limits.set("day", max_total_tokens=100_000)
    assert read.wait(30)
    told.session.chat("x", model=scripted_model("done"))
    used = f"{limits[2].tokens:,} of 100,000 tokens today"
    assert state.snapshot()["used"] == []
    release.set()
    wait_until(lambda: state.snapshot()["used"] == [used], "what the turn took is read")
    state.close()


def test_a_closed_panel_lets_go_of_its_session() -> None:
    session = Session.from_config(CONFIG)
    panel = session.panel()
    meter = TokenMeter(session)
    assert panel.shown["conversation"]["turns"] == {}
    assert meter.shown["tokens"]["all"]["steps"] == 0
    assert panel.static()._repr_mimebundle_()["text/html"]
    panel.close()
    meter.close()
    session.close()
    gone = weakref.ref(session)
    del panel, meter, session
    gc.collect()
    wait_until(lambda: gc.collect() is not None and gone() is None, "the session is let go of")


@pytest.mark.slow
@pytest.mark.kernel
def test_the_first_message_shows_immediately_while_provider_libraries_load() -> None:
    code = """
import sys, threading
from casual_mcp_nb import Session
from casual_mcp_nb.widgets import limits as limits_module
from casual_mcp_nb.widgets.conversation import ConversationState
class Watcher:
    def find_spec(self, name, *_):
        if name == "casual_llm":
            shown = state.snapshot()
            loaded.append((shown["pending"], shown["doing"], threading.current_thread() is engine))
            session.parts.engine.run(state.call("stop", {}))
loaded = []
session = Session.from_config({
    "clients": {"offline": {"provider": "offline"}}, "models": {"planner": {"client": "offline", "model": "planner"}}
})
state = ConversationState(session)
engine = next(thread for thread in threading.enumerate() if "engine" in thread.name)
sys.meta_path.insert(0, Watcher())
try:
    session.parts.engine.run(state.call("send", {"prompt": "What is 1 + 1?"}))
except Exception as error:
    loaded.append(type(error).__name__)
print(loaded, state.snapshot()["turns"], state.snapshot()["pending"])
session.close()
"""
    with started_kernel() as kernel:
        shown = "('What is 1 + 1?', \"Loading the model's libraries …\", False)"
        assert kernel.printed(code) == f"[{shown}, 'UsageError'] {{}} None"


def test_a_message_that_waits_for_servers_says_so_and_can_be_stopped() -> None:
    servers = {
        "math": {"bundled": "math", "transport": "in-process"},
        "mute": {"command": sys.executable, "args": MUTE},
    }
    # A `with` would connect them.
    session = Session.from_config({**CONFIG, "servers": servers})
    state = ConversationState(session)
    sending, _ = session.parts.engine.submit(state.call("send", {"prompt": "x"}))
    wait_until(
        lambda: state.snapshot()["doing"] == "Starting servers: 1 of 2 ready …",
        "what it waits for shows",
    )
    assert state.snapshot()["pending"] == "x"
    session.parts.engine.run(state.call("stop", {}))
    with pytest.raises(UsageError, match="Nothing was sent"):
        sending.result(10)
    assert (state.snapshot()["turns"], state.snapshot()["pending"]) == ({}, None)
    session.close()


@pytest.mark.slow
@pytest.mark.kernel
def test_the_panel_asks_for_an_awaited_cell_only_where_its_clicks_arrive_by_then() -> None:
    code = """
from casual_mcp_nb import Session
session = Session.from_config({})
before = session.questions.channel_of_awaited_cells()
panel = session.panel()
unseen = session.questions.channel_of_awaited_cells()
panel.conversation.seen()
seen = session.questions.channel_of_awaited_cells()
panel.close()
print(before, unseen, seen, session.questions.channel_of_awaited_cells())
"""
    with started_kernel() as kernel:
        assert kernel.printed(code) == "input input panel input"
    if OLDER.exists():
        with started_kernel(**lean(OLDER)) as kernel:
            assert kernel.printed(code) == "input input input input"


def test_servers_are_connected_when_a_person_sees_the_panel() -> None:
    session = Session.from_config(CONFIG)
    try:
        told = Told(session)
        assert session.servers["math"].state != "ready"
        told.do("seen")
        wait_until(lambda: session.servers["math"].state == "ready", "the server is connected")
    finally:
        session.close()


def test_the_calls_of_the_session_are_counted_and_listed_the_newest_first(told: Told) -> None:
    state = ConversationState(told.session)
    assert (state.snapshot()["calls"], state.audit()) == (0, [])
    told.session.tools.call("math:add", a=1, b=2)
    told.session.chat("x", model=scripted_model(call(EVIL), "ok"))
    assert state.snapshot()["calls"] == 2
    unknown, made = state.audit()
    assert (made["number"], made["tool"], made["caller"], made["decided_by"], made["status"]) == (
        1,
        "math:add",
        "you",
        "you",
        "ok",
    )
    assert (unknown["number"], unknown["caller"], unknown["decided_by"], unknown["status"]) == (
        2,
        "model",
        "",
        "error",
    )
    assert "\u202e" not in json.dumps(state.audit(), ensure_ascii=False)
