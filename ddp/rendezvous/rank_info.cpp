#include <ddp/rendezvous/rank_info.h>

#include <common/bounded_json.h>
#include <ddp/internal/check.h>
#include <ddp/process_group/agreement/rank_report.h>
#include <nlohmann/json.hpp>

#include <set>

namespace ddp {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(
    RankInfo,
    host,
    gpus,
    gpu_note,
    gpu,
    local_rank,
    server,
    shm_note,
    fault,
    groups,
    world_size,
    options,
    times)

namespace {

/// The differences, by name and by ranks; empty if there are none.
std::string differences(
    const std::vector<RankInfo>& ranks,
    std::map<std::string, std::string> RankInfo::*options,
    const std::string& address) {
  std::string text;
  for (const auto& [name, expected] : ranks[0].*options) {
    std::vector<std::string> values;
    for (const auto& rank : ranks) {
      const auto found = (rank.*options).find(name);
      values.push_back(found == (rank.*options).end() ? "none" : found->second);
    }
    if (std::set<std::string>(values.begin(), values.end()).size() > 1) {
      text += detail::format(
          "{}{} ({})",
          text.empty() ? "" : ", ",
          name,
          detail::name_by_ranks(values));
    }
  }
  return text.empty()
      ? ""
      : detail::format(
            "the ranks at {} have different options: {}. Give all ranks the "
            "same ProcessGroupOptions and DDP_ variables",
            address,
            text);
}

} // namespace

nlohmann::json json_of(const RankInfo& info) {
  return info;
}

RankInfo to_rank_info(const nlohmann::json& value) {
  try {
    return value;
  } catch (const nlohmann::json::exception& error) {
    DDP_THROW(DistStoreError, kForeignMessage, error.what());
  }
}

nlohmann::json parse_message(const std::string& text) {
  auto value = parse_bounded_json(text, /*fractions=*/false);
  DDP_CHECK_WITH(DistStoreError, value, kForeignMessage, "it is not JSON");
  return *std::move(value);
}

void check_same_options(
    const std::vector<RankInfo>& ranks,
    const std::string& address) {
  const auto text = differences(ranks, &RankInfo::options, address);
  DDP_CHECK_VALUE(text.empty(), text);
}

std::string different_times(
    const std::vector<RankInfo>& ranks,
    const std::string& address) {
  const auto text = differences(ranks, &RankInfo::times, address);
  return text.empty() ? "" : text + ": the shortest applies to all ranks";
}

std::string different_sizes(
    const std::string& address,
    int64_t rank,
    int64_t told,
    int64_t rank_0s) {
  return detail::format(
      "the ranks at {} have different values of WORLD_SIZE: rank {} has {}, "
      "rank 0 has {}. Start all ranks with the same WORLD_SIZE, and use a "
      "different MASTER_PORT for each job",
      address,
      rank,
      told,
      rank_0s);
}

} // namespace ddp
