"""What a kernel's own text is: a hash that no comment, docstring or line break changes, and every other edit does.

The text is the class, its bases, and all that they use of the package they come from (functions, classes, constants),
followed from name to name. Other packages are not followed, for versions of NumPy and the like are part of the device,
but for those that say of themselves, by `KERNEL_TEXT = True`, that they are there to make the text of kernels.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cache, lru_cache
from hashlib import sha256
from importlib.abc import InspectLoader
from importlib.machinery import PathFinder
from operator import attrgetter
from pathlib import Path
from types import ModuleType

from waxeq.__about__ import __version__
from waxeq.backend import kept
from waxeq.backend.hashes import Basis, Hashes, attributes, made_running
from waxeq.backend.text import Import, Text, text_of


@lru_cache(maxsize=1024)
def code_hash(kind: type) -> str:
    """Sixteen hexadecimal digits of the text of a class. For a class made while running (by `type(...)`), its plain
    attributes and the text of its bases; where no source is to be had, the bytecode of its methods."""
    package = _package(kind.__module__)
    hashes = _hashes(package, sys.modules.get(package))
    found = hashes.known(kind)
    if found is None:
        found, basis = _hashed(kind)
        if basis is not None:
            hashes.keep(kind, found, basis)
    return found


@lru_cache(maxsize=64)
def _hashes(package: str, module: ModuleType | None) -> Hashes:
    """What is known of classes of a package, which is forgotten when it is loaded afresh."""
    own = (_source(sys.modules[m]) or __version__.encode() for m in (__name__, Hashes.__module__))
    return Hashes(package, b"\0".join((_maker(), *own)), _makes_text).read()


def _hashed(kind: type) -> tuple[str, Basis | None]:
    """The hash of a class, and what it hangs on where that can be told in another process."""
    seen: set[_Definition] = set()
    made: list[bytes] = []
    home = next((_package(k.__module__) for k in kind.__mro__ if _written(k)), _package(kind.__module__))
    told = True
    for k in kind.__mro__:
        own = _package(k.__module__) == home
        if own and (text := _written(k)):
            _follow(text, home, seen)
        elif own or not seen:
            made.append(repr((k.__name__, sorted(attributes(k)))).encode())
            told = told and made_running(k)
    texts = (d.text for d in sorted(seen, key=attrgetter("place")))
    return sha256(b"\n".join((*made, *texts))).hexdigest()[:16], _basis(seen, home) if told and seen else None


def _basis(seen: Collection[_Definition], home: str) -> Basis | None:
    """What a text of these definitions hangs on; None where some of it was looked for in vain in what is loaded."""
    named = set[Import]()
    far = {i for d in seen for i in d.far}
    missing = {_package(source) for source, what in far if _brought(source, what, home, named) is None}
    if any(p in sys.modules for p in missing):
        return None
    others = {_package(source) for source, _ in named} - {home}
    return Basis(frozenset(_package(d.place[0]) for d in seen), frozenset(p for p in others if not _makes_text(p)))


def _written(kind: type) -> _Definition | None:
    """The text of a class, where it is in its module. What `type(...)` makes is not, and claims modules at random."""
    unit = _unit(kind.__module__)
    return None if unit is None else unit.defined.get(kind.__name__)


def _package(module: str) -> str:
    return module.partition(".")[0]


@dataclass(eq=False)
class _Definition:
    """What a top-level name is made of. `place`: its module and itself; `near`: what it uses of its module; `far`: what
    it uses that its module imports."""

    place: tuple[str, str]
    text: bytes
    near: list[_Definition] = field(default_factory=list)
    far: list[Import] = field(default_factory=list)
    _settled: dict[str, Collection[_Definition]] = field(default_factory=dict)

    def uses(self, home: str) -> Collection[_Definition]:
        """What it uses, of the package `home` and of those that make the text of kernels."""
        found = self._settled.get(home)
        if found is None:
            brought = [_brought(source, what, home) for source, what in self.far]
            found = {*self.near, *(d for ds in brought for d in ds or ())}
            if None not in brought:
                self._settled[home] = found
        return found


@dataclass(frozen=True)
class _Unit:
    """A module as text: what is made of each top-level name, and what it imports."""

    defined: dict[str, _Definition]
    imported: dict[str, Import]


def _unit(module: str) -> _Unit | None:
    m = sys.modules.get(module)
    return _unloaded(module, sys.modules.get(_package(module))) if m is None else _read(module, m)


@lru_cache(maxsize=256)
def _read(name: str, module: ModuleType) -> _Unit | None:
    return _made(name, _source(module), module.__package__ or module.__name__.rpartition(".")[0])


@lru_cache(maxsize=256)
def _unloaded(name: str, package: ModuleType | None) -> _Unit | None:
    """A module of a package that only some processes load (a function imports it), read where it lies and never run: in
    all of them a kernel's text is the same."""
    found = None if package is None else _lying(name, package)
    return None if found is None else _made(name, found[0], found[1])


