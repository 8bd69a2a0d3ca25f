// No kernel multiplies without tensor cores. CUTLASS's header brings quaternions and matrices.
#pragma once
