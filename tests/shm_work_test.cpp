// How operations of the shm backend go on, end and are waited for.

#include <tests/support/backend_checks.h>
#include <tests/support/backend_waits.h>
#include <tests/support/shm_backend.h>

#include <ATen/core/ivalue.h>

#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <thread>

namespace ddp::test::shm_work_test {

using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& time) {
    return double(time.tv_sec) + 1e-6 * double(time.tv_usec);
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

} // namespace

TEST_CASE("shared memory: operations overlap and are waited for in any order") {
  ranks(3, [] {
    const auto group = shm_group();
    const auto other = group.duplicate();
    const auto backend = backend_of(group);
    check_overlap(backend, backend_of(other), [&](int i, const auto& values) {
      return i % 2 ? in_shared_memory(backend, values) : values;
    });
  });
}

TEST_CASE("shared memory: an operation that nobody waits for ends by itself") {
  shm_ranks(3, [](const BackendPtr& backend) {
    check_left_alone(backend);
    // Without a future, by looking now and then; one rank waits at once.
    Tensors last{torch::ones({1000000})};
    const auto work = backend->allreduce(last);
    if (backend->getRank() == 0) {
      work->wait();
    }
    while (!work->isCompleted()) {
      std::this_thread::yield();
    }
    REQUIRE(last[0].eq(3).all().item<bool>());
    // Nobody looks at all on one rank.
    Tensors unseen{torch::ones({1000000})};
    const auto left = backend->allreduce(unseen);
    if (backend->getRank() == 2) {
      signal(backend, 1, 2);
    } else {
      left->wait();
      signal(backend, 1, 2);
    }
    backend->barrier({})->wait();
  });
}

TEST_CASE("shared memory: what a callback throws is an error of the group") {
  ranks(3, [] {
    const auto whole = shm_group();
    for (const bool message : {false, true}) {
      const auto group = whole.duplicate();
      const auto backend = backend_of(group);
      const int rank = backend->getRank();
      Tensors tensors{torch::ones({5})};
      if (rank == 0) {
        const auto work = message ? backend->recv(tensors, 1, 0)
                                  : backend->allreduce(tensors);
        work->getFuture()->addCallback(
            [](c10::ivalue::Future&) { throw std::runtime_error("boom"); });
      }
      whole.barrier(); // the others come once the callback is there
      if (rank > 0 && !message) {
        backend->allreduce(tensors)->wait();
      } else if (rank == 1) {
        backend->send(tensors, 0, 0)->wait();
      }
      REQUIRE_THAT(
          error_after(
              milliseconds(0),
              [&] {
                for (;;) { // it may come after the operation
                  backend->barrier({})->wait();
                }
              }),
          ContainsSubstring("a callback on the future of ") &&
              ContainsSubstring(" threw boom"));
      whole.barrier();
    }
  });
}

TEST_CASE("shared memory: a wait that ends too early does no harm") {
  ranks(3, [] {
    const auto group = shm_group();
    check_early_wait(backend_of(group), backend_of(group));
  });
}

TEST_CASE("shared memory: a wait takes no processor") {
  shm_ranks(4, [](const BackendPtr& backend) {
    backend->barrier({})->wait();
    const auto before = cpu_seconds();
    const auto start = std::chrono::steady_clock::now();
    if (backend->getRank() == 3) {
      std::this_thread::sleep_for(seconds(2)); // what the others wait for
    }
    Tensors sums{torch::ones({10})};
    backend->allreduce(sums)->wait();
    const std::chrono::duration<double> waited =
        std::chrono::steady_clock::now() - start;
    REQUIRE(cpu_seconds() - before < waited.count() / 4);
  });
}

TEST_CASE("shared memory: messages of any source outlive some sources") {
  shm_ranks(3, [](const BackendPtr& backend) {
    Tensors message{torch::ones({4})};
    if (backend->getRank() == 2) {
      backend->send(message, 0, 1)->wait();
      return; // and its process ends
    }
    if (backend->getRank() == 1) {
      std::this_thread::sleep_for(milliseconds(500)); // what rank 0 waits for
      backend->send(message, 0, 1)->wait();
      return;
    }
    for (int i = 0; i < 2; ++i) {
      backend->recvAnysource(message, 1)->wait();
    }
    REQUIRE_THAT(
        error_after(
            milliseconds(0),
            [&] { backend->recvAnysource(message, 1)->wait(); },
            seconds(2)),
        ContainsSubstring("has ") && ContainsSubstring("(process"));
  });
}

