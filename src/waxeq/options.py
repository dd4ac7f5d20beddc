"""Options of an optimization. The class is made when it is first asked for: plans run where pydantic is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from waxeq.amounts import DEFAULT_TOLERANCE, bytes_, cores, parse_tolerance, seconds

if TYPE_CHECKING:
    from waxeq.settings import Options

__all__ = ["DEFAULT_TOLERANCE", "Options", "bytes_", "cores", "parse_tolerance", "seconds"]


def __getattr__(name: str) -> Any:
    if name == "Options":
        from waxeq.settings import Options

        return Options
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
