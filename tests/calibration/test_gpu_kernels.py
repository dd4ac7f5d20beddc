"""What a search may choose for the examples, compiled for GPUs that this machine does not have."""

from __future__ import annotations

from pathlib import Path

import pytest
from calibration.gpu.emitted import built, covering, emitted, lines, options, structures, traced

from waxeq.events import Events
from waxeq.search.session import Session
from waxeq_cupy.kernels import Launch
from waxeq_cupy.nvrtc import MissingCompiler, Nvrtc, Resources

LARGE = "minilm"
EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.py"))


@pytest.fixture
def compiler() -> Nvrtc:
    try:
        return Nvrtc.found()
    except MissingCompiler as e:
        pytest.skip(str(e))


@pytest.mark.slow
def test_every_line_of_every_kernel_of_the_examples_compiles(
    compiler: Nvrtc, virtual: None, unmeasured: None, tmp_path: Path
) -> None:
    """Of the models as they are written, but the largest; `calibration/gpu_kernels.py` compiles every kernel of all and
    of rewritten ones too."""
    kernels: dict[str, Launch] = {}
    with Session.open(options(tmp_path / "t.duckdb", algebra=False), Events()) as session:
        for path in EXAMPLES:
            if path.stem != LARGE:
                own = emitted(session, traced(path))
                assert own, path.stem
                kernels |= own
    few = covering(kernels.values())
    assert set().union(*map(lines, few)) == set().union(*map(lines, kernels.values()))
    assert 20 < len(few) < structures(kernels.values()) < len(kernels)
    rows = list(built(compiler, {x.name: x for x in few}, 2))
    assert {r.architecture for r in rows} == {"sm_80", "sm_90", "sm_90a"}
    assert not [(r.fault, r.launch.text) for r in rows if r.fault]


def test_what_a_gpu_has_not_is_told() -> None:
    fits = Resources(128, 0, 0, 1024)
    assert not fits.excess("", 512, 100 << 10) and "registers" in fits.excess("", 1024)
    assert "spilled" in Resources(128, 0, 8, 0).excess("", 32) and not Resources(8, 8, 8, 0).excess("double x", 32)
    assert "stack" in Resources(8, 64, 0, 0).excess("expf(x)", 32) and not Resources(8, 64, 0, 0).excess("sinf(x)", 32)
    assert "shared" in Resources(8, 0, 0, 49 << 10).excess("", 32) and "shared" in fits.excess("", 32, 227 << 10)
