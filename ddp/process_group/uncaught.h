#pragma once

#include <ddp/failure/failure_store.h>

namespace ddp::detail {

/// From now on an uncaught exception is written to the file that
/// `find_error_file` has found, if any, and to `failure_store`, if it is not
/// null, for all groups, and to the failure stores of earlier calls that are
/// still in use. The former handler of `std::terminate` runs afterwards.
void report_uncaught(const std::shared_ptr<FailureStore>& failure_store);

/// Does the same with the exception that is being handled.
void report_exception() noexcept;

} // namespace ddp::detail
