#pragma once

#include <tests/support/failures.h>
#include <tests/support/free_port.h>
#include <tests/support/shared_page.h>

#include <common/elastic_page.h>

#include <linux/futex.h>
#include <sys/syscall.h>

#include <climits>

namespace ddp::test {

inline void wake(std::atomic<uint32_t>& futex) {
  syscall(SYS_futex, &futex, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

/// Ranks, some of which start later, and their rendezvous.
class ElasticJob {
 public:
  ElasticJob(
      int size,
      const std::function<void()>& body,
      const char* backend = "gloo")
      : commands_(commands_of_ranks(size, body, {{"DDP_BACKEND", backend}})) {}

  /// Whether this is the test's first process. Ranks end in the constructor of
  /// their job; only those of a later job of the test pass an earlier one's.
  bool is_here() const {
    return !commands_.empty();
  }
  ElasticPage& page(size_t which) {
    return (*members_.at(which).page)->elastic;
  }
  Process& process(size_t which) {
    return *members_.at(which).process;
  }

  void start(int rank, int size, const Environment& more = {}) {
    auto command = commands_.at(members_.size());
    command.environment.insert(more.begin(), more.end());
    members_.push_back({std::make_unique<SharedPage<RankPage>>(), nullptr});
    auto& page = (*members_.back().page)->elastic;
    page.loss_patience = page.step_patience = 30000;
    auto& variables = command.environment;
    variables["RANK"] = std::to_string(rank);
    variables["WORLD_SIZE"] = std::to_string(size);
    variables["LOCAL_RANK"] = std::to_string(members_.size() - 1);
    variables["MASTER_PORT"] = std::to_string(port_);
    variables["DDP_HEARTBEAT_FD"] = members_.back().page->descriptor();
    members_.back().process = std::make_unique<Process>(command);
  }

  /// Starts the ranks of a whole group.
  void start_all(int size, const Environment& more = {}) {
    for (int rank = 0; rank < size; ++rank) {
      start(rank, size, more);
    }
  }

  void ask(const std::vector<size_t>& members) {
    for (const auto each : members) {
      REQUIRE(becomes_true([&] { return page(each).elastic == 1; }, kLong));
      ++page(each).asked;
      wake(page(each).asked);
    }
  }
  void wait_for_pause(const std::vector<size_t>& members) {
    for (const auto each : members) {
      const auto& own = page(each);
      REQUIRE(becomes_true([&] { return own.paused == own.asked; }, kLong));
    }
    port_ = free_port();
  }
  void pause(const std::vector<size_t>& members) {
    ask(members);
    wait_for_pause(members);
  }
  void go_on(size_t which, int rank, int size) {
    auto& page = this->page(which);
    const auto text = c10::str(
        "RANK=", rank, "\nWORLD_SIZE=", size, "\nMASTER_PORT=", port_, "\n");
    std::strcpy(page.variables, text.c_str());
    page.over = page.asked.load();
    wake(page.over);
  }
  /// Two ranks train, pause, and form a group again.
  void train_and_regroup() {
    start_all(2);
    REQUIRE(process(0).wait_for("trains.", kLong));
    pause({0, 1});
    go_on(0, 0, 2);
    go_on(1, 1, 2);
  }

  void require_end(const std::vector<size_t>& members, const char* text) {
    for (const auto each : members) {
      INFO("process " << each);
      REQUIRE_THAT(output_of(process(each).finish(kLong)), Has(text));
    }
  }

 private:
  struct Member {
    std::unique_ptr<SharedPage<RankPage>> page;
    std::unique_ptr<Process> process;
  };
  std::vector<Command> commands_;
  int port_ = free_port();
  std::vector<Member> members_;
};

} // namespace ddp::test
