"""C text of loops that call a function which takes sixteen elements at a time (sixteen.h).

Compilers make vectors of a loop over elements, but none of them looks up a table that lies in a register: what does so
is written for a vector. A loop that calls such a function is cut there: sixteen elements come to its argument, and go
on from its value. What lies between is in arrays of sixteen, which gcc keeps in registers. What is left of a loop is
written as it was, and all of it where there are no such vectors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

WIDTH = 16
"""Elements of a vector."""
FUNCTIONS: Mapping[str, str] = MappingProxyType(
    {f"wx_{f}_f32": f"wx_{f}_sixteen" for f in ("exp", "exp_below", "log", "erf")}
)
"""Functions of sixteen elements in place, by those of one."""
_LOOP = re.compile(
    r"^(?P<indent> *)#pragma omp simd\n"
    r"(?P=indent)for \(int64_t (?P<v>\w+) = (?P<low>[^;{}]+); (?P=v) < (?P<high>[^;{}]+); (?P=v)\+\+\) \{\n"
    r"(?P<body>(?:(?P=indent)  [^\n]*\n)*)"
    r"(?P=indent)\}",
    re.MULTILINE,
)
_CALL = re.compile(rf"const float (\w+) = ({'|'.join(FUNCTIONS)})\((\w+)\);")
_MADE = re.compile(r"const (float|int32_t|uint32_t) (r\d+) = ")
_PLACE = re.compile(r"const int64_t (?!r\d)(\w+) = ")
_FOUND = re.compile(r"const int64_t (?!r\d)\w+ = .*\br\d")
"""A place that is found of what the loop computes: places come before all of that."""
_STORED = re.compile(r"\w+\[[^=]*\] (?:\||\+)?= ")
_OTHER = re.compile(r"\b(?:double|u?int(?:8|16|64)_t|wx_(?:widened|narrowed|rounded|odd)_\w+)\b|__asm__|[{}]")
"""What takes other vectors than float32, or is no statement."""


@cache
def beginning() -> str:
    """The text of prelude.h and sixteen.h: what kernels of C begin with, after the functions."""
    return "\n".join((Path(__file__).parent / f).read_text(encoding="utf-8") for f in ("prelude.h", "sixteen.h"))


def in_sixteens(text: str) -> str:
    """The text of a function with its loops cut at the functions that are there for sixteen elements."""
    return _LOOP.sub(_both, text) if any(f"{name}(" in text for name in FUNCTIONS) else text


def _both(found: re.Match[str]) -> str:
    """A loop in both ways, where it can be cut."""
    indent, body = found["indent"], [x.strip() for x in found["body"].splitlines()]
    if not any(map(_CALL.fullmatch, body)) or not all(map(_taken, body)) or any(map(_FOUND.match, body)):
        return found[0]
    lines = _Cut(found["v"], found["low"], found["high"], body).text()
    if not lines:
        return found[0]
    cut = "\n".join(indent + x for x in lines)
    return f"#ifdef WX_SIXTEENS\n{cut}\n#else\n{found[0]}\n#endif"


def _taken(line: str) -> bool:
    """Whether a line is a statement on float32 or numbers as long, or a place."""
    if _PLACE.match(line):
        return True
    return (_MADE.match(line) or _STORED.match(line)) is not None and _OTHER.search(line) is None


@dataclass(frozen=True)
class _Cut:
    """A loop over `v` from `low` to `high` of statements `body`."""

    v: str
    low: str
    high: str
    body: Sequence[str]

    def text(self) -> list[str]:
        """The loop; nothing where it has no sixteen elements."""
        v, low, high = self.v, self.low, self.high
        many = int(high) - int(low) if low.isdecimal() and high.isdecimal() else None
        if many is not None and many < WIDTH:
            return []
        if (low, many) == ("0", WIDTH):
            return ["{", *("  " + x for x in self._sixteen(f"{v}_nth")), "}"]
        start = f"{v}_from"
        lines = [
            f"int64_t {start} = {low};",
            f"for (; {start} + {WIDTH} <= {high}; {start} += {WIDTH}) {{",
            *("  " + x for x in self._sixteen(f"{start} + {v}_nth")),
            "}",
        ]
        if many is None or many % WIDTH:
            lines += self._loop(f"int64_t {v} = {start}; {v} < {high}; {v}++", self.body)
        return ["{", *("  " + x for x in lines), "}"]

    def _sixteen(self, place: str) -> Iterator[str]:
        """Sixteen elements: a loop up to each call, and one from the last."""
        parts = self._parts()
        kinds = {m[2]: m[1] for x in self.body if (m := _MADE.match(x))}
        nth = f"{self.v}_nth"
        made: list[set[str]] = [{m[2] for x in part if (m := _MADE.match(x))} for part in parts]
        needs = [set(re.findall(r"\br\d+\b", " ".join(part))) for part in parts]
        calls = [m for x in self.body if (m := _CALL.fullmatch(x))]
        yield from (f"WX_ALIGNED float {m[1]}_of[{WIDTH}];" for m in calls)
        for i, part in enumerate(parts):
            later = set().union(*needs[i + 1 :], *({m[3]} for m in calls[i + 1 :]))
            over = sorted(made[i] & later)
            yield from (f"WX_ALIGNED {kinds[x]} {x}_of[{WIDTH}];" for x in over)
            wanted = needs[i] | ({calls[i][3]} if i < len(calls) else set())
            before = set().union(*made[:i], (m[1] for m in calls[:i])) & wanted
            begin = [f"const {kinds[x]} {x} = {x}_of[{nth}];" for x in sorted(before)]
            end = [f"{x}_of[{nth}] = {x};" for x in over]
            end += [f"{calls[i][1]}_of[{nth}] = {calls[i][3]};"] if i < len(calls) else []
            lines = [f"const int64_t {self.v} = {place};", *self._places(part), *begin, *part, *end]
            yield from self._loop(f"int64_t {nth} = 0; {nth} < {WIDTH}; {nth}++", lines)
            if i < len(calls):
                yield f"{FUNCTIONS[calls[i][2]]}({calls[i][1]}_of);"

    def _parts(self) -> list[list[str]]:
        """The statements between calls, without places."""
        parts: list[list[str]] = [[]]
        for line in self.body:
            if _CALL.fullmatch(line):
                parts.append([])
            elif not _PLACE.match(line):
                parts[-1].append(line)
        return parts

    def _places(self, part: Sequence[str]) -> Iterator[str]:
        """The places that a part is at."""
        yield from (x for x in self.body if (m := _PLACE.match(x)) and re.search(rf"\b{m[1]}\b", " ".join(part)))

    @staticmethod
    def _loop(head: str, body: Sequence[str]) -> list[str]:
        return ["#pragma omp simd", f"for ({head}) {{", *("  " + x for x in body), "}"]
