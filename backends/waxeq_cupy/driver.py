"""The NVIDIA driver, as far as kernels need it: memory, modules, launches. It comes with the GPU, and nothing else
has to be installed to run kernels that were compiled before.

Source: CUDA Driver API reference, https://docs.nvidia.com/cuda/cuda-driver-api/.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from waxeq.errors import WaxeqError
from waxeq_cupy.device import MissingDevice

_MAJOR, _MINOR = 75, 76
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR."""
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
    "cuModuleLoadData": (ctypes.c_void_p, ctypes.c_char_p),
    "cuModuleGetFunction": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p),
    "cuLaunchKernel": (ctypes.c_void_p, *(ctypes.c_uint,) * 7, *(ctypes.c_void_p,) * 3),
}
"""Parameters of the functions that are used; each answers 0 when all went well."""


class DriverFailed(WaxeqError):
    """The driver refused something, or a kernel failed on the GPU."""


class Driver:
    """One GPU, by the functions of `library`."""

    def __init__(self, library: Any, number: int = 0) -> None:
        self._library = library
        for name, takes in _TAKES.items():
            getattr(library, name).argtypes = takes
        self._call("cuInit", 0)
        count = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        if number >= count.value:
            raise MissingDevice("an NVIDIA driver is here, and no GPU")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(device), number)
        self._number = device.value
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._number)
        self._context = context
        self.enter()

    @staticmethod
    def found() -> Driver:
        """The first GPU. Raises MissingDevice."""
        try:
            library = ctypes.CDLL("libcuda.so.1")
        except OSError:
            raise MissingDevice(
                "no NVIDIA driver is here (libcuda.so.1 cannot be loaded); WAXEQ_CUDA=virtual checks plans without one"
            ) from None
        try:
            return Driver(library)
        except DriverFailed as e:
            raise MissingDevice(f"The NVIDIA driver does not work: {e}") from None

    def enter(self) -> None:
        """Make this GPU that of the calling thread."""
        self._call("cuCtxSetCurrent", self._context)

    @cached_property
    def name(self) -> str:
        """ "NVIDIA H200", say."""
        text = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", text, len(text), self._number)
        return text.value.decode()

    @cached_property
    def architecture(self) -> str:
        """ "sm_90", say."""
        return f"sm_{self._attribute(_MAJOR)}{self._attribute(_MINOR)}"

    @cached_property
    def version(self) -> int:
        """The newest CUDA that the driver takes: 13000 is 13.0."""
        value = ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(value))
        return value.value

    def _attribute(self, number: int) -> int:
        value = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), number, self._number)
        return value.value

    # -- memory, by address

    def allocated(self, size: int) -> int:
        """The address of new memory, a multiple of 256."""
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), max(size, 1))
        return address.value

    def free(self, address: int) -> None:
        self._call("cuMemFree_v2", address)

    def upload(self, to: int, host: int, size: int) -> None:
        self._call("cuMemcpyHtoD_v2", to, host, size)

    def download(self, host: int, address: int, size: int) -> None:
        self._call("cuMemcpyDtoH_v2", host, address, size)

    def fill(self, address: int, value: int, size: int) -> None:
        self._call("cuMemsetD8_v2", address, value, size)

    # -- kernels

    def kernel(self, image: bytes, name: str) -> int:
        """A kernel of a cubin, which stays loaded."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), image)
        self._call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        assert function.value is not None
        return function.value

    def launch(self, kernel: int, blocks: int, threads: int, pointers: Sequence[int]) -> None:
        """Start a kernel whose parameters are all pointers, after all that was started before."""
        values = [ctypes.c_uint64(p) for p in pointers]
        parameters = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
        self._call("cuLaunchKernel", kernel, blocks, 1, 1, threads, 1, 1, 0, None, parameters, None)

    def wait(self) -> None:
        """Until all that was started has ended. Raises DriverFailed where a kernel failed."""
        self._call("cuCtxSynchronize")

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            said = ctypes.c_char_p()
            self._library.cuGetErrorString(code, ctypes.byref(said))
            text = (said.value or b"unknown error").decode()
            raise DriverFailed(f"{name} failed with code {code} ({text}).")
