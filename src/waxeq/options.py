"""Options of an optimization, read and checked once."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from waxeq.errors import UsageError

DEFAULT_TOLERANCE = 1e-5
_TOLERANCES = {"exact": 0.0, "default": DEFAULT_TOLERANCE, "reassociating": DEFAULT_TOLERANCE, "approximate": 1e-3}


def seconds(value: object) -> float | None:
    """Seconds from "30s", "2m", "500ms", "1h" or a number; None for "none". Raises ValueError."""
    if value is None or (isinstance(value, str) and value.lower() == "none"):
        return None
    if isinstance(value, (int, float)):
        return float(value)
    m = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|)\s*", str(value))
    if not m:
        raise ValueError(f"{value!r} is not a time; write it as 30s, 2m or 500ms")
    return float(m[1]) * {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}[m[2]]


def bytes_(value: object) -> int:
    """Bytes from "4GiB", "512MiB", "2GB" or a number. Raises ValueError."""
    if isinstance(value, int):
        return value
    m = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kKMGT]?)(i?)[bB]?\s*", str(value))
    if not m:
        raise ValueError(f"{value!r} is not an amount of memory; write it as 4GiB or 512MiB")
    return int(float(m[1]) * (1024 if m[3] else 1000) ** "_kMGT".index(m[2].replace("K", "k") or "_"))


def parse_tolerance(value: object) -> float:
    """Relative RMS error allowed: a number, or the class of rules to admit: "exact" (0), "reassociating" (1e-5, the
    default), "approximate" (1e-3). Raises ValueError."""
    if isinstance(value, str) and value in _TOLERANCES:
        return _TOLERANCES[value]
    try:
        found = float(str(value))
    except ValueError:
        found = -1.0
    if not 0 <= found < 1:
        raise ValueError(
            f"{value!r} is not a tolerance; write exact, reassociating, approximate or a number such as 1e-4"
        )
    return found


def cores() -> int:
    """Cores this process may use: what NumPy's BLAS takes by default."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Options(BaseModel):
    """How to optimize. Times are seconds, memory bytes, tolerance relative RMS error against float64.

    Raises UsageError, one sentence, for a value that makes no sense or an option that does not exist.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    budget: Annotated[Annotated[float, Field(ge=0)] | None, BeforeValidator(seconds)] = 60.0
    tolerance: Annotated[float, BeforeValidator(parse_tolerance)] = DEFAULT_TOLERANCE
    seed: int = 0
    threads: int = Field(default_factory=cores, ge=1)
    max_nodes: int = Field(default=60_000, ge=1)
    max_memory: Annotated[int, BeforeValidator(bytes_)] = 4 << 30
    """Peak bytes of the plan when it runs."""
    search_memory: Annotated[int, BeforeValidator(bytes_)] = 4 << 30
    """Bytes that the e-graph of one block may take while searching."""
    top_k: int = Field(default=3, ge=1)
    polish_seconds: float = Field(default=10.0, ge=0)
    """Polishing ends by work done, after about a second; by the clock after so long, which the report then says."""
    backends: tuple[str, ...] = ()
    device: str = "cpu"
    """In whose memory inputs are handed in and results are wanted; the plan may use other devices too."""
    rules: tuple[Path, ...] = ()
    table: Path | None = None
    lock: Path | None = None
    """A file (waxeq.lock) that the plan and what it was made from is written to; read with `locked`."""
    locked: bool = False
    """Take the plan that is locked, in `lock` or in waxeq.lock beside the model, and search nothing."""
    measure: bool = True
    trial: bool = True
    strict: bool = False
    fresh: bool = False
    algebra: bool = True
    polish: bool = True
    cost: Literal["measured", "roofline"] = "measured"

    if not TYPE_CHECKING:  # a type checker reads the fields

        def __init__(self, **given: object) -> None:
            try:
                super().__init__(**given)
            except ValidationError as e:
                raise UsageError(_sentence(e)) from None

    @property
    def rule_class(self) -> Literal["exact", "reassociating", "approximate"]:
        """The loosest class of rules the tolerance admits."""
        if self.tolerance == 0:
            return "exact"
        return "reassociating" if self.tolerance <= 1e-4 else "approximate"

    def fingerprint(self) -> str:
        """Of all options that may change a plan."""
        aside = {"rules", "table", "strict", "fresh", "trial", "budget", "max_memory", "lock", "locked"}
        aside |= {"device"} if self.device == "cpu" else set()
        return hashlib.sha256(self.model_dump_json(exclude=aside).encode()).hexdigest()[:16]

    @staticmethod
    def of(**given: object) -> Options:
        """Options from loosely typed values. Raises UsageError with one sentence."""
        return Options(**given)  # pyright: ignore[reportArgumentType]

    @staticmethod
    def given(options: Options | None) -> Options:
        """What a caller gave, or the defaults. Raises UsageError for what are no options."""
        if options is None or isinstance(options, Options):
            return options or Options()
        raise UsageError(f"options is a {type(options).__name__}; pass wx.Options(budget='10s', ...)")


def _sentence(e: ValidationError) -> str:
    """What is wrong with the first option that is."""
    first = e.errors()[0]
    name, text = ".".join(map(str, first["loc"])), str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        return f"there is no option {name!r}; there are {', '.join(Options.model_fields)}"
    if text.startswith("Input should"):
        return f"option {name} is {first['input']!r}; it {text.removeprefix('Input ')}"
    return f"option {name}: {text}"
