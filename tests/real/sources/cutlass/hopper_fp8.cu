// Eight-bit floats on sm_90a, two blocks in a cluster sharing what TMA brings.
#include "collective.cuh"

using namespace cute;

struct Float8 : Collective<cutlass::arch::Sm90, cutlass::float_e4m3_t, Shape<_128, _128, _128>, Shape<_2, _1, _1>,
                           cutlass::gemm::KernelTmaWarpSpecializedCooperativeFP8FastAccum,
                           cutlass::epilogue::TmaWarpSpecializedCooperative>::Kernel {};

template __global__ void cutlass::device_kernel<Float8>(const __grid_constant__ Float8::Params);
