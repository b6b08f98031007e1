#include <ddp/debug/collective_fingerprint.h>

#include <common/poll_until.h>
#include <ddp/failure/elastic_pause.h>
#include <ddp/failure/heartbeat.h>
#include <ddp/failure/stack_text.h>
#include <ddp/internal/check.h>
#include <ddp/process_group/agreement/rank_report.h>
#include <ddp/process_group/collective_wait.h>
#include <ddp/process_group/wait_report.h>
#include <ddp/process_group/wait_warning.h>
#include <ddp/support/detached_task.h>

namespace ddp::debug {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLook{250};
constexpr milliseconds kStackTime{5000};
constexpr milliseconds kLongestBackoff{10};
// In the failure store, waits have a scope of their own: this object counts
// other collectives than the waits of the group do.
constexpr const char* kWaitScope = "/debug";

/// A rank's entry: the signature's length, the signature, and the text to show.
std::string said_of(const Call& call) {
  const auto signature = call.signature();
  return std::to_string(signature.size()) + " " + signature + call.text();
}

std::string signature_of(const std::string& said) {
  const auto space = said.find(' ');
  return said.substr(space + 1, std::stoul(said));
}

std::string text_of(const std::string& said) {
  return said.substr(said.find(' ') + 1 + std::stoul(said));
}

/// "rank 2 has", "ranks 1 and 2 have".
std::string with_verb(const std::vector<int64_t>& ranks) {
  return detail::name_ranks(ranks) + (ranks.size() == 1 ? " has" : " have");
}

/// Waits for keys. The store's `wait` would warn at each timeout.
bool has_within(
    milliseconds time,
    c10d::Store& store,
    const std::vector<std::string>& keys) {
  return detail::poll_for(
      time, kLongestBackoff, [&] { return store.check(keys); });
}

} // namespace

CollectiveFingerprint::CollectiveFingerprint(
    c10::intrusive_ptr<c10d::Store> store,
    std::shared_ptr<detail::FailureStore> failure_store,
    std::string scope,
    flight_recorder::Caller caller,
    milliseconds timeout,
    milliseconds wait_notice)
    : store_(std::move(store)),
      failure_store_(std::move(failure_store)),
      scope_(std::move(scope)),
      caller_(std::move(caller)),
      timeout_(timeout),
      wait_notice_(wait_notice) {}

template <typename Request>
auto CollectiveFingerprint::ask(Request request) const {
  return detail::answered_within(
      timeout_,
      [store = store_, request] { return request(*store); },
      [this] { detail::check_nodes(caller_.size); });
}

void CollectiveFingerprint::check(
    int64_t sequence,
    const Call& call,
    uint64_t number) {
  std::vector<std::string> said;
  try {
    ask([own = key(sequence, caller_.rank),
         text = said_of(call)](c10d::Store& store) { store.set(own, text); });
    wait_for_all(sequence, call, number);
    // All ranks are here, so no rank still reads earlier entries.
    said = ask([wanted = keys(sequence),
                old = key(sequence - 1, caller_.rank)](c10d::Store& store) {
      std::vector<std::string> texts;
      for (const auto& bytes : store.multiGet(wanted)) {
        texts.emplace_back(bytes.begin(), bytes.end());
      }
      store.deleteKey(old);
      return texts;
    });
  } catch (const detail::PeerError&) {
    throw;
  } catch (const c10::ValueError&) {
    throw;
  } catch (const std::exception&) { // the store has ended
    return;
  }
  compare(sequence, said, number);
}

std::string CollectiveFingerprint::key(int64_t sequence, int64_t rank) const {
  return c10::str(sequence, "/", rank);
}

std::vector<std::string> CollectiveFingerprint::keys(int64_t sequence) const {
  std::vector<std::string> result;
  for (int64_t r = 0; r < caller_.size; ++r) {
    result.push_back(key(sequence, r));
  }
  return result;
}

void CollectiveFingerprint::wait_for_all(
    int64_t sequence,
    const Call& call,
    uint64_t number) {
  const milliseconds timeout = timeout_;
  const auto wanted = keys(sequence);
  const auto start = Clock::now();
  std::optional<detail::WaitState> state;
  auto next_notice = wait_notice_;
  bool told = false;
  while (!ask([wanted](c10d::Store& store) {
    return has_within(kLook, store, wanted);
  })) {
    look_for_failure(sequence, number);
    const auto waited = Clock::now() - start;
    if (waited > timeout) {
      const auto reason = detail::format(
          "{}: {} not reached it in {} s; this rank called {}",
          place(sequence),
          with_verb(absent(sequence)),
          timeout.count() / 1000.0,
          call.text());
      if (failure_store_) {
        failure_store_->report(
            scope_,
            this_rank() + ": " + reason,
            detail::Failure::Kind::kConsequence);
      }
      abort_call(reason, number);
    }
    if (failure_store_ && !state && waited > wait_notice_ / 2) {
      state = failure_store_->mark_waiting(
          scope_ + kWaitScope, sequence, detail::own_call());
    }
    if (!told && waited > next_notice) {
      told = tell_of_wait(sequence, state);
      next_notice += wait_notice_;
    }
  }
  if (state) {
    failure_store_->leave();
  }
}

