#include <ddp/reducer/buckets/bucket_layout.h>

#include <ddp/internal/check.h>

#include <algorithm>
#include <limits>

// The rules are those of Python's DistributedDataParallel, since the layout
// determines the order of additions, and thus the last bits of the sums.

namespace ddp {
namespace {

constexpr double kMiB = 1 << 20;
constexpr double kDefaultCapMb = 25;
constexpr double kDefaultFirstCapMb = 1;

std::vector<int64_t> bytes(const std::vector<double>& mebibytes) {
  std::vector<int64_t> result;
  for (const double cap : mebibytes) {
    constexpr auto kMost = std::numeric_limits<int64_t>::max();
    result.push_back(
        cap * kMiB < static_cast<double>(kMost)
            ? static_cast<int64_t>(cap * kMiB)
            : kMost);
  }
  return result;
}

double first_cap(const ReducerOptions& options) {
  return options.first_bucket_cap_mb().value_or(
      options.bucket_cap_mb().value_or(kDefaultFirstCapMb));
}

double cap(const ReducerOptions& options) {
  return options.bucket_cap_mb().value_or(kDefaultCapMb);
}

std::vector<int64_t> initial_limits(const ReducerOptions& options) {
  if (!options.bucket_cap_mb_list().empty()) {
    return bytes(options.bucket_cap_mb_list());
  }
  if (options.find_unused_parameters() && !options.static_graph()) {
    return bytes({first_cap(options), cap(options)});
  }
  return {std::numeric_limits<int64_t>::max()};
}

} // namespace

std::vector<BucketIndices> initial_buckets(
    const std::vector<at::Tensor>& tensors,
    const std::vector<size_t>& indices,
    const ReducerOptions& options) {
  auto buckets = assign_buckets(tensors, initial_limits(options), indices);
  // Gradients arrive in the reverse order of registration.
  std::sort(buckets.begin(), buckets.end(), [](auto& a, auto& b) {
    return *std::min_element(a.begin(), a.end()) >
        *std::min_element(b.begin(), b.end());
  });
  return buckets;
}

std::vector<BucketIndices> rebuilt_buckets(
    const std::vector<at::Tensor>& tensors,
    const std::vector<size_t>& order,
    const ReducerOptions& options) {
  const auto limits = options.bucket_cap_mb_list().empty()
      ? bytes({first_cap(options), cap(options)})
      : bytes(options.bucket_cap_mb_list());
  return assign_buckets(tensors, limits, order);
}

std::optional<int64_t> rebuilds_after(const ReducerOptions& options) {
  if (options.static_graph()) {
    return 2;
  }
  return options.find_unused_parameters() ? std::nullopt
                                          : std::optional<int64_t>(1);
}

void check_caps(const ReducerOptions& options) {
  const auto check = [](const char* name, double cap) {
    DDP_CHECK_VALUE(cap > 0, "{} must be above 0, but is {}", name, cap);
  };
  check("bucket_cap_mb", cap(options));
  check("first_bucket_cap_mb", first_cap(options));
  for (const double cap : options.bucket_cap_mb_list()) {
    check("bucket_cap_mb_list: a cap", cap);
  }
}

} // namespace ddp
