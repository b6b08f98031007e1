#include <ddp/backends/mpi.h>

#include <c10/util/Exception.h>

#include <dlfcn.h>

namespace ddp::backends::mpi {
namespace {

struct Loaded {
  const Library* library = nullptr;
  std::string reason;
};

std::string error_of_loader() {
  const char* text = dlerror();
  return text ? text : "unknown error";
}

/// The folder of the library that this code is in, with a slash.
std::string own_folder() {
  Dl_info info{};
  const auto* address = reinterpret_cast<const void*>(&library);
  if (!dladdr(address, &info) || !info.dli_fname) {
    return "";
  }
  const std::string path = info.dli_fname;
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

/// Its symbols are for all: Open MPI's plugins look for MPI's there.
void* open(const std::string& path) {
  return dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
}

Loaded load() {
  const std::string name = "libddp_mpi.so." DDP_SOVERSION;
  auto* handle = open(own_folder() + name);
  Loaded loaded{nullptr, handle ? "" : error_of_loader()};
  handle = handle ? handle : open(name);
  if (!handle) {
    return loaded;
  }
  const auto entry = reinterpret_cast<Entry>(dlsym(handle, kEntry));
  if (!entry) {
    return {nullptr, error_of_loader()};
  }
  const auto* library = entry();
  if (std::string(library->version) != DDP_VERSION) {
    return {
        nullptr,
        c10::str(
            name,
            " belongs to ddp ",
            library->version,
            ", this is ddp ",
            DDP_VERSION)};
  }
  return {library, ""};
}

const Loaded& loaded() {
  static const Loaded result = load();
  return result;
}

} // namespace

const Library& library() {
  TORCH_CHECK(
      loaded().library,
      "ddp's MPI library cannot be loaded: ",
      loaded().reason,
      ". Build ddp where MPI is installed (Debian: libopenmpi-dev)");
  return *loaded().library;
}

std::string unavailable() {
  return loaded().reason;
}

} // namespace ddp::backends::mpi
