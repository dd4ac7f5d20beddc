"""Every error waxeq raises on purpose, each with the exit code that the command line gives it."""

from __future__ import annotations

from typing import ClassVar


class WaxeqError(Exception):
    """Base of all expected failures: the message is one sentence a user can act on.

    `exit_code` is what `waxeq` exits with; see the table in README.md.
    """

    exit_code: ClassVar[int] = 1


class WaxeqWarning(RuntimeWarning):
    """What a user should know, though everything goes on."""


class UsageError(WaxeqError):
    """An option or argument that makes no sense."""

    exit_code = 2


class OptionError(UsageError):
    """A value of an option of an optimization that makes no sense. It is called by its name in Python; the command
    line, where it is typed otherwise, says `said` of it."""

    def __init__(self, option: str, said: str) -> None:
        super().__init__(f"option {option}{said}")
        self.option, self.said = option, said

    def __reduce__(self) -> tuple[type[OptionError], tuple[str, str]]:
        """To be told of in another process: as it was made."""
        return OptionError, (self.option, self.said)


class TargetError(WaxeqError):
    """The model file, its inputs or its weights cannot be loaded, or the model itself raises."""

    exit_code = 3


class UnsupportedError(WaxeqError):
    """The model uses a function, an operator or a Python construct that waxeq cannot trace."""

    exit_code = 4


class FallbackError(WaxeqError):
    """Strict mode met something that would have needed a fallback."""

    exit_code = 5


class AccuracyError(WaxeqError):
    """A plan, a kernel or a rule does not compute what it should."""

    exit_code = 6


class BudgetError(WaxeqError):
    """No plan could be found inside the given time or memory."""

    exit_code = 7


class ClusterError(WaxeqError):
    """The scheduler of a cluster cannot be reached, or no worker of it can measure anything here."""

    exit_code = 10


class TableLockedError(WaxeqError):
    """The timing table is held by another process for too long."""

    exit_code = 8


class TableError(WaxeqError):
    """The timing table is unreadable, of another version, or cannot be written."""

    exit_code = 1


class TableWriteError(TableError):
    """The timing table cannot be made or written where it is to lie: no permission, a read-only disk, no room."""


class TypeMismatch(WaxeqError):
    """Shapes or dtypes do not fit an operator; raised where a graph is built."""

    exit_code = 3


class UnknownDtype(TypeMismatch):
    """A dtype that waxeq has no tensors of: complex, strings, objects, datetimes."""


class BoundsError(TypeMismatch, IndexError):
    """An input holds an index that lies outside the axis it points into; also an IndexError, as NumPy raises one."""


class RuleError(WaxeqError):
    """A rule file does not parse, a rule is ill-typed, or a rule is refused; names file and line."""

    exit_code = 6


class PlanError(WaxeqError):
    """A plan file is damaged, of another version, or cannot be written."""

    exit_code = 3


class LockError(WaxeqError):
    """A lock file is damaged or of another model, or something is not as it was when the plan was locked."""

    exit_code = 9
