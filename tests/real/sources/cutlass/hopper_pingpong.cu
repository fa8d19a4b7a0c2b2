// TMA loads by one warp group, two others in turns at the tensor cores: half precision on sm_90a.
#include "collective.cuh"

using namespace cute;

struct Pingpong : Collective<cutlass::arch::Sm90, cutlass::half_t, Shape<_64, _128, _64>, Shape<_1, _1, _1>,
                             cutlass::gemm::KernelTmaWarpSpecializedPingpong,
                             cutlass::epilogue::TmaWarpSpecialized>::Kernel {};

template __global__ void cutlass::device_kernel<Pingpong>(const __grid_constant__ Pingpong::Params);
