#include <ddp/backends/mpi.h>

#include <ddp/internal/check.h>

#include <dlfcn.h>

#include <filesystem>
#include <system_error>

namespace ddp::backends::mpi {
namespace {

struct Loaded {
  const Library* library = nullptr;
  std::string reason;
  bool other_mpi = false;
};

std::string error_of_loader() {
  const char* text = dlerror();
  return text ? text : "unknown error";
}

std::string file_of(const void* address) {
  Dl_info info{};
  return dladdr(address, &info) && info.dli_fname ? info.dli_fname : "";
}

/// The folder of the library with this code, with links resolved and a slash.
std::string own_folder() {
  const auto path = file_of(reinterpret_cast<const void*>(&library));
  std::error_code error;
  const auto real = std::filesystem::canonical(path, error);
  return error ? "" : real.parent_path().string() + "/";
}

/// Loads the library with global symbols, which Open MPI's plugins need.
void* open(const std::string& path) {
  return dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
}

/// This library calls the program's MPI. If the library was built with another
/// MPI, the handles differ. Tools that intercept MPI calls do not replace the
/// PMPI names.
std::string other_mpi(void* handle) {
  const auto* used = dlsym(RTLD_DEFAULT, "PMPI_Init");
  const auto* own = dlsym(handle, "PMPI_Init");
  return used == own ? ""
                     : detail::format(
                           "the program uses the MPI in {}, but ddp was built "
                           "with the MPI in {}",
                           file_of(used),
                           file_of(own));
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
        detail::format(
            "{} belongs to ddp {}, but this is ddp {}",
            name,
            library->version,
            DDP_VERSION)};
  }
  const auto other = other_mpi(handle);
  if (!other.empty()) {
    return {nullptr, other, true};
  }
  return {library, ""};
}

const Loaded& loaded() {
  static const Loaded result = load();
  return result;
}

} // namespace

const Library& library() {
  DDP_CHECK_VALUE(
      !loaded().other_mpi,
      "{}. Build ddp with the program's MPI",
      loaded().reason);
  DDP_CHECK(
      loaded().library,
      "ddp's MPI library cannot be loaded: {}. Build ddp where MPI is "
      "installed (Debian: libopenmpi-dev)",
      loaded().reason);
  return *loaded().library;
}

std::string unavailable() {
  return loaded().reason;
}

} // namespace ddp::backends::mpi
