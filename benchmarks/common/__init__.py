"""What several benchmarks use. Importing it makes the helpers of the tests (`kit`) importable."""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"
"""Where the catalogs and cases of the search benchmarks may be; without them a small sample is
used.
"""

sys.path.insert(0, str(ROOT / "tests"))

PEER = next((ROOT / ".third-party" / "casual-mcp").glob("lib/*/site-packages"), None)
"""Where `python3 .ci/third_party.py casual-mcp` installs the peer.

Last on the path, so that both use the same libraries.
"""
if PEER is not None:
    sys.path.append(str(PEER))


def parser_for(description: str) -> argparse.ArgumentParser:
    """Make a command's parser, with the option `--data`.

    Args:
        description: The command's docstring. Its first paragraph is shown.
    """
    parser = argparse.ArgumentParser(description=description.partition("\n\n")[0])
    parser.add_argument(
        "--data",
        type=Path,
        default=DATA if DATA.is_dir() else None,
        help="folder with catalogs and cases",
    )
    return parser
