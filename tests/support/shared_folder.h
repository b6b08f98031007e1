#pragma once

#include <tests/support/temporary_folder.h>

#include <chrono>
#include <memory>
#include <thread>

namespace ddp::test {

/// The folder that the test's first process made, known to its ranks as well.
struct SharedFolder {
  SharedFolder() {
    if (!std::getenv("DDP_TEST_FOLDER")) {
      own = std::make_unique<TemporaryFolder>();
      setenv("DDP_TEST_FOLDER", (*own / "").c_str(), 1);
    }
    path = std::getenv("DDP_TEST_FOLDER");
  }
  ~SharedFolder() {
    if (own) {
      unsetenv("DDP_TEST_FOLDER");
    }
  }
  std::unique_ptr<TemporaryFolder> own;
  std::string path;
};

/// Returns when the file is there; the test's own time bounds it.
inline void await(const std::string& flag) {
  while (!std::filesystem::exists(flag)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

} // namespace ddp::test
