"""Plan files of plans for ranges of sizes: what is in them, checked when they are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from waxeq.errors import PlanError, UsageError
from waxeq.plan.encode import VERSION
from waxeq.symbolic.dims import Box, Dim
from waxeq.symbolic.offsets import Place
from waxeq.symbolic.plan import Interval, Point, SizedPlan, SizedPlans
from waxeq.symbolic.size import Size, fill, holes, polynomial, template

KEY = "sized"
"""What a file of a plan for ranges of sizes has, and no other plan file."""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _Range(_Strict):
    name: str
    low: int = Field(ge=1)
    high: int = Field(ge=1)


class _Place(_Strict):
    buffers: list[str] = Field(min_length=1)
    below: list[int]


class _Point(_Strict):
    sizes: dict[str, int]
    seconds: float = Field(ge=0)
    basis: str


class _Input(_Strict):
    name: str
    axes: list[int | str]


class _Interval(_Strict):
    ranges: dict[str, list[int]]
    plan: dict[str, Any]
    order: list[_Place]
    curve: list[_Point]

    @model_validator(mode="after")
    def _lowest_first(self) -> _Interval:
        if any(j >= i or j < 0 for i, p in enumerate(self.order) for j in p.below):
            raise ValueError("a place of the arena lies on one that is not below it")
        if any(len(r) != 2 or r[0] > r[1] for r in self.ranges.values()):
            raise ValueError("an interval ends before it begins")
        return self


class _Sized(_Strict):
    dims: list[_Range] = Field(min_length=1)
    takes: list[_Input]
    intervals: list[_Interval] = Field(min_length=1)

    @model_validator(mode="after")
    def _whole(self) -> _Sized:
        names = [d.name for d in self.dims]
        if any(sorted(i.ranges) != sorted(names) for i in self.intervals):
            raise ValueError(f"an interval is not of the dims {', '.join(names)}")
        count = sum(int(np.prod([b - a + 1 for a, b in i.ranges.values()], dtype=object)) for i in self.intervals)
        if count != int(np.prod([d.high - d.low + 1 for d in self.dims], dtype=object)):
            raise ValueError("the intervals do not cover the ranges of the dims once")
        within = {d.name: (d.low, d.high) for d in self.dims}
        if any(a < within[n][0] or b > within[n][1] for i in self.intervals for n, (a, b) in i.ranges.items()):
            raise ValueError("an interval goes beyond the ranges of the dims")
        if any(_meet(i.ranges, j.ranges) for i, j in combinations(self.intervals, 2)):
            raise ValueError("two intervals have a size in common")
        return self


def _meet(a: Mapping[str, Sequence[int]], b: Mapping[str, Sequence[int]]) -> bool:
    """Whether two boxes share sizes."""
    return all(low <= b[n][1] and b[n][0] <= high for n, (low, high) in a.items())


def encode_sized(p: SizedPlans) -> dict[str, Any]:
    """As JSON values."""
    intervals = [
        {
            "ranges": {n: list(r) for n, r in i.box.ranges.items()},
            "plan": template(i.plan.data),
            "order": [{"buffers": list(x.buffers), "below": list(x.below)} for x in i.plan.order],
            "curve": [{"sizes": dict(c.sizes), "seconds": c.seconds, "basis": c.basis} for c in i.curve],
        }
        for i in p.intervals
    ]
    dims = [{"name": d.name, "low": d.low, "high": d.high} for d in p.dims]
    sized_ = {
        "dims": dims,
        "takes": [{"name": n, "axes": template(list(t))} for n, t in p.takes.items()],
        "intervals": intervals,
    }
    return {"waxeq": VERSION, "name": p.name, "about": dict(p.about), KEY: sized_}


def decode_sized(data: Mapping[str, Any], constants: Mapping[str, np.ndarray]) -> SizedPlans:
    """Inverse of `encode_sized`. Raises PlanError, in one sentence, for what is none."""
    try:
        read = _Sized.model_validate(data[KEY])
        dims = tuple(Dim(d.name, d.low, d.high) for d in read.dims)
        middle = {d.name: d.low for d in dims}
        for i in read.intervals:  # no text in the file is more than arithmetic on these dims
            fill(i.plan, middle)
        takes = {x.name: tuple(_axis(a, middle) for a in x.axes) for x in read.takes}
        return SizedPlans(
            data["name"], dims, takes, tuple(_interval(i, constants, dims) for i in read.intervals), data["about"]
        )
    except ValidationError as e:
        first = e.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise PlanError(f"the plan is damaged ({where}: {first['msg']}); make it anew with `waxeq optimize`") from e
    except (KeyError, TypeError, UsageError) as e:
        raise PlanError(f"the plan is damaged ({type(e).__name__}: {e}); make it anew with `waxeq optimize`") from e


def _interval(i: _Interval, constants: Mapping[str, np.ndarray], dims: Sequence[Dim]) -> Interval:
    order = tuple(Place(tuple(p.buffers), tuple(p.below)) for p in i.order)
    box = Box({n: (r[0], r[1]) for n, r in i.ranges.items()})
    plan = SizedPlan(i.plan, order, constants, {d.name: (d.low, d.high) for d in dims})
    return Interval(box, plan, tuple(Point(c.sizes, c.seconds, c.basis) for c in i.curve))


def _axis(x: int | str, names: Iterable[str]) -> int | str | Size:
    return polynomial(x, names) if isinstance(x, str) and holes(x) else x
