"""A toolset saved into a config file that people wrote by hand."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from casual_mcp_nb.base.config import ExcludeSpec, ToolSetConfig
from casual_mcp_nb.config.loader import load_config
from casual_mcp_nb.config.saving import delete_tool_set, save_tool_set, saved_names
from casual_mcp_nb.errors import ConfigError, ToolSetError, UsageError

BY_HAND = """{
    "$schema": "https://example.org/schema.json",
    "servers": {
        "math": {"bundled": "math",   "call_timeout": 1.50e1},
        "files": {"bundled": "files", "env": {"TOKEN": "${FILES_TOKEN:-none}"}}
    },
    "models": {}, "clients": { }
}
"""
SERVERS = ("math", "files")
SMALL = ToolSetConfig(
    description="Sums", servers={"math": True, "files": ("read_file", "list_directory")}
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "casual_mcp_config.json"
    path.write_text(BY_HAND, encoding="utf-8")
    return path


def added(before: str, after: str) -> str:
    """Find the new part of `after`, where all of `before` is still there around it."""
    same = next(
        (at for at, (old, new) in enumerate(zip(before, after, strict=False)) if old != new),
        len(before),
    )
    suffix = len(before) - same
    assert after[len(after) - suffix :] == before[same:]
    return after[same : len(after) - suffix]


def test_the_rest_of_the_file_stays_to_the_byte(path: Path) -> None:
    save_tool_set(path, "sums", SMALL, SERVERS)
    new = added(BY_HAND, path.read_text(encoding="utf-8"))
    assert (
        new
        == ',\n    "tool_sets": {\n        "sums": {\n            "description": "Sums",\n         '
        '   "servers": {\n                "math": true,\n                "files": [\n           '
        '         "read_file",\n                    "list_directory"\n                ]\n       '
        "     }\n        }\n    }"
    )
    assert load_config(path).tool_sets == {"sums": SMALL}


OF_OTHER_FORMATS = {
    "casual_mcp_config.yaml": (
        "servers:\n  math: {bundled: math}\ntool_sets:\n  old: {servers: {math: true}}\n"
    ),
    "casual_mcp_config.yml": (
        "servers:\n  math:\n    bundled: math\ntool_sets:\n  old:\n    servers:\n      math: true\n"
    ),
    "casual_mcp_config.toml": (
        '[servers.math]\nbundled = "math"\n[tool_sets.old.servers]\nmath = true\n'
    ),
}


@pytest.mark.parametrize(("name", "text"), OF_OTHER_FORMATS.items(), ids=OF_OTHER_FORMATS)
def test_a_file_that_is_not_json_is_left_alone_with_the_reason(
    tmp_path: Path, name: str, text: str
) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    for change in (
        lambda: save_tool_set(path, "sums", SMALL, SERVERS),
        lambda: delete_tool_set(path, "old"),
    ):
        with pytest.raises(ConfigError) as caught:
            change()
        assert caught.value.hint
        assert path.read_text(encoding="utf-8") == text


def test_a_second_toolset_joins_the_first(path: Path) -> None:
    save_tool_set(path, "sums", SMALL, SERVERS)
    before = path.read_text(encoding="utf-8")
    reading = ToolSetConfig(servers={"files": ExcludeSpec(exclude=("write_file",)), "math": False})
    save_tool_set(path, "reading", reading, SERVERS)
    assert added(before, path.read_text(encoding="utf-8")).lstrip(",\n ").startswith('"reading": {')
    assert list(load_config(path).tool_sets) == ["sums", "reading"]
    assert load_config(path).tool_sets["reading"].servers == {
        "files": ExcludeSpec(exclude=("write_file",)),
        "math": False,
    }
    assert saved_names(path) == {"sums", "reading"}


def test_another_toolset_of_the_name_is_replaced_only_when_that_is_wanted(path: Path) -> None:
    save_tool_set(path, "sums", SMALL, SERVERS)
    before = path.read_text(encoding="utf-8")
    other = ToolSetConfig(servers={"math": ("add",)})
    with pytest.raises(UsageError, match=r"config\.json' .*'sums'.*overwrite=True"):
        save_tool_set(path, "sums", other, SERVERS)
    assert path.read_text(encoding="utf-8") == before
    save_tool_set(path, "sums", other, SERVERS, overwrite=True)
    assert load_config(path).tool_sets == {"sums": other}
    assert path.read_text(encoding="utf-8").startswith(BY_HAND[:-20])


def test_saving_an_unchanged_toolset_writes_nothing(path: Path) -> None:
    save_tool_set(path, "sums", SMALL, SERVERS)
    before = path.stat()
    save_tool_set(path, "sums", SMALL, SERVERS)
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == (before.st_mtime_ns, before.st_ino)


@pytest.mark.parametrize(
    "content",
    [
        '{"servers": {"math": {"bundled": "math"}, "files": {"bundled": "files"}}}',
        (
            '{"servers": {"math": {"bundled": "math"}, "files": {"bundled": "files"}},'
            ' "tool_sets": {}}'
        ),
        '{\n\t"mcpServers": {"math": {"bundled": "math"}, "files": {"bundled": "files"}}\n}',
        (
            '{\r\n  "servers": {"math": {"bundled": "math"}, "files": {"bundled": "files"}},\r\n '
            ' "tool_sets": {\r\n  }\r\n}\r\n'
        ),
    ],
    ids=[
        "in one line",
        "an empty object",
        "of another host, with tabs",
        "with line ends of Windows",
    ],
)
def test_files_of_every_shape_take_a_toolset(tmp_path: Path, content: str) -> None:
    path = tmp_path / "mcp.json"
    path.write_bytes(content.encode())
    save_tool_set(path, "sums", SMALL, SERVERS)
    text = path.read_bytes().decode()
    assert load_config(path).tool_sets == {"sums": SMALL}
    assert text.count("\n") == text.count("\r\n") or "\r" not in content
    assert ("\n\t\t" in text) is ("\t" in content)


COMMENTED = """// what this computer has
{
  "servers": {
    "math": {"bundled": "math"}, // sums
    "files": {"bundled": "files"},
  },
  "tool_sets": {
    /* none
       yet */
  }, // the end
}
"""


def test_comments_and_the_order_of_keys_stay(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(COMMENTED)
    for name in ("sums", "more"):
        save_tool_set(path, name, SMALL, SERVERS)
    save_tool_set(path, "sums", ToolSetConfig(servers={"files": True}), SERVERS, overwrite=True)
    text = path.read_text()
    comments = ("// what this computer has", "// sums", "/* none\n       yet */", "// the end")
    assert all(text.count(comment) == 1 for comment in comments)
    places = [text.index(f'"{key}"') for key in ("servers", "math", "tool_sets", "sums", "more")]
    assert places == sorted(places)
    assert load_config(path).tool_sets == {
        "sums": ToolSetConfig(servers={"files": True}),
        "more": SMALL,
    }


def test_byte_order_mark_letters_and_permissions_stay(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    servers = '{\n  "servers": {"math": {"bundled": "math"}, "größe": {"bundled": "units"}}\n}'
    path.write_bytes(b"\xef\xbb\xbf" + servers.encode())
    path.chmod(0o600)
    save_tool_set(path, "größen", ToolSetConfig(servers={"größe": True}), ["größe"])
    content = path.read_bytes()
    assert content.startswith(b"\xef\xbb\xbf{")
    assert content.count("größe".encode()) == 3
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_link_is_followed_and_stays_a_link(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(path)
    save_tool_set(link, "sums", SMALL, SERVERS)
    assert link.is_symlink()
    assert load_config(path).tool_sets == {"sums": SMALL}
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "casual_mcp_config.json",
        "link.json",
    ]


@pytest.mark.parametrize(
    "content",
    ["", '{"servers": ', "[]", '{"tool_sets": 3}', '{"a": 1, "tool_sets": {"x": {}, "x": {}}}'],
)
def test_a_file_that_has_become_something_else_is_left_alone(path: Path, content: str) -> None:
    path.write_text(content)
    with pytest.raises(ConfigError, match="casual_mcp_config"):
        save_tool_set(path, "sums", SMALL, SERVERS)
    assert path.read_text() == content
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_toolset_may_name_a_server_that_only_a_process_adds(path: Path) -> None:
    save_tool_set(
        path, "sums", ToolSetConfig(servers={"notebook": True, "added": True}), [*SERVERS, "added"]
    )
    assert load_config(path).tool_sets["sums"].servers == {"notebook": True, "added": True}


@pytest.mark.defect("H2")
def test_a_server_that_does_not_exist_is_refused_and_the_file_left_alone(path: Path) -> None:
    with pytest.raises(ToolSetError, match="Did you mean 'math'"):
        save_tool_set(path, "sums", ToolSetConfig(servers={"maths": True}), SERVERS)
    assert path.read_text(encoding="utf-8") == BY_HAND


@pytest.mark.parametrize("name", ["", "  "])
def test_a_toolset_without_a_name_is_refused(path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="needs a name"):
        save_tool_set(path, name, SMALL, SERVERS)


def test_a_file_that_is_gone_is_an_error_and_not_made_anew(path: Path) -> None:
    path.unlink()
    with pytest.raises(ConfigError, match="no such file"):
        save_tool_set(path, "sums", SMALL, SERVERS)
    assert not path.exists()


def test_names_of_every_kind_come_back(path: Path) -> None:
    for name in ('"quoted"\\', "a\nb", "名前", "{}", "tool_sets"):
        save_tool_set(path, name, SMALL, SERVERS)
        assert (
            json.loads(path.read_text(encoding="utf-8"))["tool_sets"][name]["description"] == "Sums"
        )
    with pytest.raises(ConfigError, match="valid Unicode"):
        save_tool_set(path, "\ud800", SMALL, SERVERS)
    assert len(load_config(path).tool_sets) == 5


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from casual_mcp_nb.config.saving import save_tool_set
from casual_mcp_nb.errors import ConfigError
from casual_mcp_nb.base.config import ToolSetConfig
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
# What is imported from here on would be cached cut off, and no process could read it.
sys.dont_write_bytecode = True
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    save_tool_set(Path(sys.argv[1]), "sums", ToolSetConfig(servers={"math": True}), ["math"])
except ConfigError as error:
    print(error)
"""


