/* The C interface of libboltgen_profiler.so: what a worker needs to check and time kernels.
 *
 * Every function returns profiler_status.kind, and does its work on the one stream of the process.
 * The same library runs on a GPU and on the virtual GPU.
 */
#ifndef BOLTGEN_PROFILER_H_
#define BOLTGEN_PROFILER_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Values of profiler_status.kind. */
enum {
  PROFILER_OK = 0,
  PROFILER_REFUSED = 1,   /* the kernel's entry refused its arguments, or could not launch */
  PROFILER_CUDA_ERROR = 2 /* cuda_error has the number */
};

typedef struct profiler_status {
  int32_t kind;
  int32_t cuda_error;
  char message[512];
} profiler_status;

typedef struct profiler_device {
  char name[256];
  char driver[64];
  char uuid[64];
  int32_t major; /* of the compute capability */
  int32_t minor;
  int32_t sm_count;
  int32_t clock_mhz; /* the highest */
  int32_t memory_clock_mhz;
  int32_t has_nvml;
  uint64_t memory_bytes;
  uint64_t l2_bytes;
  void* stream; /* a cudaStream_t, for the arguments of kernels */
} profiler_device;

/* Element types. */
enum {
  PROFILER_F16 = 0,
  PROFILER_F32 = 1,
  PROFILER_BF16 = 2,
  PROFILER_I8 = 3,
  PROFILER_U8 = 4,
  PROFILER_I32 = 5
};

/* Takes device `ordinal` for this process. `with_nvml`: read clocks and the driver's version. */
int profiler_open(int ordinal, int with_nvml, profiler_device* out, profiler_status* status);
/* The SM clock now, in MHz; 0 where it cannot be read. */
int profiler_clock_mhz(void);

int profiler_free_bytes(uint64_t* out, profiler_status* status);
int profiler_allocate(uint64_t bytes, void** out, profiler_status* status);
int profiler_release(void* pointer, profiler_status* status);
/* Between any two of device and host; waits. */
int profiler_copy(void* to, void const* from, uint64_t bytes, profiler_status* status);
/* Bytes 0xff: NaN in every element type, and a semaphore that opens for nobody. */
int profiler_poison(void* pointer, uint64_t bytes, profiler_status* status);
/* Uniform in [low, high), a pure function of seed and index. */
int profiler_fill(void* pointer, int dtype, uint64_t count, uint64_t seed, float low, float high,
                  profiler_status* status);

/* What a node of an epilogue does. The functions are those of boltgen/ir/functions.py. */
enum {
  PROFILER_ACCUMULATOR = 0,
  PROFILER_LOAD_TENSOR,
  PROFILER_LOAD_ROW,
  PROFILER_LOAD_SLICE_ROW,
  PROFILER_LOAD_POSITION_ROW,
  PROFILER_LOAD_COLUMN,
  PROFILER_SCALAR,
  PROFILER_CAST,
  PROFILER_ADD,
  PROFILER_SUBTRACT,
  PROFILER_MULTIPLY,
  PROFILER_DIVIDE,
  PROFILER_MAXIMUM,
  PROFILER_MINIMUM,
  PROFILER_UNARY /* and on: the functions of one value, in the order of UnaryOp */
};

#define PROFILER_MAX_NODES 128

/* One node of an epilogue. `x` and `y` index earlier nodes; of an accumulator x is 1 where it is
 * the second one of a pair, else 0; of a row for each slice or position, how many rows are a slice.
 * `turn` is where a function is not monotone, NaN for none; the last three bound its error in FP32
 * as ir/functions.py has it. */
typedef struct profiler_node {
  int32_t op;
  int32_t x;
  int32_t y;
  int32_t dtype;           /* of a load or a cast */
  void const* pointer;     /* of a load */
  uint64_t batch_elements; /* between the slices of a load; 0 where they share it */
  double constants[2];
  double turn;
  double ulps;
  double input_ulps;
  double unit_ulps;
} profiler_node;

/* How far the accumulated sum may be from the exact one, given the sum of |a||b|:
 * relative * sum + absolute where the sum is not 0, and anywhere where that reaches overflow. */
typedef struct profiler_rounding {
  double relative;
  double absolute;
  double overflow;
} profiler_rounding;

/* The matrix product of boltgen_gemm_args, packed. B is (k, n), or (n, k) where b_is_column. Of a
 * pair it has 2 n columns, `run` of the first product's by turns with as many of the second's; run
 * is 0 where there is one product. */
