"""Approvals in the cells of a real kernel, with a front end that takes input and with one that does
not.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.flipping import DESTRUCTIVE, READ_ONLY, flipping, tool
from kit.kernel import KERNELS, Kernel, started_kernel

pytestmark = pytest.mark.kernel

SETUP = f"""
from casual_mcp_nb import Session
from casual_mcp_nb.providers.scripted import call, scripted_model
flip = {flipping([tool("pay", DESTRUCTIVE)], [tool("pay", READ_ONLY)])!r}
session = Session.from_config({{"servers": {{"shop": flip, "again": flip}}}})
session.connect()
def pay(*more, server="shop"):
    model = scripted_model(*(call(f"{{server}}__{{name}}") for name in ("pay", *more)), "done")
    turn = session.chat("x", model=model, echo="none")
    print("STATUSES", *[c.status for c in turn.tool_calls], *[n.server for n in turn.notices])
"""


@pytest.fixture(scope="module", params=KERNELS)
def kernel(request: Any) -> Iterator[Kernel]:
    with started_kernel(SETUP, **request.param) as kernel:
        yield kernel


@pytest.mark.slow
@pytest.mark.defect("A3", "A4")
def test_a_changed_annotation_after_two_denials_asks_a_third_time_in_the_cell(
    kernel: Kernel,
) -> None:
    ran, prompts = kernel.typed("pay('pay', 'turn_1')", "n", "")
    assert "STATUSES denied denied ok" in ran.text()
    assert [prompt.splitlines()[0] for prompt in prompts] == ["Allow shop to run pay?"] * 2
    # A letter that this question does not offer is no reason to deny the call: it asks again.
    ran, prompts = kernel.typed("pay()", "s", "n")
    assert "STATUSES denied" in ran.text()
    assert len(prompts) == 2
    assert "destructive. Now: read-only." in " ".join(prompts[1].split())


@pytest.mark.defect("A4")
def test_a_destructive_call_is_denied_in_a_cell_whose_front_end_takes_no_input(
    kernel: Kernel,
) -> None:
    assert "STATUSES denied" in kernel.printed("pay(server='again')")


@pytest.mark.defect("A5", "E3")
def test_a_prompt_that_timed_out_does_not_take_the_answer_to_the_next_one(kernel: Kernel) -> None:
    code = """
session.conversations.new()
for session.questions.time_limit in (0.5, 30.0):
    pay(server="again")
"""
    ran, prompts = kernel.typed(code, None, "y")
    assert len(prompts) == 2
    # A cell would break longer lines inside words.
    assert max(len(line) for line in prompts[0].splitlines()) <= 80
    lines = [line for line in ran.text().splitlines() if line.startswith("STATUSES")]
    assert lines == ["STATUSES denied", "STATUSES ok"]


CONFIG = """
import json, os
from pathlib import Path
os.environ.pop("MCP_TRUST_CONFIGS", None)
folder = Path({folder!r})
os.environ["XDG_CONFIG_HOME"] = str(folder / "user")
file = folder / "casual_mcp_config.json"
def write(*args):
    server = {{**flip, "args": [*flip["args"], *args]}}
    file.write_text(json.dumps({{"servers": {{"shop": server}}}}))
"""
CONNECT = """
session = Session.from_config(file, quiet=True)
print("STATES", *[server.state for server in session.connect().values()])
"""


@pytest.mark.fault(105)
def test_a_cell_asks_before_it_starts_a_config_from_elsewhere_and_after_each_change(
    kernel: Kernel, tmp_path: Path
) -> None:
    kernel.run(CONFIG.format(folder=str(tmp_path)) + "write()")
    ran, (prompt,) = kernel.typed(CONNECT, "")
    assert ran.status == "error"
    assert "TrustRequiredError" in ran.text()
    assert str(tmp_path) in prompt
    assert "server shop (new)" in prompt
    ran, prompts = kernel.typed(CONNECT, "y")
    assert (len(prompts), "STATES ready" in ran.text()) == (1, True)
    ran, prompts = kernel.typed(CONNECT)
    assert (len(prompts), "STATES ready" in ran.text()) == (0, True)
    ran, (prompt,) = kernel.typed("write('--more')" + CONNECT, "f")
    assert "server shop (changed: arguments)" in prompt
    assert "STATES ready" in ran.text()
    # The folder is trusted from now on.
    assert "STATES ready" in kernel.printed("write('--even-more')" + CONNECT)


def test_a_cell_asks_before_anything_is_typed_into_a_config(kernel: Kernel, tmp_path: Path) -> None:
    folder = tmp_path / "typed"
    folder.mkdir()
    kernel.run(CONFIG.format(folder=str(folder)) + "write('${input:harbour}')")
    ran, (prompt,) = kernel.typed(CONNECT, "")
    assert "TrustRequiredError" in ran.text()
    assert "${input:harbour}" in prompt
    ran, prompts = kernel.typed(CONNECT, "y", "Bergen")
    assert (len(prompts), "STATES ready" in ran.text()) == (2, True)
    ran, (prompt,) = kernel.typed(CONNECT, "Oslo")
    assert "harbour" in prompt
    assert "STATES ready" in ran.text()


@pytest.mark.slow
@pytest.mark.fault(105)
def test_a_cell_without_input_gets_advice_and_may_accept_its_config(
    kernel: Kernel, tmp_path: Path
) -> None:
    kernel.run("%load_ext casual_mcp_nb\n" + CONFIG.format(folder=str(tmp_path)) + "write()")
    ran = kernel.run(f"%mcp connect {tmp_path}/casual_mcp_config.json")
    assert ran.status == "error"
    assert "TrustRequiredError" in ran.text()
    assert "server shop" in kernel.run("%mcp trust").text()
    assert kernel.run(f"%mcp connect {tmp_path}/casual_mcp_config.json --trust").status == "ok"
    assert kernel.run("%mcp close").status == "ok"
    # What a cell writes is the person's own.
    written = kernel.run(
        f"%%mcp_config {tmp_path}/own.json\n"
        + '{"servers": {"math": {"bundled": "math", "args": []}}}'
    )
    assert written.status == "ok", written.text()
    assert kernel.run(f"%mcp connect {tmp_path}/own.json").status == "ok"