@pytest.mark.fault(95)
@pytest.mark.skipif(sys.platform == "win32", reason="there are no limits of file sizes")
def test_a_disk_that_is_full_leaves_the_old_file_whole(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert os.strerror(errno.EFBIG) in done.stdout
    assert "unchanged" in done.stdout
    assert path.read_text(encoding="utf-8") == BY_HAND
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_of_saves_at_the_same_time_none_is_lost_unnoticed(path: Path) -> None:
    def save(number: int) -> bool:
        try:
            save_tool_set(path, f"set {number}", SMALL, SERVERS)
        except ConfigError as error:
            return "Save again." not in str(error)
        return True

    with ThreadPoolExecutor(8) as threads:
        saved = list(threads.map(save, range(40)))
    assert set(load_config(path).tool_sets) <= {
        f"set {number}" for number, done in enumerate(saved) if done
    }
    assert load_config(path).tool_sets


ONE, TWO = '"one": {"servers": {"math": true}}', '"two": {"servers": {}}'


@pytest.mark.parametrize(
    ("sets", "name", "expected"),
    [
        (f"{{{ONE}}}", "one", "{}"),
        (f"{{{ONE},}}", "one", "{}"),
        (f"{{{ONE}, {TWO}}}", "one", f"{{ {TWO}}}"),
        (f"{{{ONE}, {TWO}}}", "two", f"{{{ONE} }}"),
        (
            f"{{\r\n  // a\r\n  {ONE}, // b\r\n  {TWO}\r\n}}",
            "two",
            f"{{\r\n  // a\r\n  {ONE} // b\r\n}}",
        ),
        (f"{{\n  {ONE},\n  {TWO}, // c\n}}", "one", f"{{\n  {TWO}, // c\n}}"),
        (f"{{\n  {ONE},\n  {TWO},\n}}", "two", f"{{\n  {ONE},\n}}"),
    ],
)
def test_a_deleted_toolset_leaves_the_rest_as_it_is(
    sets: str, name: str, expected: str, tmp_path: Path
) -> None:
    path = tmp_path / "config.json"
    around = '{{ /* mine */ "servers": {{"math": {{"bundled": "math"}}}}, "tool_sets": {} }}'
    path.write_bytes(around.format(sets).encode())
    delete_tool_set(path, name)
    assert path.read_bytes().decode() == around.format(expected)
    assert name not in load_config(path).tool_sets