TEST_CASE(
    "shared memory: a monitored barrier names the ranks that do not come") {
  ranks(4, [] {
    const auto whole = shm_group();
    const auto group = whole.duplicate();
    check_monitored_barrier(backend_of(group));
    whole.barrier();
  });
}

TEST_CASE("shared memory: a message of another size, or none, is an error") {
  ranks(3, [] {
    const auto whole = shm_group();
    for (const int64_t sent : {3, 5}) {
      const auto group = whole.duplicate();
      const auto backend = backend_of(group);
      Tensors message{torch::ones({backend->getRank() == 0 ? sent : 4})};
      if (backend->getRank() == 0) {
        backend->send(message, 1, 0)->wait();
      } else if (backend->getRank() == 1) {
        REQUIRE_THAT(
            error_after(
                milliseconds(0), [&] { backend->recv(message, 0, 0)->wait(); }),
            ContainsSubstring(
                "rank 0 sent " + std::to_string(4 * sent) + " bytes, not 16"));
      }
      whole.barrier();
    }
    const auto group = whole.duplicate();
    const auto backend = backend_of(group);
    backend->setTimeout(milliseconds(300));
    if (backend->getRank() == 1) {
      Tensors message{torch::ones({4})};
      REQUIRE_THAT(
          error_after(
              milliseconds(290), [&] { backend->recv(message, 0, 9)->wait(); }),
          ContainsSubstring("timed out after 0.3 s"));
    }
    whole.barrier();
  });
}

TEST_CASE("shared memory: memory of tensors and messages is given back") {
  shm_ranks(2, [](const BackendPtr& backend) {
    const auto message = torch::ones({1 << 20});
    Tensors received{torch::empty({1 << 20})};
    // 40 times 4 MiB of messages and as much of tensors, at one place each.
    const auto* first = backend->allocateTensor(8).const_data_ptr();
    for (int i = 0; i < 40; ++i) {
      Tensors sent{message};
      backend->send(sent, 1 - backend->getRank(), 0)->wait();
      backend->recv(received, 1 - backend->getRank(), 0)->wait();
      backend->barrier({})->wait();
      const auto large = in_shared_memory(backend, message);
      const auto* begin = static_cast<const char*>(large.const_data_ptr());
      REQUIRE(begin - static_cast<const char*>(first) < int64_t{20} << 20);
    }
  });
}

TEST_CASE("shared memory: a message's memory is given back once it is taken") {
  ranks(2, [] {
    const auto group = shm_group();
    const auto backend = backend_of(group);
    const auto* first =
        static_cast<const char*>(backend->allocateTensor(8).const_data_ptr());
    Tensors message{torch::ones({1 << 20})};
    Tensors answer{torch::ones({1})};
    const int rank = backend->getRank();
    if (rank == 0) {
      backend->send(message, 1, 0)->wait();
      backend->recv(answer, 1, 1)->wait();
    } else {
      backend->recv(message, 0, 0)->wait();
      backend->send(answer, 0, 1)->wait();
    }
    // Where the message was, but for its head.
    const auto tensor = backend->allocateTensor(1 << 20);
    REQUIRE(static_cast<const char*>(tensor.const_data_ptr()) - first < 4096);
    group.barrier();
  });
}

TEST_CASE("shared memory: where a rank cannot have it, all take gloo") {
  const auto options = RankOptions().environment(
      {{"DDP_BACKEND", "auto"}, {"DDP_DEVICE", "cpu"}});
  for (const bool limited : {false, true}) {
    ranks(3, options, [limited] {
      if (limited && std::getenv("RANK") == std::string("1")) {
        const rlimit small{1 << 20, 1 << 20};
        REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
      }
      const auto group = init_process_group();
      REQUIRE(group.backend() == (limited ? "gloo" : "shm"));
      auto sum = torch::ones({3});
      group.all_reduce(sum);
      REQUIRE(sum.eq(3).all().item<bool>());
    });
  }
}

} // namespace ddp::test::shm_work_test
