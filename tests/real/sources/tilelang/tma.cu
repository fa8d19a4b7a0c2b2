// A bulk copy through TMA into shared memory and back, as TileLang generates it for sm_90a and later.
#include <tl_templates/cuda/common.h>
#include <tl_templates/cuda/barrier.h>
#include <tl_templates/cuda/copy_sm90.h>

extern "C" __global__ void __launch_bounds__(128) bulk(const __grid_constant__ CUtensorMap from, float* to) {
  __shared__ alignas(1024) float tile[1024];
  __shared__ alignas(16) uint64_t space[1];
  auto& arrived = *reinterpret_cast<Barrier*>(space);
  if (threadIdx.x == 0) {
    tl::prefetch_tma_descriptor(from);
    arrived.init(1);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    arrived.arrive_and_expect_tx(sizeof tile);
    tl::tma_load(from, arrived, tile, 0, 0);
  }
  arrived.wait(0);
  tile[threadIdx.x] *= 2;
  tl::tma_store_wait<0>();
  if (threadIdx.x == 0) tl::tma_store(to, tile, sizeof tile);
}
