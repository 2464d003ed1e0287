"""Run the tests in the project's own environment, which is made when it is missing: `python3 tests/run.py [pytest options]`.

Without options all of them run, on all processors, several files at a time.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / ".ci"))

import environment  # noqa: E402

# In the order of collection: a browser leaves a loop in its process, in which no other test could start its own.
# One worker more than processors: many tests wait for a process, a kernel or a page.
ALL = ["-q", "--numprocesses", str((os.cpu_count() or 1) + 1), "--dist", "loadfile", "--no-loadscope-reorder"]

if __name__ == "__main__":
    # Without it each of the thousand processes that the tests start would compile every library that it imports.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # A shell ignores it for what it runs in the background, and so would each script that a test interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(subprocess.run([environment.ensure(), "-m", "pytest", *(sys.argv[1:] or ALL)], cwd=ROOT).returncode)
