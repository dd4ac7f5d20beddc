"""What --help says is so: defaults, exit codes, which options a command takes."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from cyclopts import App

from waxeq import errors
from waxeq.cli import app
from waxeq.cli.app import build
from waxeq.cli.db import COMMANDS as COMMANDS_OF_DB
from waxeq.options import Options
from waxeq.testing.rule import SAMPLES

pytestmark = pytest.mark.quick
COMMANDS = (
    *(
        "optimize",
        "run",
        "bundle",
        "explain",
        "paths",
        "profile",
        "pareto",
        "mem",
        "bench",
        "calibrate",
        "backends",
        "doctor",
    ),
    *("rules list", "rules check", *(c.__name__.replace("_", " ") for c in COMMANDS_OF_DB)),
)


def plain(text: str) -> str:
    """Help without frames and line ends."""
    return " ".join(re.sub("[│╭╮╰╯─]", " ", text).split())


def options_of(text: str) -> set[str]:
    return set(re.findall(r"│ --([a-z-]+)", text))


@pytest.mark.parametrize("option", ["budget", "tolerance", "seed", "max_memory", "max_nodes"])
def test_defaults_are_those_of_a_search(waxeq, option: str) -> None:
    said = plain(waxeq("optimize", "--help").out)
    about = said[said.index(f"--{option.replace('_', '-')} ") :]
    default = about[about.index("[default: ") + 10 : about.index("]")]
    assert getattr(Options.of(**{option: default}), option) == getattr(Options(), option)


def test_the_default_of_samples(waxeq) -> None:
    assert f"[default: {SAMPLES}]" in plain(waxeq("rules", "check", "--help").out)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_default_is_a_piece_of_python(waxeq, command: str) -> None:
    said = plain(waxeq(*command.split(), "--help").out)
    assert "default: ()" not in said and "default: False" not in said and "default: None" not in said


def test_all_commands_are_looked_at_here() -> None:
    found = set()
    for name, group in commands(build()):
        found |= {f"{name} {sub}" for sub, _ in commands(group)} or {name}
    assert found == set(COMMANDS)


def commands(group: App) -> list[tuple[str, App]]:
    return [(n, group[n]) for n in group if not n.startswith("-")]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_described(command: str) -> None:
    at = build()
    for word in command.split():
        at = at[word]
    arguments = [a for a in at.assemble_argument_collection(parse_docstring=True) if a.show]
    assert arguments and not [a.name for a in arguments if not a.parameter.help]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_example_of_a_command_is_one(waxeq, command: str) -> None:
    example = waxeq(*command.split(), "--help").out.rpartition("Example: waxeq ")[2].split()
    assert " ".join(example).startswith(command)
    called, *_ = build().parse_args(example, exit_on_error=False, print_error=False)
    assert called.__name__.replace("_", " ") == command


def test_no_line_of_help_is_torn(waxeq, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of exit codes fits a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    lines = waxeq("--help").out.rstrip().splitlines()
    assert "\n".join(x.rstrip() for x in lines).endswith(app._EXIT_CODES)


@pytest.mark.parametrize("command", COMMANDS)
def test_paragraphs_of_help_are_broken_where_the_terminal_ends(waxeq, command: str, monkeypatch) -> None:
    """And not also where a line of the docstring does."""
    monkeypatch.setenv("COLUMNS", "80")
    lines = [re.sub("^│(.*)│$", r"\1", x).rstrip() for x in waxeq(*command.split(), "--help").out.splitlines()]
    for line, following in pairwise(lines):
        told = following.strip().partition(" ")[0]
        if line and told and line[0] not in "╭╰" and following[0] not in "╭╰" and not told.startswith(("-", "*")):
            assert len(line) + 1 + len(told) > 76, line


@pytest.mark.parametrize(
    ("command", "name"), [("profile", "TARGETS"), ("db merge", "OTHERS"), ("rules check", "FILES"), ("db diff", "A B")]
)
def test_arguments_are_called_alike_in_the_usage_and_below(waxeq, command: str, name: str) -> None:
    said = waxeq(*command.split(), "--help").out
    usage, *more = said.splitlines()
    assert name in usage and "ARGS" not in said and all(n in "".join(more) for n in name.split())


def test_a_docstring_is_one_line_for_each_paragraph() -> None:
    text = """Does it,
    and well.

    More
    of it.

    Parameters
    ----------
    a
        The first,
        whatever it is.
    b
        The second.
    """
    assert app.reflowed(text).splitlines() == [
        "Does it, and well.", "", "More of it.", "", "Parameters", "----------", "a", "    The first, whatever it is.",
        "b", "    The second.",
    ]  # fmt: skip


def test_exit_codes_are_those_of_the_errors_and_of_the_readme(waxeq, root: Path) -> None:
    said = waxeq("--help").out.partition("Exit codes:")[2]
    kinds = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, errors.WaxeqError)]
    codes = {0, 130, 143, *(e.exit_code for e in kinds)}
    table = (root / "README.md").read_text().partition("## Exit codes")[2]
    assert {int(n) for n in re.findall(r"(?m)^ *(\d+) ", said)} == codes
    assert {int(n) for n in re.findall(r"(?m)^\| (\d+) \|", table)} == codes
    assert "Exit codes:" not in waxeq("optimize", "--help").out


def test_calibrate_takes_no_option_that_it_would_not_heed(waxeq) -> None:
    assert options_of(waxeq("calibrate", "--help").out).isdisjoint({"budget", "rules", "strict", "max-nodes"})
    assert {"table", "threads", "backend"} <= options_of(waxeq("calibrate", "--help").out)
    assert waxeq("calibrate", "--budget", "1s").code == 2


@pytest.mark.parametrize("option", [("--rules", "my.egg"), ("--tolerance", "1e-3"), ("--fresh",), ("--budget", "9s")])
@pytest.mark.parametrize("command", ["explain", "mem"])
def test_options_of_a_search_are_refused_for_a_plan(waxeq, command: str, option: tuple[str, ...]) -> None:
    outcome = waxeq(command, "some.plan.json", *option)
    assert outcome.code == 2 and f"{option[0]} is for searching, but some.plan.json is a plan" in outcome.sentence
