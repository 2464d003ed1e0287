"""Create the project's virtual environment, `.venv`, with nothing but Python 3.11 or later.

`python3 .ci/environment.py` prints its Python; with `--lessons` it has what the lessons need, and
not yet what the tests need; with `--lowest` that of an environment with the
lowest releases of all direct dependencies, with `--others` those of one environment for each other
supported Python that is on this machine, with the newest releases, with `--newest` only the last of
these. `.venv` has the releases of `uv.lock`, or the newest where uv does not work. `--optimized`
creates nothing, and prints the Python with which the tests run fastest.
"""

import hashlib
import os
import subprocess
import sys
import sysconfig
import time
import tomllib
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".venv"
PYTHON = FOLDER / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
SUPPORTED = ("3.11", "3.12", "3.13", "3.14")
COLLECT_LESS = "import gc; gc.set_threshold(10_000, 20, 20)\n"
"""What each process of an environment starts with. Most are short, and would spend a fifth of their
time on looking for garbage while they import.
"""


@dataclass(frozen=True)
class Content:
    """What is installed in an environment, and about what that costs, to be said before.

    Args:
        extras: The project's.
        groups: Its dependency groups.
        megabytes: What it takes on the disk, with the bytecode of its first run, as `du` counts.
        downloaded: The part of it that comes from the network, packed, in megabytes.
        seconds: With a fast connection.
    """

    extras: tuple[str, ...]
    groups: tuple[str, ...]
    megabytes: int
    downloaded: int
    seconds: int


LESSONS = Content(("notebook",), (), megabytes=400, downloaded=110, seconds=10)
_EXTRAS = ("notebook", "providers", "google", "serve", "otel", "meaning", "code")
TESTS = Content(_EXTRAS, ("dev",), megabytes=1_250, downloaded=350, seconds=20)
EVERYTHING = Content(_EXTRAS, ("dev", "docs"), megabytes=1_350, downloaded=380, seconds=20)


def ensure(content: Content = EVERYTHING) -> Path:
    """Create `.venv` and install the project with what is needed, unless it is there.

    What the lessons need is a part of everything: nothing is removed for them, and the rest is
    added to it.

    Returns:
        The environment's Python.
    """
    if sys.version_info < (3, 11):
        sys.exit(
            f"Python 3.11 or later is needed; this is {sys.version.split()[0]}. Try: python3.11"
            f" {' '.join(sys.argv)}"
        )
    return _made(FOLDER, sys.executable, content)


def lowest() -> Path:
    """The same in `.lowest`, with the lowest release of each direct dependency that its bound
    allows.
    """
    return _made(ROOT / ".lowest", sys.executable, TESTS, "--resolution", "lowest-direct")


def others(*, newest: bool = False) -> list[Path]:
    """The same in a folder for each supported minor version of Python that this machine has,
    without that of `.venv`, or only for the newest of them.
    """
    ensure()
    this = f"{sys.version_info.major}.{sys.version_info.minor}"
    pythons = {version: _found(version) for version in SUPPORTED if version != this}
    there = [(version, python) for version, python in pythons.items() if python]
    if newest:
        there = there[-1:]
    return [_made(ROOT / f".python-{version}", python, TESTS) for version, python in there]


def optimized() -> str:
    """Find a Python of this minor version that was compiled with profile-guided optimization, with
    which the tests take a fifth less time. Distributions compile theirs so; pyenv does on request
    only.

    Returns:
        Its command, or that of this Python if it is one, or if there is none.
    """
    distributed = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    if "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or ""):
        return sys.executable
    return distributed if _makes_environments(distributed) else sys.executable


