"""Options of an optimization, read and checked once."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from waxeq.amounts import DEFAULT_TOLERANCE, bytes_, cores, number_of, parse_tolerance, seconds
from waxeq.errors import OptionError, UsageError


class Options(BaseModel):
    """How to optimize. Times are seconds, memory bytes, tolerance relative RMS error against float64.

    Raises UsageError, one sentence, for a value that makes no sense or an option that does not exist.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    budget: Annotated[Annotated[float, Field(ge=0)] | None, BeforeValidator(seconds)] = 60.0
    tolerance: Annotated[float, BeforeValidator(parse_tolerance)] = DEFAULT_TOLERANCE
    seed: int = 0
    threads: int = Field(default_factory=cores, ge=1, le=1024)
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
                raise _refused(e) from None

    @property
    def rule_class(self) -> Literal["exact", "reassociating", "approximate"]:
        """The loosest class of rules the tolerance admits."""
        if self.tolerance == 0:
            return "exact"
        return "reassociating" if self.tolerance <= 1e-4 else "approximate"

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences on values that a user may not have meant here."""
        here = cores()
        if self.threads <= here:
            return ()
        return (f"{self.threads} threads are more than the {number_of(here, 'core')} that this process may use",)

    def at(self, tolerance: float) -> Options:
        """The same, with another tolerance."""
        return self.model_copy(update={"tolerance": tolerance})

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


def _refused(e: ValidationError) -> UsageError:
    """What is wrong with the first option that is."""
    first = e.errors()[0]
    name, text = ".".join(map(str, first["loc"])), str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        return UsageError(f"there is no option {name!r}; there are {', '.join(Options.model_fields)}")
    if text.startswith("Input should"):
        return OptionError(name, f" is {first['input']!r}; it {text.removeprefix('Input ')}")
    return OptionError(name, f": {text}")
