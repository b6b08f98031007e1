#include <ddp/device_choice.h>

#include <c10/util/Exception.h>

#include <set>

namespace ddp {
namespace {

/// The GPU of a rank: the one that it sees if a scheduler showed it only one,
/// else the one that its local rank numbers.
int64_t gpu_index(const Member& member, int64_t local_rank) {
  return member.gpus.size() == 1 ? 0 : local_rank;
}

/// Why the ranks of one host cannot have a GPU each; empty if they can.
std::string shortage(const std::vector<Member>& members) {
  for (size_t r = 0; r < members.size(); ++r) {
    const auto place =
        local_place(members, static_cast<int64_t>(r), std::nullopt);
    const auto& own = members[r];
    if (own.gpus.empty()) {
      return c10::str(
          "rank ",
          r,
          " has no usable GPU",
          own.gpu_note.empty() ? "" : ": ",
          own.gpu_note);
    }
    std::set<std::string> taken;
    for (const auto& other : members) {
      if (other.host == own.host) {
        taken.insert(other.gpus.begin(), other.gpus.end());
      }
    }
    if (gpu_index(own, place.rank) >= static_cast<int64_t>(own.gpus.size()) ||
        static_cast<int64_t>(taken.size()) < place.size) {
      return c10::str(
          place.size,
          " ranks share a host with ",
          taken.size(),
          " usable GPU",
          taken.size() == 1 ? "" : "s");
    }
  }
  return "";
}

c10::DeviceIndex cuda_index(
    const ProcessGroupOptions& options,
    const Member& self,
    int64_t local_rank) {
  if (options.device() && options.device()->has_index()) {
    return options.device()->index();
  }
  return static_cast<c10::DeviceIndex>(gpu_index(self, local_rank));
}

} // namespace

LocalPlace local_place(
    const std::vector<Member>& members,
    int64_t rank,
    std::optional<int64_t> given) {
  LocalPlace place{0, 0};
  for (size_t r = 0; r < members.size(); ++r) {
    if (members[r].host == members[rank].host) {
      place.rank += static_cast<int64_t>(r) < rank;
      ++place.size;
    }
  }
  place.rank = given.value_or(place.rank);
  return place;
}

DeviceChoice choose_device(
    const ProcessGroupOptions& options,
    const std::vector<Member>& members,
    int64_t rank,
    std::optional<int64_t> given_local_rank) {
  const auto& backend = options.backend();
  const bool free_backend = backend.empty() || backend == "auto";
  DeviceChoice choice;
  if (options.device() ? options.device()->is_cpu() : backend == "gloo") {
    TORCH_CHECK_VALUE(
        backend != "nccl",
        "backend nccl serves CUDA tensors only, but the device is cpu");
    return choice;
  }
  if (!options.device()) {
    const auto reason = shortage(members);
    if (!reason.empty()) {
      TORCH_CHECK_VALUE(
          free_backend,
          "backend nccl was asked for, but ",
          reason,
          ". Start fewer ranks per host, name a device, or use backend gloo");
      choice.note = c10::str(
          "training on the CPU, because ",
          reason,
          " (DDP_DEVICE=cpu or DDP_BACKEND=gloo asks for this)");
      return choice;
    }
  }
  const auto& self = members[rank];
  const auto place = local_place(members, rank, given_local_rank);
  const auto index = cuda_index(options, self, place.rank);
  TORCH_CHECK_VALUE(
      index < static_cast<int64_t>(self.gpus.size()),
      "device cuda:",
      static_cast<int>(index),
      " was asked for on rank ",
      rank,
      ", which has ",
      self.gpus.size(),
      " usable GPUs",
      self.gpu_note.empty() ? "" : ": ",
      self.gpu_note);
  choice.device = c10::Device(c10::kCUDA, index);
  choice.backend = free_backend ? "nccl" : backend;
  return choice;
}

} // namespace ddp
