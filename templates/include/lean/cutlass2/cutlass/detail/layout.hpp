// Kernels of the 2.x API have no strides of CuTe's: the names that CUTLASS's gemm.h repeats.
#pragma once

#include "cute/layout.hpp"
#include "cutlass/layout/matrix.h"
#include "cutlass/layout/tensor.h"
#include "cutlass/numeric_types.h"

namespace cutlass::detail {

template <typename T>
struct TagToStrideA;
template <typename T>
using TagToStrideA_t = typename TagToStrideA<T>::type;

template <typename T>
struct TagToStrideB;
template <typename T>
using TagToStrideB_t = typename TagToStrideB<T>::type;

template <typename T>
struct TagToStrideC;
template <typename T>
using TagToStrideC_t = typename TagToStrideC<T>::type;

template <typename T>
struct StrideToLayoutTagA;
template <typename T>
using StrideToLayoutTagA_t = typename StrideToLayoutTagA<T>::type;

template <typename T>
struct StrideToLayoutTagB;
template <typename T>
using StrideToLayoutTagB_t = typename StrideToLayoutTagB<T>::type;

template <typename T>
struct StrideToLayoutTagC;
template <typename T>
using StrideToLayoutTagC_t = typename StrideToLayoutTagC<T>::type;

template <int kMode, typename Stride>
constexpr bool is_major(Stride = {});

}  // namespace cutlass::detail
