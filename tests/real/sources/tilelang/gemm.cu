// One step of a matrix product as TileLang generates it: asynchronous copies, ldmatrix, mma.
#include <tl_templates/cuda/common.h>
#include <tl_templates/cuda/copy.h>
#include <tl_templates/cuda/ldsm.h>
#include <tl_templates/cuda/instruction/mma.h>

extern "C" __global__ void __launch_bounds__(32) step(const half_t* a, const half_t* b, float* c) {
  __shared__ alignas(128) half_t tile[2][256];
  tl::cp_async_gs<16>(tile[0] + threadIdx.x * 8, a + threadIdx.x * 8);
  tl::cp_async_gs<16>(tile[1] + threadIdx.x * 8, b + threadIdx.x * 8);
  tl::cp_async_commit();
  tl::cp_async_wait<0>();
  __syncthreads();
  unsigned fa[4], fb[4];
  float sum[8] = {};
  tl::ptx_ldmatrix_x4(tile[0] + (threadIdx.x & 15) * 16 + (threadIdx.x >> 4) * 8, fa);
  tl::ptx_ldmatrix_x4(tile[1] + (threadIdx.x & 15) * 16 + (threadIdx.x >> 4) * 8, fb);
  using tl::DataType;
  tl::mma_sync<DataType::kFloat16, DataType::kFloat16, DataType::kFloat32, 16, 8, 16, false, true>(sum, fa, fb);
  tl::mma_sync<DataType::kFloat16, DataType::kFloat16, DataType::kFloat32, 16, 8, 16, false, true>(sum + 4, fa, fb + 2);
  for (int i = 0; i < 8; ++i) c[threadIdx.x * 8 + i] = sum[i];
}
