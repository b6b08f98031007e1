#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bench/launch_record.h>

/// The two pipes of the ranks, in a folder of their own.
class Pipes {
 public:
  Pipes() {
    std::string name =
        std::filesystem::temp_directory_path() / "ddp_bench_XXXXXX";
    if (mkdtemp(name.data()) == nullptr) {
      throw std::runtime_error("cannot make the folder " + name);
    }
    folder_ = name;
    started_ = open_pipe("started", kStartedPipe);
  }
  Pipes(const Pipes&) = delete;
  Pipes& operator=(const Pipes&) = delete;
  ~Pipes() {
    let_go();
    close(started_);
    std::error_code none;
    std::filesystem::remove_all(folder_, none);
  }

  std::string folder() const {
    return folder_;
  }

  /// Ranks started from here on wait until let_go().
  void hold() {
    hold_ = open_pipe("hold", kHoldPipe);
  }

  void let_go() {
    if (hold_ >= 0) {
      close(hold_);
      hold_ = -1;
      std::filesystem::remove(folder_ / "hold");
      unsetenv(kHoldPipe);
    }
  }

  /// What the next rank wrote; nothing where none does within this time.
  std::optional<StartRecord> read_start(int milliseconds) const {
    StartRecord record{};
    pollfd waited{started_, POLLIN, 0};
    const bool there = poll(&waited, 1, milliseconds) == 1 &&
        read(started_, &record, sizeof record) == sizeof record;
    return there ? std::optional(record) : std::nullopt;
  }

 private:
  int open_pipe(const char* name, const char* variable) const {
    const std::string path = folder_ / name;
    // For reading and writing: nobody waits for another end.
    const int fd = mkfifo(path.c_str(), 0600) == 0
        ? open(path.c_str(), O_RDWR | O_CLOEXEC)
        : -1;
    if (fd < 0) {
      throw std::runtime_error("cannot make the pipe " + path);
    }
    setenv(variable, path.c_str(), 1);
    return fd;
  }

  std::filesystem::path folder_;
  int started_ = -1;
  int hold_ = -1;
};
