// The reference that candidates are checked against: one thread for each element of the output, a
// loop over K in FP64, and the epilogue in intervals.

#include <cuda_fp16.h>

#include "interval.cuh"
#include "process.h"

namespace boltgen::profiler {
namespace {

struct Sum {
  double value = 0.0;
  double magnitude = 0.0;

  __device__ void add(half a, half b) {
    double const product = double(__half2float(a)) * double(__half2float(b));
    value += product;
    magnitude += fabs(product);
  }
};

/// Where an element lies in the output seen as `batch` matrices.
struct Place {
  uint64_t batch;
  uint64_t row;
  uint64_t column;
};

/// The matrices of the output.
struct Extents {
  uint64_t batch;
  uint64_t rows;
  uint64_t columns;

  __host__ __device__ uint64_t count() const { return batch * rows * columns; }

  __device__ Place place(uint64_t index) const {
    uint64_t const row = index / columns;
    return {row / rows, row % rows, index % columns};
  }
};

struct Gemm {
  profiler_gemm p;
  half const* a;
  half const* b;

  Extents extents() const { return {uint64_t(p.batch), uint64_t(p.m), uint64_t(p.n)}; }

  __device__ Sum operator()(Place at) const {
    uint64_t const k = uint64_t(p.k), n = uint64_t(p.n);
    half const* const row = a + (p.a_batched ? at.batch * uint64_t(p.m) * k : 0) + at.row * k;
    half const* column = b + (p.b_batched ? at.batch * k * n : 0);
    column += p.b_is_column ? at.column * k : at.column;
    uint64_t const step = p.b_is_column ? 1 : n;
    Sum sum;
    for (uint64_t i = 0; i < k; ++i) {
      sum.add(row[i], column[i * step]);
    }
    return sum;
  }
};

struct Conv2d {
  profiler_conv2d c;
  half const* a;
  half const* b;

  Extents extents() const {
    return {1, uint64_t(c.n) * uint64_t(c.p) * uint64_t(c.q), uint64_t(c.k)};
  }

  __device__ Sum operator()(Place at) const {
    int const image = int(at.row / (uint64_t(c.p) * uint64_t(c.q)));
    int const within = int(at.row % (uint64_t(c.p) * uint64_t(c.q)));
    int const top = within / c.q * c.stride_h - c.pad_h;
    int const left = within % c.q * c.stride_w - c.pad_w;
    Sum sum;
    for (int r = 0; r < c.r; ++r) {
      int const y = top + r * c.dilation_h;
      for (int s = 0; s < c.s; ++s) {
        int const x = left + s * c.dilation_w;
        if (y < 0 || y >= c.h || x < 0 || x >= c.w) {
          continue;
        }
        half const* const pixel = a + ((uint64_t(image) * c.h + y) * c.w + x) * c.c;
        half const* const weight = b + ((at.column * c.r + r) * c.s + s) * c.c;
        for (int i = 0; i < c.c; ++i) {
          sum.add(pixel[i], weight[i]);
        }
      }
    }
    return sum;
  }
};

__device__ double loaded(profiler_node const& node, Extents const& extents, Place at) {
  uint64_t index = at.batch * node.batch_elements;
  switch (node.op) {
    case PROFILER_LOAD_TENSOR:
      index += at.row * extents.columns + at.column;
      break;
    case PROFILER_LOAD_ROW:
      index += at.column;
      break;
    default:
      index += at.row;
  }
  return node.dtype == PROFILER_F16
             ? double(__half2float(static_cast<half const*>(node.pointer)[index]))
             : double(static_cast<float const*>(node.pointer)[index]);
}

__device__ Interval epilogue(profiler_node const* nodes, int count, Interval accumulator,
                             Extents const& extents, Place at) {
  Interval values[PROFILER_MAX_NODES];
  for (int i = 0; i < count; ++i) {
    profiler_node const& node = nodes[i];
    if (node.op == PROFILER_ACCUMULATOR) {
      values[i] = accumulator;
    } else if (node.op <= PROFILER_LOAD_COLUMN) {
      double const value = loaded(node, extents, at);
      values[i] = {value, value};
    } else if (node.op == PROFILER_SCALAR) {
      values[i] = {node.constants[0], node.constants[0]};
    } else if (node.op == PROFILER_CAST) {
      Interval const x = values[node.x];
      values[i] = {rounded(x.low, node.dtype), rounded(x.high, node.dtype)};
    } else if (node.op <= PROFILER_MINIMUM) {
      values[i] = binary_image(node, values[node.x], values[node.y]);
    } else {
      values[i] = unary_image(node, values[node.x]);
    }
  }
  return values[count - 1];
}

template <typename Product>
__global__ void enclose(Product product, Extents extents, profiler_node const* nodes, int count,
                        profiler_rounding rounding, int out_dtype, float* low, float* high) {
  uint64_t const stride = uint64_t(gridDim.x) * blockDim.x;
  for (uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < extents.count();
       i += stride) {
    Place const at = extents.place(i);
    Sum const sum = product(at);
    Interval const x =
        epilogue(nodes, count, accumulated(sum.value, sum.magnitude, rounding), extents, at);
    low[i] = rounded_unbounded(x.low, out_dtype);
    high[i] = rounded_unbounded(x.high, out_dtype);
  }
}

template <typename Product>
int enclose_all(Product const& product, profiler_reference const& reference,
                profiler_status* status) {
  if (reference.node_count < 1 || reference.node_count > PROFILER_MAX_NODES) {
    return refuse(status, "an epilogue of %d nodes; the reference takes 1 to %d",
                  reference.node_count, PROFILER_MAX_NODES);
  }
  size_t const bytes = sizeof(profiler_node) * size_t(reference.node_count);
  void* nodes = nullptr;
  if (int const code = profiler_allocate(bytes, &nodes, status)) {
    return code;
  }
  if (int const code = profiler_copy(nodes, reference.nodes, bytes, status)) {
    return code;
  }
  Extents const extents = product.extents();
  unsigned const threads = 128;
  uint64_t const wanted = (extents.count() + threads - 1) / threads;
  unsigned const blocks = unsigned(wanted < (1u << 20) ? wanted : (1u << 20));
  enclose<<<blocks, threads, 0, stream()>>>(
      product, extents, static_cast<profiler_node const*>(nodes), reference.node_count,
      reference.rounding, reference.out_dtype, reference.low, reference.high);
  cudaError_t const error = cudaGetLastError();
  if (error != cudaSuccess) {
    return fail(status, error, "launch of the reference");
  }
  if (int const code = finish(status, "reference")) {
    return code;
  }
  return profiler_release(nodes, status);
}

}  // namespace
}  // namespace boltgen::profiler

using namespace boltgen::profiler;

int profiler_enclose_gemm(profiler_gemm const* problem, profiler_reference const* reference,
                          profiler_status* status) {
  Gemm const product{*problem, static_cast<half const*>(reference->a),
                     static_cast<half const*>(reference->b)};
  return enclose_all(product, *reference, status);
}

int profiler_enclose_conv2d(profiler_conv2d const* problem, profiler_reference const* reference,
                            profiler_status* status) {
  Conv2d const product{*problem, static_cast<half const*>(reference->a),
                       static_cast<half const*>(reference->b)};
  return enclose_all(product, *reference, status);
}
