"""C as a compiler of another machine sees it: preprocessed with that machine's flags, so that nothing is left of what
other machines have, of comments and of macros; of what stands before a function, what it comes to.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

_MARK = "wx_next_function"
_SECONDS = 120
_MACRO = re.compile(r"^\s*#\s*(?:define|undef)\b", re.MULTILINE)
_WORD = re.compile(r"[A-Za-z_]\w*")
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|^[ \t]*#[^\n]*$|[(){}\[\];]', re.MULTILINE)
"""What may begin or end something, or hide what does: literals, and lines of pragmas."""
_ATTRIBUTE = re.compile(r"__attribute__\s*\(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\)")
_FUNCTION = re.compile(r"(?!typedef\b)([^={}]*\w[^={}]*)\(([^={}()]|\([^={}()]*\))*\)$")
"""All of a function before its body; first what comes before the last pair of parentheses."""
_COMMON = frozenset((
    "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern",
    "float", "for", "goto", "if", "inline", "int", "long", "register", "restrict", "return", "short", "signed",
    "sizeof", "static", "struct", "switch", "typedef", "union", "unsigned", "void", "volatile", "while",
    "__inline", "__inline__", "__restrict", "__extension__", "__attribute__", "__const", "__volatile__",
    "__signed__", "__typeof__",
))  # fmt: skip
"""Words that name nothing."""


def calls_seen(d: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Of what `compiled.py` prints, for each kernel its `code`, and for each call a hash of what a compiler there makes
    a run of. Raises RuntimeError for what does not preprocess."""
    flags = [f for f in d["flags"] if f != "-shared"]
    files = {k: [_file(d["command"], flags, u) for u in units] for k, units in d["files"].items()}
    before, functions = _all(d["command"], flags, d["prelude"], d["functions"])
    seen = [before.with_what_it_comes_to(f) for f in functions]
    team = [d["flags"], files["team"]]

    def hashed(said: Mapping[str, Any]) -> str:
        own = [seen[n] for n in said["functions"]]
        whole = [said["rest"], own, team if own else [], files["products"] if said["products"] else []]
        return hashlib.sha256(repr(whole).encode()).hexdigest()

    return {
        n: {"code": k["code"], "calls": {c: " ".join(sorted(map(hashed, x))) for c, x in k["calls"].items()}}
        for n, k in d["kernels"].items()
    }


def vector_flags(command: Sequence[str], architecture: str, processor: str) -> list[str]:
    """Flags that have a gcc make code for a processor which it takes for one of `architecture` with other vectors than
    that has by itself: those that Linux says the `processor` has (the line "flags" of /proc/cpuinfo)."""
    there = {_plain(f) for f in processor.split()}
    listed = _run([*command, f"-march={architecture}", "-Q", "--help=target"])
    options = re.findall(r"^ +-m((?:avx|amx|gfni|vaes|vpclmul)[\w.-]*)\s+\[(enabled|disabled)\]", listed, re.MULTILINE)
    wrong = [(o, _plain(o) in there) for o, state in options if (state == "enabled") != (_plain(o) in there)]
    return [f"-march={architecture}", *(f"-m{o}" if has else f"-mno-{o}" for o, has in wrong)]


def _plain(name: str) -> str:
    """Linux and gcc write names of features with other signs between the letters."""
    return re.sub(r"[-_.]", "", name)


