// Times checkpoints of 105 MB. A save, in both formats, is compared with
// torch.save (with the fsync that torch.save omits), a plain write with fsync,
// and a memcpy of the tensors. "hold" is the time for which a save in the
// background holds the loop. A load is compared with torch.load and a plain
// read of the cached file.

#include <bench/commands.h>
#include <bench/nets.h>
#include <bench/paired.h>
#include <bench/python_peer.h>

#include <ATen/ATen.h>
#include <ddp/checkpoint/checkpoint.h>
#include <ddp/checkpoint/checkpoint_manager.h>
#include <torch/nn/module.h>
#include <torch/utils.h>

#include <cstring>
#include <optional>

#include <fcntl.h>
#include <unistd.h>

namespace bench {
namespace {

class Checkpoints {
 public:
  explicit Checkpoints(const std::string& folder)
      : folder_(folder + "/"),
        net_(make_net("big100").module),
        parameters_(net_->parameters()),
        manager_(
            folder_ + "run",
            ddp::TrainingState().add("model", *net_),
            {},
            ddp::CheckpointManagerOptions().keep_last(1).asynchronous(true)) {
    for (const auto& parameter : parameters_) {
      copies_.push_back(at::zeros_like(parameter));
      buffer_.append(parameter.nbytes(), 'x');
    }
    PythonPeer::start(python_);
  }

  std::vector<Variant> saves() {
    std::vector<Variant> variants{
        timed("safetensors", [this] { save("ours.safetensors"); }),
        timed("pt", [this] { save("ours.pt"); }),
        {"hold", [this] { return hold(); }},
        timed("disk", [this] { write_plain(); }),
        timed("memcpy", [this] { copy(); })};
    add_python(variants, "save");
    return variants;
  }

  std::vector<Variant> loads() {
    std::vector<Variant> variants{
        timed("safetensors", [this] { load("ours.safetensors"); }),
        timed("pt", [this] { load("ours.pt"); }),
        timed("disk", [this] { transfer(O_RDONLY, ::read); })};
    add_python(variants, "load");
    return variants;
  }

 private:
  void add_python(std::vector<Variant>& variants, const std::string& command) {
    if (python_) {
      const auto line = command + " " + folder_ + "python.pt";
      variants.push_back(
          {"python", [this, line] { return python_->tell(line); }});
    }
  }

  void save(const std::string& name) {
    ddp::save_checkpoint(folder_ + name, *net_);
  }

  void load(const std::string& name) {
    ddp::load_checkpoint(folder_ + name, *net_);
  }

  double hold() {
    const auto seconds = seconds_of([this] { manager_.save(++step_); });
    manager_.wait();
    return seconds;
  }

  void copy() {
    torch::NoGradGuard no_grad;
    for (size_t i = 0; i < copies_.size(); ++i) {
      std::memcpy(
          copies_[i].data_ptr(),
          parameters_[i].const_data_ptr(),
          parameters_[i].nbytes());
    }
  }

  void write_plain() {
    unlink((folder_ + "plain").c_str()); // checkpoints are new files too
    transfer(O_WRONLY | O_CREAT, ::write);
  }

  /// Calls `read` or `write` until the whole buffer is transferred.
  template <typename Call>
  void transfer(int flags, Call call) {
    const auto path = folder_ + "plain";
    const int file = open(path.c_str(), flags, 0600);
    for (size_t done = 0; done < buffer_.size();) {
      const auto part =
          call(file, buffer_.data() + done, buffer_.size() - done);
      TORCH_CHECK(part > 0, "cannot read or write ", path);
      done += static_cast<size_t>(part);
    }
    if (flags != O_RDONLY) {
      fsync(file);
    }
    close(file);
  }

  std::string folder_;
  std::shared_ptr<torch::nn::Module> net_;
  std::vector<at::Tensor> parameters_;
  ddp::CheckpointManager manager_;
  int64_t step_ = 0;
  std::vector<at::Tensor> copies_;
  std::string buffer_;
  std::optional<PythonPeer> python_;
};

void measure(
    const std::string& prefix,
    std::vector<Variant> variants,
    double seconds) {
  run_in_turns(variants, rounds_within(seconds, variants));
  for (const auto& variant : variants) {
    if (variant.name != "disk" && variant.name != "memcpy") {
      print(result_of(prefix + variant.name, variant, variants));
    }
  }
}

} // namespace

void measure_checkpoints(const Arguments& arguments) {
  const auto seconds = std::stod(arguments.at(0)) / 2;
  Checkpoints checkpoints(arguments.at(1));
  measure("save_", checkpoints.saves(), seconds);
  measure("load_", checkpoints.loads(), seconds);
}

} // namespace bench
