"""Cubins on disk: compiled once for what decides them, shared by processes, built anew when damaged."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from waxeq_cupy import cubins as kept
from waxeq_cupy import nvrtc
from waxeq_cupy.cubins import Cubins
from waxeq_cupy.kernels import prelude


def text(name: str, factor: int = 2) -> str:
    head = f"WX_KERNEL(64) {name}(WX_IN(float) x0, WX_OUT(float) out)"
    return f"{head} {{ out[threadIdx.x] = {factor} * x0[threadIdx.x]; }}\n"


class Elsewhere(nvrtc.Nvrtc):
    """The same compiler, said to be of another version; or none at all."""

    def __init__(self, version: str, works: nvrtc.Nvrtc | None = None) -> None:
        self.version, self.works, self.asked = version, works, 0  # pyright: ignore[reportAttributeAccessIssue]

    def cubin(self, source: str, architecture: str, flags: object = ()) -> nvrtc.Cubin:
        self.asked += 1
        if self.works is None:
            raise AssertionError("nothing is to be compiled on a warm start")
        return self.works.cubin(source, architecture)


def test_a_warm_start_compiles_nothing(tmp_path: Path, compiler: nvrtc.Nvrtc) -> None:
    sources = {n: text(n) for n in ("one", "two")}
    first = Cubins(tmp_path, compiler, "sm_90")
    images = first.images(sources, prelude())
    assert images["one"] == images["two"] and images["one"][:4] == b"\x7fELF" and first.made == 2
    again = Cubins(tmp_path, Elsewhere(compiler.version), "sm_90")
    assert again.images(sources, prelude()) == images and again.made == 0
    assert again.images({"two": sources["two"]}, prelude())["two"] == images["two"]


def test_what_is_new_is_compiled_and_nothing_else(tmp_path: Path, compiler: nvrtc.Nvrtc) -> None:
    cubins = Cubins(tmp_path, compiler, "sm_90")
    cubins.images({"one": text("one")}, prelude())
    cubins.images({"one": text("one"), "two": text("two")}, prelude())
    assert cubins.made == 2


def test_kernels_are_compiled_by_as_many_threads_as_there_are_cores(
    tmp_path: Path, compiler: nvrtc.Nvrtc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: all of them were one text, of 64 kernels on a machine of 16 cores."""
    monkeypatch.setattr(kept, "cores", lambda: 3)
    counted = Elsewhere(compiler.version, compiler)
    cubins = Cubins(tmp_path, counted, "sm_90")
    sources = {n: text(n) for n in "abcdefg"}
    images = cubins.images(sources, prelude())
    assert (cubins.made, counted.asked) == (7, 3) and images.keys() == sources.keys()
    assert cubins.images(sources, prelude()) == images and counted.asked == 3
    with pytest.raises(nvrtc.CompileFailed, match="defines no kernel"):
        cubins.images({**{n: text(n, 5) for n in "abcd"}, "none": text("another")}, prelude())
    assert cubins.made == 10, "what others compiled meanwhile is kept"


@pytest.mark.parametrize("what", ["source", "prelude", "architecture", "version"])
def test_whatever_decides_the_code_decides_what_is_found(what: str, tmp_path: Path, compiler: nvrtc.Nvrtc) -> None:
    Cubins(tmp_path, compiler, "sm_90").images({"one": text("one")}, prelude())
    counted = Elsewhere("0.0" if what == "version" else compiler.version, compiler)
    other = Cubins(tmp_path, counted, "sm_80" if what == "architecture" else "sm_90")
    before = prelude() + ("#define OTHER\n" if what == "prelude" else "")
    other.images({"one": text("one", 3 if what == "source" else 2)}, before)
    assert (other.made, counted.asked) == (1, 1)


@pytest.mark.parametrize("damage", ["cut", "changed", "gone", "entry"])
def test_what_is_damaged_is_built_again(damage: str, tmp_path: Path, compiler: nvrtc.Nvrtc) -> None:
    sources = {"one": text("one")}
    image = Cubins(tmp_path, compiler, "sm_90").images(sources, prelude())["one"]
    (library,) = (tmp_path / "libraries").iterdir()
    (entry,) = (tmp_path / "entries").glob("*/*")
    if damage == "cut":
        library.write_bytes(image[:100])
    elif damage == "changed":
        library.write_bytes(image[:-1] + bytes([image[-1] ^ 1]))
    elif damage == "gone":
        library.unlink()
    else:
        entry.write_bytes(b"\xff\xfe")
    cubins = Cubins(tmp_path, compiler, "sm_90")
    assert cubins.images(sources, prelude())["one"] == image and cubins.made == 1
    assert Cubins(tmp_path, Elsewhere(compiler.version), "sm_90").images(sources, prelude())["one"] == image


def test_a_source_without_its_kernel_is_a_sentence(tmp_path: Path, compiler: nvrtc.Nvrtc) -> None:
    with pytest.raises(nvrtc.CompileFailed, match="defines no kernel"):
        Cubins(tmp_path, compiler, "sm_90").images({"two": text("one")}, prelude())
    assert not (tmp_path / "libraries").exists()


def test_processes_share_a_folder(tmp_path: Path, compiler: nvrtc.Nvrtc) -> None:
    script = (
        "import sys\nfrom pathlib import Path\nfrom waxeq_cupy.cubins import Cubins\n"
        "from waxeq_cupy.nvrtc import Nvrtc\n"
        "from waxeq_cupy.kernels import prelude\n"
        f"sources = {{n: {text('NAME')!r}.replace('NAME', n) for n in ('one', 'two', 'three')}}\n"
        "images = Cubins(Path(sys.argv[1]), Nvrtc.found(), 'sm_90').images(sources, prelude())\n"
        "assert len(images) == 3 and all(i[:4] == b'\\x7fELF' for i in images.values())\n"
    )

    def run(_: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=120
        )

    with ThreadPoolExecutor(3) as together:
        done = list(together.map(run, range(3)))
    assert all(d.returncode == 0 for d in done), done[0].stderr
    sources = {n: text(n) for n in ("one", "two", "three")}
    assert Cubins(tmp_path, Elsewhere(compiler.version), "sm_90").images(sources, prelude()).keys() == sources.keys()
