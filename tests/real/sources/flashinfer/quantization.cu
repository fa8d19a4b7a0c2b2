// Packing attention masks into bits, with CUB underneath.
#include <flashinfer/quantization.cuh>

const void* kernel = (const void*)flashinfer::quantization::SegmentPackBitsKernel<
    flashinfer::quantization::BitOrder::kLittle, int32_t>;
