"""`%%mcp_config` and the file that is there already."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from kit.kernel import Kernel, started_kernel

pytestmark = [pytest.mark.kernel, pytest.mark.defect("A6")]

MATH = '{"servers": {"math": {"bundled": "math", "transport": "in-process"}}}'
TIME = '{"servers": {"time": {"bundled": "time", "transport": "in-process"}}} '


@pytest.fixture(scope="module")
def kernel() -> Kernel:  # type: ignore[misc]
    with started_kernel() as kernel:
        assert kernel.run("%load_ext casual_mcp_nb").status == "ok"
        yield kernel


def test_a_file_that_somebody_else_wrote_is_not_overwritten_unless_it_is_said(
    kernel: Kernel, tmp_path: Path
) -> None:
    path = tmp_path / "casual_mcp_config.json"
    path.write_text(MATH)
    path.chmod(0o600)
    refused = kernel.run(f"%cd -q {tmp_path}\n").status == "ok" and kernel.run(
        f"%%mcp_config\n{TIME}"
    )
    assert refused
    assert refused.status == "error"
    assert "--overwrite" in refused.text()
    assert path.read_text() == MATH
    replaced = kernel.run(f"%%mcp_config --overwrite\n{TIME}")
    assert replaced.status == "ok", replaced.text()
    assert "time" in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_cell_run_again_after_an_edit_replaces_its_output_file(
    kernel: Kernel, tmp_path: Path
) -> None:
    path = tmp_path / "mine.json"
    assert kernel.run(f"%%mcp_config {path}\n{MATH}").status == "ok"
    assert kernel.run(f"%%mcp_config {path}\n{MATH}").status == "ok"
    assert kernel.run(f"%%mcp_config {path}\n{TIME}").status == "ok"
    assert "time" in path.read_text()
    path.write_text(MATH.replace("math", "text"))
    assert kernel.run(f"%%mcp_config {path}\n{TIME}").status == "error"
    assert "text" in path.read_text()


def test_a_file_of_the_same_content_is_taken_as_it_is(kernel: Kernel, tmp_path: Path) -> None:
    path = tmp_path / "same.json"
    path.write_text(f"{MATH}\n")
    before = path.stat().st_mtime_ns
    assert kernel.run(f"%%mcp_config {path}\n{MATH}").status == "ok"
    assert path.stat().st_mtime_ns == before


def test_a_file_that_is_not_text_is_not_overwritten(kernel: Kernel, tmp_path: Path) -> None:
    path = tmp_path / "binary.json"
    path.write_bytes(b"\xff\xfe\x00")
    assert kernel.run(f"%%mcp_config {path}\n{MATH}").status == "error"
    assert path.read_bytes() == b"\xff\xfe\x00"
