#include <ddp/reducer/core/end_of_backward.h>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>
#include <utility>

namespace ddp::detail {
namespace {

namespace autograd = torch::autograd;

/// Queues the callback again, once, after the node of the outer backward pass
/// in which the inner one ran. A hook cannot remove itself while hooks run, so
/// it stays and does nothing.
class HandOn : public autograd::FunctionPostHook {
 public:
  explicit HandOn(std::shared_ptr<EndOfBackward> end) : end_(std::move(end)) {}

  autograd::variable_list operator()(
      const autograd::variable_list& outputs,
      const autograd::variable_list& /*inputs*/) override {
    if (end_) {
      EndOfBackward::queue(std::exchange(end_, nullptr));
    }
    return outputs;
  }

 private:
  std::shared_ptr<EndOfBackward> end_;
};

} // namespace

void EndOfBackward::call(
    std::string name,
    std::weak_ptr<void> owner,
    std::function<void()> reached,
    std::function<void()> abandoned) {
  queue(std::make_shared<EndOfBackward>(
      std::move(name),
      std::move(owner),
      std::move(reached),
      std::move(abandoned)));
}

EndOfBackward::EndOfBackward(
    std::string name,
    std::weak_ptr<void> owner,
    std::function<void()> reached,
    std::function<void()> abandoned)
    : name_(std::move(name)),
      owner_(std::move(owner)),
      reached_(std::move(reached)),
      abandoned_(std::move(abandoned)) {}

EndOfBackward::~EndOfBackward() {
  const auto alive = owner_.lock();
  if (reached_ && alive) {
    abandoned_();
  }
}

void EndOfBackward::queue(std::shared_ptr<EndOfBackward> self) {
  autograd::Engine::get_default_engine().queue_callback(
      [self = std::move(self)] { arrive(self); });
}

void EndOfBackward::arrive(const std::shared_ptr<EndOfBackward>& self) {
  if (const auto outer = autograd::get_current_node()) {
    outer->add_post_hook(std::make_unique<HandOn>(self));
    return;
  }
  // Owned by the engine's callback: destroyed with it if another one throws.
  thread_local std::weak_ptr<Arrived> current;
  auto arrived = current.lock();
  if (!arrived) {
    arrived = std::make_shared<Arrived>();
    current = arrived;
    // Runs after the callbacks that add the other objects.
    autograd::Engine::get_default_engine().queue_callback([arrived] {
      current.reset(); // later arrivals get another callback
      call_all(*arrived);
    });
  }
  arrived->push_back(self);
}

void EndOfBackward::call_all(Arrived& arrived) {
  std::stable_sort(
      arrived.begin(), arrived.end(), [](const auto& a, const auto& b) {
        return a->name_ < b->name_;
      });
  for (const auto& end : arrived) {
    const auto reached = std::exchange(end->reached_, nullptr);
    if (const auto alive = end->owner_.lock()) {
      reached();
    }
  }
}

} // namespace ddp::detail
