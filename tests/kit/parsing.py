"""Keep the garbage collector out of Python 3.11's parser.

A collection inside `ast.parse` runs finalizers, and with them other threads, and a parse there
makes this one fail: "AST constructor recursion depth mismatch"
(https://github.com/python/cpython/issues/106905). Tests leave much garbage and have many threads,
which ask for signatures; Python parses the text of those of its built-in functions.
"""

import ast
import gc
import sys
import threading
from typing import Any

_LOCK = threading.RLock()
_PARSE = ast.parse


def _without_collecting(*arguments: Any, **options: Any) -> Any:
    with _LOCK:
        enabled = gc.isenabled()
        gc.disable()
        try:
            return _PARSE(*arguments, **options)
        finally:
            if enabled:
                gc.enable()


def parse_without_collecting() -> None:
    if sys.version_info < (3, 12):
        ast.parse = _without_collecting
