#pragma once

#include <common/heartbeat_page.h>
#include <ddp/failure/heartbeat.h>
#include <ddp/internal/check.h>
#include <ddp/reducer/core/reduction_observer.h>

namespace ddp::detail {

/// Publishes a Reducer's progress for ddprun and for reports of this rank's
/// waits.
class Progress final : public ReductionObserver {
 public:
  explicit Progress(const BucketStorage& buckets)
      : buckets_(buckets), number_(++made) {
    ++living;
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() override {
    --living;
  }

  /// Sets the text that distinguishes the Reducer from others.
  void name(const std::string& first_parameter, size_t parameters) {
    text_ = detail::format(
        "{}{}, of '{}' ({}{}",
        kOfReducer,
        number_,
        first_parameter,
        parameters,
        parameters == 1 ? " parameter)" : " parameters)");
  }

  void on_begin(const Reduction& reduction) override {
    step_ = reduction.step;
  }
  void on_launch(const Bucket& bucket) override {
    heartbeat::began_bucket(bucket.content.index + 1, buckets_.size(), step_);
  }
  /// If this process has several Reducers, adds text such as " of Reducer 2, of
  /// 'conv1.weight' (12 parameters)".
  void on_wait(const Bucket& bucket) override {
    heartbeat::began_bucket(
        bucket.content.index + 1,
        buckets_.size(),
        step_,
        living > 1 ? std::string_view(text_) : std::string_view());
  }
  void on_end(const Reduction& /*reduction*/) override {
    heartbeat::stepped(step_);
  }

 private:
  inline static std::atomic<int> made{0};
  inline static std::atomic<int> living{0};
  const BucketStorage& buckets_;
  int number_;
  std::string text_;
  int64_t step_ = 0;
};

} // namespace ddp::detail
