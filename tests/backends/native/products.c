/* Products of many sizes and strides in memory of exactly the size that is needed, for builds with sanitizers: whatever
 * is read or written beyond it, or left out, ends the program with a message and code 1. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "api.h"

static uint64_t state = 1;

static int64_t below(int64_t limit) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (int64_t)((state >> 33) % (uint64_t)limit);
}

/* A matrix and its memory, which ends where its last element ends. */
#define MATRIX(T, S)                                                                                                   \
  typedef struct {                                                                                                     \
    T *memory, *at;                                                                                                    \
    int64_t rs, cs;                                                                                                    \
  } matrix_##S;                                                                                                        \
  static matrix_##S matrix_##S##_of(int64_t rows, int64_t columns) {                                                   \
    matrix_##S m = {0};                                                                                                \
    const int64_t gap = 1 + below(3) / 2, by_columns = below(2);                                                       \
    m.rs = by_columns ? gap : columns * gap + below(3), m.cs = by_columns ? rows * gap + below(3) : gap;               \
    const int64_t size = rows > 0 && columns > 0 ? (rows - 1) * m.rs + (columns - 1) * m.cs + 1 : 0;                   \
    m.at = m.memory = malloc((size_t)size * sizeof(T));                                                                \
    for (int64_t i = 0; i < size; i++) m.memory[i] = NAN;                                                              \
    for (int64_t i = 0; i < rows; i++)                                                                                 \
      for (int64_t j = 0; j < columns; j++) m.at[i * m.rs + j * m.cs] = (T)(below(64) - 32) / 32;                      \
    return m;                                                                                                          \
  }                                                                                                                    \
  static void try_##S(const wx_api *api, int64_t M, int64_t n, int64_t K) {                                            \
    const matrix_##S A = matrix_##S##_of(M, K), B = matrix_##S##_of(K, n);                                             \
    const int64_t ldc = n + below(2), size = M > 0 ? (M - 1) * ldc + n : 0;                                            \
    T *const packed = malloc((size_t)api->packed_size_##S(K, n) * sizeof(T));                                          \
    api->pack_b_##S(K, n, B.at, B.rs, B.cs, packed);                                                                   \
    double *const want = calloc((size_t)(M * n), sizeof(double));                                                      \
    for (int64_t i = 0; i < M; i++)                                                                                    \
      for (int64_t k = 0; k < K; k++)                                                                                  \
        for (int64_t j = 0; j < n; j++)                                                                                \
          want[i * n + j] += (double)A.at[i * A.rs + k * A.cs] * B.at[k * B.rs + j * B.cs];                            \
    for (int form = 0; form < 10; form++) {                                                                             \
      const int accumulate = form % 2, any = form / 2 == 1 || form / 2 == 4;                                           \
      const int how = form / 2 == 2 ? WX_OF_SEVERAL : form / 2 >= 3 ? WX_CAREFUL : 0;                                  \
      T *const C = malloc((size_t)size * sizeof(T));                                                                   \
      for (int64_t i = 0; i < size; i++) C[i] = accumulate ? 2 : NAN;                                                  \
      const int64_t bytes = any ? api->gemm_any_scratch_##S(M, n, K) : api->gemm_scratch_##S(M, n, K);                 \
      char *const scratch = malloc((size_t)bytes);                                                                     \
      if (any)                                                                                                         \
        api->gemm_any_##S(M, n, K, A.at, A.rs, A.cs, B.at, B.rs, B.cs, C, ldc, accumulate | how, scratch);             \
      else                                                                                                             \
        api->gemm_##S(M, n, K, A.at, A.rs, A.cs, packed, C, ldc, accumulate | how, scratch);                           \
      for (int64_t i = 0; i < M; i++)                                                                                  \
        for (int64_t j = 0; j < n; j++) {                                                                              \
          const double error = C[i * ldc + j] - want[i * n + j] - (accumulate ? 2 : 0);                                \
          if (!(fabs(error) <= 1e-5 * (double)(K + 1))) {                                                              \
            fprintf(stderr, #S " form %d, %lld x %lld x %lld: (%lld, %lld) is wrong by %g\n", form, (long long)M,      \
                    (long long)n, (long long)K, (long long)i, (long long)j, error);                                    \
            exit(1);                                                                                                   \
          }                                                                                                            \
        }                                                                                                              \
      free(C), free(scratch);                                                                                          \
    }                                                                                                                  \
    free(packed), free(want), free(A.memory), free(B.memory);                                                          \
  }
MATRIX(float, f32)
MATRIX(double, f64)

int main(int count, char **arguments) {
  wx_api table;
  wx_fill_f32(&table), wx_fill_f64(&table);
  const wx_api *api = &table;
  const int64_t large[] = {1, 6, 17, 300, 600};
  for (int64_t left = count > 1 ? atoll(arguments[1]) : 100; left > 0; left--) {
    int64_t sides[3];
    for (int s = 0; s < 3; s++) sides[s] = left % 16 ? below(40) : large[below(5)];
    if (left % 4 == 3) /* few rows over a depth that suits them */
      sides[0] = 2 + below(31), sides[1] = below(12), sides[2] = 16 * sides[0] + below(40);
    try_f32(api, sides[0], sides[1], sides[2]);
    try_f64(api, sides[0], sides[1], sides[2]);
  }
  return 0;
}
