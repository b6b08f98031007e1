// Tensors of more than 2 GiB.
#include <tests/support/ranks.h>

namespace ddp::test::large_tensors_test {

/// Sends bytes and adds floats.
void check_large(const ProcessGroup& group) {
  {
    const auto bytes = torch::arange(251).to(torch::kByte);
    const auto expected = bytes.expand({8'600'000, 251});
    auto tensor = torch::zeros(expected.sizes(), torch::kByte);
    REQUIRE(tensor.nbytes() > size_t{1} << 31);
    if (group.rank() == 1) {
      tensor.copy_(expected);
    }
    group.broadcast(tensor, 1);
    REQUIRE(torch::equal(tensor, expected));
  }
  const auto numbers = torch::arange(251.0F).expand({2'150'000, 251});
  auto tensor = numbers.contiguous();
  REQUIRE(tensor.nbytes() > size_t{1} << 31);
  group.all_reduce(tensor);
  REQUIRE(torch::equal(tensor.div_(3), numbers));
}

TEST_CASE("tensors of more than 2 GiB are sent and added") {
  for (const char* backend : {"gloo", "shm"}) {
    ranks(3, RankOptions().timeout(std::chrono::minutes(5)), [backend] {
      check_large(init_process_group(ProcessGroupOptions().backend(backend)));
    });
  }
}

} // namespace ddp::test::large_tensors_test
