"""Copies between the memory of the CPU and that of the device: what lies dense in one place, as it lies there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from waxeq.backend.call import Call
from waxeq.backend.kernel import Instruction
from waxeq.backend.storage import CPU
from waxeq_cupy.device import OnDevice

_BUS = {"flops": {"float32": 1e12}, "bandwidth": 2e10, "cache_bandwidth": 2e10, "launch": 1e-5}
"""What the way between a CPU and a GPU usually allows, until it was measured: PCIe from memory that is not pinned."""


class _Transfer(OnDevice):
    form = "transfer"

    def accepts(self, call: Call) -> bool:
        v, out = call.operands[0], call.out
        same = (v.axes, v.shape, v.strides, v.offset, v.dtype) == (out.axes, out.shape, out.strides, 0, out.dtype)
        return call.meaning.head == "In" and same and v.is_dense and self.device != self.origin

    def features(self, call: Call) -> Mapping[str, float]:
        return {"launches": 1.0, "transferred": float(call.out.bytes)}

    def ceilings(self) -> Mapping[str, Any] | None:
        return None if CPU == self.device == self.origin else _BUS


class Upload(_Transfer):
    """From the CPU to the device."""

    name = "upload"

    @property
    def origin(self) -> str:
        return CPU

    def bind(self, call: Call, operands: Sequence[Any], out: Any, workspace: Any) -> Sequence[Instruction]:
        return (partial(out.storage.upload, out, operands[0]),) if call.out.elements else ()


class Download(_Transfer):
    """From the device to the CPU."""

    name = "download"

    @property
    def device(self) -> str:
        return CPU

    @property
    def origin(self) -> str:
        return super().device

    def bind(self, call: Call, operands: Sequence[Any], out: Any, workspace: Any) -> Sequence[Instruction]:
        a = operands[0]
        return (partial(a.storage.download, out, a),) if call.out.elements else ()


KERNELS = (Upload, Download)
