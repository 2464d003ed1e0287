"""Create the project's virtual environment, `.venv`, with nothing but Python 3.11 or later.

`python3 .ci/environment.py` prints its Python; with `--lowest` that of an environment with the lowest releases of all direct
dependencies, with `--others` those of one environment for each other supported Python that is on this machine.
"""

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
SUPPORTED = ("3.11", "3.12", "3.13", "3.14")


def ensure() -> Path:
    """Create `.venv` and install the project with its extras, unless it is up to date.

    Returns:
        The environment's Python.
    """
    if sys.version_info < (3, 11):
        sys.exit(f"Python 3.11 or later is needed; this is {sys.version.split()[0]}. Try: python3.11 {' '.join(sys.argv)}")
    return _made(FOLDER, sys.executable, EXTRAS)


def lowest() -> Path:
    """The same in `.lowest`, with the lowest release of each direct dependency that its bound allows."""
    return _made(ROOT / ".lowest", sys.executable, "notebook,providers,dev", "--resolution", "lowest-direct")


def others() -> list[Path]:
    """The same in a folder for each supported minor version of Python that this machine has, without that of `.venv`."""
    ensure()
    this = f"{sys.version_info.major}.{sys.version_info.minor}"
    pythons = {version: _found(version) for version in SUPPORTED if version != this}
    return [_made(ROOT / f".python-{name}", python, "notebook,providers,dev") for name, python in pythons.items() if python]


def _made(folder: Path, python: str, extras: str, *options: str) -> Path:
    made = folder / PYTHON.relative_to(FOLDER)
    mark = folder / "installed"
    text = "\n".join([(ROOT / "pyproject.toml").read_text(encoding="utf-8"), sys.version, python, extras, *options])
    wanted = hashlib.sha256(text.encode()).hexdigest()
    if made.exists() and mark.exists() and mark.read_text() == wanted:
        return made
    print(f"Setting up {folder.name} (once; it takes a minute or two) …", file=sys.stderr, flush=True)
    if folder == FOLDER:
        venv.create(FOLDER, with_pip=True, clear=True)
        subprocess.run([*_pip(), "uv"])
    else:
        subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
    install(made, *options, "--editable", f"{ROOT}[{extras}]")
    mark.write_text(wanted)
    return made


def _found(version: str) -> str:
    """Return the command of a version of Python; empty if this machine has none. Also versions that pyenv has not enabled."""
    installed = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    candidates = [f"python{version}", *map(str, sorted(installed.glob(f"{version}.*/bin/python"), reverse=True))]
    for candidate in candidates:
        try:
            subprocess.run([candidate, "-c", "import venv, ensurepip"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return candidate
    return ""


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


if __name__ == "__main__":
    ways = {"--lowest": lambda: [lowest()], "--others": others}
    for path in ways.get("".join(sys.argv[1:]), lambda: [ensure()])():
        print(path)
