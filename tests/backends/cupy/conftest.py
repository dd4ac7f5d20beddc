"""Calls of every form that kernels of CUDA C++ have, and the simulated device to run them on."""

from __future__ import annotations

import ctypes
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import local
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.basis.typing import types
from waxeq.cost.device import Peaks
from waxeq.ir.term import Term
from waxeq_cupy import backend, nvrtc
from waxeq_cupy import device as devices
from waxeq_cupy.kernels import Launch, Loops
from waxeq_cupy.simulated import Argument, Described, Simulated

F32 = "float32"


def call(meaning: Term, sizes: Mapping[str, int], operands: Sequence[str | View], out: str, dtype: str = F32) -> Call:
    """A call on dense operands with these axes each (or on views), and a dense result."""
    views = tuple(v if isinstance(v, View) else View.dense(v, sizes, dtype) for v in operands)
    return Call("cupy.loops", meaning, sizes, views, View.dense(out, sizes, types(meaning)[meaning].dtype))


def softmax(x: Term, k: str) -> Term:
    e = Term("Map", "exp", Term("Zip", "sub", x, Term("Red", "max", k, x)))
    return Term("Zip", "div", e, Term("Sum", k, e))


def mean(x: Term, *axes: str, count: int, dtype: str = F32) -> Term:
    for k in axes:
        x = Term("Sum", k, x)
    return Term("Mul", x, Term("Num", 1.0 / count, dtype))


def norm(x: Term, *axes: str, count: int, dtype: str = F32) -> Term:
    centred = Term("Zip", "sub", x, mean(x, *axes, count=count, dtype=dtype))
    variance = mean(Term("Map", "square", centred), *axes, count=count, dtype=dtype)
    return Term("Mul", centred, Term("Map", "rsqrt", Term("Add", variance, Term("Num", 1e-5, dtype))))


def _rows() -> Iterator[tuple[str, Call]]:
    for n, rows in ((1, 3), (3, 1000), (70, 5), (1000, 40), (1001, 7), (4096, 3), (16384, 2), (40001, 2), (100_000, 3)):
        yield f"softmax of rows of {n}", call(softmax(operand(0, "ij", F32), "j"), {"i": rows, "j": n}, ["ij"], "ij")
    for dtype in ("float16", "bfloat16", "float64"):
        yield (
            f"softmax of {dtype}",
            call(softmax(operand(0, "ij", dtype), "j"), {"i": 6, "j": 1024}, ["ij"], "ij", dtype),
        )
    x, g, b = operand(0, "ij", F32), operand(1, "j", F32), operand(2, "j", F32)
    scaled = Term("Add", Term("Mul", norm(x, "j", count=768), g), b)
    yield "layer norm", call(scaled, {"i": 33, "j": 768}, ["ij", "j", "j"], "ij")
    yield "layer norm of long rows", call(norm(x, "j", count=9000), {"i": 4, "j": 9000}, ["ij"], "ij")
    batch = norm(operand(0, "nchw", F32), "n", "h", "w", count=4 * 9 * 9)
    yield "batch norm", call(batch, {"n": 4, "c": 6, "h": 9, "w": 9}, ["nchw"], "nchw")
    yield "argmax of rows", call(Term("Red", "argmax", "j", x), {"i": 9, "j": 700}, ["ij"], "i")
    yield "argmin of columns", call(Term("Red", "argmin", "i", x), {"i": 300, "j": 70}, ["ij"], "j")


