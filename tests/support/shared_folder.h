#pragma once

#include <tests/support/temporary_folder.h>

#include <cstdlib>
#include <memory>
#include <string>

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

} // namespace ddp::test
