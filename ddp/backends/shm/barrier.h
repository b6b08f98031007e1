#pragma once

#include <ddp/backends/shm/collective.h>
#include <ddp/backends/shm/memory/team.h>

namespace ddp::backends::shm {

/// Ends when all ranks have begun it.
class Barrier final : public Collective {
 public:
  explicit Barrier(Team& team) : team_(team) {}

  bool step() override {
    if (begun_) {
      team_.compare();
      return false;
    }
    team_.announce(c10d::OpType::BARRIER);
    return begun_ = true;
  }

 private:
  Team& team_;
  bool begun_ = false;
};

} // namespace ddp::backends::shm
