"""The Python face of call.c: calls of a program from its arrays to its results, without Python in between.

It reads objects of Python and arrays of NumPy as they lie in memory. That is looked at first, in every process, and
where it is another way (or Python has no global lock) calls are made in Python as they were before.
"""

from __future__ import annotations

import ctypes
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from waxeq.backend.direct import LENT, Direct, Passed, Place, Slot
from waxeq.backend.kernel import OUT
from waxeq.errors import WaxeqError
from waxeq.forks import renewed_in_children
from waxeq_native import library, team
from waxeq_native.steps import OPERANDS, OUT_PLACE, Run, Step
from waxeq_native.steps import check as check_all
from waxeq_native.team import Team

FILES = (Path(__file__).with_name("call.c"), team.HERE / "team.h")
_POINTER = ctypes.sizeof(ctypes.c_void_p)
_VERSION, _ARRAY_TYPE, _NEW, _SET_BASE = 0, 2, 94, 282
"""Places in the table of NumPy's C functions, which never change."""
_ABI = 0x02000000


def _structure(name: str, **fields: Any) -> Any:
    """A structure of call.c."""
    return type(name, (ctypes.Structure,), {"_fields_": list(fields.items())})


_P, _I = ctypes.c_void_p, ctypes.c_int64
_Head: Any = _structure("object", references=ctypes.c_ssize_t, type=_P)
_Array: Any = _structure(
    "array", head=_Head, data=_P, axes=ctypes.c_int, shape=_P, strides=_P, base=_P, dtype=_P, flags=ctypes.c_int
)
_Place: Any = _structure("place", cell=_P, offset=_I)
_Row: Any = _structure("row", dtype=_P, shape=_P, axes=_I, bytes=_I, own=_P, places=_P, count=_I)
_Slot: Any = _structure("slot", keeper=ctypes.py_object, shown=_P, address=_P)
_Lent: Any = _structure("lent", slots=_Slot * LENT, taken=_P, made=_P)
_Calling: Any = _structure(
    "calling",
    team=_P,
    phases=_P,
    phase_count=_I,
    inputs=_P,
    outputs=_P,
    memory=_P,
    input_count=_I,
    output_count=_I,
    outside=_P,
    outside_count=_I,
    check=_P,
    more=_P,
    run=_P,
    array_type=_P,
    new_array=_P,
    set_base=_P,
    busy=_I,
)


def direct(work: Any, inputs: Sequence[Passed], outputs: Sequence[Passed], more: Callable[[], None]) -> Direct | None:
    """The calls of a program whose one instruction is `work` (`waxeq.backend.direct.Directly`). Not those that are one
    loop only as long as arguments lie as they did: that is looked at in Python."""
    if not isinstance(work, Run | Step) or (isinstance(work, Run) and work.loops) or unusable() is not None:
        return None
    if any(not isinstance(s, Step) for p in (*inputs, *outputs) for at in p.places for s in at.instructions):
        return None
    return _calls(work, inputs, outputs, more)


def _calls(work: Run | Step, inputs: Sequence[Passed], outputs: Sequence[Passed], more: Callable[[], None]) -> Direct:
    """The functions of a program, which keep alive all that C reads and writes. Raises what `ready` does."""
    code, table = ready()
    memory = (_Lent * len(outputs))()
    steps = work.steps if isinstance(work, Run) else (work,)
    checked = [s for s in steps if s.work.may_fail]
    check = partial(check_all, checked)
    keep: list[Any] = [work, inputs, outputs, more, check, memory]
    outside = [ctypes.addressof(s.context) + type(s.context).outside.offset for s in checked]
    it = _Calling(
        team=Team.of(max(s.threads for s in steps)).handle,
        phases=ctypes.addressof(work.phases),
        phase_count=len(work.phases),
        inputs=_array(_Row, [_row(p, keep) for p in inputs], keep),
        outputs=_array(_Row, [_row(p, keep) for p in outputs], keep),
        memory=ctypes.addressof(memory),
        input_count=len(inputs),
        output_count=len(outputs),
        outside=_array(_P, outside, keep),
        outside_count=len(outside),
        check=id(check),
        more=id(more),
        run=ctypes.cast(team.code()["wx_run"], _P).value,
        array_type=id(np.ndarray),
        new_array=table[_NEW],
        set_base=table[_SET_BASE],
    )
    keep.append(renewed_in_children(_UnderWay(it, memory), _UnderWay.forgotten))
    call, alone = code.wx_calling(ctypes.addressof(it), (it, *keep))
    return Direct(call, alone, partial(_lend, memory))  # `lend` does not refer to the others: they would never be freed


def _lend(memory: Any, number: int, i: int, slot: Slot) -> None:
    memory[number].slots[i] = _Slot(slot, id(slot.shown), slot.address)


