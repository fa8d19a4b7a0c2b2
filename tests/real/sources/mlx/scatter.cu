// MLX's scatter kernels, with atomic sums and maxima.
#include "mlx/backend/cuda/device/scatter.cuh"

namespace mlx::core::cu {
const void* kernels[] = {
    (const void*)scatter<float, int32_t, ScatterSum, 1, 1, int32_t>,
    (const void*)scatter<int32_t, uint32_t, ScatterMax, 2, 1, int64_t>,
    (const void*)masked_scatter<float, true, false, int32_t>,
};
}  // namespace mlx::core::cu
