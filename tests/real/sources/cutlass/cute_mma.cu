// CuTe by hand: asynchronous copies to swizzled shared memory, then tensor cores.
#include <cute/tensor.hpp>

using namespace cute;

extern "C" __global__ void cute_mma(half_t const* a, half_t const* b, float* c) {
  using Swizzled = decltype(composition(Swizzle<3, 3, 3>{}, Layout<Shape<_64, _64>, Stride<_64, _1>>{}));
  __shared__ alignas(128) half_t sa[cosize_v<Swizzled>], sb[cosize_v<Swizzled>];
  auto global = Layout<Shape<_64, _64>, Stride<_64, _1>>{};
  Tensor ga = make_tensor(make_gmem_ptr(a), global), gb = make_tensor(make_gmem_ptr(b), global);
  Tensor gc = make_tensor(make_gmem_ptr(c), global);
  Tensor ta = make_tensor(make_smem_ptr(sa), Swizzled{}), tb = make_tensor(make_smem_ptr(sb), Swizzled{});

  auto copy_tile = make_tiled_copy(Copy_Atom<SM80_CP_ASYNC_CACHEALWAYS<uint128_t>, half_t>{},
                                   Layout<Shape<_16, _8>, Stride<_8, _1>>{}, Layout<Shape<_1, _8>>{});
  auto copier = copy_tile.get_slice(threadIdx.x);
  copy(copy_tile, copier.partition_S(ga), copier.partition_D(ta));
  copy(copy_tile, copier.partition_S(gb), copier.partition_D(tb));
  cp_async_fence();
  cp_async_wait<0>();
  __syncthreads();

  auto mma = make_tiled_mma(SM80_16x8x16_F32F16F16F32_TN{}, Layout<Shape<_2, _2, _1>>{}).get_slice(threadIdx.x);
  Tensor result = mma.partition_fragment_C(gc);
  Tensor ra = mma.partition_fragment_A(ta), rb = mma.partition_fragment_B(tb);
  clear(result);
  copy(mma.partition_A(ta), ra);
  copy(mma.partition_B(tb), rb);
  gemm(TiledMMA<MMA_Atom<SM80_16x8x16_F32F16F16F32_TN>, Layout<Shape<_2, _2, _1>>>{}, ra, rb, result);
  copy(result, mma.partition_C(gc));
}
