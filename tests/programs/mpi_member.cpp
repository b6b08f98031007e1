// A program that uses MPI itself. Arguments: an action, a backend, and the port
// where those that learn meet.
//   later  initialises MPI after the group has formed
//   first  initialises MPI before
//   learn  half of the ranks make data, the other half trains on it
//   share  two Reducers share each backward, without MPI's support of threads
//   late   rank 0 comes late to collectives, without MPI's support of threads
//   split  leaves MPI to ddp, and splits the group
//   stop   finalises MPI while a StopSignal's exchange is under way
//   absent all ranks make a group, the last one too late
//   wrong  hands over an invalid communicator

#include <ddp/ddp.h>
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <mpi.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

void check(bool holds, const char* what) {
  TORCH_CHECK(holds, "check failed: ", what);
}

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

void initialize(int level = MPI_THREAD_MULTIPLE) {
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, level, &provided);
}

int sum_over_mpi() {
  const int rank = world_rank();
  int sum = 0;
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  return sum;
}

void sum_over_ddp(const ddp::ProcessGroup& group) {
  auto sum = torch::full({2}, static_cast<double>(group.rank()));
  group.all_reduce(sum);
  std::printf(
      "rank %d of %d, local %d of %d, %s, sum %g\n",
      static_cast<int>(group.rank()),
      static_cast<int>(group.size()),
      static_cast<int>(group.local_rank()),
      static_cast<int>(group.local_size()),
      group.backend().c_str(),
      sum[0].item<double>());
}

constexpr int kSteps = 5;
constexpr int kValues = 4;

/// Even ranks act: each sends numbers to its learner, the odd rank after it.
void act() {
  for (int step = 0; step < kSteps; ++step) {
    const auto sample = torch::full({kValues}, 1.0F + world_rank() + step);
    MPI_Send(
        sample.const_data_ptr(),
        kValues,
        MPI_FLOAT,
        world_rank() + 1,
        step,
        MPI_COMM_WORLD);
  }
}

/// Odd ranks learn together from the numbers that their actors send.
void learn(const ddp::ProcessGroup& group) {
  ddp::manual_seed(3, group);
  torch::nn::Linear net(kValues, 1);
  const ddp::Reducer reducer(net, group);
  for (int step = 0; step < kSteps; ++step) {
    auto sample = torch::empty({kValues});
    MPI_Recv(
        sample.mutable_data_ptr(),
        kValues,
        MPI_FLOAT,
        world_rank() - 1,
        step,
        MPI_COMM_WORLD,
        MPI_STATUS_IGNORE);
    net->zero_grad();
    net->forward(sample).backward();
    // The learners' actors are 0, 2, 4...: their mean is size - 1.
    const double mean = step + static_cast<double>(group.size());
    const auto expected = torch::full({1, kValues}, mean);
    check(net->weight.grad().allclose(expected), "mean gradients");
  }
  sum_over_ddp(group);
}

void run_learning(const ddp::ProcessGroupOptions& options) {
  const bool learner = world_rank() % 2 == 1;
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, learner, world_rank(), &half);
  if (learner) {
    const auto group = ddp::ProcessGroup::from_mpi(half, options);
    MPI_Comm_free(&half); // ddp has its own
    if (options.master_port()) { // where their store is, or this throws
      c10d::TCPStoreOptions place;
      place.port = static_cast<std::uint16_t>(*options.master_port());
      place.timeout = std::chrono::seconds(5);
      const c10d::TCPStore probe(options.master_addr(), place);
    }
    learn(group);
  } else {
    act();
    MPI_Comm_free(&half);
  }
  check(sum_over_mpi() == world_size() * (world_size() - 1) / 2, "the world");
}

/// A program's own sum of scaled gradients.
struct SumHook : ddp::CommHook {
  bool takes_scaled_gradients() const override {
    return true;
  }
  c10::intrusive_ptr<c10::ivalue::Future> run(
      const ddp::GradBucket& bucket,
      const ddp::ProcessGroup& group) override {
    std::vector<at::Tensor> tensors{bucket.buffer};
    return group.c10d()->allreduce(tensors)->getFuture();
  }
};

