"""The `waxeq` command. Importing this loads nothing; `main` loads what the command at hand needs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec

INTERRUPTED = 130
NOTHING_WRITTEN = "waxeq: interrupted; nothing was written"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code. Never raises for what a user may do."""
    argv = sys.argv[1:] if argv is None else list(argv)
    try:
        if find_spec("cyclopts") is None:
            from waxeq.cli.bare import run
        else:
            from waxeq.cli.app import run
        return run(argv)
    except KeyboardInterrupt:  # while that was loaded, which takes a moment
        sys.stderr.write(f"{NOTHING_WRITTEN}\n")
        return INTERRUPTED
