#include <bench/process_memory.h>
#include <tests/support/nets.h>
#include <tests/support/ranks.h>
#include <tests/support/values.h>

#include <ddp/ddp.h>

namespace ddp::test::collective_checkpoint_test {

RANKS_TEST("what rank 0 saves, every rank loads, wrapped or not") {
  const auto path = folder + "net.safetensors";
  torch::manual_seed(group.rank());
  auto net = std::make_shared<BranchNet>();
  DistributedDataParallel<BranchNet> model(net, group);
  // Other ranks' values differ: rank 0's are saved.
  if (group.rank() != 0) {
    torch::NoGradGuard no_grad;
    net->stem->weight.zero_();
  }
  save_checkpoint(path, *model, group);
  REQUIRE(std::filesystem::exists(path)); // on every rank, at once
  auto other = std::make_shared<BranchNet>();
  load_checkpoint(path, *other, group);
  torch::manual_seed(0);
  const BranchNet expected;
  REQUIRE(same_parameters(*other, expected));
  load_checkpoint(path, *model, group);
  REQUIRE(net->stem->weight.equal(expected.stem->weight));
}

RANKS_TEST("every rank learns what a load that is not strict left alone") {
  const auto path = folder + "net.safetensors";
  torch::manual_seed(1);
  auto net = std::make_shared<BranchNet>();
  save_checkpoint(path, *net, group);
  auto other = std::make_shared<BranchNet>();
  other->register_parameter("head", torch::full({2}, 1.0 * group.rank()));
  for (const bool every_rank_reads : {false, true}) {
    const auto keys = load_checkpoint(
        path,
        *other,
        group,
        LoadOptions().strict(false).every_rank_reads(every_rank_reads));
    REQUIRE(keys.missing_keys == std::vector<std::string>{"head"});
    REQUIRE(keys.unexpected_keys.empty());
    REQUIRE(other->stem->weight.equal(net->stem->weight));
    REQUIRE(other->named_parameters()["head"].eq(0).all().item<bool>());
  }
}

RANKS_TEST("paths that differ between ranks are told of") {
  const auto own = c10::str(folder, "net", group.rank(), ".pt");
  const auto first = folder + "net0.pt";
  auto net = std::make_shared<BranchNet>();
  TrainingState state;
  state.add("net", net);
  const auto reject = [&](const std::string& name, auto call) {
    REQUIRE_THAT(
        error_on_all(group, call),
        Has("made different calls: rank 0: " + name + "(\"",
            "net0.pt\"); rank 1: " + name + "(\"",
            "pass the same path"));
  };
  const auto warn = [&](const std::string& name, auto call) {
    const auto texts = warnings_of(call);
    REQUIRE(texts.size() == (group.rank() == 0 ? 1 : 0));
    for (const auto& text : texts) {
      REQUIRE_THAT(text, Has("made different calls: rank 0: " + name + "(\""));
    }
  };
  warn("save_checkpoint", [&] { save_checkpoint(own, *net, group); });
  load_checkpoint(first, *net, group); // rank 0 has written it
  reject("load_checkpoint", [&] { load_checkpoint(own, *net, group); });
  warn("TrainingState::save", [&] { state.save(own, group); });
  REQUIRE(state.load(first, group));
  reject("TrainingState::load", [&] { state.load(own, group); });
  REQUIRE(std::filesystem::exists(own) == (group.rank() == 0));
}

RANKS_TEST("loading into different modules is refused on all ranks") {
  const auto path = folder + "net.safetensors";
  auto net = std::make_shared<BranchNet>();
  save_checkpoint(path, *net, group);
  if (group.rank() == 2) {
    net->right = net->replace_module("right", torch::nn::Linear(8, 3));
  }
  REQUIRE_THROWS_WITH(
      load_checkpoint(path, *net, group),
      Has("on rank 2, parameter 4 is right.weight"));
}

RANKS_TEST("every rank throws rank 0's reason") {
  auto net = std::make_shared<BranchNet>();
  REQUIRE_THROWS_WITH(
      save_checkpoint(folder + "no/such/net.safetensors", *net, group),
      Has("No such file or directory"));
  REQUIRE_THROWS_WITH(
      load_checkpoint(folder + "none.safetensors", *net, group),
      Has("none.safetensors"));
  const auto path = folder + "short.safetensors";
  save_checkpoint(path, *net, group);
  group.barrier();
  if (group.rank() == 0) {
    std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  }
  group.barrier();
  const auto before = net->stem->weight.clone();
  REQUIRE_THROWS_WITH(load_checkpoint(path, *net, group), Has("truncated"));
  REQUIRE(net->stem->weight.equal(before));
}

/// The peak memory of each rank since the previous call, in MB.
std::vector<double> take_peaks(const ProcessGroup& group) {
  const auto peak = bench::memory_mib("status", "VmHWM:") * 1024 / 1e3;
  std::ofstream("/proc/self/clear_refs") << 5; // resets the peak
  std::vector<double> peaks;
  for (const auto& each : group.all_gather(std::to_string(peak))) {
    peaks.push_back(std::stod(each));
  }
  return peaks;
}

TEST_CASE("rank 0 needs no more memory than the others") {
  const SharedFolder folder;
  const auto path = folder.path + "net.safetensors";
  constexpr double kParameters = 8 * 2048 * 2049 * 4 / 1e6; // MB
  ranks(4, [&](ProcessGroup group) {
    // The smaller figure of two rounds counts: on a busy machine threads may
    // free memory of one phase only in the next.
    std::vector<double> ratios(4, 100);
    for (int round = 0; round < 2; ++round) {
      size_t phase = 0;
      const auto end_phase = [&] {
        auto peaks = take_peaks(group);
        const auto own = peaks[0];
        std::sort(peaks.begin(), peaks.end());
        REQUIRE(peaks[0] > 2 * kParameters); // and buckets
        const auto median = (peaks[1] + peaks[2]) / 2;
        ratios[phase] = std::min(ratios[phase], own / median);
        ++phase;
      };
      take_peaks(group);
      torch::nn::Sequential net;
      for (int layer = 0; layer < 8; ++layer) {
        net->push_back(torch::nn::Linear(2048, 2048));
      }
      Reducer reducer(net, group);
      end_phase();
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        net->forward(torch::ones({3, 2048})).mean().backward();
        optimizer.step();
      }
      end_phase();
      save_checkpoint(path, *net, group);
      end_phase();
      load_checkpoint(path, *net, group);
      end_phase();
    }
    for (const auto ratio : ratios) {
      CHECK(ratio <= 1.1);
    }
  });
}

} // namespace ddp::test::collective_checkpoint_test
