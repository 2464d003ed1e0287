"""Run the tests in the project's own environment, which is made when it is missing: `python3
tests/run.py [pytest options]`.

Without a path all of them run, on all processors, several files at a time. With `--covered` the run
ends with a table: which part of each room's lines the tests reached.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / ".ci"))

import environment  # noqa: E402

# In the order of collection, which begins with the browser: the tests that take longest are not
# left for the end. One worker more than processors: many tests wait for a process, a kernel or a
# page.
ALL = [
    "-q",
    "--durations=25",
    "--numprocesses",
    str((os.cpu_count() or 1) + 1),
    "--dist",
    "loadfile",
    "--no-loadscope-reorder",
]

if __name__ == "__main__":
    # Without it each of the thousand processes that the tests start would compile every library
    # that it imports.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # A shell ignores it for what it runs in the background, and so would each script that a test
    # interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # As does `nohup` with this one.
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    options = [option for option in sys.argv[1:] if option != "--covered"]
    if len(options) < len(sys.argv) - 1:
        os.environ["PYTHONPATH"] = str(ROOT / "tests")
        # The rewriting of assertions is for tests; it complains of a plugin that was imported
        # earlier.
        options = ["-pkit.covered", "-Wignore::pytest.PytestAssertRewriteWarning", *options]
    if all(option.startswith("-") for option in options):
        options = [*ALL, *options]
    sys.exit(subprocess.run([environment.ensure(), "-m", "pytest", *options], cwd=ROOT).returncode)
