"""Import a library that builds an HTTP client when it is imported, which some environments do not
allow.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

PROXIES = ("http_proxy", "https_proxy", "all_proxy")
CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")

_lock = threading.Lock()


class PatientFinder(MetaPathFinder, Loader):
    """Imports Ollama's SDK whatever the environment has: it builds a client, which nobody needs,
    when it is imported.

    casual-llm imports it, and so does everything that uses a model, even one that needs no network.
    """

    def __init__(self) -> None:
        self._loader: Loader | None = None

    def find_spec(
        self, fullname: str, path: object = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find the module `ollama`. No other."""
        if fullname != "ollama":
            return None
        spec = PathFinder.find_spec(fullname)
        if spec is None or spec.loader is None:
            return None
        self._loader, spec.loader = spec.loader, self
        return spec

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module, without the variables if it fails with them."""
        assert self._loader is not None
        try:
            self._loader.exec_module(module)
        except Exception:
            with _without_variables():
                self._loader.exec_module(module)


@contextmanager
def _without_variables() -> Iterator[None]:
    with _lock:
        hidden: dict[str, str] = {}
        for name, value in os.environ.items():
            if name.lower() in (*PROXIES, "no_proxy") or name in CERTIFICATES:
                hidden[name] = value
        for name in hidden:
            del os.environ[name]
        try:
            yield
        finally:
            os.environ.update(hidden)
