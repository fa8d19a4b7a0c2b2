// Single precision without tensor cores: the same code for every architecture.
#include <cutlass/gemm/device/gemm.h>

using Device = cutlass::gemm::device::Gemm<
    float, cutlass::layout::ColumnMajor,
    float, cutlass::layout::ColumnMajor,
    float, cutlass::layout::ColumnMajor>;

struct FloatGemm : Device::GemmKernel {};

template __global__ void cutlass::Kernel<FloatGemm>(FloatGemm::Params);
