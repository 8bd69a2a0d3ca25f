// CUDA's structures for the parameters of graph nodes, to the work of a node and back.
#pragma once

#include "core/graph.h"
#include "cudart/graph_types.h"

namespace vgpu::cudart {

Code work_of(const cudaKernelNodeParams& p, Work* work);
Code work_of(const cudaMemcpy3DParms& p, Work* work);
Code work_of(const cudaMemsetParams& p, Work* work);
Code work_of(const cudaHostNodeParams& p, Work* work);

// Whoever made the node may have said it otherwise: planes lie as far apart as they are.
cudaMemcpy3DParms parameters_of(const std::vector<Copy2d>& planes);

}  // namespace vgpu::cudart
