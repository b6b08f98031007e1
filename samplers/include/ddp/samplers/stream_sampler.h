#pragma once

#include <ddp/internal/export.h>
#include <ddp/samplers/sharded_sampler.h>
#include <torch/arg.h>

namespace ddp {

/// How a `StreamSampler` divides a stream. Every rank has to give the same.
struct StreamSamplerOptions {
  /// Samples in an epoch, over all ranks; an epoch without it has no end.
  TORCH_ARG(std::optional<size_t>, epoch_size) = std::nullopt;
};

/// Deals a stream of unknown or endless length to the ranks: rank `r` of `n`
/// draws the stream's samples r, r + n, r + 2n, ...
///
/// With an `epoch_size`, epoch `e` begins at sample e * epoch_size, where the
/// one before it ended, so that nothing comes twice; what the ranks do not
/// divide of it is left out, so that all draw equally many. Without one, each
/// epoch goes through the stream from its beginning, and `size()` is a number
/// that no loop reaches. `state_dict` says how far all ranks are.
///
/// A stream that ends is a LibTorch `StatefulDataset` with the sampler inside,
/// which finds the end, on some ranks a batch before the others. So ranks agree
/// in each step whether to take it:
///
/// ```
/// auto more = torch::empty({1}, torch::device(group.device()));
/// auto batch = loader->begin();
/// for (;; ++batch) {
///   more.fill_(batch != loader->end() ? 1 : 0);
///   group.all_reduce(more, ddp::ReduceOp::kMin);
///   if (more.item<float>() == 0) break;
///   ... *batch ...
/// }
/// while (batch != loader->end()) ++batch;  // a loader begins anew when empty
/// ```
class DDP_API StreamSampler : public ShardedSampler {
 public:
  /// The share of this process in `group`.
  explicit StreamSampler(
      const ProcessGroup& group,
      const StreamSamplerOptions& options = {});

  /// The share of `rank` among `num_replicas`, without a group. Throws
  /// `c10::ValueError` unless 0 <= rank < num_replicas and epoch_size > 0.
  StreamSampler(
      int64_t num_replicas,
      int64_t rank,
      const StreamSamplerOptions& options = {});

 private:
  size_t first_index(size_t length, int64_t epoch) const override;

  StreamSamplerOptions options_;
};

} // namespace ddp
