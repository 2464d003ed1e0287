"""Files that nobody else can have read or replaced: judged by mode, owner, folder and link."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kit.exposed import EXPOSED

from casual_mcp_nb.base.files import NotPrivateError, read_private, why_not_private

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="modes and owners are those of POSIX"),
    pytest.mark.defect("F9"),
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "outer" / "inner" / "accounts" / "token"
    path.parent.mkdir(parents=True, mode=0o700)
    path.touch(0o600)
    path.write_text("secret")
    return path


@pytest.mark.parametrize("exposed", EXPOSED)
def test_a_file_that_others_can_read_or_replace_is_refused(file: Path, exposed: str) -> None:
    assert read_private(file, 100) == b"secret"
    EXPOSED[exposed](file)
    with pytest.raises(NotPrivateError) as raised:
        read_private(file, 100)
    assert "secret" not in str(raised.value)


def test_the_line_that_repairs_it_is_named(file: Path) -> None:
    file.chmod(0o644)
    file.parent.chmod(0o777)
    for _ in range(2):
        problem = why_not_private(file)
        assert problem is not None
        _, mode, path = problem.partition("Run: ")[2].split()
        Path(path).chmod({"go-w": 0o755, "600": 0o600}[mode])
    assert read_private(file, 3) == b"sec"


def test_what_is_not_secret_may_be_read_by_others_but_not_written(file: Path) -> None:
    file.chmod(0o644)
    assert read_private(file, 100, secret=False) == b"secret"
    file.chmod(0o664)
    assert why_not_private(file, secret=False)


def test_only_links_below_a_folder_count(file: Path, tmp_path: Path) -> None:
    (tmp_path / "linked").symlink_to(tmp_path / "outer" / "inner")
    path = tmp_path / "linked" / "accounts" / "token"
    assert why_not_private(path) is None
    assert why_not_private(path, within=tmp_path / "linked") is not None


def test_a_pipe_and_a_missing_file_do_not_hold_the_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(NotPrivateError):
        read_private(tmp_path / "pipe", 100)
    with pytest.raises(FileNotFoundError):
        read_private(tmp_path / "missing", 100)