void CollectiveFingerprint::look_for_failure(int64_t sequence, uint64_t number)
    const {
  if (detail::elastic_pause::waits_are_ended()) {
    abort_call(place(sequence) + ": the nodes of the job change", number);
  }
  const auto failures = failure_store_ ? failure_store_->read(scope_)
                                       : std::vector<detail::Failure>();
  if (failures.empty()) {
    return;
  }
  using Kind = detail::WaitFailure::Kind;
  const auto failure = detail::caused_by(failures);
  if (failure.kind == Kind::kCommon) {
    failure_store_->leave();
    DDP_THROW(ValueError, failure.cause);
  }
  const bool whole = failure.kind == Kind::kWhole;
  abort_call(
      place(sequence) + (whole ? ": " : " failed") + failure.cause, number);
}

void CollectiveFingerprint::abort_call(
    const std::string& reason,
    uint64_t number) const {
  if (failure_store_) {
    failure_store_->leave();
  }
  detail::heartbeat::failed_by_another(caller_.size);
  throw detail::PeerError(detail::format(
      "{}: {}{}\nstack of this rank:\n{}",
      this_rank(),
      reason,
      flight_recorder::dump_for(number, reason),
      stack_text()));
}

bool CollectiveFingerprint::tell_of_wait(
    int64_t sequence,
    const std::optional<detail::WaitState>& state) const {
  const auto ranks = absent(sequence);
  if (ranks.empty() || (state && !failure_store_->may_report_wait(*state))) {
    return false;
  }
  detail::warn_of_wait(
      wait_notice_,
      this_rank(),
      detail::format(
          "{}; {} not reached {}{}",
          detail::own_call(),
          with_verb(ranks),
          place(sequence),
          detail::own_remedy()));
  return true;
}

std::vector<int64_t> CollectiveFingerprint::absent(int64_t sequence) const {
  return ask([wanted = keys(sequence)](c10d::Store& store) {
    std::vector<int64_t> missing;
    for (size_t r = 0; r < wanted.size(); ++r) {
      if (!store.check({wanted[r]})) {
        missing.push_back(static_cast<int64_t>(r));
      }
    }
    return missing;
  });
}

void CollectiveFingerprint::compare(
    int64_t sequence,
    const std::vector<std::string>& said,
    uint64_t number) {
  std::vector<std::string> signatures(said.size());
  std::transform(said.begin(), said.end(), signatures.begin(), signature_of);
  const auto sides = detail::group_ranks(signatures);
  if (sides.size() == 1) {
    return;
  }
  auto text = "the ranks' calls differ at " + place(sequence);
  std::vector<std::string> stacks;
  for (const auto& [signature, ranks] : sides) {
    const auto first = ranks.front();
    text +=
        c10::str("\n  ", detail::name_ranks(ranks), ": ", text_of(said[first]));
    stacks.push_back("stack/" + key(sequence, first));
    if (first == caller_.rank) {
      ask([key = stacks.back(), stack = stack_text()](c10d::Store& store) {
        store.set(key, stack);
      });
    }
  }
  for (size_t i = 0; i < sides.size(); ++i) {
    std::string stack = "unknown";
    try {
      stack = ask([key = stacks[i]](c10d::Store& store) -> std::string {
        return has_within(kStackTime, store, {key}) ? store.get_to_str(key)
                                                    : "unknown";
      });
    } catch (const std::exception&) { // the store has ended
    }
    text += c10::str("\nstack of rank ", sides[i].second.front(), ":\n", stack);
  }
  flight_recorder::dump_for(number, text);
  DDP_THROW(ValueError, text);
}

std::string CollectiveFingerprint::place(int64_t sequence) const {
  return c10::str("collective ", sequence, " of group ", caller_.group);
}

std::string CollectiveFingerprint::this_rank() const {
  return detail::this_rank(caller_.rank, caller_.size);
}

} // namespace ddp::debug
