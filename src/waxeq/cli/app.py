"""The command line: its commands, and what becomes of errors."""

from __future__ import annotations

import errno
import inspect
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, get_args

from cyclopts import App, ArgumentCollection, CoercionError, CycloptsError

from waxeq.__about__ import __version__
from waxeq.cli import bundling, db, discard, interrupted, looking, machine, pareto, profile, say, work
from waxeq.errors import BudgetError, RuleError, WaxeqError, WaxeqWarning

_EXAMPLES = {
    "optimize": "waxeq optimize model.py --budget 2m",
    "run": "waxeq run model.plan.json --input x=x.npy -o results.npz",
    "bundle": "waxeq bundle model.plan.json -o model.waxeq",
    "explain": "waxeq explain model.plan.json",
    "paths": "waxeq paths model.py --limit 5 --state model.paths.json",
    "profile": "waxeq profile --list models.txt --budget 10m",
    "pareto": "waxeq pareto model.py --tolerance 1e-2 --plot front.svg",
    "mem": "waxeq mem model.plan.json --max-memory 512MiB",
    "bench": "waxeq bench model.py --vs jax,ort --plot times.svg",
    "calibrate": "waxeq calibrate --quick",
    "rules list": "waxeq rules list --json",
    "rules check": "waxeq rules check my.egg",
    "backends": "waxeq backends",
    "db status": "waxeq db status --table timings.duckdb",
    "db doctor": "waxeq db doctor --fix",
    "db merge": "waxeq db merge other.duckdb shards/ --table timings.duckdb",
    "db diff": "waxeq db diff before.duckdb after.duckdb",
    "db export": "waxeq db export timings.parquet",
    "db import": "waxeq db import timings.parquet",
    "db gc": "waxeq db gc --dry-run",
    "db plot": "waxeq db plot curves.svg --kernel native.products",
    "doctor": "waxeq doctor",
}
"""What stands at the end of each command's help."""
_EXIT_CODES = """`waxeq COMMAND --help` has the options of a command, and an example.

Exit codes:
  0    done
  1    internal error; or the timing table is not there, damaged, of another
       version, holds too little to draw, or cannot be written; or a plan
       cannot be run or timed: the cache of its kernels is full, or the
       process that timed it failed
  2    a command, option or value that makes no sense
  3    the model, its inputs, its weights, a plan or a rule file cannot be
       loaded, or shapes do not fit; or the plan cannot be written
  4    the model uses something that cannot be traced or is not supported
  5    --strict refused to fall back to the model as written, to fewer
       kernels (no compiler, a full cache), or to a timing table in memory
  6    a numeric check failed, or a rule is ill-typed or refused
  7    no plan within the budget of time or memory
  8    another process holds the timing table
  9    --locked found something that is not as it was locked; or the lock is
       damaged, or cannot be written
  10   the scheduler of a cluster does not answer, or none of its workers
       can be used
  130  interrupted; the best plan so far is saved
  143  ended by SIGTERM; timings so far are saved, a plan is not"""
"""As in README.md, in short; no line is wrapped where a terminal has 80 columns."""


_HIDDEN = re.compile(r"\. Did you mean --(no-)?(measure|trial)\?")
"""What Cyclopts proposes though no help shows it."""


def build() -> App:
    """The command line with all its commands."""
    app = App(
        name="waxeq",
        help="A superoptimizing compiler for tensor programs: waxeq optimize FILE.py finds the fastest program equal "
        "to a NumPy function, checks it against float64, and writes it as a plan, which waxeq run PLAN runs.",
        help_epilogue=_EXIT_CODES,
        version=__version__,
        help_format="plaintext",
        config=require_whole,
        suppress_keyboard_interrupt=False,
    )
    for command in (
        work.optimize,
        work.run,
        bundling.bundle,
        looking.explain,
        profile.paths,
        profile.profile,
        pareto.pareto,
        looking.mem,
        work.bench,
    ):
        _add(app, command, command.__name__)
    _add(app, machine.calibrate, "calibrate")
    rules = App(name="rules", help="The rewrite rules: list them, check your own.", help_epilogue="")
    _add(rules, machine.rules_list, "rules list")
    _add(rules, machine.rules_check, "rules check")
    app.command(rules)
    _add(app, machine.backends, "backends")
    table = App(name="db", help="The timing table: how long kernels take on this machine.", help_epilogue="")
    for command in db.COMMANDS:
        _add(table, command, command.__name__.replace("_", " "))
    app.command(table)
    _add(app, machine.doctor, "doctor")
    return app


