#pragma once

#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace c10d {
class Store;
}

namespace ddp::detail {

/// Parts that ranks gather under a key of a store, for the last of them to
/// decide on and all to read. A few requests of each rank, and the parts travel
/// twice, whatever the number of ranks is.
class StoreGather {
 public:
  using Bytes = std::vector<uint8_t>;

  struct Part {
    int64_t rank = 0;
    Bytes content;
  };

  /// Throws `c10::Error` if the store cannot append.
  StoreGather(c10::intrusive_ptr<c10d::Store> store, std::string key);

  /// Adds this rank's part. The parts of all `size` ranks if it was the last to
  /// come: then it has to call `decide` before the others may read.
  std::optional<std::vector<Part>> add(const Part& part, int64_t size);

  /// What the others read.
  void decide(const Bytes& verdict);

  /// Decides unless someone has. Returns what the first decided.
  std::string decide_once(const std::string& verdict);

  /// The key that is there once someone has decided.
  std::string verdict_key() const;

  /// What was decided; empty if nothing was. The last of those that added a
  /// part removes all keys: to be called once by each of them, when all have
  /// added theirs.
  Bytes verdict();

  /// The parts that have come so far.
  std::vector<Part> parts();

  /// Removes all keys.
  void remove();

  /// Whether someone has yet to read.
  bool is_there();

 private:
  std::string count_key() const;

  c10::intrusive_ptr<c10d::Store> store_;
  std::string key_;
};

} // namespace ddp::detail
