"""What a rule file may hold, and what is said of one that holds something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from waxeq.egraph.installed import rule_files
from waxeq.egraph.rules import load_rules, read_file, read_rules
from waxeq.errors import RuleError, TargetError
from waxeq.search.admission import files_for, uncertified
from waxeq.testing.rule import check_files

pytestmark = pytest.mark.quick

RULE = '; a law\n;; exact\n(rewrite (Add a b) (Add b a) :ruleset mine :name "mine/turn")\n'


def written(folder: Path, text: str, name: str = "my.egg") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("form", "word"),
    [
        ('(let foo 3) (output "x.txt" foo)', "let"),
        ('(output "x.txt" foo)', "output"),
        ('( include "/etc/passwd")', "include"),
        ("(run 1000)", "run"),
        ("(relation run (i64)) (run 1000)", "run"),
        ("(delete (Add x y))", "delete"),
        ('(lattice "sum")', "lattice"),
        ('(set (size "k") 3)', "set"),
        ("(rewriter a b)", "rewriter"),
    ],
)
def test_only_rules_declarations_and_own_facts_have_a_place(tmp_path: Path, form: str, word: str) -> None:
    with pytest.raises(RuleError, match=rf"my\.egg:2: form `{word}` has no place in a rule file"):
        check_files([written(tmp_path, f"(ruleset mine)\n{form}\n{RULE}")])
    assert [p.name for p in tmp_path.iterdir()] == ["my.egg"]


def test_facts_of_what_the_file_declares_are_read(tmp_path: Path) -> None:
    text = '(ruleset mine) (relation mine-odd (String)) (mine-odd "neg")\n(function f (String) i64 :no-merge)\n'
    file = read_file(written(tmp_path, text + '(set (f "a") 3)\n' + RULE))
    assert '(mine-odd "neg")' in file.declarations
    assert len(file.rules) == 1


@pytest.mark.parametrize("path", rule_files(), ids=lambda p: p.stem)
def test_every_installed_file_is_accepted(path: Path) -> None:
    assert read_file(path).rules


@pytest.mark.parametrize("text", ["", "; only words\n", "(ruleset mine)\n"])
def test_a_file_without_rules_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(RuleError, match=r"my\.egg holds no rule"):
        read_rules(written(tmp_path, text))
    with pytest.raises(RuleError, match=r"my\.egg holds no rule"):
        check_files([tmp_path / "my.egg"])


@pytest.mark.parametrize(
    ("string", "said"), [('"open', "does not end"), ('"a\\" (output "x" 1)"', "may not hold a backslash")]
)
def test_strings_that_egglog_would_read_otherwise_are_refused(tmp_path: Path, string: str, said: str) -> None:
    with pytest.raises(RuleError, match=rf"my\.egg:1: .*{said}"):
        read_file(written(tmp_path, f"(mine {string})\n"))


def test_what_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "my.egg"
    path.write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(TargetError, match=r"my\.egg is not text"):
        read_file(path)


def test_a_file_that_is_not_there_exits_as_other_missing_files_do(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"none\.egg cannot be read: there is no such") as e:
        read_file(tmp_path / "none.egg")
    assert e.value.exit_code == 3


def test_one_name_twice_in_a_file_names_both_places(tmp_path: Path) -> None:
    path = written(tmp_path, "(ruleset mine)\n" + RULE + RULE)
    both = r"my\.egg:7: rule mine/turn has the name of the one at .*my\.egg:4"
    with pytest.raises(RuleError, match=both):
        check_files([path])
    with pytest.raises(RuleError, match=both):
        load_rules("exact", {}, files=[path])


def test_a_name_of_an_installed_rule_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "(ruleset mine)\n" + RULE.replace("mine/turn", "commute/mul"))
    both = r"my\.egg:4: rule commute/mul has the name of the one at .*commute\.egg:\d+"
    with pytest.raises(RuleError, match=both):
        check_files([path])
    with pytest.raises(RuleError, match=both):
        load_rules("exact", {}, files=files_for([path]))
    with pytest.raises(RuleError, match=both):
        uncertified(None, files_for([path]))  # pyright: ignore[reportArgumentType]


def test_an_unknown_head_is_named_with_the_closest_ones(tmp_path: Path) -> None:
    with pytest.raises(RuleError) as e:
        check_files([written(tmp_path, "(ruleset mine)\n" + RULE.replace("(Add b a)", "(Addd b a)"))])
    text = str(e.value)
    assert "my.egg:4: rule mine/turn: there is no head 'Addd'; the closest heads are Add" in text
    assert "\n" not in text and "In 1:" not in text


def test_a_form_that_egglog_cannot_read_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match=r"my\.egg:4: ") as e:
        check_files([written(tmp_path, "(ruleset mine)\n" + RULE.replace("(Add b a)", ""))])
    assert "\n" not in str(e.value) and "In 1:" not in str(e.value)


def test_an_unknown_class_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match=r"my\.egg:4: rule mine/turn has the unknown class 'sortof'; write ;; exact"):
        read_file(written(tmp_path, "(ruleset mine)\n" + RULE.replace("exact", "sortof")))


@pytest.mark.parametrize("bound", ["", " e", " 0", " 1e999", " -1"])
def test_an_approximation_says_how_far_it_may_be_off(tmp_path: Path, bound: str) -> None:
    with pytest.raises(RuleError, match=r"my\.egg:4: rule mine/turn does not say how far"):
        read_file(written(tmp_path, "(ruleset mine)\n" + RULE.replace("exact", f"approximate{bound}")))


def test_a_rule_that_is_further_off_than_the_tolerance_takes_no_part(tmp_path: Path) -> None:
    path = written(tmp_path, "(ruleset mine)\n" + RULE.replace("exact", "approximate 1e-3"))
    for tolerance, there in ((1e-3, True), (5e-4, False)):
        (_, forms), *_ = load_rules("approximate", {}, files=[path], tolerance=tolerance).texts
        assert any("mine/turn" in form for form in forms) == there
