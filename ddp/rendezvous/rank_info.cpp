#include <ddp/rendezvous/rank_info.h>

#include <c10/util/Exception.h>
#include <nlohmann/json.hpp>

namespace ddp {

nlohmann::json json_of(const RankInfo& info) {
  return {
      {"host", info.host},
      {"gpus", info.gpus},
      {"gpu_note", info.gpu_note},
      {"gpu", info.gpu},
      {"local_rank", info.local_rank},
      {"server", info.server},
      {"shm_note", info.shm_note},
      {"fault", info.fault},
      {"groups", info.groups},
      {"world_size", info.world_size},
      {"options", info.options}};
}

RankInfo to_rank_info(const nlohmann::json& value) {
  return {
      value.at("host"),
      value.at("gpus"),
      value.at("gpu_note"),
      value.at("gpu"),
      value.at("local_rank"),
      value.at("server"),
      value.at("shm_note"),
      value.at("fault"),
      value.at("groups"),
      value.at("world_size"),
      value.at("options")};
}

void check_same_options(
    const std::vector<RankInfo>& ranks,
    const std::string& address) {
  const auto& expected = ranks[0].options;
  for (size_t r = 1; r < ranks.size(); ++r) {
    for (const auto& [name, value] : ranks[r].options) {
      TORCH_CHECK_VALUE(
          value == expected.at(name),
          "the ranks at ",
          address,
          " were given different options: rank ",
          r,
          " has ",
          name,
          " ",
          value,
          ", rank 0 has ",
          expected.at(name),
          ". Give all ranks the same ProcessGroupOptions and DDP_ variables");
    }
  }
}

std::string different_sizes(
    const std::string& address,
    int64_t rank,
    int64_t told,
    int64_t rank_0s) {
  return c10::str(
      "the ranks at ",
      address,
      " were told different WORLD_SIZEs: rank ",
      rank,
      " has ",
      told,
      ", rank 0 has ",
      rank_0s,
      ". Start all with the same, or different jobs with a MASTER_PORT each");
}

} // namespace ddp
