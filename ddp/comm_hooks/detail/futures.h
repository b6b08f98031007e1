#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/intrusive_ptr.h>
#include <ddp/comm_hook.h>
#include <ddp/process_group.h>

#include <functional>

namespace ddp::detail {

using Future = c10::intrusive_ptr<c10::ivalue::Future>;

/// One that will hold a tensor of the device of `tensor`.
Future future_like(const at::Tensor& tensor);

/// One that holds `tensor`.
Future completed_future(const at::Tensor& tensor);

/// Starts a sum over ranks, in place.
Future all_reduce(const at::Tensor& tensor, const ProcessGroup& group);

/// Starts a mean over ranks, in place: each rank divides first, as Python's
/// hooks do.
Future all_reduce_mean(const at::Tensor& tensor, const ProcessGroup& group);

/// Runs a hook inside another one, which has to divide for it: the Reducer does
/// so for the outermost hook only.
Future run_inner(
    CommHook& hook,
    const GradBucket& bucket,
    const ProcessGroup& group);

/// The one tensor that a complete future holds, alone or in a list. Throws the
/// future's error.
at::Tensor result_of(c10::ivalue::Future& future);

/// Throws unless a hook's result fits the buffer that it was given.
void check_result(const at::Tensor& result, const at::Tensor& buffer);

/// gloo leaves its results on a GPU's default stream, which its futures do not
/// know of.
void follow_default_stream(const ProcessGroup& group, c10::Device device);

} // namespace ddp::detail
