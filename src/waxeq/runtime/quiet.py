"""Running without NumPy's floating-point warnings: infinities and NaN are results like any other."""

from __future__ import annotations

from contextvars import Context

import numpy as np


def quiet_context() -> Context:
    """A context in which NumPy does not warn. Entering it costs a tenth of what `np.errstate` does, which is as much as
    a small kernel."""
    context = Context()
    context.run(np.seterr, all="ignore")
    return context
