from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
import threading
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from casual_mcp_nb.bundled import build
from casual_mcp_nb.bundled.files_server import MAX_COPY_BYTES, Files, Root, ToolError

_W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_CONTENT_TYPES = (
    '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
    '<Default Extension="rels"'
    ' ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    '<Override PartName="/word/document.xml" '
    'ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>'
)
_RELATIONS = (
    "<Relationships"
    ' xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1"'
    ' Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"'
    ' Target="word/document.xml"/></Relationships>'
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("hello\nworld\n")
    (folder / "sub" / "b.py").write_text("print('Hello')\n")
    return folder


@pytest.fixture
def files(root: Path):
    return build("files", ["--root", str(root)])


@pytest.fixture
def outside(tmp_path: Path, root: Path) -> Path:
    """A secret beside the root, in a folder whose name starts like the root's, with links to it
    from inside.
    """
    folder = tmp_path / "root-secret"
    folder.mkdir()
    (folder / "secret.txt").write_text("TOP SECRET")
    (root / "link.txt").symlink_to(folder / "secret.txt")
    (root / "linked").symlink_to(folder)
    (root / "dangling").symlink_to(folder / "nothing-here")
    return folder


def _docx(path: Path, body: str, prefix: str = "") -> None:
    document = f'{prefix}<w:document xmlns:w="{_W}"><w:body>{body}</w:body></w:document>'
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", document)
        archive.writestr("[Content_Types].xml", _CONTENT_TYPES)
        archive.writestr("_rels/.rels", _RELATIONS)


async def test_a_file_is_read_written_listed_searched_moved_and_deleted(
    call, files, root: Path
) -> None:
    assert (await call(files, "read_file", path="a.txt"))["text"] == "hello\nworld\n"
    assert (await call(files, "write_file", path="sub/new.txt", content="é"))["size"] == 2
    assert (await call(files, "create_directory", path="x/y"))["created"] is True
    listed = await call(files, "list_directory")
    assert [(entry["name"], entry["kind"]) for entry in listed["entries"]] == [
        *[("a.txt", "file"), ("sub", "folder"), ("x", "folder")],
    ]
    assert (await call(files, "search_files", pattern="**/*.py"))["files"] == ["sub/b.py"]
    result = await call(files, "search_text", text="hello", ignore_case=True)
    assert [(match["path"], match["line"]) for match in result["matches"]] == [
        ("a.txt", 1),
        ("sub/b.py", 1),
    ]
    assert (await call(files, "file_info", path="a.txt"))["size"] == 12
    await call(files, "copy_file", source="a.txt", destination="x/c.txt")
    await call(files, "move_file", source="x/c.txt", destination="x/y/d.txt")
    assert (root / "x/y/d.txt").read_text() == "hello\nworld\n"
    await call(files, "delete_file", path="x/y/d.txt")
    await call(files, "delete_file", path="x/y")
    assert not (root / "x/y").exists()


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.py", ["x.py", "src/a.py", "src/deep/b.py", "src/deep/er/c.py"]),
        ("src/*.py", ["src/a.py"]),
        ("./src/*.py", ["src/a.py"]),
        ("./*.py", ["x.py"]),
        ("src/*/*.py", ["src/deep/b.py"]),
        ("*/*", ["src/a.py"]),
        ("src/?eep/*", ["src/deep/b.py"]),
        ("src/**/*.py", ["src/a.py", "src/deep/b.py", "src/deep/er/c.py"]),
        ("src/**", ["src/a.py", "src/deep/b.py", "src/deep/er/c.py"]),
        ("**/*.py", ["x.py", "src/a.py", "src/deep/b.py", "src/deep/er/c.py"]),
        ("**/deep/*.py", ["src/deep/b.py"]),
        ("**/deep/**/*.py", ["src/deep/b.py", "src/deep/er/c.py"]),
        ("**/src/**/er/*", ["src/deep/er/c.py"]),
        ("deep/*.py", []),
        ("rc/*.py", []),
        ("**/" * 60 + "none.py", []),
    ],
)
async def test_a_star_stays_in_its_folder_and_two_go_deeper(
    call, files, root: Path, pattern: str, found: list[str]
) -> None:
    folder = root / "tree"
    for name in ("x.py", "src/a.py", "src/deep/b.py", "src/deep/er/c.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("here")
    result = await call(files, "search_files", path="tree", pattern=pattern)
    assert sorted(result["files"]) == sorted(f"tree/{name}" for name in found)
    lines = await call(files, "search_text", path="tree", text="here", pattern=pattern)
    assert sorted(each["path"] for each in lines["matches"]) == sorted(result["files"])


PATHS = [
    *[
        "../root-secret/secret.txt",
        "sub/../../root-secret/secret.txt",
        "..",
        "",
        "   ",
        "~",
        "~root/x",
        "~/x",
    ],
    *["/etc/passwd", "//etc/passwd", "C:\\x", "C:x", "\\\\host\\share", "..\\x", "a.txt\0", "\0"],
    *["link.txt", "linked", "linked/secret.txt", "linked/none.txt", "dangling"],
]
CALLS = [
    *[("read_file", {}, "path"), ("file_info", {}, "path"), ("list_directory", {}, "path")],
    *[("search_files", {"pattern": "*"}, "path"), ("search_text", {"text": "S"}, "path")],
    *[
        ("write_file", {"content": "x", "overwrite": True}, "path"),
        ("create_directory", {}, "path"),
    ],
    *[("delete_file", {}, "path"), ("copy_file", {"destination": "z"}, "source")],
    *[("copy_file", {"source": "a.txt", "overwrite": True}, "destination")],
    *[("move_file", {"destination": "z"}, "source")],
    *[("move_file", {"source": "a.txt", "overwrite": True}, "destination")],
]


@pytest.mark.fault(92)
@pytest.mark.fault(93)
@pytest.mark.parametrize(("tool", "others", "parameter"), CALLS)
async def test_a_path_that_leads_outside_is_refused_with_one_text(
    refused, files, root: Path, outside: Path, tool: str, others: dict, parameter: str
) -> None:
    answers = {await refused(files, tool, **others, **{parameter: path}) for path in PATHS}

    assert len(answers) == 1
    assert answers.pop().startswith("Path refused.")
    assert os.listdir(outside) == ["secret.txt"]
    assert (outside / "secret.txt").read_text() == "TOP SECRET"
    assert (root / "a.txt").read_text() == "hello\nworld\n"


@pytest.mark.fault(93)
async def test_a_search_does_not_follow_links(call, files, outside: Path) -> None:
    assert (await call(files, "search_text", text="SECRET"))["matches"] == []
    assert (await call(files, "search_files", pattern="secret*"))["files"] == []
    kinds = {
        entry["name"]: entry["kind"] for entry in (await call(files, "list_directory"))["entries"]
    }
    assert kinds["link.txt"] == kinds["linked"] == "link"


@pytest.mark.fault(93)
async def test_a_link_that_stays_inside_is_followed(call, files, root: Path) -> None:
    (root / "inner").symlink_to("sub/b.py")

    assert "Hello" in (await call(files, "read_file", path="inner"))["text"]
    await call(files, "delete_file", path="inner")
    assert (root / "sub/b.py").exists()


@pytest.mark.fault(94)
async def test_binary_and_empty_files_are_named_as_such(call, files, root: Path) -> None:
    (root / "x.bin").write_bytes(bytes(range(256)))
    (root / "empty").touch()

    binary = await call(files, "read_file", path="x.bin")
    assert (binary["kind"], binary["size"], binary["text"]) == ("binary", 256, "")
    empty = await call(files, "read_file", path="empty")
    assert (empty["kind"], empty["note"]) == ("text", "The file is empty.")


@pytest.mark.fault(94)
@pytest.mark.parametrize("head", [b"text first\n" * 1000, b""])
async def test_a_file_of_one_gigabyte_costs_little_memory(
    call, files, root: Path, head: bytes
) -> None:
    with (root / "huge").open("wb") as stream:
        stream.write(head)
        stream.truncate(10**9)
    tracemalloc.start()
    try:
        result = await call(files, "read_file", path="huge")
        assert (await call(files, "search_text", text="nothing"))["matches"] == []
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()

    assert result["size"] == 10**9
    assert result["kind"] == ("text" if head else "binary")
    assert (result["next_offset"] is None) == (not head)


@pytest.mark.fault(94)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
async def test_text_in_another_encoding_is_read_in_parts_without_losing_a_character(
    call, files, root: Path, encoding: str
) -> None:
    text = "Grüße, señor é " * 50
    (root / "t.txt").write_bytes(text.encode(encoding))
    read, offset = "", 0
    while offset is not None:
        part = await call(files, "read_file", path="t.txt", offset=offset, limit=301)
        read, offset = read + part["text"], part["next_offset"]

    assert read == text


@pytest.mark.fault(95)
async def test_an_existing_file_is_only_replaced_when_that_is_allowed(
    call, refused, files, root: Path
) -> None:
    (root / "a.txt").chmod(0o640)

    assert "Set overwrite to true" in await refused(
        files, "write_file", path="a.txt", content="new"
    )
    assert "Set overwrite to true" in await refused(
        files, "copy_file", source="sub/b.py", destination="a.txt"
    )
    assert "Set overwrite to true" in await refused(
        files, "move_file", source="sub/b.py", destination="a.txt"
    )
    assert (root / "a.txt").read_text() == "hello\nworld\n"
    assert (await call(files, "write_file", path="a.txt", content="new", overwrite=True))[
        "created"
    ] is False
    assert (root / "a.txt").read_text() == "new"
    assert (root / "a.txt").stat().st_mode & 0o777 == 0o640


@pytest.mark.fault(95)
@pytest.mark.skipif(sys.platform == "win32", reason="RLIMIT_FSIZE")
async def test_a_write_that_fails_half_way_leaves_the_old_file_whole(
    refused, files, root: Path
) -> None:
    import resource
    import signal

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        text = await refused(files, "write_file", path="a.txt", content="x" * 5000, overwrite=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)

    assert "'a.txt'" in text
    assert os.strerror(errno.EFBIG) in text
    assert (root / "a.txt").read_text() == "hello\nworld\n"
    assert sorted(os.listdir(root)) == ["a.txt", "sub"]


@pytest.mark.defect("H4")
async def test_missing_folders_are_created_unless_refused_and_never_outside(
    call, refused, files, root: Path
) -> None:
    assert "create_directory" in await refused(
        files, "write_file", path="n/e/w.txt", content="a", create_folders=False
    )
    assert not (root / "n").exists()
    result = await call(files, "write_file", path="n/e/w.txt", content="a")
    assert result == {"path": "n/e/w.txt", "size": 1, "created": True}
    assert (root / "n" / "e" / "w.txt").read_text() == "a"
    outside = root.parent / f"{root.name}-outside"
    outside.mkdir()
    (root / "link").symlink_to(outside)
    (root / "dangling").symlink_to(outside / "new")
    for path in (
        "link/x/y.txt",
        "dangling/y.txt",
        "../x/y.txt",
        str(outside / "x" / "y.txt"),
        "n/../../x/y.txt",
    ):
        await refused(files, "write_file", path=path, content="a")
    assert list(outside.iterdir()) == []
    assert "not a folder" in await refused(
        files, "write_file", path="n/e/w.txt/x/y.txt", content="a"
    )


@pytest.mark.defect("H4")
async def test_a_refused_write_creates_no_folder(refused, files, root: Path) -> None:
    await refused(files, "write_file", path="fresh/x.txt", content="x" * 10_000_001)
    assert not (root / "fresh").exists()


async def test_the_text_of_a_word_document_is_read(call, files, root: Path) -> None:
    _docx(
        root / "d.docx",
        "<w:p><w:r><w:t>One</w:t><w:tab/><w:t>two</w:t></w:r></w:p><w:p><w:r><w:t>Three</w:t></w:r></w:p>",
    )

    result = await call(files, "read_file", path="d.docx")
    assert (result["kind"], result["text"]) == ("docx", "One\ttwo\nThree\n")
    _docx(
        root / "t.docx",
        "<w:tbl><w:tr>" + "<w:tc><w:p><w:r><w:t>a</w:t></w:r></w:p></w:tc>" * 2 + "</w:tr></w:tbl>",
    )
    assert (await call(files, "read_file", path="t.docx"))["text"] == "a\ta\n"
    part = await call(files, "read_file", path="d.docx", offset=4, limit=3)
    assert (part["text"], part["next_offset"]) == ("two", 7)


@pytest.mark.parametrize(
    ("name", "fragment"),
    [
        ("bomb", "too large"),
        ("entities", "document type"),
        ("utf16-entities", "document type"),
        ("noise", "damaged"),
        ("broken", "damaged"),
    ],
)
async def test_a_hostile_word_document_is_refused(
    refused, files, root: Path, name: str, fragment: str
) -> None:
    entities = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]>'
    path = root / "d.docx"
    if name == "bomb":
        _docx(path, "<w:p/>" * 9_000_000)
    elif name == "entities":
        _docx(path, "<w:p><w:r><w:t>&b;</w:t></w:r></w:p>", entities)
    elif name == "utf16-entities":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("word/document.xml", f"{entities}<x>&b;</x>".encode("utf-16"))
    elif name == "noise":
        path.write_bytes(b"not a zip file")
    else:
        _docx(path, "<w:p>")

    assert fragment in await refused(files, "read_file", path="d.docx")


