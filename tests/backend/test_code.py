"""The text of a kernel: what changes its hash, and what does not."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from waxeq.backend import code
from waxeq.backend.code import code_hash
from waxeq.backend.discover import backends, kernels
from waxeq.backend.kernel import Kernel

pytestmark = pytest.mark.quick

KERNEL = '''
"""A module."""
from waxeq.backend.kernel import Kernel
from madeup.helpers import SIZE, scale, unused


class Base(Kernel):
    """A base."""

    def accepts(self, call):
        return True

    def features(self, call):
        return {"launches": 1.0}


class Doubles(Base):
    """Doubles."""

    name = "doubles"
    pattern = "(Map f x)"

    def bind(self, call, operands, out, workspace):
        """Bind."""
        return (lambda: scale(operands[0], out),)


def stranger():
    return 1


def make(name):
    return type(name, (Doubles,), {"name": name, "tile": 4})


Made = make("Other")
'''

HELPERS = '''
import numpy as np

SIZE = 4
"""How large."""
FACTOR = 2.0


def scale(x, out):
    """Scale."""
    np.multiply(x, FACTOR, out=out)


def unused():
    return 0
'''

Load = Callable[..., Kernel]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """`load(kernel text, helpers text, class name)`: a kernel of a package that is written and imported afresh."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "madeup").mkdir()
    (tmp_path / "madeup" / "__init__.py").touch()

    def forget() -> None:
        for name in [m for m in sys.modules if m.partition(".")[0] == "madeup"]:
            del sys.modules[name]
        importlib.invalidate_caches()

    def load(kernel: str = KERNEL, helpers: str = HELPERS, name: str = "Doubles") -> Kernel:
        forget()
        (tmp_path / "madeup" / "kernels.py").write_text(kernel)
        (tmp_path / "madeup" / "helpers.py").write_text(helpers)
        for cached in tmp_path.rglob("*.pyc"):  # two edits in one second have one time stamp
            cached.unlink()
        return getattr(importlib.import_module("madeup.kernels"), name)()

    yield load
    forget()


