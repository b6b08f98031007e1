#include <ddp/reducer/core/backward_comparison.h>

#include <ddp/internal/check.h>
#include <ddp/process_group/agreement/agreement.h>
#include <ddp/process_group/agreement/same_on_all.h>
#include <ddp/process_group/collective_wait.h>
#include <ddp/support/detached_task.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <locale>
#include <sstream>

namespace ddp::detail {
namespace {

constexpr auto kAnswerTime = std::chrono::seconds(1);

/// The store's key of the last comparison: the step, the rank and the names,
/// and on a second line the noun.
constexpr const char* kCompared = "compared";

} // namespace

BackwardComparison::BackwardComparison(
    c10::intrusive_ptr<c10d::Store> store,
    const ProcessGroup& group)
    : store_(std::move(store)), group_(group) {}

void BackwardComparison::compare(
    int64_t step,
    const std::string& noun,
    const std::vector<ParameterState>& parameters,
    const std::vector<size_t>& indices) {
  std::string names = indices.empty() ? "nothing" : "";
  for (const size_t index : indices) {
    names += (names.empty() ? "" : " ") + parameters[index].name();
  }
  step_ = step;
  if (store_) {
    answered_within(
        group_.timeout(),
        [store = store_,
         text = std::to_string(step) + " " + std::to_string(group_.rank()) +
             " " + names + "\n" + noun] { store->set(kCompared, text); });
  }
  if (waited_for_) {
    check_same_on_all(group_, c10::str(noun, " in step ", step), names);
  } else {
    agree(store_, group_, c10::str(noun, "/", step), names, noun);
  }
}

void BackwardComparison::on_long_wait() {
  if (!store_ || !expects_others_) {
    return;
  }
  if (!answer_.valid()) {
    answer_ = run_detached([store = store_]() -> std::string {
      return store->check({kCompared}) ? store->get_to_str(kCompared) : "";
    });
  }
  if (answer_.wait_for(kAnswerTime) != std::future_status::ready) {
    return; // the store does not respond; the wait itself has a timeout
  }
  std::istringstream text(answer_.get());
  text.imbue(std::locale::classic()); // others group digits
  int64_t compared = 0;
  int64_t rank = 0;
  std::string names;
  text >> compared >> rank >> std::ws;
  std::getline(text, names);
  std::string noun;
  std::getline(text, noun);
  if (compared > step_ && compared <= current_) {
    throw WaitFailure{format(
        " because {} differ between ranks: rank {} has {}, unlike rank {}; "
        "they must be the same on all ranks in the same backward pass",
        noun,
        rank,
        names,
        group_.rank())};
  }
}

} // namespace ddp::detail
