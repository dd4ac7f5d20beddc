"""Finding backends: through the entry-point group `waxeq.backends`, ours by the same code as a stranger's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import entry_points

from waxeq.backend.kernel import Backend, Kernel
from waxeq.errors import PlanError, UsageError


@dataclass(frozen=True)
class Found:
    """A backend that is installed; `failed`: why it cannot be imported, where that is so."""

    name: str
    distribution: str
    backend: Backend | None
    failed: str | None = None

    @cached_property
    def why(self) -> str | None:
        """Why it cannot be used here; None where it can. Found out when first asked for: a backend may compile for
        it. Raises UsageError for a setting of the user's that makes no sense."""
        if self.backend is None:
            return self.failed
        try:
            return (self.backend.unusable() or "").rstrip(".") or None
        except UsageError:
            raise
        except Exception as e:
            return failure(e)


def found() -> tuple[Found, ...]:
    """Every installed backend, by name. A backend that fails to import, or to say whether it is usable, is reported,
    never raised; but for what the user set to no sense."""
    rows = []
    for e in sorted(entry_points(group="waxeq.backends"), key=lambda e: e.name):
        where = f"{e.dist.name} {e.dist.version}" if e.dist else "?"
        try:
            rows.append(Found(e.name, where, e.load()()))
        except Exception as err:
            rows.append(Found(e.name, where, None, failure(err)))
    return tuple(rows)


def failure(e: BaseException) -> str:
    """What kept the code of a plug-in from being used, and what to install where that is known."""
    if isinstance(e, ModuleNotFoundError) and e.name:
        package = e.name.partition(".")[0]
        return f"the Python package {package} is not installed (pip install {package})"
    return f"{type(e).__name__}: {e}"


def backends(names: Sequence[str] = (), installed: Sequence[Found] | None = None) -> tuple[Backend, ...]:
    """The usable backends called `names`, or all; `installed`: what `found` said, where it was asked already. Raises
    UsageError for one that is missing or unusable."""
    rows = {f.name: f for f in (found() if installed is None else installed)}
    for n in names:
        if n not in rows:
            raise UsageError(f"no backend {n!r} is installed; installed: {', '.join(rows) or 'none'}")
        if rows[n].why:
            raise UsageError(f"backend {n} cannot be used here: {rows[n].why}")
    chosen = [rows[n] for n in names] if names else [f for f in rows.values() if f.why is None]
    usable = tuple(f.backend for f in chosen if f.backend is not None)
    if not usable:
        raise UsageError("no backend can be used: reinstall waxeq, its NumPy backend comes with it")
    return usable


def installed(names: Sequence[str] = ()) -> tuple[Backend, ...]:
    """The installed backends called `names`, or all, whether they can be used here or not. Raises UsageError for one
    that is missing or cannot be imported."""
    rows = found()
    there = {f.name: f.backend for f in rows if f.backend is not None}
    if missing := [n for n in names if n not in there]:
        backends(missing, rows)
    return tuple(there[n] for n in names or there)


def require(wanted: Iterable[str], there: Mapping[str, Kernel]) -> None:
    """Raises PlanError, with the reason, where a kernel that a plan uses, by its full name, is not there."""
    if missing := sorted(set(wanted) - set(there)):
        why = lacking(missing[0])
        raise PlanError(f"the plan uses kernel {missing[0]}, which no usable backend has here: {why}")


def lacking(kernel: str) -> str:
    """Why no usable backend has a kernel, by its full name."""
    name = kernel.partition(".")[0]
    row = next((f for f in found() if f.name == name), None)
    if row is None:
        return f"no backend {name!r} is installed"
    return row.why or f"backend {name} has no kernel of that name here"


def kernels(of: Sequence[Backend]) -> Mapping[str, Kernel]:
    """Every kernel of these backends by full name."""
    return {name: k for b in of for name, k in b.kernels.items()}
