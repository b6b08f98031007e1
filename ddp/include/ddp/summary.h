#pragma once

#include <ddp/export.h>
#include <ddp/reducer.h>

#include <string>
#include <type_traits>

namespace torch::nn {
class Module;
}

namespace ddp {

namespace detail {
DDP_API std::string summary(
    const torch::nn::Module& net,
    const Reducer& reducer);
}

/// A table for people, in ASCII: of each module that has parameters of its own
/// its type, how many numbers they are and how many bytes, the bytes of the
/// gradients that are reduced, and in which buckets, counted from 1; then the
/// totals, and what `reducer.statistics()` says. A parameter that several
/// modules have counts for the first. `net` is a module, a pointer to one or a
/// module holder; where it is a `DistributedDataParallel`, the module inside is
/// shown. Call it between backwards. Not collective.
template <typename Net>
std::string summary(const Net& net, const Reducer& reducer) {
  if constexpr (std::is_base_of_v<torch::nn::Module, Net>) {
    return detail::summary(net, reducer);
  } else {
    return detail::summary(*net, reducer);
  }
}

} // namespace ddp
