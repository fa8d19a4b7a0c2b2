// One kernel for each launch feature; each gives a wrong result if the feature is not there.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

// Each block puts its rank where the next block of its cluster looks, in distributed shared memory.
extern "C" __global__ void neighbours(int *out) {
  __shared__ int mine;
  cg::cluster_group cluster = cg::this_cluster();
  unsigned rank = cluster.block_rank(), count = cluster.num_blocks();
  if (threadIdx.x == 0) mine = 1000 + rank;
  cluster.sync();
  unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  if (threadIdx.x == 0) out[block] = *cluster.map_shared_rank(&mine, (rank + 1) % count) * 100 + count;
  cluster.sync();
}

// Every block adds to a sum, waits for all, and reads the same whole sum.
extern "C" __global__ void together(int *sum, int *seen) {
  if (threadIdx.x == 0) atomicAdd(sum, blockIdx.x + 1);
  cg::this_grid().sync();
  if (threadIdx.x == 0) seen[blockIdx.x] = *(volatile int *)sum;
}

__device__ long long nanoseconds() {
  long long now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

// The first kernel lets the second begin before it has written; the second waits for the first's memory.
extern "C" __global__ void first(int *data, int n, long long cycles, long long *ended) {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
  long long start = clock64();
  while (clock64() - start < cycles) {
  }
  for (int i = threadIdx.x; i < n; i += blockDim.x) data[i] = i;
  if (threadIdx.x == 0) *ended = nanoseconds();
}
extern "C" __global__ void second(int *out, const int *data, int n, long long *began) {
  if (threadIdx.x == 0) *began = nanoseconds();
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = data[i] + 1;
}

// Reverses more bytes than a block has without asking: all of them lie in dynamic shared memory at once.
extern "C" __global__ void reversed(int *out, const int *in, int n) {
  extern __shared__ int held[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) held[i] = in[i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = held[n - 1 - i];
}

extern "C" __global__ void increment(int *value) { *value += 1; }

// Runs until the host says otherwise, or for a while.
extern "C" __global__ void spin(volatile int *stop, long long cycles) {
  long long start = clock64();
  while (!*stop && clock64() - start < cycles) {
  }
}