@pytest.mark.parametrize(
    ("tool", "arguments", "fragment"),
    [
        ("read_file", {"path": "none.txt"}, "does not exist"),
        ("read_file", {"path": "sub"}, "is a folder"),
        ("read_file", {"path": "pipe"}, "special file"),
        ("read_file", {"path": "x" * 300}, "name too long"),
        ("list_directory", {"path": "a.txt"}, "Not a directory"),
        ("search_files", {"path": "a.txt", "pattern": "*"}, "not a folder"),
        (
            "write_file",
            {"path": "none/x.txt", "content": "", "create_folders": False},
            "create_directory",
        ),
        ("write_file", {"path": "sub", "content": ""}, "is a folder"),
        ("write_file", {"path": "big", "content": "x" * 10_000_001}, "at most 10000000"),
        ("delete_file", {"path": "sub"}, "not empty"),
        ("delete_file", {"path": "."}, "root folder itself"),
        ("move_file", {"source": "sub", "destination": "sub/x"}, "Invalid argument"),
        ("copy_file", {"source": "a.txt", "destination": "a.txt"}, "same file"),
    ],
)
async def test_errors_are_short_and_do_not_name_the_root(
    refused, files, root: Path, tool: str, arguments: dict, fragment: str
) -> None:
    os.mkfifo(root / "pipe")
    text = await refused(files, tool, **arguments)

    assert fragment.lower() in text.lower()
    assert str(root) not in text


