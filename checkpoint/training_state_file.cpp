#include <checkpoint/detail/on_rank_0.h>
#include <checkpoint/torch_file.h>
#include <checkpoint/training_state.h>

#include <c10/util/Exception.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <filesystem>

namespace ddp {
namespace {

void check_extension(const std::string& path) {
  const auto extension = std::filesystem::path(path).extension();
  TORCH_CHECK_VALUE(
      extension == ".pt" || extension == ".pth",
      "training state '",
      path,
      "': the format goes by the extension, and only .pt and .pth are "
      "supported so far; name the file so");
}

/// What rank 0 has, on all ranks, on the CPU.
c10::IValue broadcast(const c10::IValue& value, const ProcessGroup& group) {
  if (group.size() == 1) {
    return value;
  }
  std::string bytes;
  if (group.rank() == 0) {
    const auto pickled = torch::jit::pickle_save(value);
    bytes.assign(pickled.begin(), pickled.end());
  }
  bytes = group.broadcast(bytes);
  return group.rank() == 0
      ? value
      : torch::jit::pickle_load({bytes.begin(), bytes.end()});
}

} // namespace

void TrainingState::save(const std::string& path, const ProcessGroup& group)
    const {
  check_extension(path);
  const auto state = state_dict(group);
  detail::on_rank_0(
      "TrainingState::save", group, [&] { write_torch_file(path, state); });
}

bool TrainingState::load(const std::string& path, const ProcessGroup& group) {
  check_extension(path);
  c10::IValue state;
  detail::on_rank_0("TrainingState::load", group, [&] {
    if (std::filesystem::exists(path)) {
      state = read_torch_file(path);
    }
  });
  state = broadcast(state, group);
  if (state.isNone()) {
    return false;
  }
  detail::on_each_rank(
      "TrainingState::load", group, [&] { load_state_dict(state, group); });
  return true;
}

} // namespace ddp
