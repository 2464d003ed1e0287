"""The foundation of all widgets: states with commands, patches, the pace of updates, and the
messages of a front end.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from queue import Empty
from typing import Any

import pytest
from kit.kernel import LIMIT, Kernel, started_kernel

from casual_mcp_nb import Session
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.notebook.live import Throttle
from casual_mcp_nb.notebook.loop import engine_thread
from casual_mcp_nb.widgets.base import STATIC, State, command, merge_patch


class Counter(State):
    """A state with a number."""

    number = 0

    def snapshot(self) -> dict[str, Any]:
        return {"number": self.number}

    @command
    def add(self, by: int) -> int:
        self.number += by
        self.changed()
        return self.number

    @command
    async def later(self) -> str:
        return threading.current_thread().name

    def secret(self) -> None:
        raise AssertionError("It is no command.")


@pytest.fixture
def counter() -> Iterator[Counter]:
    with Session.from_config({}) as session:
        yield Counter(session)


def merged(target: Any, patch: Any) -> Any:
    """RFC 7396, section 2, as it stands there."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({}, {}),
        ({"a": 1}, {"a": 1}),
        ({"a": 1}, {"a": 2, "b": [1, 2]}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}}),
        ({"a": {"x": 1}}, {"a": 5}),
        ({"a": 5}, {"a": {"x": 1}}),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}),
        ({"a": {"x": {"deep": 1}}, "b": ""}, {"b": False}),
        ({"a": {}}, {}),
        ({}, {"a": {}}),
    ],
)
def test_a_patch_turns_the_old_state_into_the_new_one(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    assert merged(old, merge_patch(old, new)) == new


def test_a_patch_holds_what_changed_and_nothing_else() -> None:
    rows = {f"tool {i}": {"on": True} for i in range(100)}
    patch = merge_patch(
        {"rows": rows, "limit": 5}, {"rows": {**rows, "tool 7": {"on": False}}, "limit": 5}
    )
    assert patch == {"rows": {"tool 7": {"on": False}}}


def test_none_means_absent_in_a_state() -> None:
    assert merge_patch({"a": None}, {"a": None, "b": None}) == {}
    assert merge_patch({"a": 1}, {"a": None}) == {"a": None}
    assert merge_patch({"a": None}, {"a": 1}) == {"a": 1}


def test_only_marked_methods_can_be_called_from_a_front_end(counter: Counter) -> None:
    assert counter.commands == {"add", "later"}


async def test_a_command_runs_with_checked_arguments(counter: Counter) -> None:
    told: list[int] = []
    cancel = counter.watch(lambda: told.append(counter.number))
    assert await counter.call("add", {"by": 2}) == 2
    cancel()
    assert await counter.call("add", {"by": 1}) == 3
    assert told == [2]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("add", {}),
        ("add", {"by": "many"}),
        ("add", {"by": 1, "more": 2}),
        ("secret", {}),
        ("__init__", {}),
        ("snapshot", {}),
    ],
)
async def test_a_wrong_call_is_refused_in_words(
    counter: Counter, name: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises(UsageError):
        await counter.call(name, arguments)
    assert counter.number == 0


def test_a_closed_state_tells_nobody(counter: Counter) -> None:
    told: list[bool] = []
    ended: list[bool] = []
    counter.watch(lambda: told.append(True))
    counter.follow(lambda: ended.append(True))
    counter.close()
    counter.add(1)
    assert told == []
    assert ended == [True]


@pytest.mark.parametrize(("seconds", "more"), [(0.2, True), (600, False)])
def test_frequent_work_is_done_immediately_and_once_more_after_the_interval(
    seconds: float, more: bool
) -> None:
    begun, asked, done = threading.Event(), threading.Event(), threading.Semaphore(0)

    def work() -> None:
        begun.set()
        assert asked.wait(LIMIT)
        done.release()

    pace = Throttle(engine_thread(), work, seconds)
    pace()
    assert begun.wait(LIMIT)
    for _ in range(50):
        pace()
    asked.set()
    assert done.acquire(timeout=LIMIT)
    assert not more or done.acquire(timeout=LIMIT)
    assert not done.acquire(timeout=0.3)


def test_work_that_fails_is_done_again_when_it_is_asked_for() -> None:
    done = threading.Semaphore(0)

    def work() -> None:
        done.release()
        raise ValueError("once")

    pace = Throttle(engine_thread(), work, 0.0)
    for _ in range(3):
        pace()
        assert done.acquire(timeout=LIMIT)


def test_each_front_end_file_belongs_to_the_package() -> None:
    bundles = sorted(STATIC.glob("*.js"))
    assert bundles
    for path in bundles:
        # Names of XML namespaces: nothing is fetched from there.
        assert set(re.findall(r"https?://[\w.]*\w", path.read_text(encoding="utf-8"))) <= {
            "http://www.w3.org"
        }
        assert ".cmn-widget" in path.with_suffix(".css").read_text(encoding="utf-8")


def test_the_rules_of_one_widget_beat_those_that_another_widget_brings_again() -> None:
    for name, root in (("explorer", "cmn-explorer"), ("panel", "cmn-panel"), ("runs", "cmn-runs")):
        css = (STATIC / f"{name}.css").read_text(encoding="utf-8")
        alone = [match[0] for match in re.finditer(rf"(?:^|[{{}},])\.{root}\b[^{{,]*", css)]
        assert alone == []


WIDGET = """
import asyncio
from casual_mcp_nb import Session
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.widgets.base import SessionWidget
from casual_mcp_nb.widgets.base import State, command

class Counter(State):
    number = 0
    said = None
    def snapshot(self):
        return {"number": self.number, "said": self.said}
    @command
    async def add(self, by: int) -> int:
        self.number += by
        self.changed()
        return self.number
    @command
    def say(self, code: int) -> list:
        self.said = f"half {chr(code)}"
        self.changed()
        return [self.said, float("nan")]
    waits = 0
    @command
    async def wait(self):
        self.waits += 1
        self.said = "waiting"
        self.changed()
        self.free = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        await self.free.wait()
    def go_on(self):
        self.loop.call_soon_threadsafe(self.free.set)
    @command
    def fail(self):
        raise UsageError("That went wrong.", hint="Do this.")
    @command
    def leak(self):
        raise ValueError("the key is planted-secret-value")

class Shown(SessionWidget):
    bundle = "manifest_view"

session = Session.from_config({"clients": {"c": {"provider": "openai", "api_key": "planted-secret-value"}}})
counter = Counter(session)
widget = Shown(session, counter=counter)
"""


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with started_kernel() as kernel:
        assert kernel.run(WIDGET).status == "ok"
        yield kernel


def told(kernel: Kernel, comm: str, content: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Collect the kernel's first so many messages to a front end after a message of it."""
    data = {"method": "custom", "content": content}
    kernel.client.shell_channel.send(
        kernel.client.session.msg("comm_msg", {"comm_id": comm, "data": data})
    )
    heard: list[dict[str, Any]] = []
    while len(heard) < count:
        message = kernel.client.get_iopub_msg(timeout=LIMIT)
        if (
            message["msg_type"] == "comm_msg"
            and message["content"]["data"].get("method") == "custom"
        ):
            heard.append(message["content"]["data"]["content"])
    answered(kernel)
    return heard


def updated(kernel: Kernel, code: str, count: int) -> list[dict[str, Any]]:
    """Collect the first so many updates of displays while code runs; the updates belong to the
    cells of the displays.
    """
    kernel.start(code)
    updates: list[dict[str, Any]] = []
    while len(updates) < count:
        message = kernel.client.get_iopub_msg(timeout=LIMIT)
        if message["msg_type"] == "update_display_data":
            updates.append(message["content"]["data"])
    kernel.client.get_shell_msg(timeout=LIMIT)
    return updates


def answered(kernel: Kernel) -> None:
    """Take the answers that nobody waits for."""
    with suppress(Empty):
        while True:
            kernel.client.get_shell_msg(timeout=0)


@pytest.mark.kernel
def test_a_call_from_the_front_end_is_answered_after_what_it_changed(kernel: Kernel) -> None:
    comm = kernel.run("print(widget.model_id)").text().strip()
    for count in (1, 2, 3):
        heard = told(
            kernel, comm, {"id": f"p-{count}", "call": "counter.add", "args": {"by": 3}}, 2
        )
        assert heard == [
            {"patch": {"counter": {"number": 3 * count}}},
            {"id": f"p-{count}", "result": 3 * count},
        ]


@pytest.mark.kernel
def test_a_request_that_is_sent_again_is_done_once(kernel: Kernel) -> None:
    comm = kernel.run("print(widget.model_id)").text().strip()
    request = {"id": "again-1", "call": "counter.add", "args": {"by": 3}}
    _, answer = told(kernel, comm, request, 2)
    assert told(kernel, comm, request, 1) == [answer]
    assert kernel.printed("print(counter.number)") == str(answer["result"])
    # One that is still worked on says so.
    waits = {"id": "again-2", "call": "counter.wait"}
    heard = told(kernel, comm, waits, 1)
    assert heard == [{"patch": {"counter": {"said": "waiting"}}}]
    assert told(kernel, comm, waits, 1) == [{"id": "again-2", "working": True}]
    counted = kernel.printed("counter.go_on()\nprint(counter.waits)")
    assert counted == "1"


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("counter.fail", "That went wrong. Do this."),
        ("counter.add", "Invalid arguments"),
        ("counter.none", "There is no command"),
        ("none.add", "There is no command"),
        ("", "There is no command"),
    ],
)
def test_a_call_that_fails_is_answered_in_words(kernel: Kernel, call: str, words: str) -> None:
    comm = kernel.run("print(widget.model_id)").text().strip()
    [answer] = told(kernel, comm, {"id": 7, "call": call}, 1)
    assert answer["id"] == 7
    assert words in answer["error"]