def _folds() -> Iterator[tuple[str, Call]]:
    x = operand(0, "ij", F32)
    for i, j in ((1000, 64), (50, 3), (5000, 3), (300, 9000), (40_000, 33), (7, 1), (70_000, 1)):
        yield f"sum of {i} rows of {j}", call(Term("Sum", "i", x), {"i": i, "j": j}, ["ij"], "j")
    yield "softmax of columns", call(softmax(x, "i"), {"i": 60, "j": 100}, ["ij"], "ij")
    yield "softmax between", call(softmax(operand(0, "ijk", F32), "j"), {"i": 3, "j": 50, "k": 37}, ["ijk"], "ijk")
    cube, sizes = operand(0, "ijk", F32), {"i": 64, "j": 65, "k": 66}
    yield "sum of all", call(Term("Sum", "i", Term("Sum", "j", Term("Sum", "k", cube))), sizes, ["ijk"], "")
    inner = Term("Sum", "j", Term("Mul", operand(1, "ij", F32), operand(2, "j", F32)))
    outer = Term("Sum", "i", Term("Mul", operand(0, "ki", F32), inner))
    for n, again in ((60, "again"), (700, "apart")):
        yield f"two matrices times a vector, {again}", call(outer, dict.fromkeys("ijk", n), ["ki", "ij", "j"], "k")
    softened = softmax(operand(0, "j", F32), "j")
    yield "softmax of one long row", call(softened, {"j": 200_000}, ["j"], "j")
    for kind, dtype in (("max", "float16"), ("any", "bool"), ("all", "bool"), ("prod", "int32"), ("min", "int8")):
        t = Term("Red", kind, "j", operand(0, "ij", dtype))
        yield f"{kind} of {dtype}", call(t, {"i": 5, "j": 2000}, ["ij"], "i", dtype)
    best = Term("Red", "max", "j", Term("Mul", Term("Sum", "k", cube), operand(1, "j", F32)))
    yield "a fold of folds", call(best, {"i": 9, "j": 40, "k": 50}, ["ijk", "j"], "i")
    yield "a fold of folds in columns", call(best, {"i": 40, "j": 6, "k": 50}, ["jki", "j"], "i")
    around = Term("Add", Term("Sum", "k", cube), Term("Red", "max", "j", Term("Sum", "k", cube)))
    yield "folds that are used twice", call(around, {"i": 9, "j": 40, "k": 50}, ["ijk"], "ij")
    long = {"i": 7, "j": 5, "k": 1100}  # folds that all ranks share out, one after another
    yield "a fold of long folds", call(best, long, ["ijk", "j"], "i")
    yield "long folds that are used twice", call(around, long, ["ijk"], "ij")


def _maps() -> Iterator[tuple[str, Call]]:
    x, b = operand(0, "ij", F32), operand(1, "j", F32)
    gelu = Term("Mul", x, Term("Map", "sigmoid", Term("Add", x, b)))
    yield "element-wise", call(gelu, {"i": 64, "j": 128}, ["ij", "j"], "ij")
    yield "element-wise on odd rows", call(gelu, {"i": 64, "j": 129}, ["ij", "j"], "ij")
    flat = Term("Map", "tanh", operand(0, "j", F32))
    yield "a vector with an end", call(flat, {"j": 1003}, ["j"], "j")
    half = Term("Add", operand(0, "j", "float16"), Term("Num", 1.0, "float16"))
    yield "halves", call(half, {"j": 5000}, ["j"], "j", "float16")
    wide = Term("Cast", F32, operand(0, "ij", "float16"))
    yield "halves to floats", call(wide, {"i": 8, "j": 256}, ["ij"], "ij", "float16")
    sizes = {"i": 100, "j": 70}
    yield "a transposed copy", call(operand(0, "ij", F32), sizes, ["ji"], "ij")
    added = Term("Add", Term("Map", "exp", operand(0, "ij", F32)), operand(1, "ij", F32))
    yield "transposed and added", call(added, {"i": 33, "j": 65}, ["ji", "ij"], "ij")
    wide = [operand(n, "ij", "float64") for n in range(3)]
    three = Term("Add", Term("Add", wide[0], wide[1]), wide[2])
    yield "three wide ones transposed", call(three, {"i": 33, "j": 65}, ["ji", "ji", "ji"], "ij", "float64")
    yield "transposed in the middle", call(operand(0, "abc", F32), {"a": 5, "b": 40, "c": 50}, ["acb"], "abc")
    back = View("ij", (100, 70), (-70, -1), F32, 6999)  # pyright: ignore[reportArgumentType]
    yield "backwards", call(Term("Map", "neg", x), sizes, [back], "ij")
    rows = Term("Gather", "k", operand(0, "i", "int64"), operand(1, "kj", F32))
    sizes = {"i": 30, "k": 4, "j": 64}
    yield "gathered rows", call(rows, sizes, [View.dense("i", sizes, "int64"), "kj"], "ij")
    sizes = {"p": 5, "q": 7, "n": 12, "j": 64}
    both = Term("Cat", "p", "q", "n", operand(0, "pj", F32), operand(1, "qj", F32))
    yield "concatenated rows", call(both, sizes, ["pj", "qj"], "nj")
    sizes = {"k": 10, "n": 15, "j": 64}
    yield "padded", call(Term("Pad", "k", "n", 2, 0.5, operand(0, "jk", F32)), sizes, ["jk"], "jn")
    cut = Term("Slice", "k", "n", 3, 2, operand(0, "jk", F32))
    yield "cut out", call(cut, {"k": 100, "n": 40, "j": 6}, ["jk"], "jn")
    window = Term("Sum", "w", Term("Unfold", "k", "o", "w", 1, 1, operand(0, "jk", F32)))
    yield "a moving sum", call(window, {"k": 100, "o": 96, "w": 5, "j": 6}, ["jk"], "jo")


