// MLX's scatter along one axis.
#include "mlx/backend/cuda/device/scatter_axis.cuh"

namespace mlx::core::cu {
const void* kernel = (const void*)scatter_axis<__nv_bfloat16, uint32_t, ScatterSum, 2, true, false, int64_t>;
}
