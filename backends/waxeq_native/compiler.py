"""The machine's C compiler: found when first asked for, and described well enough to key what it made."""

from __future__ import annotations

import importlib.util
import os
import platform
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from waxeq.children import start_group
from waxeq.errors import WaxeqError
from waxeq_native.files import replace

FLAGS = (
    *("-O3", "-std=gnu11", "-fPIC", "-shared", "-w", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math"),
    *("-ffp-contract=fast", "-fno-semantic-interposition", "-fwrapv"),
    *(f"-fno-builtin-{f}{s}" for f in ("sin", "cos", "tan", "asin", "acos", "atan", "tanh", "erf") for s in ("", "f")),
)
"""What every unit is built with. Never -ffast-math: NaN, infinities and -0 keep their meaning. Functions whose range
gcc knows are called as strangers: gcc 12 takes `cos(x) != cos(x)` to be false."""

STRAIGHT = ("-fno-thread-jumps", "-fno-tree-pre", "-fno-loop-unroll-and-jam")
"""gcc otherwise follows each bound of a clamp through the rest of a function, and selects between three results; it
takes a smallest of several apart into branches, for one of them is NaN where the one before is, and makes no vectors of
those (a tenth of the speed); and it takes minutes to unroll a loop of 4096 around a vector loop that reads across
rows."""

WIDE = "-mprefer-vector-width=512"
"""gcc and clang hold themselves to vectors of 256 bits on most machines with AVX-512, for the clock of the first of
them. Loops that wait for arithmetic take 0.73 of the time with whole vectors (softmax of 128 x 768, Intel, gcc 12)."""

_TUNES = (("-march=native", WIDE), ("-march=native",), ("-mcpu=native",), ())
TUNED = tuple((*tune, *extra) for tune in _TUNES for extra in (STRAIGHT, ()))
"""Ways to ask for the instructions of this machine, the first that works is used: what is no x86 knows no widths, some
compilers for arm64 know only -mcpu."""

PROBE = "#include <stdint.h>\n#include <math.h>\nint64_t wx_probe(double x) { return (int64_t)floor(x); }\n"

_SAYS, _BUILDS, _MAKES_LIBC = 20.0, 60.0, 300.0
"""Seconds in which a compiler has said what it is, and built the probe; zig makes its libc before that."""

INSTALL = "install gcc or clang, or `pip install ziglang`, or name a compiler in CC"


class MissingCompiler(WaxeqError):
    """No C compiler works on this machine; says what to install."""

    exit_code = 5


class CompileFailed(WaxeqError):
    """The compiler refused a generated source, died or took too long; says where the source was kept."""


@dataclass(frozen=True)
class Compiler:
    """A compiler that works.

    `command`: what is run; `version`: the first line it says about itself; `flags`: those that every unit is built
    with; `cpu`: the model and the features of the machine, which -march=native reads.
    """

    command: tuple[str, ...]
    version: str
    flags: tuple[str, ...]
    cpu: str

    @property
    def identity(self) -> str:
        """A hash of everything but the source that decides what a library holds."""
        return sha256(repr((self.command, self.version, self.flags, self.cpu)).encode()).hexdigest()

    @property
    def is_zig(self) -> bool:
        return any(Path(part).name in ("zig", "ziglang") for part in self.command)

    def start(self, sources: Sequence[Path], output: Path, log: Path, flags: Sequence[str] = ()) -> subprocess.Popen:
        """Starts to build a shared library; messages go to `log`. The process leads a group of its own, so that
        whoever gives up can end all of it, and it ends with this process; what it leaves then lies beside `output`.
        """
        line = [*self.command, *self.flags, *flags, "-o", str(output), *map(str, sources), "-lm"]
        how = {**_plain_words(), "TMPDIR": str(output.parent)}
        with log.open("wb") as messages:
            return start_group(line, stdin=subprocess.DEVNULL, stdout=messages, stderr=messages, env=how)


def find(environment: Mapping[str, str] | None = None, memory: Path | None = None) -> Compiler:
    """The compiler that CC in `environment` (this process's own, if None) names; else the first that works of cc,
    gcc, clang and the one that the package ziglang brings. The folder `memory` keeps which flags it was found to work
    with, which takes a tenth of a second to find out.

    Raises MissingCompiler when none works, and when CC names one that does not.
    """
    environment = os.environ if environment is None else environment
    given = environment.get("CC", "")
    try:
        chosen = shlex.split(given)
    except ValueError as e:
        raise MissingCompiler(f"CC is `{given}`, which is no command ({e}): {INSTALL}.") from None
    if chosen:
        found = _tried(tuple(chosen), environment, memory)
        if isinstance(found, str):
            raise MissingCompiler(f"CC is `{shlex.join(chosen)}`, which does not work ({found}): {INSTALL}.")
        return found
    refused = []
    for command in _candidates(environment):
        found = _tried(command, environment, memory)
        if isinstance(found, Compiler):
            return found
        refused.append(f"{shlex.join(command)}: {found}")
    raise MissingCompiler(f"No C compiler works here{_listed(refused)}: {INSTALL}.")


def cpu() -> str:
    """Model and features of the processor as Linux tells them for the first core, else what Python knows."""
    told = ("model name", "flags", "Features", "CPU implementer", "CPU architecture", "CPU variant", "CPU part")
    try:
        core = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0]
    except OSError:
        core = ""
    pairs = (line.partition(":") for line in core.splitlines())
    fields = {key.strip(): value.strip() for key, _, value in pairs}
    kept = [fields[key] for key in told if key in fields]
    return "; ".join([platform.machine(), *kept] if kept else [platform.machine(), platform.processor()])


