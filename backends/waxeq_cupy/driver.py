"""The NVIDIA driver, as far as kernels need it: memory, modules, launches. It comes with the GPU, and nothing else
has to be installed to run kernels that were compiled before.

Source: CUDA Driver API reference, https://docs.nvidia.com/cuda/cuda-driver-api/.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from waxeq.errors import WaxeqError
from waxeq_cupy.device import MissingDevice, driver_library
from waxeq_cupy.kernels import Launch
from waxeq_cupy.prepared import FEW, Prepared, early_here
from waxeq_cupy.tensormaps import TensorMap

_RELEASE = Path("/sys/module/nvidia/version")
"""Where Linux says which release of the driver is loaded."""
_MAJOR, _MINOR = 75, 76
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR."""
_CLOCK, _UNITS, _MEMORY_CLOCK, _BUS = 13, 16, 36, 37
"""CU_DEVICE_ATTRIBUTE_CLOCK_RATE (kHz), _MULTIPROCESSOR_COUNT, _MEMORY_CLOCK_RATE (kHz), _GLOBAL_MEMORY_BUS_WIDTH."""
_THREADS = 39
"""CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR"""
_ORDINAL = 9
"""CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL"""
_APART = 1
"""CU_STREAM_NON_BLOCKING: the stream waits for no other by itself."""
_RELAXED = 2
"""CU_STREAM_CAPTURE_MODE_RELAXED: memory that is collected meanwhile, in any thread, may be given back."""
_TAKES: dict[str, tuple[Any, ...]] = {
    "cuInit": (ctypes.c_uint,),
    "cuDeviceGetCount": (ctypes.c_void_p,),
    "cuDeviceGet": (ctypes.c_void_p, ctypes.c_int),
    "cuDeviceGetName": (ctypes.c_char_p, ctypes.c_int, ctypes.c_int),
    "cuDeviceGetAttribute": (ctypes.c_void_p, ctypes.c_int, ctypes.c_int),
    "cuDriverGetVersion": (ctypes.c_void_p,),
    "cuDevicePrimaryCtxRetain": (ctypes.c_void_p, ctypes.c_int),
    "cuCtxSetCurrent": (ctypes.c_void_p,),
    "cuCtxSynchronize": (),
    "cuMemAlloc_v2": (ctypes.c_void_p, ctypes.c_size_t),
    "cuMemFree_v2": (ctypes.c_uint64,),
    "cuMemcpyHtoD_v2": (ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t),
    "cuMemcpyDtoH_v2": (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t),
    "cuMemsetD8_v2": (ctypes.c_uint64, ctypes.c_ubyte, ctypes.c_size_t),
    "cuMemGetInfo_v2": (ctypes.c_void_p, ctypes.c_void_p),
    "cuPointerGetAttribute": (ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64),
    "cuMemHostAlloc": (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint),
    "cuMemcpyHtoDAsync_v2": (ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p),
    "cuMemcpyDtoHAsync_v2": (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p),
    "cuMemcpyDtoDAsync_v2": (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p),
    "cuStreamCreate": (ctypes.c_void_p, ctypes.c_uint),
    "cuStreamSynchronize": (ctypes.c_void_p,),
    "cuStreamWaitEvent": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint),
    "cuStreamBeginCapture_v2": (ctypes.c_void_p, ctypes.c_int),
    "cuStreamEndCapture": (ctypes.c_void_p, ctypes.c_void_p),
    "cuGraphInstantiateWithFlags": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64),
    "cuGraphLaunch": (ctypes.c_void_p, ctypes.c_void_p),
    "cuGraphExecDestroy": (ctypes.c_void_p,),
    "cuGraphDestroy": (ctypes.c_void_p,),
    "cuEventCreate": (ctypes.c_void_p, ctypes.c_uint),
    "cuEventRecord": (ctypes.c_void_p, ctypes.c_void_p),
    "cuEventSynchronize": (ctypes.c_void_p,),
    "cuEventElapsedTime": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p),
    "cuModuleLoadData": (ctypes.c_void_p, ctypes.c_char_p),
    "cuModuleGetFunction": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p),
    "cuFuncSetAttribute": (ctypes.c_void_p, ctypes.c_int, ctypes.c_int),
    "cuLaunchKernel": (ctypes.c_void_p, *(ctypes.c_uint,) * 7, *(ctypes.c_void_p,) * 3),
}
"""Parameters of the functions that are used; each answers 0 when all went well."""
_ENCODE = "cuTensorMapEncodeTiled"
_ENCODE_TAKES = (
    ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_uint64, *(ctypes.c_void_p,) * 4, *(ctypes.c_int,) * 4,
)  # fmt: skip
"""Of drivers for CUDA 12 and newer."""
_MOST_SHARED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"""
_ELEMENTS: Mapping[str, int] = MappingProxyType({"float16": 6, "float32": 7, "bfloat16": 9})
_ROUNDED = 11
"""CU_TENSOR_MAP_DATA_TYPE_FLOAT16, _FLOAT32, _BFLOAT16; _TFLOAT32, to which float32 is rounded on its way."""
_PLAIN, _SWIZZLED, _AHEAD, _ZEROS = 0, 3, 2, 0
"""CU_TENSOR_MAP_INTERLEAVE_NONE, _SWIZZLE_128B, _L2_PROMOTION_L2_128B, _FLOAT_OOB_FILL_NONE."""
_MAP, _MAP_BEGINS = 128, 64
"""Bytes of a CUtensorMap, and at multiples of how many it begins."""
_INVALID = 1
"""CUDA_ERROR_INVALID_VALUE"""


class DriverFailed(WaxeqError):
    """The driver refused something, or a kernel failed on the GPU. `code`: what it answered."""

    code = 0


class Driver:
    """One GPU, by the functions of `library`."""

    def __init__(self, library: Any, number: int = 0) -> None:
        self._library = library
        for name, takes in _TAKES.items():
            getattr(library, name).argtypes = takes
        self.call("cuInit", 0)
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        if number >= count.value:
            raise MissingDevice("an NVIDIA driver is here, and no GPU")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), number)
        self.number = device.value
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.number)
        self._context = context
        self._modules: dict[bytes, ctypes.c_void_p] = {}
        self.enter()

    @staticmethod
    def found() -> Driver:
        """The first GPU. Raises MissingDevice."""
        library = driver_library()
        try:
            return Driver(library)
        except DriverFailed as e:
            raise MissingDevice(f"The NVIDIA driver does not work: {e}") from None

    def enter(self) -> None:
        """Make this GPU that of the calling thread."""
        self.call("cuCtxSetCurrent", self._context)

    @cached_property
    def name(self) -> str:
        """ "NVIDIA H200", say."""
        text = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", text, len(text), self.number)
        return text.value.decode()

    @cached_property
    def architecture(self) -> str:
        """ "sm_90", say."""
        return f"sm_{self._attribute(_MAJOR)}{self._attribute(_MINOR)}"

    @cached_property
    def version(self) -> int:
        """The newest CUDA that the driver takes: 13000 is 13.0."""
        value = ctypes.c_int()
        self.call("cuDriverGetVersion", ctypes.byref(value))
        return value.value

    @cached_property
    def release(self) -> str:
        """ "580.65.06", say; empty where the system does not tell. Several of them take the same CUDA."""
        try:
            return _RELEASE.read_text(encoding="ascii").strip()
        except OSError:
            return ""

    def _attribute(self, number: int) -> int:
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), number, self.number)
        return value.value

    @cached_property
    def ceilings(self) -> Mapping[str, Any]:
        """What data sheets promise of a GPU of its clocks and units: the fields of `waxeq.cost.device.Peaks`."""
        unit = self._attribute(_UNITS) * (self._attribute(_CLOCK) or 1_000_000) * 1e3
        bytes_ = 2 * (self._attribute(_MEMORY_CLOCK) or 2_000_000) * 1e3 * (self._attribute(_BUS) or 4096) / 8
        halves = dict.fromkeys(("float16", "bfloat16"), 4096 * unit)
        return {
            "flops": {**halves, "float32": 256 * unit, "float64": 128 * unit},
            "bandwidth": bytes_,
            "cache_bandwidth": 4 * bytes_,
            "launch": 1e-6 if self.early_threads else 2e-6,  # what a small kernel takes of a graph
        }

    @property
    def room(self) -> int:
        """Bytes of memory that are free."""
        self.enter()
        free, whole = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(whole))
        return free.value

    # -- memory, by address

    def holds(self, address: int) -> bool:
        """Whether memory is that of this GPU, as far as the driver knows whose it is."""
        self.enter()
        number = ctypes.c_int()
        try:
            self.call("cuPointerGetAttribute", ctypes.byref(number), _ORDINAL, address)
        except DriverFailed as e:
            if e.code != _INVALID:
                raise
            return False
        return number.value == self.number

    def allocated(self, size: int) -> int:
        """The address of new memory, a multiple of 256."""
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), max(size, 1))
        return address.value

    def free(self, address: int) -> None:
        self.call("cuMemFree_v2", address)

    def upload(self, to: int, host: int, size: int) -> None:
        self.call("cuMemcpyHtoD_v2", to, host, size)

    def download(self, host: int, address: int, size: int) -> None:
        self.call("cuMemcpyDtoH_v2", host, address, size)

    def fill(self, address: int, value: int, size: int) -> None:
        self.call("cuMemsetD8_v2", address, value, size)

    def pinned(self, size: int) -> int:
        """The address of new memory of the CPU that the GPU reads by itself; it stays as long as the process."""
        address = ctypes.c_void_p()
        self.call("cuMemHostAlloc", ctypes.byref(address), size, 0)
        return address.value or 0

    # -- streams: what is started on one happens in order

    def stream(self) -> int:
        """A stream of our own."""
        made = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(made), _APART)
        return made.value or 0

    def upload_on(self, stream: int, to: int, host: int, size: int) -> None:
        """Copy from memory of the CPU, which may be written again when this returns if it is not pinned, and when the
        stream has come so far if it is."""
        self.call("cuMemcpyHtoDAsync_v2", to, host, size, stream)

    def download_on(self, stream: int, host: int, address: int, size: int) -> None:
        """Copy to memory of the CPU; it is there when the stream has come so far."""
        self.call("cuMemcpyDtoHAsync_v2", host, address, size, stream)

    def copy_on(self, stream: int, to: int, address: int, size: int) -> None:
        """Copy from memory of the GPU to other memory of it."""
        self.call("cuMemcpyDtoDAsync_v2", to, address, size, stream)

    def wait_on(self, stream: int) -> None:
        """Until all that was started on a stream has ended. Raises DriverFailed where a kernel failed."""
        self.call("cuStreamSynchronize", stream)

    def event(self) -> int:
        """A point in the work of a stream, once it is recorded."""
        made = ctypes.c_void_p()
        self.call("cuEventCreate", ctypes.byref(made), 0)
        return made.value or 0

    def record(self, event: int, stream: int) -> None:
        """The event is when the stream has done all that was started on it until now."""
        self.call("cuEventRecord", event, stream)

    def follow(self, stream: int, event: int) -> None:
        """What is started on the stream from now on waits for the event."""
        self.call("cuStreamWaitEvent", stream, event, 0)

    def wait_for(self, event: int) -> None:
        """Until a recorded event is."""
        self.call("cuEventSynchronize", event)

    def between(self, first: int, last: int) -> float:
        """Seconds from one recorded event to another."""
        self.call("cuEventSynchronize", last)
        took = ctypes.c_float()
        self.call("cuEventElapsedTime", ctypes.byref(took), first, last)
        return took.value * 1e-3

    # -- kernels

    @property
    def maps(self) -> bool:
        """Whether the driver makes tensor maps."""
        return hasattr(self._library, _ENCODE)

    def mapped(self, m: TensorMap, address: int) -> Any:
        """The tensor map of an array at this address, as a parameter of kernels."""
        encode = getattr(self._library, _ENCODE)
        encode.argtypes = _ENCODE_TAKES
        room = ctypes.create_string_buffer(_MAP + _MAP_BEGINS)
        made = (ctypes.c_char * _MAP).from_buffer(room, -ctypes.addressof(room) % _MAP_BEGINS)
        rank, kind = len(m.axes), _ROUNDED if m.rounded else _ELEMENTS[m.dtype]
        steps = [s * m.item for s in m.steps[1:]]
        self.call(
            _ENCODE, ctypes.addressof(made), kind, rank, address + m.offset * m.item,
            (ctypes.c_uint64 * rank)(*m.sizes), (ctypes.c_uint64 * len(steps))(*steps),
            (ctypes.c_uint32 * rank)(*m.box), (ctypes.c_uint32 * rank)(*(1,) * rank),
            _PLAIN, _SWIZZLED, _AHEAD, _ZEROS,
        )  # fmt: skip
        return made

    def prepared(self, stream: int | None, kernel: int, x: Launch, pointers: Sequence[int]) -> Prepared:
        """A launch on a stream (None: the one that all others wait for). `pointers`: where what it reads lies, where
        what it writes, and where its flag, if it has one."""
        values: list[Any] = [*map(ctypes.c_uint64, pointers), *(self.mapped(m, pointers[m.operand]) for m in x.maps)]
        parameters = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        if x.shared:
            self.call("cuFuncSetAttribute", kernel, _MOST_SHARED, x.shared)
        return Prepared(self.call, kernel, x, stream, (parameters, values), able=self.early_threads > 0)

    @cached_property
    def early_threads(self) -> int:
        """Of how many threads launches may be that are started before those in front of them have ended, and wait for
        them; 0 where none may."""
        if not early_here(self._library, self.architecture, self.version):
            return 0
        return self._attribute(_UNITS) * self._attribute(_THREADS) // FEW

    def captured(self, stream: int, start: Callable[[], object]) -> Graph:
        """What `start` starts on the stream, as one graph; nothing of it runs now."""
        self.call("cuStreamBeginCapture_v2", stream, _RELAXED)
        graph, made = ctypes.c_void_p(), ctypes.c_void_p()
        try:
            start()
        finally:
            self.call("cuStreamEndCapture", stream, ctypes.byref(graph))
        self.call("cuGraphInstantiateWithFlags", ctypes.byref(made), graph, 0)
        self.call("cuGraphDestroy", graph)
        return Graph(self, made.value or 0)

    def forgotten(self, graph: int) -> None:
        """Give back what a graph takes; the thread may be any."""
        self.enter()
        self.call("cuGraphExecDestroy", graph)

    def kernel(self, image: bytes, name: str) -> int:
        """A kernel of a cubin, which is loaded once and stays."""
        module, function = self._modules.get(image), ctypes.c_void_p()
        if module is None:
            module = ctypes.c_void_p()
            self.call("cuModuleLoadData", ctypes.byref(module), image)
            self._modules[image] = module
        self.call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        assert function.value is not None
        return function.value

    def wait(self) -> None:
        """Until all that was started has ended. Raises DriverFailed where a kernel failed."""
        self.call("cuCtxSynchronize")

    def call(self, name: str, *arguments: object) -> None:
        """A function of the driver. Raises DriverFailed."""
        code = getattr(self._library, name)(*arguments)
        if code:
            said = ctypes.c_char_p()
            self._library.cuGetErrorString(code, ctypes.byref(said))
            text = (said.value or b"unknown error").decode()
            failed = DriverFailed(f"{name} failed with code {code} ({text}).")
            failed.code = code
            raise failed


class Graph:
    """Work that was captured, to be started as often as one likes."""

    def __init__(self, driver: Driver, made: int) -> None:
        self._driver, self._made = driver, made
        weakref.finalize(self, driver.forgotten, made).atexit = False

    def start(self, stream: int) -> None:
        """Start it on a stream."""
        self._driver.call("cuGraphLaunch", self._made, stream)
