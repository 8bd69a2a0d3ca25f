// One function of libdevice or one intrinsic on each element of a file of doubles; writes the
// results as doubles. tests/vgpu/test_language.py compares them with numpy.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdio>
#include <cstring>
#include <vector>

namespace cg = cooperative_groups;

#define SINGLE(name)                                              \
  struct Single_##name {                                          \
    static __device__ double at(double x, double) {               \
      return static_cast<double>(name##f(static_cast<float>(x))); \
    }                                                             \
  };
#define DOUBLE(name)                                                  \
  struct Double_##name {                                              \
    static __device__ double at(double x, double) { return name(x); } \
  };
#define BOTH(name) SINGLE(name) DOUBLE(name)
#define FUNCTIONS(do)                                                                                                                               \
  do                                                                                                                                                \
  (sin) do(cos) do(tan) do(exp) do(exp2) do(log) do(log2) do(log10) do(log1p) do(expm1) do(sqrt) do(rsqrt) do(cbrt) do(erf) do(erfc) do(tgamma) do( \
      lgamma) do(asin) do(acos) do(atan) do(sinh) do(cosh) do(tanh) do(asinh) do(acosh) do(atanh) do(floor) do(ceil) do(round) do(rint) do(trunc)
FUNCTIONS(BOTH)

#define PAIR(name, single, wide)                                        \
  struct Single_##name {                                                \
    static __device__ double at(double x, double y) {                   \
      const float a = static_cast<float>(x), b = static_cast<float>(y); \
      return static_cast<double>(single);                               \
    }                                                                   \
  };                                                                    \
  struct Double_##name {                                                \
    static __device__ double at(double a, double b) { return wide; }    \
  };
PAIR(pow, powf(a, b), pow(a, b))
PAIR(fmod, fmodf(a, b), fmod(a, b))
PAIR(atan2, atan2f(a, b), atan2(a, b))
PAIR(hypot, hypotf(a, b), hypot(a, b))
PAIR(divide, a / b, a / b)
PAIR(fdim, fdimf(a, b), fdim(a, b))

#define NARROW(name, type, to, from, expression)      \
  struct name {                                       \
    static __device__ double at(double x, double y) { \
      const type a = to(static_cast<float>(x));       \
      const type b = to(static_cast<float>(y));       \
      return static_cast<double>(from(expression));   \
    }                                                 \
  };
#define NARROWS(do)                                                                            \
  do                                                                                           \
  (add, __hadd(a, b)) do(mul, __hmul(a, b)) do(div, __hdiv(a, b)) do(fma, __hfma(a, b, b)) do( \
      relu,                                                                                    \
      __hfma_relu(                                                                             \
          a, b,                                                                                \
          a)) do(max,                                                                          \
                 __hmax(a, b)) do(min_nan,                                                     \
                                  __hmin_nan(                                                  \
                                      a, b)) do(saturated,                                     \
                                                __hadd_sat(                                    \
                                                    a, b)) do(sqrt,                            \
                                                              hsqrt(a)) do(floor,              \
                                                                           hfloor(a)) do(rint, \
                                                                                         hrint(a))
#define HALF(name, e) NARROW(Half_##name, __half, __float2half_rn, __half2float, e)
#define BFLOAT(name, e) \
  NARROW(Bfloat_##name, __nv_bfloat16, __float2bfloat16_rn, __bfloat162float, e)
NARROWS(HALF)
NARROWS(BFLOAT)

template <class F>
__global__ void apply(const double* x, const double* y, double* out, int n) {
  const int k = blockIdx.x * blockDim.x + threadIdx.x;
  if (k < n) out[k] = F::at(x[k], y[k]);
}

// Sums over groups of eight threads, the largest of a warp, and the rank among the lanes whose
// element is positive.
__global__ void groups(const double* x, const double*, double* out, int n) {
  const int k = blockIdx.x * blockDim.x + threadIdx.x;
  cg::thread_block block = cg::this_thread_block();
  auto eight = cg::tiled_partition<8>(block);
  auto warp = cg::tiled_partition<32>(block);
  const int value = k < n ? static_cast<int>(x[k]) : 0;
  const int sum = cg::reduce(eight, value, cg::plus<int>());
  const int largest = cg::reduce(warp, value, cg::greater<int>());
  int rank = 0;
  if (value > 0) {
    auto active = cg::coalesced_threads();
    rank = active.thread_rank() + 1;
  }
  if (k < n) out[k] = sum + 1000.0 * largest + 1e6 * rank;
}

using Kernel = void (*)(const double*, const double*, double*, int);
struct Entry {
  const char* name;
  Kernel kernel;
};
#define ENTRIES(name) \
  {"float " #name, apply<Single_##name>}, {"double " #name, apply<Double_##name>},
#define NARROW_ENTRIES(name, e) \
  {"half " #name, apply<Half_##name>}, {"bfloat " #name, apply<Bfloat_##name>},
const Entry kEntries[] = {FUNCTIONS(ENTRIES) ENTRIES(pow) ENTRIES(fmod) ENTRIES(atan2) ENTRIES(
    hypot) ENTRIES(divide) ENTRIES(fdim) NARROWS(NARROW_ENTRIES){"groups", groups}};

// functions INPUT OUTPUT: all functions, one after the other; prints their names.
int main(int, char** arguments) {
  std::vector<double> in;
  std::FILE* file = std::fopen(arguments[1], "rb");
  for (double v; std::fread(&v, sizeof(v), 1, file) == 1;) in.push_back(v);
  std::fclose(file);
  const int n = static_cast<int>(in.size()) / 2;
  double* device;
  cudaMalloc(&device, 3 * n * sizeof(double));
  cudaMemcpy(device, in.data(), 2 * n * sizeof(double), cudaMemcpyHostToDevice);
  std::FILE* out = std::fopen(arguments[2], "wb");
  std::vector<double> result(n);
  for (const Entry& e : kEntries) {
    e.kernel<<<(n + 127) / 128, 128>>>(device, device + n, device + 2 * n, n);
    if (cudaDeviceSynchronize() != cudaSuccess) return 1;
    cudaMemcpy(result.data(), device + 2 * n, n * sizeof(double), cudaMemcpyDeviceToHost);
    std::fwrite(result.data(), sizeof(double), n, out);
    std::printf("%s\n", e.name);
  }
  std::fclose(out);
}
