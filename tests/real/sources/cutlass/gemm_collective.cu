// Collective builders: TMA and warp specialisation on sm_90a, tensor memory on sm_100a.
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

using namespace cute;
using Element = cutlass::ELEMENT;
using Row = cutlass::layout::RowMajor;
using Column = cutlass::layout::ColumnMajor;
using Tile = Shape<TILE>;
using Cluster = Shape<CLUSTER>;
constexpr int kAlign = 128 / cutlass::sizeof_bits<Element>::value;

using Epilogue = cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::ARCH, cutlass::arch::OpClassTensorOp, Tile, Cluster,
    cutlass::epilogue::collective::EpilogueTileAuto, float, float,
    void, Row, 8, cutlass::half_t, Row, 8, cutlass::epilogue::EPILOGUE>::CollectiveOp;

using Mainloop = cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::ARCH, cutlass::arch::OpClassTensorOp,
    Element, Row, kAlign, Element, Column, kAlign, float, Tile, Cluster,
    cutlass::gemm::collective::StageCountAutoCarveout<sizeof(Epilogue::SharedStorage)>,
    cutlass::gemm::MAINLOOP>::CollectiveOp;

struct Gemm : cutlass::gemm::kernel::GemmUniversal<Shape<int, int, int, int>, Mainloop, Epilogue> {};

template __global__ void cutlass::device_kernel<Gemm>(const __grid_constant__ Gemm::Params);
