"""What is given as an array: refused by name, or an array."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from waxeq.errors import TypeMismatch
from waxeq.ir.array import as_array
from waxeq.ir.dlpack import CPU, Delete, Managed, Tensor, Type, packed
from waxeq.ir.types import DTYPES, numpy_dtype

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "is None"),
        ("text", "is of class str"),
        (b"text", "is of class bytes"),
        ({"a": 1}, "is of class dict"),
        (len, "is of class builtin_function_or_method"),
        (object(), "is of class object"),
        ([[1, 2], [3]], "has rows of different lengths"),
        (np.array([None, 1]), "is an array of dtype object"),
        (np.array(["a"]), "is an array of dtype <U1"),
        (
            np.array(["2020-01-01"], "datetime64[D]"),
            r"is an array of dtype datetime64\[D\]; pass x\.astype\(np\.int64\), which",
        ),
        (
            np.ma.masked_array([1.0, 2.0], [False, True]),
            r"is a masked array, whose mask would be lost; pass x\.filled\(value\)",
        ),
        (np.ma.masked_array([1.0, 2.0]), r"is a masked array, whose mask would be lost; pass x\.filled\(value\)"),
    ],
)
def test_what_is_no_array_of_numbers(value: Any, said: str) -> None:
    with pytest.raises(TypeMismatch, match=f"^input 'x' {said}.*; it takes float32") as e:
        as_array(value, "input 'x'", "it takes float32[2]")
    assert "\n" not in str(e.value) and e.value.exit_code == 3


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_is_taken_as_it_is(dtype: str) -> None:
    a = np.ones(3, numpy_dtype(dtype))
    assert as_array(a, "x") is a


def test_what_numpy_makes_arrays_of() -> None:
    class Tensor:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return np.arange(3.0)

        def __call__(self) -> None: ...

    assert as_array([[1, 2], [3, 4]], "x").shape == (2, 2)
    assert as_array(Tensor(), "x").tolist() == [0, 1, 2]
    swapped = np.arange(3, dtype=">i4")
    assert as_array(swapped, "x").dtype.isnative and as_array(swapped, "x").tolist() == [0, 1, 2]


def test_arrays_of_other_libraries_are_taken_where_they_lie() -> None:
    class Foreign:
        """What has DLPack and nothing else."""

        def __init__(self, a: np.ndarray, device: tuple[int, int] = (1, 0)) -> None:
            self._a, self._device = a, device

        def __dlpack_device__(self) -> tuple[int, int]:
            return self._device

        def __dlpack__(self, **given: Any) -> Any:
            if self._device[0] != 1:
                raise BufferError("it lies on a GPU")
            return self._a.__dlpack__(**given)

    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert np.shares_memory(as_array(Foreign(a), "x"), a) and as_array(Foreign(a), "x").shape == (2, 3)
    with pytest.raises(TypeMismatch, match="input 'x' cannot be made an array"):
        as_array(Foreign(a, (2, 0)), "input 'x'")


def test_bfloat16_of_others_is_taken_where_it_lies_and_given_back() -> None:
    """Which NumPy has no dtype for, and refuses."""
    a, back = np.arange(6, dtype=np.float32).astype(ml_dtypes.bfloat16).reshape(2, 3), list[int]()
    delete = Delete(lambda managed: back.append(1))

    class Foreign:
        dtype = "torch.bfloat16"

        def __dlpack_device__(self) -> tuple[int, int]:
            return CPU, 0

        def __dlpack__(self) -> Any:
            shape, steps = (ctypes.c_int64 * 2)(3, 2), (ctypes.c_int64 * 2)(1, 3)
            tensor = Tensor(a.ctypes.data, CPU, 0, 2, Type.of(a.dtype), shape, steps, 0)
            self.made = Managed(tensor, None, delete)
            return packed(self.made)

    lender = Foreign()
    found = as_array(lender, "x")
    assert found.dtype == a.dtype and np.array_equal(found, a.T) and np.shares_memory(found, a)
    assert not found.flags.writeable and not back
    del found
    assert back == [1]


def test_arrays_of_torch_are_taken() -> None:
    torch = pytest.importorskip("torch")
    assert as_array(torch.ones(3), "x").tolist() == [1, 1, 1]
    with torch.enable_grad(), pytest.raises(TypeMismatch, match="requires grad"):  # the mode is the whole process's
        as_array(torch.ones(3, requires_grad=True), "x")
    halves = torch.arange(6).to(torch.bfloat16).reshape(2, 3)
    turned = as_array(halves.T, "x")
    assert turned.dtype.name == "bfloat16" and turned.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert as_array(halves, "x").ctypes.data == halves.data_ptr() and as_array(halves[:0], "x").shape == (0, 3)
