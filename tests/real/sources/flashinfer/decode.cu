// Attention of one query against a paged cache, as serving engines decode.
#include <flashinfer/attention/decode.cuh>
#include <flashinfer/attention/default_decode_params.cuh>
#include <flashinfer/attention/variants.cuh>

using namespace flashinfer;
using Params = BatchDecodeParams<half, CACHE, half, int32_t>;
using Attention = DefaultAttention<false, SLIDING, SOFT_CAP, false>;

constexpr uint32_t kVec = 16 / sizeof(CACHE), kThreads = 128 / kVec;

const void* kernel = (const void*)BatchDecodeWithPagedKVCacheKernel<
    PosEncodingMode::kRoPELlama, 2, 1, kVec, kThreads, 4, 2, Attention, Params>;
