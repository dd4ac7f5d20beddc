"""Data that ships with waxeq (rules, measured tables): inside the wheel, or beside src/ in a checkout or editable
install.
"""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).resolve().parent


def share(name: str) -> Path:
    """The folder called `name`. A checkout is looked at first: an installed copy may be stale.

    Raises FileNotFoundError when it is in neither place.
    """
    for root in (_HERE.parent.parent, _HERE / "_share"):
        if (root / name).is_dir():
            return root / name
    raise FileNotFoundError(
        f"waxeq's {name!r} folder is neither in the checkout nor in the installed package; reinstall"
    )
