"""Secrets that are planted, and the search for them in everything that a person, a file or a log
can show.
"""

from __future__ import annotations

import json
import logging
import traceback
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from casual_mcp_nb.errors import UsageError

_FORMS = (
    "_repr_html_",
    "_repr_markdown_",
    "_repr_mimebundle_",
    "_render_traceback_",
    "model_dump_json",
    "model_dump",
)


def planted(name: str) -> str:
    """A secret that occurs nowhere else; `name` is a part of it, so that one that is found says
    where it comes from.
    """
    return f"planted-{name}-{uuid.uuid4().hex}"


class _Collect(logging.Handler):
    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@contextmanager
def every_log() -> Iterator[list[logging.LogRecord]]:
    """Takes the records of all loggers at the finest level, those that do not propagate
    included.
    """
    handler = _Collect(level=1)
    names = [
        name
        for name, logger in logging.root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger)
    ]
    loggers = [logging.getLogger(), *map(logging.getLogger, names)]
    before = [(logger, logger.level) for logger in loggers]
    watched = [logger for logger in loggers if logger is logging.root or not logger.propagate]
    for logger in loggers:
        logger.setLevel(1)
    for logger in watched:
        logger.addHandler(handler)
    try:
        yield handler.records
    finally:
        for logger in watched:
            logger.removeHandler(handler)
        for logger, level in before:
            logger.setLevel(level)


def assert_nowhere(secrets: Iterable[str], *things: Any) -> None:
    """None of the secrets is in any of the things, also not quoted, in JSON, or cut to most of its
    length.

    Args:
        secrets: The planted texts.
        things: Texts, bytes, paths (files and whole folders), log records, exceptions (with causes,
            contexts, notes and rendered tracebacks), containers of those, or any object: its repr,
            str and display forms are searched.
    """
    wanted = {
        form: secret
        for secret in secrets
        for form in (secret, quote(secret, safe=""), secret[: len(secret) * 2 // 3])
    }
    for where, text in _texts(things, "", set()):
        for form, secret in wanted.items():
            at = text.find(form)
            assert at < 0, (
                f"the secret {secret!r} is in {where}: …{text[max(at - 80, 0) : at + len(form)]}"
            )


def _texts(thing: Any, where: str, known: set[int]) -> Iterator[tuple[str, str]]:
    where = where or "the things"
    if isinstance(thing, str | bytes):
        yield where, thing if isinstance(thing, str) else thing.decode("utf-8", "replace")
    elif id(thing) in known:
        return
    elif isinstance(thing, Path):
        for file in (
            [thing]
            if thing.is_file()
            else [path for path in sorted(thing.rglob("*")) if path.is_file()]
        ):
            yield f"{where}: file {file.name}", file.read_bytes().decode("utf-8", "replace")
    elif isinstance(thing, logging.LogRecord):
        yield from _of_record(thing, where, known | {id(thing)})
    elif isinstance(thing, BaseException):
        yield from _of_exception(thing, where, known | {id(thing)})
    elif isinstance(thing, Mapping):
        for key, value in thing.items():
            yield f"{where}: a key", str(key)
            yield from _texts(value, f"{where}[{str(key)[:40]!r}]", known | {id(thing)})
    elif isinstance(thing, Iterable):
        for number, value in enumerate(thing):
            yield from _texts(value, f"{where}[{number}]", known | {id(thing)})
    else:
        yield from _of_object(thing, where, known | {id(thing)})


def _of_record(record: logging.LogRecord, where: str, known: set[int]) -> Iterator[tuple[str, str]]:
    yield f"{where}: log of {record.name}", record.getMessage()
    if record.exc_info and record.exc_info[1]:
        yield from _texts(record.exc_info[1], f"{where}: log of {record.name}", known)


def _of_exception(error: BaseException, where: str, known: set[int]) -> Iterator[tuple[str, str]]:
    name = f"{where}: {type(error).__name__}"
    yield f"{name}: traceback", "".join(traceback.format_exception(error))
    yield from _of_object(error, name, known)
    yield from _texts([str(arg) for arg in error.args], f"{name}: args", known)
    for nested in (error.__cause__, error.__context__, *getattr(error, "exceptions", ())):
        if nested is not None:
            yield from _texts(nested, f"{name}: cause", known)


def _of_object(thing: Any, where: str, known: set[int]) -> Iterator[tuple[str, str]]:
    yield f"{where}: repr", repr(thing)
    yield f"{where}: str", str(thing)
    for form in _FORMS:
        make = None if isinstance(thing, type) else getattr(thing, form, None)
        if callable(make):
            try:
                value = make()
            except UsageError as error:
                # A config with a secret in it is not dumped; the error is one more thing that is
                # shown.
                value = str(error)
            yield (
                f"{where}: {form}",
                value
                if isinstance(value, str)
                else json.dumps(value, default=str, ensure_ascii=False),
            )
