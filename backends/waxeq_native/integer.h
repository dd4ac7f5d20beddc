/* Products of whole numbers, summed in 32 bits that wrap around, as NumPy's int32 does. Every function runs on the calling
 * thread and allocates nothing; strides count elements. */
#ifndef WX_INTEGER_H
#define WX_INTEGER_H

#include <stdint.h>

enum { WX_INT8, WX_UINT8, WX_INT16, WX_INT32 };

/* C[M x n], A[M x K], B[K x n]: element (i, k) of A lies at A[i * ras + k * cas], (k, j) of B at B[k * rbs + j * cbs],
 * (i, j) of C at C[i * ldc + j]. `of_a` and `of_b` say what the elements are. With `accumulate` the product is added to
 * C, without it C is written and never read.
 *
 * nr        columns of a panel
 * pack      columns 0..n-1 of B as panels of nr columns, [panel][k / 2][nr][2], zeros beyond n and K; of WX_INT32
 *           [panel][part][k / 2][nr][2] in sixteen bits: low * 1 + high * 2^16, the low part signed
 * gemm      C = A * B or C += A * B with B packed; columns from j on, j a multiple of nr, are those of packed + j * K,
 *           K rounded up to an even number
 * gemm_any  the same with B as it lies
 * scratch   bytes of scratch that either needs; it needs no alignment */
typedef struct wx_integer {
  int64_t nr;
  void (*pack)(int of_b, int64_t K, int64_t n, const void *B, int64_t rbs, int64_t cbs, void *packed);
  void (*gemm)(int of_a, int of_b, int64_t M, int64_t n, int64_t K, const void *A, int64_t ras, int64_t cas,
               const void *packed, int32_t *C, int64_t ldc, int accumulate, char *scratch);
  void (*gemm_any)(int of_a, int of_b, int64_t M, int64_t n, int64_t K, const void *A, int64_t ras, int64_t cas,
                   const void *B, int64_t rbs, int64_t cbs, int32_t *C, int64_t ldc, int accumulate, char *scratch);
  int64_t (*scratch)(int64_t M, int64_t n, int64_t K);
} wx_integer;

#endif
