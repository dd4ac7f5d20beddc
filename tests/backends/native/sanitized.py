"""Run in a process of its own, with the sanitizers' runtime loaded: conformance of kernels built with checks."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from waxeq.backend.discover import backends
from waxeq.testing.conformance import check_kernel
from waxeq_native import library
from waxeq_native.compiler import find

CHECKS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g1", "-O1")


def main(folder: str, seed: int) -> None:
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
