"""Write files whole or not at all. Read files that nobody else could have read or replaced."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

from casual_mcp_nb.base.limits import encodable
from casual_mcp_nb.errors import UsageError, shown


def write_text(
    path: Path, text: str, *, overwrite: bool, hint: str = "To replace it: overwrite=True."
) -> None:
    """Write a file whole or not at all, in UTF-8.

    A UsageError if it exists, unless `overwrite`, or cannot be written.

    Lone surrogates, which UTF-8 cannot hold, are escaped as in JSON.
    """
    try:
        put = partial(_put, path=path, overwrite=overwrite)
        with part_file(path, 0o666 & ~_umask(), put) as file:
            file.write(encodable(text).encode())
    except FileExistsError:
        raise UsageError(f"{shown(path)} already exists.", hint=hint) from None
    except OSError as error:
        raise UsageError(f"{shown(path)} cannot be written: {error.strerror}.") from None


def _put(part: Path, path: Path, overwrite: bool) -> None:
    if overwrite:
        os.replace(part, path)
        return
    try:
        os.link(part, path)
    except FileExistsError:
        raise
    except OSError:
        # Some file systems have no hard links.
        if path.exists():
            raise FileExistsError from None
        os.replace(part, path)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextlib.contextmanager
def part_file(
    path: Path, mode: int, put: Callable[[Path], None] | None = None
) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path`, and move it there once it is completely on disk.

    `put` moves it, if something must be checked first.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        if put is None:
            os.replace(name, path)
        else:
            put(Path(name))
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


class NotPrivateError(ValueError):
    """A file that others can read or replace. The message explains how, and how to repair it."""


def read_private(
    path: Path, limit: int, *, secret: bool = True, within: Path | None = None
) -> bytes:
    """Read the first bytes of a file that only this user can have written, or read if it is
    `secret`.

    Below the folder `within`, by default the file's own, the path may not contain symbolic links. A
    NotPrivateError explains how others can read or replace the file.
    """
    if (problem := why_not_private(path, secret=secret, within=within)) is not None:
        raise NotPrivateError(problem)
    flags = (
        os.O_RDONLY
        | getattr(os, "O_NOFOLLOW", 0)
        | getattr(os, "O_NONBLOCK", 0)
        | getattr(os, "O_BINARY", 0)
    )
    with open(os.open(path, flags), "rb") as file:
        # The open file is the checked one, unless it was replaced since.
        problem = why_not_private(
            path, secret=secret, within=within, status=os.fstat(file.fileno())
        )
        if problem is not None:
            raise NotPrivateError(problem)
        return file.read(limit)


def why_not_private(
    path: Path,
    *,
    secret: bool = True,
    within: Path | None = None,
    status: os.stat_result | None = None,
) -> str | None:
    """Explain how others can read or replace a file, and how to repair it, or return None if they
    cannot.

    See `read_private`. `status` is an open file's status.
    """
    if os.name != "posix":
        return None
    top = within or path.parent
    above = [folder for folder in path.parent.parents if folder.is_relative_to(top)]
    for folder in (path.parent, *above):
        if (problem := _problem(folder, folder.lstat(), stat.S_ISDIR, 0o022, "go-w")) is not None:
            return problem
    for folder in top.resolve().parents:
        mode = folder.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return f"others can replace the files in {shown(folder)}. Run: chmod o-w {folder}"
    return _problem(path, status or path.lstat(), stat.S_ISREG, 0o077 if secret else 0o022, "600")


def _problem(
    path: Path, status: os.stat_result, is_kind: Callable[[int], bool], others: int, repair: str
) -> str | None:
    if stat.S_ISLNK(status.st_mode):
        return (
            f"{shown(path)} is a symbolic link, which is not followed here. Put the file itself"
            " there"
        )
    if not is_kind(status.st_mode) or status.st_uid != os.geteuid():
        return f"{shown(path)} does not belong to this user, or is not a regular file. Delete it"
    if (mode := stat.S_IMODE(status.st_mode)) & others:
        return f"others can use {shown(path)} (its mode is {mode:04o}). Run: chmod {repair} {path}"
    return None


MAX_ACCOUNT_BYTES = 100_000


def accounts_folder() -> Path:
    """Locate the folder for files with credentials, in the user's folder for settings.

    It need not exist.
    """
    from platformdirs import user_config_path

    return user_config_path("casual_mcp_nb", appauthor=False) / "accounts"


def read_account_file(path: Path) -> str:
    """Read a file with credentials, or raise NotPrivateError, with the remedy, if others can read
    or replace it.
    """
    return read_private(path, MAX_ACCOUNT_BYTES, within=accounts_folder()).decode("utf-8")


def account_file_problem(path: Path) -> str | None:
    """Explain how others can read or replace a file with credentials, or None if they cannot, or
    there is no file.
    """
    try:
        return why_not_private(path, within=accounts_folder())
    except OSError:
        return None


def write_account_file(path: Path, text: str) -> None:
    """Write a file with mode 0600 in folders with mode 0700.

    An earlier one is replaced in one step.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for folder in (path.parent, *path.parent.parents):
        if folder.is_relative_to(accounts_folder()) and not folder.is_symlink():
            folder.chmod(0o700)
    with part_file(path, 0o600) as file:
        file.write(text.encode())
    if (problem := account_file_problem(path)) is not None:
        path.unlink(missing_ok=True)
        raise NotPrivateError(f"Not saved: {problem}")
