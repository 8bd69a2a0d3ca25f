#include "exec/thread_pool.h"

#include <condition_variable>
#include <mutex>
#include <thread>

namespace vgpu {
namespace {

class Pool {
 public:
  void run(int helpers, const std::function<void()>& job) {
    const std::lock_guard one_launch(serial_);
    std::unique_lock lock(mutex_);
    while (threads_ < helpers) {
      ++threads_;
      std::thread([this] { loop(); }).detach();  // ends with the process
    }
    job_ = &job;
    wanted_ = helpers;
    running_ = helpers;
    start_.notify_all();
    lock.unlock();
    job();
    lock.lock();
    finished_.wait(lock, [&] { return running_ == 0; });
  }

 private:
  void loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
      start_.wait(lock, [&] { return wanted_ > 0; });
      --wanted_;
      const std::function<void()>* job = job_;
      lock.unlock();
      (*job)();
      lock.lock();
      if (--running_ == 0) finished_.notify_all();
    }
  }

  std::mutex serial_;  // host threads that launch at once take turns
  std::mutex mutex_;
  std::condition_variable start_, finished_;
  const std::function<void()>* job_ = nullptr;
  int threads_ = 0;
  int wanted_ = 0;
  int running_ = 0;
};

}  // namespace

void run_on_threads(int threads, const std::function<void()>& job) {
  static Pool* const pool = new Pool;  // its threads never end
  pool->run(threads - 1, job);
}

}  // namespace vgpu
