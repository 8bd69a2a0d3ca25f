// Products of 8-bit floats on sm_90a: CUTLASS's mainloop that adds the sums of 128 products, which
// wgmma cuts off after 13 bits, to sums in FP32. Their results saturate.

#pragma once

#include "boltgen/gemm_sm90.h"

// It counts on the above.
#include <cutlass/gemm/collective/sm90_mma_tma_gmma_ss_warpspecialized_fp8.hpp>
