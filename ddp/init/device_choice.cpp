#include <ddp/init/device_choice.h>

#include <ddp/internal/check.h>

#include <algorithm>
#include <optional>
#include <set>

namespace ddp {
namespace {

/// The GPU of a rank: the requested GPU, the only visible GPU, or else the GPU
/// with the number of the local rank. If that number is too large for a rank,
/// since a scheduler shows the host's other ranks other GPUs, the ranks with
/// the same GPUs are counted instead.
int64_t gpu_index(
    const std::vector<RankInfo>& members,
    size_t rank,
    bool share) {
  const auto& own = members[rank];
  const auto count = static_cast<int64_t>(own.gpus.size());
  if (own.gpu >= 0 || count == 1) {
    return std::max<int64_t>(own.gpu, 0);
  }
  const auto place = local_position(members, static_cast<int64_t>(rank));
  if (share && count > 0) {
    return place.rank % count;
  }
  if (place.size <= count || place.rank >= place.size) {
    return place.rank;
  }
  bool is_counted = false;
  int64_t position = 0;
  for (size_t r = 0; r < members.size(); ++r) {
    if (members[r].host == own.host && members[r].gpus == own.gpus) {
      const auto other = local_position(members, static_cast<int64_t>(r));
      is_counted |= other.rank >= count && other.rank < other.size;
      position += r < rank;
    }
  }
  return is_counted ? position : place.rank;
}

/// The reason why ranks cannot have separate GPUs, and the remedy.
struct Shortage {
  std::string reason;
  const char* remedy;
};

/// Empty if the ranks can have separate GPUs.
std::optional<Shortage> shortage(
    const std::vector<RankInfo>& members,
    bool share) {
  for (size_t r = 0; r < members.size(); ++r) {
    const auto place = local_position(members, static_cast<int64_t>(r));
    const auto& own = members[r];
    if (own.gpus.empty()) {
      return Shortage{
          detail::format(
              "rank {} has no usable GPU{}{}",
              r,
              own.gpu_note.empty() ? "" : ": ",
              own.gpu_note),
          "Start this rank on a host with a GPU"};
    }
    if (share) {
      continue;
    }
    std::set<std::string> taken;
    for (const auto& other : members) {
      if (other.host == own.host) {
        taken.insert(other.gpus.begin(), other.gpus.end());
      }
    }
    const bool has_own =
        gpu_index(members, r, false) < static_cast<int64_t>(own.gpus.size());
    const bool has_enough = static_cast<int64_t>(taken.size()) >= place.size;
    if (!has_own && has_enough && place.rank >= place.size) {
      return Shortage{
          detail::format(
              "LOCAL_RANK is {} on rank {}, whose host has {} rank{}",
              place.rank,
              r,
              place.size,
              place.size == 1 ? "" : "s"),
          "Count LOCAL_RANK from 0 on each host"};
    }
    if (!has_own || !has_enough) {
      return Shortage{
          detail::format(
              "{} ranks share a host with {} usable GPU{}",
              place.size,
              taken.size(),
              taken.size() == 1 ? "" : "s"),
          "Start at most one rank per GPU"};
    }
  }
  return std::nullopt;
}

/// Whether no rank has a GPU, so that the CPU is the expected choice.
bool are_without_gpus(const std::vector<RankInfo>& members) {
  return std::all_of(
      members.begin(), members.end(), [](const RankInfo& member) {
        return member.gpus.empty() && member.gpu_note.empty();
      });
}

/// The bus address of the GPU that a rank uses.
const std::string& gpu_of(
    const std::vector<RankInfo>& members,
    size_t rank,
    bool share) {
  const auto& member = members[rank];
  const auto index = gpu_index(members, rank, share);
  DDP_CHECK_VALUE(
      index < static_cast<int64_t>(member.gpus.size()),
      "{} has {} usable GPUs{}{}",
      member.gpu < 0
          ? detail::format("rank {} needs GPU {}, but", rank, index)
          : detail::format(
                "device cuda:{} was requested on rank {}, which", index, rank),
      member.gpus.size(),
      member.gpu_note.empty() ? "" : ": ",
      member.gpu_note);
  return member.gpus[index];
}

/// Whether two ranks of one host use the same GPU. Throws if that is not
/// allowed, or if a rank does not have the GPU that it uses.
bool are_gpus_shared(const std::vector<RankInfo>& members, bool allowed) {
  std::map<std::pair<std::string, std::string>, size_t> users;
  bool shared = false;
  for (size_t r = 0; r < members.size(); ++r) {
    const auto& gpu = gpu_of(members, r, allowed);
    const auto [first, is_new] = users.insert({{members[r].host, gpu}, r});
    DDP_CHECK_VALUE(
        is_new || allowed,
        "ranks {} and {} on the same host use GPU {}. Use a separate GPU for "
        "each rank (device torch::kCUDA without an index selects it if there "
        "are enough), or allow sharing with "
        "ProcessGroupOptions().share_gpus(true) or DDP_SHARE_GPUS=1",
        first->second,
        r,
        gpu);
    shared = shared || !is_new;
  }
  return shared;
}

/// The reason why ranks cannot use shared memory; empty if they can.
std::string shm_obstacle(
    const std::string& backend,
    const std::vector<RankInfo>& members) {
  for (size_t r = 0; r < members.size(); ++r) {
    if (backend == "shm" && members[r].host != members.front().host) {
      return c10::str("rank ", r, " runs on another host than rank 0");
    }
    if (!members[r].shm_note.empty()) {
      return c10::str("on rank ", r, " ", members[r].shm_note);
    }
  }
  return "";
}

/// The backend for tensors on the CPU.
std::string choose_cpu_backend(
    const std::string& wish,
    const std::vector<RankInfo>& members) {
  const bool is_free = wish.empty() || wish == "auto";
  std::vector<std::string> hosts;
  for (const auto& member : members) {
    hosts.push_back(member.host);
  }
  const auto backend = is_free ? cpu_backend(hosts) : wish;
  if (backend != "shm" && backend != "hierarchical") {
    return backend;
  }
  const auto obstacle = shm_obstacle(backend, members);
  DDP_CHECK_VALUE(
      is_free || obstacle.empty(),
      "backend {} was requested, but {}. Backend gloo needs no shared memory",
      wish,
      obstacle);
  return obstacle.empty() ? backend : "gloo";
}

} // namespace

LocalPosition local_position(
    const std::vector<RankInfo>& members,
    int64_t rank) {
  LocalPosition place{0, 0};
  for (size_t r = 0; r < members.size(); ++r) {
    if (members[r].host == members[rank].host) {
      place.rank += static_cast<int64_t>(r) < rank;
      ++place.size;
    }
  }
  if (members[rank].local_rank >= 0) {
    place.rank = members[rank].local_rank;
  }
  return place;
}

std::string cpu_backend(const std::vector<std::string>& hosts) {
  const auto count = std::set<std::string>(hosts.begin(), hosts.end()).size();
  return count == hosts.size() ? "gloo" : count == 1 ? "shm" : "hierarchical";
}

DeviceChoice choose_device(
    const ProcessGroupOptions& options,
    const std::vector<RankInfo>& members,
    int64_t rank) {
  const auto& backend = options.backend();
  const bool free_backend = backend.empty() || backend == "auto";
  const bool share = options.share_gpus().value_or(false);
  DeviceChoice choice;
  const bool wants_cpu = options.device() ? options.device()->is_cpu()
                                          : !free_backend && backend != "nccl";
  if (wants_cpu) {
    DDP_CHECK_VALUE(
        backend != "nccl",
        "backend nccl supports only CUDA tensors, but the device is cpu");
    choice.backend = choose_cpu_backend(backend, members);
    return choice;
  }
  DDP_CHECK_VALUE(
      backend != "shm" && backend != "hierarchical",
      "backend {} supports only CPU tensors, but the device is {}",
      backend,
      *options.device());
  if (!options.device()) {
    if (const auto missing = shortage(members, share)) {
      DDP_CHECK_VALUE(
          free_backend,
          "backend nccl was requested, but {}. {}, or use backend gloo",
          missing->reason,
          missing->remedy);
      if (!are_without_gpus(members)) {
        choice.note = detail::format(
            "training on the CPU, because {} (DDP_DEVICE=cpu requests the CPU)",
            missing->reason);
      }
      choice.backend = choose_cpu_backend(backend, members);
      return choice;
    }
  }
  // NCCL rejects two ranks on one GPU.
  const bool shared = are_gpus_shared(members, share);
  choice.backend = !free_backend ? backend : shared ? "gloo" : "nccl";
  choice.device = c10::Device(
      c10::kCUDA,
      static_cast<c10::DeviceIndex>(gpu_index(members, rank, share)));
  return choice;
}

} // namespace ddp
