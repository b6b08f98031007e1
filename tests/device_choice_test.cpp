#include <tests/support/catch.h>

#include <ddp/device_choice.h>
#include <ddp/environment.h>
#include <tests/support/ranks.h>

#include <cstdlib>
#include <filesystem>

using ddp::Member;
using ddp::ProcessGroupOptions;

namespace {

ProcessGroupOptions complete(ProcessGroupOptions options = {}) {
  return ddp::complete_options(
      std::move(options), [](const char*) { return std::nullopt; });
}

ddp::DeviceChoice choose(
    const std::vector<Member>& members,
    int64_t rank,
    ProcessGroupOptions options = {}) {
  return ddp::choose_device(
      complete(std::move(options)), members, rank, std::nullopt);
}

const Member kTwoGpus{"a", {"01", "02"}, ""};
const Member kOneGpu{"a", {"01"}, ""};
const Member kNoGpu{"a", {}, "no driver"};

} // namespace

TEST_CASE("ranks on hosts with enough GPUs take one each") {
  const std::vector<Member> members{
      kTwoGpus, kTwoGpus, {"b", {"01", "02"}, ""}, {"b", {"01", "02"}, ""}};
  for (int rank = 0; rank < 4; ++rank) {
    const auto choice = choose(members, rank);
    REQUIRE(choice.backend == "nccl");
    REQUIRE(choice.device == c10::Device(c10::kCUDA, rank % 2));
    REQUIRE(choice.note.empty());
  }
}

TEST_CASE("one GPU for two ranks means the CPU on all") {
  for (int rank = 0; rank < 2; ++rank) {
    const auto choice = choose({kOneGpu, kOneGpu}, rank);
    REQUIRE(choice.backend == "gloo");
    REQUIRE(choice.device.is_cpu());
    REQUIRE_THAT(
        choice.note,
        ContainsSubstring("2 ranks share a host with 1 usable GPU"));
  }
}

TEST_CASE("one host without GPUs means the CPU on all") {
  const std::vector<Member> members{kOneGpu, {"b", {}, "driver too old"}};
  for (int rank = 0; rank < 2; ++rank) {
    const auto choice = choose(members, rank);
    REQUIRE(choice.device.is_cpu());
    REQUIRE_THAT(
        choice.note,
        ContainsSubstring("rank 1 has no usable GPU: driver too old"));
  }
}

TEST_CASE("a scheduler that shows each rank one GPU of its own is understood") {
  const std::vector<Member> members{{"a", {"01"}, ""}, {"a", {"02"}, ""}};
  REQUIRE(choose(members, 1).device == c10::Device(c10::kCUDA, 0));
}

TEST_CASE("what the program asks for is taken or refused, never changed") {
  using Options = ProcessGroupOptions;
  REQUIRE(choose({kTwoGpus}, 0, Options().backend("gloo")).device.is_cpu());
  REQUIRE(
      choose({kTwoGpus}, 0, Options().device(torch::kCPU)).backend == "gloo");
  REQUIRE(
      choose({kOneGpu, kOneGpu}, 1, Options().device(at::Device("cuda:0")))
          .backend == "nccl");
  REQUIRE_THROWS_WITH(
      choose({kOneGpu, kOneGpu}, 0, Options().backend("nccl")),
      ContainsSubstring("backend nccl was asked for, but"));
  REQUIRE_THROWS_WITH(
      choose({kNoGpu}, 0, Options().device(torch::kCUDA)),
      ContainsSubstring("no driver"));
  REQUIRE_THROWS_AS(
      choose({kTwoGpus}, 0, Options().backend("nccl").device(torch::kCPU)),
      c10::ValueError);
}

TEST_CASE("local ranks are found by comparing hosts") {
  const std::vector<Member> members{
      {"a", {}, ""}, {"b", {}, ""}, {"a", {}, ""}, {"b", {}, ""}};
  const auto place = ddp::local_place(members, 3, std::nullopt);
  REQUIRE(place.rank == 1);
  REQUIRE(place.size == 2);
  REQUIRE(ddp::local_place(members, 3, 7).rank == 7);
}

TEST_CASE("real processes agree on the CPU and say so once") {
  // A CUDA runtime that claims one GPU, or a driver that is too old; without
  // CUDA in the build the reason is another one.
  const char* library = std::getenv("DDP_FAKE_CUDA");
  const bool cuda = library && *library;
  // The dynamic linker splits LD_PRELOAD at spaces, which a path may have.
  const ddp::test::TemporaryFolder folder;
  const auto fake = folder / "fake_cuda.so";
  if (cuda) {
    std::filesystem::create_symlink(library, fake);
  }
  const std::map<std::string, std::string> reasons{
      {"1", "2 ranks share a host with 1 usable GPU"},
      {"old", "driver version is insufficient"}};
  for (const auto& [kind, reason] : reasons) {
    ddp::test::RankOptions options;
    options.environment = {
        {"LD_PRELOAD", cuda ? fake : ""},
        {"DDP_FAKE_GPUS", kind},
        {"DDP_BACKEND", ""},
        {"DDP_DEVICE", ""}};
    const auto outcomes = ddp::test::ranks(
        2,
        [] {
          const auto group = ddp::init_process_group();
          REQUIRE(group.device().is_cpu());
          REQUIRE(group.backend() == "gloo");
        },
        options);
    if (outcomes.empty()) {
      continue; // a rank, on its way to the call that it belongs to
    }
    std::string output;
    for (const auto& outcome : outcomes) {
      output += outcome.output;
    }
    const std::string expected =
        cuda ? reason : "this build of ddp has no CUDA";
    INFO(output);
    const auto first = output.find(expected);
    REQUIRE(first != std::string::npos);
    REQUIRE(output.find(expected, first + 1) == std::string::npos);
  }
}
