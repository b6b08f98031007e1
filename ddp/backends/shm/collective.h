#pragma once

#include <cstdint>

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

} // namespace ddp::backends::shm
