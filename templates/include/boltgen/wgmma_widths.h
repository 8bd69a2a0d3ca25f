// Lets CUTLASS choose every width of wgmma, and not the most common ones alone: a tile of 176
// columns is then one instruction's, and not eleven of 16. Comes before all headers of CUTLASS.
//
// Source: cute/arch/mma_sm90.hpp. It lengthens a compilation by a fifth.

#pragma once

#define CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED
