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

/// Parts that ranks gather under a key of a store. The last rank decides on
/// them and all read the verdict. Each rank sends a few requests, and the parts
/// are sent twice, for any number of ranks.
class StoreGather {
 public:
  using Bytes = std::vector<uint8_t>;

  struct Part {
    int64_t rank = 0;
    Bytes content;
  };

  /// Throws `c10::Error` if the store cannot append.
  StoreGather(c10::intrusive_ptr<c10d::Store> store, std::string key);

  /// Adds this rank's part. Returns the parts of all `size` ranks if it was the
  /// last: then it must call `decide` before the others may read.
  std::optional<std::vector<Part>> add(const Part& part, int64_t size);

  /// Sets the verdict that the others read.
  void decide(const Bytes& verdict);

  /// Decides unless a rank has decided. Returns the first verdict.
  std::string decide_once(const std::string& verdict);

  /// The key that exists once a rank has decided.
  std::string verdict_key() const;

  /// The verdict; empty if there is none. The last of those that added a part
  /// removes all keys: each must call it once, when all have added theirs.
  Bytes verdict();

  /// The parts that have arrived so far.
  std::vector<Part> parts();

  /// Removes all keys.
  void remove();

  /// Whether a rank has yet to read.
  bool is_there();

 private:
  std::string count_key() const;

  c10::intrusive_ptr<c10d::Store> store_;
  std::string key_;
};

} // namespace ddp::detail
