// Small kernels for the tests of cubinet.objects: one for each thing that a cubin can tell.
#include <cstdio>

__constant__ float table[64];
__device__ float offsets[32];

extern "C" __global__ void scale(float* x, float f) { x[threadIdx.x] *= f; }
extern "C" __global__ void empty() {}

template <class T> __global__ void fill(T* x, T v) { x[blockIdx.x * blockDim.x + threadIdx.x] = v; }
template __global__ void fill<float>(float*, float);
template __global__ void fill<double>(double*, double);
template __global__ void fill<unsigned long long>(unsigned long long*, unsigned long long);
template __global__ void fill<const float*>(const float**, const float*);

namespace ns {
enum class Mode { a, b };
template <int N, bool B, unsigned U, class T, Mode M = Mode::b> __global__ void tile(T* x) {
  __shared__ T s[N];
  s[threadIdx.x % N] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = B ? s[(threadIdx.x + U) % N] : T(0);
}
template __global__ void tile<4, true, 7u, float>(float*);
template __global__ void tile<296, false, 7u, double, Mode::a>(double*);
struct Shape { int m, n; };
__global__ void plain(Shape s, float* x, char c) { x[0] = s.m + s.n + c; }
}  // namespace ns

template <char C, long L, unsigned long long U> __global__ void values(long* x) { x[0] = C + L + (long)U; }
template __global__ void values<'a', -3L, 18446744073709551615ull>(long*);

namespace { __global__ void hidden(float* x) { x[threadIdx.x] = table[threadIdx.x % 64] + offsets[1]; } }
static __global__ void quiet(float* x) { x[threadIdx.x] += 1; }
void* keep(int i) { return i ? (void*)hidden : (void*)quiet; }

// Stack: an array of its own, a function with one, one behind a pointer, recursion.
__device__ __noinline__ int deep(int* x, int n) {
  volatile int a[50];
  for (int i = 0; i < 50; i++) a[i] = x[i];
  return a[n % 50];
}
typedef int (*Deep)(int*, int);
__device__ Deep choices[2] = {deep, deep};
extern "C" __global__ void own_array(int* x, int n) {
  int a[200], sum = 0;
  for (int i = 0; i < 200; i++) a[i] = x[i] * n;
  for (int i = 0; i < n; i++) sum += a[(x[i] * 7) % 200];
  x[0] = sum;
}
extern "C" __global__ void both(int* x, int n) {
  volatile int a[20];
  for (int i = 0; i < 20; i++) a[i] = x[i];
  x[n] = deep(x, n) + a[n % 20];
}
extern "C" __global__ void called(int* x, int n) { x[n] = deep(x, n); }
extern "C" __global__ void pointed(int* x, int n) { x[n] = choices[n](x, n); }
__device__ __noinline__ float again(float a, int n) { return n <= 0 ? a : again(a * 1.5f, n - 1) + a; }
extern "C" __global__ void recursive(float* x, int n) { x[threadIdx.x] = again(x[threadIdx.x], n); }
extern "C" __global__ void prints(int* x, int n) { x[n] = n; printf("%d\n", n); }

extern "C" __global__ void dynamic(float* x) {
  extern __shared__ float d[];
  __shared__ float s[300];
  d[threadIdx.x] = x[0];
  s[threadIdx.x] = x[1];
  __syncthreads();
  x[1] = d[3] + s[3];
}

struct Large { int v[900]; };
extern "C" __global__ void large(const __grid_constant__ Large l, int* x, int n) { x[n] = l.v[n]; }

// Spills under -maxrregcount=32: every round needs all 64 values.
extern "C" __global__ void greedy(float* x, const float* y, int n) {
  float v[64];
#pragma unroll
  for (int i = 0; i < 64; i++) v[i] = x[i];
#pragma unroll 1
  for (int k = 0; k < n; k++) {
#pragma unroll
    for (int i = 0; i < 64; i++) v[i] = v[i] * v[(i * 7 + 3) % 64] + y[k + i];
  }
#pragma unroll
  for (int i = 0; i < 64; i++) x[i] = v[i];
}
