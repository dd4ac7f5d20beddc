"""The native backend of waxeq: generated C, compiled by the machine's own compiler, on threads that stay alive."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from functools import cache, cached_property
from types import MappingProxyType

from waxeq.backend.blas import BORROWERS
from waxeq.backend.kernel import Backend, Kernel

_LAUNCH = 4e-8
"""Seconds from one step of a run of them to the next: a call through a pointer, in C."""


class NativeBackend(Backend):
    """Kernels of generated C, on the CPU."""

    name = "native"
    device = "cpu"

    @cached_property
    def _kernels(self) -> Mapping[str, Kernel]:
        from waxeq_native import (
            argmax,
            calling,
            cholesky,
            copying,
            factored,
            halves,
            loops,
            partial,
            products,
            products_blas,
            products_deep,
            products_in_f32,
            products_integer,
            products_narrow,
            scan,
            scatter,
            select,
            sized,
            sized_products,
            sized_scan,
            sliding,
            sort,
            systems,
            winograd,
        )

        products_of = (products, products_blas, products_deep, products_in_f32, products_integer, products_narrow)
        modules = (argmax, cholesky, copying, factored, halves, loops, *products_of, partial, scan, scatter, select)
        found = [k() for m in (*modules, sliding, sort, systems, winograd) for k in m.KERNELS]
        ranges = {k.name: k() for m in (sized, sized_products, sized_scan) for k in m.KERNELS}
        for k in (*found, *ranges.values()):
            k.sized, k.direct, k.launch = ranges.get(k.name), calling.direct, _LAUNCH
        if products_blas.borrower not in BORROWERS:
            BORROWERS.append(products_blas.borrower)
        return MappingProxyType({f"native.{k.name}": k for k in found})

    @property
    def kernels(self) -> Mapping[str, Kernel]:
        return self._kernels

    def unusable(self) -> str | None:
        """Where no compiler works, or threads, which every kernel needs, cannot be compiled: they are, if they are not
        in the cache."""
        from waxeq_native.compiler import MissingCompiler
        from waxeq_native.library import shared

        try:
            shared()
        except MissingCompiler as e:
            return str(e)
        return _unmade()

    def ready(self, dtypes: Collection[str]) -> None:
        """Compiles the products of matrices, which takes a compiler some seconds, and what makes whole calls."""
        from waxeq_cfamily.functions import DTYPES
        from waxeq_native import calling, gemm

        always = ("float32",)  # halves are multiplied as such, and how many are in a vector tells other kernels
        gemm.made(DTYPES[t] for t in DTYPES if t in dtypes or t in always)
        calling.unusable()

    def chosen(self) -> bool:
        """By CC."""
        return bool(os.environ.get("CC", "").strip())

    def about(self) -> str:
        from waxeq_native.calling import unusable
        from waxeq_native.library import shared

        it, slower = shared(), unusable()
        taken, most = (f"{size / 2**20:.1f} MiB" for size in (it.store.taken(), it.store.limit))
        found = f"{' '.join(it.compiler.command)}; what it compiled takes {taken} of at most {most} in {it.directory}"
        return found if slower is None else f"{found}; {slower}"


@cache
def _unmade() -> str | None:
    """Why what every kernel needs cannot be made in this process, which tries once; None where it is."""
    from waxeq_native import team
    from waxeq_native.compiler import CompileFailed

    try:
        team.code()
    except CompileFailed as e:
        return str(e)
    return None


def backend() -> Backend:
    """The entry point."""
    return NativeBackend()
