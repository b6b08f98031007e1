#include <common/error_file.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <initializer_list>
#include <memory>

#include <cxxabi.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <common/bounded_json.h>
#include <common/file_descriptor.h>
#include <common/symbols.h>

namespace ddp {
namespace {

using nlohmann::json;

constexpr int64_t kMaxSize = 1 << 20;

std::string text_of(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) {
    return "";
  }
  return found->is_string() ? found->get<std::string>() : found->dump();
}

std::string demangled(const std::string& name) {
  const std::unique_ptr<char, decltype(&std::free)> plain(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, nullptr), &std::free);
  return plain ? plain.get() : name;
}

bool in_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' ||
      c == '.' || c == '$';
}

// Demangles every word that begins with "_Z".
std::string demangle_all(const std::string& text) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && in_name(text[end])) {
      ++end;
    }
    if (end == i) {
      result += text[i++];
      continue;
    }
    const std::string word = text.substr(i, end - i);
    result += word.rfind("_Z", 0) == 0 ? demangled(word) : word;
    i = end;
  }
  return result;
}

int64_t modification_time(const struct stat& status) {
  return int64_t{status.st_mtim.tv_sec} * 1000000000 + status.st_mtim.tv_nsec;
}

void read_details(
    const json& info,
    const std::string& program,
    ErrorFile* file) {
  file->stack =
      demangle_all(name_frames(text_of(info, "py_callstack"), program));
  // The stack of a c10::Error begins with the message, as torchrun expects.
  if (file->stack.rfind(file->message, 0) == 0) {
    file->stack.erase(
        0, file->stack.find_first_not_of('\n', file->message.size()));
  }
  file->is_consequence = text_of(info, "consequence") == "true";
  file->activity = text_of(info, "activity");
  const std::string step = text_of(info, "step");
  if (!step.empty()) {
    file->step = std::strtoll(step.c_str(), nullptr, 10);
  }
  const std::string time = text_of(info, "timestamp_ns");
  if (!time.empty()) {
    file->time_ns = std::strtoll(time.c_str(), nullptr, 10);
  }
}

} // namespace

std::optional<ErrorFile> read_error_file(
    const std::string& path,
    const std::string& program) {
  // The rank may still change the file, or replace the file with a pipe.
  const FileDescriptor descriptor(
      open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  if (!descriptor || fstat(descriptor.get(), &status) != 0 ||
      !S_ISREG(status.st_mode) || status.st_size > kMaxSize) {
    return std::nullopt;
  }
  std::string text(static_cast<size_t>(status.st_size), '\0');
  const auto length = read(descriptor.get(), text.data(), text.size());
  text.resize(length > 0 ? static_cast<size_t>(length) : 0);
  const auto content = parse_bounded_json(text);
  if (!content || !content->is_object() || !content->contains("message")) {
    return std::nullopt;
  }
  ErrorFile file;
  file.time_ns = modification_time(status);
  const json& message = content->at("message");
  if (!message.is_object()) {
    file.message = text_of(*content, "message");
    return file;
  }
  file.message = text_of(message, "message");
  const auto info = message.find("extraInfo");
  if (info != message.end() && info->is_object()) {
    read_details(*info, program, &file);
  }
  return file;
}

bool tells_of_another(const std::string& text) {
  const auto has_any = [&](std::initializer_list<const char*> signs) {
    return std::any_of(signs.begin(), signs.end(), [&](const char* sign) {
      return text.find(sign) != std::string::npos;
    });
  };
  return has_any(
             {"Connection closed by peer",
              "remote process exited",
              "ncclRemoteError",
              "connectFullMesh failed",
              "Failed to recv, got 0 bytes",
              "store->get(", // NCCL's id, which a dead rank 0 did not store
              "Socket closed"}) ||
      // The program's own connections and pipes also end so.
      (has_any({"Connection reset by peer", "Broken pipe"}) &&
       has_any(
           {"/gloo/",
            "DistBackendError",
            "DistNetworkError",
            "SocketImpl", // c10d's store
            "mca_btl", // Open MPI
            "NCCL"})) ||
      // Of ddp's shared memory, if the program uses c10d directly.
      (has_any({"rank "}) && has_any({" (process "}) &&
       has_any({") has left the group", ") has ended"}));
}

} // namespace ddp
