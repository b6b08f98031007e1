#include <ddp/samplers/data_loader_options.h>

#include <ddp/internal/check.h>

#include <cstdint>
#include <limits>

namespace ddp::detail {

DataLoaderOptions checked(DataLoaderOptions options) {
  const auto check = [](const char* name, size_t value, size_t most) {
    DDP_CHECK_VALUE(
        value <= most,
        "data loader: {} is {}, more than {}",
        name,
        static_cast<int64_t>(value), // the argument may have been negative
        most);
  };
  check("batch_size", options.batch_size(), std::numeric_limits<int>::max());
  check("workers", options.workers(), 1024);
  check("max_jobs", options.max_jobs().value_or(0), 1 << 20);
  DDP_CHECK_VALUE(
      options.batch_size() > 0,
      "data loader: batch_size is 0, expected 1 or more");
  return options;
}

size_t checked_size(std::optional<size_t> size) {
  DDP_CHECK_VALUE(
      size, "data loader: a dataset without a size needs a sampler");
  return *size;
}

} // namespace ddp::detail
