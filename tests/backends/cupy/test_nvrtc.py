"""NVIDIA's own compiler takes every kernel, for GPUs that this machine does not have."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from waxeq.backend.call import Call, View
from waxeq.ir.term import Term
from waxeq.testing.calls import generated
from waxeq_cupy import nvrtc
from waxeq_cupy.kernels import Launch, Loops, prelude

KernelsOf = Callable[[Iterable[Call]], dict[str, Launch]]
ARCHITECTURES = ("sm_80", "sm_90")


def checked(compiler: nvrtc.Nvrtc, kernels: Mapping[str, Launch], architecture: str) -> None:
    """All at once: the text before them takes longer than they do."""
    source = prelude() + "\n".join(x.source for x in kernels.values())
    found = compiler.cubin(source, architecture).kernels
    assert found.keys() == kernels.keys()
    for name, r in found.items():
        x = kernels[name]
        assert not r.excess(x.text, x.threads) and r.registers <= 96, x.text


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_form_compiles_and_spills_nothing(
    architecture: str, compiler: nvrtc.Nvrtc, kernels_of: KernelsOf, cases: Mapping[str, Call]
) -> None:
    checked(compiler, kernels_of(cases.values()), architecture)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "architecture"), [*enumerate(ARCHITECTURES)])
def test_drawn_calls_compile_and_spill_nothing(
    seed: int, architecture: str, compiler: nvrtc.Nvrtc, loops: Loops, kernels_of: KernelsOf
) -> None:
    kernels = kernels_of(generated("cupy.loops", loops, np.random.default_rng(seed), 13))
    assert len(kernels) > 60, "few kernels prove little"
    checked(compiler, kernels, architecture)


def ptx(compiler: nvrtc.Nvrtc, loops: Loops, call: Call) -> str:
    w = loops.work(call)
    assert w is not None
    return compiler.ptx(prelude() + w.launches[-1].source, "compute_90")


@pytest.mark.parametrize(
    ("name", "loads", "stores"),
    [
        ("element-wise", 2, 1),
        ("halves", 1, 1),
        ("halves to floats", 1, 2),  # 16 bytes of halves are 32 of floats
        ("softmax of rows of 4096", 1, 1),
        ("softmax of rows of 16384", 4, 4),
        ("layer norm", 3 * 3, 3),
    ],
)
def test_memory_is_read_once_and_16_bytes_at_a_time(
    name: str, loads: int, stores: int, compiler: nvrtc.Nvrtc, loops: Loops, named: Callable[[str], Call]
) -> None:
    text = ptx(compiler, loops, named(name))
    moved = re.findall(r"\b(ld|st)\.global(?:\.nc)?(?:\.L\w+)?(\.v\d)?\.", text)
    assert sorted(moved) == [("ld", ".v4")] * loads + [("st", ".v4")] * stores
    assert not re.search(r"\b(?:ld|st)\.local", text)


_MEMORY = r"\b(?:ld|st|red|atom)\.global|\bcp\.async|\bprefetch"


@pytest.mark.parametrize("name", ["softmax of rows of 4096", "transposed and added", "gathered rows", "halves"])
def test_nothing_of_memory_is_touched_before_the_launch_in_front_is_done(
    name: str, compiler: nvrtc.Nvrtc, loops: Loops, named: Callable[[str], Call]
) -> None:
    """What is only read may be read at any time, says `__restrict__`, and a compiler could take it at its word."""
    before, waits, after = ptx(compiler, loops, named(name)).partition("griddepcontrol.wait")
    assert waits and re.search(_MEMORY, after) and not re.search(_MEMORY, before)
    w = loops.work(named(name))
    assert w is not None
    assert "griddepcontrol" not in compiler.ptx(prelude() + w.launches[-1].source, "compute_80"), "which has none"


def test_a_sigmoid_has_no_branch(compiler: nvrtc.Nvrtc, loops: Loops, named: Callable[[str], Call]) -> None:
    """A division has one for the ends of the range, and sixteen of them waited for each other."""
    one = named("element-wise")
    call = replace(one, meaning=Term("Map", "sigmoid", one.meaning))
    text = ptx(compiler, loops, call)
    assert "rcp.approx.ftz.f32" in text and not re.search(r"\bdiv\.\w+", text)


def test_floats_of_16_bits_are_converted_by_the_machine(
    compiler: nvrtc.Nvrtc, loops: Loops, named: Callable[[str], Call]
) -> None:
    text = ptx(compiler, loops, named("softmax of float16"))
    assert "cvt.f32.f16" in text and "cvt.rn.f16.f32" in text
    assert "cvt.rn.bf16.f32" in ptx(compiler, loops, named("softmax of bfloat16"))


def test_threads_of_more_than_32_bits_are_counted_in_64(loops: Loops, named: Callable[[str], Call]) -> None:
    """Their number was worked out in 32 bits and kept in 64: of 2**33 elements the first were made again and again."""
    one = named("element-wise on odd rows")
    for rows, integer in ((1 << 14, "int32_t"), (1 << 26, "int64_t")):
        sizes = {**one.sizes, "i": rows}
        *views, out = (View.dense(v.axes, sizes, v.dtype) for v in (*one.operands, one.out))
        w = loops.work(replace(one, sizes=sizes, operands=tuple(views), out=out))
        assert w is not None
        (number,) = re.findall(r"const \w+ t = (.*);", w.launches[-1].source)
        assert re.fullmatch(rf"\({integer}\)blockIdx\.x \* \d+ \+ \({integer}\)threadIdx\.x", number)


def test_spills_are_seen(compiler: nvrtc.Nvrtc) -> None:
    """A kernel that needs more registers than it may have."""
    body = "".join(f"const float r{n} = x0[t + {n} * 32];\n" for n in range(64))
    total = " + ".join(f"sqrtf(r{n}) * r{63 - n}" for n in range(64))
    head = 'extern "C" __global__ void planted(WX_IN(float) x0, WX_OUT(float) out)'
    source = f"{head} {{ const int t = threadIdx.x; {body} out[t] = {total}; }}"
    assert compiler.cubin(prelude() + source, "sm_90").kernels["planted"].spilled == 0
    assert compiler.cubin(prelude() + source, "sm_90", ["--maxrregcount=24"]).kernels["planted"].spilled > 0


def test_what_does_not_compile_is_a_sentence(compiler: nvrtc.Nvrtc) -> None:
    with pytest.raises(nvrtc.CompileFailed, match=r"refused a kernel: .*error"):
        compiler.cubin(prelude() + "WX_KERNEL(32) planted() { undeclared(); }", "sm_90")


def test_a_library_that_is_none_is_a_sentence() -> None:
    with pytest.raises(nvrtc.MissingCompiler, match="cuda-check"):
        nvrtc.Nvrtc("/nowhere/libnvrtc.so")
