"""Write beside every table here the file that a first run reads in its place: `python calibration/beside.py`.

`waxeq calibrate --output` does it for the table that it writes; this is for tables that were made otherwise.
"""

from __future__ import annotations

from pathlib import Path

from waxeq.cost import archive
from waxeq.cost.shipping import ship


def main() -> None:
    """Write them, and name each table."""
    for path in sorted(Path(__file__).parent.glob("*.parquet")):
        with archive.connect() as db:
            ship(db, path)
        print(path.name)


if __name__ == "__main__":
    main()
