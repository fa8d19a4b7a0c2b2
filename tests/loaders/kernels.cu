struct Mixed {
  int first;
  double second;
  char third[5];
};
struct Large {
  int values[1500];
};
template <class T>
__global__ void scale(T *out, const T *in, T by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i] * by;
}
template __global__ void scale<float>(float *, const float *, float, int);
template __global__ void scale<double>(double *, const double *, double, int);

extern "C" __global__ void sizes(signed char a, short b, int c, long long d, float e, double f, Mixed g,
                                 unsigned long long h, double *out) {
  *out = a + b + c + d + e + f + g.first + h;
}
extern "C" __global__ void large(Large values, long long *out) { *out = values.values[7]; }
extern "C" __global__ void nothing() {}
