"""This package's use of libraries beyond their documentation: one place that lists it, with what a
user would lose without it.

CI runs this test and those of `tests/servers` and `tests/providers` with the lowest and with the
newest releases that `pyproject.toml` allows. For each seam that a library lacks, `docs/upstream.md`
has a request.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest
from casual_llm import OllamaClient

import casual_mcp_nb
from casual_mcp_nb.errors import MissingDependencyError
from casual_mcp_nb.providers._clients import builds_requests

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "casual_mcp_nb"


@dataclass(frozen=True)
class Used:
    """Private parts of a library that serve one purpose.

    Args:
        distribution: The library.
        places: Each as module, colon and name; `*` where only an instance has the attribute.
        where: The files here that use them.
        without: What a user would lose.
        request: The heading in `docs/upstream.md` that asks for a public way, or empty.
        parameters: The parameters that are relied on, of every place that is listed.
    """

    distribution: str
    places: tuple[str, ...]
    where: tuple[str, ...]
    without: str
    request: str = ""
    parameters: tuple[str, ...] = ()

    @property
    def names(self) -> set[str]:
        return {re.split("[.:*]", place)[-1] for place in self.places}


PRIVATE = [
    Used(
        "mcp",
        ("mcp.client.auth.oauth2:OAuthClientProvider._perform_authorization",),
        ("servers/sdk_privates.py",),
        "programs without a person cannot sign in, and are told which release is the cause; a"
        " person signs in with the scopes that the server asks for",
        "A sign-in of a program",
        ("self",),
    ),
    Used(
        "mcp",
        ("mcp.server.session:ServerSession*_connection",),
        ("servers/sdk_privates.py",),
        "the MCP server forgets between two requests what its client has found, so a found tool"
        " is called through `call_tool`; the log names the release",
        "The connection of a request",
    ),
    Used(
        "casual-llm",
        (
            "casual_llm.providers.openai:OpenAIClient._build_request_kwargs",
            "casual_llm.providers.anthropic:AnthropicClient._build_request_kwargs",
            "casual_llm.providers.ollama:OllamaClient._build_request_kwargs",
        ),
        (
            "providers/builtin/openai.py",
            "providers/builtin/anthropic.py",
            "providers/builtin/ollama.py",
            "providers/builtin/litellm.py",
            "providers/_clients.py",
        ),
        "token counts, streamed tool calls and thinking, which casual-llm's own call drops; a"
        " release without it is refused with the release to install",
        "A request that is built and not sent",
        ("self", "model", "messages", "options"),
    ),
    Used(
        "casual-llm",
        ("casual_llm.model:Model*_client", "casual_llm:LLMClient._chat"),
        ("providers/chat_model.py", "providers/factory.py", "providers/_bound_model.py"),
        "a `Model` or a client that a user made with casual-llm cannot be passed to a session",
        "The client of a model",
    ),
    Used(
        "openai",
        ("openai:AsyncOpenAI*_custom_headers",),
        ("providers/_clients.py",),
        "headers from OPENAI_CUSTOM_HEADERS and ANTHROPIC_CUSTOM_HEADERS, keys among them, are sent"
        " to whatever address a config names",
        "A client that takes nothing from the environment",
    ),
    Used(
        "openai",
        ("openai:AsyncStream._iter_events",),
        ("providers/builtin/openai.py",),
        "a complete answer waits for servers that never end their stream, and an error that is sent"
        " in place of a chunk loses its status",
        "The events of a stream as they are",
        ("self",),
    ),
    Used(
        "openai",
        ("openai:AsyncOpenAI*_client", "ollama:AsyncClient*_client"),
        ("providers/_reading.py", "providers/builtin/ollama.py"),
        "request ids and delays are missing in errors; a huge error body holds everything for"
        " seconds; schemas sent to Ollama lose `$ref`, `anyOf` and limits",
        "The HTTP client under an SDK",
    ),
    Used(
        "ipykernel",
        (
            "ipykernel.kernelbase:Kernel._allow_stdin",
            "ipykernel.comm.comm:BaseComm*_reply_subshell_for",
        ),
        ("notebook/typed_lines.py", "widgets/base.py"),
        "a notebook that runs unattended waits for ever for an answer; and buttons of a widget do"
        " nothing while a cell runs",
        "What a front end can do, and messages during a cell",
    ),
    Used(
        "rank-bm25",
        ("rank_bm25:BM25Plus._calc_idf", "rank_bm25:BM25._initialize"),
        ("discovery/_ranking.py",),
        "a search finds tools by their whole text only, with a name worth no more than any other"
        " word; rank-bm25 is made to be extended there",
    ),
]

STANDARD = {
    "_exit": "documented in `os`",
    "_run_exitfuncs": "`atexit`'s; without it, a service ends without what other packages do at"
    " the end, such as sending the last spans",
    "_replace": "documented for named tuples",
    "_asdict": "documented for named tuples",
    "_hash": "documented in `collections.abc.Set`",
    "_repr_mimebundle_": "IPython's documented protocol",
    "_ipython_display_": "IPython's documented protocol",
    "_render_traceback_": "IPython's documented protocol",
}
"""Names that are documented in spite of their underscore, or have no public form in the standard
library."""

ACROSS_FILES = {
    "_origin": "where a config came from, a private attribute of its classes",
    "_run_job": "of `Experiments`, which has no public way to run a job of one session only",
    "_ask_for_texts": "of `Experiments`, for its workshop",
    "_ask_for_texts_async": "of `Experiments`, for its workshop",
    "_stub": "of `Functions`, for the tools of the same room",
    "_paths": "of `Functions`, for the written cells of the same room",
}
"""Private names of this package that another of its files reads."""

EXTENDED = {
    "mcp.client.session:ClientSession.__init__": (
        "one wrong part of a result makes the whole call fail, and a server that ended is noticed"
        " at the next call",
        ("self", "dispatcher"),
    ),
    "mcp.shared.jsonrpc_dispatcher:JSONRPCDispatcher.__init__": (
        "what a program prints among its messages is not shown where a call fails",
        ("self", "on_stream_exception"),
    ),
    "mcp.shared.dispatcher:Dispatcher.run": (
        "no server can be connected",
        ("self", "on_request", "on_notify"),
    ),
    "mcp.shared.inbound:x_mcp_header_map": (
        "a gateway that routes by `x-mcp-header` refuses calls, because no header repeats the"
        " argument",
        ("input_schema",),
    ),
    "mcp.shared.inbound:find_invalid_x_mcp_header": (
        "a tool whose header is wrong is offered and always fails",
        ("input_schema",),
    ),
    "mcp.client.session:ClientSession.validate_tool_result": (
        "a result that breaks its own schema makes its call fail, and the check holds the loop",
        ("self", "name", "result"),
    ),
    "mcp.client.streamable_http:streamable_http_client": (
        "a server over HTTP cannot send a large event",
        ("url", "http_client", "max_sse_event_size"),
    ),
    "fastmcp.client.transports.base:TransportOptions": (
        "no server can be connected",
        ("session_class",),
    ),
}
"""Public names that are overridden, or whose parameters are not in every release, with what is lost
without them."""

PLACES = {
    **{place: (row.without, row.parameters) for row in PRIVATE for place in row.places},
    **EXTENDED,
}


@pytest.mark.defect("D15")
@pytest.mark.parametrize("place", PLACES)
def test_what_is_used_of_a_library_is_there(place: str) -> None:
    without, parameters = PLACES[place]
    module, _, path = place.replace("*", ":").partition(":")
    try:
        thing = importlib.import_module(module)
        for name in re.split("[.:]", path):
            if "*" in place and name == path.rpartition(":")[2]:
                assert any(name in source for source in sources_of(thing)), place  # type: ignore[arg-type]
                return
            thing = getattr(thing, name)
    except (ImportError, AttributeError):
        pytest.fail(f"There is no {place}. Without it: {without}.")
    if parameters:
        missing = set(parameters) - set(inspect.signature(thing).parameters)  # type: ignore[arg-type]
        assert not missing, f"{place} takes no {', '.join(missing)}. Without it: {without}."


def sources_of(kind: type) -> Iterator[str]:
    """Yield the sources of a class and its bases: instances get their attributes there."""
    for each in kind.__mro__[:-1]:
        # One that is built at run time has none.
        with contextlib.suppress(OSError):
            yield inspect.getsource(each)


def is_private(name: str) -> bool:
    return re.match("_[A-Za-z]", name) is not None


@cache
def trees() -> dict[str, ast.Module]:
    return {
        path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.glob("**/*.py"))
    }


def attributes_of_classes(tree: ast.Module) -> set[str]:
    """Collect what a file's classes define: methods, fields, and what `self` is given."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(body=body):
                for each in body:
                    match each:
                        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                            names.add(name)
                        case (
                            ast.AnnAssign(target=ast.Name(id=name))
                            | ast.Assign(targets=[ast.Name(id=name)])
                        ):
                            names.add(name)
            case ast.Attribute(attr=name, value=ast.Name(id="self"), ctx=ast.Store()):
                names.add(name)
    return names