def _lying(name: str, package: ModuleType) -> tuple[bytes, str] | None:
    """The source of a module of a package, and which package its own imports are relative to; None where there is
    none."""
    spec, path = None, getattr(package, "__path__", None)
    whole, *parts = name.split(".")
    for part in parts:
        whole = f"{whole}.{part}"
        spec = PathFinder.find_spec(whole, path) if path is not None else None
        path = None if spec is None else spec.submodule_search_locations
    if spec is None or spec.origin is None:
        return None
    try:
        return Path(spec.origin).read_bytes(), spec.parent or ""
    except OSError:  # in an archive, perhaps
        source = spec.loader.get_source(name) if isinstance(spec.loader, InspectLoader) else None
        return None if source is None else (source.encode(), spec.parent or "")


def _made(name: str, source: bytes | None, package: str) -> _Unit | None:
    try:
        text = None if source is None else _text(name, source, package)
    except SyntaxError:
        text = None
    if text is None:
        return None
    defined = {n: _Definition((name, n), f"{name}:{n}:{made}".encode()) for n, made in text.made.items()}
    for n, d in defined.items():
        d.near += (defined[u] for u in text.uses[n] if u in defined)
        d.far += (text.imported[u] for u in text.uses[n] if u not in defined)
    return _Unit(defined, text.imported)


def _source(module: ModuleType) -> bytes | None:
    """The source of a module; None where there is none."""
    try:
        try:
            return Path(inspect.getsourcefile(module) or "").read_bytes()
        except OSError:  # in an archive, perhaps
            return inspect.getsource(module).encode()
    except (OSError, TypeError):
        return None


def _text(name: str, source: bytes, package: str) -> Text:
    """The text of a module: what is made of a source is kept, for that takes longer than all else when a process
    begins. Raises SyntaxError."""
    key = sha256(b"\0".join((_maker(), package.encode(), source))).hexdigest()
    known = kept.read(name, key)
    if known is not None:
        made, uses, imported = json.loads(known)
        return Text(made, uses, {n: (at, what) for n, (at, what) in imported.items()})
    text = text_of(source, package)
    kept.write(name, key, json.dumps((text.made, text.uses, text.imported)))
    return text


@cache
def _maker() -> bytes:
    """What makes texts of sources: the syntax of a version of Python, and how it is written here."""
    return sys.version.encode() + (_source(sys.modules[text_of.__module__]) or __version__.encode())


def _follow(start: _Definition, home: str, seen: set[_Definition]) -> None:
    """Collect a definition and all that it uses, in whatever many steps."""
    waiting = [start]
    while waiting:
        d = waiting.pop()
        if d not in seen:
            seen.add(d)
            waiting += d.uses(home)


def _makes_text(package: str) -> bool:
    """Whether a package is loaded that is there to make the text of kernels."""
    return bool(getattr(sys.modules.get(package), "KERNEL_TEXT", False))


def _brought(
    source: str, what: str | None, home: str, named: set[Import] | None = None
) -> Collection[_Definition] | None:
    """What an import brings in of the packages that are followed: one name, or (of a module) everything. None where
    nothing is found: it may be in a module that is loaded later. What is looked at on the way is added to `named`."""
    met: set[Import] = set()
    while (source, what) not in met:  # a package may import from itself
        met.add((source, what))
        if named is not None:
            named.add((source, what))
        package = sys.modules.get(_package(source))
        if _package(source) != home and not _makes_text(_package(source)):
            return None if package is None else ()
        whole = source if what is None else f"{source}.{what}"
        unit = None if what is None or whole in sys.modules else _unit(source)
        if unit is None or not (what in unit.defined or what in unit.imported):
            unit = _unit(whole)
            return None if unit is None else unit.defined.values()
        if what in unit.defined:
            return (unit.defined[what],)
        source, what = unit.imported[what]
    return None
