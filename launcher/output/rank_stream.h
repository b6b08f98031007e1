#pragma once

#include <string>

namespace ddp {

/// The two streams of a process, ours and each rank's.
enum class Stream { kOut, kErr };

/// One stream of one rank in one attempt of a job that may be restarted.
struct RankStream {
  int rank = 0;
  int local_rank = 0;
  Stream stream = Stream::kOut;
  int attempt = 0;
};

/// What a line's prefix can say besides its rank.
struct JobNames {
  int world_size = 1;
  std::string role;
  int node = 0;
  std::string host;
};

} // namespace ddp
