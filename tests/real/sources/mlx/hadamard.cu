// MLX's Hadamard transform; the odd factor is supplied by whoever compiles it.
#include "mlx/backend/cuda/device/hadamard.cuh"

namespace mlx::core::cu {
__device__ __forceinline__ void hadamard_radix_m(float*) {}
const void* kernel = (const void*)hadamard_n<float, 1024, 16, 4>;
}  // namespace mlx::core::cu
