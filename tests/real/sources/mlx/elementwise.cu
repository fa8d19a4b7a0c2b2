// MLX's operators on vectors of elements, in kernels such as it generates.
#include "mlx/backend/cuda/device/binary_ops.cuh"
#include "mlx/backend/cuda/device/cast_op.cuh"
#include "mlx/backend/cuda/device/ternary_ops.cuh"

namespace mlx::core::cu {

template <typename Op, typename T>
__global__ void binary(const T* a, const T* b, T* out, uint32_t size) {
  uint32_t index = blockIdx.x * blockDim.x + threadIdx.x;
  auto x = load_vector<4>(a, index, size, T(0)), y = load_vector<4>(b, index, size, T(0));
  AlignedVector<T, 4> result;
  for (int i = 0; i < 4; ++i) result[i] = Select{}(x[i] < y[i], Op{}(x[i], y[i]), Tanh{}(x[i]));
  store_vector(out, index, result, size);
}

__global__ void to_complex(const __half* in, complex64_t* out) { out[threadIdx.x] = cast_to<complex64_t>(in[threadIdx.x]); }

template __global__ void binary<LogAddExp, float>(const float*, const float*, float*, uint32_t);
template __global__ void binary<Maximum, __half>(const __half*, const __half*, __half*, uint32_t);

}  // namespace mlx::core::cu
