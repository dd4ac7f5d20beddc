"""What was read into the e-graph is what the model says, however often a value of it is used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from waxeq.egraph import schema
from waxeq.egraph.engine import EGraph
from waxeq.egraph.loaded import LoadedWrong, require_loaded
from waxeq.egraph.lower import Lowered, lower
from waxeq.egraph.snapshot import Snapshot
from waxeq.frontend.trace import trace
from waxeq.ir.graph import expand

X = np.ones((3, 4), np.float32)


def lowered(fn: Callable[..., object], **inputs: np.ndarray) -> Lowered:
    return lower(expand(trace(fn, inputs).graph))


def loaded(model: Lowered) -> Snapshot:
    e = EGraph.of()
    e.load(schema.model_text(model))
    return e.snapshot()


def hubs(**xs: np.ndarray) -> list[np.ndarray]:
    """Some values are used dozens of times, each time with another: names of several of them begin with its own."""
    values = [*xs.values()]
    for i in range(45):
        values.append(values[i % 9] * values[i] + values[(7 * i) % (i + 1)])
    return [values[a] - values[b] for a in range(1, 9) for b in range(10 * a, min(10 * a + 10, len(values)))]


def test_a_value_that_is_used_often_is_not_taken_for_another() -> None:
    """egglog called use 30 of `$t3` as use 0 of `$t33`, and a difference of both was one of a value and itself."""
    model = lowered(hubs, **{f"x{i}": X for i in range(10)})
    require_loaded(loaded(model), model)
    names = [c.split()[1] for c in schema.model_text(model).commands if c.startswith("(let ")]
    assert len(names) > 100 and not any(n[-1].isdigit() for n in names)


def test_both_zeros_are_one_number_and_nan_is_one() -> None:
    def signed(x: np.ndarray) -> tuple[np.ndarray, ...]:
        numbers = x * np.float32(0.0), x * np.float32(-0.0), x + np.float32(np.nan), x.astype(np.float64) * 0.1
        return *numbers, *(np.pad(x, 1, constant_values=v) for v in (0.0, -0.0, np.nan))

    model = lowered(signed, x=X)
    require_loaded(loaded(model), model)


def test_another_program_is_refused() -> None:
    model = lowered(lambda x, y: np.exp(x) - np.exp(y), x=X, y=X)
    right = loaded(model)
    require_loaded(right, model)
    number, wrong = next(
        (i, replace(n, args=(n.args[0], n.args[1], n.args[1])))
        for i, c in enumerate(right.classes)
        for n in c.nodes
        if n.head == "Zip"
    )
    classes = [replace(c, nodes=(wrong,)) if i == number else c for i, c in enumerate(right.classes)]
    with pytest.raises(LoadedWrong, match="lacks the model's Zip of sub, Map, Map"):
        require_loaded(replace(right, classes=tuple(classes)), model)
    with pytest.raises(LoadedWrong, match="another value for"):
        require_loaded(replace(right, roots=dict.fromkeys(right.roots, 0)), model)
