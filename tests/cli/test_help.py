"""What --help says is so: defaults, exit codes, which options a command takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from waxeq import errors
from waxeq.options import Options
from waxeq.testing.rule import SAMPLES

pytestmark = pytest.mark.quick
COMMANDS = ("optimize", "run", "explain", "paths", "mem", "bench", "calibrate", "backends", "doctor", "rules check")


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


def test_exit_codes_are_those_of_the_errors_and_of_the_readme(waxeq, root: Path) -> None:
    said = waxeq("--help").out.partition("Exit codes:")[2]
    kinds = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, errors.WaxeqError)]
    codes = {0, 130, *(e.exit_code for e in kinds)}
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
