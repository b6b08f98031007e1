#pragma once

#include <ddp/reducer/core/gradient_hook.h>
#include <ddp/reducer/core/reduction_observer.h>
#include <ddp/reducer/core/synchronization.h>

#include <atomic>
#include <mutex>

namespace ddp::detail {

/// Replaces the reduction in a group of one: checks the gradients without
/// changing them. Throws the errors of a larger group, so that a program that
/// runs on one rank also runs on several ranks.
class LoneBackward final : public GradientListener {
 public:
  /// `looks_always` is whether to check all backward passes, not only the first
  /// two. All references must outlive this object.
  LoneBackward(
      const std::string& name,
      std::vector<ParameterState>& parameters,
      Synchronization& synchronization,
      ObserverList& observers,
      bool looks_always);
  LoneBackward(const LoneBackward&) = delete;
  LoneBackward& operator=(const LoneBackward&) = delete;
  ~LoneBackward() override;

  /// Same as `BackwardReducer::set_owner`.
  void set_owner(std::weak_ptr<void> owner) {
    owner_ = std::move(owner);
  }

  void on_gradient(size_t index, at::Tensor& gradient) override;
  /// Checks the accumulated gradients, unless the last backward pass did.
  void finish_backward();
  /// False after an exception, until the next backward pass begins, and after
  /// all checks.
  bool is_of_use() const override {
    return !failed_ && has_hooks();
  }

  /// Keeps the hooks, since an observer needs every backward pass.
  void stay() {
    stays_ = true;
  }
  /// Whether hooks are needed, for checks of more backward passes or for an
  /// observer.
  bool has_hooks() const {
    return looks() || stays_;
  }
  /// Whether a complete backward pass has been checked.
  bool has_looked() const {
    return to_look_ < kLooks;
  }

 private:
  static constexpr int kLooks = 2;

  bool looks() const {
    return to_look_ > 0 || looks_always_;
  }
  void open();
  void finish();
  void look();

  const std::string& name_;
  std::weak_ptr<void> owner_;
  std::mutex mutex_; // each GPU has a backward thread
  std::vector<ParameterState>& parameters_;
  Synchronization& sync_;
  ObserverList& observers_;
  bool looks_always_;
  bool stays_ = false;
  /// The number of backward passes left to check.
  int to_look_ = kLooks;
  /// Whether the hooks have been removed after the checks.
  bool hooks_removed_ = false;
  Reduction current_;
  bool open_ = false;
  std::atomic<bool> failed_{false};
};

} // namespace ddp::detail
