"""Pictures of what can be had and of how long kernels take."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waxeq.inspect.show import time_
from waxeq.memory.estimate import amount
from waxeq.runtime.files import write_atomically

if TYPE_CHECKING:
    from waxeq.cost.curves import Curve

_COLORS = ("#1f6feb", "#d1642e", "#2da44e")


def draw_front(data: Mapping[str, Any], path: Path) -> None:
    """Plans by time and error, those of the front joined and named by the memory they take."""
    rows: Sequence[Mapping[str, Any]] = [r for r in data["plans"] if r["rejected"] is None]
    least = min((r["rms"] for r in rows if r["rms"] > 0), default=1e-9)

    def error(r: Mapping[str, Any]) -> float:
        return max(r["rms"], least / 10)

    figure = import_module("matplotlib.figure").Figure(figsize=(7.5, 5), layout="constrained")
    axes = figure.add_subplot()
    peak = max((r["peak"] for r in rows), default=1)
    best = sorted((r for r in rows if r["front"]), key=lambda r: r["seconds"])
    for group, color, name in (
        ([r for r in rows if not r["front"]], "#9aa4b2", "another is as good in all"),
        (best, "#1f6feb", "the front"),
    ):
        sizes = [30 + 170 * r["peak"] / peak for r in group]
        bars = [[r["seconds"] - r["low"] for r in group], [r["high"] - r["seconds"] for r in group]]
        x, y = [r["seconds"] for r in group], [error(r) for r in group]
        axes.errorbar(x, y, xerr=[[max(0.0, w) for w in side] for side in bars], fmt="none", ecolor=color, alpha=0.5)
        axes.scatter(x, y, s=sizes, color=color, alpha=0.8, label=name)
    for r in best:
        text = f"{amount(r['peak'])}{', as written' if r['as_written'] else ''}"
        axes.annotate(text, (r["seconds"], error(r)), xytext=(6, 6), textcoords="offset points", fontsize=8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(lambda x, _: time_(x) if x > 0 else "0")
    axes.xaxis.set_minor_formatter(lambda x, _: "")
    axes.set_xlabel("median time and quartiles")
    axes.set_ylabel("relative RMS error against float64")
    axes.set_title(f"{data['model']}: time, error and memory (area) of plans that ran")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    drawn = io.BytesIO()
    figure.savefig(drawn, format=path.suffix[1:], dpi=150)
    write_atomically(path, drawn.getvalue(), "--plot")


def draw_curves(found: Sequence[Curve], path: Path) -> None:
    """A panel for each family, a curve for each meaning."""
    families = list(dict.fromkeys(c.family for c in found))
    across = min(3, len(families))
    down = -(-len(families) // across)
    figure = import_module("matplotlib.figure").Figure(figsize=(4.2 * across, 3.2 * down), layout="constrained")
    for n, family in enumerate(families):
        axes = figure.add_subplot(down, across, n + 1)
        for c, color in zip((c for c in found if c.family == family), _COLORS, strict=False):
            x = [p.work for p in c.estimated]
            axes.fill_between(x, [p.low for p in c.estimated], [p.high for p in c.estimated], color=color, alpha=0.18)
            axes.plot(x, [p.seconds for p in c.estimated], color=color, linewidth=1)
            below = [max(0.0, p.seconds - p.low) for p in c.measured]
            bars = [below, [max(0.0, p.high - p.seconds) for p in c.measured]]
            axes.errorbar(
                [p.work for p in c.measured], [p.seconds for p in c.measured], yerr=bars, fmt="o", markersize=3,
                color=color, elinewidth=0.8, label=_short(c.text),
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda v, _: time_(v) if v > 0 else "0")
            axis.set_minor_formatter(lambda v, _: "")
        axes.set_title(f"{family.kernel}, {family.dtype}", fontsize=9)
        axes.tick_params(labelsize=7)
        axes.legend(frameon=False, fontsize=6)
        axes.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("time at the machine's ceilings", fontsize=9)
    figure.supylabel("measured points; estimates between them and where nine of ten should lie", fontsize=9)
    drawn = io.BytesIO()
    figure.savefig(drawn, format=path.suffix[1:], dpi=150)
    write_atomically(path, drawn.getvalue())


def _short(text: str) -> str:
    """The heads of a meaning."""
    heads = re.findall(r'\((?!In |Num )([A-Z]\w*)(?: "([a-z]\w+)")?', text)
    said = " ".join(f or h for h, f in heads) or "copy"
    return said if len(said) <= 40 else f"{said[:37]}..."
