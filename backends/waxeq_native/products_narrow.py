"""Products with few columns that fill no whole panels, and so deep that all of the right side lies in the first-level
cache, as what a matrix of features is multiplied by. A tile is as many vectors wide as its columns are, however many
that is, where those of gemm.h are two: of 50 columns the last two would take as long as half of the others. Its sums
are made of several short ones, which round less (N. J. Higham, The accuracy of floating point summation, 1993).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from waxeq.backend.call import Call
from waxeq_cfamily.loops import Emitter
from waxeq_cfamily.products import Product
from waxeq_cfamily.spaces import Tile
from waxeq_cfamily.stages import Space
from waxeq_cfamily.taken import NAME
from waxeq_cfamily.values import Unsupported, Values
from waxeq_native.gemm import entry
from waxeq_native.products import Products, function
from waxeq_native.products_text import ProductEmitter
from waxeq_native.work import Work

_WIDEST = 16
"""Elements of the widest vectors of any machine."""
_LEAST, _MOST = _WIDEST + 1, 128
"""Columns that are two vectors at least, and those of so many panels that the last is little of them."""
_SHALLOW = 16
"""Rows and depth from which on a tile is worth its beginning."""
_BYTES = 16 << 10
"""Of a right side that stays in the first-level cache beside rows of the left one."""

_TEXT = """
#if defined(__AVX512F__)
enum { WX_FUNCTION_lanes = 16, WX_FUNCTION_registers = 28 };
#elif defined(__AVX__)
enum { WX_FUNCTION_lanes = 8, WX_FUNCTION_registers = 12 };
#elif defined(__ARM_NEON)
enum { WX_FUNCTION_lanes = 4, WX_FUNCTION_registers = 24 };
#else
enum { WX_FUNCTION_lanes = 4, WX_FUNCTION_registers = 12 };
#endif
enum {
  WX_FUNCTION_run = 16, /* products that are summed in one go */
  WX_FUNCTION_columns = COLUMNS,
  WX_FUNCTION_depth = DEPTH,
  WX_FUNCTION_runs = (WX_FUNCTION_depth + WX_FUNCTION_run - 1) / WX_FUNCTION_run,
  WX_FUNCTION_each = (WX_FUNCTION_depth + WX_FUNCTION_runs - 1) / WX_FUNCTION_runs,
  WX_FUNCTION_vectors = (WX_FUNCTION_columns + WX_FUNCTION_lanes - 1) / WX_FUNCTION_lanes,
  WX_FUNCTION_step = WX_FUNCTION_vectors * WX_FUNCTION_lanes,
  WX_FUNCTION_odd = WX_FUNCTION_vectors % 2 ? 3 : 2, /* vectors of the first strip; all others have two */
  WX_FUNCTION_first = WX_FUNCTION_odd * WX_FUNCTION_lanes,
  WX_FUNCTION_until = WX_FUNCTION_first < WX_FUNCTION_columns ? WX_FUNCTION_first : WX_FUNCTION_columns,
  WX_FUNCTION_two = 2 * WX_FUNCTION_lanes,
  WX_FUNCTION_last = WX_FUNCTION_step - WX_FUNCTION_two,
};
typedef float WX_FUNCTION_vector __attribute__((vector_size(4 * WX_FUNCTION_lanes)));
typedef float WX_FUNCTION_memory __attribute__((vector_size(4 * WX_FUNCTION_lanes), aligned(4), may_alias));

/* A tile of so many rows and vectors, of the last of which some columns may lie outside the matrix. */
static inline __attribute__((always_inline)) void WX_FUNCTION_tile(
    const int rows, const int vectors, const int columns, const float *A, int64_t ras, int64_t cas, const float *B,
    float *C, int64_t ldc, int add) {
  WX_FUNCTION_vector all[WX_FUNCTION_registers][3];
  for (int64_t first = 0; first < WX_FUNCTION_depth; first += WX_FUNCTION_each) {
    const int64_t end = WX_FUNCTION_depth - first < WX_FUNCTION_each ? WX_FUNCTION_depth : first + WX_FUNCTION_each;
    WX_FUNCTION_vector sum[WX_FUNCTION_registers][3];
    _Pragma("GCC unroll 28") for (int i = 0; i < rows; i++)
      _Pragma("GCC unroll 3") for (int v = 0; v < vectors; v++) sum[i][v] = (WX_FUNCTION_vector){0};
    _Pragma("GCC unroll 4") for (int64_t k = first; k < end; k++) {
      WX_FUNCTION_vector b[3]; /* read once: folded into products they would be read for each row */
      _Pragma("GCC unroll 3") for (int v = 0; v < vectors; v++)
        b[v] = *(const volatile WX_FUNCTION_memory *)(B + k * WX_FUNCTION_step + v * WX_FUNCTION_lanes);
      _Pragma("GCC unroll 28") for (int i = 0; i < rows; i++) {
        const float a = A[i * ras + k * cas];
        _Pragma("GCC unroll 3") for (int v = 0; v < vectors; v++) sum[i][v] += a * b[v];
      }
    }
    _Pragma("GCC unroll 28") for (int i = 0; i < rows; i++)
      _Pragma("GCC unroll 3") for (int v = 0; v < vectors; v++) {
        if (first) sum[i][v] += all[i][v];
        all[i][v] = sum[i][v];
      }
  }
  _Pragma("GCC unroll 28") for (int i = 0; i < rows; i++) {
    if (add) {
      WX_FUNCTION_vector before[3] = {{0}};
      __builtin_memcpy(before, C + i * ldc, columns * sizeof(float));
      _Pragma("GCC unroll 3") for (int v = 0; v < vectors; v++) all[i][v] += before[v];
    }
    __builtin_memcpy(C + i * ldc, all[i], columns * sizeof(float));
  }
}

