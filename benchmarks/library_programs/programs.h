// The programs of a file: each drives kernels of a library and compares with the host's result.
#pragma once

#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

struct Program {
  const char* name;
  bool (*run)();
};

inline std::vector<int> random_numbers(int count, int below, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::vector<int> numbers(count);
  for (int& n : numbers) n = static_cast<int>(random() % below);
  return numbers;
}

// Device memory with the host's contents, freed at the end.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& host) : count_(host.size()) {
    cudaMalloc(&data_, count_ * sizeof(T));
    cudaMemcpy(data_, host.data(), count_ * sizeof(T), cudaMemcpyHostToDevice);
  }
  explicit OnDevice(std::size_t count) : OnDevice(std::vector<T>(count)) {}
  ~OnDevice() { cudaFree(data_); }
  OnDevice(const OnDevice&) = delete;

  T* get() const { return data_; }
  std::vector<T> read() const {
    std::vector<T> host(count_);
    cudaMemcpy(host.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost);
    return host;
  }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

// A line for each program, or for the one that is named: "name passed seconds". With --list only
// their names.
template <std::size_t N>
int run_programs(const Program (&programs)[N], int count, char** arguments) {
  bool all = true;
  for (const Program& program : programs) {
    if (count > 1 && std::strcmp(arguments[1], "--list") == 0) {
      std::puts(program.name);
      continue;
    }
    if (count > 1 && std::strcmp(arguments[1], program.name) != 0) continue;
    const auto begin = std::chrono::steady_clock::now();
    const bool right = program.run();
    const cudaError_t error = cudaDeviceSynchronize();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    const bool passed = right && error == cudaSuccess;
    std::printf("%s %s %.3f\n", program.name, passed ? "passed" : "failed", took.count());
    std::fflush(stdout);
    all &= passed;
  }
  return all ? 0 : 1;
}
