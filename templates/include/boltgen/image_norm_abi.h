/* The arguments of norms of images; a part of the C interface in boltgen/abi.h, in plain C. */
#ifndef BOLTGEN_IMAGE_NORM_ABI_H_
#define BOLTGEN_IMAGE_NORM_ABI_H_

#include "boltgen/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

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

#ifdef __cplusplus
}
#endif

#endif /* BOLTGEN_IMAGE_NORM_ABI_H_ */
