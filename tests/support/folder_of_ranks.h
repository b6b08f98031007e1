#pragma once

#include <tests/support/temporary_folder.h>

#include <optional>

namespace ddp::test {

/// The temporary folder of ranks that run this program again. These ranks
/// create the test's folders again, and do not remove them at their end. main()
/// removes all folders, since no static destructors run.
inline std::optional<TemporaryFolder> folder_of_ranks;

} // namespace ddp::test
