#pragma once

#include <ddp/failure/failure_store.h>

namespace ddp::detail {

/// Installs a handler that reports an uncaught exception to the file of
/// `find_error_file`, if any. For all groups, it also reports to
/// `failure_store`, if it is not null, and to the existing failure stores of
/// earlier calls. Then the previous handler of `std::terminate` runs.
void report_uncaught(const std::shared_ptr<FailureStore>& failure_store);

/// Reports the exception that is being handled, in the same way.
void report_exception() noexcept;

} // namespace ddp::detail
