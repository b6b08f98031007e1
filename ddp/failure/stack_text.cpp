#include <ddp/failure/stack_text.h>

#include <common/symbols.h>

#include <c10/util/Exception.h>
#include <c10/util/Type.h>

#include <dlfcn.h>
#include <execinfo.h>

#include <array>
#include <filesystem>
#include <sstream>
#include <system_error>

namespace ddp::debug {
namespace {

constexpr int kFrames = 64;
constexpr size_t kMostShown = 24;
constexpr size_t kMostName = 120;

uintptr_t number_of(const void* address) {
  return reinterpret_cast<uintptr_t>(address);
}

/// In the form of crash reports: "symbol+0x12 (libfoo.so+0x345)".
std::string frame_text(void* frame) {
  std::ostringstream text;
  text << std::hex;
  Dl_info info{};
  // A call may be its function's last instruction: look before the return.
  if (dladdr(static_cast<char*>(frame) - 1, &info) == 0) {
    text << "?? (0x" << number_of(frame) << ")";
    return text.str();
  }
  if (info.dli_sname) {
    text << info.dli_sname << "+0x"
         << number_of(frame) - number_of(info.dli_saddr);
  } else {
    text << "??";
  }
  text << " (" << std::filesystem::path(info.dli_fname).filename().string()
       << "+0x" << number_of(frame) - number_of(info.dli_fbase) << ")";
  return text.str();
}

std::string with_readable_name(const std::string& frame) {
  const auto end = frame.find("+0x");
  if (end == std::string::npos || frame.rfind("_Z", 0) != 0) {
    return frame;
  }
  auto name = c10::demangle(frame.substr(0, end).c_str());
  if (name.size() > kMostName) {
    name = name.substr(0, kMostName - 3) + "...";
  }
  return name + frame.substr(end);
}

/// Whether the frame belongs to the debug mode, to LibTorch between the debug
/// mode and ddp, to a sanitizer, or a function of ddp without an exported name.
bool is_between(const std::string& frame) {
  return frame.find("ddp::debug::") != std::string::npos ||
      frame.find(" c10::function_ref<") != std::string::npos ||
      frame.find(" (libtorch") != std::string::npos ||
      frame.find(" (libc10") != std::string::npos ||
      frame.find(" (libasan") != std::string::npos ||
      frame.find(" (libtsan") != std::string::npos ||
      frame.rfind("?? (libddp", 0) == 0;
}

} // namespace

std::string stack_text() {
  std::array<void*, kFrames> frames{};
  const int count = backtrace(frames.data(), kFrames);
  std::string raw;
  for (int i = 0; i < count; ++i) {
    raw += frame_text(frames[static_cast<size_t>(i)]) + "\n";
  }
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  std::istringstream lines(name_frames(raw, program.string()));
  std::string text;
  size_t shown = 0;
  for (std::string line; std::getline(lines, line) && shown < kMostShown;) {
    line = with_readable_name(line);
    if (shown > 0 || !is_between(line)) {
      text += c10::str(shown > 0 ? "\n" : "", "#", shown, " ", line);
      ++shown;
    }
  }
  return text;
}

} // namespace ddp::debug
