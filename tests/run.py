"""Run the tests in the project's own environment, which is made when it is missing: `python3 tests/run.py [pytest options]`.

Without a path all of them run, on all processors, several files at a time.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / ".ci"))

import environment  # noqa: E402

# In the order of collection, which begins with the browser: the tests that take longest are not left for the end.
# One worker more than processors: many tests wait for a process, a kernel or a page.
ALL = ["-q", "--durations=25", "--numprocesses", str((os.cpu_count() or 1) + 1), "--dist", "loadfile", "--no-loadscope-reorder"]

if __name__ == "__main__":
    # Without it each of the thousand processes that the tests start would compile every library that it imports.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # A shell ignores it for what it runs in the background, and so would each script that a test interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    options = sys.argv[1:]
    if all(option.startswith("-") for option in options):
        options = [*ALL, *options]
    sys.exit(subprocess.run([environment.ensure(), "-m", "pytest", *options], cwd=ROOT).returncode)
