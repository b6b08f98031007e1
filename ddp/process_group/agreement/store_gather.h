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

/// Gathers a part from each rank under a key of a store. The last rank makes a
/// decision from all parts, and all ranks read this verdict. For any number of
/// ranks, each rank sends a few requests, and each part is sent twice.
class StoreGather {
 public:
  using Bytes = std::vector<uint8_t>;

  struct Part {
    int64_t rank = 0;
    Bytes content;
  };

  /// Throws `c10::Error` if the store cannot append.
  StoreGather(c10::intrusive_ptr<c10d::Store> store, std::string key);

  /// Adds this rank's part. Returns the parts of all `size` ranks to the last
  /// rank, which must then call `decide` before the others may read.
  std::optional<std::vector<Part>> add(const Part& part, int64_t size);

  /// Sets the verdict that the others read.
  void decide(const Bytes& verdict);

  /// Decides unless a rank has decided. Returns the first verdict.
  std::string decide_once(const std::string& verdict);

  /// The key that exists once a rank has decided.
  std::string verdict_key() const;

  /// The verdict; empty if there is none. Each rank must call this once, after
  /// all have added their parts; the last call removes all keys.
  Bytes verdict();

  /// The parts that have arrived so far.
  std::vector<Part> parts();

  /// Removes all keys.
  void remove();

  /// Whether any rank has yet to read the verdict.
  bool is_there();

 private:
  std::string count_key() const;

  c10::intrusive_ptr<c10d::Store> store_;
  std::string key_;
};

} // namespace ddp::detail
