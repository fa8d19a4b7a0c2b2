// Cooperative groups, a barrier that counts bytes, and globals of cuda::std with internal linkage.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda/std/functional>
#include <cuda/std/span>

namespace cg = cooperative_groups;

namespace {
__device__ int calls;
}

extern "C" __global__ void pipelined(const float* in, float* out, int steps) {
  __shared__ float stage[2][128];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  auto block = cg::this_thread_block();
  auto pipe = cuda::make_pipeline(block, &state);
  float sum = 0;
  for (int i = 0; i < steps; ++i) {
    pipe.producer_acquire();
    cuda::memcpy_async(block, stage[i & 1], in + i * 128, sizeof stage[0], pipe);
    pipe.producer_commit();
    pipe.consumer_wait();
    cuda::std::span<float> mine(stage[i & 1]);
    sum += mine[threadIdx.x] * ::cuda::std::plus<>{}(1.0f, mine.front());
    pipe.consumer_release();
  }
  auto warp = cg::tiled_partition<32>(block);
  out[threadIdx.x] = cg::reduce(warp, sum, cg::plus<float>());
  if (warp.thread_rank() == 0) atomicAdd(&calls, 1);
}
