// Errors of the shm backend if a rank fails, leaves or differs.

#include <tests/support/backend_checks.h>
#include <tests/support/backend_waits.h>
#include <tests/support/child.h>
#include <tests/support/shm_backend.h>

#include <ATen/core/ivalue.h>
#include <ddp/init/backend_connection.h>
#include <ddp/process_group/process_group_impl.h>

#include <sys/resource.h>

namespace ddp::test::shm_failure_test {

using std::chrono::milliseconds;
using std::chrono::seconds;

SHM_TEST(
    "shared memory: where a rank does not come the others time out and end",
    4) {
  backend->setTimeout(milliseconds(1000));
  const auto rank = backend->getRank();
  if (rank != 2) {
    Tensors sums{torch::ones({3000})};
    const auto work = backend->allreduce(sums);
    // The first rank that times out reports it to the others.
    const auto error = error_after([&] { work->wait(); });
    REQUIRE_THAT(
        error,
        Has("all_reduce of 12000 bytes (operation 2 of its group) over shm "
            "on rank " +
                std::to_string(rank) + " of 4 failed: ",
            "timed out after 1 s, waiting for rank 2"));
    check_failed(*work, backend);
  }
  whole.barrier(); // other groups still work
}

TEST_CASE("shared memory: a rank that is killed is noticed within a second") {
  for (const int victim : {0, 2}) {
    ranks(4, RankOptions().exit_codes({{victim, 128 + SIGKILL}}), [victim] {
      const auto group = shm_group();
      const auto backend = backend_of(group);
      const auto large = in_shared_memory(backend, torch::ones({4 << 20}));
      for (int step = 0; step < 3; ++step) {
        Tensors tensors{large};
        backend->allreduce(tensors)->wait();
      }
      if (backend->getRank() == victim) {
        kill(getpid(), SIGKILL);
      }
      Tensors tensors{large};
      const auto error = error_after([&] {
        for (;;) {
          backend->allreduce(tensors)->wait();
        }
      });
      REQUIRE_THAT(error, Has("rank " + std::to_string(victim) + " (process"));
      REQUIRE_THAT(error, Has("has ended"));
    });
  }
}

TEST_CASE(
    "shared memory: a rank that is killed while a group is connected is "
    "noticed within seconds") {
  for (const int victim : {1, 2, 3}) {
    const auto options =
        RankOptions()
            .environment({{"DDP_DEBUG", victim == 3 ? "detail" : "off"}})
            .exit_codes({{victim, 128 + SIGKILL}});
    ranks(4, options, [victim] {
      const auto group = shm_group();
      if (group.rank() == victim) {
        // duplicate() has done this much before it connects.
        detail::wait_for_all_ranks(
            detail::ProcessGroupImpl::of(group), "duplicate");
        kill(getpid(), SIGKILL);
      }
      const auto error = error_after([&] { group.duplicate(); }, seconds(4));
      REQUIRE_THAT(
          error,
          Has("rank " + std::to_string(victim) + " (process", "has ended"));
    });
  }
}

// UBSan's check of types needs descriptors of its own.
#ifndef __SANITIZE_ADDRESS__
/// Leaves this process `count` descriptors to open.
void leave_descriptors(size_t count) {
  std::vector<FileDescriptor> files;
  while (files.size() <= count) {
    files.emplace_back(dup(STDIN_FILENO));
  }
  const auto end = static_cast<rlim_t>(files.back().get());
  const rlimit limit{end, end};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

TEST_CASE("shared memory: a rank that cannot connect is named by the others") {
  // Too few for the memory, the process, another rank and its message.
  for (const size_t count : {0, 3, 4, 5}) {
    ranks(4, [count] {
      const auto group = shm_group();
      if (group.rank() == 0) {
        leave_descriptors(count);
      }
      const auto error = error_after([&] { group.duplicate(); });
      REQUIRE_THAT(error, Has("connecting over shm failed"));
      REQUIRE_THAT(error, Has("Too many open files"));
      if (group.rank() > 0) {
        REQUIRE_THAT(error, Has(" because rank 0 of 4 on host "));
      }
      group.barrier();
    });
  }
}
#endif

SHM_TEST("shared memory: a forked child's copy of the group is not the rank") {
  require_in_child([&] {
    backend.reset();
    group = whole;
  });
  whole.barrier();
  const auto& impl = detail::ProcessGroupImpl::of(group);
  REQUIRE(detail::ended_rank(impl, {0, 1, 2}).empty());
  group.barrier();
}

SHM_TEST("shared memory: a rank that leaves the group is noticed") {
  if (backend->getRank() == 1) {
    backend.reset();
    group = whole;
  } else {
    Tensors tensors{torch::ones({4})};
    REQUIRE_THAT(
        error_after([&] { backend->allreduce(tensors)->wait(); }, seconds(1)),
        Has("has left the group") || Has("rank 1 failed"));
  }
  whole.barrier();
}

SHM_TEST("shared memory: a group destroyed amid an operation is noticed", 2) {
  Tensors tensors{torch::ones({4})};
  if (backend->getRank() == 1) {
    backend->allreduce(tensors);
    std::this_thread::sleep_for(milliseconds(20)); // its thread waits in it
    backend.reset();
    group = whole;
    whole.barrier();
  } else {
    whole.barrier();
    backend->allreduce(tensors)->wait(); // started by rank 1
    REQUIRE_THAT(
        error_after([&] { backend->allreduce(tensors)->wait(); }, seconds(1)),
        Has("the group was destroyed while"));
  }
  whole.barrier();
}

SHM_TEST("shared memory: different collectives are an error on all ranks") {
  const auto fails = [&](const std::string& text, const auto& call) {
    const auto part = whole.duplicate();
    REQUIRE_THAT(error_after([&] { call(backend_of(part)); }), Has(text));
    whole.barrier();
  };
  const bool differs = whole.rank() == 1;
  fails("ALLREDUCE of 5 elements", [&](const BackendPtr& own) {
    Tensors tensors{torch::ones({differs ? 5 : 4})};
    own->allreduce(tensors)->wait();
  });
  fails("Double", [&](const BackendPtr& own) {
    Tensors tensors{torch::ones({4}, differs ? torch::kDouble : torch::kFloat)};
    own->allreduce(tensors)->wait();
  });
  fails("by MIN", [&](const BackendPtr& own) {
    Tensors tensors{torch::ones({4})};
    c10d::AllreduceOptions options;
    options.reduceOp = differs ? c10d::ReduceOp::MIN : c10d::ReduceOp::MAX;
    own->allreduce(tensors, options)->wait();
  });
  fails("BARRIER", [&](const BackendPtr& own) {
    Tensors tensors{torch::ones({4})};
    if (differs) {
      own->barrier({})->wait();
    } else {
      own->broadcast(tensors)->wait();
    }
  });
  fails("dtype, sizes or the number", [&](const BackendPtr& own) {
    Tensors tensors{torch::eye(differs ? 5 : 4).to_sparse()};
    own->allreduce(tensors)->wait();
  });
}

/// A broadcast by a duplicate of the group, which may fail.
std::string broadcast_error(
    const ProcessGroup& whole,
    int64_t count,
    torch::ScalarType dtype,
    int64_t root) {
  const auto part = whole.duplicate();
  Tensors tensors{torch::ones({count}, dtype)};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  auto error = error_after(
      [&] { backend_of(part)->broadcast(tensors, options)->wait(); });
  whole.barrier();
  return error;
}

SHM_TEST("shared memory: broadcasts that differ are an error") {
  const bool differs = whole.rank() == 1;
  REQUIRE_THAT(
      broadcast_error(whole, 4, torch::kFloat, differs ? 1 : 0),
      Has("BROADCAST of Float with root 1"));
  const auto dtype = differs ? torch::kDouble : torch::kFloat;
  REQUIRE_THAT(
      broadcast_error(whole, 4, dtype, 0),
      Has("BROADCAST of Double with root 0"));
  // A rank that receives another number of bytes throws; the others may have
  // completed.
  const auto received =
      broadcast_error(whole, differs ? 5 : 4, torch::kFloat, 2);
  if (differs) {
    REQUIRE_THAT(received, Has("sent 16 bytes, but rank 1 expects 20"));
  }
  const auto sent = broadcast_error(whole, differs ? 5 : 4, torch::kFloat, 1);
  if (!differs) {
    REQUIRE_THAT(sent, Has("rank 1 sent 20 bytes, but rank ", " expects 16"));
  }
  auto sum = torch::ones({1});
  whole.all_reduce(sum);
  REQUIRE(sum.item<int64_t>() == whole.size());
}

SHM_TEST("shared memory: an abort ends what is under way on all ranks") {
  const auto signals = gloo_backend(whole);
  if (backend->getRank() == 0) {
    signal(signals, 1, 0);
    backend->abort();
  } else {
    Tensors tensors{torch::ones({4})};
    const auto work = backend->allreduce(tensors);
    signal(signals, 1, 0);
    REQUIRE_THAT(error_after([&] { work->wait(); }), Has("it was aborted"));
  }
  whole.barrier();
}

} // namespace ddp::test::shm_failure_test
