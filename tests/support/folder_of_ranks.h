#pragma once

#include <tests/support/temporary_folder.h>

#include <optional>

namespace ddp::test {

/// The temporary folder of ranks that run this program again. They make the
/// test's own folders once more, and their ends leave these behind; main()
/// removes all, as it calls no static destructor.
inline std::optional<TemporaryFolder> folder_of_ranks;

} // namespace ddp::test
