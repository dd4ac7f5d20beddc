"""What waxeq has to work with, as plain data: rules and backends."""

from __future__ import annotations

from typing import Any


def rule_rows() -> list[dict[str, Any]]:
    """Every installed rewrite rule. Raises RuleError when a file cannot be read."""
    from waxeq.egraph.installed import rule_files
    from waxeq.egraph.rules import read_file

    return [
        {"name": r.name, "ruleset": r.ruleset, "class": r.cls, "bound": r.bound, "law": r.law, "place": r.place}
        for path in rule_files()
        for r in read_file(path).rules
    ]


def backend_rows() -> list[dict[str, Any]]:
    """Every installed backend: usable or why not, and its kernels."""
    from waxeq.backend.discover import found

    return [
        {
            "name": f.name,
            "distribution": f.distribution,
            "device": None if f.backend is None else f.backend.device,
            "usable": f.why is None,
            "why": f.why,
            "kernels": [] if f.backend is None else [
                {"name": n, "form": k.form, "meaning": k.pattern} for n, k in sorted(f.backend.kernels.items())
            ],
        }
        for f in found()
    ]  # fmt: skip
