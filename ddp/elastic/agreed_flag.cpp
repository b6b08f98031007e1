#include <ddp/elastic/agreed_flag.h>

#include <ATen/ATen.h>

namespace ddp::detail {
namespace {

constexpr std::chrono::milliseconds kLastWait{1000};

} // namespace

AgreedFlag::AgreedFlag(const ProcessGroup& group, const char* operation)
    : group_(group), operation_(operation), flag_(at::zeros({1}, at::kInt)) {}

AgreedFlag::~AgreedFlag() {
  if (pending_ && !pending_->work->isCompleted()) {
    ProcessGroupImpl::of(group_).abandoned = true;
  }
}

bool AgreedFlag::exchange(bool own) {
  if (group_.size() == 1) {
    return own;
  }
  const bool raised = heard();
  if (!raised) {
    tell(own);
  }
  return raised;
}

void AgreedFlag::finish() noexcept {
  try {
    if (pending_) {
      pending_->work->wait(kLastWait);
    }
  } catch (const std::exception&) { // the result is not needed
  }
}

bool AgreedFlag::heard() {
  if (!pending_) {
    return false;
  }
  const auto collective = *pending_;
  pending_.reset();
  auto& impl = ProcessGroupImpl::of(group_);
  guarded(impl, operation_, [&] { wait(impl, collective); });
  return *flag_.const_data_ptr<int>() != 0;
}

void AgreedFlag::tell(bool own) {
  *flag_.mutable_data_ptr<int>() = own ? 1 : 0;
  auto& impl = ProcessGroupImpl::of(group_);
  guarded(impl, operation_, [&] {
    pending_ = start(impl, flag_, [&] {
      std::vector<at::Tensor> tensors{flag_};
      c10d::AllreduceOptions options;
      options.reduceOp = c10d::ReduceOp::MAX;
      return impl.group->allreduce(tensors, options);
    });
  });
}

} // namespace ddp::detail
