"""Create an environment with what comes next: `python .ci/upcoming.py fastmcp` prints its Python.

`.upcoming` has the newest releases of everything, and of the packages that are named the newest
pre-releases, beyond the ceilings of `pyproject.toml` as well. A weekly job runs tests in it, so that
what breaks is known before it is released.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import venv
from itertools import chain
from pathlib import Path

import environment

FOLDER = environment.ROOT / ".upcoming"
PROJECT = tomllib.loads((environment.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
BOUNDED = re.compile(r"(?P<name>[\w-]+)(\[(?P<extras>.*)\])?(?P<floor>>=[\d.]+),<.*")


def without_ceilings() -> list[str]:
    """List what has a ceiling with its floor alone.

    An override replaces the extras that were asked for as well, so it has all of them.
    """
    groups = [
        PROJECT["project"]["dependencies"],
        *PROJECT["project"]["optional-dependencies"].values(),
    ]
    floors: dict[str, str] = {}
    extras: dict[str, list[str]] = {}
    for requirement in chain.from_iterable(groups):
        if bounded := BOUNDED.fullmatch(requirement):
            floors[bounded["name"]] = bounded["floor"]
            extras.setdefault(bounded["name"], []).extend(filter(None, [bounded["extras"]]))
    return [f"{name}[{','.join(extras[name])}]{floor}" for name, floor in floors.items()]


def main() -> None:
    """Create the environment, print which releases of the packages it has, and its Python."""
    names = sys.argv[1:]
    environment.ensure()
    venv.create(FOLDER, with_pip=False, clear=True)
    python = FOLDER / environment.PYTHON.relative_to(environment.FOLDER)
    overrides = FOLDER / "overrides.txt"
    overrides.write_text("\n".join(without_ceilings()))
    content = environment.TESTS
    project = f"{environment.ROOT}[{','.join(content.extras)}]"
    tools = [each for group in content.groups for each in PROJECT["dependency-groups"][group]]
    allowed = [f"--prerelease-package={name}=allow" for name in names]
    uv: list[str | Path] = [environment.PYTHON, "-m", "uv", "pip"]
    here: list[str | Path] = ["--system-certs", "--python", python]
    install = [*uv, "install", "--quiet", *here, *allowed, "--overrides", overrides]
    subprocess.run([*install, "--editable", project, *names, *tools], check=True)
    for name in names:
        shown = subprocess.run([*uv, "show", *here[1:], name], capture_output=True, text=True)
        print(" ".join(shown.stdout.splitlines()[:2]), file=sys.stderr)
    print(python)


if __name__ == "__main__":
    main()
