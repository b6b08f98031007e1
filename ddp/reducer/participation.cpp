#include <ddp/reducer/reducer_impl.h>

#include <ddp/internal/check.h>
#include <ddp/process_group/agreement/agreement.h>
#include <ddp/process_group/collective_wait.h>
#include <ddp/reducer/core/bucket_layout.h>
#include <ddp/support/own_thread.h>

#include <algorithm>
#include <sstream>

// Which parameters take part in a backward: what is unfrozen, unused or left
// out, and what ranks compare about it.

namespace ddp {
namespace {

constexpr auto kAnswerTime = std::chrono::seconds(1);

/// The store's key for what a rank compares in a backward: the step, the rank,
/// the names, and on another line what they are.
constexpr const char* kCompared = "compared";

} // namespace

/// Remembers what is unfrozen now and may be frozen when gradients are averaged
/// next: all ranks then take it in, also those that had no gradient for it.
void ReducerImpl::find_thawed() {
  if (managed_ == parameters_.size()) {
    return;
  }
  for (auto& parameter : parameters_) {
    if (!parameter.managed && parameter.tensor.requires_grad()) {
      parameter.thawed = true;
    }
  }
}

/// Takes in parameters that were frozen at construction and are not any more.
void ReducerImpl::adopt_thawed() {
  if (managed_ == parameters_.size()) {
    return;
  }
  find_thawed();
  std::vector<size_t> thawed;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& parameter = parameters_[i];
    if (!parameter.managed && (parameter.thawed || parameter.used)) {
      thawed.push_back(i);
    }
  }
  if (thawed.empty()) {
    return;
  }
  compare_in_backward(
      "the parameters that were unfrozen since the last backward", thawed);
  manage(thawed);
  recorder_.extend(buckets_);
  if (trial_) {
    end_trial(); // with the buckets of the moment
  }
}

/// Averages these parameters from now on.
void ReducerImpl::manage(const std::vector<size_t>& indices) {
  std::vector<size_t> dense;
  for (const size_t index : indices) {
    parameters_[index].managed = true;
    ++managed_;
    ++pending_;
    if (!parameters_[index].sparse) {
      dense.push_back(index);
    }
  }
  install(initial_buckets(tensors(), dense, options_));
  orders_.push_back(std::move(dense));
}

void ReducerImpl::find_absent() {
  if (pending_ == 0) {
    return;
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    auto& parameter = parameters_[i];
    // It may have come while gradients accumulated, and been dropped.
    parameter.used = parameter.used && parameter.tensor.grad().defined();
    if (!parameter.managed || parameter.share != Share::kPending ||
        parameter.used) {
      continue;
    }
    DDP_CHECK(
        detail::gradient_listener(parameter.tensor) == this,
        "the hook on {} is gone, so its gradients are not averaged: construct "
        "the Reducer after whatever replaces post-accumulate-grad hooks",
        parameter.name);
    absent_.push_back(i);
  }
}

/// What gets no gradient may be of a layer that was replaced: then the module
/// has a parameter that nobody averages.
void ReducerImpl::check_belonging() {
  const bool is_there = current_ && !(owned_ && owned_->expired());
  if (!is_there || absent_ == absent_before_) {
    return; // of a module that is gone others may have the layers
  }
  absent_before_ = absent_;
  std::unordered_set<const c10::TensorImpl*> now;
  for (const auto& tensor : current_().tensors) {
    now.insert(tensor.unsafeGetTensorImpl());
  }
  size_t known = 0;
  for (const auto& parameter : parameters_) {
    known += now.count(parameter.tensor.unsafeGetTensorImpl());
  }
  if (known == now.size()) {
    return; // layers may have been left out, but none is new
  }
  for (const size_t index : absent_) {
    const auto& parameter = parameters_[index];
    DDP_CHECK(
        now.count(parameter.tensor.unsafeGetTensorImpl()) > 0,
        "{} has no gradient, and no longer belongs to the module that the "
        "Reducer was given: construct the Reducer after layers are replaced, "
        "and a new one where they are replaced later",
        parameter.name);
  }
}

/// Of buckets that this rank used nothing of, the parameters count as done.
void ReducerImpl::skip_unused_buckets() {
  std::vector<size_t> skipped;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    auto& bucket = buckets_[i];
    const auto& indices = bucket.indices;
    bucket.skipped =
        std::none_of(indices.begin(), indices.end(), [this](size_t index) {
          return parameters_[index].used;
        });
    if (bucket.skipped) {
      bucket.pending = 0;
      skipped.push_back(i);
    }
  }
  const auto is_skipped = [this](size_t index) {
    const auto bucket = parameters_[index].bucket;
    return bucket != kNoBucket && buckets_[bucket].skipped;
  };
  absent_.erase(
      std::remove_if(absent_.begin(), absent_.end(), is_skipped),
      absent_.end());
  if (std::exchange(skipped_, skipped) != skipped) {
    compare_skipped();
  }
}

/// Ranks that skip different buckets would average unrelated gradients.
void ReducerImpl::compare_skipped() {
  std::vector<size_t> unused;
  for (const size_t bucket : skipped_) {
    const auto& indices = buckets_[bucket].indices;
    unused.insert(unused.end(), indices.begin(), indices.end());
  }
  compare_in_backward(
      "the unused parameters that skip_all_reduce_unused_params leaves out",
      unused);
}

/// Waits for the others to come to the same point of this backward with the
/// same parameters.
void ReducerImpl::compare_in_backward(
    const std::string& noun,
    const std::vector<size_t>& indices) {
  std::string names = indices.empty() ? "nothing" : "";
  for (const size_t index : indices) {
    names += (names.empty() ? "" : " ") + parameters_[index].name;
  }
  compared_step_ = step_;
  if (store_) {
    detail::answered_within(
        group_.timeout(),
        [store = store_,
         text = c10::str(step_, " ", group_.rank(), " ", names, "\n", noun)] {
          store->set(kCompared, text);
        });
  }
  detail::agree(store_, group_, c10::str(noun, "/", step_), names, noun);
}

/// Ranks that compare something wait for the others to come to the same point
/// of this backward or of the one before. Throws on one that came without.
void ReducerImpl::check_compared_elsewhere() {
  if (!store_ ||
      (managed_ == parameters_.size() &&
       !options_.skip_all_reduce_unused_params())) {
    return;
  }
  if (!compared_.valid()) {
    compared_ = detail::on_own_thread([store = store_]() -> std::string {
      return store->check({kCompared}) ? store->get_to_str(kCompared) : "";
    });
  }
  if (compared_.wait_for(kAnswerTime) != std::future_status::ready) {
    return; // the store's process is stopped, say: the wait has a timeout
  }
  std::istringstream text(compared_.get());
  int64_t step = 0;
  int64_t rank = 0;
  std::string names;
  text >> step >> rank >> std::ws;
  std::getline(text, names);
  std::string noun;
  std::getline(text, noun);
  if (step > compared_step_ && step <= step_) {
    throw detail::WaitFailure{detail::format(
        " because {} differ between ranks: rank {} has {}, unlike rank {}. "
        "They must be the same on all ranks in the same backward",
        noun,
        rank,
        names,
        group_.rank())};
  }
}

} // namespace ddp
