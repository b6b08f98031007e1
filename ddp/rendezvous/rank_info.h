#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ddp {

/// The data that each rank sends to the others at the rendezvous.
struct RankInfo {
  /// Equal for the ranks of one host; see `detail::host_identity`.
  std::string host;
  /// The bus addresses of the GPUs that this process may use, in CUDA's order.
  std::vector<std::string> gpus;
  /// The reason why no GPU is usable; may be empty.
  std::string gpu_note;
  /// The index of the requested GPU, or -1.
  int64_t gpu = -1;
  /// The local rank, if the launcher set it, or -1.
  int64_t local_rank = -1;
  /// The numeric address of MASTER_ADDR, at which the rank reached the store.
  std::string server{};
  /// The reason why the rank cannot share memory within its host; empty if the
  /// rank can.
  std::string shm_note{};
  /// The reason why the rank cannot participate; empty if the rank can.
  std::string fault{};
  /// The number of groups that the process has formed, except those made from
  /// another group.
  int64_t groups = 0;
  /// The rank's WORLD_SIZE.
  int64_t world_size = 0;
  /// The options that must be the same on all ranks, by name.
  std::map<std::string, std::string> options{};
  /// The options that should be the same on all ranks, by name.
  std::map<std::string, std::string> times{};
};

nlohmann::json json_of(const RankInfo& info);

constexpr auto kForeignMessage =
    "the store has a message that no rank of this version of ddp writes: {}";
/// Throw `c10::DistStoreError` if no rank writes such a message.
nlohmann::json parse_message(const std::string& text);
RankInfo to_rank_info(const nlohmann::json& value);

/// Throws `c10::ValueError` if options differ between ranks; `address` is the
/// store's address.
void check_same_options(
    const std::vector<RankInfo>& ranks,
    const std::string& address);

/// The message if times differ between ranks; otherwise empty.
std::string different_times(
    const std::vector<RankInfo>& ranks,
    const std::string& address);

/// The message for a rank whose WORLD_SIZE differs from rank 0's.
std::string different_sizes(
    const std::string& address,
    int64_t rank,
    int64_t told,
    int64_t rank_0s);

} // namespace ddp
