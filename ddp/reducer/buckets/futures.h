#pragma once

#include <ddp/comm_hook.h>
#include <ddp/process_group.h>

namespace ddp::detail {

using Future = c10::intrusive_ptr<c10::ivalue::Future>;

/// A future that will hold a tensor on the device of `tensor`.
Future future_like(const at::Tensor& tensor);

/// A future that holds `tensor`.
Future completed_future(const at::Tensor& tensor);

/// Starts a sum across ranks, in place.
Future all_reduce(const at::Tensor& tensor, const ProcessGroup& group);

/// Starts a mean across ranks, in place. Each rank divides its tensor by the
/// number of ranks before the sum, as in Python's hooks.
Future all_reduce_mean(const at::Tensor& tensor, const ProcessGroup& group);

/// Runs a hook inside another hook. The outer hook must divide for the inner
/// hook, since the Reducer divides only for the outermost hook.
Future run_inner(
    CommHook& hook,
    const GradBucket& bucket,
    const ProcessGroup& group);

/// Returns the only tensor in a complete future, alone or in a list. Throws the
/// future's error.
at::Tensor result_of(c10::ivalue::Future& future);

/// Returns the result of a hook for `buffer`, from a complete future. Real
/// numbers become complex if the buffer is complex, since NCCL supports only
/// real numbers. Throws the future's error, or `c10::Error` if the result does
/// not fit the buffer.
at::Tensor result_for(c10::ivalue::Future& future, const at::Tensor& buffer);

/// Makes the current stream wait for gloo's results: gloo writes them on a
/// GPU's default stream, which its futures do not record. `reduced_by` is the
/// device type whose backend reduced the tensors, if it differs from the type
/// of `device`.
void follow_default_stream(
    const ProcessGroup& group,
    c10::Device device,
    std::optional<c10::DeviceType> reduced_by = std::nullopt);

} // namespace ddp::detail
