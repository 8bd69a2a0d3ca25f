/* The C interface of every generated kernel. Plain C: needs neither CUDA nor CUTLASS headers.
 *
 * A kernel with the symbol S exports
 *
 *     int S(boltgen_gemm_args const* args, boltgen_status* status);
 *     size_t S_workspace(boltgen_gemm_args const* args);
 *
 * with the arguments of its family, each of which has a struct below.
 *
 * S enqueues the kernel on args->stream and returns status->code. It neither allocates nor
 * synchronises. S_workspace returns the bytes that S needs at args->workspace for these sizes.
 */
#ifndef BOLTGEN_ABI_H_
#define BOLTGEN_ABI_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Values of boltgen_status.code. */
enum {
  BOLTGEN_OK = 0,
  BOLTGEN_INVALID_ARGUMENT = 1,
  BOLTGEN_MISALIGNED = 2,
  BOLTGEN_WORKSPACE_TOO_SMALL = 3,
  BOLTGEN_CUDA_ERROR = 4
};

typedef struct boltgen_status {
  int32_t code;
  char message[256];
} boltgen_status;

/* Values of raster. Along M tiles lie below each other, along N side by side. */
enum { BOLTGEN_RASTER_ALONG_M = 0, BOLTGEN_RASTER_ALONG_N = 1 };

/* The most addresses that a launch passes besides those of A, B and D: loads, further results. */
#define BOLTGEN_MAX_OPERANDS 7

/* An operand of the epilogue, in the order of the graph's loads.
 *
 * ld is the distance between rows of a full tensor, batch_stride that between the slices of a
 * batched product, both in elements. Rows and columns are contiguous and ignore ld. Where each
 * slice of D's rows, an image or a sequence, has a row of its own, or each position in all slices,
 * ld is how many rows of D are a slice, and batch_stride the distance between the operand's rows.
 */
typedef struct boltgen_operand {
  void const* pointer;
  int64_t ld;
  int64_t batch_stride;
} boltgen_operand;

/* D = epilogue(A x B), `batch` times.
 *
 * A: (m, k) row-major, rows lda apart. B: (k, n) with ldb between rows where it is row-major and
 * between columns where it is column-major. D: (m, n) row-major, rows ldd apart. Strides are in
 * elements; a batch stride of 0 shares the operand between the products. A kernel that combines a
 * pair of products takes the 2 n columns of both as B; see boltgen/pair.h.
 */
typedef struct boltgen_gemm_args {
  int32_t m;
  int32_t n;
  int32_t k;
  int32_t batch;
  void const* a;
  void const* b;
  void* d;
  int64_t lda;
  int64_t ldb;
  int64_t ldd;
  int64_t batch_stride_a;
  int64_t batch_stride_b;
  int64_t batch_stride_d;
  boltgen_operand operands[BOLTGEN_MAX_OPERANDS];
  int32_t split_k; /* slices of K; 1 for none */
  int32_t swizzle; /* tiles that are visited together across the raster: 1, 2, 4 or 8 */
  int32_t raster;  /* the direction in which tiles follow each other */
  void* workspace;
  size_t workspace_bytes;
  void* stream; /* a cudaStream_t */
} boltgen_gemm_args;

/* D = epilogue(A x B[group]) of each row, whose group `ends` tells on the device.
 *
 * A: (m, k) row-major, rows lda apart and sorted by group. B: `groups` matrices of (k, n),
 * batch_stride_b apart, as in a GEMM. ends: (groups,), packed, of the kernel's integer type: the
 * row behind each group's last one. Rows behind the last end have a product of 0. D: (m, n)
 * row-major, rows ldd apart; full-tensor operands span it. It needs no workspace.
 *
 * Where the kernel takes A's rows by integers, A is (a_rows, k), and taken: (m,), packed, of the
 * kernel's integer type. One below 0 takes the first row, one beyond the last row takes the last.
 */
typedef struct boltgen_grouped_gemm_args {
  int32_t m;
  int32_t n;
  int32_t k;
  int32_t groups;
  void const* a;
  void const* b;
  void const* ends;
  void const* taken; /* not read where A has its rows in order */
  int32_t a_rows;    /* the same */
  void* d;
  int64_t lda;
  int64_t ldb;
  int64_t ldd;
  int64_t batch_stride_b;
  boltgen_operand operands[BOLTGEN_MAX_OPERANDS];
  int32_t swizzle;
  int32_t raster;
  void* workspace;
  size_t workspace_bytes;
  void* stream;
} boltgen_grouped_gemm_args;