def edited(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""Doubles."""', '"""Computes twice its operand."""'),
        ('        """Bind."""\n', ""),
        ("        return (lambda", "        # fast\n        return (lambda"),
        (
            "return (lambda: scale(operands[0], out),)",
            "return (\n            lambda: scale(operands[0], out),\n        )",
        ),
        ("def stranger():\n    return 1", "def stranger():\n    return 2"),
        ("\n\nclass Base", "\n\n\n\n\nclass Base"),
    ],
)
def test_comments_docstrings_layout_and_strangers_do_not_count(load: Load, old: str, new: str) -> None:
    assert load().code == load(edited(KERNEL, old, new)).code


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("scale(operands[0], out)", "scale(operands[1], out)"),
        ('pattern = "(Map f x)"', 'pattern = "(Map f y)"'),
        ('{"launches": 1.0}', '{"launches": 2.0}'),
        ("class Doubles(Base):", "class Doubles(Base, object):"),
    ],
)
def test_an_edit_of_the_class_or_its_base_counts(load: Load, old: str, new: str) -> None:
    assert load().code != load(edited(KERNEL, old, new)).code


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("FACTOR = 2.0", "FACTOR = 3.0", False),
        ("np.multiply(x, FACTOR, out=out)", "np.multiply(FACTOR, x, out=out)", False),
        ('"""Scale."""', '"""Scale it."""', True),
        ('"""How large."""', '"""The size."""', True),
        ("def unused():\n    return 0", "def unused():\n    return 1", True),
        ("SIZE = 4", "SIZE = 5", True),
    ],
)
def test_what_the_class_uses_of_its_package_counts(load: Load, old: str, new: str, same: bool) -> None:
    assert (load().code == load(helpers=edited(HELPERS, old, new)).code) is same


def test_a_class_made_while_running(load: Load) -> None:
    before = load(name="Made").code
    assert before != load().code
    assert before == load(edited(KERNEL, "def stranger", "# a comment\ndef stranger"), name="Made").code
    assert before != load(edited(KERNEL, '"tile": 4', '"tile": 8'), name="Made").code
    assert before != load(helpers=edited(HELPERS, "2.0", "4.0"), name="Made").code


def test_what_a_module_takes_from_another_counts_through_a_third(load: Load, tmp_path: Path) -> None:
    (tmp_path / "madeup" / "deeper.py").write_text("def unused():\n    return 0\n")
    helpers = edited(HELPERS, "def unused():\n    return 0", "from .deeper import unused")
    kernel = edited(KERNEL, "scale(operands[0], out)", "unused()")
    before = load(kernel, helpers).code
    (tmp_path / "madeup" / "deeper.py").write_text("def unused():\n    return 1\n")
    assert load(kernel, helpers).code != before


def test_a_module_that_only_some_processes_load_counts_in_all(load: Load, tmp_path: Path) -> None:
    late = "from madeup import late\n        return late.go(scale)"
    kernel = edited(KERNEL, "return (lambda: scale(operands[0], out),)", late)
    two = edited(kernel, "Made = ", "class Again(Doubles):\n    pass\n\n\nMade = ")
    place = tmp_path / "madeup" / "late.py"
    place.write_text("def go(x):\n    return x\n")
    alone = load(two, name="Again").code
    first = load(two)
    assert first.code and "madeup.late" not in sys.modules
    importlib.import_module("madeup.late")
    assert vars(sys.modules[type(first).__module__])["Again"]().code == alone
    place.write_text("def go(x):\n    return -x\n")
    assert load(two, name="Again").code != alone


@pytest.mark.parametrize("text", ["raise OSError('no library')", "# -*- coding: none -*-", "x = '\\xff'"])
def test_what_a_function_may_import_is_never_run(text: str, load: Load, tmp_path: Path) -> None:
    late = "from madeup.lazy.inner import go\n        return go(scale)"
    kernel = edited(KERNEL, "return (lambda: scale(operands[0], out),)", late)
    (tmp_path / "madeup" / "lazy").mkdir()
    (tmp_path / "madeup" / "lazy" / "__init__.py").write_bytes(text.encode("latin-1"))
    inner = tmp_path / "madeup" / "lazy" / "inner.py"
    inner.write_bytes(text.encode("latin-1"))
    broken = load(kernel).code
    inner.write_text("def go(x):\n    return x\n")
    assert load(kernel).code != broken and "madeup.lazy" not in sys.modules


def test_a_package_that_imports_from_itself_has_an_end(load: Load, tmp_path: Path) -> None:
    (tmp_path / "madeup" / "__init__.py").write_text("def all_of_it():\n    from madeup import absent\n")
    assert load(edited(KERNEL, "return True", "from madeup import absent\n        return absent")).code


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("WAXEQ_CACHE", str(folder))
    return folder


def test_a_source_is_parsed_once_for_all_processes(load: Load, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> None:
        raise AssertionError("parsed")

    before = load().code
    monkeypatch.setattr(code, "text_of", refuse)
    assert load().code == before  # modules are loaded afresh, as in another process
    with pytest.raises(AssertionError, match="parsed"):
        code_hash(type(load(helpers=edited(HELPERS, "2.0", "4.0"))))


def test_what_is_kept_is_never_taken_for_the_text_of_another_source(load: Load, cache: Path) -> None:
    texts = (KERNEL, edited(KERNEL, '"launches": 1.0', '"launches": 2.0'))
    first, second = (load(t).code for t in texts)
    assert first != second
    assert [load(t).code for t in texts] == [first, second]


@pytest.mark.parametrize("damage", [lambda b: b"", lambda b: b[: len(b) // 2], lambda b: b.replace(b"Mult", b"Sub_")])
def test_a_cache_that_is_damaged_changes_no_hash(load: Load, cache: Path, damage: Callable[[bytes], bytes]) -> None:
    before = load().code
    for file in (f for f in cache.rglob("*") if f.is_file()):
        file.write_bytes(damage(file.read_bytes()))
    assert load().code == before


def test_a_cache_that_cannot_be_written_changes_no_hash(load: Load, cache: Path) -> None:
    before = load().code
    shutil.rmtree(cache)
    cache.touch()
    assert load().code == before


def test_without_source_the_bytecode_counts() -> None:
    def make(body: str) -> type:
        space: dict = {"__name__": "nowhere_to_be_found"}
        exec(f'class Thing:\n    def run(self, x):\n        "{body}"\n        return {body}\n', space)
        return space["Thing"]

    assert code_hash(make("x + 1")) == code_hash(make("x + 1"))
    assert code_hash(make("x + 1")) != code_hash(make("x + 2"))


def test_every_kernel_has_a_hash_that_is_the_same_in_every_process() -> None:
    here = {n: k.code for n, k in kernels(backends()).items()}
    assert all(len(c) == 16 for c in here.values())
    assert len(set(here.values())) == len(here)
    script = (
        "from waxeq.backend.discover import backends, kernels\n"
        "print({n: k.code for n, k in kernels(backends()).items()} == eval(input()))"
    )
    done = subprocess.run([sys.executable, "-c", script], input=repr(here), capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True", done.stderr


def test_a_hash_is_found_once_for_all_processes(load: Load, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> None:
        raise AssertionError("followed")

    before, made = load().code, load(name="Made").code
    monkeypatch.setattr(code, "_follow", refuse)
    assert (load().code, load(name="Made").code) == (before, made)
    with pytest.raises(AssertionError, match="followed"):
        code_hash(type(load(helpers=edited(HELPERS, "return 0", "return 1"))))


def test_a_hash_is_found_anew_where_a_package_that_was_absent_makes_text(
    load: Load, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = edited(KERNEL, "return True", "from lately import made\n        return made()")
    before = load(text).code
    (tmp_path / "lately.py").write_text("KERNEL_TEXT = True\n\n\ndef made():\n    return True\n")
    assert load(text).code == before
    monkeypatch.setitem(sys.modules, "lately", importlib.import_module("lately"))
    assert load(text).code != before


@pytest.mark.parametrize("through", ["lately", "madeup.helpers"])
def test_a_hash_is_found_anew_where_a_package_that_was_loaded_makes_text(
    through: str, load: Load, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said nothing of the kind when it was looked at, in another process."""
    text = edited(KERNEL, "return True", f"from {through} import made\n        return made()")
    helpers = f"from lately import made\n{HELPERS}"
    lately, body = tmp_path / "lately.py", "\n\ndef made():\n    return True\n"
    monkeypatch.setitem(sys.modules, "lately", None)

    def again() -> str:
        importlib.invalidate_caches()
        for cached in tmp_path.rglob("*.pyc"):
            cached.unlink()
        monkeypatch.delitem(sys.modules, "lately")
        monkeypatch.setitem(sys.modules, "lately", importlib.import_module("lately"))
        return load(text, helpers).code

    lately.write_text(body)
    before = again()
    lately.write_text(f"KERNEL_TEXT = True{body}")
    followed = again()
    assert followed != before
    lately.write_text(f"KERNEL_TEXT = True{edited(body, 'True', 'False')}")
    assert again() not in (before, followed)
    lately.write_text(body)
    assert again() == before


def test_what_differs_by_its_attributes_alone_has_a_hash_of_its_own(load: Load, cache: Path) -> None:
    kind = type(load())
    one, other = (type("Same", (kind,), {"tile": n}) for n in (1, 2))
    assert code_hash(one) != code_hash(other)
    kind = type(load())
    assert code_hash(type("Same", (kind,), {"tile": 2})) == code_hash(other)
