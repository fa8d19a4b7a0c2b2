// silu(x) * y, as in a gated feed-forward layer.
#include <flashinfer/activation.cuh>

__device__ __forceinline__ float silu(const float& x) { return x / (1.0f + __expf(-x)); }

const void* kernel = (const void*)flashinfer::activation::act_and_mul_kernel<half, silu, 8>;
