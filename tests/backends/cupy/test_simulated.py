"""The simulated device finds what is planted: races, places outside, barriers that not all threads come to."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from waxeq.backend.call import Call
from waxeq_cupy.device import MissingDevice, current
from waxeq_cupy.kernels import Launch, Loops, Work, prelude
from waxeq_cupy.simulated import FLAGS, KernelFault, Simulated, compiler, header
from waxeq_native.compiler import CompileFailed

ORDERS = (0, 1, 2, 3)
HEAD = "WX_KERNEL(64) NAME(WX_IN(float) x0, WX_OUT(float) out) {{ const int t = threadIdx.x; {} }}"


def named_by(body: str) -> tuple[str, str]:
    """The name and the text of a kernel with this body."""
    name = "planted_" + hashlib.sha256(body.encode()).hexdigest()[:16]
    return name, HEAD.format(body).replace("NAME", name)


def launched(device: Simulated, body: str, order: int = 0, threads: int = 64, blocks: int = 2) -> np.ndarray:
    """The 128 results of a kernel with this body, of 128 numbers."""
    name, text = named_by(body)
    device.functions({name: text})
    x, out = np.arange(128, dtype=np.float32), np.full(128, -1, np.float32)
    device.order = order
    device.run(name, [x, out], 1, blocks, threads)
    return out


FINE = {
    "neighbours by shared memory": """WX_SHARED(float, s, 64); s[t] = x0[blockIdx.x * 64 + t]; __syncthreads();
        out[blockIdx.x * 64 + t] = s[63 - t];""",
    "neighbours in a warp": """WX_SHARED(float, s, 64); s[t] = x0[t]; __syncwarp(0xffffffffu);
        out[blockIdx.x * 64 + t] = s[t ^ 1];""",
    "memory that is used again": """WX_SHARED(float, s, 64); s[t] = x0[t]; __syncthreads(); float a = s[63 - t];
        __syncthreads(); s[t] = a; __syncthreads(); out[blockIdx.x * 64 + t] = s[t ^ 1];""",
    "a branch of whole warps": """float a = x0[t]; if (t < 32) a += __shfl_xor_sync(0xffffffffu, a, 1);
        out[blockIdx.x * 64 + t] = a;""",
    "halves of a warp": """float a = x0[t]; const unsigned half = t & 16 ? 0xffff0000u : 0xffffu;
        if (t & 16) a += 1; a += __shfl_xor_sync(half, a, 8); out[blockIdx.x * 64 + t] = a;""",
}
PLANTED = {
    "no barrier": (
        "WX_SHARED(float, s, 64); s[t] = x0[t]; out[blockIdx.x * 64 + t] = s[63 - t];",
        "shared memory is read|race",
    ),
    "no barrier before it is used again": (
        """WX_SHARED(float, s, 64); s[t] = x0[t]; __syncthreads(); float a = s[63 - t]; s[t] = a; __syncthreads();
        out[blockIdx.x * 64 + t] = s[t];""",
        "race: shared memory",
    ),
    "lanes that only shuffle": (
        """WX_SHARED(float, s, 64); s[t] = x0[t]; float a = __shfl_xor_sync(0xffffffffu, x0[t], 1);
        out[blockIdx.x * 64 + t] = a + s[t ^ 1];""",
        "race: shared memory",
    ),
    "a warp's barrier for two warps": (
        "WX_SHARED(float, s, 64); s[t] = x0[t]; __syncwarp(0xffffffffu); out[blockIdx.x * 64 + t] = s[t ^ 32];",
        "shared memory is read|race",
    ),
    "two threads write one element of shared memory": (
        "WX_SHARED(float, s, 64); s[t / 2] = x0[t]; __syncthreads(); out[blockIdx.x * 64 + t] = s[t / 2];",
        "race: shared memory is written by two threads",
    ),
    "two threads write one element": ("out[t / 2] = x0[t];", "race: two threads write one element"),
    "two blocks write one element": ("out[t] = x0[t];", "race: two threads write one element"),
    "shared memory nobody wrote": (
        "WX_SHARED(float, s, 64); if (t < 32) s[t] = x0[t]; __syncthreads(); out[blockIdx.x * 64 + t] = s[t];",
        "read before it is written",
    ),
    "what the block before left in shared memory": (
        """WX_SHARED(float, s, 64); if (blockIdx.x == 0) s[t] = x0[t]; __syncthreads();
        out[blockIdx.x * 64 + t] = s[t];""",
        "read before it is written",
    ),
    "shared memory behind its end": (
        "WX_SHARED(float, s, 64); s[t + 1] = x0[t]; out[blockIdx.x * 64 + t] = 0;",
        "shared memory is used outside",
    ),
    "an operand behind its end": ("out[blockIdx.x * 64 + t] = x0[blockIdx.x * 64 + t + 1];", "read outside"),
    "an operand before its beginning": ("out[blockIdx.x * 64 + t] = x0[t - 1];", "read outside"),
    "the result behind its end": ("out[blockIdx.x * 64 + t + 1] = x0[t];", "written outside"),
    "an array of a thread": (
        "WX_KEPT(float, h, 4); h[t] = x0[t]; out[blockIdx.x * 64 + t] = h[t];",
        "an array of a thread",
    ),
    "elements that do not begin at 16 bytes": (
        "if (t < 8) wx_given<4>(out, blockIdx.x * 64 + t * 4 + 1, wx_taken<4>(x0, t * 4));",
        "several elements are written",
    ),
    "a barrier in a branch": (
        "if (t < 32) __syncthreads(); out[blockIdx.x * 64 + t] = x0[t];",
        "waits at a barrier when others have ended",
    ),
    "two barriers": (
        "if (t < 32) { __syncthreads(); }\n else { __syncthreads(); }\n out[blockIdx.x * 64 + t] = x0[t];",
        "different barriers",
    ),
    "a thread that ends before a barrier": (
        "if (t == 5) return; __syncthreads(); out[blockIdx.x * 64 + t] = x0[t];",
        "when others have ended",
    ),
    "a shuffle in a branch": (
        "float a = x0[t]; if (t & 1) a += __shfl_xor_sync(0xffffffffu, a, 1); out[blockIdx.x * 64 + t] = a;",
        "a lane waits for one that has ended",
    ),
    "shuffles at different places": (
        """float a = x0[t]; if (t & 1) { a += __shfl_xor_sync(0xffffffffu, a, 1); }
        else { a -= __shfl_xor_sync(0xffffffffu, a, 1); } out[blockIdx.x * 64 + t] = a;""",
        "at different places",
    ),
    "a shuffle for others": (
        "out[blockIdx.x * 64 + t] = __shfl_xor_sync(0xffffu, x0[t], 1);",
        "not among those that it names",
    ),
    "a shuffle from others": (
        "out[blockIdx.x * 64 + t] = __shfl_xor_sync(t & 16 ? 0xffff0000u : 0xffffu, x0[t], 16);",
        "takes from one that it does not name",
    ),
    "what was sent to shared memory and nobody waits for": (
        """WX_SHARED(float, s, 64); if (t < 16) wx_copied<4>(s, t * 4, x0, t * 4, true); __syncthreads();
        out[blockIdx.x * 64 + t] = s[t];""",
        "has not waited for what it sent",
    ),
    "what others sent to shared memory": (
        """WX_SHARED(float, s, 64); if (t < 16) wx_copied<4>(s, t * 4, x0, t * 4, true); wx_copies_here();
        out[blockIdx.x * 64 + t] = s[t];""",
        "shared memory is read",
    ),
    "fragments that some lanes do not come for": (
        """WX_SHARED(uint16_t, s, 256); for (int n = t; n < 256; n += 64) s[n] = n; __syncthreads(); uint32_t r[4];
        if (t & 1) wx_fragments<false>(r, s, (t & 15) * 16); out[blockIdx.x * 64 + t] = r[0];""",
        "a lane waits for one that has ended",
    ),
    "a warp that waits for a barrier and one for a lane": (
        "if (t & 1) __syncthreads(); else __syncwarp(0xffffffffu); out[blockIdx.x * 64 + t] = x0[t];",
        "others that do not come|different places|waits for",
    ),
}  # fmt: skip


@pytest.fixture
def planted(simulated_with: Callable[[Iterable[Launch]], Simulated]) -> Simulated:
    """The device with all of these kernels, compiled at once."""
    found = simulated_with(())
    found.functions(dict(map(named_by, (*FINE.values(), *(body for body, _ in PLANTED.values())))))
    return found


@pytest.mark.parametrize("name", FINE)
def test_what_is_right_passes(name: str, planted: Simulated) -> None:
    results = [launched(planted, FINE[name], order) for order in ORDERS]
    assert all(np.array_equal(results[0], r) for r in results) and -1 not in results[0]


PRODUCT = """WX_SHARED(uint16_t, a, 256); WX_SHARED(uint16_t, b, 128); WX_KEPT(float, c, 4); uint32_t u[4], v[4];
    for (int n = t; n < 256; n += 32) a[n] = wx_narrowed_f16(x0[n % 128]); for (int n = 0; n < 4; n++) c[n] = 0;
    for (int n = t; n < 128; n += 32) b[n] = wx_narrowed_f16(x0[n]); __syncthreads();
    wx_fragments<false>(u, a, {}); wx_fragments<true>(v, b, (t & 15) * 8); const uint32_t w[2] = {{v[0], v[1]}};
    wx_mma<wx_f16>(c, 0, u, w);
    for (int n = 0; n < 4; n++) out[(t / 4 + n / 2 * 8) * 8 + t % 4 * 2 + n % 2] = c[n];"""
"""16 x 16 by 16 x 8 numbers by one warp, the places of the lines of the left side being left open."""


@pytest.mark.parametrize(
    ("places", "right"), [("(t & 15) * 16 + (t >> 4) * 8", True), ("(t >> 1) * 16 + t % 2 * 8", False)]
)
def test_a_warp_multiplies_what_its_lanes_say(places: str, right: bool, planted: Simulated) -> None:
    found = launched(planted, PRODUCT.format(places), threads=32, blocks=1).reshape(16, 8)
    x = np.arange(128.0)
    want = np.tile(x, 2).reshape(16, 16) @ x.reshape(16, 8)
    assert np.array_equal(found, want) == right


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_found_in_any_order(name: str, planted: Simulated) -> None:
    body, said = PLANTED[name]
    for order in ORDERS:
        with pytest.raises(KernelFault, match=said):
            launched(planted, body, order)
    assert launched(planted, FINE["neighbours in a warp"])[1] == 0, "the device works after a fault"


def faulty(call: Call, text: str, device: Simulated, loops: Loops) -> str:
    """What is found when the only kernel of a call has another text."""
    w = loops.work(call)
    assert w is not None and len(w.launches) == 1
    broken = Work((replace(w.launches[0], text=text),), w.workspace)
    arrays = [np.ones(v.shape, v.dtype) for v in call.operands]
    (step,) = device.bound(broken, arrays, np.empty(call.out.shape, call.out.dtype), np.empty(0, np.uint8))
    with pytest.raises(KernelFault) as found:
        step()
    return str(found.value)


@pytest.mark.parametrize("name", ["a transposed copy", "a fold of long folds", "long folds that are used twice"])
def test_a_barrier_that_a_generated_kernel_lacks_is_found(
    name: str, named: Callable[[str], Call], device: Simulated, loops: Loops
) -> None:
    w = loops.work(named(name))
    assert w is not None
    text = w.launches[0].text.replace("wx_met<", "wx_passed<").replace("__syncthreads();", "")
    assert text != w.launches[0].text
    text = f"template <int C, int T> static void wx_passed() {{}}\n{text}"
    assert "race" in (said := faulty(named(name), text, device, loops)) or "read before" in said


@pytest.mark.parametrize("which", [0, 1])
def test_a_barrier_that_folds_lack_is_found(
    which: int, named: Callable[[str], Call], device: Simulated, loops: Loops
) -> None:
    call = named("softmax of rows of 16384")
    folded = re.search(r"^template <class F, int C, int T.*?^}", prelude(), re.M | re.S)
    assert folded is not None
    parts = folded[0].replace("wx_folded", f"wx_lacking{which}").split("__syncthreads();")
    assert len(parts) == 3
    cut = (
        parts[0] + (";" if which == 0 else "__syncthreads();") + parts[1] + ("__syncthreads();" if which == 0 else ";")
    )
    w = loops.work(call)
    assert w is not None
    text = cut + parts[2] + "\n" + w.launches[0].text.replace("wx_folded", f"wx_lacking{which}")
    assert "race" in (said := faulty(call, text, device, loops)) or "read before" in said


def test_a_kernel_that_does_not_compile_is_a_sentence(planted: Simulated) -> None:
    with pytest.raises(CompileFailed, match="gave up"):
        launched(planted, "this is not C++;")


@pytest.mark.parametrize("target", ["", "aarch64-linux-gnu"])
def test_other_compilers_and_machines_take_the_text(
    target: str, named: Callable[[str], Call], loops: Loops, tmp_path: Path
) -> None:
    zig = [sys.executable, "-m", "ziglang", "cc"]
    other = zig if find_spec("ziglang") else [found] if (found := shutil.which("clang++")) else None
    if other is None or (target and other != zig):
        pytest.skip("ziglang is not installed, nor is clang++")
    w = loops.work(named("softmax of rows of 4096"))
    assert w is not None
    (launch,) = w.launches
    source = tmp_path / "kernel.c"
    source.write_text(f"{header()}{prelude()}{launch.source}\nWX_RUNS({launch.name})\n")
    line = [*other, *FLAGS, *(["-target", target] if target else []), "-c", str(source)]  # no library of zig's is built
    subprocess.run([*line, "-o", str(tmp_path / "kernel.o")], check=True)


def test_it_is_never_chosen_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WAXEQ_CUDA")
    with pytest.raises(MissingDevice):
        current()


def test_a_compiler_that_is_named_is_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nowhere/c++")
    with pytest.raises(MissingDevice, match="C\\+\\+ compiler"):
        compiler()
