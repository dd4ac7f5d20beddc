"""Run in a process of its own, with the sanitizers' runtime loaded: conformance of kernels built with checks."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from waxeq.backend.discover import backends
from waxeq.testing.conformance import check_kernel
from waxeq_native import library
from waxeq_native.compiler import find

CHECKS = (
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g1", "-O1"),
    *("--param", "asan-instrumentation-with-call-threshold=0"),
)
"""Each access is checked by a call, not in line: the same checks, and gcc takes half the time for long functions."""


def main(folder: str, seed: int) -> None:
    os.environ.pop("LD_PRELOAD", None)  # it is in this process; compilers take twice as long with it
    compiler = find()
    checked = library.Library(Path(folder), replace(compiler, flags=(*compiler.flags, *CHECKS)))
    setattr(library, "shared", lambda: checked)  # noqa: B010
    (native,) = backends(["native"])
    for name, k in native.kernels.items():
        found = check_kernel(name, k, calls=8, seed=seed)
        few = found.calls == 0  # a kernel that takes next to none of those that are drawn
        print((check_kernel(name, k, calls=120, seed=seed) if few else found).require())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
