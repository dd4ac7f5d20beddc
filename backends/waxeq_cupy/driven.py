"""A GPU by its driver: which one it is, and machine code that is loaded on it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from hashlib import sha256
from typing import ClassVar

from waxeq_cupy.cubins import Cubins
from waxeq_cupy.cublaslt import Cublaslt, MissingLibrary
from waxeq_cupy.device import Device
from waxeq_cupy.driver import Driver
from waxeq_cupy.kernels import Launch, prelude
from waxeq_cupy.tensormaps import GENERIC


class Driven(Device):
    """`driver`: the GPU; `cubins`: machine code for it; `way`: how launches get their operands there."""

    way: ClassVar[str]

    def __init__(self, driver: Driver, cubins: Cubins) -> None:
        self.driver, self.cubins = driver, cubins
        self._kernels: dict[str, int] = {}

    @property
    def identity(self) -> str:
        parts = (self.way, self.driver.name, str(self.driver.version), self.driver.release, self.cubins.version)
        return sha256("|".join(parts).encode()).hexdigest()

    @property
    def warpgroups(self) -> bool:
        return self.driver.architecture == GENERIC and self.driver.maps

    @cached_property
    def blas(self) -> Cublaslt | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self.driver.enter()
        try:
            return Cublaslt.found()
        except MissingLibrary:
            return None

    @property
    def _products(self) -> str:
        """What there is to say of who makes products."""
        if self.blas is None:
            return "no cuBLASLt, whose products are no choice (`pip install nvidia-cublas` brings it)"
        return f"cuBLASLt {self.blas.version}"

    def compiled(self, launches: Sequence[Launch]) -> None:
        missing = [x for x in launches if x.name not in self._kernels]
        for architecture in sorted({x.architecture for x in missing}):
            self.driver.enter()
            sources = {x.name: x.source for x in missing if x.architecture == architecture}
            images = self.cubins.images(sources, prelude(), architecture)
            self._kernels |= {name: self.driver.kernel(image, name) for name, image in images.items()}
