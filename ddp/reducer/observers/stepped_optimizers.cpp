#include <ddp/reducer/observers/stepped_optimizers.h>

#include <ddp/internal/check.h>

#include <mutex>
#include <set>

namespace ddp::detail {
namespace {

std::mutex mutex;
std::multiset<const torch::optim::Optimizer*> stepped_optimizers;

} // namespace

void set_stepped_in_backward(
    const torch::optim::Optimizer& optimizer,
    bool stepped) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (stepped) {
    stepped_optimizers.insert(&optimizer);
    return;
  }
  const auto found = stepped_optimizers.find(&optimizer);
  if (found != stepped_optimizers.end()) {
    stepped_optimizers.erase(found);
  }
}

void check_not_stepped_in_backward(
    const torch::optim::Optimizer& optimizer,
    const char* operation) {
  const std::lock_guard<std::mutex> lock(mutex);
  DDP_CHECK(
      stepped_optimizers.count(&optimizer) == 0,
      "{}: Reducer::step_in_backward has this optimizer step at the end of "
      "backward, before gradients can be looked at: leave one of the two out",
      operation);
}

} // namespace ddp::detail