typedef struct profiler_gemm {
  int32_t batch;
  int32_t m;
  int32_t n;
  int32_t k;
  int32_t b_is_column;
  int32_t a_batched;
  int32_t b_batched;
  int32_t run;
} profiler_gemm;

/* The convolution of boltgen_conv3d_args, in groups; one of images has a depth of one. */
typedef struct profiler_conv {
  int32_t n;
  int32_t depth;
  int32_t h;
  int32_t w;
  int32_t c;
  int32_t k;
  int32_t t;
  int32_t r;
  int32_t s;
  int32_t z;
  int32_t p;
  int32_t q;
  int32_t pad_d;
  int32_t pad_h;
  int32_t pad_w;
  int32_t stride_d;
  int32_t stride_h;
  int32_t stride_w;
  int32_t dilation_d;
  int32_t dilation_h;
  int32_t dilation_w;
  int32_t groups;
  int32_t with_input; /* whether D begins with A's own channels, as only a depthwise one's may */
} profiler_conv;

/* Between which values each element of a right output lies. `nodes` is on the host; the rest is on
 * the device. `low` and `high` have an element for each of the output's. `a_error`, null for none,
 * is how far each element of A may be from the one that the kernel multiplies. */
typedef struct profiler_reference {
  profiler_node const* nodes;
  int32_t node_count;
  int32_t in_dtype;
  int32_t out_dtype;
  profiler_rounding rounding;
  void const* a;
  void const* b;
  float const* a_error;
  float* low;
  float* high;
} profiler_reference;

int profiler_enclose_gemm(profiler_gemm const* problem, profiler_reference const* reference,
                          profiler_status* status);
int profiler_enclose_conv(profiler_conv const* problem, profiler_reference const* reference,
                          profiler_status* status);
/* Of as many groups as channels; B is (r, s, k). */
int profiler_enclose_depthwise(profiler_conv const* problem, profiler_reference const* reference,
                               profiler_status* status);

/* How far a softmax in FP32 may be from the exact one, relative to it: expm1(fixed + of_difference
 * * |x - maximum|), and by `flushed`; and how far its rounding to the type that is multiplied is
 * off, at whatever scale. */
typedef struct profiler_softmax_rounding {
  double fixed;
  double of_difference;
  double flushed;
  double relative;
  double absolute;
} profiler_softmax_rounding;

/* Puts where the softmax of each row lies in the place of where its elements do. Where `sequence`
 * is not 0, it is causal: of so many rows the last one has all columns, each other one less than
 * the next; and where `window` is not 0, only so many of the last ones. */
int profiler_softmax(float* low, float* high, uint64_t rows, uint64_t columns, uint64_t sequence,
                     uint64_t window, profiler_softmax_rounding const* rounding,
                     profiler_status* status);

/* Rounds what lies between two layers of a chain, anywhere from `low` to `high`, to numbers of
 * `dtype` in the middle: the next layer's A. `error` bounds how far the kernel's may be from them.
 */
int profiler_middle(float const* low, float const* high, int dtype, uint64_t count, void* middle,
                    float* error, profiler_status* status);

typedef struct profiler_verdict {
  uint64_t wrong;       /* elements that do not lie where they should */
  uint64_t not_finite;  /* those of them that are NaN */
  uint64_t first_wrong; /* its index, where there is one */
  float got;
  float low;
  float high;
} profiler_verdict;

int profiler_compare(void const* output, int dtype, float const* low, float const* high,
                     uint64_t count, profiler_verdict* out, profiler_status* status);

/* Launches of one kernel to be timed. `kernel` is a generated kernel's entry, `arguments` its
 * argument structs, one for each launch: each has operands of its own, so that none finds the
 * operands of the one before in the L2 cache. `scratch` is read before each sample to empty it. */
typedef struct profiler_launches {
  int (*kernel)(void const* arguments, void* status);
  void const* const* arguments;
  int32_t count;
  int32_t in_graph;
  void const* scratch;
  uint64_t scratch_bytes;
} profiler_launches;

typedef struct profiler_plan profiler_plan;

/* `launches->arguments` must live as long as the plan. */
int profiler_plan_make(profiler_launches const* launches, profiler_plan** out,
                       profiler_status* status);
/* `samples` times of one launch, in microseconds: each the mean over all of the plan's launches. */
int profiler_plan_sample(profiler_plan* plan, int32_t samples, double* out,
                         profiler_status* status);
void profiler_plan_free(profiler_plan* plan);

#ifdef __cplusplus
}
#endif

#endif /* BOLTGEN_PROFILER_H_ */
