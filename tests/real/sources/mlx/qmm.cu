// MLX's product with four-bit weights on tensor cores, over CuTe.
#include <cute/tensor.hpp>

#include "mlx/backend/cuda/device/qmm_sm80.cuh"

using BlockTile = cute::Shape<cute::_32, cute::_128, cute::_64>;

namespace mlx::core::cu {
const void* kernel = (const void*)qmm_sm80_kernel<64, cutlass::half_t, cutlass::int4b_t, cutlass::half_t, BlockTile>;
}
