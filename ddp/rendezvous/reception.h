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

// In the lobby: the numbers that a rank's processes have drawn, a line each,
// and the attempt's name for one (rank 0's number, which is alone, is that
// name).
std::string hello_key(int64_t rank);
void say_hello(c10d::Store& lobby, int64_t rank, const std::string& number);
std::string answer_key(const std::string& number);
// In the attempt's room, of a rank.
std::string joined_key(int64_t rank);
std::string has_read_key(int64_t rank);
/// A rank that two processes have.
constexpr const char* kTwiceKey = "twice";
/// The outcome, for all.
constexpr const char* kOutcomeKey = "members";

/// Where rank 0 receives the other ranks: its lobby has the keys of every
/// attempt, its room those of this one.
class Reception {
 public:
  using StorePtr = c10::intrusive_ptr<c10d::Store>;

  Reception(StorePtr lobby, StorePtr room, std::string attempt, int64_t size);

  /// Receives more ranks, if there are to be as many.
  void extend(int64_t size);

  /// Whether rank `r` has come, and had not before. Size is the rank of one
  /// that has no place among them.
  bool comes(int64_t r);

  /// Tells the attempt's name to other processes that have the rank of one that
  /// has come: they find that out in the room.
  void answer_others();

  /// How many have come of those that there are to be.
  int64_t count() const;

  /// Those below `size` that have not come.
  std::vector<int64_t> absent(int64_t size) const;

  /// Says to those that come, and have come, how the meeting ends.
  void say(const nlohmann::json& outcome) const;

  /// Gives the ranks that came a moment to read the outcome: where it is an
  /// error, the store ends with this process.
  void await_readers() const;

 private:
  /// Tells rank `r` the attempt's name for numbers not seen before.
  void answer(int64_t r);

  StorePtr lobby_;
  StorePtr room_;
  std::string attempt_;
  std::vector<bool> present_;
  std::vector<std::string> answered_; // the numbers that were
};

} // namespace ddp::detail
