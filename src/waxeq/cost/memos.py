"""What is remembered beside timings: kind by kind, what a memo depends on. All keys of memos are made here.

A memo counts for as long as everything that it depends on is what it was, and no longer. So its key is made of all of
that, and of nothing else: of the facts that its kind names, and of the version of waxeq. What a plan is *said* to take,
what it is called and in which lines its model stands are no such facts.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from waxeq.__about__ import __version__
from waxeq.cost.key import METHOD


@dataclass(frozen=True)
class Kind:
    """Of memos. `facts`: what one is of and depends on; `lasting`: it is kept however old it is, as work goes on only
    where it is; `own`: it is not taken from others' tables."""

    name: str
    facts: tuple[str, ...]
    lasting: bool = False
    own: bool = False

    def key(self, **facts: str) -> str:
        """Under what a memo is remembered. It takes the facts of its kind, all of them and no others."""
        assert facts.keys() == {*self.facts}, f"a {self.name} depends on {self.facts}, not on {tuple(facts)}"
        said = [__version__, *(facts[n] for n in self.facts)]
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()


# The facts of a search, which `Session` knows: `options` that may change a plan, texts of `rules` and of all `kernels`,
# versions of the `solvers`, the `device`. Timings are none of them: a plan is searched again when somebody asks for it.
_SEARCH = ("options", "rules", "kernels", "solvers", "device")
# What runs: plans without what is said of them, with the texts of their own kernels (`Result.runs`), on which device.
# Times are taken to be the same for all numbers, errors are of those that were computed with: inputs, weights, states
# and constants.
_RUN = ("runs", "device")

BLOCK, CUT_BLOCK = Kind("block", ("block", *_SEARCH)), Kind("cut block", ("block", *_SEARCH))
"""Plans of blocks whose search came to its end, and of those that time ran out for: under the same keys."""
ACCURACIES = Kind("accuracies", (*_RUN, "numbers"))
"""Errors of a plan."""
CONTEST = Kind("contest", (*_RUN, "closer"))
"""How a contest of plans ended, of each of which so many others are `closer` to float64."""
RAN = Kind("ran", _RUN)
"""Times of a plan."""
CERTIFICATE = Kind("certificate", ("rule", "class", "bound", "declarations"), lasting=True, own=True)
"""That a rule is sound, as far as samples tell: where it is to run, somebody here has to have checked it."""
PEAKS = Kind("peaks", ("device", "method"), lasting=True)
"""Ceilings of a device, for whatever version: their keys are `of_device`."""
TOLD = Kind("told", ("device", "method"))
"""What the timings of a table that ships tell together: it ships beside them, under the keys of ceilings."""

KINDS = (BLOCK, CUT_BLOCK, ACCURACIES, CONTEST, RAN, CERTIFICATE, PEAKS, TOLD)


def of_device(device: str, method: int = METHOD) -> str:
    """The key of what is known of a device by a way of timing: tables that ship have it, so it can be read."""
    return f"{device}:{method}"


def device_of(key: str) -> str | None:
    """The device that such a key is of; None where it is of another way of timing than today's."""
    device, _, method = key.partition(":")
    return device if method == str(METHOD) else None
