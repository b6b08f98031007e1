#pragma once

#include <ddp/backends/shm/collective.h>

#include <memory>
#include <utility>
#include <vector>

namespace ddp::backends::shm {

/// Collectives that are one operation, one after the other.
class Chain final : public Collective {
 public:
  explicit Chain(std::vector<std::unique_ptr<Collective>> parts)
      : parts_(std::move(parts)) {}

  bool step() override {
    for (; next_ < parts_.size(); ++next_) {
      if (parts_[next_]->step()) {
        return true;
      }
    }
    return false;
  }

 private:
  std::vector<std::unique_ptr<Collective>> parts_;
  size_t next_ = 0;
};

/// The collectives as one; of one, itself.
inline std::unique_ptr<Collective> in_turn(
    std::vector<std::unique_ptr<Collective>> parts) {
  if (parts.size() == 1) {
    return std::move(parts[0]);
  }
  return std::make_unique<Chain>(std::move(parts));
}

} // namespace ddp::backends::shm
