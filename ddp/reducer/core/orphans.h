#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace ddp::detail {

/// Marks parameters whose Reducer was destroyed. Where it had reduced nothing,
/// the first gradient of one warns.
void watch_orphans(
    const std::vector<at::Tensor>& parameters,
    const std::vector<std::string>& names,
    bool reduced);

/// Whether this is one of them.
bool is_orphan(const at::Tensor& parameter);

/// Ends that for a parameter that gets a Reducer again.
void adopt_orphan(const at::Tensor& parameter);

} // namespace ddp::detail