@dataclass(frozen=True, eq=False)
class _UnderWay:
    """What a call is in the midst of."""

    it: Any
    memory: Any

    def forgotten(self) -> None:
        """In a process that was forked, which has not the thread that was in a call: what that one made is nobody's."""
        self.it.busy = 0
        for row in self.memory:
            row.made = None


def _row(p: Passed, keep: list[Any]) -> Any:
    dtype, shape = p.type.numpy, p.type.shape
    keep.append(dtype)
    places = [x for at in p.places for x in _cells(at)]
    own = None if p.own is None else p.own.ctypes.data
    at = _array(_Place, places, keep)
    return _Row(id(dtype), _array(ctypes.c_ssize_t, shape, keep), len(shape), p.type.bytes, own, at, len(places))


def _cells(at: Place) -> Iterator[Any]:
    """The arguments that are read or written there; their steps no longer hold what they were bound to."""
    for s in at.instructions:
        place = OUT_PLACE if at.position == OUT else OPERANDS + at.position
        s.point(place, s.args[place])
        yield _Place(ctypes.addressof(s.args) + place * _POINTER, at.offset)


def _array(kind: Any, rows: Sequence[Any], keep: list[Any]) -> int:
    """The address of an array of these, which `keep` holds."""
    made = (kind * len(rows))(*rows)
    keep.append(made)
    return ctypes.addressof(made)


# -- whether it can be done


class Unusable(WaxeqError):
    """Calls cannot be made in C here; says why."""


def unusable() -> str | None:
    """Why calls are made in Python in this process, in one sentence; None where they are made in C."""
    found = _ready()
    return str(found) if isinstance(found, WaxeqError) else None


def ready() -> tuple[ctypes.PyDLL, Any]:
    """The library of call.c, and the table of NumPy's C functions. Raises Unusable, MissingCompiler, CompileFailed; the
    answer is the same for the process's life."""
    found = _ready()
    if isinstance(found, WaxeqError):
        raise type(found)(str(found))
    return found


@cache
def _ready() -> tuple[ctypes.PyDLL, Any] | WaxeqError:
    try:
        table = _table()
        _look()
        built = library.unit(FILES)
        code = ctypes.PyDLL(built._name, handle=built._handle)
        code.wx_calling.argtypes, code.wx_calling.restype = (_P, ctypes.py_object), ctypes.py_object
    except WaxeqError as e:
        return type(e)(str(e))  # one that was raised holds who called, and all that they had
    return code, table


def _table() -> Any:
    """Addresses of NumPy's C functions. Raises Unusable where they are not those that call.c was written for."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise Unusable("calls are made in Python: this one has no global lock, or is not CPython")
    get = ctypes.PYFUNCTYPE(_P, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
    try:
        made: Any = import_module("numpy._core._multiarray_umath")
        table = ctypes.cast(get(made._ARRAY_API, None), ctypes.POINTER(_P))
    except (ImportError, AttributeError, ValueError) as e:
        raise Unusable(f"calls are made in Python: NumPy's C functions are not found ({e})") from None
    version = ctypes.CFUNCTYPE(ctypes.c_uint)(table[_VERSION] or 0)()
    if version != _ABI or table[_ARRAY_TYPE] != id(np.ndarray):
        raise Unusable(f"calls are made in Python: NumPy has another ABI ({version:#x})")
    return table


def _look() -> None:
    """Raises Unusable where objects or arrays do not lie in memory as call.c reads them."""
    if object.__basicsize__ != ctypes.sizeof(_Head) or np.ndarray.__basicsize__ < ctypes.sizeof(_Array):
        raise Unusable("calls are made in Python: its objects have another size")
    whole = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    others = np.zeros((), np.int8), np.ones(3, np.float64)[::2], np.zeros((0, 5)), np.zeros(9, "u1")[1:].view("i8")
    for a in (whole, whole[1:, ::2], whole.T, *others):
        for writeable in (True, False):
            a.flags.writeable = writeable
            if not _lies(a):
                raise Unusable("calls are made in Python: NumPy's arrays lie in memory another way")


def _lies(a: np.ndarray) -> bool:
    seen = _Array.from_address(id(a))
    before = seen.head.references
    held = [a, a, a]
    if seen.head.references != before + len(held):
        return False
    rows = [(*(ctypes.c_ssize_t * a.ndim).from_address(at),) if a.ndim else () for at in (seen.shape, seen.strides)]
    base = None if a.base is None else id(a.base)
    found = seen.head.type, seen.data, seen.axes, *rows, seen.base, seen.dtype, seen.flags
    return found == (id(np.ndarray), a.ctypes.data, a.ndim, a.shape, a.strides, base, id(a.dtype), a.flags.num)
