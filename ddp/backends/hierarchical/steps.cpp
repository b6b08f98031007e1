#include <ddp/backends/hierarchical/steps.h>

#include <algorithm>

namespace ddp::backends::hierarchical {

int64_t longest(const std::vector<at::Tensor>& tensors) {
  int64_t length = 0;
  for (const auto& tensor : tensors) {
    length = std::max(length, tensor.numel());
  }
  return length;
}

Steps::Steps(
    const std::vector<std::string>& hosts,
    int rank,
    const SubBackends& sub_backends)
    : intra_node(sub_backends.intra_node, "within the host", broken_off_),
      inter_node(sub_backends.inter_node, "between hosts", broken_off_),
      flat(sub_backends.flat, "among all ranks", broken_off_),
      placement_(hosts),
      rank_(rank),
      size_(static_cast<int>(hosts.size())),
      host_(placement_.host[rank]),
      place_(placement_.place[rank]) {}

void Steps::break_off() {
  if (!broken_off_.exchange(true)) {
    // An abort may also notify the other ranks.
    for_parts(&c10d::Backend::abort);
  }
}

at::Tensor Steps::row_of(const at::Tensor& rows, int rank, int64_t length)
    const {
  return rows[placement_.host[rank]][placement_.place[rank]].narrow(
      0, 0, length);
}

} // namespace ddp::backends::hierarchical
