#pragma once

#include <tests/support/nets.h>
#include <tests/support/ranks.h>
#include <tests/support/skip.h>

#include <ddp/backends/nccl.h>
#include <ddp/reducer_options.h>

namespace ddp::test {

/// The number of GPUs. If it is 0, skips the test case, or fails if the
/// environment has DDP_TEST_NEEDS_GPU, as on a machine that has a GPU.
inline size_t count_gpus() {
  const auto usable = backends::nccl::usable_gpus();
  if (usable.bus_addresses.empty()) {
    const auto reason = "no usable GPU: " + usable.note;
    if (std::getenv("DDP_TEST_NEEDS_GPU") != nullptr) {
      FAIL(reason);
    }
    skip(reason);
  }
  return usable.bus_addresses.size();
}

/// Lets NCCL run several ranks on one GPU, which NCCL rejects within one host.
/// Each rank becomes a separate host; with few channels, the ranks' kernels do
/// not wait for each other.
inline void share_gpu_with_other_ranks() {
  const auto rank = std::string(std::getenv("RANK"));
  const std::vector<std::pair<const char*, std::string>> settings = {
      {"DDP_SHARE_GPUS", "1"},
      {"NCCL_HOSTID", "rank" + rank},
      {"NCCL_SOCKET_IFNAME", "lo"},
      {"NCCL_NET", "Socket"},
      {"NCCL_IB_DISABLE", "1"},
      {"NCCL_MNNVL_ENABLE", "0"},
      {"NCCL_NVLS_ENABLE", "0"},
      {"NCCL_NET_GDR_LEVEL", "LOC"},
      {"NCCL_MAX_CTAS", "2"},
      {"NCCL_ALGO", "Ring"},
      {"NCCL_PROTO", "Simple"}};
  for (const auto& [name, value] : settings) {
    setenv(name, value.c_str(), /*overwrite=*/1);
  }
}

/// Runs `body` on `size` ranks over NCCL, as `ranks` does; the ranks share GPUs
/// if the machine has fewer. Skips the test case if the machine has none.
inline std::vector<Outcome> gpu_ranks(
    int size,
    const ProcessGroupOptions& options,
    const std::map<int, int>& exit_codes,
    const std::function<void(ProcessGroup)>& body) {
  const auto gpus = count_gpus();
  const auto rank_options = RankOptions()
                                .environment({{"DDP_BACKEND", "nccl"}})
                                .timeout(std::chrono::seconds(120))
                                .exit_codes(exit_codes);
  return ranks(size, rank_options, [&] {
    if (gpus < static_cast<size_t>(size)) {
      share_gpu_with_other_ranks();
    }
    body(init_process_group(options));
  });
}

inline std::vector<Outcome> gpu_ranks(
    int size,
    const std::function<void(ProcessGroup)>& body) {
  return gpu_ranks(size, {}, {}, body);
}

/// A RANKS_TEST of these ranks.
#define GPU_TEST(...) \
  DDP_TEST_BY(run_gpu_test, (ProcessGroup group), __VA_ARGS__)
inline void run_gpu_test(
    void (*body)(ProcessGroup),
    const char* /*title*/,
    int size = 3,
    const ProcessGroupOptions& options = {},
    const std::map<int, int>& exit_codes = {}) {
  gpu_ranks(size, options, exit_codes, body);
}

/// A net that is equal on all ranks, on the group's device; `arguments` are the
/// constructor's.
template <typename Net = UnevenNet, typename... Arguments>
std::shared_ptr<Net> net_on_gpu(
    const ProcessGroup& group,
    const Arguments&... arguments) {
  torch::manual_seed(1);
  auto net = std::make_shared<Net>(arguments...);
  net->to(group.device());
  return net;
}

/// Options for a Reducer that uses the group's communicator, so that a case
/// connects the ranks no more often than necessary.
inline ReducerOptions shared() {
  return ReducerOptions().share_communicator(true);
}

/// This rank's input of a step, on the CPU.
inline at::Tensor input_of(const ProcessGroup& group, int step) {
  torch::manual_seed(100 * step + group.rank());
  return torch::randn({16, 7});
}

} // namespace ddp::test
