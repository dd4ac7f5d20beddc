"""Running without NumPy's floating-point warnings: infinities and NaN are results like any other; and one call at a
time, as a context is entered once."""

from __future__ import annotations

from contextvars import Context

import numpy as np

from waxeq.errors import UsageError


def quiet_context() -> Context:
    """A context in which NumPy does not warn. Entering it costs a tenth of what `np.errstate` does, which is as much as
    a small kernel."""
    context = Context()
    context.run(np.seterr, all="ignore")
    return context


def in_use(e: RuntimeError) -> RuntimeError | UsageError:
    """What to raise where running in such a context raised: another thread may be in it."""
    return used_elsewhere() if "already entered" in str(e) else e


def used_elsewhere() -> UsageError:
    """What to raise where another thread is in a call."""
    return UsageError(
        "the program is running in another thread; give each thread a program of its own: copy.copy(program)"
    )
