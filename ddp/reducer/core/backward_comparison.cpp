#include <ddp/reducer/core/backward_comparison.h>

#include <ddp/internal/check.h>
#include <ddp/process_group.h>
#include <ddp/process_group/agreement/store_gather.h>
#include <ddp/process_group/collective_wait.h>
#include <ddp/support/detached_task.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <sstream>

namespace ddp::detail {
namespace {

constexpr std::chrono::seconds kClueTime(5);

std::string to_text(const StoreGather::Bytes& bytes) {
  return {bytes.begin(), bytes.end()};
}

/// Empty if all ranks have the same.
std::string difference(
    const std::vector<StoreGather::Part>& parts,
    const std::string& what) {
  const auto& first = parts.front();
  for (const auto& part : parts) {
    if (part.content != first.content) {
      return detail::format(
          "{} differ between ranks: rank {} has {}, rank {} has {}. They must "
          "be the same on all ranks in the same backward",
          what,
          first.rank,
          to_text(first.content),
          part.rank,
          to_text(part.content));
    }
  }
  return "";
}

std::string missing_ranks(StoreGather gather, int64_t size) {
  const auto parts = gather.parts();
  std::string text;
  for (int64_t rank = 0; rank < size; ++rank) {
    const bool came = std::any_of(
        parts.begin(), parts.end(), [rank](const StoreGather::Part& part) {
          return part.rank == rank;
        });
    if (!came) {
      text += c10::str("; rank ", rank, " of ", size, " has not arrived");
    }
  }
  return text;
}

/// Checks over `store` that all ranks call it with the same `text`, which also
/// detects missing ranks. Throws `c10::Error` that names these ranks, or both
/// texts, after at most the group's timeout. Collective.
void agree(
    const c10::intrusive_ptr<c10d::Store>& store,
    const ProcessGroup& group,
    const std::string& key,
    const std::string& text,
    const std::string& what) {
  if (group.size() == 1) {
    return;
  }
  StoreGather gather(store, key);
  const StoreGather::Part own{group.rank(), {text.begin(), text.end()}};
  answered_within(
      group.timeout(), [gather, own, what, size = group.size()]() mutable {
        if (const auto all = gather.add(own, size)) {
          const auto verdict = difference(*all, what);
          gather.decide({verdict.begin(), verdict.end()});
        }
      });
  const auto operation = c10::str("comparing ", what, " (here ", text, ")");
  wait_for(
      group, store, gather.verdict_key(), operation.c_str(), [&gather, &group] {
        return answered_within(kClueTime, [gather, size = group.size()] {
          return missing_ranks(gather, size);
        });
      });
  const auto verdict = to_text(answered_within(
      group.timeout(), [gather]() mutable { return gather.verdict(); }));
  DDP_CHECK(verdict.empty(), verdict);
}

constexpr auto kAnswerTime = std::chrono::seconds(1);

/// The store's key for what a rank compares: the step, the rank, the names, and
/// on another line what they are.
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
    names += (names.empty() ? "" : " ") + parameters[index].name;
  }
  step_ = step;
  if (store_) {
    answered_within(
        group_.timeout(),
        [store = store_,
         text = c10::str(step, " ", group_.rank(), " ", names, "\n", noun)] {
          store->set(kCompared, text);
        });
  }
  agree(store_, group_, c10::str(noun, "/", step), names, noun);
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
    return; // the store's process is stopped, say: the wait has a timeout
  }
  std::istringstream text(answer_.get());
  int64_t compared = 0;
  int64_t rank = 0;
  std::string names;
  text >> compared >> rank >> std::ws;
  std::getline(text, names);
  std::string noun;
  std::getline(text, noun);
  if (compared > step_ && compared <= current_) {
    throw WaitFailure{format(
        " because {} differ between ranks: rank {} has {}, unlike rank {}. "
        "They must be the same on all ranks in the same backward",
        noun,
        rank,
        names,
        group_.rank())};
  }
}

} // namespace ddp::detail
