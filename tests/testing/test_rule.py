"""Certificates: unsound rules of every kind are caught for the right reason, sound ones pass, all that ship do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from waxeq.egraph.installed import rule_files
from waxeq.egraph.rules import read_file
from waxeq.errors import RuleError
from waxeq.testing.firing import Context
from waxeq.testing.guards import Instance
from waxeq.testing.instances import Wish, draw
from waxeq.testing.pattern import Pattern
from waxeq.testing.rule import Certificate, check_files, check_rule

CONTEXTS = {path: Context(read_file(path)) for path in rule_files()}
SHIPPED = [pytest.param(path, rule, id=rule.name) for path, c in CONTEXTS.items() for rule in c.file.rules]
IS_SOFTMAX = '(Zip "div" (Map "exp" (Zip "sub" x m)) (Sum k (Map "exp" (Zip "sub" x m))))'


def certify(folder: Path, cls: str, form: str, samples: int = 60) -> Certificate:
    path = folder / "mine.egg"
    path.write_text(f'(ruleset mine)\n; a law\n;; {cls}\n{form[:-1]} :ruleset mine :name "mine/rule")\n')
    (certificate,) = check_files([path], samples=samples)
    return certificate


@pytest.mark.parametrize(("path", "rule"), SHIPPED)
def test_every_rule_that_ships_is_certified(path, rule) -> None:
    found = check_rule(rule, samples=8, context=CONTEXTS[path]).check()
    assert found.met >= 6


UNSOUND = {
    "the wrong value": ("reassociating", '(rewrite (Zip "sub" a b) (Zip "sub" b a))', "value"),
    "something for nothing": (
        "approximate 1e-3",
        '(rewrite (Map "floor" (Map "sigmoid" x)) (Map "sigmoid" x))',
        "error",
    ),
    "a product for a sum": ("reassociating", "(rewrite (Sum k (Mul a b)) (Mul (Sum k a) (Sum k b)))", "value"),
    "grouping that rounds, called exact": ("exact", "(rewrite (Add (Add a b) c) (Add a (Add b c)))", "value"),
    "axes lost under broadcasting": ("reassociating", "(rewrite (Select c x x) x)", "axes"),
    "a scalar for a tensor": (
        "reassociating",
        '(rewrite (Zip "sub" x x) (Num 0.0 d) :when ((= d (dt x))))',
        "axes",
    ),
    "a sum pulled over a factor that shares its axis": (
        "reassociating",
        "(rewrite (Sum k (Mul a b)) (Mul a (Sum k b)) :when ((set-contains (ax b) k)))",
        "axes",
    ),
    "matrix products regrouped where they are grouped": (
        "reassociating",
        "(rewrite (Sum j (Mul (Sum k (Mul a b)) c)) (Sum k (Mul a (Sum j (Mul b c)))))",
        "axes",
    ),
    "a rename that captures": (
        "exact",
        "(rewrite (Ren a b (Sum k x)) (Sum k (Ren a b x)) :when ((!= a k) (set-contains (ax x) a)))",
        "meaning",
    ),
    "wrong for size 0: any of nothing": (
        "exact",
        '(rewrite (Red "any" k x) x :when ((set-not-contains (ax x) k)))',
        "value",
    ),
    "wrong for size 0: a sum of nothing is not what it sums": (
        "reassociating",
        "(rewrite (Sum k (Mul x (Num v d))) x :when ((set-not-contains (ax x) k) (<= (size k) 1) (= v 1.0)))",
        "value",
    ),
    "wrong for size 1": (
        "reassociating",
        '(rewrite (Scan "sum" k x) (Add x x) :when ((= (size k) 1) (set-contains (ax x) k)))',
        "value",
    ),
    "a split in the wrong order": (
        "exact",
        "(rewrite (Merge p q k x) (Merge q p k x) :when ((set-contains (ax x) p) (set-contains (ax x) q)))",
        "value",
    ),
    "overflow of exp": (
        "reassociating",
        '(rewrite (Map "exp" (Add a b)) (Mul (Map "exp" a) (Map "exp" b)))',
        "overflow",
    ),
    "softmax without its maximum": (
        "reassociating",
        f'(rewrite {IS_SOFTMAX} (Zip "div" (Map "exp" x) (Sum k (Map "exp" x))) '
        ':when ((= m (Red "max" k x)) (set-contains (ax x) k)))',
        "overflow",
    ),
    "logarithms of negative numbers": (
        "reassociating",
        '(rewrite (Map "log" (Mul a b)) (Add (Map "log" a) (Map "log" b)))',
        "undefined",
    ),
    "infinity times zero": ("exact", '(rewrite (Zip "sub" x x) (Mul x (Num 0.0 d)) :when ((= d (dt x))))', "special"),
    "the sign of zero": ("exact", "(rewrite (Add x (Num 0.0 d)) x :when ((= d (dt x))))", "special"),
    "integers that wrap around": (
        "reassociating",
        '(rewrite (Red "max" k (Add x y)) (Add (Red "max" k x) y) :when ((set-not-contains (ax y) k) (!= (size k) 0)))',
        "value",
    ),
    "another dtype": ("reassociating", '(rewrite (Cast "float64" x) x)', "dtype"),
    "a cast there and back": ("exact", '(rewrite (Cast d (Cast "float32" x)) x :when ((= d (dt x))))', "value"),
    "an approximation that is none": ("approximate 1e-2", '(rewrite (Map "tanh" x) x)', "error"),
    "an axis without a size": ("exact", '(rewrite (Sum k x) (Sum "new" (Slice k "new" 0 1 x)))', "meaning"),
    "an axis that may be there already": ("exact", '(rewrite (Sum k x) (Sum "new" (Ren k "new" x)))', "meaning"),
    "both ways, one of them wrong": (
        "reassociating",
        '(birewrite (Mul (Map "exp" a) (Map "exp" b)) (Map "exp" (Add a b)))',
        "overflow",
    ),
}


@pytest.mark.parametrize(("cls", "form", "kind"), UNSOUND.values(), ids=UNSOUND)
def test_unsound_rules_are_refused(tmp_path: Path, cls: str, form: str, kind: str) -> None:
    found = certify(tmp_path, cls, form)
    assert found.verdict == "refuted", str(found)
    assert found.failure is not None
    assert found.failure.kind == kind, str(found)
    assert f"{tmp_path / 'mine.egg'}:4" in str(found)
    with pytest.raises(RuleError, match="mine/rule"):
        found.check()


SOUND = {
    "commutes": ("exact", "(rewrite (Add a b) (Add b a))"),
    "regroups": ("reassociating", "(rewrite (Add (Add a b) c) (Add a (Add b c)))"),
    "both ways": ("exact", '(birewrite (Map "square" x) (Mul x x))'),
    "a sum of terms, whatever their axes": ("reassociating", "(rewrite (Sum k (Add a b)) (Add (Sum k a) (Sum k b)))"),
    "a guarded pull out of a sum": (
        "reassociating",
        "(rewrite (Sum k (Mul a b)) (Mul a (Sum k b)) :when ((set-not-contains (ax a) k)))",
    ),
    "the sum of a constant": (
        "reassociating",
        "(rewrite (Sum k (Num v d)) (Num c d) :when ((= c (* v (to-f64 (size k)))) (= d \"float64\")))",
    ),
    "exp of a sum from a product": (
        "reassociating",
        '(rewrite (Mul (Map "exp" a) (Map "exp" b)) (Map "exp" (Add a b)))',
    ),
    "a name made for an axis, with its guard": (
        "reassociating",
        """(rewrite (Sum k x) (Sum i (Ren k i x)) :when ((= i (+ k "'")) (set-not-contains (ax x) i)))""",
    ),
    "softmax with a maximum": (
        "reassociating",
        '(rewrite (Zip "div" (Map "exp" (Zip "sub" x m)) s) (Mul (Map "exp" (Zip "sub" x m)) (Map "recip" s)))',
    ),
    "weights only": ("reassociating", "(rewrite (Mul a (Mul b c)) (Mul (Mul a b) c) :when ((isw a) (isw b)))"),
    "gathers": ("exact", '(rewrite (Gather k i (Map f x)) (Map f (Gather k i x)))'),
    "an approximation within its bound": (
        "approximate 1e-2",
        '(rewrite (Map "sigmoid" x) (Add (Mul (Num 0.5 d) (Map "tanh" (Mul (Num 0.501 d) x))) (Num 0.5 d)) '
        ":when ((= d (dt x))))",
    ),
    "two roots": (
        "reassociating",
        "(rule ((= u (Add a (Mul b c))) (= v (Add a (Mul c b)))) ((union u v)))",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("cls", "form"), SOUND.values(), ids=SOUND)
def test_sound_rules_are_certified(tmp_path: Path, cls: str, form: str) -> None:
    found = certify(tmp_path, cls, form)
    assert found.admitted, str(found)
    assert found.met >= 20
    assert found.compared > 0
    assert len(found.dtypes) >= 1


def test_a_rule_without_limits_sees_every_kind_of_instance(tmp_path: Path) -> None:
    found = certify(tmp_path, "exact", "(rewrite (Add a b) (Add b a))", samples=150)
    assert {"float16", "bfloat16", "float32", "float64", "int32", "int64"} <= found.dtypes
    assert {0, 1, 2, 3} <= found.sizes
    assert {0, 1, 2, 3} <= found.ranks


REFUSED = {
    "an axis of the right side that is not bound": ("exact", "(rewrite (Sum k x) (Sum j x))", "j"),
    "a head that does not exist": ("exact", "(rewrite (Sum k x) (Total k x))", "Total"),
    "too few arguments": ("exact", "(rewrite (Sum x) x)", "Sum"),
    "a function that does not exist": ("exact", '(rewrite (Map "exp" x) (Map "expp" x))', "expp"),
    "a dtype that does not exist": ("exact", '(rewrite (Cast "float31" x) x)', "float31"),
    "an axis where a tensor belongs": ("exact", "(rewrite (Sum k k) k)", "k"),
    "operands that no dtype fits": ("exact", '(rewrite (Map "not" (Map "exp" x)) x)', "ill-typed"),
    "a form that is none": ("exact", "(rewrite)", ""),
}


@pytest.mark.parametrize(("cls", "form", "word"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_rule_is_refused_with_file_and_line(tmp_path: Path, cls: str, form: str, word: str) -> None:
    with pytest.raises(RuleError, match=r"mine\.egg:4") as e:
        certify(tmp_path, cls, form)
    assert word in str(e.value)


@pytest.mark.parametrize("guard", ["(= (size k) -1)", '(= (dt x) "none")', "(= 1 2)"])
def test_a_rule_that_never_fires_is_not_admitted(tmp_path: Path, guard: str) -> None:
    found = certify(tmp_path, "exact", f"(rewrite (Sum k x) (Sum k x) :when ({guard}))", samples=4)
    assert found.verdict == "not exercised"
    assert not found.admitted
    with pytest.raises(RuleError, match="not exercised"):
        found.check()


def test_a_rule_that_says_nothing_is_not_admitted(tmp_path: Path) -> None:
    found = certify(tmp_path, "exact", "(rewrite (Sum k x) (Sum k x))", samples=4)
    assert found.verdict == "not exercised"
    assert found.met > 0


@pytest.mark.parametrize("other", ["Mul", "Map"])
def test_a_rule_that_fires_one_way_only_is_not_admitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """No instance can be made of the `other` of its two sides."""

    def drawn(p: Pattern, rng: np.random.Generator, wish: Wish) -> Instance | None:
        return None if getattr(p.roots[0], "name", "") == other else draw(p, rng, wish)

    monkeypatch.setattr("waxeq.testing.rule.draw", drawn)
    found = certify(tmp_path, "exact", '(birewrite (Map "square" x) (Mul x x))', samples=8)
    assert found.verdict == "not exercised" and found.met > 0 and "one of them only" in found.reason


def test_counterexamples_are_small_and_readable(tmp_path: Path) -> None:
    found = certify(tmp_path, "reassociating", '(rewrite (Zip "sub" a b) (Zip "sub" b a))')
    assert found.failure is not None
    e = found.failure.equation
    assert sum(len(x.axes) for x in found.failure.inputs.values()) == 0, "a difference of two scalars shows it"
    text = str(found)
    assert "left   (Zip sub a b)" in text
    assert "right  (Zip sub b a)" in text
    assert all(f"{name}: " in text for name in found.failure.inputs)
    assert e.left is not e.right


def test_the_same_seed_gives_the_same_certificate(tmp_path: Path) -> None:
    form = '(rewrite (Zip "sub" a b) (Zip "sub" b a))'
    assert str(certify(tmp_path, "exact", form)) == str(certify(tmp_path, "exact", form))


def test_progress_sees_every_certificate() -> None:
    path = rule_files()[0]
    seen: list[Certificate] = []
    assert tuple(seen) == () and check_files([path], samples=2, progress=seen.append) == tuple(seen)
    assert [c.rule for c in seen] == [r.name for r in read_file(path).rules]


def test_a_guard_that_divides_by_nothing_holds_nowhere(tmp_path: Path) -> None:
    form = "(rewrite (Split k p q (Sum j a)) (Split k p q (Sum j a)) :when ((= 0 (% (size p) (size q)))))"
    assert certify(tmp_path, "exact", form).verdict in ("not exercised", "certified")
