#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ddp {

/// What each rank tells the others when they meet.
struct RankInfo {
  /// Equal for the ranks of one host; see `detail::host_identity`.
  std::string host;
  /// The GPUs this process may use, by bus address, in CUDA's order.
  std::vector<std::string> gpus;
  /// Why there are none, if so.
  std::string gpu_note;
  /// The index of the one that it was told to use, or -1.
  int64_t gpu = -1;
  /// Its local rank if the launcher told, or -1.
  int64_t local_rank = -1;
  /// MASTER_ADDR's numeric address, by which it came to the store.
  std::string server{};
  /// Why it cannot share memory with others of its host; empty if it can.
  std::string shm_note{};
  /// Why it cannot take part; empty if it can.
  std::string fault{};
  /// How many groups it has formed that come of no other one.
  int64_t groups = 0;
  /// WORLD_SIZE as it was told.
  int64_t world_size = 0;
  /// The options that must be the same on all ranks, by name.
  std::map<std::string, std::string> options{};
  /// Those that had better be.
  std::map<std::string, std::string> times{};
};

nlohmann::json json_of(const RankInfo& info);
RankInfo to_rank_info(const nlohmann::json& value);

/// Throws `c10::ValueError` if options differ between ranks; `address` is where
/// they met.
void check_same_options(
    const std::vector<RankInfo>& ranks,
    const std::string& address);

/// What to say where times differ between ranks; empty if they do not.
std::string different_times(
    const std::vector<RankInfo>& ranks,
    const std::string& address);

/// What to say where `rank` was told another WORLD_SIZE than rank 0.
std::string different_sizes(
    const std::string& address,
    int64_t rank,
    int64_t told,
    int64_t rank_0s);

} // namespace ddp
