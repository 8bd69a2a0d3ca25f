/* Runs a compiled model of one FP32 input and one FP32 output by the C interface of TVM.
 *
 *   run_c digits.boltgen/model.so images.f32 logits.f32 40 1 16 16
 *
 * The files hold the tensors' elements. The last arguments are the input's shape.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tvm/ffi/c_api.h>

enum { kMostExtents = 8, kPooled = 2 /* TVM's pooled allocator */ };

static void fail(char const* what, char const* said) {
  fprintf(stderr, "run_c: %s: %s\n", what, said);
  exit(1);
}

/* Ends the program with TVM's message if `status` is an error. */
static void check(int status, char const* what) {
  if (status == 0) {
    return;
  }
  TVMFFIObjectHandle error = NULL;
  TVMFFIErrorMoveFromRaised(&error);
  if (error == NULL) {
    fail(what, "no message");
  }
  TVMFFIErrorCell const* cell = (TVMFFIErrorCell const*)((char const*)error + sizeof(TVMFFIObject));
  fail(what, cell->message.data);
}

static TVMFFIAny integer(int64_t value) {
  return (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = value};
}

static TVMFFIAny text(char const* value) {
  return (TVMFFIAny){.type_index = kTVMFFIRawStr, .v_c_str = value};
}

static TVMFFIAny address(void* value) {
  return (TVMFFIAny){.type_index = kTVMFFIOpaquePtr, .v_ptr = value};
}

static TVMFFIAny call(TVMFFIAny function, char const* what, TVMFFIAny* arguments, int count) {
  TVMFFIAny result = {.type_index = kTVMFFINone};
  if (function.type_index != kTVMFFIFunction) {
    fail(what, "there is no such function");
  }
  check(TVMFFIFunctionCall(function.v_obj, arguments, count, &result), what);
  return result;
}

/* Calls a function that TVM's runtime has registered. */
static TVMFFIAny call_global(char const* name, TVMFFIAny* arguments, int count) {
  TVMFFIByteArray const key = {name, strlen(name)};
  TVMFFIAny function = {.type_index = kTVMFFINone};
  check(TVMFFIFunctionGetGlobal(&key, (TVMFFIObjectHandle*)&function.v_obj), name);
  function.type_index = function.v_obj == NULL ? kTVMFFINone : kTVMFFIFunction;
  TVMFFIAny const result = call(function, name, arguments, count);
  check(TVMFFIObjectDecRef(function.v_obj), name);
  return result;
}

/* Calls a function of a module. */
static TVMFFIAny call_method(TVMFFIAny module, char const* name, TVMFFIAny* arguments, int count) {
  TVMFFIAny query[] = {module, text(name), {.type_index = kTVMFFIBool, .v_int64 = 0}};
  TVMFFIAny const function = call_global("ffi.ModuleGetFunction", query, 3);
  TVMFFIAny const result = call(function, name, arguments, count);
  check(TVMFFIObjectDecRef(function.v_obj), name);
  return result;
}

static void* read_file(char const* path, size_t size) {
  FILE* file = fopen(path, "rb");
  char* bytes = malloc(size + 1);
  if (file == NULL || bytes == NULL || fread(bytes, 1, size + 1, file) != size) {
    fail(path, "it cannot be read, or has not as many bytes as the shape");
  }
  fclose(file);
  return bytes;
}

static void write_file(char const* path, void const* bytes, size_t size) {
  FILE* file = fopen(path, "wb");
  if (file == NULL || fwrite(bytes, 1, size, file) != size || fclose(file) != 0) {
    fail(path, "it cannot be written");
  }
}

static TVMFFIAny load_machine(char const* library) {
  TVMFFIAny path[] = {text(library)};
  TVMFFIAny const module = call_global("ffi.ModuleLoadFromFile", path, 1);
  TVMFFIAny const machine = call_method(module, "vm_load_executable", NULL, 0);
  check(TVMFFIObjectDecRef(module.v_obj), library);
  /* The host device holds shapes. */
  TVMFFIAny devices[] = {integer(kDLCUDA), integer(0), integer(kPooled),
                         integer(kDLCPU),  integer(0), integer(kPooled)};
  call_method(machine, "vm_initialization", devices, 6);
  return machine;
}

static TVMFFIAny device_tensor(void* bytes, size_t size, TVMFFIAny* extents, int rank) {
  TVMFFIAny const shape = call_global("ffi.Shape", extents, rank);
  TVMFFIAny how[] = {
      shape,
      {.type_index = kTVMFFIDataType, .v_dtype = {kDLFloat, 32, 1}},
      {.type_index = kTVMFFIDevice, .v_device = {kDLCUDA, 0}},
      {.type_index = kTVMFFINone},
  };
  TVMFFIAny const tensor = call_global("runtime.TVMTensorAllocWithScope", how, 4);
  check(TVMFFIObjectDecRef(shape.v_obj), "shape");
  TVMFFIAny copy[] = {tensor, address(bytes), integer((int64_t)size)};
  call_global("runtime.TVMTensorCopyFromBytes", copy, 3);
  return tensor;
}

int main(int count, char** arguments) {
  int const rank = count - 4;
  if (rank < 1 || rank > kMostExtents) {
    fprintf(stderr, "usage: run_c MODEL.so INPUT.f32 OUTPUT.f32 EXTENT...\n");
    return 2;
  }
  TVMFFIAny extents[kMostExtents];
  size_t size = sizeof(float);
  for (int i = 0; i < rank; ++i) {
    extents[i] = integer(strtoll(arguments[4 + i], NULL, 10));
    size *= (size_t)extents[i].v_int64;
  }

  TVMFFIAny const machine = load_machine(arguments[1]);
  void* input = read_file(arguments[2], size);
  TVMFFIAny tensor[] = {device_tensor(input, size, extents, rank)};
  TVMFFIAny const output = call_method(machine, "main", tensor, 1);
  if (output.type_index != kTVMFFITensor) {
    fail("main", "the model has more than one output");
  }

  DLTensor const* d = (DLTensor const*)((char const*)output.v_obj + sizeof(TVMFFIObject));
  size_t bytes = sizeof(float);
  for (int i = 0; i < d->ndim; ++i) {
    bytes *= (size_t)d->shape[i];
  }
  if (d->dtype.code != kDLFloat || d->dtype.bits != 32) {
    fail("main", "the output is not FP32");
  }
  void* result = malloc(bytes);
  /* Waits for the device. */
  TVMFFIAny copy[] = {output, address(result), integer((int64_t)bytes)};
  call_global("runtime.TVMTensorCopyToBytes", copy, 3);
  write_file(arguments[3], result, bytes);

  free(result);
  free(input);
  check(TVMFFIObjectDecRef(output.v_obj), "output");
  check(TVMFFIObjectDecRef(tensor[0].v_obj), "input");
  check(TVMFFIObjectDecRef(machine.v_obj), "machine");
  return 0;
}
