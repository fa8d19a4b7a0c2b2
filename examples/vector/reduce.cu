// Instantiates two kernels of the header tree beside it. Their C++ names, `vector::reduce<float>` and
// `vector::reduce<double, 512>`, can be given as --entry.
#include <vector/reduce.cuh>

template __global__ void vector::reduce<float>(float *, const float *, int);
template __global__ void vector::reduce<double, 512>(double *, const double *, int);
