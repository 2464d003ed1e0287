"""Set everything up and open the first lesson in JupyterLab: `python3 notebooks/quickstart.py`.

With `--headless` the lesson is executed instead: its question, answer and table of tokens are
printed, and where its HTML is. Other options go to JupyterLab, such as `--no-browser` or `--port
9999`.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / ".ci"))

import environment  # noqa: E402

NOTEBOOK = ROOT / "notebooks" / "01_quickstart.ipynb"
QUIET = [
    "--LabApp.news_url=None",
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
]
"""No server elsewhere is asked about news and updates."""
NO_NEWS = {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false"}}
"""JupyterLab would ask the person whether to fetch news. Their own settings win over this."""


def lab_options(given: list[str], *, is_root: bool) -> list[str]:
    """Return the options of JupyterLab.

    Args:
        given: The person's own; they come last, so that they win.
        is_root: Whether this is the user root, whom JupyterLab refuses without `--allow-root`.
    """
    first = [
        # Lessons have pictures from docs/.
        f"--ServerApp.root_dir={ROOT}",
        f"--LabApp.default_url=/lab/tree/{NOTEBOOK.relative_to(ROOT).as_posix()}",
        *QUIET,
    ]
    if is_root and "--allow-root" not in given:
        if any(option.lstrip("-").lower().startswith(("ip", "serverapp.ip")) for option in given):
            sys.exit(
                "JupyterLab does not run as root at an address that others reach. Add --allow-root,"
                " or start it as another user"
            )
        print(
            "You are root, so JupyterLab gets --allow-root and is reached from this computer only"
            " (127.0.0.1).",
            flush=True,
        )
        first += ["--allow-root", "--ServerApp.ip=127.0.0.1"]
    return [*first, *given]


def ask_no_questions(python: Path) -> None:
    """Change what JupyterLab asks when it opens for the first time, in the environment of
    `python`.
    """
    overrides = python.parent.parent / "share" / "jupyter" / "lab" / "settings" / "overrides.json"
    if not overrides.exists():
        overrides.parent.mkdir(parents=True, exist_ok=True)
        overrides.write_text(json.dumps(NO_NEWS), encoding="utf-8")


def main() -> int:
    """Open the lesson, or execute it."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--headless",
        action="store_true",
        help="execute the lesson and print what came of it; no browser",
    )
    args, given = parser.parse_known_args()
    if args.headless:
        python = environment.ensure(environment.LESSONS)
        print(f"Running {NOTEBOOK.name} (about a minute) …", flush=True)
        execute = [
            NOTEBOOK.parent / "execute.py",
            NOTEBOOK,
            "--html",
            ROOT / "build",
            "--show",
            "answer,tokens",
        ]
        return subprocess.run([python, *execute], cwd=ROOT).returncode
    options = lab_options(given, is_root=hasattr(os, "geteuid") and os.geteuid() == 0)
    python = environment.ensure(environment.LESSONS)
    ask_no_questions(python)
    print(
        f"Opening {NOTEBOOK.name} in JupyterLab; Ctrl-C ends it. Without a browser: --headless.",
        flush=True,
    )
    return subprocess.run([python, "-m", "jupyterlab", *options], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
