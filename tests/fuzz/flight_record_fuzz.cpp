// The records of two ranks, separated by a null byte.
#include <ddp/commands/flightrecorder/comparison.h>

#include <sstream>
#include <stdexcept>

#include <sys/mman.h>
#include <unistd.h>

static std::string path_of(int file, const std::string& text) {
  const bool written =
      ftruncate(file, 0) == 0 && pwrite(file, text.data(), text.size(), 0) >= 0;
  return written ? "/proc/self/fd/" + std::to_string(file) : "";
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int files[] = {memfd_create("0", 0), memfd_create("1", 0)};
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto end = text.find('\0');
  std::vector<std::string> paths{path_of(files[0], text.substr(0, end))};
  if (end != text.npos) {
    paths.push_back(path_of(files[1], text.substr(end + 1)));
  }
  try {
    std::ostringstream out;
    ddp::command::compare(ddp::command::read_records(paths), out);
  } catch (const std::runtime_error&) {
  }
  return 0;
}
