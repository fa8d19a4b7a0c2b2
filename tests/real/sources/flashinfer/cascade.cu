// Merging attention states of parts of a sequence.
#include <flashinfer/attention/cascade.cuh>

using namespace flashinfer;

const void* kernels[] = {
    (const void*)MergeStateKernel<8, half, half>,
    (const void*)MergeStatesKernel<8, half, half>,
    (const void*)MergeStatesLargeNumIndexSetsKernel<8, 16, 8, 4, half, half>,
};
