// CUTLASS's tutorial of TMA and wgmma, unmodified, and a verification of what it computes, which
// its own main leaves out: C = A B^T of ones, minus ones and zeros, so that sums are exact.
#define main main_of_the_tutorial
#include TUTORIAL
#undef main

#include <cstdio>
#include <vector>

int main() {
  const int m = 256, n = 128, k = 64 * 7;
  std::vector<cute::half_t> a(m * k), b(n * k), c(m * n);
  unsigned state = 1;
  const auto next = [&] {
    state = state * 1664525u + 1013904223u;
    return cute::half_t(static_cast<int>(state >> 24) % 3 - 1);
  };
  for (auto& x : a) x = next();
  for (auto& x : b) x = next();
  cute::half_t *da, *db, *dc;
  cudaMalloc(&da, a.size() * 2);
  cudaMalloc(&db, b.size() * 2);
  cudaMalloc(&dc, c.size() * 2);
  cudaMemcpy(da, a.data(), a.size() * 2, cudaMemcpyHostToDevice);
  cudaMemcpy(db, b.data(), b.size() * 2, cudaMemcpyHostToDevice);
  cudaMemset(dc, 0, c.size() * 2);
  const cute::half_t one(1), zero(0);
  gemm('T', 'N', m, n, k, one, da, k, db, k, zero, dc, m);
  const cudaError_t status = cudaDeviceSynchronize();
  if (status != cudaSuccess) {
    std::printf("Error: %s\n", cudaGetErrorString(status));
    return 1;
  }
  cudaMemcpy(c.data(), dc, c.size() * 2, cudaMemcpyDeviceToHost);
  int wrong = 0;
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      float sum = 0;
      for (int l = 0; l < k; ++l) sum += float(a[i * k + l]) * float(b[j * k + l]);
      wrong += !(float(c[i + j * m]) == sum);
    }
  }
  for (cute::half_t* p : {da, db, dc}) cudaFree(p);
  std::printf(wrong ? "Failed: %d wrong\n" : "Passed\n", wrong);
  return wrong != 0;
}
