#pragma once

#include <c10/util/intrusive_ptr.h>
#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace c10d {
class Store;
}

namespace ddp::detail {

// Keys of the lobby. The values of these keys are the numbers that a rank's
// processes have drawn, one per line, and the name of the attempt in answer to
// a number. Rank 0's own number is this name.
std::string hello_key(int64_t rank);
void say_hello(c10d::Store& lobby, int64_t rank, const std::string& number);
std::string answer_key(const std::string& number);
// Key of a rank in the attempt's room.
std::string joined_key(int64_t rank);
std::string has_read_key(int64_t rank);
/// Key of a rank that two processes claim.
constexpr const char* kTwiceKey = "twice";
/// Key of the result for all ranks.
constexpr const char* kReplyKey = "members";

/// Rank 0's part of the rendezvous. The lobby store contains the keys of all
/// attempts, and the room store the keys of this attempt.
class Reception {
 public:
  using StorePtr = c10::intrusive_ptr<c10d::Store>;

  Reception(StorePtr lobby, StorePtr room, std::string attempt, int64_t size);

  /// Receives more ranks if `size` is larger than before.
  void extend(int64_t size);

  /// Returns whether rank `r` has newly arrived. A process that cannot
  /// participate has the rank `size`.
  bool comes(int64_t r);

  /// Sends the attempt's name to later processes that claim the rank of an
  /// arrived process; these processes then detect the duplicate in the room.
  void answer_others();

  /// The number of expected ranks that have arrived.
  int64_t count() const;

  /// The ranks below `size` that have not arrived.
  std::vector<int64_t> absent(int64_t size) const;

  /// Sends the result to all ranks that have arrived or will arrive.
  void say(const nlohmann::json& reply) const;

  /// Waits briefly until the ranks that have arrived have read the result:
  /// after an error, the store ends with this process.
  void await_readers() const;

 private:
  /// Answers new numbers of rank `r` with the attempt's name.
  void answer(int64_t r);

  StorePtr lobby_;
  StorePtr room_;
  std::string attempt_;
  std::vector<bool> present_;
  std::vector<std::string> answered_; // numbers
};

} // namespace ddp::detail