CASES = dict((*_rows(), *_folds(), *_maps()))


class Memory:
    """What the driver calls device memory: blocks at multiples of 256, poisoned, each with its size."""

    def __init__(self) -> None:
        self.blocks: dict[int, tuple[int, Any]] = {}

    def new(self, size: int) -> int:
        raw = np.full(size + 256, 0xEE, np.uint8)
        start = -(-raw.ctypes.data // 256) * 256
        self.blocks[start] = size, raw
        return start

    def around(self, address: int, size: int, pinned: Iterable[Any] = ()) -> tuple[int, int]:
        """The block that these bytes lie in, or the memory of the CPU that a GPU may touch too."""
        here = ((ctypes.addressof(p), len(p)) for p in pinned)
        for start, n in (*((start, n) for start, (n, _) in self.blocks.items()), *here):
            if start <= address and address + size <= start + n:
                return start, start + n
        raise AssertionError("memory that was never allocated, or no longer is")


WITHOUT = {
    "cuInit", "cuDriverGetVersion", "cuGetErrorString", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName",
    "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain",
}  # fmt: skip
"""What a thread may call that has no GPU yet."""


class Stand:
    """The functions of libcuda that are used. What is started on a stream runs when somebody waits for it, and not
    before: whoever does not wait sees old memory. What is started while a stream is captured runs with its graph."""

    def __init__(self, simulated: Simulated, gpus: int = 1) -> None:
        self.memory, self.simulated, self.gpus = Memory(), simulated, gpus
        self.names: list[str] = []
        self.launches: dict[str, Launch] = {}
        self.failing: dict[str, int] = {}
        self.queue: list[Callable[[], object]] = []
        self.capturing: list[Callable[[], object]] | None = None
        self.mode, self.version = 0, 13000
        self.graphs: list[list[Callable[[], object]]] = []
        self.started: list[str] = []
        self.waits: list[tuple[int, int]] = []
        self.waited = 0
        self.events = 0
        self.pinned: list[Any] = []
        self.room: dict[int, int] = {}
        self.maps: list[Described] = []
        self.thread = local()
        self.others: dict[int, int] = {}
        """Which GPU memory lies on that is not on the first."""

    def later(self, do: Callable[[], object], what: str) -> None:
        """Run something when it is waited for."""
        self.started.append(what)
        (self.queue if self.capturing is None else self.capturing).append(do)

    def run(self) -> None:
        while self.queue:
            self.queue.pop(0)()

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)
        own = getattr(type(self), f"_{name}", None)

        def called(*arguments: Any) -> int:
            if name == "cuCtxSetCurrent":
                self.thread.entered = True
            elif name not in WITHOUT and not hasattr(self.thread, "entered"):
                return 201  # CUDA_ERROR_INVALID_CONTEXT
            if self.failing.get(name):
                return self.failing[name]
            return (own(self, *arguments) if own is not None else None) or 0

        found = SimpleNamespace(argtypes=None)
        called.argtypes = found  # pyright: ignore[reportFunctionMemberAccess]
        setattr(self, name, called)
        return called

    def _cuDeviceGetCount(self, to: Any) -> None:
        to._obj.value = self.gpus

    def _cuDeviceGetAttribute(self, to: Any, which: int, number: int) -> None:
        to._obj.value = {75: 9, 76: 0, 39: 2048}.get(which, 100)

    def _cuDeviceGetName(self, to: Any, size: int, number: int) -> None:
        to.value = b"Stand"

    def _cuDriverGetVersion(self, to: Any) -> None:
        to._obj.value = self.version

    def _cuGetErrorString(self, code: int, to: Any) -> None:
        to._obj.value = b"what went wrong"

    def _cuPointerGetAttribute(self, to: Any, which: int, address: int) -> None:
        assert which == 9
        to._obj.value = self.others.get(address, 0)

    def _cuMemAlloc_v2(self, to: Any, size: int) -> None:
        to._obj.value = self.memory.new(size)

    def _cuMemGetInfo_v2(self, free: Any, whole: Any) -> None:
        free._obj.value = whole._obj.value = 1 << 30

    def _cuStreamCreate(self, to: Any, flags: int) -> None:
        assert flags == 1
        to._obj.value = 77

    def _cuEventCreate(self, to: Any, flags: int) -> None:
        self.events += 1
        to._obj.value = self.events

    def _cuStreamWaitEvent(self, stream: int, event: int, flags: int) -> None:
        self.waits.append((stream, event))

    def _cuEventElapsedTime(self, to: Any, first: int, last: int) -> None:
        to._obj.value = 1.5

    def _cuStreamSynchronize(self, stream: int) -> None:
        assert stream == 77 and self.capturing is None, "nobody waits while a stream is captured"
        self.waited += 1
        self.run()

    def _cuEventSynchronize(self, event: int) -> None:
        self.run()

    def _cuStreamBeginCapture_v2(self, stream: int, mode: int) -> None:
        assert stream == 77 and self.capturing is None
        self.capturing, self.mode = [], mode

    def _cuStreamEndCapture(self, stream: int, to: Any) -> None:
        assert self.capturing is not None
        self.graphs.append(self.capturing)
        self.capturing, to._obj.value = None, len(self.graphs)

    def _cuGraphInstantiateWithFlags(self, to: Any, graph: Any, flags: int) -> None:
        to._obj.value = graph.value

    def _cuGraphLaunch(self, made: int, stream: int) -> None:
        self.started.append("graph")
        self.queue += self.graphs[made - 1]

    def _cuMemHostAlloc(self, to: Any, size: int, flags: int) -> None:
        self.pinned.append(ctypes.create_string_buffer(size))
        to._obj.value = ctypes.addressof(self.pinned[-1])

    def _cuMemcpyHtoDAsync_v2(self, to: int, host: int, size: int, stream: int) -> None:
        """From pinned memory it reads what is there when it comes to it."""
        self.memory.around(to, size)
        begins = map(ctypes.addressof, self.pinned)
        if any(b <= host < b + len(p) for b, p in zip(begins, self.pinned, strict=True)):
            self.later(lambda: ctypes.memmove(to, host, size), "upload")
        else:
            staged = ctypes.create_string_buffer(ctypes.string_at(host, size), size)
            self.later(lambda: ctypes.memmove(to, staged, size), "upload")

    def _cuMemcpyDtoHAsync_v2(self, host: int, address: int, size: int, stream: int) -> None:
        self.memory.around(address, size)
        self.later(lambda: ctypes.memmove(host, address, size), "download")

    def _cuMemcpyDtoDAsync_v2(self, to: int, address: int, size: int, stream: int) -> None:
        self.memory.around(address, size)
        self.memory.around(to, size)
        self.later(lambda: ctypes.memmove(to, address, size), "copy")

    def _cuMemFree_v2(self, address: int) -> int:
        if self.capturing is not None and self.mode != 2:
            return 900
        self.run()
        del self.memory.blocks[address]
        return 0

    def _cuMemcpyHtoD_v2(self, to: int, host: int, size: int) -> None:
        self.memory.around(to, size)
        ctypes.memmove(to, host, size)

    def _cuMemcpyDtoH_v2(self, host: int, address: int, size: int) -> None:
        self.memory.around(address, size)
        ctypes.memmove(host, address, size)

    def _cuMemsetD8_v2(self, address: int, value: int, size: int) -> None:
        self.memory.around(address, size)
        ctypes.memset(address, value, size)

    def _cuModuleGetFunction(self, to: Any, module: Any, name: bytes) -> None:
        self.names.append(name.decode())
        to._obj.value = len(self.names)

    def _cuFuncSetAttribute(self, kernel: int, which: int, value: int) -> None:
        assert which == 8 and value <= 227 << 10
        self.room[kernel] = value

    def _cuTensorMapEncodeTiled(
        self, to: int, kind: int, rank: int, address: int, sizes: Any, steps: Any, box: Any, every: Any, *how: int
    ) -> int:
        """What the driver asks of a tensor map; a map is the number of what it was made from."""
        item = {6: 2, 7: 4, 9: 2, 11: 4}[kind]
        rows = (len(sizes), len(steps) + 1, len(box), len(every))
        assert rows == (rank,) * 4 and how == (0, 3, 2, 0) and to % 64 == 0
        if address % 16 or any(s % 16 or s >= 1 << 40 for s in steps) or max(box) > 256 or box[0] * item > 128:
            return 1
        low, high = self.memory.around(address, 0)
        made = Described(address, low - address, high - address, item, rank, how[1] == 3, kind == 11)
        made.sizes[:rank], made.steps[:rank], made.box[:rank] = sizes, (item, *steps), box
        self.maps.append(made)
        ctypes.c_uint64.from_address(to).value = len(self.maps)
        return 0

    def _cuLaunchKernelEx(self, config: Any, kernel: int, parameters: Any, extra: Any) -> None:
        """Only what waits by itself may be started before the one in front of it has ended."""
        c = config._obj
        assert c.count == 1 and (c.attributes[0].id, c.attributes[0].value) == (6, 1) and c.stream == 77
        assert "WX_BEHIND();" in self.launches[self.names[kernel - 1]].text
        self.started.append("early")
        self._cuLaunchKernel(kernel, *c.blocks, *c.threads, c.shared, c.stream, parameters, extra)

    def _cuLaunchKernel(self, kernel: int, *rest: Any) -> None:
        blocks, y, z, threads, u, v, shared, stream, parameters, extra = rest
        launch = self.launches[self.names[kernel - 1]]
        assert (y, z, u, v, shared, extra) == (1, 1, 1, 1, launch.shared, None) and stream in (None, 77)
        assert (blocks, threads) == (launch.blocks, launch.threads) and shared <= self.room.get(kernel, 0)
        values = [ctypes.c_uint64.from_address(p).value for p in parameters]
        pointers, numbers = values[: len(values) - len(launch.maps)], values[len(values) - len(launch.maps) :]
        assert len(pointers) == len(launch.reads) + 1 + launch.looked_up
        self.simulated.compiled([launch])
        sizes = _sizes(launch)
        arguments = []
        for p, item in zip(pointers, sizes, strict=True):
            low, high = self.memory.around(p, 0, self.pinned)
            arguments.append(Argument(p, -((p - low) // item), (high - p) // item))
        arguments += [Argument(ctypes.addressof(self.maps[n - 1]), 0, 0) for n in numbers]
        out = len(launch.reads)
        rows = (launch.name, arguments, out, sizes[out], blocks, threads)
        if stream is None:
            self.simulated.started(*rows)
        else:
            self.later(lambda: self.simulated.started(*rows), launch.name)


def _sizes(launch: Launch) -> list[int]:
    """Bytes of an element behind each parameter, as the text declares them."""
    types = {"float": 4, "double": 8, "int8_t": 1, "uint8_t": 1, "int16_t": 2, "uint16_t": 2, "int32_t": 4,
             "uint32_t": 4, "int64_t": 8, "uint64_t": 8}  # fmt: skip
    head = launch.text[launch.text.index("WX_FUNCTION(") + len("WX_FUNCTION(") : launch.text.index(") {")]
    own = [p for p in head.split(", ") if not p.startswith("WX_MAP")]
    return [4 if p.startswith("WX_FLAG") else types[p[p.index("(") + 1 : p.index(")")]] for p in own]


def launches(loops: Loops, calls: Iterable[Call]) -> dict[str, Launch]:
    """Every kernel of these calls, for memory that begins at 16 bytes and for any other."""
    works = (loops.work(c, aligned=a) for c in calls for a in (True, False))
    return {x.name: x for w in works if w is not None for x in w.launches}


@pytest.fixture(scope="session")
def compiler() -> nvrtc.Nvrtc:
    try:
        return nvrtc.Nvrtc.found()
    except nvrtc.MissingCompiler as e:
        pytest.skip(str(e))


@pytest.fixture(autouse=True)
def _simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(devices.VARIABLE, devices.SIMULATED)


@pytest.fixture(autouse=True)
def _unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the CPU does at most decides nothing here and takes two seconds a table."""
    monkeypatch.setattr("waxeq.cost.table.measure_peaks", lambda n: Peaks({"float32": 1e11}, 1e10, 1e11, 1e-6))


@pytest.fixture
def simulated_with(_simulated: None) -> Iterator[Callable[[Iterable[Launch]], Simulated]]:
    """The device with kernels that are compiled at once: the text before them takes longer than they do."""
    found = devices.current()
    assert isinstance(found, Simulated)

    def compiled(kernels: Iterable[Launch]) -> Simulated:
        found.compiled(list(kernels))
        return found

    yield compiled
    found.order = 0


@pytest.fixture
def device(simulated_with: Callable[[Iterable[Launch]], Simulated], loops: Loops) -> Simulated:
    return simulated_with(launches(loops, CASES.values()).values())


@pytest.fixture(scope="session")
def loops() -> Loops:
    found = backend().kernels["cupy.loops"]
    assert isinstance(found, Loops)
    return found


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Call:
    return CASES[request.param]


@pytest.fixture
def named() -> Callable[[str], Call]:
    return CASES.__getitem__


@pytest.fixture
def cases() -> Mapping[str, Call]:
    return CASES


@pytest.fixture
def kernels_of(loops: Loops) -> Callable[[Iterable[Call]], dict[str, Launch]]:
    return lambda calls: launches(loops, calls)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The entry point, as the package has it, whether this checkout was installed since it has one or not: a folder
    that is on the path of this process, and can be on that of others."""
    declared = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))
    value = declared["project"]["entry-points"]["waxeq.backends"]["cupy"]
    folder = tmp_path / "installed" / "waxeq_tested-0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: waxeq-tested\nVersion: 0\n")
    (folder / "entry_points.txt").write_text(f"[waxeq.backends]\ncupy = {value}\n")
    monkeypatch.syspath_prepend(str(folder.parent))
    return folder.parent


@pytest.fixture
def stand(device: Simulated) -> Stand:
    """A driver that is one in name only: its memory is the machine's, its kernels those of the simulated device."""
    return Stand(device)
