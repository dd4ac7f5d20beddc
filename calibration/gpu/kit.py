"""What a check takes along: calls, machine code for their kernels, plans, and what a simulated GPU made of the calls.

It is a zip file, made where all of waxeq is installed and read where of all packages only NumPy is.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import numpy as np

import waxeq_cfamily
import waxeq_cupy
from waxeq.__about__ import __version__
from waxeq.backend.call import Call
from waxeq.errors import PlanError
from waxeq.runtime.files import read_bytes, write_atomically
from waxeq.search.worker import decode_calls, encode_calls

Section = Literal["correct", "target", "grid"]
_SHOWN = 256
"""Elements of a result that are kept, spread over it."""


@dataclass(frozen=True)
class Item:
    """A call that is to be made in a section of the check. `seed` draws its operands, `target` names what it is one
    way to compute; `drawn` and `shown`: a digest of the operands and some elements of the result on the simulated GPU,
    "" and () where it was not run there."""

    section: Section
    case: str
    call: Call
    seed: int = 0
    target: str = ""
    drawn: str = ""
    shown: tuple[float, ...] = ()


@dataclass(frozen=True)
class Kit:
    """`plans`: encoded plans by name; `constants`: arrays of their graphs, as "plan/constant"; `code`: files that
    the backend takes in, group by group ("3/sm_90.cubin"). `about`: what it was made with."""

    items: Sequence[Item]
    code: Mapping[str, bytes]
    plans: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """As a file that appears whole or not at all. Raises PlanError."""
        rows = [{k: v for k, v in asdict(i).items() if k != "call"} for i in self.items]
        data = {
            "waxeq": __version__,
            "text": written(),
            "about": dict(self.about),
            "items": rows,
            "plans": dict(self.plans),
        }
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as z:
            z.writestr("kit.json", json.dumps(data))
            z.writestr("calls.json", encode_calls([i.call for i in self.items]))
            for name, code in self.code.items():
                z.writestr(f"code/{name}", code)
            for name, array in self.constants.items():
                raw = io.BytesIO()
                np.save(raw, array, allow_pickle=False)
                z.writestr(f"constants/{name}.npy", raw.getvalue())
        write_atomically(path, made.getvalue())

    @staticmethod
    def read(path: Path) -> Kit:
        """The kit in a file. Raises PlanError for one that is missing, damaged or of another waxeq."""
        if not path.exists():
            raise PlanError(f"there is no kit {path}: --prepare makes it where all of waxeq is, --kit names another")
        try:
            with zipfile.ZipFile(io.BytesIO(read_bytes(path))) as z:
                files = {n: z.read(n) for n in z.namelist()}
            data, calls = json.loads(files["kit.json"]), decode_calls(files["calls.json"].decode())
        except (zipfile.BadZipFile, KeyError, ValueError) as e:
            raise PlanError(f"{path} is no kit of the check, or damaged; make it anew with --prepare") from e
        if data["waxeq"] != __version__:
            raise PlanError(f"{path} is of waxeq {data['waxeq']}, this is {__version__}; make it anew with --prepare")
        if data.get("text") != written():
            raise PlanError(f"the kernels in {path} are of another checkout than this one; make it anew with --prepare")
        rows = zip(data["items"], calls, strict=True)
        items = [Item(**{**r, "call": c, "shown": tuple(r["shown"])}) for r, c in rows]
        constants = {n[10:-4]: np.load(io.BytesIO(b)) for n, b in files.items() if n.startswith("constants/")}
        code = {n[5:]: b for n, b in files.items() if n.startswith("code/")}
        return Kit(items, code, data["plans"], constants, data["about"])

    @property
    def groups(self) -> Mapping[str, Mapping[str, bytes]]:
        """The files of code of each group by their own names."""
        found: dict[str, dict[str, bytes]] = {}
        for path, content in self.code.items():
            group, _, name = path.partition("/")
            found.setdefault(group, {})[name] = content
        return found


@cache
def written() -> str:
    """A hash of the text that kernels are made by: their machine code is found by their own text."""
    found = sha256()
    for package in (waxeq_cfamily, waxeq_cupy):
        home = Path(str(package.__file__)).parent
        for path in sorted(p for p in home.rglob("*") if p.suffix in (".py", ".cuh", ".h")):
            found.update(path.read_bytes())
    return found.hexdigest()[:16]


def digest(arrays: Sequence[np.ndarray]) -> str:
    """Of the bytes of arrays: the same where the same numbers were drawn."""
    found = sha256()
    for a in arrays:
        found.update(np.ascontiguousarray(a).view(np.uint8).tobytes())
    return found.hexdigest()[:16]


def shown(result: np.ndarray) -> tuple[float, ...]:
    """Some elements of a result, spread over all of it."""
    flat = np.ascontiguousarray(result).reshape(-1)
    at = np.unique(np.linspace(0, flat.size - 1, _SHOWN).round().astype(int)) if flat.size else []
    return tuple(float(x) for x in flat[at])