/* D = epilogue(conv2d(A, B)), a cross-correlation with one group.
 *
 * A: (n, h, w, c). B: (k, r, s, c). D: (n, p, q, k). All packed. Padding at the bottom and right is
 * whatever p and q imply. A full-tensor operand is a matrix of n*p*q rows and k columns.
 */
typedef struct boltgen_conv2d_args {
  int32_t n;
  int32_t h;
  int32_t w;
  int32_t c;
  int32_t k;
  int32_t r;
  int32_t s;
  int32_t p;
  int32_t q;
  int32_t pad_h; /* at the top */
  int32_t pad_w; /* at the left */
  int32_t stride_h;
  int32_t stride_w;
  int32_t dilation_h;
  int32_t dilation_w;
  int32_t groups; /* of c / groups channels and k / groups filters each */
  void const* a;
  void const* b;
  void* d;
  boltgen_operand operands[BOLTGEN_MAX_OPERANDS];
  int32_t split_k;
  int32_t swizzle;
  int32_t raster;
  void* workspace;
  size_t workspace_bytes;
  void* stream;
} boltgen_conv2d_args;

/* D = epilogue(depthwise convolution of A), a cross-correlation with as many groups as channels.
 *
 * A: (n, h, w, c). B: (r, s, k). D: (n, p, q, k). All packed. Channel i of D is of A's channel
 * i / (k / c). Padding at the bottom and right is whatever p and q imply. A full-tensor operand is
 * a matrix of n*p*q rows and k columns. Only a kernel that rounds a sum needs a workspace. A
 * threadblock has at most `slab` vectors of a pixel's channels.
 */
typedef struct boltgen_depthwise_args {
  int32_t n;
  int32_t h;
  int32_t w;
  int32_t c;
  int32_t k;
  int32_t r;
  int32_t s;
  int32_t p;
  int32_t q;
  int32_t pad_h; /* at the top */
  int32_t pad_w; /* at the left */
  int32_t stride_h;
  int32_t stride_w;
  int32_t dilation_h;
  int32_t dilation_w;
  int32_t slab;
  void const* a;
  void const* b;
  void* d;
  boltgen_operand operands[BOLTGEN_MAX_OPERANDS];
  void* workspace;
  size_t workspace_bytes;
  void* stream; /* a cudaStream_t */
} boltgen_depthwise_args;

/* A copy that casts, transposes or changes the number of channels; the symbol's kernel says which.
 *
 * NHWC: (n, pixels, c); NCHW: (n, c, pixels); pixels = h * w. Channels that the source does not
 * have are zero, those that the target does not have are dropped. Both tensors are packed, and
 * begin at a multiple of 16 bytes. Such a kernel has no workspace.
 */
typedef struct boltgen_move_args {
  int32_t n;
  int32_t pixels;
  int32_t source_c;
  int32_t target_c;
  void const* source;
  void* target;
  void* stream;
} boltgen_move_args;

/* The most layers that one kernel may chain. */
#define BOLTGEN_MAX_LAYERS 8

/* A layer of a chain: D = epilogue(A x B), where A is the D of the layer before it.
 *
 * B: (k, n), with k the columns of A; stored like that of a GEMM, and a convolution's filter as
 * (n, k) with ldb = k. Operands span the layer's own D.
 */
typedef struct boltgen_chain_layer {
  int32_t n;
  void const* b;
  int64_t ldb;
  int64_t batch_stride_b;
  boltgen_operand operands[BOLTGEN_MAX_OPERANDS];
} boltgen_chain_layer;

/* A chain of GEMMs, `batch` times. A: (m, k) row-major, D: (m, n of the last layer) row-major. */
typedef struct boltgen_gemm_chain_args {
  int32_t m;
  int32_t k;
  int32_t batch;
  void const* a;
  void* d;
  int64_t lda;
  int64_t ldd;
  int64_t batch_stride_a;
  int64_t batch_stride_d;
  boltgen_chain_layer layers[BOLTGEN_MAX_LAYERS];
  void* workspace;
  size_t workspace_bytes;
  void* stream;
} boltgen_gemm_chain_args;

/* B of one of attention's products, K or V, as of a layer of a chain.
 *
 * `group_b` heads of Q that follow each other read one matrix of B; 1 where each has its own.
 */
typedef struct boltgen_attention_layer {
  int32_t n;
  int32_t group_b;
  void const* b;
  int64_t ldb;
  int64_t batch_stride_b;
  int64_t head_stride_b;
  boltgen_operand operands[BOLTGEN_MAX_OPERANDS];
  int64_t operand_head_strides[BOLTGEN_MAX_OPERANDS];
} boltgen_attention_layer;

