// A row-wise softmax as TileLang generates it: block-wide reductions.
#include <tl_templates/cuda/common.h>
#include <tl_templates/cuda/reduce.h>

extern "C" __global__ void __launch_bounds__(128) softmax(const float* in, float* out, int columns) {
  __shared__ float space[128];
  float high = -CUDART_INF_F;
  for (int i = threadIdx.x; i < columns; i += 128) high = max(high, in[blockIdx.x * columns + i]);
  high = tl::AllReduce<tl::MaxOp, 128, 1, 0>::run(high, space);
  float sum = 0;
  for (int i = threadIdx.x; i < columns; i += 128) sum += __expf(in[blockIdx.x * columns + i] - high);
  sum = tl::AllReduce<tl::SumOp, 128, 1, 0>::run(sum, space);
  for (int i = threadIdx.x; i < columns; i += 128)
    out[blockIdx.x * columns + i] = __expf(in[blockIdx.x * columns + i] - high) / sum;
}
