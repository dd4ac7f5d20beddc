"""How well calls are estimated: what `waxeq db status` says of it, and the command `db plot`."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from waxeq.cli.console import finish, working
from waxeq.cli.options import SHOW, Show
from waxeq.errors import TableError, UsageError
from waxeq.events import Events

if TYPE_CHECKING:
    from waxeq.cost.curves import Curve
    from waxeq.cost.device import Peaks
    from waxeq.cost.table import TimingTable

Table = Path | None
_PANELS = 9


def db_plot(
    output: Path,
    /,
    *,
    kernel: Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)] = (),
    table: Table = None,
    show: Show = SHOW,
) -> None:
    """Draw how long kernels take over sizes: measured points, and estimates between them with their intervals.

    Parameters
    ----------
    output
        A .png or .svg file.
    kernel
        Draw this kernel, one that `waxeq backends` lists; may be repeated [default: the nine with most timings].
    table
        Timing table to draw [default: the user's own].
    """
    from waxeq.cli.pictures import draw_curves
    from waxeq.cli.plot import require_plot
    from waxeq.cost.curves import curves

    require_plot(output, option="")
    found: list[Curve] = []
    with working(show) as events:
        store = looked_at(table, events)
        timed = {d: (peaks, [*store.families(d)]) for d, peaks in known_devices(store)}
        _require_kernels(kernel, {t.key.kernel for _, rows in timed.values() for t in rows})
        for peaks, rows in timed.values():
            found += curves(peaks, [t for t in rows if not kernel or t.key.kernel in kernel])
    if not found:
        of = f" of {', '.join(kernel)}" if kernel else ""
        raise TableError(f"{store.path} has too few timings{of} to draw; `waxeq calibrate` makes some")
    families = list(dict.fromkeys(c.family for c in found))[:_PANELS]
    draw_curves([c for c in found if c.family in families], output)
    data = {
        "plot": str(output),
        "families": [{"kernel": f.kernel, "dtype": f.dtype, "device": f.device,
                      "curves": sum(c.family == f for c in found)} for f in families],
    }  # fmt: skip
    finish(show, data, lambda d: f"drawn into {d['plot']}: {', '.join(f['kernel'] for f in d['families'])}")


def _require_kernels(named: Sequence[str], timed: set[str]) -> None:
    """Raise UsageError for a kernel that neither is installed nor was timed."""
    from waxeq.backend.discover import installed, kernels

    known = timed | set(kernels(installed())) if set(named) - timed else timed
    for name in named:
        if name not in known:
            near = get_close_matches(name, known, cutoff=0.4)
            meant = f"the closest are {', '.join(near)}; " * bool(near)
            raise UsageError(f"--kernel {name}: there is no such kernel; {meant}`waxeq backends` lists all")


def looked_at(named: Table, events: Events) -> TimingTable:
    """The table that is named, or the user's own, which is not made by looking. Raises TableError."""
    from waxeq.cost.table import default_path
    from waxeq.cost.unsaved import exists, look
    from waxeq.search.tables import calibration_tables, copied

    if named is not None and not exists(named):
        raise TableError(f"there is no table at {named}")
    return look(named or default_path(), calibration_tables(), seen=copied(events))


def known_devices(store: TimingTable) -> list[tuple[str, Peaks]]:
    """The machines of a table whose ceilings are known."""
    from waxeq.cost.device import Peaks
    from waxeq.cost.memos import PEAKS, of_device

    found = ((d, store.memo_get(PEAKS.name, of_device(d))) for d in store.devices())
    return [(d, Peaks.from_json(text)) for d, text in found if text is not None]


def estimate_rows(store: TimingTable) -> list[dict[str, Any]]:
    """For each family of kernels, and for all kernels of a machine (`kernel` None), how far estimates are off for calls
    that were left out of them."""
    from threadpoolctl import threadpool_limits

    from waxeq.cost.held_out import held_out

    rows = []
    for device, peaks in known_devices(store):
        with threadpool_limits(1):  # the matrices are small
            errors = held_out(peaks, store.families(device))
        rows += [
            {
                "device": device,
                **{n: getattr(h.family, n, None) for n in ("kernel", "dtype", "code")},
                **{n: getattr(h, n) for n in ("timings", "median", "ninth", "inside")},
            }
            for h in errors
        ]
    return rows
