// Preloaded into a process, makes chosen calls on files below a folder fail,
// like a full or broken disk. The process controls it by ddp_fail_disk.

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string>

namespace {

// No constructors: those of other libraries may call the functions below first.
char chosen_function[32]; // "*": all but close
char chosen_folder[4096];
int chosen_error; // 0: a short write
bool refuses_unnamed;
std::atomic<bool> armed{false};
std::atomic<int> calls_until{0};
std::atomic<int> failures{0};

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

bool is_below(const std::string& path) {
  return path.rfind(chosen_folder, 0) == 0;
}

// Whether this call must fail; if so, sets errno.
bool fails(const char* function, const std::string& path) {
  const bool all = std::strcmp(chosen_function, "*") == 0;
  const bool chosen = all ? std::strcmp(function, "close") != 0
                          : std::strcmp(function, chosen_function) == 0;
  if (!armed || !chosen || !is_below(path)) {
    return false;
  }
  const int left = --calls_until;
  if (left > 0 || (left < 0 && !all)) {
    return false;
  }
  ++failures;
  errno = chosen_error;
  return true;
}

std::string path_of(int descriptor) {
  if (!armed) {
    return "";
  }
  char path[4096];
  const auto link = "/proc/self/fd/" + std::to_string(descriptor);
  const auto length = readlink(link.c_str(), path, sizeof(path));
  return {path, static_cast<size_t>(std::max<ssize_t>(length, 0))};
}

int open_at(int folder, const char* path, int flags, mode_t mode) {
  using Open = int(int, const char*, int, ...);
  static auto* const real = next<Open>("openat");
  if (armed && refuses_unnamed && (flags & O_TMPFILE) == O_TMPFILE &&
      is_below(path)) {
    errno = EOPNOTSUPP;
    return -1;
  }
  return fails("open", path) ? -1 : real(folder, path, flags, mode);
}

mode_t mode_of(int flags, va_list arguments) {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE
      ? va_arg(arguments, mode_t)
      : 0;
}

ssize_t write_at(int file, const void* data, size_t bytes, off_t offset) {
  using Write = ssize_t(int, const void*, size_t, off_t);
  static auto* const real = next<Write>("pwrite");
  if (!fails("pwrite", path_of(file))) {
    return real(file, data, bytes, offset);
  }
  return chosen_error != 0 ? -1 : real(file, data, (bytes + 1) / 2, offset);
}

} // namespace

extern "C" {

/// Makes the `nth` call of `function` in `folder` fail with `error`; for "*",
/// every call but close from the `nth` on. `no_unnamed` also rejects O_TMPFILE.
void ddp_fail_disk(
    const char* function,
    const char* folder,
    int nth,
    int error,
    bool no_unnamed) {
  armed = false;
  std::snprintf(chosen_function, sizeof(chosen_function), "%s", function);
  std::snprintf(chosen_folder, sizeof(chosen_folder), "%s", folder);
  chosen_error = error;
  refuses_unnamed = no_unnamed;
  calls_until = nth;
  failures = 0;
  armed = true;
}

/// Stops the failures; returns their number.
int ddp_heal_disk() {
  armed = false;
  return failures;
}

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const auto mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_at(AT_FDCWD, path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const auto mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_at(AT_FDCWD, path, flags, mode);
}

DIR* opendir(const char* path) {
  static auto* const real = next<DIR*(const char*)>("opendir");
  return fails("opendir", path) ? nullptr : real(path);
}

ssize_t pwrite(int file, const void* data, size_t bytes, off_t offset) {
  return write_at(file, data, bytes, offset);
}

ssize_t pwrite64(int file, const void* data, size_t bytes, off64_t offset) {
  return write_at(file, data, bytes, offset);
}

int fsync(int file) {
  static auto* const real = next<int(int)>("fsync");
  return fails("fsync", path_of(file)) ? -1 : real(file);
}

// Closes the file even if it reports an error, as the kernel does.
int close(int file) {
  static auto* const real = next<int(int)>("close");
  const auto path = path_of(file);
  const int result = real(file);
  return fails("close", path) ? -1 : result;
}

int fchmod(int file, mode_t mode) noexcept {
  static auto* const real = next<int(int, mode_t)>("fchmod");
  return fails("fchmod", path_of(file)) ? -1 : real(file, mode);
}

int linkat(
    int from_folder,
    const char* from,
    int to_folder,
    const char* to,
    int flags) noexcept {
  using Link = int(int, const char*, int, const char*, int);
  static auto* const real = next<Link>("linkat");
  return fails("linkat", to) ? -1
                             : real(from_folder, from, to_folder, to, flags);
}

int symlink(const char* to, const char* path) noexcept {
  static auto* const real = next<int(const char*, const char*)>("symlink");
  return fails("symlink", path) ? -1 : real(to, path);
}

int rename(const char* from, const char* to) noexcept {
  static auto* const real = next<int(const char*, const char*)>("rename");
  return fails("rename", to) ? -1 : real(from, to);
}

int unlink(const char* path) noexcept {
  static auto* const real = next<int(const char*)>("unlink");
  return fails("unlink", path) ? -1 : real(path);
}

int remove(const char* path) noexcept {
  static auto* const real = next<int(const char*)>("remove");
  return fails("remove", path) ? -1 : real(path);
}

} // extern "C"
