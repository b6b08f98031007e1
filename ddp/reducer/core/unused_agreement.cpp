#include <ddp/reducer/core/unused_agreement.h>

#include <ddp/process_group/collective_wait.h>
#include <ddp/support/detached_task.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace ddp::detail {
namespace {

/// The bits of the store's integers, without the sign.
constexpr int64_t kBits = 63;

/// The number of bits of `largest`.
int64_t bit_width(int64_t largest) {
  int64_t bits = 0;
  for (; largest > 0; largest >>= 1) {
    ++bits;
  }
  return bits;
}

} // namespace

UnusedAgreement::UnusedAgreement(
    c10::intrusive_ptr<c10d::Store> store,
    int64_t size,
    std::chrono::milliseconds timeout,
    bool kept_together)
    : store_(std::move(store)),
      size_(size),
      timeout_(timeout),
      kept_together_(kept_together),
      bits_(bit_width(size) + 1),
      steps_per_key_(kBits / bits_) {}

bool UnusedAgreement::is_closed(int64_t counts) const {
  return (counts >> (shift_ + bits_ - 1) & 1) == 1;
}

bool UnusedAgreement::is_complete(int64_t counts) const {
  return (counts >> shift_ & ((int64_t{1} << bits_) - 1)) == size_;
}

/// Returns the counts once the count of this step is final; closes an
/// incomplete count if ranks do not wait for each other.
int64_t UnusedAgreement::read() const {
  while (true) {
    const auto counts = store_->add(key_, 0);
    if (kept_together_ || is_complete(counts) || is_closed(counts)) {
      return counts;
    }
    const auto closed = counts + (int64_t{1} << (shift_ + bits_ - 1));
    const auto text = std::to_string(closed);
    if (store_->compareSet(key_, std::to_string(counts), text) == text) {
      return closed;
    }
  }
}

void UnusedAgreement::add_to_counter(int64_t step) {
  if (size_ == 1) {
    return;
  }
  DDP_CHECK(
      store_,
      "some parameters were unused in this rank's backward pass, and the group "
      "has no store through which ranks can agree on the unused parameters");
  key_ = "unused/" + std::to_string(step / steps_per_key_);
  shift_ = step % steps_per_key_ * bits_;
  const auto one = int64_t{1} << shift_;
  counts_ = answered_within(
      timeout_,
      [store = store_, key = key_, one] { return store->add(key, one); },
      [this] { check_nodes(size_); });
  if (counts_ == one) {
    own_keys_.push_back(key_);
  }
}

bool UnusedAgreement::concerns_all() {
  if (size_ == 1) {
    return true;
  }
  const bool is_last = is_complete(counts_);
  const auto old = old_keys();
  if (is_last && old.empty()) {
    return true;
  }
  const auto ask = [self = *this, old, is_last] {
    for (const auto& key : old) {
      self.store_->deleteKey(key);
    }
    return is_last || self.is_complete(self.read());
  };
  try {
    return answered_within(timeout_, ask, [this] { check_nodes(size_); });
  } catch (const c10::DistNetworkError&) {
    // The store ended with its process. The rank there has completed this step
    // without the all-reduce of ranks that all have unused parameters.
    return is_last;
  }
}

/// Removes and returns the keys of own_keys_ that all ranks have read.
std::vector<std::string> UnusedAgreement::old_keys() {
  auto old = std::exchange(own_keys_, {});
  if (!old.empty() && old.back() == key_) {
    old.pop_back();
    own_keys_.push_back(key_);
  }
  return old;
}

} // namespace ddp::detail
