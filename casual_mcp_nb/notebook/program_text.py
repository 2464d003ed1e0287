"""Read the text of a program before it runs: the tools that it calls, and what to know about it."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

Path = tuple[str, ...]
"""A dotted name that begins with the session's variable or a module, such as `("session", "tools",
"math", "add")`.
"""

MAX_PATHS = 50
"""How many paths one variable may stand for."""
MAX_ROUNDS = 20
"""How often the program's assignments are gone through, until no variable has a new path."""

_NONE: frozenset[Path] = frozenset()
_SAME = frozenset(
    {
        "copy",
        "deepcopy",
        "enumerate",
        "iter",
        "list",
        "next",
        "partial",
        "reversed",
        "set",
        "sorted",
        "tuple",
        "zip",
    }
)
"""Functions whose result is, or contains, what they are given."""
_HARMLESS = frozenset(
    {"bool", "dir", "display", "help", "id", "isinstance", "len", "print", "repr", "str", "type"}
)
"""Functions that do not call what they are given."""
_BY_NAME = ("call", "call_async", "app", "app_async")
"""Methods of `session.tools` that call the tool whose name they are given."""

_STARTS = "starts another program"
_READS_CODE = "runs code that cannot be read here"
_DELETES = "deletes or moves files"
_NETWORK = "uses the network by itself"
_ENDS = "ends the kernel or another process"
_KNOWN: dict[Path, str] = {
    ("os", "system"): _STARTS,
    ("os", "popen"): _STARTS,
    ("os", "fork"): _STARTS,
    ("os", "startfile"): _STARTS,
    **{
        ("os", f"{kind}{end}"): _STARTS
        for kind in ("exec", "spawn")
        for end in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")
    },
    ("os", "posix_spawn"): _STARTS,
    ("os", "posix_spawnp"): _STARTS,
    ("subprocess",): _STARTS,
    ("multiprocessing",): _STARTS,
    ("pty", "spawn"): _STARTS,
    ("asyncio", "create_subprocess_exec"): _STARTS,
    ("asyncio", "create_subprocess_shell"): _STARTS,
    ("get_ipython",): "runs commands of the notebook",
    ("input",): "waits for your input",
    ("getpass", "getpass"): "waits for your input",
    ("eval",): _READS_CODE,
    ("exec",): _READS_CODE,
    ("compile",): _READS_CODE,
    ("__import__",): _READS_CODE,
    ("importlib",): _READS_CODE,
    ("runpy",): _READS_CODE,
    ("ctypes",): _READS_CODE,
    ("pickle", "load"): _READS_CODE,
    ("pickle", "loads"): _READS_CODE,
    **{
        ("os", name): _DELETES
        for name in ("remove", "removedirs", "rename", "replace", "rmdir", "truncate", "unlink")
    },
    ("shutil", "rmtree"): _DELETES,
    ("shutil", "move"): _DELETES,
    **{
        (module,): _NETWORK
        for module in ("aiohttp", "ftplib", "httpx", "requests", "smtplib", "socket", "urllib3")
    },
    ("urllib", "request"): _NETWORK,
    ("http", "client"): _NETWORK,
    ("os", "_exit"): _ENDS,
    ("os", "abort"): _ENDS,
    ("os", "kill"): _ENDS,
    ("os", "killpg"): _ENDS,
    ("sys", "exit"): _ENDS,
    ("exit",): _ENDS,
    ("quit",): _ENDS,
}
"""What a person should know before the program runs, by a dotted name or its beginning.

It helps to read a program. It is no protection.
"""
_ONLY_IMPORTED = frozenset({"http", "requests", "socket"})
"""Modules whose names may also be a variable's. They count only if the program imports them."""
_REACHES_ALL = frozenset({"compile", "eval", "exec", "get_ipython", "globals", "locals", "vars"})
"""Functions with which a program can reach the session without its name."""
_OF_CONTAINERS = frozenset({"copy", "get", "items", "pop", "popitem", "setdefault", "values"})


@dataclass(frozen=True)
class ProgramText:
    """What the text of a program shows.

    Attributes:
        calls: The tools' functions that it calls, or passes to something else. Each is
            `server.function` or a tool's name, with the line.
        remarks: Lines with what else it does that a person should know.
        is_followed: Whether the text shows everything that it does with the session. Otherwise it
            may call any tool.
    """

    calls: tuple[tuple[str, int], ...] = ()
    remarks: tuple[tuple[int, str], ...] = ()
    is_followed: bool = True


def read_program(code: str, variable: str, servers: Collection[str] = ()) -> ProgramText:
    """Read a program's text. Nothing in it runs.

    Args:
        code: The program.
        variable: The name of the session in it.
        servers: The names under which `session.tools` has servers.
    """
    try:
        return _Reader(ast.parse(code), variable, servers).read()
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # The person may have edited the cell, and written a magic in it.
        return ProgramText(is_followed=False)


class _Reader:
    """Follows a program's variables through its assignments.

    The order of statements is ignored: whatever a variable stands for at one place, it may stand
    for at each place.
    """

    def __init__(self, tree: ast.Module, variable: str, servers: Collection[str]) -> None:
        self._variable, self._servers = variable, servers
        self._nodes = list(ast.walk(tree))
        self._parents: dict[int, ast.AST] = {}
        for node in self._nodes:
            for child in ast.iter_child_nodes(node):
                self._parents[id(child)] = node
        self._names: dict[str, frozenset[Path]] = {variable: frozenset({(variable,)})}
        self._imported: set[str] = set()
        self._followed: set[int] = set()
        self._is_followed = True

    def read(self) -> ProgramText:
        """Follow all variables first, then look at each place where something is used."""
        self._follow_names()
        calls: set[tuple[int, int, str]] = set()
        remarks = set(self._replacements())
        for node in self._nodes:
            if isinstance(node, ast.Call):
                for name in self._called(node):
                    calls.add((node.lineno, node.col_offset, name))
            elif isinstance(node, ast.Name | ast.Attribute):
                if not isinstance(node.ctx, ast.Load) or self._is_inner(node):
                    continue
                remarks.update(self._remarks(node))
                if not self._is_used_openly(node):
                    for name in self._handed_on(node):
                        calls.add((node.lineno, node.col_offset, name))
        listed = dict.fromkeys((name, line) for line, _, name in sorted(calls))
        return ProgramText(tuple(listed), tuple(sorted(remarks)), self._is_followed)

    def _follow_names(self) -> None:
        for _ in range(MAX_ROUNDS):
            before = dict(self._names)
            for node in self._nodes:
                self._bind(node)
            if self._names == before:
                return
        self._is_followed = False

    def _bind(self, node: ast.AST) -> None:
        """Note what the variables that a statement sets can stand for."""
        match node:
            case ast.Assign():
                for target in node.targets:
                    self._assign(target, node.value)
            case ast.AnnAssign(value=ast.expr() as value) | ast.NamedExpr(value=value):
                self._assign(node.target, value)
            case ast.For() | ast.AsyncFor() | ast.comprehension():
                for name in _names_in(node.target):
                    self._add(name, node.iter)
            case ast.withitem(optional_vars=ast.expr() as target):
                self._assign(target, node.context_expr)
            case ast.arguments():
                positional = [*node.posonlyargs, *node.args]
                # The last parameters have defaults.
                for argument, value in zip(
                    reversed(positional), reversed(node.defaults), strict=False
                ):
                    self._add(argument.arg, value)
                for argument, default in zip(node.kwonlyargs, node.kw_defaults, strict=True):
                    if default is not None:
                        self._add(argument.arg, default)
            case ast.Import():
                for alias in node.names:
                    if alias.asname:
                        self._import(alias.asname, tuple(alias.name.split(".")))
                    else:
                        package = alias.name.partition(".")[0]
                        self._import(package, (package,))
            case ast.ImportFrom():
                module = (node.module or "").split(".")
                for alias in node.names:
                    self._import(alias.asname or alias.name, (*module, alias.name))

    def _import(self, name: str, path: Path) -> None:
        self._imported.add(path[0])
        self._names[name] = self._names.get(name, _NONE) | {path}

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
            starred = any(isinstance(each, ast.Starred) for each in target.elts)
            if not starred and len(target.elts) == len(value.elts):
                for one, other in zip(target.elts, value.elts, strict=True):
                    self._assign(one, other)
                return
        # An attribute or an item is not followed: what is put there is passed on.
        for name in _names_in(target):
            self._add(name, value)

    def _add(self, name: str, value: ast.expr) -> None:
        paths = self._names.get(name, _NONE) | self._values(value, follow=True)
        if len(paths) > MAX_PATHS:
            self._is_followed = False
            return
        self._names[name] = paths

    def _values(self, node: ast.AST, *, follow: bool = False) -> frozenset[Path]:
        """Collect the paths that an expression can stand for. A container stands for its items.

        Args:
            node: The expression.
            follow: Whether it is assigned to a variable. Then it is seen where the variable is used
                what becomes of it.
        """
        if follow:
            self._followed.add(id(node))
        match node:
            case ast.Name():
                return self._names.get(node.id, frozenset({(node.id,)}))
            case ast.Attribute():
                return self._attributes(self._values(node.value, follow=follow), node.attr)
        found = _NONE
        for part in self._parts(node):
            found |= self._values(part, follow=follow)
        if _is_getattr(node):
            return self._attributes(found, node.args[1].value)  # type: ignore[attr-defined]
        return found

    def _attributes(self, paths: Collection[Path], name: str) -> frozenset[Path]:
        return frozenset(self._shortened((*path, name)) for path in paths)

    def _parts(self, node: ast.AST) -> Sequence[ast.AST]:
        """Get the parts of an expression whose values it can have or contain."""
        match node:
            case ast.Starred() | ast.NamedExpr() | ast.Await() | ast.Subscript() | ast.DictComp():
                return [node.value]
            case ast.IfExp():
                return [node.body, node.orelse]
            case ast.BoolOp() | ast.Dict():
                return node.values
            case ast.Tuple() | ast.List() | ast.Set():
                return node.elts
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                return [node.elt]
            case ast.Call(func=ast.Attribute(attr=attr, value=value)) if attr in _OF_CONTAINERS:
                return [value]
            case ast.Call(args=[first, *_]) if _is_getattr(node):
                return [first]
            case ast.Call(args=[first, *rest]):
                function = _last_name(node.func)
                if function == "partial":
                    return [first]
                if function in _SAME:
                    return [first, *rest]
        return ()

    def _shortened(self, path: Path) -> Path:
        """Shorten a path to what is looked at in it.

        `session.tools.functions` is the same as `session.tools`. What comes after a tool's function
        is left out.
        """
        if path[:3] == (self._variable, "tools", "functions"):
            path = (*path[:2], *path[3:])
        if path[0] == self._variable:
            return path[:4]
        return path[:3]

    def _called(self, call: ast.Call) -> Iterator[str]:
        """Yield the tools that a call calls."""
        for path in self._values(call.func):
            if path[:2] != (self._variable, "tools"):
                continue
            if len(path) == 4:
                yield ".".join(path[2:])
            elif path[2:] and path[2] in _BY_NAME:
                name = _name_given(call)
                if name is None:
                    self._is_followed = False
                else:
                    yield name

    def _handed_on(self, node: ast.AST) -> Iterator[str]:
        """Yield the tools that a value which is passed on can call."""
        for path in self._values(node):
            if len(path) == 4 and path[:2] == (self._variable, "tools"):
                yield ".".join(path[2:])
            elif self._reaches_tools(path):
                self._is_followed = False

    def _reaches_tools(self, path: Path) -> bool:
        """Check whether a value is the session, its tools, or a server: it can call many tools."""
        if path in ((self._variable,), (self._variable, "tools")):
            return True
        if path[:2] != (self._variable, "tools"):
            return False
        return path[2] in self._servers or path[2] in _BY_NAME

    def _is_inner(self, node: ast.AST) -> bool:
        return isinstance(self._parents.get(id(node)), ast.Attribute)

    def _is_used_openly(self, node: ast.AST) -> bool:
        """Check whether the text shows what becomes of a value.

        It does if the value is called, assigned to a variable, or only looked at.
        """
        while True:
            if id(node) in self._followed:
                return True
            parent = self._parents.get(id(node))
            if parent is None:
                return True
            if isinstance(parent, ast.Expr | ast.Compare | ast.FormattedValue | ast.withitem):
                return True
            if isinstance(parent, ast.Call) and node is parent.func:
                return True
            if isinstance(parent, ast.Call) and _last_name(parent.func) in _HARMLESS:
                return True
            if node not in self._parts(parent):
                return False
            node = parent

    def _remarks(self, node: ast.Name | ast.Attribute) -> Iterator[tuple[int, str]]:
        for path in self._values(node):
            if path[0] in _ONLY_IMPORTED and path[0] not in self._imported:
                continue
            known = _KNOWN.get(path[:2]) or _KNOWN.get(path[:1])
            if known:
                yield node.lineno, f"{'.'.join(path)} {known}"
            if path == (self._variable, "close"):
                yield node.lineno, f"{self._variable}.close closes the session"
            parent = self._parents.get(id(node))
            is_of_object = path == ("vars",) and isinstance(parent, ast.Call) and parent.args
            if path[0] in _REACHES_ALL and len(path) == 1 and not is_of_object:
                self._is_followed = False

    def _replacements(self) -> Iterator[tuple[int, str]]:
        """Find where the session is replaced in its variable, or closed by a block."""
        for node in self._nodes:
            if self._variable in _names_set(node):
                line = getattr(node, "lineno", 1)
                yield line, f"your variable {self._variable} is set to something else, or deleted"
            if isinstance(node, ast.withitem) and (self._variable,) in self._values(
                node.context_expr
            ):
                yield node.context_expr.lineno, "the session is closed at the end of this block"


def _name_given(call: ast.Call) -> str | None:
    """Find the tool's name in a call such as `session.tools.call`. None if it is no plain text."""
    given = list(call.args[:1])
    for keyword in call.keywords:
        if keyword.arg == "name":
            given.append(keyword.value)
    if given and isinstance(given[0], ast.Constant) and isinstance(given[0].value, str):
        return given[0].value
    return None


def _names_set(node: ast.AST) -> list[str]:
    """List the variables that a statement sets or deletes by itself."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            return [name]
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [node.name]
        case ast.ExceptHandler(name=str() as name):
            return [name]
        case ast.Import() | ast.ImportFrom():
            return [alias.asname or alias.name for alias in node.names]
    return []


def _names_in(target: ast.expr) -> Iterator[str]:
    """Yield the variables that an assignment sets, but not attributes and items."""
    match target:
        case ast.Name():
            yield target.id
        case ast.Starred():
            yield from _names_in(target.value)
        case ast.Tuple() | ast.List():
            for each in target.elts:
                yield from _names_in(each)


def _is_getattr(node: ast.AST) -> bool:
    """Check for `getattr` with a name that can be read."""
    match node:
        case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str()), *_]):
            return True
    return False


def _last_name(node: ast.AST) -> str:
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            return node.attr
    return ""
