// Eight-bit floats, two multiprocessors at one product, on sm_100a.
#include "collective.cuh"

using namespace cute;

struct Pair : Collective<cutlass::arch::Sm100, cutlass::float_e4m3_t, Shape<_256, _128, _128>, Shape<_2, _1, _1>,
                              cutlass::gemm::KernelTmaWarpSpecialized2SmSm100,
                              cutlass::epilogue::TmaWarpSpecialized2Sm>::Kernel {};

template __global__ void cutlass::device_kernel<Pair>(const __grid_constant__ Pair::Params);
