"""Which rules may run: those that ship, and others once they have a certificate that the timing table remembers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from waxeq.cost.memos import CERTIFICATE
from waxeq.cost.table import TimingTable, default_path
from waxeq.egraph.installed import rule_files
from waxeq.egraph.rules import Rule, RuleFile, core_directory, distinct, read_rules
from waxeq.errors import RuleError


def files_for(extra: Sequence[Path]) -> tuple[Path, ...]:
    """Every installed rule file, then those named for one run."""
    return tuple(dict.fromkeys((*rule_files(), *(p.resolve() for p in extra))))


def own_rules(extra: Sequence[Path]) -> tuple[RuleFile, ...]:
    """The files named for one run that are not installed. Raises as `read_rules`."""
    return tuple(map(read_rules, files_for(extra)[len(rule_files()) :]))


def uncertified(table: TimingTable, files: Sequence[Path]) -> list[tuple[RuleFile, Rule]]:
    """Rules of others that no certificate is known for. Waxeq's own are certified by its test suite.

    Raises RuleError (file:line) for a file that cannot be read or parsed, and for two rules of one name.
    """
    parsed = [read_rules(p) for p in files]
    distinct(parsed)
    foreign = [f for f in parsed if f.path.parent != core_directory()]
    if not foreign:
        return []
    rules = [(f, r, _digest(f, r)) for f in foreign for r in f.rules]
    known = table.memos(CERTIFICATE.name, [digest for _, _, digest in rules])
    return [(f, r) for f, r, digest in rules if digest not in known]


def admit(table: TimingTable, file: RuleFile, rule: Rule, certificate: str) -> None:
    """Remember the certificate of a rule, for as long as its text, its class and its file's declarations stay."""
    table.memo_put(CERTIFICATE.name, _digest(file, rule), certificate)


def require_certificates(table: TimingTable, files: Sequence[Path]) -> None:
    """Raise RuleError when a rule has none. The command gives it one before it comes here; what certifies is no part of
    what a search is made of, so that from Python it takes a command to be run once."""
    missing = uncertified(table, files)
    if missing:
        _, rule = missing[0]
        named = "" if table.path == default_path() else f" --table {table.path}"
        raise RuleError(
            f"{rule.place}: rule {rule.name} has no certificate, so it may not run; "
            f"`waxeq rules check {rule.file}{named}` gives it one if it is sound"
        )


def _digest(file: RuleFile, rule: Rule) -> str:
    said = {"rule": rule.text, "class": rule.cls, "bound": str(rule.bound), "declarations": file.declarations}
    return CERTIFICATE.key(**said)
