// A radix sort and a scan inside one thread block.
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_scan.cuh>

extern "C" __global__ void block_sort(unsigned* keys, int* ranks) {
  using Sort = cub::BlockRadixSort<unsigned, 128, 4, int>;
  using Scan = cub::BlockScan<int, 128>;
  __shared__ union {
    typename Sort::TempStorage sort;
    typename Scan::TempStorage scan;
  } shared;
  unsigned mine[4];
  int with[4];
  for (int i = 0; i < 4; ++i) {
    mine[i] = keys[threadIdx.x * 4 + i];
    with[i] = ranks[threadIdx.x * 4 + i];
  }
  Sort(shared.sort).Sort(mine, with);
  __syncthreads();
  Scan(shared.scan).InclusiveSum(with, with);
  for (int i = 0; i < 4; ++i) {
    keys[threadIdx.x * 4 + i] = mine[i];
    ranks[threadIdx.x * 4 + i] = with[i];
  }
}
