// The reference that candidates are checked against: one thread for each element of the output, a
// loop over K in FP64, and the epilogue in intervals.

#include "interval.cuh"
#include "process.h"

namespace boltgen::profiler {
namespace {

/// A sum of products whose A is exact, or only known to be within an error.
template <bool kIsExact>
struct Sum {
  double value = 0.0;
  double magnitude = 0.0;
  double carried = 0.0;

  /// Adds A's element `index` times `b`; `a_error` is not read where A is exact.
  template <typename Element>
  __device__ void add(Element const* a, float const* a_error, uint64_t index, Element b) {
    double const factor = double(widened(b));
    double const product = double(widened(a[index])) * factor;
    value += product;
    magnitude += fabs(product);
    if constexpr (!kIsExact) {
      double const off = double(a_error[index]) * fabs(factor);
      magnitude += off;
      carried += off;
    }
  }

  __device__ Interval interval(profiler_rounding const& rounding) const {
    Interval const around = accumulated(value, magnitude, rounding);
    if constexpr (kIsExact) {
      return around;
    } else {
      return isfinite(carried) ? Interval{around.low - carried, around.high + carried} : anything();
    }
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

template <typename Element, bool kIsExact>
struct Gemm {
  profiler_gemm p;
  Element const* a;
  Element const* b;
  float const* a_error;

  Extents extents() const { return {uint64_t(p.batch), uint64_t(p.m), uint64_t(p.n)}; }

  __device__ bool is_paired() const { return p.run != 0; }

  /// The sum of the first product of a pair, or of the `second` one.
  __device__ Sum<kIsExact> operator()(Place at, bool second) const {
    uint64_t const k = uint64_t(p.k), n = uint64_t(p.n) * (p.run ? 2 : 1);
    uint64_t const row = (p.a_batched ? at.batch * uint64_t(p.m) * k : 0) + at.row * k;
    uint64_t const before = p.run ? (at.column / p.run + second) * p.run : 0;
    Element const* column = b + (p.b_batched ? at.batch * k * n : 0);
    column += p.b_is_column ? (at.column + before) * k : at.column + before;
    uint64_t const step = p.b_is_column ? 1 : n;
    Sum<kIsExact> sum;
    for (uint64_t i = 0; i < k; ++i) {
      sum.add(a, a_error, row + i, column[i * step]);
    }
    return sum;
  }
};

/// Calls `use` with the index of each pixel of A that an element of the output meets, and with the
/// place in the filter.
template <typename Use>
__device__ void visit(profiler_conv const& c, Place at, Use const& use) {
  int const column = int(at.row % c.q);
  int const row = int(at.row / c.q % c.p);
  int const plane = int(at.row / c.q / c.p % c.z);
  uint64_t const image = at.row / c.q / c.p / c.z;
  for (int t = 0; t < c.t; ++t) {
    int const behind = plane * c.stride_d - c.pad_d + t * c.dilation_d;
    for (int r = 0; r < c.r; ++r) {
      int const y = row * c.stride_h - c.pad_h + r * c.dilation_h;
      for (int s = 0; s < c.s; ++s) {
        int const x = column * c.stride_w - c.pad_w + s * c.dilation_w;
        if (behind >= 0 && behind < c.depth && y >= 0 && y < c.h && x >= 0 && x < c.w) {
          use(((image * c.depth + behind) * c.h + y) * c.w + x, (uint64_t(t) * c.r + r) * c.s + s);
        }
      }
    }
  }
}

inline Extents extents_of(profiler_conv const& c) {
  return {1, uint64_t(c.n) * c.z * c.p * c.q, uint64_t(c.k)};
}

template <typename Element, bool kIsExact>
struct Conv {
  profiler_conv c;
  Element const* a;
  Element const* b;
  float const* a_error;

  Extents extents() const { return extents_of(c); }

  __device__ bool is_paired() const { return false; }

  __device__ Sum<kIsExact> operator()(Place at, bool) const {
    int const channels = c.c / c.groups;
    int const first = int(at.column) / (c.k / c.groups) * channels;
    Sum<kIsExact> sum;
    visit(c, at, [&](uint64_t pixel, uint64_t tap) {
      Element const* const weight = b + (at.column * c.t * c.r * c.s + tap) * channels;
      for (int i = 0; i < channels; ++i) {
        sum.add(a, a_error, pixel * c.c + first + i, weight[i]);
      }
    });
    return sum;
  }
};

/// Filters of single channels, (r, s, k).
template <typename Element, bool kIsExact>
struct Depthwise {
  profiler_conv c;
  Element const* a;
  Element const* b;
  float const* a_error;

  Extents extents() const { return extents_of(c); }

  __device__ bool is_paired() const { return false; }

  __device__ Sum<kIsExact> operator()(Place at, bool) const {
    Sum<kIsExact> sum;
    uint64_t const before = c.with_input ? c.c : 0, filters = c.k - before;
    if (at.column < before) {  // D's pixels are A's
      sum.add(a, a_error, at.row * c.c + at.column, Element(1.0f));
      return sum;
    }
    uint64_t const filter = at.column - before, channel = filter / (filters / c.c);
    visit(c, at, [&](uint64_t pixel, uint64_t tap) {
      sum.add(a, a_error, pixel * c.c + channel, b[tap * filters + filter]);
    });
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
    case PROFILER_LOAD_SLICE_ROW:
      index = at.row / node.x * extents.columns + at.column;
      break;
    case PROFILER_LOAD_POSITION_ROW:
      index = at.row % node.x * extents.columns + at.column;
      break;
    case PROFILER_LOAD_COLUMN:
      index += at.row;
      break;
    default:
      return no_case();
  }
  switch (node.dtype) {
    case PROFILER_F16:
      return double(widened(static_cast<half const*>(node.pointer)[index]));
    case PROFILER_BF16:
      return double(widened(static_cast<__nv_bfloat16 const*>(node.pointer)[index]));
    case PROFILER_F32:
      return double(static_cast<float const*>(node.pointer)[index]);
    case PROFILER_I8:
      return double(static_cast<int8_t const*>(node.pointer)[index]);
    case PROFILER_U8:
      return double(static_cast<uint8_t const*>(node.pointer)[index]);
    case PROFILER_I32:
      return double(static_cast<int32_t const*>(node.pointer)[index]);
    default:
      return no_case();
  }
}

__device__ Interval epilogue(profiler_node const* nodes, int count,
                             Interval const (&accumulators)[2], Extents const& extents, Place at) {
  Interval values[PROFILER_MAX_NODES];
  for (int i = 0; i < count; ++i) {
    profiler_node const& node = nodes[i];
    if (node.op == PROFILER_ACCUMULATOR) {
      values[i] = accumulators[node.x != 0];
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
    Interval accumulators[2] = {product(at, false).interval(rounding)};
    if (product.is_paired()) {
      accumulators[1] = product(at, true).interval(rounding);
    }
    Interval const x = epilogue(nodes, count, accumulators, extents, at);
    low[i] = rounded_unbounded(x.low, out_dtype);
    high[i] = rounded_unbounded(x.high, out_dtype);
  }
}

/// What an element that lies somewhere from `low` to `high` is taken to be, and how far off that
/// is. The rules are those of boltgen/ir/oracle.py.
template <typename Element>
__global__ void middle(float const* low, float const* high, uint64_t count, Element* out,
                       float* error) {
  constexpr float kOverflow = Range<Element>::kOverflow;
  uint64_t const stride = uint64_t(gridDim.x) * blockDim.x;
  for (uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    float const from = low[i], to = high[i];
    if (isnan(from) || from >= kOverflow || to <= -kOverflow) {
      out[i] = narrowed<Element>(isnan(from) ? from : copysignf(INFINITY, from));
      error[i] = 0.0f;  // certain
    } else if (from <= -kOverflow || to >= kOverflow) {
      out[i] = narrowed<Element>(0.0);
      error[i] = INFINITY;
    } else {
      out[i] = narrowed<Element>(0.5 * (double(from) + double(to)));
      float const value = widened(out[i]);
      error[i] = fmaxf(to - value, value - from);
    }
  }
}

unsigned blocks_for(uint64_t count, unsigned threads) {
  uint64_t const wanted = (count + threads - 1) / threads;
  return unsigned(wanted < (1u << 20) ? wanted : (1u << 20));
}

constexpr unsigned kThreads = 128;

/// Whether the reference has a case for everything in `reference`.
int check_known(profiler_reference const& reference, profiler_status* status) {
  if (!is_element_type(reference.out_dtype)) {
    return refuse(status, "an output of the unknown element type %d", reference.out_dtype);
  }
  for (int i = 0; i < reference.node_count; ++i) {
    profiler_node const& node = reference.nodes[i];
    if (node.op < 0 || node.op >= PROFILER_UNARY + kUnaryFunctions) {
      return refuse(status, "node %d has the unknown operation %d", i, node.op);
    }
    bool const is_load = node.op >= PROFILER_LOAD_TENSOR && node.op <= PROFILER_LOAD_COLUMN;
    bool const is_of_slices =
        node.op == PROFILER_LOAD_SLICE_ROW || node.op == PROFILER_LOAD_POSITION_ROW;
    if (is_of_slices && node.x < 1) {
      return refuse(status, "node %d loads rows of slices of %d rows", i, node.x);
    }
    bool const is_cast = node.op == PROFILER_CAST;
    if ((is_load && !is_loaded_type(node.dtype)) || (is_cast && !is_element_type(node.dtype))) {
      return refuse(status, "node %d has the unknown element type %d", i, node.dtype);
    }
  }
  return succeed(status);
}

template <typename Product>
int enclose_all(Product const& product, profiler_reference const& reference,
                profiler_status* status) {
  if (reference.node_count < 1 || reference.node_count > PROFILER_MAX_NODES) {
    return refuse(status, "an epilogue of %d nodes; the reference takes 1 to %d",
                  reference.node_count, PROFILER_MAX_NODES);
  }
  if (int const code = check_known(reference, status)) {
    return code;
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
  enclose<<<blocks_for(extents.count(), kThreads), kThreads, 0, stream()>>>(
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

namespace {

/// Encloses `Product<Element, exact>` of a problem, as the reference has errors of A or not.
template <template <typename, bool> class Product, typename Element, typename Problem>
int enclose_elements(Problem const& problem, profiler_reference const& r, profiler_status* status) {
  auto const* const a = static_cast<Element const*>(r.a);
  auto const* const b = static_cast<Element const*>(r.b);
  return r.a_error == nullptr
             ? enclose_all(Product<Element, true>{problem, a, b, nullptr}, r, status)
             : enclose_all(Product<Element, false>{problem, a, b, r.a_error}, r, status);
}

template <template <typename, bool> class Product, typename Problem>
int enclose_problem(Problem const& problem, profiler_reference const& r, profiler_status* status) {
  switch (r.in_dtype) {
    case PROFILER_F16:
      return enclose_elements<Product, half>(problem, r, status);
    case PROFILER_BF16:
      return enclose_elements<Product, __nv_bfloat16>(problem, r, status);
    default:
      return refuse(status, "operands of element type %d, which no kernel multiplies", r.in_dtype);
  }
}

template <typename Element>
int write_middle(float const* low, float const* high, uint64_t count, void* out, float* error,
                 profiler_status* status) {
  middle<<<blocks_for(count, kThreads), kThreads, 0, stream()>>>(low, high, count,
                                                                 static_cast<Element*>(out), error);
  cudaError_t const launched = cudaGetLastError();
  return launched == cudaSuccess ? finish(status, "middle")
                                 : fail(status, launched, "launch of middle");
}

}  // namespace

int profiler_enclose_gemm(profiler_gemm const* problem, profiler_reference const* reference,
                          profiler_status* status) {
  return enclose_problem<Gemm>(*problem, *reference, status);
}

int profiler_enclose_conv(profiler_conv const* problem, profiler_reference const* reference,
                          profiler_status* status) {
  return enclose_problem<Conv>(*problem, *reference, status);
}

int profiler_enclose_depthwise(profiler_conv const* problem, profiler_reference const* reference,
                               profiler_status* status) {
  return enclose_problem<Depthwise>(*problem, *reference, status);
}

int profiler_middle(float const* low, float const* high, int dtype, uint64_t count, void* out,
                    float* error, profiler_status* status) {
  switch (dtype) {
    case PROFILER_F16:
      return write_middle<half>(low, high, count, out, error, status);
    case PROFILER_BF16:
      return write_middle<__nv_bfloat16>(low, high, count, out, error, status);
    default:
      return refuse(status,
                    "what lies between layers is of element type %d, which no kernel "
                    "multiplies",
                    dtype);
  }
}