def _made(folder: Path, python: str, content: Content, *options: str) -> Path:
    made = folder / PYTHON.relative_to(FOLDER)
    mark = folder / "installed"
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    lock = (ROOT / "uv.lock").read_text(encoding="utf-8") if folder == FOLDER else ""
    base = "\n".join([project, lock, sys.version, python, COLLECT_LESS, *options])
    wanted = _mark(base, content)
    there = mark.read_text() if made.exists() and mark.exists() else ""
    if there in (wanted, _mark(base, EVERYTHING)):
        return made
    began = time.monotonic()
    print(
        f"Setting up {folder.name}, once: about {content.megabytes:,} MB, after"
        f" {content.downloaded} MB of downloads. With a fast connection it takes about"
        f" {content.seconds} seconds …",
        file=sys.stderr,
        flush=True,
    )
    if folder != FOLDER:
        subprocess.run([python, "-m", "venv", "--clear", "--without-pip", folder], check=True)
    elif there != _mark(base, LESSONS):
        _create()
    if not (folder == FOLDER and _sync(content)):
        # Not by name: pip knows dependency groups only since 25.1, which is newer than the pip of
        # Python 3.11 and 3.12.
        tools = [
            requirement
            for group in content.groups
            for requirement in tomllib.loads(project)["dependency-groups"][group]
        ]
        install(made, *options, "--editable", f"{ROOT}[{','.join(content.extras)}]", *tools)
    (next(folder.rglob("site-packages")) / "collect_less.pth").write_text(COLLECT_LESS)
    mark.write_text(wanted)
    seconds = time.monotonic() - began
    print(f"Set up {folder.name} in {seconds:.0f} seconds.", file=sys.stderr)
    return made


def _create() -> None:
    """Create `.venv` with uv and pip.

    The pip of this Python brings uv where it has one, and uv brings pip: Python's own way to bring
    pip takes longer than all the rest.
    """
    venv.create(FOLDER, with_pip=False, clear=True)
    try:
        subprocess.run(
            [sys.executable, *_pip("--python", str(PYTHON))[1:], "uv"],
            check=True,
            capture_output=True,
        )
        subprocess.run([*_uv_pip(PYTHON), "pip"], check=True, capture_output=True)
    except subprocess.CalledProcessError:
        venv.create(FOLDER, with_pip=True, clear=True)
        subprocess.run([*_pip(), "uv"])


def _mark(base: str, content: Content) -> str:
    """What is written into an environment when it is complete."""
    text = "\n".join([base, *content.extras, *content.groups])
    return hashlib.sha256(text.encode()).hexdigest()


def _sync(content: Content) -> bool:
    """Install the releases of `uv.lock` in `.venv`.

    Returns:
        Whether it worked.
    """
    extras = [option for extra in content.extras for option in ("--extra", extra)]
    groups = [option for group in content.groups for option in ("--group", group)]
    command = [
        PYTHON,
        "-m",
        "uv",
        "sync",
        "--quiet",
        "--system-certs",
        "--frozen",
        "--inexact",
        "--no-default-groups",
        "--python",
        PYTHON,
        *extras,
        *groups,
    ]
    environ = {**os.environ, "UV_PROJECT_ENVIRONMENT": str(FOLDER)}
    return subprocess.run(command, cwd=ROOT, env=environ).returncode == 0


def _found(version: str) -> str:
    """Return the command of a version of Python; empty if this machine has none.

    Also versions that pyenv has not enabled.
    """
    installed = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    candidates = [
        f"python{version}",
        *map(str, sorted(installed.glob(f"{version}.*/bin/python"), reverse=True)),
    ]
    for candidate in candidates:
        if _makes_environments(candidate):
            return candidate
    return ""


def _makes_environments(python: str) -> bool:
    """Whether there is a Python by this command, with what it needs to create an environment."""
    try:
        subprocess.run([python, "-c", "import venv, ensurepip"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def install(python: Path, *arguments: str) -> None:
    """Install packages into a Python's environment with uv, which takes a fifth of the time, or
    else with pip.

    Args:
        python: The environment's Python.
        *arguments: Packages, and options that both accept.

    Raises:
        CalledProcessError: Both failed.
    """
    # uv does not read pip's settings, so only pip finds an index configured there.
    if subprocess.run([*_uv_pip(python), *arguments]).returncode != 0:
        subprocess.run([*_pip("--python", str(python)), *arguments], check=True)


def _uv_pip(python: Path) -> list[str | Path]:
    return [PYTHON, "-m", "uv", "pip", "install", "--quiet", "--system-certs", "--python", python]


def _pip(*options: str) -> list[str | Path]:
    return [PYTHON, "-m", "pip", *options, "install", "--quiet"]


if __name__ == "__main__":
    ways = {
        "--lessons": lambda: [ensure(LESSONS)],
        "--lowest": lambda: [lowest()],
        "--newest": lambda: others(newest=True),
        "--optimized": lambda: [optimized()],
        "--others": others,
    }
    for path in ways.get("".join(sys.argv[1:]), lambda: [ensure()])():
        print(path)
