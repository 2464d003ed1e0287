"""Run every benchmark and print one table: `python benchmarks/run.py [--quick] [NAME ...]`.

Each benchmark is a file of this folder with a function `figures(quick)`, and runs in a separate
process. Each figure comes with its ratio to the peer and to its limit; below 1 is better. `--quick`
runs all of them small, to see that they work, and in one process, as imports would take most of the
time: its figures say little. Ends with 1 if a benchmark fails or, without `--quick`, if a figure
exceeds its limit.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import json
import os
import resource
import subprocess
import sys
import traceback
from dataclasses import asdict
from pathlib import Path

from common.figures import HEAD, SECONDS, Figure, Unavailable, be_quiet
from kit.lean import lean

FOLDER = Path(__file__).parent
LEFT_OUT = "left out: "
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if path != Path(__file__))


def main(names: list[str], quick: bool) -> int:
    """Print the table; return 1 if something is wrong."""
    wrong = []
    if quick:
        be_quiet()
    print(HEAD)
    for name in names:
        before = processor_seconds()
        result = here(name) if quick else measured(name)
        print(f"\n{name} ({processor_seconds() - before:.0f} s of processor time)", flush=True)
        if isinstance(result, str):
            print(f"  {result}", flush=True)
            wrong += [] if result.startswith(LEFT_OUT) else [name]
            continue
        for figure in result:
            print(f"{figure}", flush=True)
        if not quick and any((figure.to_limit or 0) > 1 for figure in result):
            wrong.append(name)
    print(f"\n{processor_seconds():.0f} s of processor time")
    if wrong:
        print(f"failed, or beyond a limit: {', '.join(wrong)}")
    return 1 if wrong else 0


def here(name: str) -> list[Figure] | str:
    """Run a benchmark small in this process and return its figures, or why there are none."""
    # To import the SDKs would take most of the time of the processes that it starts.
    os.environ.update(lean(openai=name == "serve"))
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    try:
        figures: list[Figure] = importlib.import_module(name).figures(True)
        return figures
    except Unavailable as error:
        return f"{LEFT_OUT}{error}"
    except Exception:
        return f"failed:\n{traceback.format_exc().strip()}"
    finally:
        faulthandler.cancel_dump_traceback_later()


def measured(name: str) -> list[Figure] | str:
    """Run a benchmark in a separate process and return its figures, or why there are none."""
    command = [sys.executable, __file__, "--alone", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"failed: it took longer than {SECONDS} s"
    if done.returncode:
        return f"failed:\n{done.stderr.strip()}"
    answer = json.loads(done.stdout.splitlines()[-1])
    return [Figure(**each) for each in answer] if isinstance(answer, list) else LEFT_OUT + answer


def alone(name: str) -> None:
    """Run a benchmark in this process and print its figures as JSON."""
    be_quiet()
    try:
        answer: object = [asdict(figure) for figure in importlib.import_module(name).figures(False)]
    except Unavailable as error:
        answer = str(error)
    print(json.dumps(answer), flush=True)


def processor_seconds() -> float:
    """The processor time of this process and of all that have been waited for."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"only these: {', '.join(NAMES)}")
    parser.add_argument(
        "--quick", action="store_true", help="run them small, to see that they work"
    )
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if unknown := set(given.names) - set(NAMES):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    if given.alone:
        alone(given.names[0])
    else:
        sys.exit(main(given.names or NAMES, given.quick))
