// Appending keys and values to a paged cache.
#include <flashinfer/page.cuh>

using namespace flashinfer;

const void* kernels[] = {
    (const void*)AppendPagedKVCacheKernel<128, 8, half, int32_t>,
    (const void*)AppendPagedKVCacheDecodeKernel<128, 8, nv_bfloat16, int32_t>,
};
