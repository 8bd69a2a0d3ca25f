// The kernel of CUTLASS's example 41, in the tiles that the example takes for a width of heads.
#include <kernel_forward.h>

namespace {

template <int kQueries, int kKeys, int kMostDepth>
int run(void* const* tensors, int heads, int tokens, int depth, bool causal) {
  using Half = cutlass::half_t;
  using Kernel = AttentionKernel<Half, cutlass::arch::Sm80, true, kQueries, kKeys, kMostDepth,
                                 /*kSupportsDropout=*/false, /*kSupportsBias=*/false>;
  static_assert(!Kernel::kNeedsOutputAccumulatorBuffer, "heads fit into registers");
  typename Kernel::Params p;
  p.query_ptr = static_cast<Half*>(tensors[0]);
  p.key_ptr = static_cast<Half*>(tensors[1]);
  p.value_ptr = static_cast<Half*>(tensors[2]);
  p.output_ptr = static_cast<Half*>(tensors[3]);
  p.scale = 1.0f / sqrtf(static_cast<float>(depth));
  // Every head is a batch of one: its tensors lie one after the other.
  p.num_heads = 1;
  p.num_batches = heads;
  p.head_dim = p.head_dim_value = depth;
  p.num_queries = p.num_keys = tokens;
  p.custom_mask_type = causal ? Kernel::CausalFromTopLeft : Kernel::NoCustomMask;
  p.q_strideM = p.k_strideM = p.v_strideM = p.o_strideM = depth;
  p.q_strideB = p.k_strideB = p.v_strideB = static_cast<int64_t>(tokens) * depth;
  constexpr auto kernel = attention_kernel_batched_impl<Kernel>;
  constexpr int kShared = sizeof(typename Kernel::SharedStorage);
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  if (!Kernel::check_supported(p)) return -1;
  kernel<<<p.getBlocksGrid(), p.getThreadsGrid(), kShared>>>(p);
  return static_cast<int>(cudaGetLastError());
}

}  // namespace

// Tensors are (heads, tokens, depth). Returns 0, or an error.
extern "C" int race(void* q, void* k, void* v, void* d, int heads, int tokens, int depth,
                    int causal) {
  void* const tensors[] = {q, k, v, d};
  if (depth <= 64) return run<64, 64, 64>(tensors, heads, tokens, depth, causal != 0);
  if (depth <= 128) return run<32, 128, 128>(tensors, heads, tokens, depth, causal != 0);
  return -2;
}
