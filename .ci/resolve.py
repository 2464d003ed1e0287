"""Check that pip finds wheels for everything: `python .ci/resolve.py` asks the package index which
releases it would install, and installs nothing.

For each supported Python, on Linux, macOS and Windows, the package alone, with all extras that go
together, and with each of the others. With versions of Python, only these: `python .ci/resolve.py 3.15`.
It needs uv, which `.venv` has.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product

from environment import ROOT, SUPPORTED, TESTS

PLATFORMS = ("linux", "macos", "windows")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def sets_of_extras() -> list[tuple[str, ...]]:
    """List what is installed together: nothing more, what the tests need, what stands apart."""
    chosen: dict[tuple[str, ...], None] = {(): None, TESTS.extras: None}
    for pair in PROJECT["tool"]["uv"]["conflicts"]:
        for each in pair:
            if each.get("extra", "providers") not in TESTS.extras:
                chosen[each["extra"],] = None
    return list(chosen)


def problem(python: str, platform: str, extras: tuple[str, ...]) -> str:
    """Say why there are no releases that fit together and have wheels; empty if there are."""
    command = [
        *(sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--system-certs", "--no-header"),
        *("--only-binary", ":all:", "--python-version", python, "--python-platform", platform),
        *(part for extra in extras for part in ("--extra", extra)),
        "pyproject.toml",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip()


def main() -> int:
    """Check each Python on each platform, and print what fits together and what does not."""
    chosen = sets_of_extras()
    failed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for python, platform in product(sys.argv[1:] or SUPPORTED, PLATFORMS):
            found = list(pool.map(partial(problem, python, platform), chosen))
            for extras, text in zip(chosen, found, strict=True):
                if text:
                    print(f"Python {python}, {platform}, [{','.join(extras)}]:\n{text}\n")
            resolved = found.count("")
            failed += len(found) - resolved
            print(f"Python {python}, {platform}: {resolved} of {len(found)} resolve.", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
