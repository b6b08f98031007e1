#include <ddp/environment/pmix.h>

#include <c10/util/Exception.h>

namespace ddp::detail {

std::optional<PmixJob> pmix_job() {
  return std::nullopt;
}

std::string pmix_unavailable() {
  return "ddp was built without PMIx";
}

std::string pmix_broadcast(
    const std::string& /*text*/,
    std::chrono::milliseconds /*timeout*/) {
  C10_THROW_ERROR(DistNetworkError, pmix_unavailable());
}

} // namespace ddp::detail