def used_of_others(tree: ast.Module) -> Iterator[str]:
    """Yield private names that a file reads, calls, assigns or imports, of what is not its own."""
    own = attributes_of_classes(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name, value=value) if is_private(name):
                through_self = ast.unparse(value) in ("self", "cls", "super()")
                if not through_self and (name not in own or is_of_a_library(value, name)):
                    yield name
            case ast.Call(
                func=ast.Name(id="getattr" | "setattr" | "hasattr" | "delattr"),
                args=[value, ast.Constant(value=str(name)), *_],
            ) if is_private(name) and (name not in own or ast.unparse(value) != "self"):
                yield name
            case ast.ImportFrom(module=str(module), names=names, level=0):
                whole = [*module.split("."), *(each.name for each in names)]
                if not module.startswith("casual_mcp_nb"):
                    yield from (name for name in whole if is_private(name) and name != "_typeshed")


def is_of_a_library(value: ast.expr, name: str) -> bool:
    """Check whether a name that a file uses for its own too is a library's here."""
    of = ast.unparse(value).lower()
    return name in LIBRARY_NAMES and of.endswith(("client", "client_session"))


LIBRARY_NAMES = set().union(*(row.names for row in PRIVATE))
NOT_IMPORTED = re.compile(r"__main__$|isolation\._|^casual_mcp_nb\.main$")
"""Modules that do their work when they are imported."""


