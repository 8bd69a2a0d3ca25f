// No kernel uses wmma: tensor cores are driven by mma.sync and wgmma.
#pragma once

#include "cutlass/arch/mma.h"
