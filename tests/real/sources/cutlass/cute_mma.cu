// CuTe by hand: asynchronous copies to swizzled shared memory, then tensor cores.
#include <cute/tensor.hpp>

using namespace cute;
using Plain = Layout<Shape<_64, _64>, Stride<_64, _1>>;
using Swizzled = decltype(composition(Swizzle<3, 3, 3>{}, Plain{}));
using Mma = decltype(make_tiled_mma(SM80_16x8x16_F32F16F16F32_TN{}, Layout<Shape<_2, _2, _1>>{}));
using Copy = decltype(make_tiled_copy(Copy_Atom<SM80_CP_ASYNC_CACHEALWAYS<uint128_t>, half_t>{},
                                      Layout<Shape<_16, _8>, Stride<_8, _1>>{}, Layout<Shape<_1, _8>>{}));

extern "C" __global__ void cute_mma(half_t const* a, half_t const* b, float* c) {
  __shared__ alignas(128) half_t shared[2][cosize_v<Swizzled>];
  Tensor sa = make_tensor(make_smem_ptr(shared[0]), Swizzled{});
  Tensor sb = make_tensor(make_smem_ptr(shared[1]), Swizzled{});
  auto mover = Copy{}.get_slice(threadIdx.x);
  copy(Copy{}, mover.partition_S(make_tensor(make_gmem_ptr(a), Plain{})), mover.partition_D(sa));
  copy(Copy{}, mover.partition_S(make_tensor(make_gmem_ptr(b), Plain{})), mover.partition_D(sb));
  cp_async_fence();
  cp_async_wait<0>();
  __syncthreads();

  auto mine = Mma{}.get_slice(threadIdx.x);
  Tensor out = mine.partition_C(make_tensor(make_gmem_ptr(c), Plain{}));
  Tensor ra = mine.partition_fragment_A(sa);
  Tensor rb = mine.partition_fragment_B(sb);
  Tensor rc = mine.make_fragment_C(out);
  clear(rc);
  copy(mine.partition_A(sa), ra);
  copy(mine.partition_B(sb), rb);
  gemm(Mma{}, ra, rb, rc);
  copy(rc, out);
}