/// Half of the ranks reach the one Reducer's parameters first, half the
/// other's.
void share_backwards(const ddp::ProcessGroup& group, bool with_hooks) {
  torch::nn::Linear one(kValues, 1);
  torch::nn::Linear other(kValues, 1);
  const auto options = [&] {
    return ddp::ReducerOptions().comm_hook(
        with_hooks ? std::make_shared<SumHook>() : nullptr);
  };
  const ddp::Reducer its_reducer(one, group, options());
  const ddp::Reducer other_reducer(other, group.duplicate(), options());
  const bool swapped = group.rank() % 2 == 1;
  for (int step = 0; step < kSteps; ++step) {
    one->zero_grad();
    other->zero_grad();
    const auto sample = torch::full({kValues}, 1.0F + world_rank());
    const auto earlier = (swapped ? other : one)->forward(sample);
    const auto later = (swapped ? one : other)->forward(sample);
    (earlier + later).backward();
    const double mean = (1.0 + static_cast<double>(group.size())) / 2;
    const auto expected = torch::full({1, kValues}, mean);
    check(one->weight.grad().allclose(expected), "one net's gradients");
    check(other->weight.grad().allclose(expected), "the other's gradients");
  }
}

void run_sharing(const ddp::ProcessGroupOptions& options) {
  const auto group = ddp::ProcessGroup::from_mpi(MPI_COMM_WORLD, options);
  ddp::manual_seed(3, group);
  share_backwards(group, /*with_hooks=*/false);
  share_backwards(group, /*with_hooks=*/true);
  sum_over_ddp(group);
}

/// Prints warnings, and sets `key` once there is one.
class Teller : c10::WarningHandler {
 public:
  Teller(c10::intrusive_ptr<c10d::Store> store, std::string key)
      : store_(std::move(store)), key_(std::move(key)), guard_(this) {}

  void process(const c10::Warning& warning) override {
    c10::WarningHandler::process(warning);
    store_->set(key_, "");
  }

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  std::string key_;
  c10::WarningUtils::WarningHandlerGuard guard_;
};

/// Rank 0 makes `call` once another rank has told of its wait.
void come_late(
    const ddp::ProcessGroup& group,
    const std::string& key,
    const std::function<void()>& call) {
  const auto store = group.store();
  const Teller teller(store, key);
  if (group.rank() == 0) {
    store->wait({key});
  }
  call();
}

void run_late(const ddp::ProcessGroupOptions& options) {
  const auto group = ddp::ProcessGroup::from_mpi(MPI_COMM_WORLD, options);
  come_late(group, "barrier", [&] { group.barrier(); });
  const auto rows = torch::nn::EmbeddingOptions(2, kValues).sparse(true);
  torch::nn::Sequential net(
      torch::nn::Embedding(rows), torch::nn::Linear(kValues, 1));
  const ddp::Reducer reducer(net, group);
  come_late(group, "backward", [&] {
    net->forward(torch::zeros({3}, torch::kLong)).sum().backward();
  });
  // Rank 0 starts when another rank's call has returned.
  const auto store = group.store();
  if (group.rank() == 0) {
    store->wait({"started"});
  }
  auto sum = torch::ones({2});
  auto work = group.all_reduce_async(sum);
  if (group.rank() == 1) {
    store->set("started", "");
  }
  work.wait();
  check(sum.eq(group.size()).all().item<bool>(), "the sum");
  sum_over_ddp(group);
}

double sum_over(const ddp::ProcessGroup& group, double value) {
  auto sum = torch::full({3}, value);
  group.all_reduce(sum);
  return sum[1].item<double>();
}

