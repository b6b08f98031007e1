#pragma once

#include <ddp/export.h>
namespace torch::nn {
class Module;
} // namespace torch::nn

namespace ddp {

/// What every wrapper of a module derives from, whatever the type it wraps, so
/// that code which names parameters can look through it: a checkpoint of a
/// wrapper and of the plain module have the same names.
struct DDP_API WrappedModule {
  virtual ~WrappedModule() = default;

  /// The module inside, which may be a wrapper again.
  virtual torch::nn::Module& wrapped() = 0;
  virtual const torch::nn::Module& wrapped() const = 0;
};

} // namespace ddp
