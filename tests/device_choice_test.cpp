#include <ddp/environment/environment.h>
#include <ddp/init/device_choice.h>
#include <tests/support/ranks.h>

namespace ddp::test::device_choice_test {

ProcessGroupOptions complete(ProcessGroupOptions options = {}) {
  return complete_options(
      std::move(options), [](const char*) { return std::nullopt; });
}

DeviceChoice choose(
    const std::vector<RankInfo>& members,
    int64_t rank,
    ProcessGroupOptions options = {}) {
  return choose_device(complete(std::move(options)), members, rank);
}

const RankInfo kTwoGpus{"a", {"01", "02"}, ""};
const RankInfo kOneGpu{"a", {"01"}, ""};
const RankInfo kNoGpu{"a", {}, "no driver"};

RankInfo uses(RankInfo member, int64_t gpu) {
  member.gpu = gpu;
  return member;
}

TEST_CASE("ranks on hosts with enough GPUs take one each") {
  const std::vector<RankInfo> members{
      kTwoGpus, kTwoGpus, {"b", {"01", "02"}, ""}, {"b", {"01", "02"}, ""}};
  for (int rank = 0; rank < 4; ++rank) {
    const auto choice = choose(members, rank);
    REQUIRE(choice.backend == "nccl");
    REQUIRE(choice.device == c10::Device(c10::kCUDA, rank % 2));
    REQUIRE(choice.note.empty());
  }
}

TEST_CASE("one GPU for two ranks, or a host without, means the CPU on all") {
  const RankInfo too_old{"b", {}, "driver too old"};
  const RankInfo elsewhere{"b", {}, ""};
  struct Case {
    std::vector<RankInfo> members;
    std::string backend, note;
  };
  const std::vector<Case> cases{
      {{kOneGpu, kOneGpu}, "shm", "2 ranks share a host with 1 usable GPU"},
      {{kOneGpu, too_old}, "gloo", "rank 1 has no usable GPU: driver too old"},
      {{elsewhere, elsewhere}, "shm", ""}};
  for (const auto& [members, backend, note] : cases) {
    for (int rank = 0; rank < 2; ++rank) {
      const auto choice = choose(members, rank);
      REQUIRE(choice.backend == backend);
      REQUIRE(choice.device.is_cpu());
      REQUIRE_THAT(choice.note, Has(note));
      REQUIRE(choice.note.empty() == note.empty());
    }
  }
}

TEST_CASE("on the CPU the hosts decide how ranks communicate") {
  using Options = ProcessGroupOptions;
  const RankInfo a{"a", {}, ""};
  const RankInfo b{"b", {}, ""};
  auto old = b; // as `unable`, on another host
  old.shm_note = "the kernel is old";
  auto unable = kNoGpu;
  unable.shm_note = "it cannot";
  const auto on_cpu = Options().device(torch::kCPU);
  for (const auto& options :
       {Options(), on_cpu, Options(on_cpu).backend("auto")}) {
    REQUIRE(choose({a, a}, 1, options).backend == "shm");
    REQUIRE(choose({a, b, a}, 1, options).backend == "hierarchical");
    REQUIRE(choose({a, b}, 0, options).backend == "gloo");
    REQUIRE(choose({a}, 0, options).backend == "gloo");
    REQUIRE(choose({a, old, a}, 0, options).backend == "gloo");
    REQUIRE(choose({a, unable}, 0, options).backend == "gloo");
  }
  const std::vector<RankInfo> with_gpus{kTwoGpus, kTwoGpus};
  REQUIRE(choose(with_gpus, 1, on_cpu).backend == "shm");
  REQUIRE(choose({a, a, b}, 0, Options().backend("gloo")).backend == "gloo");
  for (const char* backend : {"shm", "hierarchical"}) {
    const auto options = Options().backend(backend);
    REQUIRE(choose({a, a}, 0, options).backend == backend);
    REQUIRE(choose(with_gpus, 1, options).backend == backend);
    REQUIRE(choose(with_gpus, 1, options).device.is_cpu());
    REQUIRE_THROWS_WITH(
        choose({kTwoGpus}, 0, Options(options).device(torch::kCUDA)),
        Has(std::string("backend ") + backend + " supports only CPU tensors"));
  }
  const auto shm = Options().backend("shm");
  REQUIRE_THROWS_WITH(
      choose({a, old}, 0, Options().backend("hierarchical")),
      Has("backend hierarchical was requested, but on rank 1 the kernel is "
          "old"));
  REQUIRE_THROWS_WITH(
      choose({kNoGpu, b}, 0, shm),
      Has("rank 1 runs on another host than rank 0"));
  REQUIRE_THROWS_WITH(
      choose({kNoGpu, unable}, 0, shm),
      Has("on rank 1 it cannot. Backend gloo needs no"));
}

TEST_CASE("a scheduler that shows each rank one GPU of its own is understood") {
  const std::vector<RankInfo> members{{"a", {"01"}, ""}, {"a", {"02"}, ""}};
  REQUIRE(choose(members, 1).device == c10::Device(c10::kCUDA, 0));
}

TEST_CASE("a scheduler that shows each rank several GPUs is understood") {
  const RankInfo last{"a", {"05", "06"}, ""};
  const std::vector<RankInfo> members{
      kTwoGpus, {"a", {"03", "04"}, ""}, last, last, {"b", {"01", "02"}, ""}};
  const std::vector<c10::DeviceIndex> expected{0, 1, 0, 1, 0};
  for (int rank = 0; rank < 5; ++rank) {
    const auto choice = choose(members, rank);
    REQUIRE(choice.backend == "nccl");
    REQUIRE(choice.device == c10::Device(c10::kCUDA, expected[rank]));
  }
  // Neighbouring ranks on different sockets.
  for (int rank = 0; rank < 4; ++rank) {
    const auto choice = choose({kTwoGpus, last, kTwoGpus, last}, rank);
    REQUIRE(choice.device == c10::Device(c10::kCUDA, rank / 2));
  }
}

TEST_CASE("all ranks throw if one of them does not have its GPU") {
  const RankInfo few{"b", {"01", "02"}, ""};
  struct Case {
    std::vector<RankInfo> members;
    bool shares;
    std::string text;
  };
  const std::vector<Case> cases{
      {{kTwoGpus, kTwoGpus, few, few, few},
       false,
       "rank 4 needs GPU 2, but has 2 usable GPUs"},
      {{uses(kTwoGpus, 0), kTwoGpus, uses(few, 5)},
       false,
       "device cuda:5 was requested on rank 2, which has 2 usable GPUs"},
      {{uses(kTwoGpus, 0), uses(kTwoGpus, 0), {"b", {}, "no driver"}},
       true,
       "rank 2 needs GPU 0, but has 0 usable GPUs: no driver"}};
  for (const auto& [members, shares, text] : cases) {
    const auto options =
        ProcessGroupOptions().device(torch::kCUDA).share_gpus(shares);
    for (size_t rank = 0; rank < members.size(); ++rank) {
      REQUIRE_THROWS_WITH(
          choose(members, static_cast<int64_t>(rank), options), Has(text));
    }
  }
}

TEST_CASE("what the program asks for is taken or refused, never changed") {
  using Options = ProcessGroupOptions;
  REQUIRE(choose({kTwoGpus}, 0, Options().backend("gloo")).device.is_cpu());
  REQUIRE(
      choose({kTwoGpus}, 0, Options().device(torch::kCPU)).backend == "gloo");
  const std::vector<RankInfo> told{uses(kTwoGpus, 1), uses(kTwoGpus, 0)};
  const auto choice = choose(told, 1, Options().device(at::Device("cuda:0")));
  REQUIRE(choice.backend == "nccl");
  REQUIRE(choice.device == at::Device("cuda:0"));
  REQUIRE(choose({kTwoGpus}, 0, Options().backend("mpi")).device.is_cpu());
  const auto mpi = Options().backend("mpi").device(torch::kCUDA);
  REQUIRE(choose({kTwoGpus, kTwoGpus}, 1, mpi).backend == "mpi");
  REQUIRE(choose({kTwoGpus, kTwoGpus}, 1, mpi).device == at::Device("cuda:1"));
  REQUIRE_THROWS_WITH(
      choose({kOneGpu, kOneGpu}, 0, Options().backend("nccl")),
      Has("backend nccl was requested, but 2 ranks share a host with 1 usable "
          "GPU. Start at most one rank per GPU, or use backend gloo"));
  REQUIRE_THROWS_WITH(
      choose({kNoGpu}, 0, Options().backend("nccl")),
      Has("no driver. Start this rank on a host with a GPU, or use backend "
          "gloo"));
  REQUIRE_THROWS_WITH(
      choose({kNoGpu}, 0, Options().device(torch::kCUDA)), Has("no driver"));
  REQUIRE_THROWS_AS(
      choose({kTwoGpus}, 0, Options().backend("nccl").device(torch::kCPU)),
      c10::ValueError);
}

TEST_CASE("two ranks of one host do not take one GPU unless they may") {
  using Options = ProcessGroupOptions;
  const RankInfo elsewhere{"b", {"01", "02"}, ""};
  // By index or, if a scheduler renumbers the GPUs of each rank, by address.
  const std::vector<std::vector<RankInfo>> cases{
      {uses(elsewhere, 0), uses(kTwoGpus, 1), uses(kTwoGpus, 1)},
      {uses(elsewhere, 1),
       uses(kTwoGpus, 1),
       uses({"a", {"02", "01"}, ""}, 0)}};
  const auto device = Options().device(torch::kCUDA);
  for (const auto& members : cases) {
    for (int rank = 0; rank < 3; ++rank) { // all throw
      REQUIRE_THROWS_WITH(
          choose(members, rank, device),
          Has("ranks 1 and 2 on the same host use GPU 02", "share_gpus(true)"));
    }
    auto allowed = device;
    allowed.share_gpus(true);
    REQUIRE(choose(members, 2, allowed).backend == "gloo");
    REQUIRE(choose(members, 2, allowed.backend("nccl")).backend == "nccl");
  }
  // Without a device, ranks do not share a GPU unless this is allowed.
  const std::vector<RankInfo> three{kTwoGpus, kTwoGpus, kTwoGpus};
  REQUIRE(choose(three, 2).device.is_cpu());
  for (int rank = 0; rank < 3; ++rank) {
    const auto choice = choose(three, rank, Options().share_gpus(true));
    REQUIRE(choice.device == c10::Device(c10::kCUDA, rank % 2));
    REQUIRE(choice.backend == "gloo");
  }
  REQUIRE(
      choose({kTwoGpus, kTwoGpus}, 1, Options().share_gpus(true)).backend ==
      "nccl");
  REQUIRE(choose({kNoGpu, kTwoGpus}, 1, Options().share_gpus(true))
              .device.is_cpu());
}

TEST_CASE("a LOCAL_RANK that counts the ranks of other hosts is told") {
  std::vector<RankInfo> members{kTwoGpus, kTwoGpus};
  members[1].local_rank = 3;
  REQUIRE_THAT(
      choose(members, 1).note,
      Has("training on the CPU, because LOCAL_RANK is 3 on rank 1, whose host "
          "has 2 ranks"));
}

TEST_CASE("local ranks are found by comparing hosts") {
  std::vector<RankInfo> members{
      {"a", {}, ""}, {"b", {}, ""}, {"a", {}, ""}, {"b", {}, ""}};
  const auto place = local_position(members, 3);
  REQUIRE(place.rank == 1);
  REQUIRE(place.size == 2);
  members[3].local_rank = 7; // set by the launcher
  REQUIRE(local_position(members, 3).rank == 7);
}

TEST_CASE("real processes agree on the CPU and say so once") {
  // A CUDA runtime that claims one GPU, or a driver that is too old; without
  // CUDA in the build the reason is another one.
  const char* library = std::getenv("DDP_FAKE_CUDA");
  const bool cuda = library && *library;
  // The dynamic linker splits LD_PRELOAD at spaces, which a path may have.
  const TemporaryFolder folder;
  const auto fake = folder / "fake_cuda.so";
  if (cuda) {
    std::filesystem::create_symlink(library, fake);
  }
  const std::map<std::string, std::string> reasons{
      {"1", "2 ranks share a host with 1 usable GPU"},
      {"old", "driver version is insufficient"}};
  for (const auto& [kind, reason] : reasons) {
    const auto outcomes = ranks(
        2,
        RankOptions().environment(
            {{"LD_PRELOAD", cuda ? fake : ""},
             {"DDP_FAKE_GPUS", kind},
             {"DDP_BACKEND", ""},
             {"DDP_DEVICE", ""}}),
        [] {
          const auto group = init_process_group();
          REQUIRE(group.device().is_cpu());
          REQUIRE(group.backend() == "shm");
        });
    if (outcomes.empty()) {
      continue; // a rank of another call
    }
    const auto output = outcomes[0].output + outcomes[1].output;
    const std::string expected =
        cuda ? reason : "this build of ddp has no CUDA";
    INFO(output);
    const auto first = output.find(expected);
    REQUIRE(first != std::string::npos);
    REQUIRE(output.find(expected, first + 1) == std::string::npos);
  }
}

} // namespace ddp::test::device_choice_test
