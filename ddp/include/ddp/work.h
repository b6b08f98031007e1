#pragma once

#include <ddp/export.h>
#include <memory>

namespace ddp {

/// A collective that is under way.
class DDP_API Work {
 public:
  /// One that is complete already.
  Work();
  Work(Work&&) noexcept;
  Work& operator=(Work&&) noexcept;
  ~Work();

  /// Blocks until the tensors may be used: on CPU until they hold the result,
  /// on CUDA it lets the current stream wait. Throws as collectives do.
  void wait();

 private:
  friend class ProcessGroup;
  struct State;
  explicit Work(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

} // namespace ddp
