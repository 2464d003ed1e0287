"""Build the wheel and the source archive of a commit, the same bytes each time.

`python .ci/build.py` builds those of the last commit into `dist/`; `--commit v1.0.0` those of another
one. What is not committed is left out. `--twice` builds a second time, in another folder, time zone
and language, and fails if a byte differs. The Python that runs it needs hatchling.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ELSEWHERE = {"TZ": "Pacific/Kiritimati", "LC_ALL": "C", "PYTHONHASHSEED": "1"}
"""What a second build has otherwise, and must not see."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the wheel and the source archive.")
    parser.add_argument("--commit", default="HEAD")
    parser.add_argument("--folder", type=Path, default=ROOT / "dist")
    parser.add_argument("--twice", action="store_true", help="fail if a second build differs")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    if folder.is_dir() and any(folder.iterdir()):
        sys.exit(f"{folder} is not empty: a release has nothing but what is built for it.")
    build(arguments.commit, folder)
    built = checksums(folder)
    if arguments.twice:
        with tempfile.TemporaryDirectory() as second:
            build(arguments.commit, Path(second), ELSEWHERE)
            if built != checksums(Path(second)):
                sys.exit(f"Two builds differ: {built}, then {checksums(Path(second))}.")
    for name, checksum in built.items():
        print(f"{checksum}  {name}")


def build(commit: str, folder: Path, environ: dict[str, str] | None = None) -> None:
    """Build the wheel and the source archive of a commit.

    Args:
        commit: A commit, a tag or a branch.
        folder: Where they are written.
        environ: Environment variables to set.
    """
    with tempfile.TemporaryDirectory() as place:
        tree = Path(place) / "tree"
        archive = Path(place) / "tree.tar"
        subprocess.run(["git", "archive", "--output", archive, commit], cwd=ROOT, check=True)
        with tarfile.open(archive) as packed:
            # Early releases of 3.11 have no filters. What git packs from our own commit needs none.
            options = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            packed.extractall(tree, **options)
        epoch = subprocess.run(
            ["git", "log", "-1", "--format=%ct", commit],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        command = [sys.executable, "-m", "hatchling", "build", "-d", folder]
        variables = {**os.environ, "SOURCE_DATE_EPOCH": epoch, **(environ or {})}
        subprocess.run(command, cwd=tree, env=variables, check=True, capture_output=True)


def checksums(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a folder, by name."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
    }


if __name__ == "__main__":
    main()
