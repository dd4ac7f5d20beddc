"""The same work by torch, in the same run and in turns: eager (which is cuBLAS and SDPA) and compiled, both replayed as
CUDA graphs on inputs that take turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from statistics import median
from typing import Any

import numpy as np
from benchmarks.workload import mapped
from calibration.gpu.check import Check, Outcome
from calibration.gpu.journal import LEFT_OUT, RIGHT
from calibration.gpu.peers import PEERS
from calibration.gpu.plans import WORKLOADS, Bound, arguments
from calibration.gpu.targets import Target

from waxeq.runtime.device_timing import Turns

_ROUNDS = 11
_SPAN = 2e-3
"""Seconds that a sample takes at least, by repeating what is timed."""
Timed = Callable[[int], float]
"""Seconds that one of so many runs takes."""


def _missing(c: Check) -> str | None:
    """Why nobody else can be timed here; None where somebody can."""
    if not c.real:
        return "there is no GPU"
    if find_spec("torch") is None:
        return "torch is not installed"
    import torch

    return None if torch.cuda.is_available() else "torch sees no GPU"


def against_target(c: Check, t: Target, *, compiled: bool) -> Outcome:
    """The fastest of our kernels that are right, against the peer of a target; torch.compile takes most of the time."""
    rows = [r for r in c.journal.of("target") if r.get("target") == t.name and r["outcome"] == RIGHT]
    items = {i.case: i for i in c.items("target")}
    if not rows or (why := _missing(c)):
        return LEFT_OUT, {"why": "no kernel of ours was right" if not rows else why}
    best = items[min(rows, key=lambda r: r["seconds"])["case"]]
    turns = Turns(c.storage, c.bench, c.kernels[best.call.kernel], best.call)
    views = best.call.operands
    sets = [[v.array(f) for v, f in zip(views, flats, strict=True)] for flats in turns.flats]
    import torch

    torch.set_float32_matmul_precision("high" if t.rounded else "highest")
    tensors = [[tensor(a) for a in s] for s in sets]
    found = in_turns(turns.seconds, tensors, lambda *xs: PEERS[t.peer](torch, *xs), compiled=compiled)
    return RIGHT, {"kernel": best.call.kernel, **found}


def against_plan(c: Check, name: str) -> Outcome:
    """The fastest plan of a workload that is right, against its form in torch."""
    rows = [r for r in c.journal.of("plan") if r.get("workload") == name and r["outcome"] == RIGHT]
    w = WORKLOADS[name]
    if not rows or "torch" not in w.forms or (why := _missing(c)):
        return LEFT_OUT, {
            "why": "no plan was right" if not rows else why if "torch" in w.forms else "torch has no form"
        }
    best = min(rows, key=lambda r: r["seconds"])
    ours = Bound.of_kit(c, best["plan"], dict(best["chosen"]))
    given = {n: mapped(a, tensor) for n, a in arguments(w, small=bool(c.kit.about["small"])).items()}
    form, names = w.forms["torch"](), tuple(given)

    def by_name(*values: Any) -> Any:
        return form(**dict(zip(names, values, strict=True)))

    return RIGHT, {"plan": best["case"], **in_turns(ours.replayed, [[*given.values()]], by_name, compiled=True)}


def tensor(a: np.ndarray) -> Any:
    """An array as torch has it, on the GPU."""
    import torch

    if a.dtype.name == "bfloat16":
        return torch.from_numpy(np.ascontiguousarray(a).view(np.int16)).cuda().view(torch.bfloat16)
    return torch.from_numpy(np.ascontiguousarray(a)).cuda()


def in_turns(ours: Timed, sets: Sequence[Sequence[Any]], fn: Callable[..., Any], *, compiled: bool) -> dict[str, Any]:
    """Median seconds of ours and of each peer, sample by sample in turns, and how many times as long as ours each
    takes. A peer that cannot be made or run is left out, with the reason: it says nothing of us."""
    import torch

    makers: dict[str, Callable[[], Callable[..., Any]]] = {"eager": lambda: fn}
    if compiled:
        makers["compiled"] = _compiled(fn)
    others, failed = dict[str, Timed](), dict[str, str]()
    for name, make in makers.items():
        try:
            others[name] = _graph(make(), sets)
            others[name](1)
        except Exception as e:
            others.pop(name, None)
            failed[name] = f"{type(e).__name__}: {e}"[:300]
    timed: Mapping[str, Timed] = {"ours": ours, **others}
    repeats = {n: max(1, round(_SPAN / f(1))) for n, f in timed.items()}
    rounds = [{n: f(repeats[n]) for n, f in timed.items()} for _ in range(_ROUNDS)]
    took = {n: median(r[n] for r in rounds) for n in timed}
    ratios = {n: median(r[n] / r["ours"] for r in rounds) for n in others}
    torch.cuda.empty_cache()
    return {"seconds": took, "ratios": ratios, **({"failed": failed} if failed else {})}


def _compiled(fn: Callable[..., Any]) -> Callable[[], Callable[..., Any]]:
    def make() -> Callable[..., Any]:
        import torch

        torch._dynamo.reset()
        return torch.compile(fn, mode="max-autotune-no-cudagraphs")

    return make


def _graph(fn: Callable[..., Any], sets: Sequence[Sequence[Any]]) -> Timed:
    """A function on each set of arguments, captured into one CUDA graph."""
    import torch

    stream = torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.stream(stream):
        for _ in range(3):
            for s in sets:
                fn(*s)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph, stream=stream):
        kept = [fn(*s) for s in sets]
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def seconds(repeats: int, _: Any = kept) -> float:
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            begin.record()
            for _ in range(repeats):
                graph.replay()
            end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e-3 / repeats / len(sets)

    return seconds