void run_splitting(const ddp::ProcessGroup& world) {
  const auto rank = world.rank();
  const auto value = static_cast<double>(rank);
  const auto half = world.split(rank / 2, -rank);
  check(half.backend() == "mpi", "a part's backend");
  check(half.rank() == 1 - rank % 2, "a part's order");
  check(sum_over(half, value) == (rank < 2 ? 1 : 5), "a part's sum");
  const auto three = world.duplicate().split(rank == 3 ? -1 : 0);
  check(three.size() == (rank == 3 ? 1 : 3), "a part's size");
  check(sum_over(three, value) == 3, "a part without one rank");
  const auto nested = three.split(rank == 1 ? 1 : 2, -rank);
  const std::vector<double> sums{2, 1, 2, 3};
  check(sum_over(nested, value) == sums[rank], "a part's part");
  torch::nn::Linear net(2, 1);
  const ddp::Reducer reducer(net, half);
  net->forward(torch::full({2}, static_cast<float>(rank))).backward();
  const auto mean = torch::full({1, 2}, rank < 2 ? 0.5 : 2.5);
  check(net->weight.grad().equal(mean), "a part's mean gradients");
  sum_over_ddp(world);
}

void run_stopping(const ddp::ProcessGroupOptions& options) {
  const auto group = ddp::ProcessGroup::from_mpi(MPI_COMM_WORLD, options);
  ddp::StopSignal stop(group);
  sum_over_ddp(group);
  for (int step = 0; step < kSteps; ++step) {
    check(!stop.requested(), "no signal");
  }
  MPI_Finalize();
}

/// Each rank is its own MPI world and a group of one. Rank 1 fails.
void run_alone(const ddp::ProcessGroupOptions& options) {
  const auto group = ddp::init_process_group(options);
  initialize();
  const auto self = ddp::ProcessGroup::from_mpi(MPI_COMM_SELF, options);
  check(self.size() == 1, "a group of one");
  if (group.rank() == 1) {
    throw std::runtime_error("no data on this rank");
  }
  group.barrier();
}

void run_without_last(const ddp::ProcessGroupOptions& options) {
  const int last = world_size() - 1;
  int word = 0;
  const auto come = [&] {
    try {
      ddp::ProcessGroup::from_mpi(MPI_COMM_WORLD, options);
    } catch (const c10::DistBackendError& error) {
      std::printf("%s\n", error.what_without_backtrace());
      std::fflush(stdout);
    }
  };
  if (world_rank() < last) {
    come();
    MPI_Send(&word, 1, MPI_INT, last, 0, MPI_COMM_WORLD);
    MPI_Recv(&word, 1, MPI_INT, last, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return; // not reached: the last rank ends all
  }
  for (int rank = 0; rank < last; ++rank) {
    MPI_Recv(&word, 1, MPI_INT, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  come(); // too late
  MPI_Abort(MPI_COMM_WORLD, 7); // no rank waits for the others' operation
}

} // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "first";
  ddp::ProcessGroupOptions options;
  options.device(torch::kCPU);
  if (argc > 2) {
    options.backend(argv[2]);
  }
  if (argc > 3) {
    options.master_addr("127.0.0.1").master_port(std::stoi(argv[3]));
  }
  if (mode == "later") {
    const auto group = ddp::init_process_group(options);
    initialize();
    std::printf("over MPI %d\n", sum_over_mpi());
    sum_over_ddp(group);
  } else if (mode == "first") {
    initialize();
    const auto group = ddp::init_process_group(options);
    std::printf("over MPI %d\n", sum_over_mpi());
    sum_over_ddp(group);
  } else if (mode == "split") {
    run_splitting(ddp::init_process_group(options));
    return 0;
  } else if (mode == "stop") {
    initialize(MPI_THREAD_SINGLE);
    run_stopping(options);
    return 0;
  } else if (mode == "learn") {
    initialize();
    run_learning(options);
  } else if (mode == "share") {
    initialize(MPI_THREAD_SINGLE);
    run_sharing(options.timeout(std::chrono::seconds(20)));
  } else if (mode == "late") {
    initialize(MPI_THREAD_SINGLE);
    run_late(options.timeout(std::chrono::seconds(20))
                 .wait_notice(std::chrono::seconds(1)));
  } else if (mode == "alone") {
    run_alone(options);
  } else if (mode == "absent") {
    initialize();
    run_without_last(options.timeout(std::chrono::seconds(3)));
  } else {
    initialize();
    ddp::ProcessGroup::from_mpi('x', options);
  }
  MPI_Finalize();
}
