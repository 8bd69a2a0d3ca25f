// Kernels of the 2.x API have no layouts of CuTe's.
#pragma once

#include "cute/numeric/integral_constant.hpp"
