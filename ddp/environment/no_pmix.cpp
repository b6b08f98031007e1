#include <ddp/environment/pmix.h>

#include <ddp/internal/check.h>

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
  DDP_THROW(DistNetworkError, pmix_unavailable());
}

} // namespace ddp::detail
