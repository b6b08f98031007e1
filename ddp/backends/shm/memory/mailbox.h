#pragma once

#include <ATen/core/Tensor.h>
#include <ddp/backends/shm/memory/team.h>

#include <atomic>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace ddp::backends::shm {

constexpr int kAnySource = -1;

/// A message that is waited for.
struct Receipt {
  const int source;
  const int tag;
  const at::Tensor tensor;
  /// Set by `deliver`, with who sent it, or why it could not be taken.
  std::atomic<bool> done{false};
  int sender = -1;
  std::string error{};
};

/// Messages between two ranks. The sender copies them into its own heap, so
/// that it never waits; the receiver copies them from there. They match by
/// source and tag, in the order in which they were sent and asked for.
class Mailbox {
 public:
  using Clock = Team::Clock;

  Mailbox(Team& team, std::shared_ptr<Memory> own);

  /// Throws `c10::OutOfMemoryError`.
  void send(const at::Tensor& tensor, int to, int tag);

  void expect(Receipt& receipt);
  /// Hands out what has come.
  void deliver();
  /// The same until the receipt is done or `until` has come; whether it is
  /// done. Throws `c10::DistBackendError` where a rank has ended or given up.
  bool wait(const Receipt& receipt, Clock::time_point until);
  /// Stops waiting for it.
  void forget(const Receipt& receipt);

 private:
  /// Gives back the memory of messages that were taken.
  void clear_sent();
  void collect(int from);
  bool hand_out(Receipt& receipt, int from);
  /// Throws where nobody is left who could send it.
  void check_senders(const Receipt& receipt);

  Team& team_;
  const std::shared_ptr<Memory> own_;
  std::mutex mutex_;
  /// Places of this rank's messages.
  std::deque<int64_t> sent_;
  /// By rank: this rank's newest message to it, and its to this one; 0: none.
  std::vector<uint64_t> newest_to_;
  std::vector<uint64_t> newest_from_;
  /// By rank: messages that nobody has asked for yet.
  std::vector<std::deque<uint64_t>> arrived_;
  std::list<Receipt*> expected_;
};

} // namespace ddp::backends::shm
