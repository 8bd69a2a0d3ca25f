// CUTLASS's mainloop of convolutions includes this name, which is in another folder of CUTLASS than
// its headers.

#pragma once

#include <../tools/util/include/cutlass/util/packed_stride.hpp>
