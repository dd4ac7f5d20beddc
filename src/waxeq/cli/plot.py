"""The outcome of `waxeq bench` as a picture."""

from __future__ import annotations

import io
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from waxeq.errors import UsageError
from waxeq.inspect.show import time_
from waxeq.runtime.files import require_writable, write_atomically
from waxeq.symbolic.size import written

FORMATS = (".png", ".svg")
_PLAN, _OTHER = "#1f6feb", "#9aa4b2"


def require_plot(path: Path, option: str = "--plot") -> None:
    """Raise UsageError for a name that is no picture's, or when matplotlib is missing; PlanError when the file cannot
    be written, `option` names another place."""
    if path.suffix not in FORMATS:
        raise UsageError(f"{path} is no name of a picture: give one that ends in {' or '.join(FORMATS)}")
    if find_spec("matplotlib") is None:
        raise UsageError("a picture needs matplotlib: pip install 'waxeq[bench]'")
    require_writable(path, option)


def plot(data: Mapping[str, Any], path: Path) -> None:
    """Bars of median times with quartiles, the fastest on top; each says how many times slower than the plan it is. Of
    a plan for ranges of sizes those at the first one."""
    first = next(iter(data.get("at", ())), {})
    data = {**data, **first}
    rows = sorted((r for r in data["rivals"] if r["seconds"] is not None), key=lambda r: -r["seconds"])
    figure = import_module("matplotlib.figure").Figure(figsize=(7.5, 1.5 + 0.45 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    whiskers = [[r["seconds"] - r["fast"] for r in rows], [r["slow"] - r["seconds"] for r in rows]]
    bars = axes.barh(
        [r["name"] for r in rows],
        [r["seconds"] for r in rows],
        xerr=[[max(0.0, w) for w in side] for side in whiskers],
        color=[_PLAN if r["ratio"] is None else _OTHER for r in rows],
        ecolor="#57606a",
        capsize=2,
    )
    axes.bar_label(bars, [label(r) for r in rows], padding=4)
    axes.margins(x=0.3)
    axes.xaxis.set_major_formatter(lambda x, _: time_(x) if x > 0 else "0")
    axes.set_xlabel("median time and quartiles; beside it, its ratio to the plan's")
    where = f" where {written(first['sizes'])}" if first else ""
    axes.set_title(f"{data['model']}{where}, {data['threads']} thread{'' if data['threads'] == 1 else 's'}")
    axes.spines[["top", "right"]].set_visible(False)
    drawn = io.BytesIO()
    figure.savefig(drawn, format=path.suffix[1:], dpi=150)
    write_atomically(path, drawn.getvalue(), "--plot")


def label(row: Mapping[str, Any]) -> str:
    """What stands beside a bar."""
    return time_(row["seconds"]) + ("" if row["ratio"] is None else f"  {row['ratio']:.2f}x")
