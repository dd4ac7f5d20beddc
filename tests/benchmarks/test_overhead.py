"""The loop that a plan's call is held against computes what the model means."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.overhead import ROW, by_hand
from benchmarks.row import reference
from benchmarks.workloads import WORKLOADS

from waxeq.runtime.timing import results_error


@pytest.mark.parametrize("small", [False, True])
def test_the_loop_by_hand_is_the_model(small: bool) -> None:
    workload = WORKLOADS[ROW]
    make = workload.small if small else workload.make
    assert make is not None
    arguments = make()
    run = by_hand(arguments)
    first, again = np.array(run()), np.array(run())
    assert np.array_equal(first, again)
    assert results_error([first], reference(workload, arguments)) <= workload.tolerance
