#pragma once

#include <ddp/ddp.h>

#include <memory>
#include <optional>
#include <utility>

namespace ddp::test {

/// A net with a Reducer, which is attached to the net or belongs to a wrapper.
template <typename Net>
class EitherWay {
 public:
  EitherWay(
      std::shared_ptr<Net> net,
      const ProcessGroup& group,
      bool wrapped,
      const ReducerOptions& options = {})
      : net_(std::move(net)) {
    if (wrapped) {
      wrapper_.emplace(net_, group, options);
    } else {
      attached_.emplace(net_, group, options);
    }
  }

  template <typename... Arguments>
  torch::Tensor forward(const Arguments&... arguments) {
    return wrapper_ ? (*wrapper_)->forward(arguments...)
                    : net_->forward(arguments...);
  }
  Reducer& reducer() {
    return wrapper_ ? (*wrapper_)->reducer() : *attached_;
  }
  Join join(const JoinOptions& options = {}) {
    return wrapper_ ? (*wrapper_)->join(options) : attached_->join(options);
  }
  Reducer::NoSyncGuard no_sync() {
    return wrapper_ ? (*wrapper_)->no_sync() : attached_->no_sync();
  }

 private:
  std::shared_ptr<Net> net_;
  std::optional<DistributedDataParallel<Net>> wrapper_;
  std::optional<Reducer> attached_;
};

} // namespace ddp::test
