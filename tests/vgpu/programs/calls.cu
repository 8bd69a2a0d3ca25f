// Recursion, virtual functions, function pointers and malloc in kernels. Prints a line of numbers
// for each; tests/vgpu/test_language.py knows them.
#include <cstdio>
#include <cstring>

struct Shape {
  int side;
  __device__ explicit Shape(int side) : side(side) {}
  __device__ virtual int area() const = 0;
  __device__ virtual ~Shape() {}
};
struct Square : Shape {
  using Shape::Shape;
  __device__ int area() const override { return side * side; }
};
struct Triangle : Shape {
  using Shape::Shape;
  __device__ int area() const override { return side * side / 2; }
};

__device__ __noinline__ int fibonacci(int n) {
  return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}
__device__ int odd(int n);
__device__ __noinline__ int even(int n) { return n == 0 ? 1 : odd(n - 1); }
__device__ __noinline__ int odd(int n) { return n == 0 ? 0 : even(n - 1); }

// A local array of every call must be its own.
__device__ __noinline__ int digits(int n, int depth) {
  int seen[8];
  for (int k = 0; k < 8; ++k) seen[k] = n * (k + depth);
  const int below = depth < 5 ? digits(n + 1, depth + 1) : 0;
  int sum = below;
  for (int k = 0; k < 8; ++k) sum += seen[(k + n) & 7];
  return sum;
}

typedef int (*Operation)(int, int);
__device__ __noinline__ int add(int a, int b) { return a + b; }
__device__ __noinline__ int subtract(int a, int b) { return a - b; }
__device__ __noinline__ int power(int a, int b) { return b == 0 ? 1 : a * power(a, b - 1); }
__device__ Operation operations[] = {add, subtract, power};

__global__ void recursion(int* out) {
  const int t = threadIdx.x;
  int result = fibonacci(t % 9);
  if (t & 1) result += 100 * even(t / 2);  // half of the lanes, of which half take each path
  out[t] = result + 1000 * digits(t, 0);
}
__global__ void pointers(int* out) {
  const int t = threadIdx.x;
  const int before = out[t] + 7 * t;  // alive across the call
  out[t] = operations[t % 3](t + 2, t % 5) + before;
}
__global__ void objects(int* out) {
  const int t = threadIdx.x;
  Shape* shape = t % 4 == 0 ? static_cast<Shape*>(new Triangle(t)) : new Square(t);
  out[t] = shape->area();
  delete shape;
}
__global__ void heap(int* out) {
  const int t = threadIdx.x;
  int* own = static_cast<int*>(malloc(4 * (t + 1)));
  for (int k = 0; k <= t; ++k) own[k] = k;
  int* copy = static_cast<int*>(malloc(4 * (t + 1)));
  memcpy(copy, own, 4 * (t + 1));
  memset(own, 1, 4 * (t + 1));
  int sum = own[t] == 0x01010101 ? 0 : 1000000;
  free(own);
  for (int k = 0; k <= t; ++k) sum += copy[k];
  free(copy);
  out[t] = sum + (malloc(1ull << 40) != nullptr);
}
__global__ void endless(int* out) { out[0] = even(1 << 20); }
__global__ void twice(int** out) {
  free(out[0]);
  free(out[0]);
}
__global__ void fill(int** out) { out[0] = static_cast<int*>(malloc(16)); }

int main(int count, char** names) {
  int* data;
  int host[64];
  cudaMalloc(&data, sizeof(host));
  cudaMemset(data, 0, sizeof(host));
  const auto show = [&](const char* name) {
    const cudaError_t error = cudaDeviceSynchronize();
    if (error != cudaSuccess) {
      std::printf("%s: %s\n", name, cudaGetErrorString(error));
      return;
    }
    cudaMemcpy(host, data, sizeof(host), cudaMemcpyDeviceToHost);
    std::printf("%s:", name);
    for (int value : host) std::printf(" %d", value);
    std::printf("\n");
  };
  if (count > 1 && !std::strcmp(names[1], "endless")) {
    endless<<<1, 1>>>(data);
    show("endless");
    return 0;
  }
  if (count > 1) {
    fill<<<1, 1>>>(reinterpret_cast<int**>(data));
    twice<<<1, 1>>>(reinterpret_cast<int**>(data));
    show("twice");
    return 0;
  }
  recursion<<<1, 64>>>(data);
  show("recursion");
  cudaMemset(data, 0, sizeof(host));
  pointers<<<1, 64>>>(data);
  show("pointers");
  objects<<<1, 64>>>(data);
  show("objects");
  heap<<<1, 64>>>(data);
  show("heap");
}