@pytest.mark.kernel
def test_an_error_of_a_callback_never_carries_a_key(kernel: Kernel) -> None:
    comm = kernel.run("print(widget.model_id)").text().strip()
    [answer] = told(kernel, comm, {"id": 8, "call": "counter.leak"}, 1)
    assert "ValueError" in answer["error"]
    assert "planted" not in answer["error"]


@pytest.mark.kernel
def test_lone_surrogates_and_numbers_that_json_lacks_arrive_replaced(kernel: Kernel) -> None:
    comm = kernel.run("print(widget.model_id)").text().strip()
    heard = told(kernel, comm, {"id": 9, "call": "counter.say", "args": {"code": 0xD83D}}, 2)
    assert heard == [
        {"patch": {"counter": {"said": "half ?"}}},
        {"id": 9, "result": ["half ?", None]},
    ]
    made = kernel.run(
        "counter.said = 'half \\ud83d'\nprint(Shown(session,"
        " counter=counter).get_state('state')['state']['counter']['said'])"
    )
    assert made.text().strip() == "half ?"
    kernel.run("counter.said = None\nwidget._send_patch()")


@pytest.mark.kernel
def test_a_widget_is_shown_with_a_picture_of_its_state_and_freezes_into_it(kernel: Kernel) -> None:
    shown = kernel.run("other = Shown(session, counter=Counter(session))\nother")
    view, picture = shown.outputs
    assert set(view["data"]) == {"text/plain", "application/vnd.jupyter.widget-view+json"}
    assert "cmn-picture-" in picture["data"]["text/html"]
    updates = updated(kernel, "other.freeze()\nother.freeze()", 2)
    assert "application/vnd.jupyter.widget-view+json" not in updates[0]
    assert "<div" in updates[0]["text/html"]
    assert updates[1] == {"text/plain": "", "text/html": ""}
    after = kernel.run("other")
    assert "application/vnd.jupyter.widget-view+json" not in after.outputs[0]["data"]


