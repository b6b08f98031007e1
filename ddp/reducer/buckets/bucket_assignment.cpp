#include <ddp/reducer/buckets/bucket_assignment.h>

#include <algorithm>
#include <utility>

namespace ddp {
namespace {

struct OpenBucket {
  at::ScalarType dtype;
  c10::Device device;
  BucketIndices indices;
  int64_t bytes = 0;
  size_t limit = 0;
};

OpenBucket& find_or_open(
    std::vector<OpenBucket>& open,
    const at::Tensor& tensor) {
  const auto found = std::find_if(open.begin(), open.end(), [&](auto& bucket) {
    return bucket.dtype == tensor.scalar_type() &&
        bucket.device == tensor.device();
  });
  if (found != open.end()) {
    return *found;
  }
  return open.emplace_back(
      OpenBucket{tensor.scalar_type(), tensor.device(), {}});
}

} // namespace

std::vector<BucketIndices> assign_buckets(
    const std::vector<at::Tensor>& tensors,
    const std::vector<int64_t>& limits,
    const std::vector<size_t>& order) {
  std::vector<BucketIndices> closed;
  std::vector<OpenBucket> open; // by first appearance: equal on all ranks
  for (const size_t index : order) {
    const auto& tensor = tensors[index];
    auto& bucket = find_or_open(open, tensor);
    bucket.indices.push_back(index);
    bucket.bytes += static_cast<int64_t>(tensor.nbytes());
    if (bucket.bytes >= limits[bucket.limit]) {
      closed.push_back(std::exchange(bucket.indices, {}));
      bucket.bytes = 0;
      bucket.limit = std::min(bucket.limit + 1, limits.size() - 1);
    }
  }
  for (auto& bucket : open) {
    if (!bucket.indices.empty()) {
      closed.push_back(std::move(bucket.indices));
    }
  }
  return closed;
}

} // namespace ddp
