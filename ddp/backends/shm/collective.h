#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace ddp::backends::shm {

/// What a rank does in a collective, step by step: each step begins when all
/// ranks have done the one before.
class Collective {
 public:
  Collective() = default;
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;
  virtual ~Collective() = default;

  /// Does the next step, the first one without waiting for anybody. Whether
  /// another one follows. Throws where it cannot.
  virtual bool step() = 0;
};

using Collectives = std::vector<std::unique_ptr<Collective>>;

/// Collectives that are one operation, one after the other.
class Chain final : public Collective {
 public:
  /// `next`: makes more, once these are done; may be empty.
  explicit Chain(Collectives parts, std::function<Collectives()> next = {})
      : parts_(std::move(parts)), next_(std::move(next)) {}

  bool step() override {
    for (;; ++done_) {
      if (done_ == parts_.size() && next_) {
        parts_ = std::exchange(next_, nullptr)();
        done_ = 0;
      }
      if (done_ == parts_.size()) {
        return false;
      }
      if (parts_[done_]->step()) {
        return true;
      }
    }
  }

 private:
  Collectives parts_;
  std::function<Collectives()> next_;
  size_t done_ = 0;
};

} // namespace ddp::backends::shm
