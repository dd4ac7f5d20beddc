"""Machine code of kernels for one architecture: compiled once for a source, its options, the architecture and the
version of the compiler, kept on disk and for the process's life.

Any number of processes may share a folder; what is damaged is compiled again (`waxeq_native.store`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

from waxeq.amounts import cores
from waxeq_cupy.nvrtc import FLAGS, MISSING, CompileFailed, MissingCompiler, Nvrtc
from waxeq_native.library import directory
from waxeq_native.store import LIMIT, Store

_LEAST = 2
"""Kernels that are compiled together at least, others by other threads: the text before them takes a while itself."""
_brought: dict[tuple[str, str, str], bytes] = {}
"""Images that came with a plan, by architecture, the text before every kernel, and the kernel's name."""


def bring(architecture: str, prelude: str, images: Mapping[str, bytes]) -> None:
    """Take in images that were compiled elsewhere, by the names of the kernels they have."""
    _brought.update({(architecture, prelude, name): image for name, image in images.items()})


def capability(architecture: str) -> tuple[int, int]:
    """Of a GPU with an architecture such as "sm_90" or "sm_90a": (9, 0)."""
    digits = architecture.removeprefix("sm_").rstrip("af")
    return int(digits[:-1]), int(digits[-1])


_TEGRA = frozenset({(8, 7), (8, 8), (10, 1), (11, 0)})
"""Machine code of these is taken for no other GPU, and no other's for theirs."""


def _fits(architecture: str) -> list[str]:
    """Architectures whose machine code one runs, the best first: its own, and older ones of its generation (CUDA C++
    Programming Guide, binary compatibility)."""
    major, minor = capability(architecture)
    if not architecture[-1].isdigit() or (major, minor) in _TEGRA:
        return [architecture]
    return [f"sm_{major}{m}" for m in range(minor, -1, -1) if (major, m) not in _TEGRA]


class Cubins:
    """`architecture`: such as "sm_90". `compiler`: None where there is none, and only what was compiled elsewhere can
    run. `limit`: bytes that the folder may take; what was not used for longest goes."""

    def __init__(self, directory: Path, compiler: Nvrtc | None, architecture: str, limit: int = LIMIT) -> None:
        self.compiler, self.architecture = compiler, architecture
        self.store = Store(directory, limit)
        self.made = 0
        """Kernels that this object compiled: none on a warm start."""
        self._images: dict[str, bytes] = {}

    @staticmethod
    def here(architecture: str) -> Cubins:
        """In the folder of compiled kernels, with the compiler of this machine if it has one."""
        try:
            compiler = Nvrtc.found()
        except MissingCompiler:
            compiler = None
        return Cubins(directory() / "cubins", compiler, architecture)

    @property
    def version(self) -> str:
        """Of the compiler; "none" where there is none."""
        return "none" if self.compiler is None else self.compiler.version

    def images(self, sources: Mapping[str, str], prelude: str, architecture: str = "") -> Mapping[str, bytes]:
        """For each kernel, by name, an image that has it: kernels that are compiled together, by one of as many threads
        as there are cores, share one. Each source stands after `prelude`. `architecture`: another one than usual, for
        instructions that it alone has ("sm_90a"). Raises CompileFailed, MissingCompiler, and OSError where the folder
        cannot be written."""
        wanted = architecture or self.architecture
        keys = {name: self._key(name, text, prelude, wanted) for name, text in sources.items()}
        fit = _fits(wanted)
        brought = {n: next((i for a in fit if (i := _brought.get((a, prelude, n)))), None) for n in sources}
        found = {name: brought[name] or self._stored(key) for name, key in keys.items()}
        missing = {name: text for name, text in sources.items() if found[name] is None}
        if missing and self.compiler is None:
            raise MissingCompiler(f"A kernel was not compiled for {wanted} yet, and {MISSING}")
        for names, code in self._made(missing, prelude, wanted) if missing else ():
            self._put(code, [keys[name] for name in names])
            self.made += len(names)
            found |= dict.fromkeys(names, code)
        return {name: image for name, image in found.items() if image is not None}

    def _made(
        self, sources: Mapping[str, str], prelude: str, architecture: str
    ) -> Iterator[tuple[Sequence[str], bytes]]:
        """Kernels that were compiled together, and their machine code. Raises CompileFailed, after all others."""
        many, failed = min(cores(), -(-len(sources) // _LEAST)), None
        groups = [[*sources][n::many] for n in range(many)]
        with ThreadPoolExecutor(many) as pool:
            jobs = [pool.submit(self._compiled, names, sources, prelude, architecture) for names in groups]
            for names, job in zip(groups, jobs, strict=True):
                try:
                    code = job.result()
                except CompileFailed as e:
                    failed = failed or e
                else:
                    yield names, code
        if failed is not None:
            raise failed

    def _compiled(self, names: Sequence[str], sources: Mapping[str, str], prelude: str, architecture: str) -> bytes:
        """Machine code for some kernels. Raises CompileFailed."""
        assert self.compiler is not None
        cubin = self.compiler.cubin("\n".join((prelude, *(sources[n] for n in names))), architecture)
        if lacking := sorted({*names} - cubin.kernels.keys()):
            raise CompileFailed(f"The source of {lacking[0]} defines no kernel of that name.")
        return cubin.code

    def _key(self, *parts: str) -> str:
        whole = (*parts, self.version, *FLAGS)
        return sha256("\0".join(whole).encode()).hexdigest()

    def _stored(self, key: str) -> bytes | None:
        """What is known to answer a key; None where nothing does, or it is damaged."""
        try:
            name = self.store.name(key)
            if name not in self._images:
                path = self.store.used(name)
                if path is None:
                    return None
                self._images[name] = path.read_bytes()
        except (OSError, ValueError):
            return None
        return self._images[name]

    def _put(self, code: bytes, keys: list[str]) -> None:
        self.store.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(dir=self.store.directory, prefix="building-", delete=False) as file:
            file.write(code)
        name = self.store.put(Path(file.name))
        self._images[name] = code
        for key in keys:
            self.store.answers(key, name)
        self.store.make_room({name})
