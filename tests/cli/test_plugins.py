"""Rules of installed plug-ins: certified before they run, and told by name where they cannot be had."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import waxeq as wx
from waxeq.errors import RuleError

QUICK = ("--no-trial", "--no-measure")
RULE = """(ruleset mine)

; a law
;; reassociating
(rewrite {} :ruleset mine :name "mine/own")
"""
SOUND = RULE.format('(Mul (Map "exp" x) (Map "exp" x)) (Map "exp" (Add x x))')
UNSOUND = RULE.format('(Zip "sub" a b) (Zip "sub" b a)')

Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """`install(rules, code, value)` installs a plug-in whose entry point is `value`, and makes its folder."""

    def made(rules: str | None = SOUND, code: str = "", value: str = "plugged_rules:folder") -> Path:
        place = tmp_path / "installed"
        about = place / "plugged-1.0.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[waxeq.rules]\nmine = {value}\n")
        folder = place / "rules"
        usual = f"def folder():\n    return {str(folder)!r}\n"
        (place / "plugged_rules.py").write_text(code or usual)
        if rules is not None:
            folder.mkdir()
            (folder / "mine.egg").write_text(rules)
        monkeypatch.syspath_prepend(str(place))
        monkeypatch.delitem(sys.modules, "plugged_rules", raising=False)
        return folder

    return made


def rules_row(outcome) -> dict:
    return next(r for r in outcome.data if r["check"] == "rules")


@pytest.mark.parametrize(
    ("code", "value", "word"),
    [
        ("", "no_such_module_anywhere:folder", "package no_such_module_anywhere is not installed"),
        ("", "plugged_rules:nothing", "has no attribute 'nothing'"),
        ("folder = 'a folder'", "plugged_rules:folder", "not callable"),
        ("def folder():\n    return 3\n", "plugged_rules:folder", "TypeError"),
        ("def folder():\n    raise SystemExit(3)\n", "plugged_rules:folder", "SystemExit"),
        ("def folder():\n    return '/proc/none'\n", "plugged_rules:folder", "/proc/none, which is no folder"),
        ("def folder():\n    return '/proc'\n", "plugged_rules:folder", "no .egg file lies in its folder /proc"),
    ],
)
def test_a_plug_in_whose_rules_cannot_be_had_is_named(
    waxeq, model, table: Path, tmp_path: Path, install: Install, code: str, value: str, word: str
) -> None:
    install(code=code, value=value)
    argv = ("optimize", model(), "-o", tmp_path / "p.plan.json", "--table", table, "--quiet", *QUICK)
    for command in (argv, ("rules", "list")):
        outcome = waxeq(*command)
        assert outcome.code == 3 and word in outcome.sentence
        assert f"the rule plug-in mine of plugged 1.0 ({value}) cannot be used" in outcome.sentence
        assert outcome.sentence.endswith("or pip uninstall plugged")
    row = rules_row(waxeq("doctor", "--json"))
    assert not row["ok"] and row["exit_code"] == 3 and "of plugged 1.0" in row["found"]


def test_rules_of_a_plug_in_are_certified_once(waxeq, model, table: Path, tmp_path: Path, install: Install) -> None:
    install()
    row = rules_row(waxeq("doctor", "--json"))
    assert row["ok"] and "1 of plug-ins not certified yet" in row["found"]
    argv = ("optimize", model(), "-o", tmp_path / "p.plan.json", "--table", table, *QUICK)
    said = [waxeq(*argv) for _ in range(2)]
    assert [o.code for o in said] == [0, 0]
    assert ["certifying rule mine/own" in o.err for o in said] == [True, False]
    row = rules_row(waxeq("doctor", "--json", "--table", table))
    assert row["ok"] and "certified" not in row["found"]


def test_from_python_the_command_that_certifies_is_said(waxeq, table: Path, install: Install) -> None:
    folder = install()
    options = wx.Options.of(table=table, trial=False, measure=False)
    command = f"rules check {folder / 'mine.egg'} --table {table}"
    with pytest.raises(RuleError, match=f"no certificate, so it may not run; `waxeq {re.escape(command)}`"):
        wx.optimize(np.tanh, np.ones(3, np.float32), options=options)
    assert waxeq(*command.split()).code == 0
    wx.optimize(np.tanh, np.ones(3, np.float32), options=options)


def test_a_rule_of_a_plug_in_that_is_wrong_is_told(waxeq, model, table: Path, tmp_path: Path, install: Install) -> None:
    folder = install(UNSOUND)
    row = rules_row(waxeq("doctor", "--json"))
    assert not row["ok"] and row["exit_code"] == 6
    assert f"`waxeq rules check {folder / 'mine.egg'}`" in row["found"] and "uninstall" in row["found"]
    outcome = waxeq("optimize", model(), "-o", tmp_path / "p.plan.json", "--table", table, *QUICK)
    assert outcome.code == 6 and "mine/own (reassociating) is refuted" in outcome.err
    assert waxeq("rules", "check", folder / "mine.egg", "--table", table).code == 6