def _file(command: Sequence[str], flags: Sequence[str], unit: Mapping[str, Any]) -> list[str]:
    """The C files of a unit, and its flags."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in unit["texts"].items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        sources = [str(Path(folder) / n) for n in sorted(unit["texts"]) if n.endswith(".c")]
        return [*unit["flags"], *(_lines(_run([*command, *flags, *unit["flags"], "-E", "-P", s])) for s in sources)]


def _all(
    command: Sequence[str], flags: Sequence[str], prelude: str, functions: Sequence[str]
) -> tuple[Before, list[str]]:
    """What stands before functions, and these: in one go, for what stands before takes longest, but for those that
    define macros, which would hold for others too."""
    alone = {n: f for n, f in enumerate(functions) if _MACRO.search(f)}
    before, *texts = _preprocessed(command, flags, [prelude, *(f for n, f in enumerate(functions) if n not in alone)])
    rest = iter(texts)
    found = [_preprocessed(command, flags, [prelude, alone[n]])[1] if n in alone else next(rest)
             for n in range(len(functions))]  # fmt: skip
    return Before(before), list(map(_lines, found))


def _preprocessed(command: Sequence[str], flags: Sequence[str], texts: Sequence[str]) -> list[str]:
    """Texts that stand one after another in a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "all.c"
        path.write_text(f"\n{_MARK}\n".join(texts) + "\n", encoding="utf-8")
        found = _run([*command, *flags, "-E", "-P", str(path)]).split(f"{_MARK}\n")
    if len(found) != len(texts):
        raise RuntimeError(f"{len(texts)} functions were preprocessed to {len(found)}")
    return found


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip().splitlines()[:1]}")
    return done.stdout


def _lines(text: str) -> str:
    """However far lines are indented, and whatever is left of comments between them."""
    return "\n".join(x for line in text.splitlines() if (x := line.strip()))


@dataclass(frozen=True)
class Before:
    """What stands before functions, preprocessed."""

    text: str

    def with_what_it_comes_to(self, function: str) -> str:
        """The text of a function with all of this that it may use, in order: functions, types and variables that it
        names, and those that these name. What says something of all that follows is used by all."""
        names = _words(function) & self._named.keys()
        met, used = set[str](), set(self._always)
        while names:
            found = {n for name in names for n in self._named[name]} - used
            met |= names
            used |= found
            names = {w for n in found for w in self._uses[n]} - met
        return "\n".join([*(self._items[n] for n in sorted(used)), function])

    @cached_property
    def _items(self) -> list[str]:
        return list(map(_lines, items(self.text)))

    @cached_property
    def _always(self) -> frozenset[int]:
        return frozenset(n for n, x in enumerate(self._items) if x.startswith("#"))

    @cached_property
    def _named(self) -> Mapping[str, set[int]]:
        """Which items may be what a name stands for."""
        found = dict[str, set[int]]()
        for n, item in enumerate(self._items):
            for word in declared(item):
                found.setdefault(word, set()).add(n)
        return found

    @cached_property
    def _uses(self) -> list[frozenset[str]]:
        """The names that items have in them."""
        return [frozenset(_words(x) & self._named.keys()) for x in self._items]


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text)) - _COMMON


def declared(item: str) -> set[str]:
    """What an item may be the declaration of: of a function with its body its name and what it returns, of all else
    every name in it."""
    head = _head(item)
    return _words(item if head is None else head)


def _head(item: str) -> str | None:
    """Of a function with its body what comes before its parameters; None for all else."""
    before, brace, _ = item.partition("{")
    found = _FUNCTION.match(_ATTRIBUTE.sub(" ", before).strip()) if brace else None
    return found[1] if found else None


def items(text: str) -> Iterator[str]:
    """What a preprocessed text has at its top level: functions, declarations with the semicolon that ends them, and
    lines of pragmas."""
    start, depth = 0, 0
    for m in _TOKEN.finditer(text):
        token = m[0].strip()
        if token[0] in "({[":
            depth += 1
        elif token[0] in ")}]":
            depth -= 1
        pragma = token[0] == "#" and depth == 0
        body = token == "}" and depth == 0 and _head(text[start : m.end()].strip()) is not None
        if pragma or body or (token == ";" and depth == 0):
            yield from _whole(text[start : m.start()] if pragma else text[start : m.end()])
            start = m.start() if pragma else m.end()
        if pragma:
            yield from _whole(text[start : m.end()])
            start = m.end()
    yield from _whole(text[start:])


def _whole(text: str) -> Iterable[str]:
    return [text] if text.strip() else []
