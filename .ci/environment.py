"""Create the project's virtual environment, `.venv`, with nothing but Python 3.11 or later."""

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".venv"
PYTHON = FOLDER / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
EXTRAS = "notebook,providers,docs,dev"


def ensure() -> Path:
    """Create `.venv` and install the project with its extras, unless it is up to date.

    Returns:
        The environment's Python.
    """
    if sys.version_info < (3, 11):
        sys.exit(f"Python 3.11 or later is needed; this is {sys.version.split()[0]}. Try: python3.11 {' '.join(sys.argv)}")
    mark = FOLDER / "installed"
    wanted = hashlib.sha256((ROOT / "pyproject.toml").read_bytes() + sys.version.encode()).hexdigest()
    if PYTHON.exists() and mark.exists() and mark.read_text() == wanted:
        return PYTHON
    print(f"Setting up {FOLDER.name} (once; it takes a minute or two) …", flush=True)
    venv.create(FOLDER, with_pip=True, clear=True)
    subprocess.run([*_pip(), "uv"])
    install(PYTHON, "--editable", f"{ROOT}[{EXTRAS}]")
    mark.write_text(wanted)
    return PYTHON


def install(python: Path, *arguments: str) -> None:
    """Install packages into a Python's environment with uv, which takes a fifth of the time, or else with pip.

    Args:
        python: The environment's Python.
        *arguments: Packages, and options that both accept.

    Raises:
        CalledProcessError: Both failed.
    """
    uv = [PYTHON, "-m", "uv", "pip", "install", "--quiet", "--native-tls", "--python", python]
    # uv does not read pip's settings, so only pip finds an index configured there.
    if subprocess.run([*uv, *arguments]).returncode != 0:
        subprocess.run([*_pip("--python", str(python)), *arguments], check=True)


def _pip(*options: str) -> list[str | Path]:
    return [PYTHON, "-m", "pip", *options, "install", "--quiet"]
