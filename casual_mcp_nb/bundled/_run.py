"""Run a bundled server; started by this file's path.

The package need not be installed, and no file beside it or in the working directory shadows its
imports. `python -m casual_mcp_nb.bundled` does the same if the package is installed.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path


def load_package() -> None:
    """Make this package importable without adding its parent folder to the path, where other files
    could shadow modules.
    """
    folder = Path(__file__).resolve().parents[1]
    spec = importlib.util.spec_from_file_location(
        folder.name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[folder.name] = package
    spec.loader.exec_module(package)


if __name__ == "__main__":
    load_package()
    from casual_mcp_nb.bundled.__main__ import main

    sys.exit(main(sys.argv[1:]))