@pytest.mark.kernel
def test_a_new_page_is_told_what_the_others_have_been_told(kernel: Kernel) -> None:
    kernel.run("counter.number = 41\nwidget._send_patch()")
    assert (
        kernel.run("print(widget.get_state('state')['state'])").text().strip()
        == "{'counter': {'number': 41}}"
    )


@pytest.mark.kernel
def test_a_widget_freezes_when_its_session_closes(kernel: Kernel) -> None:
    kernel.run(
        "second = Session.from_config({'clients': {}})\nlast = Shown(second,"
        " counter=Counter(second))\nlast"
    )
    assert "<div" in updated(kernel, "second.close()", 2)[0]["text/html"]
    assert kernel.run("print(last.comm)").text().strip() == "None"
    [late] = kernel.run("Shown(second, counter=Counter(second))").outputs
    assert set(late["data"]) == {"text/plain", "text/markdown", "text/html"}


@pytest.mark.kernel
def test_a_cell_that_runs_again_closes_the_widget_that_it_showed_before(kernel: Kernel) -> None:
    kernel.run("made = []")
    show = "made.append(Shown(session, counter=Counter(session)))\nmade[-1]"
    for cell in ("first", "first", "second"):
        run_as(kernel, show, cell)
    open_ones = kernel.run("print([widget.comm is not None for widget in made])").text().strip()
    assert open_ones == "[False, True, True]"


def run_as(kernel: Kernel, code: str, cell: str) -> None:
    """Run code in the way of JupyterLab, which tells the id of the cell."""
    message = kernel.client.session.msg(
        "execute_request", {"code": code, "silent": False}, metadata={"cellId": cell}
    )
    kernel.client.shell_channel.send(message)
    assert kernel.wait(message["header"]["msg_id"]).status == "ok"
