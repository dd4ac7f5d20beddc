"""What a timing is of, and the timing itself."""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

METHOD = 1
"""Version of the way kernels are timed; timings of another version are not used."""


@dataclass(frozen=True)
class TimingKey:
    """One kernel on one call on one device.

    text: the lowered text of the call (its meaning with canonical axes); dims: "i0=128,i1=384"; layout: strides of result and
    operands; device: fingerprint id; threads used.
    """

    backend: str
    kernel: str
    text: str
    dims: str
    layout: str
    dtype: str
    device: str
    threads: int
    method: int = METHOD

    @cached_property
    def digest(self) -> str:
        """A name for the key that is the same in every process."""
        return hashlib.sha256(repr(self._parts).encode()).hexdigest()

    @property
    def _parts(self) -> tuple:
        return (
            self.backend, self.kernel, self.text, self.dims, self.layout, self.dtype, self.device, self.threads, self.method
        )  # fmt: skip

    @cached_property
    def family(self) -> tuple[str, str]:
        """Calls that one regression describes: kernel and dtype."""
        return self.kernel, self.dtype


@dataclass(frozen=True)
class Timing:
    """Raw samples in seconds, features of the call, errors relative to the RMS of the float64 reference (NaN: not taken)."""

    key: TimingKey
    samples: tuple[float, ...]
    max_relative_error: float
    rms_relative_error: float
    features: Mapping[str, float]
    when: float

    @property
    def seconds(self) -> float:
        return statistics.median(self.samples)
