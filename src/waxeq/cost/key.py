"""What a timing is of, and the timing itself."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from waxeq.cost.features import whole

METHOD = 3
"""Version of the way kernels are timed; timings of another version are not used."""


class Family(NamedTuple):
    """Calls that one regression describes."""

    backend: str
    kernel: str
    code: str
    dtype: str
    device: str


@dataclass(frozen=True)
class TimingKey:
    """One kernel on one call on one device.

    code: hash of the kernel's own text, so that a kernel that is changed is timed anew; text: the lowered text of the
    call (its meaning with canonical axes); dims: "i0=128,i1=384"; layout: strides of result and operands; device:
    fingerprint id; threads used; method: version of the way of timing.
    """

    backend: str
    kernel: str
    code: str
    text: str
    dims: str
    layout: str
    dtype: str
    device: str
    threads: int
    method: int = METHOD

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:  # asked for a hundred times
        return hash((self.kernel, self.code, self.text, self.dims, self.layout, self.dtype, self.device))

    @cached_property
    def digest(self) -> str:
        """A name for the key that is the same in every process: 32 hexadecimal digits."""
        parts = (self.backend, self.kernel, self.code, self.text, self.dims, self.layout, self.dtype, self.device)
        return hashlib.sha256(json.dumps([*parts, self.threads, self.method]).encode()).hexdigest()[:32]

    @cached_property
    def text_hash(self) -> str:
        """Sixteen digits of the SHA-256 of the lowered text: timings of a kernel on equal meanings share it."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    @cached_property
    def family(self) -> Family:
        """The regression this call belongs to."""
        return Family(self.backend, self.kernel, self.code, self.dtype, self.device)

    def work(self, features: Mapping[str, float]) -> Mapping[str, float]:
        """What a call of these features does, with what its sizes and strides tell of it."""
        return whole(features, self.text, self.dims, self.layout, self.dtype)


@dataclass(frozen=True)
class Timing:
    """Raw samples in seconds, features of the call, errors relative to the RMS of the float64 reference (NaN: not
    taken), and when it was taken (seconds since 1970). `disturbed`: other processes had the cores meanwhile; known to
    whoever took it, not stored.

    Raises ValueError without samples, or with one that is not a positive number.
    """

    key: TimingKey
    samples: tuple[float, ...]
    max_relative_error: float
    rms_relative_error: float
    features: Mapping[str, float]
    when: float
    disturbed: bool = False

    def __post_init__(self) -> None:
        if not self.samples or not (min(self.samples) > 0.0 and math.isfinite(sum(self.samples))):
            raise ValueError(f"samples of {self.key.kernel} must be positive seconds, got {self.samples[:3]}")

    @cached_property
    def seconds(self) -> float:
        """The lower quartile of the samples: noise on a shared machine only ever adds."""
        return lower_quartile(self.samples)

    @property
    def rate(self) -> float:
        """Operations a second of a matrix product; 0 for what is none."""
        return self.features.get("flops", 0.0) / self.seconds

    @cached_property
    def interval(self) -> tuple[float, float]:
        """The samples without their lowest and highest tenth: where a sample taken again should fall."""
        s = sorted(self.samples)
        cut = len(s) // 10
        return s[cut], s[-1 - cut]

    @cached_property
    def work(self) -> Mapping[str, float]:
        """What the call does: its features, with what sizes and strides tell of it."""
        return self.key.work(self.features)

    @cached_property
    def id(self) -> int:
        """64 bits that name this very measurement, so that merging it twice stores it once."""
        said = json.dumps([self.key.digest, self.when, self.samples])
        return int.from_bytes(hashlib.sha256(said.encode()).digest()[:8], "big")


def lower_quartile(samples: Sequence[float]) -> float:
    """The sample that a quarter of the others are shorter than."""
    return sorted(samples)[(len(samples) - 1) // 4]
