"""What all timings of a device tell together: it ships with a table, so that a first run need not go through them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from waxeq.cost.elements import Elements
from waxeq.cost.law import Law


@dataclass(frozen=True)
class Told:
    """By what kernels have in common (`shared.akin`) the law of all of them, and by backend what functions cost; of
    how many timings each is."""

    laws: Mapping[tuple[str, str], tuple[int, Law]] = field(default_factory=dict)
    elements: Mapping[str, tuple[int, Elements]] = field(default_factory=dict)

    def to_json(self) -> str:
        """As a text from which `from_json` makes the same again."""
        laws = [[*of, n, law.names, law.coefficients.tolist()] for of, (n, law) in self.laws.items()]
        return json.dumps({"laws": laws, "elements": self.elements})

    @staticmethod
    def from_json(text: str) -> Told:
        """The inverse of `to_json`."""
        import numpy as np

        said = json.loads(text)
        laws = {(backend, stem): (n, Law(tuple(names), np.array(c))) for backend, stem, n, names, c in said["laws"]}
        return Told(laws, {backend: (n, found) for backend, (n, found) in said["elements"].items()})
