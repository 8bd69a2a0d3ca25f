// nvcuda::wmma in C++: every type and shape, in all layouts, on whole numbers that are exact in all
// types. Prints for each how many of its layouts were right.
#include <cstdio>
#include <cstdlib>
#include <type_traits>
#include <vector>

#include <cuda_bf16.h>
#include <mma.h>

using namespace nvcuda;
using wmma::col_major;
using wmma::row_major;

// What memory holds of an element.
template <class T>
struct Stored {
  using type = T;
};
template <>
struct Stored<wmma::precision::tf32> {
  using type = float;
};

template <class T, class Sum, int M, int N, int K, class LayoutA, class LayoutB>
__global__ void multiply(const typename Stored<T>::type* a, const typename Stored<T>::type* b,
                         const Sum* c, Sum* d) {
  wmma::fragment<wmma::matrix_a, M, N, K, T, LayoutA> left;
  wmma::fragment<wmma::matrix_b, M, N, K, T, LayoutB> right;
  wmma::fragment<wmma::accumulator, M, N, K, Sum> sum;
  wmma::load_matrix_sync(left, a, std::is_same_v<LayoutA, row_major> ? K : M);
  wmma::load_matrix_sync(right, b, std::is_same_v<LayoutB, row_major> ? N : K);
  wmma::load_matrix_sync(sum, c, N, wmma::mem_row_major);
  if constexpr (std::is_same_v<T, wmma::precision::tf32>) {
    for (float& x : left.x) x = wmma::__float_to_tf32(x);
    for (float& x : right.x) x = wmma::__float_to_tf32(x);
  }
  wmma::mma_sync(sum, left, right, sum);
  wmma::store_matrix_sync(d, sum, N, wmma::mem_row_major);
}

// Elements of less than a byte: A by rows, B by columns, as the hardware wants them.
template <class T, int K>
__global__ void multiply_bits(const void* a, const void* b, const int* c, int* d) {
  wmma::fragment<wmma::matrix_a, 8, 8, K, T, row_major> left;
  wmma::fragment<wmma::matrix_b, 8, 8, K, T, col_major> right;
  wmma::fragment<wmma::accumulator, 8, 8, K, int> sum;
  wmma::load_matrix_sync(left, a, K);
  wmma::load_matrix_sync(right, b, K);
  wmma::load_matrix_sync(sum, c, 8, wmma::mem_row_major);
  if constexpr (K == 128) {
    wmma::bmma_sync(sum, left, right, sum);
  } else {
    wmma::mma_sync(sum, left, right, sum);
  }
  wmma::store_matrix_sync(d, sum, 8, wmma::mem_row_major);
}

template <class T>
T* on_device(const std::vector<T>& from) {
  T* to;
  cudaMalloc(&to, from.size() * sizeof(T));
  cudaMemcpy(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice);
  return to;
}

template <class Sum>
bool same(const Sum* device, const std::vector<int>& wanted) {
  std::vector<Sum> found(wanted.size());
  cudaMemcpy(found.data(), device, found.size() * sizeof(Sum), cudaMemcpyDeviceToHost);
  if (cudaGetLastError() != cudaSuccess) return false;
  for (size_t k = 0; k < wanted.size(); ++k) {
    if (static_cast<float>(found[k]) != static_cast<float>(wanted[k])) return false;
  }
  return true;
}

template <class T, class Sum, int M, int N, int K, class LayoutA, class LayoutB>
int right_in() {
  using Element = typename Stored<T>::type;
  const bool is_unsigned = std::is_same_v<T, unsigned char>;
  std::vector<Element> a(M * K), b(K * N);
  std::vector<Sum> c(M * N);
  std::vector<int> wanted(M * N);
  const auto some = [&](int x, int y) { return (7 * x + 5 * y) % 7 - (is_unsigned ? 0 : 3); };
  for (int i = 0; i < M; ++i) {
    for (int k = 0; k < K; ++k)
      a[std::is_same_v<LayoutA, row_major> ? i * K + k : k * M + i] = Element(float(some(i, k)));
  }
  for (int k = 0; k < K; ++k) {
    for (int j = 0; j < N; ++j)
      b[std::is_same_v<LayoutB, row_major> ? k * N + j : j * K + k] =
          Element(float(some(k + 2, 3 * j)));
  }
  for (int i = 0; i < M; ++i) {
    for (int j = 0; j < N; ++j) {
      c[i * N + j] = Sum(float(i - j));
      wanted[i * N + j] = i - j;
      for (int k = 0; k < K; ++k) wanted[i * N + j] += some(i, k) * some(k + 2, 3 * j);
    }
  }
  Sum* d = on_device(c);
  multiply<T, Sum, M, N, K, LayoutA, LayoutB>
      <<<1, 32>>>(on_device(a), on_device(b), on_device(c), d);
  return same(d, wanted);
}

template <class T, class Sum, int M, int N, int K>
void in_all_layouts(const char* name) {
  const int right = right_in<T, Sum, M, N, K, row_major, row_major>() +
                    right_in<T, Sum, M, N, K, row_major, col_major>() +
                    right_in<T, Sum, M, N, K, col_major, row_major>() +
                    right_in<T, Sum, M, N, K, col_major, col_major>();
  std::printf("%s %dx%dx%d: %d\n", name, M, N, K, right);
}

template <class T, class Sum>
void in_all_shapes(const char* name) {
  in_all_layouts<T, Sum, 16, 16, 16>(name);
  in_all_layouts<T, Sum, 32, 8, 16>(name);
  in_all_layouts<T, Sum, 8, 32, 16>(name);
}

template <class T, int K>
void small(const char* name, bool is_signed) {
  constexpr int kBits = K == 128 ? 1 : 4;
  std::vector<unsigned> a(8 * K * kBits / 32), b(a.size());
  std::vector<int> left(8 * K), right(8 * K), c(64), wanted(64);
  const auto put = [&](std::vector<unsigned>& words, std::vector<int>& values, int at) {
    const unsigned bits = std::rand() >> 4 & ((1 << kBits) - 1);
    words[at * kBits / 32] |= bits << at * kBits % 32;
    values[at] = is_signed && bits >> (kBits - 1) ? int(bits) - (1 << kBits) : int(bits);
  };
  for (int at = 0; at < 8 * K; ++at) {
    put(a, left, at);
    put(b, right, at);
  }
  for (int at = 0; at < 64; ++at) {
    wanted[at] = c[at] = at - 20;
    for (int k = 0; k < K; ++k) {
      const int x = left[at / 8 * K + k], y = right[at % 8 * K + k];
      wanted[at] += kBits == 1 ? x ^ y : x * y;
    }
  }
  int* d = on_device(c);
  multiply_bits<T, K><<<1, 32>>>(on_device(a), on_device(b), on_device(c), d);
  std::printf("%s 8x8x%d: %d\n", name, K, same(d, wanted));
}

int main() {
  in_all_shapes<half, float>("half, float");
  in_all_shapes<half, half>("half, half");
  in_all_shapes<__nv_bfloat16, float>("bfloat, float");
  in_all_shapes<signed char, int>("s8, int");
  in_all_shapes<unsigned char, int>("u8, int");
  in_all_layouts<wmma::precision::tf32, float, 16, 16, 8>("tf32, float");
  in_all_layouts<double, double, 8, 8, 4>("double, double");
  small<wmma::experimental::precision::s4, 32>("s4, int", true);
  small<wmma::experimental::precision::u4, 32>("u4, int", false);
  small<wmma::experimental::precision::b1, 128>("b1, int", false);
}
