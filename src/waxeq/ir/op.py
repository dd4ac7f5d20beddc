"""What an operator is: one class that holds its type rule, its NumPy reference and its meaning in the basis."""

from __future__ import annotations

import dataclasses
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from typing import Any, ClassVar, Literal, Protocol, dataclass_transform

import numpy as np

from waxeq.ir.term import Term
from waxeq.ir.types import TensorType


@dataclasses.dataclass(frozen=True, slots=True)
class Named:
    """A term and the axis name at each position of the tensor it stands for; None for a dimension of size 1.

    A name that is not an axis of the term is a dimension along which the tensor is constant (it was broadcast).
    """

    term: Term
    axes: tuple[str | None, ...]


class Lowering(Protocol):
    """What an operator may ask of the lowering when it gives its meaning as a term with named axes."""

    def fresh(self, size: int) -> str | None:
        """A new axis of the given size; None for size 1, which has no name."""
        ...

    def axis(self, size: int) -> str:
        """A new axis of the given size, named even when that is 1, for heads that must be told which axis they work
        on.
        """
        ...

    def size(self, axis: str | None) -> int:
        """The size of an axis; 1 for None."""
        ...

    def join(self, *xs: tuple[Named, Sequence[Hashable]]) -> tuple[tuple[Named, ...], dict[Hashable, str | None]]:
        """Name axes by labels: positions that carry one label get one name, different labels get different names.

        Each operand comes with a label per position (no label twice within an operand). Returns the operands, renamed
        where that was needed, and the axis of each label (None where every position with it has size 1).
        """
        ...

    def align(self, *xs: Named) -> tuple[tuple[Named, ...], tuple[str | None, ...]]:
        """Name the axes of operands that broadcast against each other, positions counted from the right; returns the
        operands and the axes of the result."""
        ...

    def term(self, head: str, *args: Any) -> Term:
        """Make a term; arguments as `basis.heads` says."""
        ...


class Builder(Protocol):
    """What a composite may ask for when it expands: `b(op, *values)` adds an op, `b.type(value)` is its type."""

    def __call__(self, op: Op, *values: Any) -> Any: ...
    def type(self, value: Any) -> TensorType: ...


@dataclass_transform(frozen_default=True)
class Op(ABC):
    """Base of all operators. A subclass body is the declaration: its annotated fields are the attributes (ints, floats,
    strings, bools, None and tuples of them), always explicit and normalised (no negative axes, no implicit casts)."""

    arity: ClassVar[int | None]
    onnx: ClassVar[str | None] = None
    pointwise: ClassVar[bool] = False
    """Whether an element of the result is made of those of the operands at its own place."""
    view: ClassVar[Literal["", "once", "again"]] = ""
    """How often the result has an element of its operand, where it is the same memory looked at otherwise: once at
    most, or again and again."""

    def __init_subclass__(cls, **kw: Any) -> None:
        super().__init_subclass__(**kw)
        dataclasses.dataclass(frozen=True)(cls)
        if "arity" not in cls.__dict__:
            ps = list(inspect.signature(cls.reference).parameters.values())[1:]
            cls.arity = None if any(p.kind is p.VAR_POSITIONAL for p in ps) else len(ps)

    @abstractmethod
    def infer(self, *types: TensorType) -> TensorType:
        """The result type; raises TypeMismatch with one sentence when the operands do not fit."""

    @abstractmethod
    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        """The meaning in NumPy, in the dtype of the arrays given (float64 arrays give the oracle)."""

    def ideal(self, *arrays: np.ndarray) -> np.ndarray:
        """The meaning without rounding, given float64 arrays for floats of any width."""
        return self.reference(*arrays)

    @property
    def ufunc(self) -> np.ufunc | None:
        """The NumPy function that is the whole meaning, which can write over an operand; None where there is none."""
        return None

    @property
    def ideal_into(self) -> Callable[..., np.ndarray] | None:
        """What computes `ideal` into an array `out`, which may be one of the operands; None where nothing does."""
        return self.ufunc

    @abstractmethod
    def lower(self, b: Lowering, out: TensorType, *xs: Named) -> Named:
        """The meaning as a term over named axes."""

    @property
    def label(self) -> str:
        """The name that graph text and reports use."""
        return type(self).__name__

    @property
    def attributes(self) -> dict[str, Any]:
        return {n: getattr(self, n) for n in _names(type(self))}


@cache
def _names(op: type[Op]) -> tuple[str, ...]:
    """The attributes that a class of operators has."""
    return tuple(f.name for f in dataclasses.fields(op))  # pyright: ignore[reportArgumentType]


class Composite(Op):
    """An operator whose meaning is its expansion into other operators.

    `infer` must be given (types are known before anything expands); `reference` defaults to interpreting the expansion.
    """

    def __init_subclass__(cls, **kw: Any) -> None:
        if "arity" not in cls.__dict__:
            ps = list(inspect.signature(cls.expand).parameters.values())[2:]
            cls.arity = None if any(p.kind is p.VAR_POSITIONAL for p in ps) else len(ps)
        super().__init_subclass__(**kw)

    @abstractmethod
    def expand(self, b: Builder, *values: Any) -> Any:
        """Build the same value from other operators."""

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        from waxeq.ir.interpret import evaluate_expansion

        return evaluate_expansion(self, arrays)

    def lower(self, b: Lowering, out: TensorType, *xs: Named) -> Named:
        raise TypeError(f"{self.label} is a composite: expand it before lowering")