def first_error(log: str) -> str:
    """The line of a compiler's messages that says what was wrong."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), lines[0] if lines else "it said nothing")


def ended(code: int) -> str:
    """How a process with this return code ended, in words."""
    return f"was ended by signal {-code}" if code < 0 else f"gave up with code {code}"


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    path = environment.get("PATH")
    for name in ("cc", "gcc", "clang"):
        if found := shutil.which(name, path=path):
            yield (found,)
    if importlib.util.find_spec("ziglang") is not None:
        yield (sys.executable, "-m", "ziglang", "cc")


def _tried(command: tuple[str, ...], environment: Mapping[str, str], memory: Path | None) -> Compiler | str:
    """The compiler that this command runs, or why it cannot be used."""
    program = shutil.which(command[0], path=environment.get("PATH"))
    if program is None:
        return "no such program"
    command = (program, *command[1:])
    try:
        said = subprocess.run(
            [*command, "--version"], capture_output=True, timeout=_SAYS, check=False, env=_plain_words()
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        return str(e)
    version = next(iter(said.stdout.decode(errors="replace").splitlines()), "")
    choices = [Compiler(command, version, (*FLAGS, *tuned), cpu()) for tuned in TUNED]
    if memory is None:
        return _first_that_builds(choices)
    note = memory / sha256("".join(choice.identity for choice in choices).encode()).hexdigest()
    with suppress(OSError):
        known = note.read_text(encoding="ascii", errors="replace")
        for choice in choices:
            if choice.identity == known:
                return choice
    found = _first_that_builds(choices)
    if isinstance(found, Compiler):
        with suppress(OSError):
            replace(note, found.identity.encode())
    return found


def _first_that_builds(choices: Sequence[Compiler]) -> Compiler | str:
    why = ""
    with tempfile.TemporaryDirectory(prefix="waxeq-") as folder:
        source, built, log = (Path(folder, n) for n in ("probe.c", "probe.so", "log"))
        source.write_text(PROBE, encoding="utf-8")
        for compiler in choices:
            try:
                process = compiler.start([source], built, log)
            except OSError as e:
                return str(e)
            try:
                code = done(process, _MAKES_LIBC if compiler.is_zig else _BUILDS)
            except subprocess.TimeoutExpired as e:
                return str(e)
            finally:
                end(process)
            if code == 0 and built.exists():  # where a program ignores SIGCHLD all of its processes end with 0
                return compiler
            why = first_error(log.read_text(encoding="utf-8", errors="replace"))
    return why


def done(process: subprocess.Popen, seconds: float) -> int:
    """What a process ended with, as soon as it does: a wait with a limit looks every 50 ms, which is as long as many a
    kernel takes. Raises subprocess.TimeoutExpired."""
    with suppress(OSError, AttributeError):  # it has ended, or this is another system
        held = os.pidfd_open(process.pid)
        try:
            watched = select.poll()
            watched.register(held, select.POLLIN)
            if not watched.poll(seconds * 1000):
                raise subprocess.TimeoutExpired(process.args, seconds)
        finally:
            os.close(held)
    return process.wait(seconds)


def end(process: subprocess.Popen) -> None:
    """Ends a compiler and what it started, if it still runs."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _plain_words() -> dict[str, str]:
    """The environment in which a compiler speaks English, so that its errors are known as such."""
    return {**os.environ, "LC_ALL": "C"}


def _listed(refused: Sequence[str]) -> str:
    return f" ({'; '.join(refused)})" if refused else ""
