"""`boltgen/per_device.h`: what is remembered of which device, with a runtime of one function."""

from __future__ import annotations

import subprocess
from pathlib import Path

from boltgen.build.toolchain import find_toolchain
from boltgen.paths import resource_dir
from boltgen.settings import settings_from

# Prints how often each device was asked when it did.
_PROGRAM = r"""
#include <cstdio>
#include <thread>
#include <vector>
#include "boltgen/per_device.h"

thread_local int current = 0;
cudaError_t cudaGetDevice(int* device) {
  *device = current;
  return current < 0 ? cudaErrorNoDevice : cudaSuccess;
}

struct Number {
  int value;
  bool known() const { return value > 0; }
};

static boltgen::PerDevice<Number> devices;
static std::atomic<int> asked{0};

cudaError_t get(int device, Number& found, cudaError_t error = cudaSuccess) {
  current = device;
  return devices.get(found, [&](int there, Number& facts) {
    ++asked;
    facts.value = 10 + there;
    return error;
  });
}

void say(char const* what, int device, cudaError_t error = cudaSuccess) {
  Number found{};
  int const before = asked, status = get(device, found, error);
  std::printf("%s: status %d, value %d, asked %d\n", what, status, found.value, asked - before);
}

int main() {
  say("none", -1);
  say("failure", 0, cudaErrorInvalidValue);
  say("first", 0);
  say("again", 0);
  say("another", 1);
  say("back", 0);
  say("beyond the places", 100);
  say("beyond the places", 100);
  devices.forget();
  say("forgotten", 0);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      for (int turn = 0; turn < 1000; ++turn) {
        Number found{};
        int const device = (thread + turn) % 4;
        wrong += get(device, found) != cudaSuccess || found.value != 10 + device;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  std::printf("threads: wrong %d\n", wrong.load());
}
"""


def test_each_device_is_asked_once_and_failures_are_forgotten(tmp_path: Path) -> None:
    tools = find_toolchain(settings_from())
    (tmp_path / "program.cpp").write_text(_PROGRAM)
    command = [
        *(str(tools.cxx.path), "-std=c++17", "-Wall", "-Wextra", "-Werror", "-pthread"),
        *("-I", str(resource_dir("templates") / "include"), "-isystem", str(tools.nvcc.include)),
        *("-o", "program", "program.cpp"),
    ]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "none: status 100, value 0, asked 0",
        "failure: status 1, value 10, asked 1",
        "first: status 0, value 10, asked 1",
        "again: status 0, value 10, asked 0",
        "another: status 0, value 11, asked 1",
        "back: status 0, value 10, asked 0",
        "beyond the places: status 0, value 110, asked 1",
        "beyond the places: status 0, value 110, asked 1",
        "forgotten: status 0, value 10, asked 1",
        "threads: wrong 0",
    ]
