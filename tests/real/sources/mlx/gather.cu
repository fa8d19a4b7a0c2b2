// MLX's gather kernel, as its run-time compiler instantiates it.
#include "mlx/backend/cuda/device/gather.cuh"

namespace mlx::core::cu {
const void* kernels[] = {
    (const void*)gather<float, int32_t, 1, 1, int32_t>,
    (const void*)gather<__half, uint32_t, 2, 2, int64_t>,
};
}  // namespace mlx::core::cu
