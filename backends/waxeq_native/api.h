/* What a generated kernel may call. Every function runs on the calling thread, allocates nothing and keeps no state.
 *
 * Sizes and strides are int64_t and count elements; strides may be zero or negative. `scratch` needs no alignment. */
#ifndef WX_API_H
#define WX_API_H

#include <stdint.h>

enum { WX_ADD = 1, WX_OF_SEVERAL = 2, WX_CAREFUL = 4 };

/* The members for one element type; `S` is f32 or f64. For C[M x n], A[M x K], B[K x n]: element (i, k) of A lies at
 * A[i * ras + k * cas], (k, j) of B at B[k * rbs + j * cbs], (i, j) of C at C[i * ldc + j]; C overlaps nothing else.
 * With `accumulate` the product is added to C, without it C is written and never read. For gemm it may be WX_ADD;
 * WX_OF_SEVERAL where C is the sum of several products: they are summed in shorter runs, as they end in a longer sum;
 * and WX_CAREFUL where the differences of its elements are wanted: in runs of 12, and where tiles are whole and A lies
 * by rows what is lost when runs are added goes into the next. What is not finite may become NaN by that.
 *
 * nr                 columns of a panel: results whose tiles begin at multiples of these cost least
 * packed_size        elements that pack_b writes: n rounded up to nr, times K
 * pack_b             columns 0..n-1 of B as panels of nr columns, [panel][k][nr], zeros beyond n
 * gemm               C = A * B or C += A * B with B packed; columns from j on, j a multiple of nr, are those of
 *                    packed + j * K
 * gemm_scratch       bytes of scratch that gemm needs
 * gemm_any           the same product with B as it lies, for uses that are not worth packing for (small, once)
 * gemm_any_scratch   bytes of scratch that gemm_any needs
 * dots_pay           whether gemm_any makes dot products of so few rows, and no panels: but for one row or column, and
 *                    with WX_CAREFUL
 * lies_well          whether gemm_any reads B in place and makes no panels: but for one row or column, and dot products
 * blas               the same product by `function`, the address of a cblas_?gemm whose integers have `bits` bits.
 *                    Answers 0, or 1 with C untouched where the strides or sizes cannot be said in BLAS */
#define WX_API_MEMBERS(T, S)                                                                                           \
  int64_t nr_##S;                                                                                                      \
  int64_t (*packed_size_##S)(int64_t K, int64_t n);                                                                    \
  void (*pack_b_##S)(int64_t K, int64_t n, const T *B, int64_t rbs, int64_t cbs, T *packed);                           \
  void (*gemm_##S)(int64_t M, int64_t n, int64_t K, const T *A, int64_t ras, int64_t cas, const T *packed, T *C,       \
                   int64_t ldc, int accumulate, char *scratch);                                                        \
  int64_t (*gemm_scratch_##S)(int64_t M, int64_t n, int64_t K);                                                        \
  void (*gemm_any_##S)(int64_t M, int64_t n, int64_t K, const T *A, int64_t ras, int64_t cas, const T *B, int64_t rbs, \
                       int64_t cbs, T *C, int64_t ldc, int accumulate, char *scratch);                                 \
  int64_t (*gemm_any_scratch_##S)(int64_t M, int64_t n, int64_t K);                                                    \
  int (*dots_pay_##S)(int64_t M, int64_t K, int64_t cas, int64_t rbs);                                                 \
  int (*lies_well_##S)(int64_t M, int64_t n, int64_t K, int64_t rbs, int64_t cbs);                                     \
  int (*blas_##S)(void *function, int64_t bits, int64_t M, int64_t n, int64_t K, const T *A, int64_t ras, int64_t cas, \
                  const T *B, int64_t rbs, int64_t cbs, T *C, int64_t ldc, int accumulate);

typedef struct wx_api {
  WX_API_MEMBERS(float, f32)
  WX_API_MEMBERS(double, f64)
} wx_api;

/* Fill in the members for one element type. */
void wx_fill_f32(wx_api *api);
void wx_fill_f64(wx_api *api);

/* What `wx_context.library` is for kernels that call a BLAS: its cblas_?gemm, with integers of `bits` bits, and how many
 * threads of its own it may use. */
typedef struct {
  void *f32, *f64;
  void (*set_threads)(int);
  int (*get_threads)(void);
  int64_t bits;
  int32_t busy, users, before; /* calls that hold its threads; how many it had before the first of them */
} wx_blas;

#endif