@cache
def own_classes() -> tuple[type, ...]:
    """Import every module, and list the classes of this package."""
    classes: dict[type, None] = {}
    for module in pkgutil.walk_packages(casual_mcp_nb.__path__, "casual_mcp_nb."):
        if NOT_IMPORTED.search(module.name):
            continue
        for value in vars(importlib.import_module(module.name)).values():
            if inspect.isclass(value) and value.__module__ == module.name:
                classes[value] = None
    return tuple(classes)


def inherited(kind: type) -> set[str]:
    """Collect private names of the libraries' classes that a class derives from."""
    names: set[str] = set()
    for base in kind.__mro__:
        if not base.__module__.startswith(("casual_mcp_nb", "builtins")):
            names.update(name for name in vars(base) if is_private(name))
    return names


def used_of_bases() -> Iterator[tuple[str, str]]:
    """Yield file and name of what is overridden, or used through `self`, of a library's class."""
    for kind in own_classes():
        names = inherited(kind)
        if not names:
            continue
        file = Path(inspect.getfile(kind)).relative_to(PACKAGE).as_posix()
        for node in ast.walk(trees()[file]):
            if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
                defined = attributes_of_classes(ast.Module([node], []))
                mentioned = {
                    each.attr
                    for each in ast.walk(node)
                    if isinstance(each, ast.Attribute)
                    and ast.unparse(each.value) in ("self", "cls", "super()")
                }
                yield from ((file, name) for name in names & (defined | mentioned))


def test_every_private_part_that_is_used_is_listed_and_no_other() -> None:
    used = {(file, name) for file, tree in trees().items() for name in used_of_others(tree)}
    used.update(used_of_bases())
    used = {(file, name) for file, name in used if name not in {**STANDARD, **ACROSS_FILES}}
    listed = {(file, name) for row in PRIVATE for file in row.where for name in row.names}
    assert used - listed == set()
    unused = [row for row in PRIVATE if not used & {(f, n) for f in row.where for n in row.names}]
    assert unused == []
    assert {name for row in PRIVATE for name in row.names} <= {name for _, name in used}
    assert {file for row in PRIVATE for file in row.where} <= {file for file, _ in used}


USES = {
    "a call": "def f(model):\n    return model._ask()",
    "a read": "x = thing.client._ask",
    "an assignment": "def f(pool):\n    pool._ask = 1",
    "a deletion": "def f(pool):\n    del pool._ask",
    "by its name": "x = getattr(thing, '_ask', None)",
    "set by its name": "setattr(thing, '_ask', None)",
    "an import": "from library import _ask",
    "a private module": "from library._ask import name",
    "a function of the same name": "def _ask(): ...\nx = client._ask()",
}


@pytest.mark.defect("D15")
@pytest.mark.parametrize("source", USES.values(), ids=USES)
def test_every_way_to_use_a_private_part_is_found(source: str) -> None:
    assert "_ask" in used_of_others(ast.parse(source))


def test_the_list_is_short_and_each_missing_seam_has_its_request() -> None:
    assert len(PRIVATE) <= 12
    headings = re.findall(r"^### (.+)$", (ROOT / "docs/upstream.md").read_text(), re.MULTILINE)
    assert sorted(headings) == sorted(row.request for row in PRIVATE if row.request)


@pytest.mark.parametrize("row", PRIVATE, ids=lambda row: row.places[0])
def test_the_library_of_a_row_is_installed(row: Used) -> None:
    assert version(row.distribution)


def test_a_release_of_casual_llm_that_builds_no_requests_is_named() -> None:
    class Changed:
        """A client of a later release."""

    with pytest.raises(MissingDependencyError, match=r"casual-llm [\d.]+ builds .*casual-llm=="):
        builds_requests(Changed())
    client = OllamaClient()  # type: ignore[misc]
    assert builds_requests(client) is client
