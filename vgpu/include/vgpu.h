/* The C interface of libvgpu.so, for bindings and tools. Programs use CUDA's interface instead. */
#ifndef VGPU_H_
#define VGPU_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  const char* kernel; /* mangled; valid until the calling thread asks for launches again */
  uint32_t grid[3];
  uint32_t block[3];
  uint64_t dynamic_shared_bytes;
  uint64_t warp_instructions;
  double seconds;          /* of the host */
  double cpu_seconds;      /* of all host threads that ran blocks */
  double modelled_seconds; /* of the kernel on the device; 0 where nobody asked (README.md) */
} vgpu_launch;

typedef struct {       /* texts are valid until the calling thread asks for findings again */
  const char* check;   /* memcheck, initcheck, racecheck, synccheck or deadlock */
  const char* kind;    /* "race", "out of bounds", ... */
  const char* kernel;  /* mangled; "" where no kernel was involved */
  const char* ptx;     /* the line of the PTX text */
  const char* source;  /* CUDA source file; "" where it was compiled without -lineinfo */
  const char* space;   /* "global", "shared", "local", or "" */
  const char* message; /* all of it, for people */
  uint32_t block[3];
  uint32_t thread[3];
  uint32_t ptx_line;
  uint32_t source_line;
  uint32_t bytes;
  uint64_t address; /* an offset in shared and local memory */
  uint64_t allocation;
  uint64_t count;
} vgpu_finding;

typedef struct {
  uint64_t address;
  uint64_t bytes;
  uint64_t number;
} vgpu_allocation;

/* 0, or the CUDA error number; the reason is in vgpu_last_error(). */
int vgpu_set_option(const char* name, const char* value);

/* The same for all settings of a text like BOLTGEN_VGPU's, of which none is set. */
int vgpu_check_options(const char* text);

/* The full message of the last failure, or "". Valid until the calling thread asks again. */
const char* vgpu_last_error(void);

/* Number of launches since the start or the last clear, and a copy of up to `capacity` of them. */
uint64_t vgpu_launches(vgpu_launch* out, uint64_t capacity);
void vgpu_clear_launches(void);

/* What the launches under the option counters=on did, as a JSON array (README.md has the names).
   Valid until the calling thread asks again. */
const char* vgpu_counters(void);
/* What the checks found since the start or the last clear, faults among it. */
uint64_t vgpu_findings(vgpu_finding* out, uint64_t capacity);
void vgpu_clear_findings(void);

/* Device memory that is allocated now. */
uint64_t vgpu_allocations(vgpu_allocation* out, uint64_t capacity);

/* Lets kernels access memory of the program's own, until it is unregistered. */
void vgpu_register_memory(const void* base, uint64_t bytes);
void vgpu_unregister_memory(const void* base);

/* "avx512", "avx2" or "generic". */
const char* vgpu_isa(void);

/* Forgets an error that made every later call fail (a GPU needs a new process for that). */
void vgpu_reset_error(void);

#ifdef __cplusplus
}
#endif

#endif /* VGPU_H_ */
