#pragma once

#include <ddp/failure/failure_store.h>

namespace ddp::detail {

/// Installs a handler that reports an uncaught exception to the file of
/// `find_error_file`, if any. The handler also reports the exception for all
/// groups to `failure_store`, if not null, and to the failure stores of earlier
/// calls that still exist. Then the previous handler of `std::terminate` runs.
void report_uncaught(const std::shared_ptr<FailureStore>& failure_store);

/// Reports the exception that is being handled, in the same way.
void report_exception() noexcept;

} // namespace ddp::detail