@pytest.mark.defect("A12", "H4")
@pytest.mark.fault(93)
@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_a_folder_that_is_exchanged_for_a_link_leads_nowhere(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder in (root / "a", outside):
        folder.mkdir(parents=True)
    (root / "a" / "file.txt").write_text("inside")
    (outside / "file.txt").write_text("SECRET")
    (root / "link").symlink_to(outside)
    files = Files(Root(root))
    done = threading.Event()

    def exchange() -> None:
        while not done.is_set():
            for old, new in (("a", "b"), ("link", "a"), ("a", "link"), ("b", "a")):
                while not done.is_set():
                    try:
                        os.rename(root / old, root / new)
                        break
                    except OSError:
                        # A write has created the folder that is missing for a moment.
                        shutil.rmtree(root / new, ignore_errors=True)

    exchanging = threading.Thread(target=exchange)
    exchanging.start()
    texts = []
    try:
        for _ in range(500):
            for use in (
                lambda: texts.append(files.read_file("a/file.txt")["text"]),
                lambda: texts.append(str(files.search_text("SECRET", "a")["matches"])),
                lambda: files.write_file("a/new.txt", "x", overwrite=True, create_folders=False),
                lambda: files.write_file("a/deep/new.txt", "x", overwrite=True),
                lambda: files.delete_file("a/new.txt"),
            ):
                with contextlib.suppress(ToolError):
                    use()
    finally:
        done.set()
        exchanging.join(30)
    assert "inside" in texts
    assert not any("SECRET" in text for text in texts)
    assert os.listdir(outside) == ["file.txt"]


@pytest.mark.defect("A12")
def test_a_copy_has_a_limit_and_holds_no_other_write(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as stream:
        stream.truncate(MAX_COPY_BYTES + 1)
    files = Files(Root(tmp_path))
    with pytest.raises(ToolError, match="larger than"):
        files.copy_file("large", "copy")
    assert os.listdir(tmp_path) == ["large"]
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ToolError):
        files.read_file("pipe")
    assert files.write_file("note.txt", "x")["created"]
