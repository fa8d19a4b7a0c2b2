// Assertions of CCCL and our own: their messages name the files they stand in.
#include <cassert>
#include <cuda/std/array>
#include <cuda/std/span>

extern "C" __global__ void asserting(int* values, int count, int index) {
  assert(count > 0);
  cuda::std::span<int> all(values, count);
  cuda::std::array<int, 4> few{1, 2, 3, 4};
  all[index] += few[index & 7];
}