/* Two products with a softmax between them, `batch` times: `heads` for each sequence.
 *
 * A: (m, k) row-major, D: (m, n of the last layer) row-major. Matrix i of A, B and D begins at
 * i / heads * batch_stride + i % heads * head_stride, so that the heads of a sequence may lie side
 * by side in its rows; of B it is i % heads / group_b. The epilogues' operands have a batch_stride
 * and one of operand_head_strides each; 0 shares a mask between sequences, or between heads.
 */
typedef struct boltgen_attention_args {
  int32_t m;
  int32_t k;
  int32_t batch;
  int32_t heads;
  void const* a;
  void* d;
  int64_t lda;
  int64_t ldd;
  int64_t batch_stride_a;
  int64_t batch_stride_d;
  int64_t head_stride_a;
  int64_t head_stride_d;
  boltgen_attention_layer layers[2];
  void* workspace;
  size_t workspace_bytes;
  void* stream;
} boltgen_attention_args;

/* D = epilogue(normalise(prologue(A))) of each row: a norm, or a softmax.
 *
 * A: (rows, columns), rows lda apart. D: (rows, columns), rows ldd apart, in elements. Operands are
 * those of the prologue, then those of the epilogue, then the further results; each spans D. Where
 * the kernel takes A's rows by integers, A is (a_rows, columns), and taken as in a grouped product.
 */
typedef struct boltgen_norm_args {
  int32_t rows;
  int32_t columns;
  void const* a;
  void const* taken; /* not read where A has its rows in order */
  int32_t a_rows;    /* the same */
  void* d;
  int64_t lda;
  int64_t ldd;
  boltgen_operand operands[BOLTGEN_MAX_OPERANDS];
  void* workspace;
  size_t workspace_bytes;
  void* stream; /* a cudaStream_t */
} boltgen_norm_args;

/* D = epilogue(normalise(prologue(A))) of each group of channels of each image.
 *
 * A and D: (n, pixels, channels), packed: images in NHWC. A group has channels / groups of them.
 * Operands are those of the prologue, then those of the epilogue, then the further results. Full
 * tensors are of D's shape, a row has a number for each channel, a column one for each pixel.
 */
typedef struct boltgen_image_norm_args {
  int32_t n;
  int32_t pixels;
  int32_t channels;
  int32_t groups;
  void const* a;
  void* d;
  boltgen_operand operands[BOLTGEN_MAX_OPERANDS];
  void* workspace;
  size_t workspace_bytes;
  void* stream; /* a cudaStream_t */
} boltgen_image_norm_args;

/* D = epilogue(the hidden states of a recurrent layer whose inputs are multiplied already).
 *
 * A: (steps, batch, directions * gates * hidden). weights: (directions, gates * hidden, hidden).
 * bias: (directions, hidden), of a GRU whose reset gate is applied to a product. states: (1 or 2,
 * batch, directions * hidden), the first states. lengths: (batch,) of int32_t. D: (steps +
 * last_states, batch, directions * hidden). All packed, gates in ONNX's order. bias, states and
 * lengths may be null: zeros, zeros, and all steps. A second direction goes backwards, and so does
 * a single one if `backwards` is 1. Full-tensor operands are of D's shape.
 */
typedef struct boltgen_recurrent_args {
  int32_t steps;
  int32_t batch;
  int32_t hidden;
  int32_t directions;
  int32_t backwards;
  int32_t last_states; /* 0, or as many as the cell has */
  void const* a;
  void const* weights;
  void const* bias;
  void const* states;
  void const* lengths;
  void* d;
  boltgen_operand operands[BOLTGEN_MAX_OPERANDS];
  void* workspace;
  size_t workspace_bytes;
  void* stream; /* a cudaStream_t */
} boltgen_recurrent_args;

/* A convolution, then 1x1 convolutions of stride 1 without padding.
 *
 * A: (n, h, w, c). B of the first layer: (layers[0].n, r, s, c), or (r, s, layers[0].n) where it is
 * depthwise. D: (n, p, q, n of the last layer). All packed.
 */
typedef struct boltgen_conv2d_chain_args {
  int32_t n;
  int32_t h;
  int32_t w;
  int32_t c;
  int32_t r;
  int32_t s;
  int32_t p;
  int32_t q;
  int32_t pad_h; /* at the top */
  int32_t pad_w; /* at the left */
  int32_t stride_h;
  int32_t stride_w;
  int32_t dilation_h;
  int32_t dilation_w;
  void const* a;
  void* d;
  boltgen_chain_layer layers[BOLTGEN_MAX_LAYERS];
  void* workspace;
  size_t workspace_bytes;
  void* stream;
} boltgen_conv2d_chain_args;

#ifdef __cplusplus
}
#endif

#endif /* BOLTGEN_ABI_H_ */
