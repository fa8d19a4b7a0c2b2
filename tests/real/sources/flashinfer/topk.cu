// The largest entries of each row by radix select.
#include <flashinfer/topk.cuh>

using namespace flashinfer::sampling;

const void* kernel = (const void*)RadixTopKMaskLogitsKernel_MultiCTA<1024, 4, true, float, int32_t>;
