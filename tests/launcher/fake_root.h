#pragma once

#include <filesystem>
#include <string>

#include <tests/support/temporary_folder.h>

namespace ddp::test {

/// A folder that stands for the root of a computer's files.
struct FakeRoot : TemporaryFolder {
  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = path() + "/" + name;
    std::filesystem::create_directories(file.parent_path());
    write_text(file, text + "\n");
  }
};

} // namespace ddp::test
