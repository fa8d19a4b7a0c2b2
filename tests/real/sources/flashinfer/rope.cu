// Rotary embedding of queries and keys, by position and from a table of sines.
#include <flashinfer/pos_enc.cuh>

using namespace flashinfer;

const void* kernels[] = {
    (const void*)BatchQKApplyRotaryPosIdsKernel<false, 128, 8, 16, half, int32_t>,
    (const void*)BatchQKApplyRotaryPosIdsCosSinCacheKernel<true, 128, 8, 16, nv_bfloat16, int32_t>,
};
