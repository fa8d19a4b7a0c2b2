// CUTLASS's matrix product D = alpha * A * B + beta * C, one member of the family for each set of macros.
#include <cutlass/gemm/kernel/default_gemm.h>
#include <cutlass/epilogue/thread/linear_combination.h>
#include <cutlass/gemm/threadblock/threadblock_swizzle.h>

using Row = cutlass::layout::RowMajor;
using Column = cutlass::layout::ColumnMajor;
using Epilogue = cutlass::epilogue::thread::LinearCombination<OUTPUT, 128 / cutlass::sizeof_bits<OUTPUT>::value, float, float>;

using Gemm = typename cutlass::gemm::kernel::DefaultGemm<
    ELEMENT, Row, 128 / cutlass::sizeof_bits<ELEMENT>::value, ELEMENT, Column,
    128 / cutlass::sizeof_bits<ELEMENT>::value, OUTPUT, Row, float, cutlass::arch::OpClassTensorOp,
    cutlass::arch::Sm80, cutlass::gemm::GemmShape<TILE_M, TILE_N, 32>,
    cutlass::gemm::GemmShape<WARP_M, WARP_N, 32>, cutlass::gemm::GemmShape<16, 8, 16>, Epilogue,
    cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<>, STAGES, false,
    cutlass::arch::OpMultiplyAdd>::GemmKernel;

extern "C" __global__ void __launch_bounds__(Gemm::kThreadCount)
    gemm(int m, int n, int k, ELEMENT *a, ELEMENT *b, OUTPUT *c, OUTPUT *d, float alpha, float beta) {
  extern __shared__ int shared[];
  cutlass::gemm::GemmCoord size(m, n, k), tiles((m + TILE_M - 1) / TILE_M, (n + TILE_N - 1) / TILE_N, 1);
  Gemm::Params params(size, tiles, {a, k}, {b, k}, {c, n}, {d, n}, {alpha, beta});
  Gemm kernel;
  kernel(params, *reinterpret_cast<Gemm::SharedStorage *>(shared));
}

// What a caller must know to launch it.
extern "C" __global__ void shape(int *out) {
  out[0] = Gemm::kThreadCount, out[1] = sizeof(Gemm::SharedStorage), out[2] = TILE_M, out[3] = TILE_N;
}
