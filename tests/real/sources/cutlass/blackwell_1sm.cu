// Half precision through tensor memory on sm_100a.
#include "collective.cuh"

using namespace cute;

struct Blackwell : Collective<cutlass::arch::Sm100, cutlass::half_t, Shape<_128, _128, _64>, Shape<_1, _1, _1>,
                              cutlass::gemm::KernelTmaWarpSpecialized1SmSm100,
                              cutlass::epilogue::TmaWarpSpecialized1Sm>::Kernel {};

template __global__ void cutlass::device_kernel<Blackwell>(const __grid_constant__ Blackwell::Params);
