"""The project's own virtual environment, `.venv`, made with nothing but a Python of 3.11 or later."""

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".venv"
EXTRAS = "notebook,providers,docs,dev"


def ensure() -> Path:
    """Make `.venv` and install the project with its extras, unless that is done already.

    Returns:
        The environment's Python.
    """
    if sys.version_info < (3, 11):
        sys.exit(f"Python 3.11 or later is needed; this is {sys.version.split()[0]}. Try: python3.11 {' '.join(sys.argv)}")
    python = FOLDER / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    mark = FOLDER / "installed"
    wanted = hashlib.sha256((ROOT / "pyproject.toml").read_bytes() + sys.version.encode()).hexdigest()
    if python.exists() and mark.exists() and mark.read_text() == wanted:
        return python
    print(f"Setting up {FOLDER.name} (once; it takes a minute or two) …", flush=True)
    venv.create(FOLDER, with_pip=True, clear=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--editable", f"{ROOT}[{EXTRAS}]"], check=True)
    mark.write_text(wanted)
    return python