/* Columns that are so many vectors wide, for all rows: what is left of them is made anew with the rows before, or,
   where it is added, row by row. */
static inline __attribute__((always_inline)) void WX_FUNCTION_strip(
    const int vectors, const int columns, int64_t M, const float *A, int64_t ras, int64_t cas, const float *B, float *C,
    int64_t ldc, int add) {
  const int rows = WX_FUNCTION_registers / vectors;
  int64_t i = 0;
  for (; i + rows <= M; i += rows)
    WX_FUNCTION_tile(rows, vectors, columns, A + i * ras, ras, cas, B, C + i * ldc, ldc, add);
  if (0 < i && i < M && !add) {
    i = M - rows;
    WX_FUNCTION_tile(rows, vectors, columns, A + i * ras, ras, cas, B, C + i * ldc, ldc, 0);
    return;
  }
  for (; i < M; i++) WX_FUNCTION_tile(1, vectors, columns, A + i * ras, ras, cas, B, C + i * ldc, ldc, add);
}
#define WX_FUNCTION_STRIP(name, vectors, columns) \\
  static __attribute__((noinline)) void name( \\
      int64_t M, const float *A, int64_t ras, int64_t cas, const float *B, float *C, int64_t ldc, int add) { \\
    WX_FUNCTION_strip(vectors, columns, M, A, ras, cas, B, C, ldc, add); \\
  }
WX_FUNCTION_STRIP(WX_FUNCTION_begins, WX_FUNCTION_odd, WX_FUNCTION_until)
WX_FUNCTION_STRIP(WX_FUNCTION_goes_on, 2, WX_FUNCTION_two)
WX_FUNCTION_STRIP(WX_FUNCTION_ends, 2, WX_FUNCTION_columns - WX_FUNCTION_last)

static void WX_FUNCTION_product(int64_t M, const float *A, int64_t ras, int64_t cas, const float *right, int64_t rbs,
                                int64_t cbs, float *C, int64_t ldc, int add, char *scratch) {
  float *B = (float *)scratch;
  for (int64_t k = 0; k < WX_FUNCTION_depth; k++)
    for (int64_t j = 0; j < WX_FUNCTION_step; j++)
      B[k * WX_FUNCTION_step + j] = j < WX_FUNCTION_columns ? right[k * rbs + j * cbs] : 0;
  WX_FUNCTION_begins(M, A, ras, cas, B, C, ldc, add);
  int64_t j = WX_FUNCTION_first;
  for (; j < WX_FUNCTION_last; j += WX_FUNCTION_two) WX_FUNCTION_goes_on(M, A, ras, cas, B + j, C + j, ldc, add);
  if (j < WX_FUNCTION_columns) WX_FUNCTION_ends(M, A, ras, cas, B + j, C + j, ldc, add);
}
#undef WX_FUNCTION_STRIP
"""


@dataclass(frozen=True)
class _Narrow(ProductEmitter):
    def call(self, p: Product, left: str, target: str) -> Iterator[str]:
        right, rbs, cbs = self.side(p.right, p.depth, p.columns)
        rows, _, _, where = left.split(", ", 3)
        yield f"  {NAME}_product({rows}, {where}, {right}, {rbs}, {cbs}, {target}, scratch);"


class NarrowProducts(Products):
    """A sum of products of two matrices of float32, of few columns and little depth, with any epilogue."""

    name = "products_narrow"
    most = Tile(128, _MOST)

    def work(self, call: Call) -> Work | None:
        return None if call.sized else super().work(call)

    def in_blocks(self, call: Call, values: Values) -> Work | None:
        return None

    def tile(self, values: Values, products: tuple[Product, ...], threads: int) -> Tile:
        """All columns, and as many rows as others take."""
        if len(products) != 1 or products[0].columns in values.folded:
            raise Unsupported("products that are made one for the other")
        p, sizes = products[0], values.sizes
        m, n, depth = (sizes[k] for k in (p.rows, p.columns, p.depth))
        if values.rows[p.fold].dtype != "float32" or not _LEAST <= n <= _MOST or n % entry("nr", "float32") == 0:
            raise Unsupported("columns that fill panels")
        if min(m, depth) < _SHALLOW or _bytes(depth, n) > _BYTES:
            raise Unsupported("a right side that leaves the first-level cache, or little to multiply")
        return Tile(super().tile(values, products, threads).rows, n)

    def writer(self, call: Call, s: Space) -> Callable[..., ProductEmitter]:
        return _Narrow

    def function(self, e: Emitter, room: int) -> str:
        (p,), sizes = e.space.products, e.values.sizes
        return _text(sizes[p.columns], sizes[p.depth]) + function(e, room)

    def scratch(self, s: Space, p: Product, packed: bool, deeper: str | None) -> int:
        return _bytes(s.values.sizes[p.depth], s.values.sizes[p.columns])

    def as_it_lies(self, s: Space, p: Product) -> bool:
        return True

    def _worth_packing(self, s: Space, p: Product, fixed: bool) -> bool:
        return False


def _bytes(depth: int, columns: int) -> int:
    """Of the right side with its rows filled up to whole vectors."""
    return depth * -(-columns // _WIDEST) * _WIDEST * 4


def _text(columns: int, depth: int) -> str:
    """The functions for a product of such sizes."""
    return _TEXT.replace("_columns = COLUMNS", f"_columns = {columns}").replace("_depth = DEPTH", f"_depth = {depth}")


KERNELS = (NarrowProducts,)
