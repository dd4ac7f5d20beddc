from functools import cache
from pathlib import Path


@cache
def source() -> str:
    return (Path(__file__).parent / "functions.h").read_text()


def calls(name: str, dtype: str) -> str | None:
    c = f"wx_{name}_{dtype.replace('float', 'f')}"
    return c if f" {c}(" in source() else None
