"""`python -m waxeq` is the command `waxeq`."""

from __future__ import annotations

import sys

from waxeq.cli import main

sys.exit(main())
