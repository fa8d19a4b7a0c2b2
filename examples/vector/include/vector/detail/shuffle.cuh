#pragma once

namespace vector::detail {

template <typename T>
__device__ T warp_sum(T value) {
    for (int offset = 16; offset; offset /= 2) value = value + __shfl_down_sync(~0u, value, offset);
    return value;
}

}  // namespace vector::detail
