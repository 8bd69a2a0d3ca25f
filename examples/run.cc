// Runs a compiled model of one FP32 input and one FP32 output with TVM's runtime alone.
//
//   run_cpp digits.boltgen/model.so images.f32 logits.f32 40 1 16 16
//
// The files hold the tensors' elements. The last arguments are the input's shape.

#include <cstdint>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

namespace ffi = tvm::ffi;

namespace {

// TVM's pooled allocator: it keeps freed memory for the next call.
constexpr int kPooled = 2;
constexpr DLDevice kDevice{kDLCUDA, 0};

std::vector<char> read_file(std::string const& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw std::runtime_error(path + " cannot be read");
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(std::string const& path, std::vector<char> const& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) {
    throw std::runtime_error(path + " cannot be written");
  }
}

ffi::Module load_machine(std::string const& library) {
  ffi::Module const module = ffi::Module::LoadFromFile(library);
  auto const load = module->GetFunction("vm_load_executable");
  if (!load) {
    throw std::runtime_error(library + " has no model for TVM's virtual machine");
  }
  auto machine = (*load)().cast<ffi::Module>();
  // The host device holds shapes.
  (*machine->GetFunction("vm_initialization"))(static_cast<int>(kDLCUDA), 0, kPooled,
                                               static_cast<int>(kDLCPU), 0, kPooled);
  return machine;
}

ffi::Tensor device_tensor(std::vector<char>& bytes, std::vector<int64_t> const& shape) {
  int64_t elements = 1;
  for (int64_t extent : shape) {
    elements *= extent;
  }
  if (bytes.size() != elements * sizeof(float)) {
    throw std::runtime_error("the input file has " + std::to_string(bytes.size()) +
                             " bytes; the shape has " + std::to_string(elements) +
                             " numbers of 4 bytes");
  }
  auto const allocate = ffi::Function::GetGlobalRequired("runtime.TVMTensorAllocWithScope");
  auto const copy = ffi::Function::GetGlobalRequired("runtime.TVMTensorCopyFromBytes");
  auto tensor = allocate(ffi::Shape(shape), DLDataType{kDLFloat, 32, 1}, kDevice, nullptr)
                    .cast<ffi::Tensor>();
  copy(tensor, static_cast<void*>(bytes.data()), static_cast<int64_t>(bytes.size()));
  return tensor;
}

std::vector<char> host_bytes(ffi::Tensor const& tensor) {
  if (tensor.dtype() != DLDataType{kDLFloat, 32, 1}) {
    throw std::runtime_error("the output is not FP32");
  }
  std::vector<char> bytes(tensor.numel() * sizeof(float));
  // Waits for the device.
  auto const copy = ffi::Function::GetGlobalRequired("runtime.TVMTensorCopyToBytes");
  copy(tensor, static_cast<void*>(bytes.data()), static_cast<int64_t>(bytes.size()));
  return bytes;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) {
    std::cerr << "usage: run_cpp MODEL.so INPUT.f32 OUTPUT.f32 EXTENT...\n";
    return 2;
  }
  try {
    std::vector<int64_t> shape;
    for (int i = 4; i < count; ++i) {
      shape.push_back(std::stoll(arguments[i]));
    }
    ffi::Module const machine = load_machine(arguments[1]);
    auto const entry = machine->GetFunction("main");
    if (!entry) {
      throw std::runtime_error("the model has no function `main`");
    }
    std::vector<char> input = read_file(arguments[2]);
    auto const output = (*entry)(device_tensor(input, shape)).cast<ffi::Tensor>();
    write_file(arguments[3], host_bytes(output));
  } catch (std::exception const& error) {
    std::cerr << "run_cpp: " << error.what() << '\n';
    return 1;
  }
}
