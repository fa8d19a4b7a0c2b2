// D = A * B + C on the tensor cores of sm_80, through the device-level interface.
#include <cutlass/gemm/device/gemm.h>

using Device = cutlass::gemm::device::Gemm<
    cutlass::half_t, cutlass::layout::RowMajor,
    cutlass::half_t, cutlass::layout::ColumnMajor,
    cutlass::half_t, cutlass::layout::RowMajor,
    float, cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80,
    cutlass::gemm::GemmShape<128, 128, 32>,
    cutlass::gemm::GemmShape<64, 64, 32>,
    cutlass::gemm::GemmShape<16, 8, 16>>;

struct HalfGemm : Device::GemmKernel {};  // a short name for the kernel's symbol

template __global__ void cutlass::Kernel<HalfGemm>(HalfGemm::Params);