def _add(app: App, command: Callable[..., object], called: str) -> None:
    """A command with an example of its use; `called` is what is typed for it."""
    command.__doc__ = reflowed(command.__doc__ or "")  # Cyclopts reads it there, and keeps its lines as they are
    many = [n.upper() for n, p in inspect.signature(command).parameters.items() if p.kind is p.VAR_POSITIONAL]
    app.command(
        command,
        name=called.split()[-1],
        usage=f"Usage: waxeq {called} [OPTIONS] [{many[0]}...]" if many else None,  # or they would be called ARGS
        help_epilogue=f"Example: {_EXAMPLES[called]}",
    )


def reflowed(text: str) -> str:
    """A docstring with every paragraph on one line, which a terminal breaks where it ends."""
    lines = [""]
    for line in inspect.cleandoc(text).splitlines():
        before, indent = lines[-1], len(line) - len(line.lstrip())
        goes_on = line and before and indent == len(before) - len(before.lstrip())
        if goes_on and not {line.strip("-"), before.strip("-")} & {""}:
            lines[-1] = f"{before} {line.lstrip()}"
        else:
            lines.append(line)
    return "\n".join(lines[1:])


def require_whole(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Raise CoercionError for a whole number that is written with decimals, of any option: Cyclopts would round it."""
    for a in arguments:
        if int in (a.hint, *get_args(a.hint)):
            for token in a.tokens:
                if not re.fullmatch(r"[+-]?\d+", token.value):
                    raise CoercionError(
                        msg=f"{token.value!r} is no whole number", argument=a, token=token, target_type=int
                    )


def run(argv: Sequence[str]) -> int:
    """Run a command line; its exit code. Raises what comes of Ctrl-C, and of a reader of stdout that is gone."""
    shown = warnings.showwarning
    quiet = not {"-q", "--quiet"}.isdisjoint(argv)

    def note(message: Warning | str, category: type[Warning], *more: Any) -> None:
        if not issubclass(category, WaxeqWarning):
            shown(message, category, *more)
        elif not quiet:
            say(f"waxeq: note: {message}")

    warnings.showwarning = note
    try:
        code = build()(argv, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except Exception as e:
        if interrupted(e) or isinstance(e, BrokenPipeError):
            raise
        if "--traceback" in argv:
            import traceback

            traceback.print_exc()
        if _full(e):
            discard(sys.stdout)  # what is still to be written there would fail again
        say(sentence(e))
        return code_of(e)


def sentence(e: Exception) -> str:
    """An error in one sentence on one line; a refuted rule with its counterexample below."""
    if isinstance(e, RuleError) and "\n" in str(e):  # a counterexample is a table of what was tried
        return f"waxeq: {str(e).rstrip()}"
    text = " ".join(str(e).split()).removesuffix(".")
    if isinstance(e, WaxeqError):
        return f"waxeq: {text}"
    if isinstance(e, CycloptsError):
        command = " ".join(("waxeq", *(e.command_chain or ())))
        return f"waxeq: {_HIDDEN.sub('', text)}; see {command} --help"
    if isinstance(e, MemoryError):
        return f"waxeq: there is not enough memory: {text or 'none is left'}; use smaller inputs"
    if _full(e):
        return f"waxeq: a disk is full, or what the output goes to: {text}; make room and run the command again"
    return (
        f"waxeq: internal error: {type(e).__name__}: {text}; this is a bug, please report it with what --traceback "
        "prints"
    )


def _full(e: Exception) -> bool:
    """Whether there was no space left for what was written."""
    return isinstance(e, OSError) and e.errno == errno.ENOSPC


def code_of(e: Exception) -> int:
    """The exit code of an error; see the table in README.md."""
    if isinstance(e, WaxeqError):
        return e.exit_code
    return 2 if isinstance(e, CycloptsError) else BudgetError.exit_code if isinstance(e, MemoryError) else 1
