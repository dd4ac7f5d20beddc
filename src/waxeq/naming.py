"""How messages call options: as they are typed where a command runs, as keywords where Python calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_commands: list[str] = []
"""What is typed at the command line that this process works on; nothing where Python calls."""


@contextmanager
def at_command_line() -> Iterator[None]:
    """Inside, this process does what was typed at a command line."""
    _commands.append("waxeq")
    try:
        yield
    finally:
        _commands.pop()


def typed(name: str) -> str:
    """An option as it is typed, by its name in Python."""
    return f"--{name.replace('_', '-')}"


def option(name: str, value: str = "") -> str:
    """An option as whoever reads the message would write it: `--max-memory`, or `max_memory=`. `value`: what Python
    gives for what is a flag where it is typed."""
    return typed(name) if _commands else f"{name}={value}"


def named(keyword: str, flag: str) -> str:
    """An option that is called otherwise where it is typed."""
    return typed(flag) if _commands else f"{keyword}="


def setting(name: str, value: object) -> str:
    """An option with its value: `--threads 1`, or `threads=1`."""
    return f"{typed(name)} {value}" if _commands else f"{name}={value}"


def dims_option() -> str:
    """The option that makes plans for ranges of sizes."""
    return named("dims", "dim")


def dim(name: str, low: object, high: object, place: tuple[str, int] | None = None) -> str:
    """The range of a dim, and the input and axis that have it, as whoever reads the message would write them."""
    if _commands:
        return f"--dim {name}={low}:{high}" + ("" if place is None else f"@{place[0]}.{place[1]}")
    axes = "" if place is None else f", {{'{place[0]}': {place[1]}}}"
    return f"dims={{'{name}': ({low}, {high}{axes})}}"
