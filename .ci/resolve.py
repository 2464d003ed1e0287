"""Check that pip finds wheels for everything: `python .ci/resolve.py` asks the package index which
releases it would install, and installs nothing.

For each supported Python, on Linux, macOS and Windows, the package alone, with each extra, and
with all extras that go together. With versions of Python, only these: `python .ci/resolve.py 3.15`.
It needs uv, which `.venv` has.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from itertools import product

from environment import ROOT, SUPPORTED, TESTS

PLATFORMS = ("linux", "macos", "windows")
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "optional-dependencies"
]


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
    """Check each Python with each set of extras on each platform, and print what each is."""
    versions = sys.argv[1:] or SUPPORTED
    chosen = [(), *((extra,) for extra in EXTRAS), TESTS.extras]
    cases = list(product(versions, PLATFORMS, chosen))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(lambda case: problem(*case), cases))
    for version, platform in product(versions, PLATFORMS):
        failed = 0
        for (python, system, extras), text in zip(cases, found, strict=True):
            if (python, system) == (version, platform) and text:
                failed += 1
                print(f"Python {version}, {platform}, [{','.join(extras)}]:\n{text}\n")
        print(f"Python {version}, {platform}: {len(chosen) - failed} of {len(chosen)} resolve.")
    return 1 if any(found) else 0


if __name__ == "__main__":
    sys.exit(main())
