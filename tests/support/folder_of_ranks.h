#pragma once

#include <tests/support/temporary_folder.h>

#include <optional>

namespace ddp::test {

/// The temporary folder of ranks that run this program again. They create the
/// test's folders again, and leave these behind when they end; main() removes
/// all, since it calls no static destructors.
inline std::optional<TemporaryFolder> folder_of_ranks;

} // namespace ddp::test
