#include <ddp/process_group/wait_report.h>

#include <common/error_file.h>
#include <common/heartbeat_page.h>
#include <common/host_name.h>
#include <ddp/backends/common/backend_work.h>
#include <ddp/failure/debug_level.h>
#include <ddp/failure/heartbeat.h>
#include <ddp/internal/check.h>
#include <ddp/process_group/agreement/rank_report.h>
#include <ddp/process_group/wait_warning.h>

#include <sstream>

namespace ddp::detail {
namespace {

constexpr size_t kMaxReasons = 3;

constexpr const char* kBackwardRemedy =
    ". Each rank must run a backward pass that reaches a parameter of the "
    "Reducer, or call finish_backward()";
constexpr const char* kCallRemedy =
    ". All ranks must make the same calls, such as save_checkpoint, in the "
    "same order and with the same shapes";
constexpr const char* kEndRemedy =
    ". Check the last output of the rank that has ended, and how it ended";
constexpr const char* kBatchesRemedy =
    ". Do all ranks have the same number of batches, and the same number under "
    "no_sync()? A DistributedSampler makes the numbers equal, drop_last drops "
    "the remainder, and Reducer::join() lets ranks continue without batches";

constexpr const char* kReducersRemedy =
    ". If a program has several Reducers, all ranks must run the backward "
    "passes of all Reducers, equally often and in the same order";

/// Whether a rank in no call of this group may wait in a call of another group.
bool may_use_others() {
  return groups_formed() > 1;
}

bool is_bucket(const std::string& call) {
  return call.rfind("bucket ", 0) == 0;
}

bool is_backward(const std::string& call) {
  return is_bucket(call) || call == kBufferBroadcast;
}

/// The part of `call` that names one of several Reducers, or "".
std::string reducer_of(const std::string& call) {
  return call.substr(std::min(call.find(kOfReducer), call.size()));
}

/// The remedy if ranks are in these calls; "" is no call to ddp.
std::string remedy(const std::vector<std::string>& calls) {
  std::vector<std::string> reducers, others;
  for (const auto& call : calls) {
    if (is_bucket(call)) {
      reducers.push_back(reducer_of(call));
    } else if (!is_backward(call)) {
      others.push_back(call);
    }
  }
  const auto other_reducer = [&](const std::string& of) {
    return of != reducers.front();
  };
  if (std::any_of(reducers.begin(), reducers.end(), other_reducer)) {
    return kReducersRemedy;
  }
  if (others.empty()) {
    return "";
  }
  if (std::any_of(calls.begin(), calls.end(), is_backward)) {
    const bool in_none = others.front().empty();
    return c10::str(
        in_none ? kBackwardRemedy : "",
        !in_none || may_use_others() ? kCallRemedy : "",
        kBatchesRemedy);
  }
  const bool connects =
      std::any_of(others.begin(), others.end(), [](auto& call) {
        return call.rfind("init_process_group", 0) == 0;
      });
  return connects ? "" : kCallRemedy;
}

/// The remedy if `error` is about the end of another rank, otherwise "". If a
/// connection has ended, the rank may have had no more batches or calls.
std::string remedy_of_end(const std::string& error) {
  if (error.find(backends::kHasLeft) != std::string::npos ||
      !tells_of_another(error)) {
    return "";
  }
  const bool may_be_done = error.find(backends::kHasEnded) == std::string::npos;
  const auto call = own_call();
  return c10::str(
      kEndRemedy,
      !may_be_done            ? ""
          : is_backward(call) ? kBatchesRemedy
                              : remedy({call, ""}));
}

std::string name_place(
    const WaitStatus& where,
    const std::vector<int64_t>& ranks,
    int64_t number) {
  const bool one = ranks.size() == 1;
  auto text = name_ranks(ranks);
  if (where.came) {
    return text + (one ? " waits in " : " wait in ") + where.call;
  }
  const auto own = own_call();
  text += (one ? " has not reached " : " have not reached ") + own;
  if (number > 0 && debug::debug_level() != debug::DebugLevel::kOff) {
    text += c10::str(" (collective ", number, " of this group)");
  }
  text += one ? ", and is in " : ", and are in ";
  if (where.call.empty()) {
    return text +
        (may_use_others() ? "no call of this group" : "no call to ddp");
  }
  return text + (where.call == own ? "another one" : where.call);
}

/// "; ranks 0 and 2 wait in CALL; rank 1 ..." and a remedy, `of_end` unless
/// empty, without the ranks that wait in call `left_out` and, unless
/// `waited_long`, those that have published no wait.
std::string name_places(
    const std::vector<WaitStatus>& ranks,
    int64_t number,
    const std::string& left_out,
    bool waited_long,
    const std::string& of_end) {
  std::vector<std::string> calls = {own_call()};
  std::string text;
  for (const auto& [where, of] : group_ranks(ranks)) {
    if (where.came && (where.call.empty() || where.call == left_out)) {
      continue;
    }
    calls.push_back(where.call);
    if (waited_long || !where.call.empty()) {
      text += "; " + name_place(where, of, number);
    }
  }
  return text + (of_end.empty() && calls.size() > 1 ? remedy(calls) : of_end);
}

/// The reasons for the failures, not for consequences.
std::string describe(std::vector<Failure> failures) {
  failures.erase(
      std::remove_if(
          failures.begin(),
          failures.end(),
          [](const Failure& failure) {
            return failure.kind == Failure::Kind::kConsequence;
          }),
      failures.end());
  std::ostringstream text;
  for (size_t i = 0; i < std::min(failures.size(), kMaxReasons); ++i) {
    text << (i ? "; " : "") << "rank " << failures[i].rank << " of "
         << failures[i].size << " on host " << failures[i].host
         << " failed: " << failures[i].text;
  }
  if (failures.size() > kMaxReasons) {
    text << "; and " << failures.size() - kMaxReasons << " more ranks failed";
  }
  return text.str();
}

} // namespace

std::string this_rank(int64_t rank, int64_t size) {
  return detail::format("rank {} of {} on host {}", rank, size, host_name());
}

std::string this_rank(const ProcessGroupImpl& group) {
  return this_rank(group.rank, group.size);
}

WaitFailure caused_by(const std::vector<Failure>& failures) {
  using Kind = Failure::Kind;
  for (const auto& failure : failures) {
    if (failure.kind == Kind::kCommon) {
      return {failure.text, WaitFailure::Kind::kCommon};
    }
  }
  const bool any_own =
      std::any_of(failures.begin(), failures.end(), [](const auto& failure) {
        return failure.kind == Kind::kOwn;
      });
  if (!any_own) {
    return {failures.front().text, WaitFailure::Kind::kWhole};
  }
  return {" because " + describe(failures), WaitFailure::Kind::kKnown};
}

std::string own_call() {
  char memory[HeartbeatPage::kActivitySize];
  heartbeat::copy_own_activity(memory, sizeof(memory));
  const std::string call = memory;
  if (call.rfind(kBufferBroadcast, 0) == 0) { // not the calls inside it
    return kBufferBroadcast;
  }
  return call.rfind("after ", 0) == 0 ? "a call " + call : call;
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
  return detail::format(
      "{}{}{} over {} failed",
      caller,
      caller.empty() ? "" : ": ",
      operation,
      group.backend);
}

std::string reason_of_end(
    const ProcessGroupImpl& group,
    const std::string& error) {
  auto reason = error;
  const auto keep_after = [&](const std::string& end, size_t place) {
    if (place != std::string::npos) {
      reason.erase(0, place + end.size());
    }
  };
  // "within the host (shm): " or "between hosts (gloo): ".
  std::string part;
  const auto of_parts = c10::str(
      " over hierarchical on rank ",
      group.rank,
      " of ",
      group.size,
      " failed ");
  const auto start = reason.find(of_parts);
  if (start != std::string::npos) {
    keep_after(of_parts, start);
    const auto end = std::min(reason.find(": "), reason.size());
    part = reason.substr(0, end + 2);
    reason.erase(0, part.size());
  }
  const auto passed_on = c10::str(" of ", group.size, " failed: ");
  keep_after(passed_on, reason.rfind(passed_on));
  // gloo's "[/FILE:LINE] " and "[enforce fail at /FILE:LINE] ".
  if (reason.rfind("[/", 0) == 0 || reason.rfind("[enforce fail", 0) == 0) {
    keep_after("] ", reason.find("] "));
  }
  // gloo's, with its operation; or a part's, whose ranks may wait for others.
  if (reason.rfind("Timed out waiting", 0) == 0 ||
      (!part.empty() && reason.rfind(backends::kTimedOut, 0) == 0)) {
    reason = backends::timed_out_after(group.timeout);
  }
  return part + reason;
}

std::string own_remedy() {
  return remedy({own_call(), ""});
}

std::string all_ranks(
    const ProcessGroupImpl& group,
    int64_t number,
    const std::string& error,
    bool waited_long) {
  const auto ranks = group.failure_store->wait_status(group.scope, number);
  const auto of_end = remedy_of_end(error);
  if (ranks.empty()) {
    return of_end.empty() ? own_remedy() : of_end;
  }
  return name_places(ranks, number, "", waited_long, of_end);
}

bool tell_of_wait(
    const ProcessGroupImpl& group,
    int64_t number,
    const std::optional<WaitState>& state) {
  auto text = own_call();
  if (state) {
    if (!group.failure_store->may_report_wait(*state)) {
      return false;
    }
    const auto ranks = group.failure_store->wait_status(group.scope, number);
    text += name_places(ranks, number, text, /*waited_long=*/true, "");
  }
  warn_of_wait(group.wait_notice, this_rank(group), text);
  return true;
}

} // namespace ddp::detail
