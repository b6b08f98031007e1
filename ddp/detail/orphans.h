#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace ddp::detail {

/// Warns when the first of these parameters gets a gradient: their Reducer was
/// destroyed before it had reduced one.
void watch_orphans(
    const std::vector<at::Tensor>& parameters,
    const std::vector<std::string>& names);

/// Whether this is one of them.
bool is_orphan(const at::Tensor& parameter);

/// Ends that for a parameter that gets a Reducer again.
void adopt_orphan(const at::Tensor& parameter);

} // namespace ddp::detail
