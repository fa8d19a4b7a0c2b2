#pragma once
// A block reduction over any type that can be added, with headers of its own.
#include "detail/shuffle.cuh"
#if __has_include(<vector/tuning.cuh>)
#include <vector/tuning.cuh>
#else
#define VECTOR_THREADS 256
#endif

namespace vector {

template <typename T, int Threads = VECTOR_THREADS>
__global__ void __launch_bounds__(Threads) reduce(T *out, const T *in, int n) {
    __shared__ T partial[Threads / 32];
    T sum = T(0);
    for (int i = blockIdx.x * Threads + threadIdx.x; i < n; i += gridDim.x * Threads) sum = sum + in[i];
    sum = detail::warp_sum(sum);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < Threads / 32 ? partial[threadIdx.x] : T(0);
        sum = detail::warp_sum(sum);
        if (threadIdx.x == 0) out[blockIdx.x] = sum;
    }
}

}  // namespace vector
