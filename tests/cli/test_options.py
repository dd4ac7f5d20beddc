"""Values of options: read as they are written, and called in errors as they are typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from waxeq.errors import OptionError, UsageError
from waxeq.options import Options

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    "line",
    ["optimize m.py --threads 2.5", "optimize m.py --seed=1.7", "bench m.py --max-nodes 3.0",
     "run p.json --threads 1.5", "paths m.py --from 1.5", "pareto m.py --plans 0x3", "rules check --samples 9e1"],
)  # fmt: skip
def test_numbers_that_are_not_whole_are_refused_and_not_rounded(waxeq, line: str) -> None:
    outcome = waxeq(*line.split())
    value = line.replace("=", " ").split()[-1]
    assert outcome.code == 2 and f"{value!r} is no whole number" in outcome.sentence and "--" in outcome.sentence


@pytest.mark.parametrize("value", ["7", "-7", "+7"])
def test_whole_numbers_are_taken(waxeq, value: str) -> None:
    assert "nowhere.py: no such file" in waxeq("optimize", "nowhere.py", "--seed", value).sentence


@pytest.mark.parametrize(
    ("given", "said"),
    [("--max-memory -1", "--max-memory: '-1' is not an amount of memory"), ("--max-nodes 0", "--max-nodes is 0; it"),
     ("--threads 0", "--threads is 0; it"), ("--budget soon", "--budget: 'soon' is not a time"),
     ("--search-memory x", "--search-memory: 'x' is not"), ("--tolerance 3", "--tolerance: '3' is not")],
)  # fmt: skip
def test_options_are_called_as_they_are_typed(waxeq, model, given: str, said: str) -> None:
    outcome = waxeq("optimize", model(), *given.split())
    assert outcome.code == 2 and outcome.sentence.startswith(said)


def test_options_in_python_are_called_as_there() -> None:
    with pytest.raises(OptionError, match=r"^option max_nodes is 0; it should be") as e:
        Options.of(max_nodes=0)
    assert isinstance(e.value, UsageError) and e.value.exit_code == 2


def test_a_place_that_is_an_argument_is_not_asked_for_as_an_option(waxeq, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    said = waxeq("db", "plot", tmp_path / "nowhere" / "x.svg").sentence
    assert said.endswith("No such file or directory; name another place")
