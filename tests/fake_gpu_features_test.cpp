// Features around the Reducer on a fake GPU (support/fake_gpu.h).

#include <tests/support/fake_gpu.h>
#include <tests/support/sharded.h>

#include <ddp/ddp.h>

namespace ddp::test::fake_gpu_features_test {

FAKE_GPU_TEST("a device without an index is the current one") {
  const auto handed =
      ProcessGroup::from_c10d(gpu_group.c10d(), c10::kPrivateUse1);
  REQUIRE(handed.device() == fake_gpu::kDevice);
}

FAKE_GPU_TEST("tensors on a device are scattered and gathered bit for bit") {
  torch::manual_seed(4);
  const auto complex = torch::view_as_complex(torch::randn({7, 3, 2}));
  for (const auto& values : {torch::randn({7, 2}), complex, complex.conj()}) {
    const auto on_device = values.to(fake_gpu::kDevice);
    const auto share = scatter(on_device, gpu_group, 1);
    const auto expected = values.tensor_split(group.size())[group.rank()];
    REQUIRE(share.device() == fake_gpu::kDevice);
    REQUIRE(torch::equal(fake_gpu::on_cpu(share), expected));
    for (const int64_t destination : {int64_t{2}, kAllRanks}) {
      const auto joined = gather(share, gpu_group, destination);
      const bool gets = destination == kAllRanks || group.rank() == destination;
      REQUIRE(joined.defined() == gets);
      if (gets) {
        REQUIRE(joined.device() == fake_gpu::kDevice);
        REQUIRE(torch::equal(fake_gpu::on_cpu(joined), values));
      }
    }
  }
}

/// Trains a wrapped net on the group's device, and returns its statistics.
Statistics statistics_of(const ProcessGroup& group) {
  const auto net = start_net();
  net->to(group.device());
  DistributedDataParallel<UnevenNet> model(
      net, group, ReducerOptions().sample_rate(4));
  for (int64_t step = 1; step <= 13; ++step) {
    const auto input = batch(group, step, 7).to(group.device());
    model->forward(input).sum().backward();
  }
  return model->reducer().statistics();
}

FAKE_GPU_TEST("statistics of a training on a device are recorded") {
  const auto own = statistics_of(gpu_group);
  const auto on_cpu = statistics_of(group);
  REQUIRE(own.iteration == 13);
  REQUIRE(own.num_timed == 11); // the first ten steps, and the twelfth
  REQUIRE(own.num_parameter_tensors == on_cpu.num_parameter_tensors);
  REQUIRE(own.total_parameter_size_bytes == on_cpu.total_parameter_size_bytes);
  REQUIRE(own.bucket_sizes == on_cpu.bucket_sizes);
  REQUIRE(own.has_rebuilt_buckets);
  REQUIRE(own.rebuilt_bucket_sizes == on_cpu.rebuilt_bucket_sizes);
  REQUIRE(own.comm_hook == on_cpu.comm_hook);
  REQUIRE(own.unused_parameter_size == 0);
  REQUIRE(own.forward_compute_time->count() >= 1);
  REQUIRE(own.avg_forward_compute_time->count() >= 1);
  REQUIRE(own.backward_compute_time.count() >= 1);
  REQUIRE(own.backward_comm_time.count() >= 1);
  REQUIRE(own.avg_backward_compute_time.count() >= 1);
  REQUIRE(own.avg_backward_comm_time.count() >= 1);
  REQUIRE(own.backward_compute_time >= own.backward_compute_comm_overlap_time);
}

FAKE_GPU_TEST("ranks without inputs step their shards on a device along") {
  const auto own = join_with_shards(gpu_group)->parameters();
  const auto on_cpu = join_with_shards(group)->parameters();
  for (size_t i = 0; i < on_cpu.size(); ++i) {
    INFO("parameter " << i);
    REQUIRE(own[i].device() == fake_gpu::kDevice);
    REQUIRE(torch::equal(fake_gpu::on_cpu(own[i]), on_cpu[i]));
  }
}

TEST_CASE("detail: a CPU's tensor on one rank and a GPU's on another differ") {
  const auto environment =
      std::map<std::string, std::string>{{"DDP_DEBUG", "detail"}};
  const auto options = RankOptions().environment(environment);
  ranks(3, options, [] {
    const auto group = init_process_group();
    fake_gpu::install();
    const auto gpu_group = fake_gpu::group_of(group);
    const auto device =
        group.rank() == 1 ? c10::Device(c10::kCPU) : fake_gpu::kDevice;
    const auto tensor = torch::ones({4}, device);
    REQUIRE_THAT(
        error_of<c10::ValueError>([&] { gpu_group.all_reduce(tensor); }),
        Has("ranks 0 and 2: all_reduce(SUM) of fake_gpu float32 [4]\n",
            "rank 1: all_reduce(SUM) of float32 [4]\n"));
    const auto sum = torch::ones({4});
    gpu_group.all_reduce(sum);
    REQUIRE(sum[0].item<float>() == 3);
  });
}

} // namespace ddp::test::fake_gpu_features_test
