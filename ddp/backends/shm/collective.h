#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace ddp::backends::shm {

/// The steps of a rank in a collective. Each step begins when all ranks have
/// done the previous step.
class Collective {
 public:
  Collective() = default;
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;
  virtual ~Collective() = default;

  /// Does the next step; the first step does not wait for other ranks. Returns
  /// whether another step follows. Throws if the step fails.
  virtual bool step() = 0;
};

using Collectives = std::vector<std::unique_ptr<Collective>>;

/// A sequence of collectives that form one operation.
class Chain final : public Collective {
 public:
  /// `next`, which may be empty, returns additional collectives once `parts`
  /// are complete.
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
