"""Hashes of the texts of classes, kept from process to process: following texts from name to name takes longer than
reading them.

What a hash hangs on is kept with it: every source of the packages that its text was found in, and which packages it
names beside these. Where a source is not as it was, or one of the others makes the text of kernels now, what is kept is
of no use.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from types import CodeType, ModuleType

from waxeq.backend import kept

_MOST = 1000
"""Sources of a package that are read to see whether it is as it was; of one that has more, nothing is kept."""


@dataclass(frozen=True)
class Basis:
    """What a text is made of: the packages that it was found in, and those that it names which were not followed, be it
    that they were not loaded or did not say that they make the text of kernels."""

    packages: frozenset[str]
    others: frozenset[str] = frozenset()


@dataclass
class Hashes:
    """Those of the classes of a package, by what they are. `maker`: what makes hashes of texts; `follows`: whether a
    package that is loaded now would be followed."""

    package: str
    maker: bytes
    follows: Callable[[str], bool]
    sources: Mapping[str, str] = field(default_factory=dict)
    others: frozenset[str] = frozenset()
    by_class: dict[str, str] = field(default_factory=dict)

    def read(self) -> Hashes:
        """With what an earlier process kept."""
        text = kept.read(f"hashes of {self.package}", self._key)
        if text is not None:
            self.sources, others, self.by_class = json.loads(text)
            self.others = frozenset(others)
        return self

    def known(self, kind: type) -> str | None:
        """The hash of a class, where it is known and would be the same now."""
        if not self.by_class or not self._as_they_were():
            return None
        return self.by_class.get(identity(kind))

    def keep(self, kind: type, found: str, basis: Basis) -> None:
        """Keep the hash of a class, with those that were found of the same sources."""
        found_in = {p: sources(p, sys.modules.get(p)) for p in sorted(basis.packages)}
        digests = {p: s.digest for p, s in found_in.items() if s is not None and s.stamp == _stamp(sys.modules.get(p))}
        if len(digests) < len(found_in):  # or somebody edits them now: nobody knows which text was read
            return
        if not self._as_they_were():
            self.sources, self.others, self.by_class = {}, frozenset(), {}
        self.sources = {**self.sources, **digests}
        self.others |= basis.others
        self.by_class[identity(kind)] = found
        text = json.dumps((self.sources, sorted(self.others), self.by_class))
        kept.write(f"hashes of {self.package}", self._key, text)

    def _as_they_were(self) -> bool:
        """Whether all sources are those of which hashes are kept, and no other package is followed now."""
        if any(map(self.follows, self.others)):
            return False
        now = {p: sources(p, sys.modules.get(p)) for p in self.sources}
        return all(s is not None and s.digest == self.sources[p] for p, s in now.items())

    @property
    def _key(self) -> str:
        return sha256(self.maker).hexdigest()


def identity(kind: type) -> str:
    """What tells a class from others of the same sources: its name and those of its bases, with the attributes of what
    is no class of a module."""
    return repr([(k.__module__, k.__name__, sorted(attributes(k)) if made_running(k) else None) for k in kind.__mro__])


def made_running(kind: type) -> bool:
    """Whether a class is not the one that its module has by its name."""
    return getattr(sys.modules.get(kind.__module__), kind.__name__, None) is not kind


def attributes(kind: type) -> Iterator[tuple[str, str]]:
    """Names of the attributes of a class, with what they are: code, or what prints the same in every process."""
    for name, v in vars(kind).items():
        if name.startswith("__"):
            continue
        code = getattr(v, "__code__", None)
        if code is not None:
            yield name, _bytecode(code, v.__doc__)
        elif _plain(v):
            yield name, repr(v)


def _bytecode(code: CodeType, doc: str | None = None) -> str:
    parts = (_bytecode(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts if doc is None or c != doc)
    return f"{code.co_code.hex()} {code.co_names} {' '.join(parts)}"


def _plain(v: object) -> bool:
    """Whether a value prints the same in every process."""
    return all(map(_plain, v)) if isinstance(v, tuple) else isinstance(v, str | int | float | None)


Stamp = tuple[tuple[str, int, int], ...]
"""Of files: their names, when they were written, and how long they are."""


@dataclass(frozen=True)
class Sources:
    """What the sources of a package come to, and their stamp when they were read."""

    digest: str
    stamp: Stamp


@lru_cache(maxsize=64)
def sources(package: str, module: ModuleType | None) -> Sources | None:
    """Those of a loaded package; None where they are too many, or none are to be had."""
    files = _files(module)
    if not 0 < len(files) <= _MOST:
        return None
    found, stamp = sha256(package.encode()), _stamp(module)
    try:
        for name, path in files:
            text = path.read_bytes()
            found.update(f"{name}:{len(text)}:".encode() + text)
    except OSError:
        return None
    return Sources(found.hexdigest(), stamp)


def _stamp(module: ModuleType | None) -> Stamp:
    """As of now; of what is not there any more, nothing."""
    rows = []
    for name, path in _files(module):
        with suppress(OSError):
            about = path.stat()
            rows.append((name, about.st_mtime_ns, about.st_size))
    return tuple(rows)


@lru_cache(maxsize=64)
def _files(module: ModuleType | None) -> list[tuple[str, Path]]:
    """The sources of a package by their place in it, in order, when it was first asked for; one more than are read at
    most."""
    path = getattr(module, "__path__", None)
    if path is None:
        only = getattr(module, "__file__", None)
        return [] if only is None else [("", Path(only))]
    found: list[tuple[str, Path]] = []
    for n, folder in enumerate(path):
        for file in Path(folder).rglob("*.py"):
            found.append((f"{n}/{file.relative_to(folder).as_posix()}", file))
            if len(found) > _MOST:
                return found
    return sorted(found)
