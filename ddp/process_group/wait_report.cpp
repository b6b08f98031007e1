#include <ddp/process_group/wait_report.h>

#include <common/heartbeat_page.h>
#include <common/host_name.h>
#include <ddp/failure/heartbeat.h>
#include <ddp/process_group/wait_notice.h>

#include <algorithm>
#include <sstream>

namespace ddp::detail {
namespace {

constexpr size_t kMaxReasons = 3;

constexpr const char* kBackwardRemedy =
    ". A rank takes part by a backward that reaches a parameter of the "
    "Reducer, "
    "or by finish_backward()";
constexpr const char* kCallRemedy =
    ". A call that one rank makes, such as save_checkpoint, all ranks make";
constexpr const char* kBatchesRemedy =
    ". Have all ranks equally many batches? A DistributedSampler sees to that, "
    "drop_last leaves out what is over, and Reducer::join() lets ranks go on "
    "without";

constexpr const char* kReducersRemedy =
    ". Where a program has several Reducers, all ranks run the backwards of "
    "all of them, equally often and in the same order";

bool is_backward(const std::string& call) {
  return call.rfind("bucket ", 0) == 0;
}

/// Whose bucket it is, where there are several Reducers.
std::string reducer_of(const std::string& call) {
  return call.substr(std::min(call.find(kOfReducer), call.size()));
}

/// What helps where one rank is in a backward and another in `call`, which is
/// empty where that is in none.
std::string remedy(const std::string& call) {
  return c10::str(call.empty() ? kBackwardRemedy : kCallRemedy, kBatchesRemedy);
}

/// The same for two calls.
std::string remedy(const std::string& one, const std::string& other) {
  if (is_backward(one) && is_backward(other)) {
    return reducer_of(one) == reducer_of(other) ? "" : kReducersRemedy;
  }
  if (is_backward(one) || is_backward(other)) {
    return remedy(is_backward(one) ? other : one);
  }
  return one.rfind("init_process_group", 0) == 0 ? "" : kCallRemedy;
}

} // namespace

std::string this_rank(const ProcessGroupImpl& group) {
  return c10::str(
      "rank ", group.rank, " of ", group.size, " on host ", host_name());
}

std::string describe(const std::vector<Failure>& failures) {
  auto first = failures;
  first.erase(
      std::remove_if(
          first.begin(),
          first.end(),
          [](const Failure& failure) {
            return failure.kind == Failure::Kind::kConsequence;
          }),
      first.end());
  if (first.empty()) {
    first = {failures.front()};
  }
  std::ostringstream text;
  for (size_t i = 0; i < std::min(first.size(), kMaxReasons); ++i) {
    text << (i ? "; " : "") << "rank " << first[i].rank << " of "
         << first[i].size << " on host " << first[i].host
         << " failed: " << first[i].text;
  }
  if (first.size() > kMaxReasons) {
    text << "; and " << first.size() - kMaxReasons << " more ranks failed";
  }
  return text.str();
}

std::string own_call() {
  char memory[HeartbeatPage::kActivitySize];
  heartbeat::copy_activity(memory, sizeof(memory));
  const std::string call = memory;
  return call.rfind("after ", 0) == 0 ? "a wait " + call : call;
}

std::string failed_operation(
    const ProcessGroupImpl& group,
    const char* operation) {
  char memory[HeartbeatPage::kActivitySize];
  heartbeat::copy_caller(memory, sizeof(memory));
  std::string caller = memory;
  if (caller.empty() && is_backward(own_call())) {
    caller = own_call();
  }
  return c10::str(
      caller,
      caller.empty() ? "" : ": ",
      operation,
      " over ",
      group.backend,
      " failed");
}

std::string own_remedy() {
  return remedy(own_call(), "");
}

std::string absent_ranks(const ProcessGroupImpl& group, int64_t number) {
  std::ostringstream text;
  const auto call = own_call();
  std::string help;
  for (const auto& other : group.board->elsewhere(group.scope, number, call)) {
    help = help.empty() ? remedy(call, other.call) : help;
    text << "; rank " << other.rank << " of " << group.size;
    if (other.came) {
      text << " waits in " << other.call;
      continue;
    }
    text << " has not come to ";
    if (number > 0) {
      text << "collective " << number << " of this group";
    } else {
      text << "connect";
    }
    text
        << (other.call.empty() ? ", and is in no call of ddp's"
                               : ", and is in " + other.call);
  }
  return text.str() + help;
}

void tell_of_wait(
    const ProcessGroupImpl& group,
    int64_t number,
    std::chrono::milliseconds time) {
  if (!group.board) { // nobody knows of the others
    warn_of_wait(time, this_rank(group), own_call());
  } else if (group.board->is_first(group.scope, number)) {
    warn_of_wait(
        time, this_rank(group), own_call() + absent_ranks(group, number));
  }
}

} // namespace ddp::detail
