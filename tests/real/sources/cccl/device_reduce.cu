// All kernels behind one call of cub::DeviceReduce.
#include <cub/device/device_reduce.cuh>

cudaError_t reduce(void* space, size_t& bytes, const float* in, float* out, int count, cudaStream_t stream) {
  return cub::DeviceReduce::Sum(space, bytes, in, out, count, stream);
}
