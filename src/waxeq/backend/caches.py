"""How large the caches of this machine are."""

from __future__ import annotations

import glob
from functools import cache
from pathlib import Path


@cache
def cache_bytes(level: int) -> int:
    """Bytes of the data cache of a level as the first core sees it, 0 where the system does not say."""
    for folder in map(Path, sorted(glob.glob("/sys/devices/system/cpu/cpu0/cache/index*"))):
        try:
            said, kind, size = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            continue
        if said == str(level) and kind != "Instruction" and size[:-1].isdigit():
            return int(size[:-1]) * {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(size[-1], 1)
    return 0
